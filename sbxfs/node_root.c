/* SPDX-License-Identifier: MIT */
/* The top of the tree: sandboxes by name, by id, by label, ended ones, and drafts. */
#include "sbxfs/box.h"
#include "sbxfs/draft.h"
#include "sbxfs/nodes_fn.h"
#include "sbxfs/proc.h"
#include "sbxfs/remote.h"
#include "sbxfs/res.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Could the server know this word? Asking for .git, .envrc and the like would be a waste. */
static bool is_ref(const char *name)
{
	return name_ok(name) || id_is_sandbox(name);
}

static int root_find(struct req *q, const struct spot *d, const char *name, struct found *ret)
{
	json_t *o;
	int rc;

	(void)d;
	if (!is_ref(name))
		return -ENOENT;
	rc = box_get(q, name, &o);
	if (rc < 0)
		return rc;
	rc = !strcmp(box_listed(o), name) ? found_set(ret, N_BOX, box_id(o), "") : -ENOENT;
	json_decref(o);
	return rc;
}

static int root_list(struct req *q, const struct spot *d, struct lister *l)
{
	json_t *all, *o;
	size_t n;
	int rc = box_all(q, &all);

	(void)d;
	/* The fixed entries are always there, so that `error` and `stats` can be found. */
	if (rc < 0)
		return remote_is_down(q->m) ? 0 : rc;
	json_array_foreach (all, n, o)
		if (box_is_live(o) && box_id(o)[0])
			lister_add(l, box_entry(o), N_BOX, box_id(o));
	json_decref(all);
	return 0;
}

static int check_name(struct req *q, const char *name)
{
	if (node_is_reserved(name))
		return refuse(q, EINVAL, "%s is a word of this tree: choose another name", name);
	if (!name_ok(name))
		return refuse(q, EINVAL, "a sandbox name has a-z, 0-9 and -, at most 63: %s", name);
	return 0;
}

static int root_mkdir(struct req *q, const struct spot *d, const char *name)
{
	int rc = check_name(q, name);

	(void)d;
	return rc < 0 ? rc : sandbox_make(q, json_pack("{s:s}", "name", name));
}

static int has_running(struct req *q, const char *id)
{
	json_t *body, *o;
	size_t n;
	int rc = remote_json(q, "GET", sbx_path("/v1/sandboxes/%s/processes", id), NULL, &body);

	if (rc < 0)
		return rc;
	json_array_foreach (json_object_get(body, "processes"), n, o) {
		const char *state = json_string_value(json_object_get(o, "state"));

		if (state && !strcmp(state, "running"))
			rc++;
	}
	json_decref(body);
	return rc;
}

static int root_rmdir(struct req *q, const struct spot *d, const char *name)
{
	struct found f;
	int rc = root_find(q, d, name, &f);

	if (rc < 0)
		return rc;
	rc = has_running(q, f.box);
	if (rc > 0)
		return refuse(q, EBUSY, "%d of its processes run; echo delete > %s/ctl ends it anyway",
			rc, name);
	if (rc < 0)
		return rc;
	q->acts = true;
	rc = remote_json(q, "DELETE", sbx_path("/v1/sandboxes/%s", f.box), NULL, NULL);
	if (rc == 0)
		box_ended(q->m, f.box);
	mount_touch(q->m);
	return rc;
}

static int root_rename(struct req *q, const struct spot *d, const char *name, const struct spot *to,
	const char *to_name)
{
	struct found f;
	int rc;

	if (to->node->id != N_ROOT)
		return refuse(q, EPERM, "a sandbox can only be renamed, not moved");
	rc = root_find(q, d, name, &f);
	if (rc < 0)
		return rc;
	if (!name_ok(to_name) || node_is_reserved(to_name))
		return refuse(q, EINVAL, "not a name for a sandbox: %s", to_name);
	rc = box_patch(q, f.box, json_pack("{s:s}", "name", to_name));
	return rc == -EBUSY && q->err.status == 409 ? -EEXIST : rc;
}

const struct dir dir_root = { .id = N_ROOT, .find = root_find, .list = root_list,
	.mkdir = root_mkdir, .rmdir = root_rmdir, .rename = root_rename };

static int new_find(struct req *q, const struct spot *d, const char *name, struct found *ret)
{
	(void)d;
	return draft_exists(q->m, name) ? found_set(ret, N_DRAFT, "", name) : -ENOENT;
}

static int new_list(struct req *q, const struct spot *d, struct lister *l)
{
	char name[NAME_MAX_LEN + 1];

	(void)d;
	for (size_t n = 0; draft_nth(q->m, n, name, sizeof(name)); n++)
		lister_add(l, name, N_DRAFT, "");
	return 0;
}

static int new_mkdir(struct req *q, const struct spot *d, const char *name)
{
	(void)d;
	return draft_make(q, name);
}

static int new_rmdir(struct req *q, const struct spot *d, const char *name)
{
	(void)d;
	return draft_drop(q->m, name);
}

/* mv new/x volumes/ : a volume of that size. Anything else that was set is for sandboxes. */
static int new_volume(struct req *q, const char *name, json_t *spec, const char *to_name)
{
	json_t *size = json_object_get(spec, "size_mb");
	int rc;

	if (json_object_size(spec) > (size ? 1u : 0u))
		rc = refuse(q, EINVAL, "a volume has a size_mb only, and more was set in new/%s", name);
	else
		rc = volume_make(q, to_name, size);
	if (rc == 0)
		(void)draft_drop(q->m, name);
	json_decref(spec);
	return rc;
}

/* mv new/x . : the errno of the create is the move's. */
static int new_rename(struct req *q, const struct spot *d, const char *name, const struct spot *to,
	const char *to_name)
{
	json_t *spec = draft_spec(q->m, name);
	int rc;

	(void)d;
	if (!spec)
		return -ENOENT;
	if (to->node->id == N_VOLUMES)
		return new_volume(q, name, spec, to_name);
	if (json_object_get(spec, "size_mb")) {
		json_decref(spec);
		return refuse(q, EINVAL, "size_mb is for volumes: mv new/%s volumes/; a sandbox has disk_mb",
			name);
	}
	if (to->node->id != N_ROOT) {
		json_decref(spec);
		return refuse(q, EPERM, "a draft becomes a sandbox at the top of the mount: mv new/%s .",
			name);
	}
	rc = check_name(q, to_name);
	if (rc < 0) {
		json_decref(spec);
		return rc;
	}
	json_object_set_new(spec, "name", json_string(to_name));
	rc = sandbox_make(q, spec);
	if (rc == 0)
		(void)draft_drop(q->m, name);
	return rc;
}

const struct dir dir_new = { .id = N_NEW, .find = new_find, .list = new_list, .mkdir = new_mkdir,
	.rmdir = new_rmdir, .rename = new_rename };

static int by_id_find(struct req *q, const struct spot *d, const char *name, struct found *ret)
{
	json_t *o;
	int rc;

	(void)d;
	if (!id_is_sandbox(name))
		return -ENOENT;
	rc = box_get(q, name, &o);
	if (rc < 0)
		return rc;
	json_decref(o);
	return found_set(ret, N_BY_ID_LINK, "", name);
}

static int by_id_list(struct req *q, const struct spot *d, struct lister *l)
{
	json_t *all, *o;
	size_t n;
	int rc = box_all(q, &all);

	(void)d;
	if (rc < 0)
		return rc;
	json_array_foreach (all, n, o)
		lister_add(l, box_id(o), N_BY_ID_LINK, "");
	json_decref(all);
	return 0;
}

const struct dir dir_by_id = { .id = N_BY_ID, .find = by_id_find, .list = by_id_list };

int read_by_id(struct req *q, const struct spot *s, struct text *t)
{
	json_t *o;
	int rc = box_get(q, s->arg, &o);

	if (rc < 0)
		return rc;
	txt_printf(t, "../%s%s", box_is_live(o) ? "" : "ended/",
		box_is_live(o) ? box_entry(o) : box_id(o));
	json_decref(o);
	return 0;
}

static int ended_find(struct req *q, const struct spot *d, const char *name, struct found *ret)
{
	json_t *o;
	int rc;

	(void)d;
	if (!id_is_sandbox(name))
		return -ENOENT;
	rc = box_get(q, name, &o);
	if (rc < 0)
		return rc;
	rc = box_is_live(o) ? -ENOENT : found_set(ret, N_ENDED_BOX, box_id(o), "");
	json_decref(o);
	return rc;
}

static int ended_list(struct req *q, const struct spot *d, struct lister *l)
{
	json_t *all, *o;
	size_t n;
	int rc = box_all(q, &all);

	(void)d;
	if (rc < 0)
		return rc;
	json_array_foreach (all, n, o)
		if (!box_is_live(o))
			lister_add(l, box_id(o), N_ENDED_BOX, box_id(o));
	json_decref(all);
	return 0;
}

const struct dir dir_ended = { .id = N_ENDED, .find = ended_find, .list = ended_list };
