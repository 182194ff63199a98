/* SPDX-License-Identifier: MIT */
/* Images and volumes of the server. A reference has slashes, a file name has none: "/" is "%2F", which
 * no reference has otherwise. */
#include "sbxfs/box.h"
#include "sbxfs/nodes_fn.h"
#include "sbxfs/remote.h"
#include "sbxfs/res.h"
#include "sbxfs/value.h"
#include "sbxfs/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int list_get(struct req *q, const char *path, const char *key, json_t **ret)
{
	json_t *body, *list;
	int rc = record_get(q, strdup(path), &body);

	if (rc < 0)
		return rc;
	list = json_incref(json_object_get(body, key));
	json_decref(body);
	if (!json_is_array(list)) {
		json_decref(list);
		return refuse(q, EPROTO, "the server's list of %s cannot be read", key);
	}
	*ret = list;
	return 0;
}

/* The entry of a list whose member has that text; -ENOENT. */
static int entry_get(struct req *q, const char *path, const char *key, const char *member,
	const char *want, json_t **ret)
{
	json_t *list, *o;
	size_t n;
	int rc = list_get(q, path, key, &list);

	if (rc < 0)
		return rc;
	rc = -ENOENT;
	json_array_foreach (list, n, o) {
		const char *s = json_string_value(json_object_get(o, member));

		if (s && !strcmp(s, want)) {
			*ret = json_incref(o);
			rc = 0;
			break;
		}
	}
	json_decref(list);
	return rc;
}

static int read_entry(const struct spot *s, json_t *o, struct text *t)
{
	json_t *v = s->node->key ? json_object_get(o, s->node->key) : o;

	if (s->node->kind == KIND_RECORD && v)
		txt_json(t, v);
	else if (s->node->kind != KIND_RECORD)
		value_text(t, v);
	json_decref(o);
	return 0;
}

/* ---- images ---- */

static void image_shown(const char *ref, struct text *t)
{
	for (; *ref; ref++) {
		if (*ref == '/')
			txt_str(t, "%2F");
		else
			txt_add(t, ref, 1);
	}
}

bool image_ref(const char *name, char *out, size_t size)
{
	size_t n = 0;

	while (*name && n + 1 < size) {
		bool slash = !strncmp(name, "%2F", 3);

		out[n++] = slash ? '/' : *name;
		name += slash ? 3 : 1;
	}
	out[n] = '\0';
	return !*name && image_ref_ok(out);
}

int image_get(struct req *q, const char *name, json_t **ret)
{
	char ref[256];

	if (!image_ref(name, ref, sizeof(ref)))
		return -ENOENT;
	return entry_get(q, "/v1/images", "images", "image", ref, ret);
}

static int images_find(struct req *q, const struct spot *d, const char *name, struct found *ret)
{
	json_t *o;
	int rc = image_get(q, name, &o);

	(void)d;
	if (rc < 0)
		return rc;
	json_decref(o);
	return found_set(ret, N_IMAGE, "", name);
}

static int images_list(struct req *q, const struct spot *d, struct lister *l)
{
	json_t *list, *o;
	size_t n;
	int rc = list_get(q, "/v1/images", "images", &list);

	(void)d;
	if (rc < 0)
		return rc;
	json_array_foreach (list, n, o) {
		const char *ref = json_string_value(json_object_get(o, "image"));
		_cleanup_text_ struct text name = TEXT_NULL;

		if (!ref || !image_ref_ok(ref))
			continue;
		image_shown(ref, &name);
		if (name.p)
			lister_add(l, name.p, N_IMAGE, "");
	}
	json_decref(list);
	return 0;
}

static int install(struct req *q, const char *name)
{
	char ref[256];
	int rc;

	if (!image_ref(name, ref, sizeof(ref)))
		return refuse(q, EINVAL, "not a reference of an image (a / is written %%2F): %s", name);
	q->acts = true;
	rc = remote_json(q, "POST", sbx_path("/v1/images"), json_pack("{s:s}", "image", ref), NULL);
	mount_touch(q->m);
	return rc;
}

static int images_mkdir(struct req *q, const struct spot *d, const char *name)
{
	(void)d;
	return install(q, name);
}

static int images_rmdir(struct req *q, const struct spot *d, const char *name)
{
	char ref[256];
	int rc;

	(void)d;
	if (!image_ref(name, ref, sizeof(ref)))
		return -ENOENT;
	q->acts = true;
	rc = remote_json(q, "DELETE", sbx_path("/v1/images?image=%s", ref), NULL, NULL);
	mount_touch(q->m);
	return rc;
}

const struct dir dir_images = { .id = N_IMAGES, .find = images_find, .list = images_list,
	.mkdir = images_mkdir, .rmdir = images_rmdir };

int read_image(struct req *q, const struct spot *s, struct text *t)
{
	json_t *o;
	int rc = image_get(q, s->arg, &o);

	return rc < 0 ? rc == -ENOENT ? -ESTALE : rc : read_entry(s, o, t);
}

static int do_install(struct req *q, const struct spot *s, char **args, unsigned n)
{
	(void)args;
	(void)n;
	return install(q, s->arg);
}

const struct verb image_verbs[] = {
	{ "install", 0, 0, do_install, "look whether its tag moved, or try again", CAP_IMAGES },
	{ NULL, 0, 0, NULL, NULL, CAP_NONE },
};

int apply_image_ctl(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	(void)len;
	(void)append;
	return verb_run(q, s, image_verbs, value);
}

/* ---- volumes ---- */

static int volume_get(struct req *q, const char *name, json_t **ret)
{
	return name_ok(name) ? entry_get(q, "/v1/volumes", "volumes", "name", name, ret) : -ENOENT;
}

static int volumes_find(struct req *q, const struct spot *d, const char *name, struct found *ret)
{
	json_t *o;
	int rc = volume_get(q, name, &o);

	(void)d;
	if (rc < 0)
		return rc;
	json_decref(o);
	return found_set(ret, N_VOLUME, "", name);
}

static int volumes_list(struct req *q, const struct spot *d, struct lister *l)
{
	json_t *list, *o;
	size_t n;
	int rc = list_get(q, "/v1/volumes", "volumes", &list);

	(void)d;
	if (rc < 0)
		return rc;
	json_array_foreach (list, n, o) {
		const char *name = json_string_value(json_object_get(o, "name"));

		if (name && name_ok(name))
			lister_add(l, name, N_VOLUME, "");
	}
	json_decref(list);
	return 0;
}

int volume_make(struct req *q, const char *name, json_t *size)
{
	json_t *body;
	int rc;

	if (!name_ok(name))
		return refuse(q, EINVAL, "a volume's name has a-z, 0-9 and -, at most 63: %s", name);
	body = json_pack("{s:s}", "name", name);
	if (size)
		json_object_set(body, "size_mb", size);
	q->acts = true;
	rc = remote_json(q, "POST", sbx_path("/v1/volumes"), body, NULL);
	mount_touch(q->m);
	return rc == -EBUSY && q->err.status == 409 ? -EEXIST : rc;
}

static int volumes_mkdir(struct req *q, const struct spot *d, const char *name)
{
	(void)d;
	return volume_make(q, name, NULL);
}

static int volumes_rmdir(struct req *q, const struct spot *d, const char *name)
{
	int rc;

	(void)d;
	q->acts = true;
	rc = remote_json(q, "DELETE", sbx_path("/v1/volumes/%s", name), NULL, NULL);
	mount_touch(q->m);
	return rc;
}

const struct dir dir_volumes = { .id = N_VOLUMES, .find = volumes_find, .list = volumes_list,
	.mkdir = volumes_mkdir, .rmdir = volumes_rmdir };

int read_volume(struct req *q, const struct spot *s, struct text *t)
{
	json_t *o;
	int rc = volume_get(q, s->arg, &o);

	return rc < 0 ? rc == -ENOENT ? -ESTALE : rc : read_entry(s, o, t);
}
