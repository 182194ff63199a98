/* SPDX-License-Identifier: MIT */
/* Names of snapshots and views of them: two short lists under one lock. What the server no longer has
 * is dropped from them when it is met. */
#include "sbxfs/snaps.h"

#include "sbxfs/box.h"
#include "sbxfs/remote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VIEWS_MAX 64

struct named {
	struct named *next;
	char box[SBX_ID_MAX], id[SBX_ID_MAX], name[64];
};
struct view {
	struct view *next;
	char id[SBX_ID_MAX], box[SBX_ID_MAX]; /* box "": being made */
};
struct snaps {
	pthread_mutex_t lock;
	struct named *names;
	struct view *views;
	unsigned n_views;
};

int snaps_new(struct mount *m, struct snaps **ret)
{
	(void)m;
	*ret = calloc(1, sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	pthread_mutex_init(&(*ret)->lock, NULL);
	return 0;
}

void snaps_free(struct snaps *s)
{
	if (!s)
		return;
	while (s->names) {
		struct named *n = s->names;

		s->names = n->next;
		free(n);
	}
	while (s->views) {
		struct view *v = s->views;

		s->views = v->next;
		free(v);
	}
	pthread_mutex_destroy(&s->lock);
	free(s);
}

bool snap_id_ok(const char *id)
{
	return !strncmp(id, "snp_", 4) && strlen(id) == 20 &&
		strspn(id + 4, "0123456789abcdef") == 16;
}

int snap_all(struct req *q, json_t **ret)
{
	json_t *body, *list;
	int rc = record_get(q, sbx_path("/v1/snapshots"), &body);

	if (rc < 0)
		return rc;
	list = json_incref(json_object_get(body, "snapshots"));
	json_decref(body);
	if (!json_is_array(list)) {
		json_decref(list);
		return refuse(q, EPROTO, "the server's list of snapshots cannot be read");
	}
	*ret = list;
	return 0;
}

int snap_get(struct req *q, const char *id, json_t **ret)
{
	json_t *list, *o;
	size_t n;
	int rc = snap_all(q, &list);

	if (rc < 0)
		return rc;
	rc = -ENOENT;
	json_array_foreach (list, n, o) {
		const char *word = json_string_value(json_object_get(o, "id"));

		if (word && !strcmp(word, id)) {
			*ret = json_incref(o);
			rc = 0;
			break;
		}
	}
	json_decref(list);
	return rc;
}

/* ---- names ---- */

static void name_add(struct snaps *s, const char *box, const char *id, const char *name)
{
	struct named *n = calloc(1, sizeof(*n));

	if (!n)
		return; /* it is still there by its id */
	(void)snprintf(n->box, sizeof(n->box), "%s", box);
	(void)snprintf(n->id, sizeof(n->id), "%s", id);
	(void)snprintf(n->name, sizeof(n->name), "%s", name);
	pthread_mutex_lock(&s->lock);
	n->next = s->names;
	s->names = n;
	pthread_mutex_unlock(&s->lock);
}

static void name_drop(struct snaps *s, const char *id)
{
	struct named **at, *n;

	pthread_mutex_lock(&s->lock);
	for (at = &s->names; (n = *at);) {
		if (strcmp(n->id, id)) {
			at = &n->next;
			continue;
		}
		*at = n->next;
		free(n);
	}
	pthread_mutex_unlock(&s->lock);
}

void snap_forget(struct mount *m, const char *id)
{
	name_drop(m->snaps, id);
}

bool snap_by_name(struct mount *m, const char *box, const char *name, char *ret_id)
{
	struct named *n;

	pthread_mutex_lock(&m->snaps->lock);
	for (n = m->snaps->names; n; n = n->next)
		if (!strcmp(n->box, box) && !strcmp(n->name, name)) {
			(void)snprintf(ret_id, SBX_ID_MAX, "%s", n->id);
			break;
		}
	pthread_mutex_unlock(&m->snaps->lock);
	return n != NULL;
}

bool snap_name(struct mount *m, const char *box, const char *id, char *ret_name, size_t size)
{
	struct named *n;

	pthread_mutex_lock(&m->snaps->lock);
	for (n = m->snaps->names; n; n = n->next)
		if (!strcmp(n->box, box) && !strcmp(n->id, id)) {
			(void)snprintf(ret_name, size, "%s", n->name);
			break;
		}
	pthread_mutex_unlock(&m->snaps->lock);
	return n != NULL;
}

int snap_take(struct req *q, const char *box, const char *name, char *ret_id)
{
	const char *id;
	json_t *o;
	int rc;

	q->acts = true;
	rc = remote_json(q, "POST", sbx_path("/v1/sandboxes/%s/snapshots", box), NULL, &o);
	mount_touch(q->m);
	if (rc < 0)
		return rc;
	id = json_string_value(json_object_get(o, "id"));
	if (!id || !snap_id_ok(id))
		rc = refuse(q, EPROTO, "the server's answer is not a snapshot");
	if (rc == 0) {
		(void)snprintf(ret_id, SBX_ID_MAX, "%s", id);
		if (name[0])
			name_add(q->m->snaps, box, id, name);
	}
	json_decref(o);
	return rc;
}

int snap_delete(struct req *q, const char *id)
{
	char box[SBX_ID_MAX];
	int rc;

	if (view_get(q, id, box) == 0)
		return refuse(q, EBUSY, "its files are open to view: rmdir fs in it first");
	q->acts = true;
	rc = remote_json(q, "DELETE", sbx_path("/v1/snapshots/%s", id), NULL, NULL);
	mount_touch(q->m);
	if (rc == 0)
		name_drop(q->m->snaps, id);
	return rc;
}

/* ---- views ---- */

/* Lock held. */
static struct view *view_find(struct snaps *s, const char *id)
{
	struct view *v;

	for (v = s->views; v && strcmp(v->id, id); v = v->next)
		;
	return v;
}

static void view_drop(struct snaps *s, const char *id)
{
	struct view **at, *v;

	pthread_mutex_lock(&s->lock);
	for (at = &s->views; (v = *at) && strcmp(v->id, id); at = &v->next)
		;
	if (v) {
		*at = v->next;
		s->n_views--;
		free(v);
	}
	pthread_mutex_unlock(&s->lock);
}

int view_get(struct req *q, const char *id, char *ret_box)
{
	struct snaps *s = q->m->snaps;
	struct sbx_error saved = q->err;
	struct view *v;
	json_t *o;

	pthread_mutex_lock(&s->lock);
	v = view_find(s, id);
	(void)snprintf(ret_box, SBX_ID_MAX, "%s", v ? v->box : "");
	pthread_mutex_unlock(&s->lock);
	if (!ret_box[0])
		return -ENOENT;
	/* It idles out like any other. */
	if (box_live(q, ret_box, &o) == 0) {
		json_decref(o);
		return 0;
	}
	if (q->err.status == 404 || q->err.sys == ESTALE)
		view_drop(s, id);
	q->err = saved;
	return -ENOENT;
}

/* Its place is taken first, so that two who ask at once get one. */
static int view_reserve(struct req *q, const char *id)
{
	struct snaps *s = q->m->snaps;
	struct view *v = calloc(1, sizeof(*v));
	int rc = v ? 0 : -ENOMEM;

	pthread_mutex_lock(&s->lock);
	if (rc == 0 && view_find(s, id))
		rc = -EEXIST;
	else if (rc == 0 && s->n_views >= VIEWS_MAX)
		rc = refuse(q, ENOSPC, "%d snapshots are open to view: rmdir the fs of one", VIEWS_MAX);
	if (rc == 0) {
		(void)snprintf(v->id, sizeof(v->id), "%s", id);
		v->next = s->views;
		s->views = v;
		s->n_views++;
		v = NULL;
	}
	pthread_mutex_unlock(&s->lock);
	free(v);
	return rc;
}

int view_make(struct req *q, const char *id)
{
	struct snaps *s = q->m->snaps;
	json_t *o = NULL;
	struct view *v;
	int rc = view_reserve(q, id);

	if (rc < 0)
		return rc;
	q->acts = true;
	rc = remote_json(q, "POST", sbx_path("/v1/sandboxes"),
		json_pack("{s:s,s:{s:s},s:{s:s}}", "snapshot_id", id, "network", "mode", "none", "labels",
			"sbxfs.view", id), &o);
	if (rc == 0 && !box_id(o)[0])
		rc = refuse(q, EPROTO, "the server's answer is not a sandbox");
	mount_touch(q->m);
	if (rc < 0) {
		view_drop(s, id);
	} else {
		pthread_mutex_lock(&s->lock);
		v = view_find(s, id);
		if (v)
			(void)snprintf(v->box, sizeof(v->box), "%s", box_id(o));
		pthread_mutex_unlock(&s->lock);
	}
	json_decref(o);
	return rc;
}

int view_end(struct req *q, const char *id)
{
	char box[SBX_ID_MAX];
	int rc = view_get(q, id, box);

	if (rc < 0)
		return rc;
	q->acts = true;
	rc = remote_json(q, "DELETE", sbx_path("/v1/sandboxes/%s", box), NULL, NULL);
	mount_touch(q->m);
	if (rc == 0)
		view_drop(q->m->snaps, id);
	return rc;
}

void snaps_stop(struct mount *m)
{
	struct snaps *s = m->snaps;
	char id[SBX_ID_MAX];

	while (s) {
		struct req q = { .m = m, .op = "unmount", .start_ms = now_ms() };

		pthread_mutex_lock(&s->lock);
		(void)snprintf(id, sizeof(id), "%s", s->views ? s->views->id : "");
		pthread_mutex_unlock(&s->lock);
		if (!id[0])
			return;
		(void)view_end(&q, id);
		view_drop(s, id);
	}
}
