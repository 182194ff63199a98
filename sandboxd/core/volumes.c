/* SPDX-License-Identifier: MIT */
/* A volume's tree is made before its record and goes after it: a tree without a record is garbage,
 * which the next start's sweep removes. While it is made or deleted its name is taken, but nobody
 * sees it. */
#include "sandboxd/core/core_internal.h"

#include "common/base/log.h"
#include "common/sys/fault.h"
#include "common/sys/mem.h"
#include "sandboxd/core/clock.h"
#include "sandboxd/core/volumes.h"

#include <string.h>

#define KIND "volume"

enum volume_state { VOLUME_MAKING, VOLUME_THERE, VOLUME_LEAVING };
struct volume {
	char name[NAME_MAX_LEN + 1];
	uint32_t num;
	int64_t size_mb, created_ns;
	enum volume_state state;
	char holder[SBX_ID_MAX]; /* only while a listing is put together */
	bool written;            /* the holder writes */
	UT_hash_handle hh, hh_num;
};
struct volumes {
	pthread_mutex_t lock;
	/* under lock */
	struct volume *by_name;
	struct volume *by_num; /* those, and what is left of deleted ones until the next start's sweep */
	uint32_t last_num;     /* the one given last, or the largest there was at start */
};

/* Lock held, from here on as far as nothing else is said. */
static struct volume *find(struct volumes *v, const char *name)
{
	struct volume *p;

	HASH_FIND_STR(v->by_name, name, p);
	return p;
}

static struct volume *add(struct volumes *v, const char *name, uint32_t num, int64_t size_mb)
{
	struct volume *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	snprintf(p->name, sizeof(p->name), "%s", name);
	p->num = num;
	p->size_mb = size_mb;
	HASH_ADD_STR(v->by_name, name, p);
	if (!p->hh.tbl) {
		free(p);
		return NULL;
	}
	HASH_ADD(hh_num, v->by_num, num, sizeof(p->num), p);
	if (!p->hh_num.tbl) {
		HASH_DEL(v->by_name, p);
		free(p);
		return NULL;
	}
	return p;
}

/* Its name is free; its number as well, unless something may lie there. */
static void drop(struct volumes *v, struct volume *p, bool is_clear)
{
	HASH_DEL(v->by_name, p);
	if (!is_clear)
		return;
	HASH_DELETE(hh_num, v->by_num, p);
	free(p);
}

static bool is_taken(const struct volumes *v, uint32_t num)
{
	struct volume *p;

	HASH_FIND(hh_num, v->by_num, &num, sizeof(num), p);
	return p != NULL;
}

/* The longest unused one: who still has a number of a deleted volume in hand does not soon meet another's. 0: all
 * have a volume. */
static uint32_t next_num(const struct volumes *v, uint32_t max)
{
	uint32_t num = v->last_num;

	for (uint32_t i = 0; i <= HASH_CNT(hh_num, v->by_num) && i < max; i++) {
		num = num < max ? num + 1 : 1;
		if (!is_taken(v, num))
			return num;
	}
	return 0;
}

/* --- records --------------------------------------------------------------------------------- */

static int load_one(void *arg, const char *key, const char *body, struct err *e)
{
	struct volumes *v = arg;
	_cleanup_json_ json_t *o = json_loads(body, 0, NULL);
	json_int_t num = json_integer_value(json_object_get(o, "num"));
	struct volume *p;

	if (!name_ok(key) || num < 1 || num > UINT32_MAX) {
		log_warn("the record of a volume cannot be understood and is skipped");
		return 0;
	}
	p = add(v, key, (uint32_t)num, json_integer_value(json_object_get(o, "size_mb")));
	if (!p)
		return err_oom(e);
	p->created_ns = json_integer_value(json_object_get(o, "created_ns"));
	p->state = VOLUME_THERE;
	if (p->num > v->last_num)
		v->last_num = p->num;
	return 0;
}

int volumes_open(struct core *c, struct volumes **ret, struct err *e)
{
	struct volumes *v = calloc(1, sizeof(*v));

	if (!v)
		return err_oom(e);
	pthread_mutex_init(&v->lock, NULL);
	*ret = v;
	return store_load_rows(c->store, KIND, load_one, v, e);
}

void volumes_close(struct volumes *v)
{
	struct volume *p, *next;

	if (!v)
		return;
	HASH_CLEAR(hh, v->by_name);
	HASH_ITER (hh_num, v->by_num, p, next) {
		HASH_DELETE(hh_num, v->by_num, p);
		free(p);
	}
	pthread_mutex_destroy(&v->lock);
	free(v);
}

int volumes_keep(struct core *c, struct err *e)
{
	struct volumes *v = c->volumes;
	_cleanup_free_ uint32_t *nums = calloc(HASH_COUNT(v->by_name) + 1, sizeof(*nums));
	struct volume *p, *next;
	size_t n = 0;

	if (!c->ops->keep_volumes)
		return 0;
	if (!nums)
		return err_oom(e);
	HASH_ITER (hh, v->by_name, p, next)
		nums[n++] = p->num;
	return c->ops->keep_volumes(c->backend, nums, n, e);
}

static int put_record(struct core *c, const struct volume *p, struct err *e)
{
	_cleanup_json_ json_t *o = json_pack("{s:I,s:I,s:I}", "num", (json_int_t)p->num, "size_mb",
		(json_int_t)p->size_mb, "created_ns", (json_int_t)p->created_ns);
	_cleanup_free_ char *body = o ? json_text(o) : NULL;
	struct store_row row = { KIND, p->name, body };

	if (!body)
		return err_oom(e);
	return store_wait(c->store, store_put_rows(c->store, &row, 1, true), e);
}

static int drop_record(struct core *c, const char *name, struct err *e)
{
	struct store_row row = { KIND, name, NULL };

	return store_wait(c->store, store_put_rows(c->store, &row, 1, true), e);
}

/* --- holders --------------------------------------------------------------------------------- */

/* Calls `each` for every mount there is; stops when it returns true. The registry's lock is held.
 */
static bool any_mount(struct registry *r,
	bool (*each)(void *arg, const struct sandbox *s, const struct sandbox_volume *m), void *arg)
{
	struct sandbox *s, *next;

	HASH_ITER (hh_id, r->by_id, s, next)
		for (size_t i = 0; s->reg_mounts && i < s->nvolumes; i++)
			if (each(arg, s, &s->volumes[i]))
				return true;
	return false;
}

struct wanted {
	uint32_t num;
	bool read_only;             /* readers go together */
	const struct sandbox *held; /* out */
};

static bool excludes(void *arg, const struct sandbox *s, const struct sandbox_volume *m)
{
	struct wanted *w = arg;

	if (m->at.num != w->num || (m->at.read_only && w->read_only))
		return false;
	w->held = s;
	return true;
}

static int held(const char *name, const struct sandbox *by, struct err *e)
{
	return err_set(e, ERR_CONFLICT,
		"volume \"%s\" is mounted by %s; a volume has one writer or any number of readers",
		name, by->id);
}

int volumes_may_mount(struct registry *r, const struct sandbox *s, struct err *e)
{
	struct volumes *v = s->core->volumes;

	for (size_t i = 0; i < s->nvolumes; i++) {
		const struct sandbox_volume *m = &s->volumes[i];
		struct wanted w = { .num = m->at.num, .read_only = m->at.read_only };
		const struct volume *p;
		bool there;

		pthread_mutex_lock(&v->lock);
		p = find(v, m->name);
		there = p && p->num == m->at.num && p->state == VOLUME_THERE;
		pthread_mutex_unlock(&v->lock);
		if (!there)
			return err_set(e, ERR_CONFLICT, "volume \"%s\" is being deleted", m->name);
		if (any_mount(r, excludes, &w))
			return held(m->name, w.held, e);
	}
	return 0;
}

/* --- requests -------------------------------------------------------------------------------- */

static json_t *volume_json(const struct volume *p)
{
	json_t *o = json_object();
	char text[CLOCK_TEXT_LEN];

	clock_text(p->created_ns, text);
	json_object_set_new(o, "name", json_string(p->name));
	json_object_set_new(o, "size_mb", json_integer(p->size_mb));
	json_object_set_new(o, "created_at", json_string(text));
	if (p->holder[0])
		json_object_set_new(o, "attached_to", json_string(p->holder));
	return o;
}

static int check_body(const struct core *c, const struct volume_body *b, struct err *e)
{
	if (!core_cap(c, CAP_VOLUMES))
		return err_set(e, ERR_UNSUPPORTED, "this server lacks the capability for volumes");
	if (!b->name || !name_ok(b->name))
		return err_set(e, ERR_INVALID_REQUEST,
			"name must be 1 to 63 lower-case letters, digits and dashes, and not start "
			"with a dash");
	if (b->size_mb < 0 || b->size_mb > c->policy->limits.max_disk_mb)
		return err_set(e, ERR_INVALID_REQUEST, "size_mb must be from 1 to %lld",
			(long long)c->policy->limits.max_disk_mb);
	return 0;
}

static int reserve(struct core *c, const struct volume_body *b, struct volume **ret, struct err *e)
{
	struct volumes *v = c->volumes;
	int64_t size = b->size_mb ? b->size_mb : c->policy->limits.default_disk_mb;
	uint32_t num;
	int rc = 0;

	pthread_mutex_lock(&v->lock);
	num = next_num(v, c->ops->volume_num_max);
	*ret = find(v, b->name);
	if (*ret) {
		rc = err_set(e, ERR_CONFLICT, "there is a volume \"%s\" already", b->name);
	} else if (!num) {
		rc = err_set(e, ERR_UNAVAILABLE, "there are as many volumes as this server can have");
	} else if (!(*ret = add(v, b->name, num, size))) {
		rc = err_oom(e);
	} else {
		(*ret)->created_ns = clock_wall_ns();
		v->last_num = num;
	}
	pthread_mutex_unlock(&v->lock);
	return rc;
}

/* Nobody else changes a volume that is being made. No lock held. *is_clear: nothing lies under its number. */
static int make(struct core *c, struct volume *p, bool *is_clear, struct err *e)
{
	*is_clear = true; /* a backend that cannot takes its own back */
	if (c->ops->volume_make(c->backend, p->num, p->size_mb, e) < 0)
		return err_prefix(e, "volume \"%s\": ", p->name);
	fault_point("volume-there");
	if (put_record(c, p, e) == 0) {
		fault_point("volume-recorded");
		return 0;
	}
	*is_clear = c->ops->volume_drop(c->backend, p->num, NULL) == 0;
	return -1;
}

int volumes_create(struct core *c, const struct volume_body *body, json_t **ret, struct err *e)
{
	struct volumes *v = c->volumes;
	struct volume *p;
	bool is_clear;
	int rc;

	if (check_body(c, body, e) < 0 || core_check_disk(c, "volume", e) < 0 ||
		reserve(c, body, &p, e) < 0)
		return -1;
	rc = make(c, p, &is_clear, e);
	pthread_mutex_lock(&v->lock);
	if (rc == 0) {
		p->state = VOLUME_THERE;
		*ret = volume_json(p);
	} else {
		drop(v, p, is_clear);
	}
	pthread_mutex_unlock(&v->lock);
	return rc;
}

/* The writer, if there is one; else the sandbox with the smallest id, so that two listings agree.
 */
static bool note_holder(void *arg, const struct sandbox *s, const struct sandbox_volume *m)
{
	struct volume *p = find(arg, m->name);

	if (!p || p->num != m->at.num || p->written)
		return false;
	if (!m->at.read_only || !p->holder[0] || strcmp(s->id, p->holder) < 0)
		snprintf(p->holder, sizeof(p->holder), "%s", s->id);
	p->written = !m->at.read_only;
	return false;
}

static int by_name(const struct volume *a, const struct volume *b)
{
	return strcmp(a->name, b->name);
}

json_t *volumes_json(struct core *c)
{
	struct volumes *v = c->volumes;
	struct volume *p, *next;
	json_t *a = json_array();

	pthread_mutex_lock(&c->reg.lock);
	pthread_mutex_lock(&v->lock);
	HASH_ITER (hh, v->by_name, p, next) {
		p->holder[0] = '\0';
		p->written = false;
	}
	any_mount(&c->reg, note_holder, v);
	HASH_SRT(hh, v->by_name, by_name);
	HASH_ITER (hh, v->by_name, p, next)
		if (p->state == VOLUME_THERE)
			json_array_append_new(a, volume_json(p));
	pthread_mutex_unlock(&v->lock);
	pthread_mutex_unlock(&c->reg.lock);
	return a;
}

/* From here on nobody can mount it. Both locks held. */
static int begin_delete(struct core *c, const char *name, uint32_t *ret, struct err *e)
{
	struct volume *p = find(c->volumes, name);
	struct wanted w = { .num = p ? p->num : 0 };

	if (!p || p->state != VOLUME_THERE)
		return err_set(e, ERR_NOT_FOUND, "no such volume");
	if (any_mount(&c->reg, excludes, &w))
		return held(name, w.held, e);
	p->state = VOLUME_LEAVING;
	*ret = p->num;
	return 0;
}

/* Its record is gone, so it is; what the backend cannot remove now, the next start does (false). */
static bool remove_tree(struct core *c, const char *name, uint32_t num)
{
	struct err e = ERR_NULL;

	if (c->ops->volume_drop(c->backend, num, &e) == 0)
		return true;
	log_error("the content of a deleted volume stays until the next start name=%s reason=\"%s\"", name, e.msg);
	return false;
}

int volumes_delete(struct core *c, const char *name, struct err *e)
{
	struct volumes *v = c->volumes;
	bool is_clear = false;
	uint32_t num = 0;
	int rc;

	pthread_mutex_lock(&c->reg.lock);
	pthread_mutex_lock(&v->lock);
	rc = begin_delete(c, name, &num, e);
	pthread_mutex_unlock(&v->lock);
	pthread_mutex_unlock(&c->reg.lock);
	if (rc < 0)
		return -1;
	rc = drop_record(c, name, e);
	fault_point("volume-forgotten");
	if (rc == 0)
		is_clear = remove_tree(c, name, num);
	pthread_mutex_lock(&v->lock);
	if (rc == 0)
		drop(v, find(v, name), is_clear);
	else
		find(v, name)->state = VOLUME_THERE;
	pthread_mutex_unlock(&v->lock);
	return rc;
}

/* --- mounts of a sandbox --------------------------------------------------------------------- */

static int resolve_one(struct volumes *v, const struct volume_mount_body *b,
	struct sandbox_volume *ret, struct err *e)
{
	const struct volume *p = find(v, b->name);

	if (!p || p->state == VOLUME_MAKING)
		return err_set(e, ERR_NOT_FOUND, "no such volume: \"%s\"", b->name);
	snprintf(ret->name, sizeof(ret->name), "%s", b->name);
	ret->at.num = p->num;
	ret->at.read_only = b->read_only;
	if (snprintf(ret->at.path, sizeof(ret->at.path), "%s", b->path) < (int)sizeof(ret->at.path))
		return 0;
	return err_set(e, ERR_INVALID_REQUEST, "volumes: the path for \"%s\" is too long", b->name);
}

int volumes_resolve(const struct core *c, const struct objlist *asked, struct sandbox_volume **ret,
	size_t *ret_n, struct err *e)
{
	const struct volume_mount_body *b = asked->v;
	struct sandbox_volume *v = calloc(asked->n ? asked->n : 1, sizeof(*v));
	int rc = v ? 0 : err_oom(e);

	pthread_mutex_lock(&c->volumes->lock);
	for (size_t i = 0; i < asked->n && rc == 0; i++)
		rc = resolve_one(c->volumes, &b[i], &v[i], e);
	pthread_mutex_unlock(&c->volumes->lock);
	if (rc < 0) {
		free(v);
		return -1;
	}
	*ret = v;
	*ret_n = asked->n;
	return 0;
}

json_t *mounts_json(const struct sandbox *s, bool record)
{
	json_t *a = json_array();

	for (size_t i = 0; i < s->nvolumes; i++) {
		const struct sandbox_volume *m = &s->volumes[i];
		json_t *o = json_pack("{s:s,s:s}", "name", m->name, "path", m->at.path);

		if (record)
			json_object_set_new(o, "num", json_integer(m->at.num));
		if (m->at.read_only)
			json_object_set_new(o, "read_only", json_true());
		json_array_append_new(a, o);
	}
	return a;
}

static int load_mount(const json_t *o, struct sandbox_volume *ret)
{
	const char *name = json_string_value(json_object_get(o, "name"));
	const char *path = json_string_value(json_object_get(o, "path"));

	if (!name || !name_ok(name) || !path || strlen(path) >= sizeof(ret->at.path))
		return -1;
	snprintf(ret->name, sizeof(ret->name), "%s", name);
	snprintf(ret->at.path, sizeof(ret->at.path), "%s", path);
	ret->at.num = (uint32_t)json_integer_value(json_object_get(o, "num"));
	ret->at.read_only = json_is_true(json_object_get(o, "read_only"));
	return 0;
}

int mounts_load(const json_t *a, struct sandbox_volume **ret, size_t *ret_n)
{
	size_t n = json_array_size(a);
	struct sandbox_volume *v = n ? calloc(n, sizeof(*v)) : NULL;

	if (n > BACKEND_VOLUMES_MAX || (n && !v)) {
		free(v);
		return -1;
	}
	for (size_t i = 0; i < n; i++)
		if (load_mount(json_array_get(a, i), &v[i]) < 0) {
			free(v);
			return -1;
		}
	*ret = v;
	*ret_n = n;
	return 0;
}
