/* SPDX-License-Identifier: MIT */
/* One table by number. A count is never written down: after a restart it is what the owners'
 * records say. A thread of its own drops what has come to zero, record first. */
#include "sandboxd/core/layers.h"

#include "common/base/log.h"
#include "common/sys/fault.h"
#include "common/sys/mem.h"
#include "sandboxd/core/core_internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEXT_KEY "next" /* the number that no layer has had yet */

struct layer {
	UT_hash_handle hh;
	struct layer *next_drop;
	uint32_t num;
	enum layer_source source;
	char *key; /* NULL: none */
	int64_t bytes;
	unsigned refs, leaving; /* leaving: of refs, those that go by themselves */
	bool ready, covers;
};
struct layers {
	struct core *core;
	pthread_t dropper;
	bool dropping; /* the thread runs */

	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* under lock */
	struct layer *all;
	struct layer *drops, **drops_tail; /* out of the table, record and tree still there */
	uint32_t next;
	bool started, stop;
};

static void layer_free(struct layer *l)
{
	if (l)
		free(l->key);
	free(l);
}

static struct layer *find(struct layers *s, uint32_t num)
{
	struct layer *l;

	HASH_FIND(hh, s->all, &num, sizeof(num), l);
	return l;
}

static struct layer *add(struct layers *s, uint32_t num, const char *key)
{
	struct layer *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->num = num;
	l->key = key ? strdup(key) : NULL;
	if (key && !l->key) {
		free(l);
		return NULL;
	}
	HASH_ADD(hh, s->all, num, sizeof(l->num), l);
	if (l->hh.tbl)
		return l;
	layer_free(l);
	return NULL;
}

/* --- records --------------------------------------------------------------------------------- */

static char *body_of(const struct layer *l, bool ready)
{
	_cleanup_json_ json_t *o = json_object();

	json_object_set_new(o, "source", json_integer(l->source));
	json_object_set_new(o, "bytes", json_integer(l->bytes));
	json_object_set_new(o, "ready", json_boolean(ready));
	json_object_set_new(o, "covers", json_boolean(l->covers));
	if (l->key)
		json_object_set_new(o, "key", json_string(l->key));
	return json_text(o);
}

/* next: 0 for one that is ready, or of a new one the new value of the counter, in the same transaction, which is
 * durable then. */
static uint64_t save(struct core *c, const struct layer *l, uint32_t next)
{
	_cleanup_free_ char *body = body_of(l, !next);
	char key[16], counter[32];
	struct store_row rows[2] = { { "layer", key, body }, { "layer", NEXT_KEY, counter } };

	if (!body)
		return 0;
	snprintf(key, sizeof(key), "%u", l->num);
	snprintf(counter, sizeof(counter), "{\"next\":%u}", next);
	return next ? store_put_rows(c->store, rows, 2, true)
		    : store_put_rows_awaited(c->store, rows, 1);
}

static int erase(struct core *c, uint32_t num, bool durable, struct err *e)
{
	char key[16];
	struct store_row row = { "layer", key, NULL };
	uint64_t ticket;

	snprintf(key, sizeof(key), "%u", num);
	ticket = store_put_rows(c->store, &row, 1, durable);
	if (!ticket)
		return err_oom(e);
	return durable ? store_wait(c->store, ticket, e) : 0;
}

static int load_one(void *arg, const char *key, const char *body, struct err *e)
{
	struct layers *s = arg;
	_cleanup_json_ json_t *o = json_loads(body, 0, NULL);
	uint32_t num = (uint32_t)strtoul(key, NULL, 10);
	struct layer *l;

	if (!strcmp(key, NEXT_KEY)) {
		s->next = (uint32_t)json_integer_value(json_object_get(o, "next"));
		return 0;
	}
	if (num == 0 || !json_is_object(o)) {
		log_warn("the record of a layer cannot be understood key=%.20s", key);
		return 0;
	}
	l = add(s, num, json_string_value(json_object_get(o, "key")));
	if (!l)
		return err_oom(e);
	l->source = (enum layer_source)json_integer_value(json_object_get(o, "source"));
	l->bytes = json_integer_value(json_object_get(o, "bytes"));
	l->ready = json_is_true(json_object_get(o, "ready"));
	l->covers = json_is_true(json_object_get(o, "covers"));
	return 0;
}

/* A record whose tree was never completed: without the record the sweep takes the tree. */
static void forget_halves(struct layers *s)
{
	struct layer *l, *tmp;

	HASH_ITER (hh, s->all, l, tmp) {
		if (l->num >= s->next)
			s->next = l->num + 1;
		if (l->ready)
			continue;
		HASH_DEL(s->all, l);
		(void)erase(s->core, l->num, false, NULL);
		layer_free(l);
	}
}

int layers_open(struct core *c, struct layers **ret, struct err *e)
{
	struct layers *s = calloc(1, sizeof(*s));

	if (!s)
		return err_oom(e);
	s->core = c;
	s->next = 1;
	s->drops_tail = &s->drops;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->cond, NULL);
	if (store_load_rows(c->store, "layer", load_one, s, e) < 0) {
		layers_close(s);
		return -1;
	}
	*ret = s;
	return 0;
}

int layers_keep(struct core *c, struct err *e)
{
	struct layers *s = c->layers;
	struct layer *l, *tmp;
	uint32_t *nums;
	size_t n = 0;
	int rc;

	forget_halves(s);
	if (!c->ops->keep_layers)
		return 0;
	nums = calloc(HASH_COUNT(s->all) + 1, sizeof(*nums));
	if (!nums)
		return err_oom(e);
	HASH_ITER (hh, s->all, l, tmp) {
		nums[n++] = l->num;
	}
	rc = c->ops->keep_layers(c->backend, nums, n, e);
	free(nums);
	return rc;
}

/* --- dropping -------------------------------------------------------------------------------- */

/* Lock held. */
static void queue_drop(struct layers *s, struct layer *l)
{
	HASH_DEL(s->all, l);
	*s->drops_tail = l;
	s->drops_tail = &l->next_drop;
	pthread_cond_signal(&s->cond);
}

static void drop(struct core *c, const struct layer *l)
{
	struct err e = ERR_NULL;

	if (erase(c, l->num, true, &e) < 0) {
		log_warn("a layer's record could not be removed layer=%u reason=\"%s\"", l->num,
			e.msg);
		return;
	}
	fault_point("layer-erased");
	if (c->ops->layer_drop && c->ops->layer_drop(c->backend, l->num, &e) < 0)
		log_warn("a layer could not be removed layer=%u reason=\"%s\"", l->num, e.msg);
}

static void *dropper(void *arg)
{
	struct layers *s = arg;
	struct layer *l;

	pthread_mutex_lock(&s->lock);
	while (!s->stop) {
		l = s->drops;
		if (!l) {
			pthread_cond_wait(&s->cond, &s->lock);
			continue;
		}
		s->drops = l->next_drop;
		if (!s->drops)
			s->drops_tail = &s->drops;
		pthread_mutex_unlock(&s->lock);
		drop(s->core, l);
		layer_free(l);
		pthread_mutex_lock(&s->lock);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

int layers_started(struct core *c, struct err *e)
{
	struct layers *s = c->layers;
	struct layer *l, *tmp;

	pthread_mutex_lock(&s->lock);
	s->started = true;
	HASH_ITER (hh, s->all, l, tmp) {
		if (l->refs == 0)
			queue_drop(s, l);
	}
	pthread_mutex_unlock(&s->lock);
	s->dropping = pthread_create(&s->dropper, NULL, dropper, s) == 0;
	return s->dropping ? 0 : err_set(e, ERR_UNAVAILABLE, "no thread could be started");
}

void layers_stop(struct layers *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->started = false;
	s->stop = true;
	pthread_cond_broadcast(&s->cond);
	pthread_mutex_unlock(&s->lock);
	if (s->dropping)
		pthread_join(s->dropper, NULL);
	s->dropping = false;
}

void layers_close(struct layers *s)
{
	struct layer *l, *tmp;

	if (!s)
		return;
	layers_stop(s);
	while ((l = s->drops)) {
		s->drops = l->next_drop;
		layer_free(l);
	}
	HASH_ITER (hh, s->all, l, tmp) {
		HASH_DEL(s->all, l);
		layer_free(l);
	}
	pthread_cond_destroy(&s->cond);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* --- making ---------------------------------------------------------------------------------- */

int layers_new(
	struct core *c, enum layer_source source, const char *key, uint32_t *ret, struct err *e)
{
	struct layers *s = c->layers;
	uint64_t ticket = 0;
	uint32_t num = 0;
	struct layer *l;

	pthread_mutex_lock(&s->lock);
	l = add(s, s->next, key);
	if (l) {
		num = s->next++;
		l->source = source;
		l->refs = 1;
		ticket = save(c, l, s->next);
	}
	pthread_mutex_unlock(&s->lock);
	if (ticket && store_wait(c->store, ticket, e) == 0) {
		*ret = num;
		fault_point("layer-recorded");
		return 0;
	}
	if (!ticket)
		err_oom(e);
	if (l)
		layers_unref_one(c, num);
	return -1;
}

int layers_ready(struct core *c, uint32_t num, int64_t bytes, bool covers, struct err *e)
{
	struct layers *s = c->layers;
	uint64_t ticket = 0;
	struct layer *l;

	pthread_mutex_lock(&s->lock);
	l = find(s, num);
	if (l) {
		l->bytes = bytes;
		l->covers = covers;
		ticket = save(c, l, 0);
	}
	pthread_mutex_unlock(&s->lock);
	/* What stands on it is synced later and brings this with it; but it must be there to be brought, before
	 * anybody finds it. */
	if (!ticket)
		return err_oom(e);
	if (store_wait(c->store, ticket, e) < 0)
		return -1;
	pthread_mutex_lock(&s->lock);
	l->ready = true; /* who calls has a lease of it */
	pthread_mutex_unlock(&s->lock);
	fault_point("layer-ready");
	return 0;
}

bool layers_find(struct core *c, const char *key, uint32_t *ret)
{
	struct layers *s = c->layers;
	struct layer *l, *tmp;
	bool found = false;

	pthread_mutex_lock(&s->lock);
	HASH_ITER (hh, s->all, l, tmp) {
		if (found || !l->ready || !l->key || strcmp(l->key, key) != 0)
			continue;
		l->refs++;
		*ret = l->num;
		found = true;
	}
	pthread_mutex_unlock(&s->lock);
	return found;
}

/* --- references ------------------------------------------------------------------------------ */

bool layers_covers(struct core *c, uint32_t num)
{
	struct layer *l;
	bool covers;

	pthread_mutex_lock(&c->layers->lock);
	l = find(c->layers, num);
	covers = l && l->covers;
	pthread_mutex_unlock(&c->layers->lock);
	return covers;
}

bool layers_whole(struct core *c, const struct backend_chain *chain)
{
	bool whole = true;

	pthread_mutex_lock(&c->layers->lock);
	for (uint32_t i = 0; i < chain->n && whole; i++) {
		const struct layer *l = find(c->layers, chain->layers[i]);
		whole = l && l->ready;
	}
	pthread_mutex_unlock(&c->layers->lock);
	return whole;
}

void layers_ref(struct core *c, const struct backend_chain *chain)
{
	pthread_mutex_lock(&c->layers->lock);
	for (uint32_t i = 0; i < chain->n; i++) {
		struct layer *l = find(c->layers, chain->layers[i]);
		if (l)
			l->refs++;
	}
	pthread_mutex_unlock(&c->layers->lock);
}

/* left: these were leaving. Both counts fall at once, or one who looks would see one more that stays. */
static void unref(struct layers *s, const struct backend_chain *chain, bool left)
{
	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < chain->n; i++) {
		struct layer *l = find(s, chain->layers[i]);
		if (l)
			l->leaving -= left;
		if (l && l->refs > 0 && --l->refs == 0 && s->started)
			queue_drop(s, l);
	}
	pthread_mutex_unlock(&s->lock);
}

void layers_unref(struct core *c, const struct backend_chain *chain)
{
	unref(c->layers, chain, false);
}

void layers_left(struct core *c, const struct backend_chain *chain)
{
	unref(c->layers, chain, true);
}

void layers_leave(struct core *c, const struct backend_chain *chain)
{
	pthread_mutex_lock(&c->layers->lock);
	for (uint32_t i = 0; i < chain->n; i++) {
		struct layer *l = find(c->layers, chain->layers[i]);
		if (l)
			l->leaving++;
	}
	pthread_mutex_unlock(&c->layers->lock);
}

void layers_unref_one(struct core *c, uint32_t num)
{
	struct backend_chain one = { .n = 1, .layers = { num } };

	layers_unref(c, &one);
}

/* Without the layers that more than `most` need for longer than it takes to clean up. */
static int64_t sum(struct core *c, const struct backend_chain *chain, unsigned most)
{
	int64_t bytes = 0;

	pthread_mutex_lock(&c->layers->lock);
	for (uint32_t i = 0; i < chain->n; i++) {
		const struct layer *l = find(c->layers, chain->layers[i]);
		if (l && l->refs - l->leaving <= most)
			bytes += l->bytes;
	}
	pthread_mutex_unlock(&c->layers->lock);
	return bytes;
}

int64_t layers_bytes(struct core *c, const struct backend_chain *chain)
{
	return sum(c, chain, ~0u);
}

int64_t layers_freeable(struct core *c, const struct backend_chain *chain)
{
	return sum(c, chain, 1);
}

/* --- chains ---------------------------------------------------------------------------------- */

json_t *chain_json(const struct backend_chain *chain)
{
	json_t *a = json_array();

	for (uint32_t i = 0; i < chain->n; i++)
		json_array_append_new(a, json_integer(chain->layers[i]));
	return a;
}

int chain_load(const json_t *a, struct backend_chain *ret)
{
	*ret = (struct backend_chain){ .n = 0 };
	if (!json_is_array(a) || json_array_size(a) > BACKEND_CHAIN_MAX)
		return -1;
	for (size_t i = 0; i < json_array_size(a); i++) {
		json_int_t v = json_integer_value(json_array_get(a, i));
		if (v < 1 || v > UINT32_MAX)
			return -1;
		ret->layers[ret->n++] = (uint32_t)v;
	}
	return 0;
}
