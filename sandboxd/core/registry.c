/* SPDX-License-Identifier: MIT */
/* Two hash tables and the sums of what is given away. A live name is in by_name; the name of an
 * ended sandbox is only found by looking through the few that are kept. */
#include "sandboxd/core/registry.h"

#include "common/sys/mem.h"
#include "sandboxd/core/volumes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void registry_init(struct registry *r)
{
	*r = (struct registry){ .last_seq = 0 };
	pthread_mutex_init(&r->lock, NULL);
}

void registry_fini(struct registry *r)
{
	struct sandbox *s, *next;

	HASH_CLEAR(hh_name, r->by_name);
	HASH_ITER (hh_id, r->by_id, s, next) {
		HASH_DELETE(hh_id, r->by_id, s);
		s->reg_in = false;
		sandbox_unref(s);
	}
	pthread_mutex_destroy(&r->lock);
}

static struct sandbox *named(struct registry *r, const char *name)
{
	struct sandbox *s;

	HASH_FIND(hh_name, r->by_name, name, strlen(name), s);
	return s;
}

static void add_name(struct registry *r, struct sandbox *s, const char *name)
{
	snprintf(s->reg_name, sizeof(s->reg_name), "%s", name ? name : "");
	if (s->reg_live && s->reg_name[0])
		HASH_ADD_KEYPTR(hh_name, r->by_name, s->reg_name, strlen(s->reg_name), s);
}

static void drop_name(struct registry *r, struct sandbox *s)
{
	if (s->hh_name.tbl)
		HASH_DELETE(hh_name, r->by_name, s);
	s->hh_name.tbl = NULL;
}

static bool add_id(struct registry *r, struct sandbox *s)
{
	if (!s->seq)
		s->seq = r->last_seq + 1;
	if (s->seq > r->last_seq)
		r->last_seq = s->seq;
	HASH_ADD_KEYPTR(hh_id, r->by_id, s->id, strlen(s->id), s);
	if (!s->hh_id.tbl)
		return false;
	s->reg_in = true;
	sandbox_ref(s);
	return true;
}

static void account(struct registry *r, const struct sandbox *s, int sign)
{
	r->live += (unsigned)sign;
	r->cpus += sign * s->cpus;
	r->memory_mb += sign * s->memory_mb;
	r->disk_mb += sign * s->disk_mb;
	if (!r->live)
		r->cpus = 0; /* sums of fractions leave crumbs */
}

static int taken(struct err *e, const char *name)
{
	return err_set(e, ERR_CONFLICT, "the name \"%s\" is taken by a live sandbox", name);
}

static int cordoned(struct err *e)
{
	return err_set(e, ERR_UNAVAILABLE, "this server is cordoned and takes no new sandboxes");
}

int registry_claim(
	struct registry *r, struct sandbox *s, const char *name, bool restored, struct err *e)
{
	int rc = 0;

	pthread_mutex_lock(&r->lock);
	if (r->cordoned && !restored) {
		rc = cordoned(e);
	} else if (name && named(r, name)) {
		rc = taken(e, name);
	} else if (s->nvolumes && !restored && volumes_may_mount(r, s, e) < 0) {
		rc = -1;
	} else if (!add_id(r, s)) {
		rc = err_oom(e);
	} else {
		s->reg_live = true;
		s->reg_mounts = s->nvolumes > 0;
		add_name(r, s, name);
		account(r, s, 1);
	}
	pthread_mutex_unlock(&r->lock);
	return rc;
}

int registry_land(struct registry *r, struct sandbox *s, struct err *e)
{
	int rc = 0;

	(void)s;
	pthread_mutex_lock(&r->lock);
	if (r->cordoned)
		rc = cordoned(e);
	else
		r->running++;
	pthread_mutex_unlock(&r->lock);
	return rc;
}

void registry_add_ended(struct registry *r, struct sandbox *s, const char *name)
{
	pthread_mutex_lock(&r->lock);
	if (add_id(r, s)) {
		add_name(r, s, name);
		r->ended++;
	}
	pthread_mutex_unlock(&r->lock);
}

void registry_end(struct registry *r, struct sandbox *s, bool was_running)
{
	pthread_mutex_lock(&r->lock);
	if (s->reg_live) {
		drop_name(r, s);
		s->reg_live = false;
		account(r, s, -1);
		r->running -= was_running;
		r->ended++;
	}
	pthread_mutex_unlock(&r->lock);
}

void registry_running(struct registry *r, int change)
{
	pthread_mutex_lock(&r->lock);
	r->running += (unsigned)change;
	pthread_mutex_unlock(&r->lock);
}

void registry_free_mounts(struct registry *r, struct sandbox *s)
{
	pthread_mutex_lock(&r->lock);
	s->reg_mounts = false;
	pthread_mutex_unlock(&r->lock);
}

void registry_remove(struct registry *r, struct sandbox *s)
{
	bool was_in;

	pthread_mutex_lock(&r->lock);
	was_in = s->reg_in;
	if (was_in) {
		drop_name(r, s);
		if (s->reg_live)
			account(r, s, -1);
		else
			r->ended--;
		s->reg_live = s->reg_in = false;
		HASH_DELETE(hh_id, r->by_id, s);
	}
	pthread_mutex_unlock(&r->lock);
	if (was_in)
		sandbox_unref(s);
}

int registry_name_free(struct registry *r, const struct sandbox *s, const char *name, struct err *e)
{
	const struct sandbox *other;

	pthread_mutex_lock(&r->lock);
	other = *name ? named(r, name) : NULL;
	pthread_mutex_unlock(&r->lock);
	return other && other != s ? taken(e, name) : 0;
}

int registry_rename(struct registry *r, struct sandbox *s, const char *name, struct err *e)
{
	struct sandbox *other;
	int rc = 0;

	pthread_mutex_lock(&r->lock);
	other = *name && s->reg_live ? named(r, name) : NULL;
	if (other && other != s) {
		rc = taken(e, name);
	} else {
		drop_name(r, s);
		add_name(r, s, name);
	}
	pthread_mutex_unlock(&r->lock);
	return rc;
}

void registry_cordon(struct registry *r, bool on)
{
	pthread_mutex_lock(&r->lock);
	r->cordoned = on;
	pthread_mutex_unlock(&r->lock);
}

static bool newer(const struct sandbox *a, const struct sandbox *b)
{
	if (a->created_ns != b->created_ns)
		return a->created_ns > b->created_ns;
	return strcmp(a->id, b->id) > 0;
}

static struct sandbox *newest_ended(struct registry *r, const char *name)
{
	struct sandbox *s, *next, *best = NULL;

	if (!*name)
		return NULL;
	HASH_ITER (hh_id, r->by_id, s, next)
		if (!s->reg_live && !strcmp(s->reg_name, name) && (!best || newer(s, best)))
			best = s;
	return best;
}

struct sandbox *registry_find(struct registry *r, const char *ref)
{
	struct sandbox *s;

	pthread_mutex_lock(&r->lock);
	HASH_FIND(hh_id, r->by_id, ref, strlen(ref), s);
	if (!s)
		s = named(r, ref);
	if (!s)
		s = newest_ended(r, ref);
	if (s)
		sandbox_ref(s);
	pthread_mutex_unlock(&r->lock);
	return s;
}

static int newest_first(const void *a, const void *b)
{
	return newer(*(struct sandbox *const *)a, *(struct sandbox *const *)b) ? -1 : 1;
}

int registry_all(struct registry *r, struct sandbox ***ret, size_t *ret_n)
{
	struct sandbox *s, *next, **v;
	size_t n = 0;

	pthread_mutex_lock(&r->lock);
	v = calloc(HASH_CNT(hh_id, r->by_id) + 1, sizeof(*v));
	if (v)
		HASH_ITER (hh_id, r->by_id, s, next) {
			sandbox_ref(s);
			v[n++] = s;
		}
	pthread_mutex_unlock(&r->lock);
	if (!v)
		return -1;
	qsort(v, n, sizeof(*v), newest_first);
	*ret = v;
	*ret_n = n;
	return 0;
}

void registry_figures(struct registry *r, struct registry_figures *ret)
{
	pthread_mutex_lock(&r->lock);
	*ret = (struct registry_figures){ .cordoned = r->cordoned,
		.live = r->live,
		.running = r->running,
		.ended = r->ended,
		.cpus = r->cpus,
		.memory_mb = r->memory_mb,
		.disk_mb = r->disk_mb };
	pthread_mutex_unlock(&r->lock);
}
