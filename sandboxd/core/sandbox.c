/* SPDX-License-Identifier: MIT */
/* The object itself: references, its record, its folder. The record's JSON is ours alone; what a
 * later version adds is ignored by an earlier one, and what is missing gets the default. */
#include "sandboxd/core/core_internal.h"

#include "common/base/log.h"
#include "common/sys/mem.h"
#include "sandboxd/core/clock.h"
#include "sandboxd/core/export.h"
#include "sandboxd/core/metrics.h"
#include "sandboxd/core/proc.h"
#include "sandboxd/core/layers.h"
#include "sandboxd/core/strs.h"
#include "sandboxd/core/volumes.h"
#include "sandboxd/proto/spool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

const char *const sandbox_state_words[] = { "pending", "running", "suspended", "terminated" };

struct sandbox *sandbox_new(struct core *c, const char *id)
{
	struct sandbox *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	snprintf(s->id, sizeof(s->id), "%s", id);
	s->core = c;
	s->refs = 1;
	s->run_dirfd = -1;
	s->grip = BACKEND_GRIP_NULL;
	s->next_num = 1;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	return s;
}

void image_env_free(char **env)
{
	for (size_t i = 0; env && env[i]; i++)
		free(env[i]);
	free(env);
}

json_t *image_env_json(char *const *env)
{
	struct strlist l = { (char **)(uintptr_t)env, 0 };

	while (env && env[l.n])
		l.n++;
	return strs_json(&l);
}

int image_env_load(const json_t *a, char ***ret)
{
	struct strlist l;

	if (strs_from_json(a, &l) < 0)
		return -1;
	*ret = l.v;
	return 0;
}

int image_env_copy(char *const *env, char ***ret)
{
	struct strlist l = { NULL, 0 };

	for (size_t i = 0; env && env[i]; i++)
		if (strs_add(&l, env[i]) < 0) {
			strs_free(&l);
			return -1;
		}
	*ret = l.v;
	return 0;
}

static void sandbox_free(struct sandbox *s)
{
	proc_free_all(s);
	close_p(&s->run_dirfd);
	backend_grip_close(&s->grip);
	free(s->text);
	free(s->image);
	free(s->name);
	map_free(&s->env);
	map_free(&s->labels);
	net_policy_free(&s->network);
	image_env_free(s->image_env);
	free(s->volumes);
	export_free(s->metrics_export);
	metrics_free(s->metrics);
	explicit_bzero(s->secret, sizeof(s->secret));
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

void sandbox_hold_chain(struct sandbox *s)
{
	layers_ref(s->core, &s->chain);
	s->chain_held = true;
}

void sandbox_leave_chain(struct sandbox *s)
{
	if (!s->chain_held || s->chain_leaving)
		return;
	s->chain_leaving = true;
	layers_leave(s->core, &s->chain);
}

void sandbox_drop_chain(struct sandbox *s)
{
	bool held, leaving;

	pthread_mutex_lock(&s->lock);
	held = s->chain_held;
	leaving = s->chain_leaving;
	s->chain_held = s->chain_leaving = false;
	pthread_mutex_unlock(&s->lock);
	if (leaving)
		layers_left(s->core, &s->chain);
	else if (held)
		layers_unref(s->core, &s->chain);
}

void sandbox_ref(struct sandbox *s)
{
	__atomic_add_fetch(&s->refs, 1, __ATOMIC_RELAXED);
}

void sandbox_unref(struct sandbox *s)
{
	if (s && __atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL) == 0)
		sandbox_free(s);
}

void sandbox_outdated(struct sandbox *s)
{
	__atomic_add_fetch(&s->version, 1, __ATOMIC_RELEASE);
}

void sandbox_changed(struct sandbox *s)
{
	sandbox_outdated(s);
	core_changed(s->core);
}

int sandbox_find(struct core *c, const char *ref, struct sandbox **ret, struct err *e)
{
	*ret = registry_find(&c->reg, ref);
	return *ret ? 0 : err_set(e, ERR_NOT_FOUND, "no such sandbox");
}

/* Lock held. */
static json_t *record_body(const struct sandbox *s)
{
	json_t *o = json_object();

	if (s->name)
		json_object_set_new(o, "name", json_string(s->name));
	json_object_set_new(o, "image", json_string(s->image));
	json_object_set_new(o, "image_env", image_env_json(s->image_env));
	json_object_set_new(o, "chain", chain_json(&s->chain));
	if (s->from[0])
		json_object_set_new(o, "from", json_string(s->from));
	json_object_set_new(o, "cpus", json_real(s->cpus));
	json_object_set_new(o, "memory_mb", json_integer(s->memory_mb));
	json_object_set_new(o, "disk_mb", json_integer(s->disk_mb));
	json_object_set_new(o, "labels", map_json(&s->labels));
	json_object_set_new(o, "network", net_policy_json(&s->network));
	json_object_set_new(o, "idle_timeout_secs", json_integer(s->idle_timeout_secs));
	json_object_set_new(o, "idle_suspend", json_boolean(s->idle_suspend));
	json_object_set_new(o, "idle_suspended", json_boolean(s->idle_suspended));
	json_object_set_new(o, "lifetime_secs", json_integer(s->lifetime_secs));
	json_object_set_new(o, "snapshot_every_secs", json_integer(s->snapshot_every_secs));
	json_object_set_new(o, "snapshot_keep", json_integer(s->snapshot_keep));
	json_object_set_new(o, "volumes", mounts_json(s, true));
	json_object_set_new(o, "env_names", map_names_json(&s->env));
	if (s->metrics_export)
		json_object_set_new(o, "metrics_export", export_plain_json(s->metrics_export));
	return o;
}

/* Values of the environment and of headers: in the record while it lives, and emptied with its end. */
static char *private_text(const struct sandbox *s)
{
	_cleanup_json_ json_t *o = json_pack("{s:o}", "env", map_json(&s->env));

	if (s->metrics_export)
		json_object_set_new(o, "headers", map_json(&s->metrics_export->headers));
	return json_text(o);
}

static uint64_t save(struct sandbox *s, bool durable, bool awaited)
{
	_cleanup_json_ json_t *body = record_body(s);
	_cleanup_free_ char *body_text = json_text(body);
	char *env_text = s->state == SBX_TERMINATED ? NULL : private_text(s);
	struct store_sandbox r = { .id = s->id,
		.seq = s->seq,
		.state = (int)s->state,
		.created_ns = s->created_ns,
		.generation = s->generation,
		.boot = s->core->boot,
		.body = body_text,
		.env = env_text };
	uint64_t ticket;

	if (!body_text || (!env_text && s->state != SBX_TERMINATED))
		return 0;
	if (s->state != SBX_TERMINATED)
		memcpy(r.secret, s->secret, sizeof(r.secret));
	ticket = awaited ? store_put_awaited(s->core->store, &r)
			 : store_put_sandbox(s->core->store, &r, durable);
	if (env_text)
		explicit_bzero(env_text, strlen(env_text));
	free(env_text);
	return ticket;
}

uint64_t sandbox_save(struct sandbox *s, bool durable)
{
	return save(s, durable, false);
}

uint64_t sandbox_save_awaited(struct sandbox *s)
{
	return save(s, true, true);
}

/* An ended sandbox has names only. */
static int load_env(const json_t *body, const json_t *values, struct strmap *ret)
{
	_cleanup_json_ json_t *o = json_object();
	const json_t *names = json_object_get(body, "env_names");

	if (values)
		return json_is_object(values) ? map_from_json(values, ret) : -1;
	for (size_t i = 0; i < json_array_size(names); i++)
		if (json_is_string(json_array_get(names, i)))
			json_object_set_new(
				o, json_string_value(json_array_get(names, i)), json_string(""));
	return map_from_json(o, ret);
}

static int load_private(struct sandbox *s, const json_t *body, const char *text)
{
	_cleanup_json_ json_t *o = text ? json_loads(text, 0, NULL) : NULL;

	if (text && !json_is_object(json_object_get(o, "env")))
		return -1;
	if (load_env(body, json_object_get(o, "env"), &s->env) < 0)
		return -1;
	if (export_load(s->core, json_object_get(body, "metrics_export"),
		    json_object_get(o, "headers"), &s->metrics_export) < 0)
		log_warn("a metrics export cannot be understood and is dropped id=%s", s->id);
	return 0;
}

static int load_network(const json_t *n, struct net_policy *ret)
{
	const char *mode = json_string_value(json_object_get(n, "mode"));

	if (!mode || net_mode_of(mode) < 0)
		return -1;
	ret->mode = (enum net_mode)net_mode_of(mode);
	if (strs_from_json(json_object_get(n, "allow"), &ret->allow) < 0)
		return -1;
	return strs_from_json(json_object_get(n, "deny"), &ret->deny);
}

static int load_body(struct sandbox *s, const json_t *o, const char *env)
{
	const char *name = json_string_value(json_object_get(o, "name"));
	const char *image = json_string_value(json_object_get(o, "image"));
	const char *from = json_string_value(json_object_get(o, "from"));

	snprintf(s->from, sizeof(s->from), "%s", from ? from : "");
	s->cpus = json_number_value(json_object_get(o, "cpus"));
	s->memory_mb = json_integer_value(json_object_get(o, "memory_mb"));
	s->disk_mb = json_integer_value(json_object_get(o, "disk_mb"));
	s->idle_timeout_secs = json_integer_value(json_object_get(o, "idle_timeout_secs"));
	s->lifetime_secs = json_integer_value(json_object_get(o, "lifetime_secs"));
	s->snapshot_every_secs = json_integer_value(json_object_get(o, "snapshot_every_secs"));
	s->snapshot_keep = json_integer_value(json_object_get(o, "snapshot_keep"));
	s->idle_suspend = json_is_true(json_object_get(o, "idle_suspend"));
	s->idle_suspended = json_is_true(json_object_get(o, "idle_suspended"));
	s->image = image ? strdup(image) : NULL;
	s->name = name ? strdup(name) : NULL;
	if (!s->image || (name && !s->name) || load_private(s, o, env) < 0 ||
		map_from_json(json_object_get(o, "labels"), &s->labels) < 0 ||
		load_network(json_object_get(o, "network"), &s->network) < 0 ||
		(json_object_get(o, "chain") &&
			chain_load(json_object_get(o, "chain"), &s->chain) < 0) ||
		mounts_load(json_object_get(o, "volumes"), &s->volumes, &s->nvolumes) < 0)
		return -1;
	return image_env_load(json_object_get(o, "image_env"), &s->image_env);
}

/* A record for which there is no memory is not one that cannot be understood. */
static int not_loaded(struct err *e)
{
	if (errno == ENOMEM)
		return err_oom(e);
	return err_set(e, ERR_INTERNAL, "a record cannot be understood");
}

int sandbox_load(struct core *c, const struct store_sandbox *r, struct sandbox **ret, struct err *e)
{
	_cleanup_json_ json_t *body = NULL;
	struct sandbox *s;

	errno = 0;
	body = r->body ? json_loads(r->body, 0, NULL) : NULL;
	if (!r->id || !id_is_sandbox(r->id) || !json_is_object(body) || !(s = sandbox_new(c, r->id)))
		return not_loaded(e);
	s->seq = r->seq;
	s->created_ns = r->created_ns;
	s->generation = r->generation;
	memcpy(s->secret, r->secret, sizeof(s->secret));
	s->state = SBX_TERMINATED;
	if (load_body(s, body, r->env) < 0) {
		not_loaded(e);
		sandbox_unref(s);
		return -1;
	}
	s->run_dirfd = openat(c->run_dirfd, s->id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (s->run_dirfd < 0 && err_is_short(errno)) {
		err_sys(e, errno, "run/%s", s->id);
		sandbox_unref(s);
		return -1;
	}
	*ret = s;
	return 0;
}

/* A folder costs four times its renaming, since each of them is put into a group of blocks of its own. So some
 * lie ready, as run/.spare<n>; a bit of core.spare_dirs says which. Never one that was in use: somebody may
 * still hold it open. */
#define SPARE_DIRS 4

static void spare_name(char name[16], unsigned n)
{
	snprintf(name, 16, RUN_SPARE "%u", n);
}

void core_spare_dirs(struct core *c)
{
	unsigned there = __atomic_load_n(&c->spare_dirs, __ATOMIC_ACQUIRE);
	char name[16];

	for (unsigned n = 0; n < SPARE_DIRS; n++) {
		spare_name(name, n);
		/* EEXIST: another thread is at it */
		if (!(there & 1u << n) && mkdirat(c->run_dirfd, name, 0700) == 0)
			__atomic_fetch_or(&c->spare_dirs, 1u << n, __ATOMIC_RELEASE);
	}
}

static bool take_spare_dir(struct core *c, const char *id)
{
	char name[16];

	for (unsigned n = 0; n < SPARE_DIRS; n++) {
		if (!(__atomic_load_n(&c->spare_dirs, __ATOMIC_RELAXED) & 1u << n) ||
			!(__atomic_fetch_and(&c->spare_dirs, ~(1u << n), __ATOMIC_ACQUIRE) & 1u << n))
			continue;
		spare_name(name, n);
		if (renameat2(c->run_dirfd, name, c->run_dirfd, id, RENAME_NOREPLACE) == 0)
			return true;
	}
	return false;
}

int sandbox_make_run_dir(struct sandbox *s)
{
	if (!take_spare_dir(s->core, s->id) && mkdirat(s->core->run_dirfd, s->id, 0700) < 0)
		return -1;
	s->run_dirfd =
		openat(s->core->run_dirfd, s->id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (s->run_dirfd >= 0)
		return 0;
	unlinkat(s->core->run_dirfd, s->id, AT_REMOVEDIR);
	return -1;
}

/* Of processes that were: a file in which none was ever started has no story to keep. */
static bool is_spool(const char *name, uint32_t next_num)
{
	unsigned long first;

	if (strncmp(name, "spool", 5) || !name[5] ||
		strspn(name + 5, "0123456789") != strlen(name + 5))
		return false;
	first = strtoul(name + 5, NULL, 10) * SPOOL_SLOTS;
	return (first ? first : 1) < next_num;
}

bool sandbox_clean_run_dir(struct sandbox *s, bool all)
{
	int fd = openat(s->core->run_dirfd, s->id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	bool kept = fd < 0 && errno != ENOENT; /* what cannot be opened is not empty */
	const struct dirent *d;
	uint32_t next_num;
	DIR *dir;

	pthread_mutex_lock(&s->lock);
	next_num = s->next_num;
	pthread_mutex_unlock(&s->lock);
	if (fd < 0)
		return kept;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return true;
	}
	while ((d = readdir(dir))) {
		if (!all && is_spool(d->d_name, next_num))
			kept = true;
		else if (strcmp(d->d_name, ".") && strcmp(d->d_name, ".."))
			unlinkat(fd, d->d_name, 0);
	}
	closedir(dir);
	if (!kept)
		unlinkat(s->core->run_dirfd, s->id, AT_REMOVEDIR);
	return kept;
}
