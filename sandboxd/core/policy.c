/* SPDX-License-Identifier: MIT */
/* The policy file: strict JSON, every key optional, everything checked before the server starts.
 * What is absent has the built-in value; what contradicts itself is refused with a sentence, never
 * mended. */
#include "sandboxd/core/core.h"

#include "common/base/log.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/core/strs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define POLICY_FILE_MAX (1024 * 1024)
#define POOL_SIZE_MAX   32
#define MB_MAX          ((int64_t)1 << 40) /* sums of these, and their bytes, stay numbers */
#define CPUS_MAX        1e6

struct defaults_part {
	double cpus;
	int64_t memory_mb, disk_mb, idle_timeout_secs;
	bool has_cpus, has_memory_mb, has_disk_mb, has_idle_timeout_secs;
};
struct limits_part {
	double max_cpus;
	int64_t max_memory_mb, max_disk_mb, max_idle_timeout_secs, max_lifetime_secs,
		min_snapshot_every_secs, max_snapshot_keep, min_metrics_export_secs, max_gpus;
	bool has_max_cpus, has_max_memory_mb, has_max_disk_mb, has_max_idle_timeout_secs,
		has_max_lifetime_secs, has_min_snapshot_every_secs, has_max_snapshot_keep,
		has_min_metrics_export_secs, has_max_gpus;
};
struct net_default_part {
	char *mode;
	struct strlist allow, deny;
	bool has_allow;
};
struct network_part {
	struct net_default_part dflt;
	char *ceiling;
	struct strlist may_allow;
	bool has_default, has_may_allow;
};
struct pool_part {
	char *image;
	int64_t size;
};
struct policy_file {
	char *default_image;
	struct strlist images;
	struct defaults_part defaults;
	struct limits_part limits;
	struct network_part network;
	struct objlist pools;
	bool has_images;
};

static const struct field defaults_fields[] = {
	FIELD_HAS(defaults_part, cpus, F_NUM),
	FIELD_HAS(defaults_part, memory_mb, F_INT),
	FIELD_HAS(defaults_part, disk_mb, F_INT),
	FIELD_HAS(defaults_part, idle_timeout_secs, F_INT),
	FIELDS_END,
};
static const struct field limits_fields[] = {
	FIELD_HAS(limits_part, max_cpus, F_NUM),
	FIELD_HAS(limits_part, max_memory_mb, F_INT),
	FIELD_HAS(limits_part, max_disk_mb, F_INT),
	FIELD_HAS(limits_part, max_idle_timeout_secs, F_INT),
	FIELD_HAS(limits_part, max_lifetime_secs, F_INT),
	FIELD_HAS(limits_part, min_snapshot_every_secs, F_INT),
	FIELD_HAS(limits_part, max_snapshot_keep, F_INT),
	FIELD_HAS(limits_part, min_metrics_export_secs, F_INT),
	FIELD_HAS(limits_part, max_gpus, F_INT),
	FIELDS_END,
};
static const struct field net_default_fields[] = {
	FIELD(net_default_part, mode, F_STR),
	FIELD_HAS(net_default_part, allow, F_STRS),
	FIELD(net_default_part, deny, F_STRS),
	FIELDS_END,
};
static const struct field net_fields[] = {
	{ .name = "default",
		.type = F_OBJ,
		.offset = offsetof(struct network_part, dflt),
		.has = offsetof(struct network_part, has_default),
		.sub = net_default_fields },
	FIELD(network_part, ceiling, F_STR),
	FIELD_HAS(network_part, may_allow, F_STRS),
	FIELDS_END,
};
static const struct field pool_fields[] = {
	FIELD(pool_part, image, F_STR),
	FIELD(pool_part, size, F_INT, .required = true),
	FIELDS_END,
};
static const struct field policy_fields[] = {
	FIELD(policy_file, default_image, F_STR),
	FIELD_HAS(policy_file, images, F_STRS),
	FIELD(policy_file, defaults, F_OBJ, .sub = defaults_fields),
	FIELD(policy_file, limits, F_OBJ, .sub = limits_fields),
	FIELD(policy_file, network, F_OBJ, .sub = net_fields),
	FIELD(policy_file, pools, F_OBJS, .sub = pool_fields, .size = sizeof(struct pool_part)),
	FIELDS_END,
};

static const struct limits built_in = {
	.max_cpus = 8,
	.max_memory_mb = 16384,
	.max_disk_mb = 102400,
	.max_idle_timeout_secs = 604800,
	.max_lifetime_secs = 0,
	.min_snapshot_every_secs = 300,
	.max_snapshot_keep = 5,
	.min_metrics_export_secs = 10,
	.max_gpus = 0,
	.default_cpus = 1,
	.default_memory_mb = 1024,
	.default_disk_mb = 10240,
	.default_idle_timeout_secs = 1800,
};

static int refuse(struct err *e, const char *what)
{
	return err_set(e, ERR_INVALID_REQUEST, "%s", what);
}

static void take_numbers(const struct policy_file *f, struct limits *l)
{
	const struct defaults_part *d = &f->defaults;
	const struct limits_part *m = &f->limits;
	const struct {
		bool has;
		int64_t from;
		int64_t *to;
	} ints[] = {
		{ d->has_memory_mb, d->memory_mb, &l->default_memory_mb },
		{ d->has_disk_mb, d->disk_mb, &l->default_disk_mb },
		{ d->has_idle_timeout_secs, d->idle_timeout_secs, &l->default_idle_timeout_secs },
		{ m->has_max_memory_mb, m->max_memory_mb, &l->max_memory_mb },
		{ m->has_max_disk_mb, m->max_disk_mb, &l->max_disk_mb },
		{ m->has_max_idle_timeout_secs, m->max_idle_timeout_secs,
			&l->max_idle_timeout_secs },
		{ m->has_max_lifetime_secs, m->max_lifetime_secs, &l->max_lifetime_secs },
		{ m->has_min_snapshot_every_secs, m->min_snapshot_every_secs,
			&l->min_snapshot_every_secs },
		{ m->has_max_snapshot_keep, m->max_snapshot_keep, &l->max_snapshot_keep },
		{ m->has_min_metrics_export_secs, m->min_metrics_export_secs,
			&l->min_metrics_export_secs },
		{ m->has_max_gpus, m->max_gpus, &l->max_gpus },
	};

	*l = built_in;
	for (size_t i = 0; i < ARRAY_LEN(ints); i++)
		if (ints[i].has)
			*ints[i].to = ints[i].from;
	if (d->has_cpus)
		l->default_cpus = d->cpus;
	if (m->has_max_cpus)
		l->max_cpus = m->max_cpus;
}

static int check_numbers(const struct limits *l, struct err *e)
{
	const struct {
		bool bad;
		const char *what;
	} rules[] = {
		{ !(l->max_cpus > 0 && l->max_cpus <= CPUS_MAX),
			"limits.max_cpus must be above 0 and at most 1000000" },
		{ l->max_memory_mb <= 0 || l->max_memory_mb > MB_MAX,
			"limits.max_memory_mb must be from 1 to 1099511627776" },
		{ l->max_disk_mb <= 0 || l->max_disk_mb > MB_MAX,
			"limits.max_disk_mb must be from 1 to 1099511627776" },
		{ l->max_idle_timeout_secs < 0,
			"limits.max_idle_timeout_secs must not be negative" },
		{ l->max_lifetime_secs < 0 || l->max_lifetime_secs > INT32_MAX,
			"limits.max_lifetime_secs must be from 0 to 2147483647" },
		{ l->min_snapshot_every_secs < 1 || l->min_snapshot_every_secs > INT32_MAX,
			"limits.min_snapshot_every_secs must be from 1 to 2147483647" },
		{ l->max_snapshot_keep < 0, "limits.max_snapshot_keep must not be negative" },
		{ l->min_metrics_export_secs < 1 || l->min_metrics_export_secs > INT32_MAX,
			"limits.min_metrics_export_secs must be from 1 to 2147483647" },
		{ l->max_gpus < 0, "limits.max_gpus must not be negative" },
		{ !(l->default_cpus > 0 && l->default_cpus <= l->max_cpus),
			"defaults.cpus must be above 0 and within limits.max_cpus" },
		{ l->default_memory_mb <= 0 || l->default_memory_mb > l->max_memory_mb,
			"defaults.memory_mb must be above 0 and within limits.max_memory_mb" },
		{ l->default_disk_mb <= 0 || l->default_disk_mb > l->max_disk_mb,
			"defaults.disk_mb must be above 0 and within limits.max_disk_mb" },
		{ l->default_idle_timeout_secs < 0 ||
				(l->max_idle_timeout_secs > 0 &&
					(l->default_idle_timeout_secs == 0 ||
						l->default_idle_timeout_secs >
							l->max_idle_timeout_secs)),
			"defaults.idle_timeout_secs must be within limits.max_idle_timeout_secs; "
			"0 (never) needs a limit of 0" },
	};

	for (size_t i = 0; i < ARRAY_LEN(rules); i++)
		if (rules[i].bad)
			return refuse(e, rules[i].what);
	return 0;
}

static int take_images(struct policy_file *f, struct server_policy *p, struct err *e)
{
	for (size_t i = 0; i < f->images.n; i++)
		if (!image_ref_ok(f->images.v[i]))
			return err_set(
				e, ERR_INVALID_REQUEST, "images[%zu] is not an image reference", i);
	if (f->default_image && !image_ref_ok(f->default_image))
		return refuse(e, "default_image is not an image reference");
	p->has_images = f->has_images;
	p->images = f->images;
	f->images = (struct strlist){ NULL, 0 };
	p->default_image = f->default_image ? steal(f->default_image) : strdup("base");
	if (!p->default_image)
		return err_oom(e);
	if (p->has_images && !strs_has(&p->images, p->default_image))
		return err_set(e, ERR_INVALID_REQUEST,
			"default_image \"%s\" is not on the list \"images\"", p->default_image);
	return 0;
}

static int take_may_allow(const struct network_part *n, struct server_policy *p, struct err *e)
{
	struct strlist plain = { NULL, 0 }, star = { NULL, 0 };
	int rc = 0;

	if (!n->has_may_allow)
		return strs_add(&p->may_allow, "*");
	for (size_t i = 0; i < n->may_allow.n && rc == 0; i++)
		rc = strs_add(strcmp(n->may_allow.v[i], "*") ? &plain : &star, n->may_allow.v[i]);
	if (rc < 0)
		err_oom(e);
	if (rc == 0)
		rc = net_names_clean(&plain, "network.may_allow", &p->may_allow, e);
	if (rc == 0 && star.n)
		rc = strs_add(&p->may_allow, "*");
	strs_free(&plain);
	strs_free(&star);
	return rc;
}

static int take_net_default(const struct network_part *n, struct server_policy *p, struct err *e)
{
	const struct net_default_part *d = &n->dflt;
	int mode = d->mode && *d->mode ? net_mode_of(d->mode) : NET_OPEN;

	if (mode < 0)
		return refuse(
			e, "network.default.mode must be \"none\", \"allowlist\" or \"open\"");
	if (mode > (int)p->net_ceiling)
		return refuse(e, "network.default is above network.ceiling");
	p->net_default.mode = (enum net_mode)mode;
	if (net_names_clean(&d->deny, "network.default.deny", &p->net_default.deny, e) < 0)
		return -1;
	if (mode != NET_ALLOWLIST)
		return d->allow.n ? refuse(e, "network.default.allow needs mode \"allowlist\"") : 0;
	if (d->has_allow && !d->allow.n)
		return refuse(e, "network.default.allow is empty; mode \"none\" cuts the network");
	if (d->has_allow)
		return net_names_clean(
			&d->allow, "network.default.allow", &p->net_default.allow, e);
	p->net_default.mode = NET_NONE; /* so that the built-in list is taken */
	if (net_default_list(p, &p->net_default.allow, e) < 0)
		return -1;
	p->net_default.mode = NET_ALLOWLIST;
	return 0;
}

static int take_network(const struct network_part *n, struct server_policy *p, struct err *e)
{
	int ceiling = n->ceiling && *n->ceiling ? net_mode_of(n->ceiling) : NET_OPEN;

	if (ceiling < 0)
		return refuse(e, "network.ceiling must be \"none\", \"allowlist\" or \"open\"");
	p->net_ceiling = (enum net_mode)ceiling;
	if (take_may_allow(n, p, e) < 0)
		return -1;
	return take_net_default(n, p, e);
}

static int check_pools(const struct policy_file *f, const struct server_policy *p, struct err *e)
{
	const struct pool_part *pools = f->pools.v;

	for (size_t i = 0; i < f->pools.n; i++) {
		const char *image =
			pools[i].image && *pools[i].image ? pools[i].image : p->default_image;
		if (pools[i].size < 1 || pools[i].size > POOL_SIZE_MAX)
			return err_set(e, ERR_INVALID_REQUEST,
				"pools[%zu].size must be from 1 to %d", i, POOL_SIZE_MAX);
		if (!image_ref_ok(image) || (p->has_images && !strs_has(&p->images, image)))
			return err_set(
				e, ERR_INVALID_REQUEST, "pools[%zu].image may not be used here", i);
		for (size_t j = 0; j < i; j++)
			if (!strcmp(image, pools[j].image && *pools[j].image ? pools[j].image
									     : p->default_image))
				return err_set(e, ERR_INVALID_REQUEST,
					"pools[%zu]: there is a pool for this image already", i);
	}
	return 0;
}

static int take_pools(const struct policy_file *f, struct server_policy *p, struct err *e)
{
	const struct pool_part *pools = f->pools.v;

	if (check_pools(f, p, e) < 0)
		return -1;
	p->pools = calloc(f->pools.n + 1, sizeof(*p->pools));
	if (!p->pools)
		return err_oom(e);
	for (size_t i = 0; i < f->pools.n; i++) {
		struct policy_pool *to = &p->pools[p->npools++];
		to->size = (unsigned)pools[i].size;
		if (pools[i].image && *pools[i].image && !(to->image = strdup(pools[i].image)))
			return err_oom(e);
	}
	return 0;
}

static int read_file(const char *path, char **ret, size_t *ret_len, struct err *e)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	_cleanup_free_ char *buf = NULL;
	struct stat st;
	int rc;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, errno, "policy file \"%s\"", path);
	if (!S_ISREG(st.st_mode) || st.st_size > POLICY_FILE_MAX)
		return err_set(e, ERR_INVALID_REQUEST,
			"policy file \"%s\" is not a file of at most 1 MiB", path);
	buf = malloc((size_t)st.st_size + 1);
	if (!buf)
		return err_oom(e);
	rc = fd_read_full(fd, buf, (size_t)st.st_size);
	if (rc < 0 && st.st_size > 0)
		return err_sys(e, -rc, "policy file \"%s\"", path);
	*ret_len = (size_t)st.st_size;
	*ret = steal(buf);
	return 0;
}

static int take_all(struct policy_file *f, struct server_policy *p, struct err *e)
{
	take_numbers(f, &p->limits);
	if (check_numbers(&p->limits, e) < 0 || take_images(f, p, e) < 0 ||
		take_network(&f->network, p, e) < 0)
		return -1;
	return take_pools(f, p, e);
}

static int load_text(const char *path, json_t **ret, struct err *e)
{
	_cleanup_free_ char *text = NULL;
	size_t len = 0;

	if (!path) {
		*ret = json_object();
		return 0;
	}
	if (read_file(path, &text, &len, e) < 0)
		return -1;
	return json_parse_object(text, len, ret, e) < 0 ? err_prefix(e, "policy file: ") : 0;
}

int server_policy_load(const char *file, struct server_policy *ret, struct err *e)
{
	_cleanup_json_ json_t *o = NULL;
	struct policy_file f = { 0 };
	int rc;

	*ret = (struct server_policy){ .has_images = false };
	if (load_text(file, &o, e) < 0)
		return -1;
	if (schema_decode(policy_fields, o, &f, e) < 0)
		return err_prefix(e, "policy file: ");
	rc = take_all(&f, ret, e);
	schema_free(policy_fields, &f);
	if (rc == 0)
		return 0;
	server_policy_free(ret);
	return file ? err_prefix(e, "policy file: ") : -1;
}

void server_policy_free(struct server_policy *p)
{
	free(p->default_image);
	strs_free(&p->images);
	strs_free(&p->may_allow);
	net_policy_free(&p->net_default);
	for (size_t i = 0; i < p->npools; i++)
		free(p->pools[i].image);
	free(p->pools);
	*p = (struct server_policy){ .has_images = false };
}

static void drop_to_none(struct server_policy *p)
{
	p->net_default.mode = NET_NONE;
	strs_free(&p->net_default.allow);
}

void server_policy_fit(struct server_policy *p, bool can_filter, bool can_open)
{
	if (!can_filter && p->net_ceiling == NET_OPEN && can_open) {
		if (p->net_default.mode == NET_ALLOWLIST)
			drop_to_none(p);
		strs_free(&p->may_allow);
	} else if (!can_filter && p->net_ceiling != NET_NONE) {
		drop_to_none(p);
		p->net_ceiling = NET_NONE;
		strs_free(&p->may_allow);
		log_warn(
			"this host cannot filter the network: every sandbox gets network mode none");
	} else if (can_filter && !can_open && p->net_ceiling == NET_OPEN) {
		p->net_ceiling = NET_ALLOWLIST;
		if (p->net_default.mode == NET_OPEN &&
			net_default_list(p, &p->net_default.allow, NULL) == 0)
			p->net_default.mode = NET_ALLOWLIST;
	}
}
