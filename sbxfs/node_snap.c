/* SPDX-License-Identifier: MIT */
/* Snapshots: all of them at the top, those of a sandbox in it, and what each has. In a sandbox one that
 * this mount named is listed by its name, and its id is a link to that. */
#include "sbxfs/box.h"
#include "sbxfs/draft.h"
#include "sbxfs/nodes_fn.h"
#include "sbxfs/remote.h"
#include "sbxfs/snaps.h"
#include "sbxfs/value.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *word(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

/* Is the snapshot there, and of that sandbox (box "": of any)? */
static int exists(struct req *q, const char *id, const char *box)
{
	json_t *o;
	int rc = snap_id_ok(id) ? snap_get(q, id, &o) : -ENOENT;

	if (rc < 0)
		return rc;
	rc = box[0] && strcmp(word(o, "sandbox"), box) ? -ENOENT : 0;
	json_decref(o);
	return rc;
}

/* ---- at the top ---- */

static int all_find(struct req *q, const struct spot *d, const char *name, struct found *ret)
{
	int rc = exists(q, name, "");

	(void)d;
	return rc < 0 ? rc : found_set(ret, N_SNAP, "", name);
}

static int all_list(struct req *q, const struct spot *d, struct lister *l)
{
	json_t *list, *o;
	size_t n;
	int rc = snap_all(q, &list);

	(void)d;
	if (rc < 0)
		return rc;
	json_array_foreach (list, n, o)
		if (snap_id_ok(word(o, "id")))
			lister_add(l, word(o, "id"), N_SNAP, "");
	json_decref(list);
	return 0;
}

static int all_mkdir(struct req *q, const struct spot *d, const char *name)
{
	(void)d;
	return refuse(q, EPERM, "a snapshot is taken in its sandbox: mkdir SANDBOX/snapshots/%s", name);
}

static int all_rmdir(struct req *q, const struct spot *d, const char *name)
{
	(void)d;
	return snap_id_ok(name) ? snap_delete(q, name) : -ENOENT;
}

const struct dir dir_snapshots = { .id = N_SNAPSHOTS, .find = all_find, .list = all_list,
	.mkdir = all_mkdir, .rmdir = all_rmdir };

/* ---- in a sandbox ---- */

static int own_find(struct req *q, const struct spot *d, const char *name, struct found *ret)
{
	char id[SBX_ID_MAX], alias[64];
	int rc;

	if (snap_by_name(q->m, d->box, name, id)) {
		rc = exists(q, id, d->box);
		if (rc == -ENOENT) /* deleted elsewhere */
			snap_forget(q->m, id);
		return rc < 0 ? rc : found_set(ret, N_SNAP, d->box, id);
	}
	rc = exists(q, name, d->box);
	if (rc < 0)
		return rc;
	return found_set(ret, snap_name(q->m, d->box, name, alias, sizeof(alias)) ? N_SNAP_LINK : N_SNAP,
		d->box, name);
}

static int own_list(struct req *q, const struct spot *d, struct lister *l)
{
	char alias[64];
	json_t *list, *o;
	size_t n;
	int rc = snap_all(q, &list);

	if (rc < 0)
		return rc;
	json_array_foreach (list, n, o) {
		const char *id = word(o, "id");
		bool named = snap_name(q->m, d->box, id, alias, sizeof(alias));

		if (!snap_id_ok(id) || strcmp(word(o, "sandbox"), d->box))
			continue;
		lister_add(l, id, named ? N_SNAP_LINK : N_SNAP, d->box);
		if (named)
			lister_add(l, alias, N_SNAP, d->box);
	}
	json_decref(list);
	return 0;
}

static int own_mkdir(struct req *q, const struct spot *d, const char *name)
{
	char id[SBX_ID_MAX];

	if (!process_name_ok(name))
		return refuse(q, EINVAL, "a name has a-z, 0-9 and . _ - behind a letter, at most 63: %s",
			name);
	return snap_take(q, d->box, name, id);
}

static int own_rmdir(struct req *q, const struct spot *d, const char *name)
{
	struct found f;
	int rc = own_find(q, d, name, &f);

	return rc < 0 ? rc : snap_delete(q, f.arg);
}

const struct dir dir_box_snaps = { .id = N_BOX_SNAPS, .find = own_find, .list = own_list,
	.mkdir = own_mkdir, .rmdir = own_rmdir };

int read_snap_link(struct req *q, const struct spot *s, struct text *t)
{
	char alias[64];

	if (!snap_name(q->m, s->box, s->arg, alias, sizeof(alias)))
		return -ENOENT;
	txt_str(t, alias);
	return 0;
}

int read_snap_progress(struct req *q, const struct spot *s, struct text *t)
{
	json_t *o, *now;
	int rc = box_live(q, s->box, &o);

	if (rc < 0)
		return rc;
	now = json_object_get(o, "snapshotting");
	if (now)
		txt_json(t, now);
	json_decref(o);
	return 0;
}

int read_schedule(struct req *q, const struct spot *s, struct text *t)
{
	json_t *o;
	int rc = box_live(q, s->box, &o);

	if (rc < 0)
		return rc;
	value_schedule(t, o);
	json_decref(o);
	return 0;
}

int apply_schedule(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	int64_t every, keep;
	int rc = value_pair(q, "schedule", value, len, &every, &keep);

	(void)append;
	if (rc < 0)
		return rc;
	q->acts = true;
	rc = remote_json(q, "PUT", sbx_path("/v1/sandboxes/%s/snapshot-schedule", s->box),
		json_pack("{s:I,s:I}", "every_secs", (json_int_t)every, "keep", (json_int_t)keep), NULL);
	mount_touch(q->m);
	return rc;
}

/* ---- one snapshot ---- */

int read_snap(struct req *q, const struct spot *s, struct text *t)
{
	json_t *o;
	int rc = snap_get(q, s->arg, &o);

	if (rc < 0)
		return rc == -ENOENT ? -ESTALE : rc;
	if (!s->node->key)
		txt_json(t, o);
	else if (s->node->id == N_SNAP_PLANNED)
		txt_str(t, json_is_true(json_object_get(o, s->node->key)) ? "1\n" : "0\n");
	else
		value_text(t, json_object_get(o, s->node->key));
	json_decref(o);
	return 0;
}

int read_snap_fork(struct req *q, const struct spot *s, struct text *t)
{
	(void)q;
	(void)s;
	txt_str(t, "write a name: makes a sandbox of it with these files; created has its id\n");
	return 0;
}

int apply_snap_fork(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	(void)len;
	(void)append;
	if (!value[0])
		return 0;
	if (!name_ok(value) || node_is_reserved(value))
		return refuse(q, EINVAL, "not a name for a sandbox: %s", value);
	return sandbox_make(q, json_pack("{s:s,s:s}", "snapshot_id", s->arg, "name", value));
}

/* fs/ is there while somebody asked for it: reading must not make a sandbox. */
static int snap_find(struct req *q, const struct spot *d, const char *name, struct found *ret)
{
	char box[SBX_ID_MAX];
	int rc = strcmp(name, "fs") ? -ENOENT : view_get(q, d->arg, box);

	return rc < 0 ? rc : found_set(ret, N_SNAP_FS, box, d->arg);
}

static int snap_list(struct req *q, const struct spot *d, struct lister *l)
{
	char box[SBX_ID_MAX];

	if (view_get(q, d->arg, box) == 0)
		lister_add(l, "fs", N_SNAP_FS, box);
	return 0;
}

static int snap_mkdir(struct req *q, const struct spot *d, const char *name)
{
	if (strcmp(name, "fs"))
		return refuse(q, EPERM, "mkdir fs opens the files of a snapshot; nothing else is made here");
	return view_make(q, d->arg);
}

static int snap_rmdir(struct req *q, const struct spot *d, const char *name)
{
	return strcmp(name, "fs") ? -ENOENT : view_end(q, d->arg);
}

const struct dir dir_snap = { .id = N_SNAP, .find = snap_find, .list = snap_list,
	.mkdir = snap_mkdir, .rmdir = snap_rmdir };
