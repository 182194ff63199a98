/* SPDX-License-Identifier: MIT */
/* The fields of a create, in the contract's order (8.3, steps 2 to 7): the order decides which of
 * two errors a client sees. Nothing here changes anything. Messages name fields, never values of
 * env, headers or logins. */
#include "sandboxd/core/core_internal.h"

#include "common/sys/mem.h"
#include "sandboxd/core/schedule.h"
#include "sandboxd/core/snapshots.h"
#include "sandboxd/core/export.h"
#include "sandboxd/core/strs.h"
#include "sandboxd/core/volumes.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define VOLUMES_MAX        8

static bool given(const char *s)
{
	return s && *s;
}

static int bad(struct err *e, const char *what)
{
	return err_set(e, ERR_INVALID_REQUEST, "%s", what);
}

static int lacks(struct err *e, const char *what)
{
	return err_set(e, ERR_UNSUPPORTED, "this server lacks the capability for %s", what);
}

int check_labels(const struct strmap *labels, struct err *e)
{
	if (labels->n > LABELS_MAX)
		return err_set(e, ERR_INVALID_REQUEST, "labels: at most %d", LABELS_MAX);
	for (size_t i = 0; i < labels->n; i++) {
		if (!label_key_ok(labels->keys[i]))
			return bad(e,
				"labels: a key must be a lower-case word of at most 63 characters "
				"(letters, digits, . _ / -)");
		if (!label_value_ok(labels->values[i]))
			return err_set(e, ERR_INVALID_REQUEST,
				"labels: the value of \"%s\" must be UTF-8 "
				"without control characters, at most %d bytes",
				labels->keys[i], LABEL_VALUE_MAX);
	}
	return 0;
}

static bool below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !strncmp(path, dir, n) && (path[n] == '\0' || path[n] == '/');
}

static bool mount_path_ok(const char *path)
{
	static const char *const taken[] = { "/proc", "/sys", "/dev", "/run", "/etc", "/usr",
		"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot", "/tmp" };
	const char *p = path;

	if (!p || *p != '/' || strlen(p) >= BACKEND_PATH_MAX)
		return false;
	while (*p == '/') {
		size_t n = strspn(
			++p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
		if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
			return false;
		p += n;
	}
	for (size_t i = 0; i < ARRAY_LEN(taken); i++)
		if (below(path, taken[i]))
			return false;
	return *p == '\0';
}

static int check_volumes(const struct objlist *l, struct err *e)
{
	const struct volume_mount_body *v = l->v;

	if (l->n > VOLUMES_MAX)
		return bad(e, "volumes: at most 8");
	for (size_t i = 0; i < l->n; i++) {
		if (!v[i].name || !name_ok(v[i].name))
			return err_set(e, ERR_INVALID_REQUEST,
				"volumes[%zu].name is not a volume name", i);
		if (!mount_path_ok(v[i].path))
			return err_set(e, ERR_INVALID_REQUEST,
				"volumes[%zu].path is not a folder that a volume may be mounted at",
				i);
		for (size_t j = 0; j < i; j++)
			if (!strcmp(v[i].name, v[j].name) || below(v[i].path, v[j].path) ||
				below(v[j].path, v[i].path))
				return err_set(e, ERR_INVALID_REQUEST,
					"volumes[%zu]: the same volume or place as volumes[%zu]", i,
					j);
	}
	return 0;
}

static int check_image(const struct core *c, const char *image, struct err *e)
{
	if (!image || !*image)
		return 0;
	if (!image_ref_ok(image))
		return bad(e, "image is not an image reference");
	if (c->policy->has_images && !strs_has(&c->policy->images, image))
		return err_set(e, ERR_REFUSED, "image \"%s\" is not on this server's list", image);
	return 0;
}

/* A fork has the original's where nothing is said, and the limits may have changed since. */
static int check_resources(const struct core *c, const struct create_body *b,
	const struct snapshot_use *from, struct err *e)
{
	const struct limits *l = &c->policy->limits;
	double cpus = from && b->cpus == 0 ? from->cpus : b->cpus;
	int64_t memory_mb = from && !b->memory_mb ? from->memory_mb : b->memory_mb;
	int64_t disk_mb = from && !b->disk_mb ? from->disk_mb : b->disk_mb;

	if (cpus < 0 || cpus > l->max_cpus)
		return err_set(
			e, ERR_INVALID_REQUEST, "cpus must be above 0 and at most %g", l->max_cpus);
	if (memory_mb < 0 || memory_mb > l->max_memory_mb)
		return err_set(e, ERR_INVALID_REQUEST, "memory_mb must be from 1 to %lld",
			(long long)l->max_memory_mb);
	if (disk_mb < 0 || disk_mb > l->max_disk_mb)
		return err_set(e, ERR_INVALID_REQUEST, "disk_mb must be from 1 to %lld",
			(long long)l->max_disk_mb);
	return 0;
}

int check_idle_timeout(const struct limits *l, int64_t secs, int64_t least, struct err *e)
{
	int64_t most = l->max_idle_timeout_secs > 0 ? l->max_idle_timeout_secs : INT64_MAX;

	if (secs >= least && secs <= most)
		return 0;
	return err_set(e, ERR_INVALID_REQUEST, "idle_timeout_secs must be from %lld to %lld",
		(long long)least, (long long)most);
}

static int check_timeouts(const struct core *c, const struct create_body *b, struct err *e)
{
	const struct limits *l = &c->policy->limits;

	if (check_idle_timeout(l, b->idle_timeout_secs, 0, e) < 0)
		return -1;
	if (b->lifetime_secs < 0 ||
		(l->max_lifetime_secs > 0 && b->lifetime_secs > l->max_lifetime_secs) ||
		b->lifetime_secs > INT32_MAX)
		return err_set(e, ERR_INVALID_REQUEST, "lifetime_secs must be from 1 to %lld",
			(long long)(l->max_lifetime_secs > 0 ? l->max_lifetime_secs : INT32_MAX));
	return 0;
}

static int check_env(const struct strmap *env, struct err *e)
{
	for (size_t i = 0; i < env->n; i++)
		if (!env_name_ok(env->keys[i]))
			return bad(e,
				"env: a name must be letters, digits and _, not starting with a digit");
	for (size_t i = 0; i < env->n; i++)
		if (env_name_reserved(env->keys[i]))
			return err_set(e, ERR_REFUSED, "env: \"%s\" is reserved", env->keys[i]);
	return 0;
}

int check_network_mode(const struct core *c, enum net_mode mode, struct err *e)
{
	if (mode == NET_ALLOWLIST && !core_cap(c, CAP_EGRESS_ALLOWLIST))
		return lacks(e, "network mode \"allowlist\"");
	if (mode == NET_OPEN && !core_cap(c, CAP_EGRESS_OPEN))
		return lacks(e, "network mode \"open\"");
	return 0;
}

static bool registry_host_ok(const char *r)
{
	size_t n = strspn(
		r ? r : "", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-");

	if (n == 0 || n > 253 || r[0] == '-' || r[0] == '.')
		return false;
	if (r[n] == '\0')
		return true;
	size_t digits = strspn(r + n + 1, "0123456789");
	return r[n] == ':' && digits >= 1 && digits <= 5 && !r[n + 1 + digits] &&
	       atoi(r + n + 1) >= 1 && atoi(r + n + 1) <= 65535;
}

static int check_registry_login(
	const struct core *c, const struct registry_login_body *b, struct err *e)
{
	if (!registry_host_ok(b->registry))
		return bad(e, "registry_login.registry must be host or host:port");
	if (!b->username || !*b->username || strchr(b->username, ':'))
		return bad(e, "registry_login.username must not be empty or hold a colon");
	if (b->password && strpbrk(b->password, "\r\n"))
		return bad(e, "registry_login.password must not hold a line break");
	return core_cap(c, CAP_REGISTRY_LOGIN) ? 0 : lacks(e, "registry_login");
}

static int check_gpus(const struct core *c, const struct create_body *b, struct err *e)
{
	if (b->gpus < 0)
		return bad(e, "gpus must not be negative");
	if (b->gpus == 0)
		return 0;
	if (!core_cap(c, CAP_GPU))
		return lacks(e, "gpus");
	if (given(b->snapshot_id) || b->snapshot_every_secs)
		return bad(e, "a sandbox with gpus has no snapshots");
	return b->gpus > c->policy->limits.max_gpus ? bad(e, "gpus is above this server's limit")
						    : 0;
}

int check_idle_action(const struct core *c, const char *action, struct err *e)
{
	if (!action || !*action || !strcmp(action, "terminate"))
		return 0;
	if (strcmp(action, "suspend"))
		return bad(e, "idle_action must be \"terminate\" or \"suspend\"");
	return core_cap(c, CAP_SUSPEND) ? 0 : lacks(e, "idle_action \"suspend\"");
}

static int check_values(const struct core *c, const struct create_body *b,
	const struct snapshot_use *from, struct err *e)
{
	if (b->name && *b->name && !name_ok(b->name))
		return bad(e,
			"name must be 1 to 63 lower-case letters, digits and dashes, and not start "
			"with a dash");
	if (check_labels(&b->labels, e) < 0 || check_volumes(&b->volumes, e) < 0 ||
		check_image(c, b->image, e) < 0 || check_resources(c, b, from, e) < 0 ||
		check_timeouts(c, b, e) < 0 ||
		schedule_check(c, b->snapshot_every_secs, b->snapshot_keep, e) < 0)
		return -1;
	return check_env(&b->env, e);
}

/* Do they exist? They are looked up again when they are claimed. */
static int check_known_volumes(const struct core *c, const struct create_body *b, struct err *e)
{
	struct sandbox_volume *v = NULL;
	size_t n;

	if (!b->volumes.n)
		return 0;
	if (given(b->snapshot_id))
		return bad(e, "a sandbox that begins with a snapshot cannot have volumes");
	if (!core_cap(c, CAP_VOLUMES))
		return lacks(e, "volumes");
	if (volumes_resolve(c, &b->volumes, &v, &n, e) < 0)
		return -1;
	free(v);
	return 0;
}

static int check_features(const struct core *c, const struct create_body *b, struct err *e)
{
	if ((b->snapshot_every_secs || b->snapshot_keep) && !core_cap(c, CAP_SNAPSHOT))
		return lacks(e, "a snapshot schedule");
	if (b->snapshot_every_secs && b->volumes.n)
		return err_set(
			e, ERR_CONFLICT, "a sandbox with volumes cannot have a snapshot schedule");
	if (check_known_volumes(c, b, e) < 0)
		return -1;
	if (b->has_metrics_export && check_metrics_export(c, &b->metrics_export, false, e) < 0)
		return -1;
	if (b->has_registry_login && check_registry_login(c, &b->registry_login, e) < 0)
		return -1;
	return check_gpus(c, b, e) < 0 ? -1 : check_idle_action(c, b->idle_action, e);
}

int check_create(const struct core *c, const struct create_body *b, const struct snapshot_use *from,
	struct net_policy *ret, struct err *e)
{
	if (from && given(b->image) && strcmp(b->image, from->image))
		return err_set(e, ERR_INVALID_REQUEST,
			"image: the snapshot is one of image \"%s\", and no other can be named",
			from->image);
	if (check_values(c, b, from, e) < 0 ||
		net_policy_resolve(c->policy, b->has_network ? &b->network : NULL, ret, e) < 0)
		return -1;
	if (check_network_mode(c, ret->mode, e) == 0 && check_features(c, b, e) == 0)
		return 0;
	net_policy_free(ret);
	return -1;
}
