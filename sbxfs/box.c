/* SPDX-License-Identifier: MIT */
/* A small cache in front of the server's records. While the list is watched (watch.c) a record is
 * believed for a second, since a change of it is heard of; else for a tenth. */
#include "sbxfs/box.h"

#include "common/sys/fnv.h"
#include "sbxfs/belief.h"
#include "sbxfs/nodes.h"
#include "sbxfs/ports.h"
#include "sbxfs/proc.h"
#include "sbxfs/remote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 4096
#define WATCHED_MS 1000
#define FRESH_MS 100
#define NAME_MS 10
#define EDITS 64

/* What is kept was asked for under these; another number since, and it is old. */
struct stamp {
	uint64_t gen, list_gen;
};
struct slot {
	char ref[128];
	json_t *obj;
	uint64_t at_ms;
	struct stamp stamp;
};
struct boxes {
	pthread_mutex_t lock;
	struct slot slots[SLOTS];
	struct slot all;
	json_t *heard; /* the last news, and the number that it got */
	uint64_t heard_gen;
	pthread_mutex_t edits[EDITS]; /* by sandbox (box_edit) */
};

int boxes_new(struct boxes **ret)
{
	*ret = calloc(1, sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	pthread_mutex_init(&(*ret)->lock, NULL);
	for (size_t n = 0; n < EDITS; n++)
		pthread_mutex_init(&(*ret)->edits[n], NULL);
	return 0;
}

void boxes_free(struct boxes *b)
{
	if (!b)
		return;
	for (size_t n = 0; n < SLOTS; n++)
		json_decref(b->slots[n].obj);
	json_decref(b->all.obj);
	json_decref(b->heard);
	for (size_t n = 0; n < EDITS; n++)
		pthread_mutex_destroy(&b->edits[n]);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

static struct slot *slot_of(struct boxes *b, const char *ref)
{
	uint32_t h = 2166136261u;

	while (*ref)
		h = (h ^ (unsigned char)*ref++) * 16777619u;
	return &b->slots[h % SLOTS];
}

static struct stamp stamp_now(struct mount *m)
{
	return (struct stamp){ atomic_load(&m->gen), atomic_load(&m->list_gen) };
}

static bool is_current(struct mount *m, const struct slot *s)
{
	struct stamp now = stamp_now(m);

	return s->stamp.gen == now.gen && s->stamp.list_gen == now.list_gen;
}

static json_t *slot_take(struct req *q, struct slot *s, const char *ref, uint64_t ms)
{
	struct boxes *b = q->m->boxes;
	json_t *obj = NULL;

	pthread_mutex_lock(&b->lock);
	if (s->obj && !strcmp(s->ref, ref) && is_current(q->m, s) && now_ms() - s->at_ms < ms)
		obj = json_incref(s->obj);
	pthread_mutex_unlock(&b->lock);
	if (obj)
		atomic_fetch_add(&q->m->stats.cache_hits, 1);
	return obj;
}

/* The lock is held. */
static void slot_fill(struct slot *s, const char *ref, json_t *obj, struct stamp stamp)
{
	json_decref(s->obj);
	s->obj = json_incref(obj);
	(void)snprintf(s->ref, sizeof(s->ref), "%s", ref);
	s->at_ms = now_ms();
	s->stamp = stamp;
}

static void slot_put(struct req *q, struct slot *s, const char *ref, json_t *obj, struct stamp stamp)
{
	struct boxes *b = q->m->boxes;

	pthread_mutex_lock(&b->lock);
	slot_fill(s, ref, obj, stamp);
	pthread_mutex_unlock(&b->lock);
}

static const char *word(const json_t *o, const char *key, size_t max)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s && strlen(s) < max ? s : "";
}

const char *box_id(const json_t *o)
{
	const char *id = word(o, "id", SBX_ID_MAX);

	return id_is_sandbox(id) ? id : "";
}

const char *box_name(const json_t *o)
{
	const char *name = word(o, "name", NAME_MAX_LEN + 1);

	return name_ok(name) ? name : "";
}

bool box_is_live(const json_t *o)
{
	const char *state = word(o, "state", 32);

	return state[0] && strcmp(state, "terminated");
}

const char *box_entry(const json_t *o)
{
	const char *name = box_name(o);

	return name[0] && !node_is_reserved(name) ? name : box_id(o);
}

const char *box_listed(const json_t *o)
{
	return box_is_live(o) ? box_entry(o) : "";
}

int box_get(struct req *q, const char *ref, json_t **ret)
{
	struct slot *s = slot_of(q->m->boxes, ref);
	struct stamp stamp = stamp_now(q->m);
	json_t *obj;
	int rc;

	/* A name may belong to another sandbox a moment later; an id never does. */
	obj = slot_take(q, s, ref, atomic_load(&q->m->watched) ? WATCHED_MS :
		id_is_sandbox(ref) ? FRESH_MS : NAME_MS);
	if (obj) {
		*ret = obj;
		return 0;
	}
	rc = remote_json(q, "GET", sbx_path("/v1/sandboxes/%s", ref), NULL, &obj);
	if (rc < 0)
		return rc;
	if (!box_id(obj)[0]) {
		json_decref(obj);
		return refuse(q, EPROTO, "the server's answer is not a sandbox");
	}
	slot_put(q, s, ref, obj, stamp);
	*ret = obj;
	return 0;
}

int box_live(struct req *q, const char *id, json_t **ret)
{
	int rc = box_get(q, id, ret);

	if (rc < 0 || box_is_live(*ret))
		return rc;
	json_decref(*ret);
	return refuse(q, ESTALE, "this sandbox has ended; its record is ended/%s", id);
}

/* Whoever lists the top asks about each entry next. */
static void keep_all(struct req *q, json_t *list, struct stamp stamp)
{
	struct boxes *b = q->m->boxes;
	json_t *o;
	size_t n;

	json_array_foreach (list, n, o) {
		if (!box_is_live(o) || !box_id(o)[0])
			continue;
		slot_put(q, slot_of(b, box_id(o)), box_id(o), o, stamp);
		if (box_name(o)[0])
			slot_put(q, slot_of(b, box_name(o)), box_name(o), o, stamp);
	}
	slot_put(q, &b->all, "", list, stamp);
}

int box_all(struct req *q, json_t **ret)
{
	struct stamp stamp = stamp_now(q->m);
	json_t *body, *list;
	int rc;

	list = slot_take(q, &q->m->boxes->all, "",
		atomic_load(&q->m->watched) ? WATCHED_MS : FRESH_MS);
	if (list) {
		*ret = list;
		return 0;
	}
	rc = remote_json(q, "GET", sbx_path("/v1/sandboxes"), NULL, &body);
	if (rc < 0)
		return rc;
	list = json_incref(json_object_get(body, "sandboxes"));
	json_decref(body);
	if (!json_is_array(list)) {
		json_decref(list);
		return refuse(q, EPROTO, "the server's listing cannot be read");
	}
	keep_all(q, list, stamp);
	*ret = list;
	return 0;
}

int record_get(struct req *q, char *path, json_t **ret)
{
	struct stamp stamp = stamp_now(q->m);
	char ref[sizeof(((struct slot *)0)->ref)];
	struct slot *s;
	int rc;

	if (!path)
		return -ENOMEM;
	if (strlen(path) >= sizeof(ref))
		return remote_json(q, "GET", path, NULL, ret);
	strcpy(ref, path);
	s = slot_of(q->m->boxes, ref);
	*ret = slot_take(q, s, ref, FRESH_MS);
	if (*ret) {
		free(path);
		return 0;
	}
	rc = remote_json(q, "GET", path, NULL, ret);
	if (rc == 0)
		slot_put(q, s, ref, *ret, stamp);
	return rc;
}

/* The answer to a change is the record as it was then: nobody need ask for it, unless something else was
 * heard of meanwhile. The news of the change itself may well come before its answer. */
static void box_learn(struct req *q, const char *id, json_t *o, struct stamp stamp)
{
	struct boxes *b = q->m->boxes;

	if (strcmp(box_id(o), id) != 0)
		return;
	pthread_mutex_lock(&b->lock);
	if (b->heard && b->heard_gen == atomic_load(&q->m->list_gen) && json_equal(b->heard, o))
		stamp.list_gen = b->heard_gen;
	slot_fill(slot_of(b, id), id, o, stamp);
	if (box_name(o)[0])
		slot_fill(slot_of(b, box_name(o)), box_name(o), o, stamp);
	pthread_mutex_unlock(&b->lock);
}

static pthread_mutex_t *edit_of(struct req *q, const char *id)
{
	return &q->m->boxes->edits[fnv64(FNV64, id, strlen(id)) % EDITS];
}

int box_edit(struct req *q, const char *id)
{
	int rc = remote_lock(q, edit_of(q, id));

	if (rc < 0)
		return rc;
	/* What others change is heard of only where the list is watched. */
	if (!atomic_load(&q->m->watched))
		mount_touch(q->m);
	return 0;
}

void box_edited(struct req *q, const char *id)
{
	pthread_mutex_unlock(edit_of(q, id));
}

int box_patch(struct req *q, const char *id, json_t *body)
{
	struct stamp stamp = stamp_now(q->m);
	json_t *now = NULL;
	int rc;

	if (!body) /* a request without one would say that nothing shall be changed */
		return refuse(q, EINVAL, "UTF-8 text is needed");
	q->acts = true;
	rc = remote_json(q, "PATCH", sbx_path("/v1/sandboxes/%s", id), body, &now);
	if (rc == 0) {
		atomic_fetch_add(&q->m->gen, 1);
		belief_told(q->m, id, strcmp(box_id(now), id) ? "" : box_listed(now));
		stamp.gen++; /* by this change alone */
		box_learn(q, id, now, stamp);
		q->learned++;
	}
	json_decref(now);
	return rc;
}

bool box_heard(struct mount *m, json_t *o)
{
	struct boxes *b = m->boxes;
	const struct slot *s = slot_of(b, box_id(o));
	bool news;

	pthread_mutex_lock(&b->lock);
	news = !s->obj || strcmp(s->ref, box_id(o)) != 0 || !is_current(m, s) ||
		now_ms() - s->at_ms >= WATCHED_MS || !json_equal(s->obj, o);
	if (news && atomic_load(&m->watched)) {
		json_decref(b->heard);
		b->heard = json_incref(o);
		b->heard_gen = atomic_fetch_add(&m->list_gen, 1) + 1;
	}
	pthread_mutex_unlock(&b->lock);
	return news;
}

void box_ended(struct mount *m, const char *id)
{
	process_forget_box(m, id);
	ports_forget_box(m, id);
}

void box_shown(struct mount *m, const char *id, char *out, size_t size)
{
	struct boxes *b = m->boxes;

	(void)snprintf(out, size, "%s", id);
	pthread_mutex_lock(&b->lock);
	for (size_t n = 0; n < SLOTS; n++)
		if (b->slots[n].obj && b->slots[n].ref[0] != '/' &&
			!strcmp(box_id(b->slots[n].obj), id)) {
			(void)snprintf(out, size, "%s", box_entry(b->slots[n].obj));
			break;
		}
	pthread_mutex_unlock(&b->lock);
}
