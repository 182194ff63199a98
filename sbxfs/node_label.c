/* SPDX-License-Identifier: MIT */
/* Labels: by-label/KEY/VALUE/NAME at the top, labels/KEY in a sandbox. A key's "/" is shown "_" in
 * both, because a file name cannot hold it; a value's "/" is "%2F" and its "%" "%25", and of what is too long for a
 * file name then, a hash stands for the rest. */
#include "common/sys/fnv.h"
#include "sbxfs/box.h"
#include "sbxfs/nodes_fn.h"
#include "sbxfs/remote.h"
#include "sbxfs/value.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void key_shown(const char *key, char *out, size_t size)
{
	(void)snprintf(out, size, "%.63s", key);
	for (; *out; out++)
		if (*out == '/')
			*out = '_';
}

#define SHOWN_MAX 255
#define HASHED 18 /* "%~" and 16 digits */

static void shorten(const char *v, struct text *t)
{
	if (t->failed || t->len <= SHOWN_MAX)
		return;
	t->len = SHOWN_MAX - HASHED;
	while (((unsigned char)t->p[t->len] & 0xc0) == 0x80) /* not in the middle of a letter */
		t->len--;
	txt_printf(t, "%%~%016llx", (unsigned long long)fnv64(FNV64, v, strlen(v)));
}

/* A value as a file name: never empty, no slash, not "." or "..". */
static void value_shown(const char *v, struct text *t)
{
	const char *all = v;

	if (!v[0] || !strcmp(v, ".") || !strcmp(v, ".."))
		txt_str(t, v[0] ? "%2E" : "%");
	for (v += v[0] == '.' && (!v[1] || !strcmp(v, "..")); *v; v++) {
		if (*v == '/' || *v == '%')
			txt_printf(t, "%%%02X", (unsigned char)*v);
		else
			txt_add(t, v, 1);
	}
	shorten(all, t);
}

/* The real key of a shown one in a sandbox's labels; NULL: it has none. Of "a/b" and "a_b" the second has the name,
 * and the first waits until it is gone. */
static const char *key_real(json_t *labels, const char *shown)
{
	const char *key;
	json_t *v;
	char word[80];

	if (json_object_get(labels, shown))
		return shown;
	json_object_foreach (labels, key, v) {
		key_shown(key, word, sizeof(word));
		if (!strcmp(word, shown))
			return key;
	}
	return NULL;
}

typedef void (*label_fn)(const json_t *o, const char *key, const char *value, void *arg);

static int each_label(struct req *q, label_fn fn, void *arg)
{
	json_t *all, *o, *v;
	const char *key;
	size_t n;
	int rc = box_all(q, &all);

	if (rc < 0)
		return rc;
	json_array_foreach (all, n, o) {
		if (!box_is_live(o) || !box_id(o)[0])
			continue;
		json_object_foreach (json_object_get(o, "labels"), key, v)
			if (json_is_string(v))
				fn(o, key, json_string_value(v), arg);
	}
	json_decref(all);
	return 0;
}

/* What a walk collects: the names one level below `want` ("", KEY, KEY/VALUE). */
struct walk {
	const char *key, *value; /* shown forms, NULL: not given */
	struct lister l;
	enum node_id id;
};

static void walk_one(const json_t *o, const char *key, const char *value, void *arg)
{
	_cleanup_text_ struct text v = TEXT_NULL;
	struct walk *w = arg;
	const char *name;
	char k[80];

	key_shown(key, k, sizeof(k));
	value_shown(value, &v);
	if ((w->key && strcmp(w->key, k)) || (w->value && (!v.p || strcmp(w->value, v.p))))
		return;
	name = w->value ? box_entry(o) : w->key ? v.p : k;
	for (size_t n = 0; name && n < w->l.n; n++)
		if (!strcmp(w->l.v[n].name, name))
			return;
	if (name)
		lister_add(&w->l, name, w->id, "");
}

static int walk(struct req *q, const struct spot *d, struct walk *w, char *buf, size_t size)
{
	char *slash;

	(void)snprintf(buf, size, "%s", d->arg);
	slash = strchr(buf, '/');
	if (slash)
		*slash = '\0';
	w->key = d->node->id == N_BY_LABEL ? NULL : buf;
	w->value = d->node->id == N_LABEL_VALUE && slash ? slash + 1 : NULL;
	w->id = d->node->id == N_BY_LABEL ? N_LABEL_KEY :
		d->node->id == N_LABEL_KEY ? N_LABEL_VALUE : N_LABEL_LINK;
	return each_label(q, walk_one, w);
}

static int label_find(struct req *q, const struct spot *d, const char *name, struct found *ret)
{
	struct walk w = { 0 };
	char buf[600], arg[1200];
	int rc = walk(q, d, &w, buf, sizeof(buf));

	if (rc == 0) {
		rc = -ENOENT;
		for (size_t n = 0; n < w.l.n && rc == -ENOENT; n++) {
			if (strcmp(w.l.v[n].name, name))
				continue;
			(void)snprintf(arg, sizeof(arg), "%s%s%s", d->arg, d->arg[0] ? "/" : "", name);
			rc = found_set(ret, w.id, "", arg);
		}
	}
	lister_fini(&w.l);
	return rc;
}

static int label_list(struct req *q, const struct spot *d, struct lister *l)
{
	struct walk w = { .l = *l };
	char buf[600];
	int rc = walk(q, d, &w, buf, sizeof(buf));

	*l = w.l;
	return rc;
}

const struct dir dir_by_label = { .id = N_BY_LABEL, .find = label_find, .list = label_list };
const struct dir dir_label_key = { .id = N_LABEL_KEY, .find = label_find, .list = label_list };
const struct dir dir_label_value = { .id = N_LABEL_VALUE, .find = label_find, .list = label_list };

int read_by_label(struct req *q, const struct spot *s, struct text *t)
{
	const char *name = strrchr(s->arg, '/');

	(void)q;
	txt_printf(t, "../../../%s", name ? name + 1 : s->arg);
	return 0;
}

static int labels_of(struct req *q, const char *box, json_t **ret)
{
	json_t *o, *labels;
	int rc = box_live(q, box, &o);

	if (rc < 0)
		return rc;
	labels = json_object_get(o, "labels");
	*ret = json_is_object(labels) ? json_copy(labels) : json_object();
	json_decref(o);
	return *ret ? 0 : -ENOMEM;
}

static int labels_find(struct req *q, const struct spot *d, const char *name, struct found *ret)
{
	json_t *labels;
	int rc = labels_of(q, d->box, &labels);

	if (rc < 0)
		return rc;
	rc = key_real(labels, name) ? found_set(ret, N_BOX_LABEL, d->box, name) : -ENOENT;
	json_decref(labels);
	return rc;
}

static int labels_list(struct req *q, const struct spot *d, struct lister *l)
{
	json_t *labels, *v;
	const char *key;
	char word[80];
	int rc = labels_of(q, d->box, &labels);

	if (rc < 0)
		return rc;
	json_object_foreach (labels, key, v) {
		key_shown(key, word, sizeof(word));
		if (!strcmp(key_real(labels, word), key)) /* one of those that look alike */
			lister_add(l, word, N_BOX_LABEL, d->box);
	}
	json_decref(labels);
	return 0;
}

static int label_change(struct req *q, const char *box, const char *shown, const char *value)
{
	json_t *labels;
	const char *key;
	int rc = labels_of(q, box, &labels);

	if (rc < 0)
		return rc;
	key = key_real(labels, shown);
	if (!key && !value) {
		json_decref(labels);
		return -ENOENT;
	}
	if (value)
		rc = json_object_set_new(labels, key ? key : shown, json_string(value));
	else
		rc = json_object_del(labels, key);
	if (rc < 0) {
		json_decref(labels);
		return refuse(q, EINVAL, "a label is UTF-8 text");
	}
	return box_patch(q, box, json_pack("{s:o}", "labels", labels));
}

/* value NULL: the label goes. The server takes all labels at once. */
static int label_put(struct req *q, const char *box, const char *shown, const char *value)
{
	int rc = box_edit(q, box);

	if (rc < 0)
		return rc;
	rc = label_change(q, box, shown, value);
	box_edited(q, box);
	return rc;
}

static int labels_create(struct req *q, const struct spot *d, const char *name)
{
	if (!label_key_ok(name))
		return refuse(q, EINVAL, "a label key has a-z, 0-9 and . _ - behind the first: %s", name);
	return label_put(q, d->box, name, "");
}

static int labels_unlink(struct req *q, const struct spot *d, const char *name)
{
	return label_put(q, d->box, name, NULL);
}

const struct dir dir_labels = { .id = N_BOX_LABELS, .find = labels_find, .list = labels_list,
	.create = labels_create, .unlink = labels_unlink };

int read_label(struct req *q, const struct spot *s, struct text *t)
{
	json_t *labels;
	const char *key;
	int rc = labels_of(q, s->box, &labels);

	if (rc < 0)
		return rc;
	key = key_real(labels, s->arg);
	if (key)
		value_text(t, json_object_get(labels, key));
	json_decref(labels);
	return key ? 0 : -ENOENT;
}

int apply_label(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	char *line = value_line(value, len);
	int rc;

	(void)append;
	if (!line)
		return refuse(q, EINVAL, "a label is text without NUL");
	rc = label_put(q, s->box, s->arg, line);
	free(line);
	return rc;
}
