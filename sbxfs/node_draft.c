/* SPDX-License-Identifier: MIT */
/* new/NAME: the fields of a create, one file each. Values are checked by the server at the mv. */
#include "sbxfs/draft.h"
#include "sbxfs/nodes_fn.h"
#include "sbxfs/value.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int spec_of(struct req *q, const char *name, json_t **ret)
{
	*ret = draft_spec(q->m, name);
	return *ret ? 0 : -ESTALE;
}

/* The draft's object under `key`, made when it is missing; borrowed. */
static json_t *member(json_t *spec, const char *key)
{
	json_t *o = json_object_get(spec, key);

	if (o)
		return o;
	json_object_set_new(spec, key, json_object());
	return json_object_get(spec, key);
}

int read_draft(struct req *q, const struct spot *s, struct text *t)
{
	json_t *spec, *env;
	int rc = spec_of(q, s->arg, &spec);

	if (rc < 0)
		return rc;
	env = json_object_get(spec, "env");
	if (s->node->id == N_DRAFT_ENV) {
		value_keys(t, env);
	} else if (s->node->id == N_DRAFT_VOLUMES) {
		value_mounts(t, json_object_get(spec, "volumes"));
	} else if (s->node->id == N_DRAFT_PLAN) {
		value_schedule(t, spec);
	} else if (s->node->key) {
		value_text(t, json_object_get(spec, s->node->key));
	} else {
		/* Values of the environment are not shown, here as everywhere. */
		const char *key;
		json_t *v;

		json_object_foreach (env, key, v)
			json_string_set(v, "***");
		txt_json(t, spec);
	}
	json_decref(spec);
	return 0;
}

static bool is_number(const struct spot *s)
{
	return s->node->id != N_DRAFT_IMAGE && s->node->id != N_DRAFT_IDLE_ACT &&
		s->node->id != N_DRAFT_SNAPSHOT;
}

int apply_draft(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	char *line = value_line(value, len), *end;
	json_t *v = NULL, *spec;
	int rc;

	(void)append;
	if (line && s->node->id == N_DRAFT_CPUS) {
		double d = strtod(line, &end);

		v = line[0] && !*end && d > 0 && d < 1e6 ? json_real(d) : NULL;
	} else if (line && is_number(s)) {
		int64_t n;

		v = value_int(q, s->node->name, value, len, 1, INT32_MAX, &n) == 0 ? json_integer(n) : NULL;
	} else if (line) {
		v = json_string(line);
	}
	free(line);
	if (!v)
		return refuse(q, EINVAL, "%s: %s is needed", s->node->name,
			is_number(s) ? "a number above 0" : "text");
	rc = spec_of(q, s->arg, &spec);
	if (rc < 0) {
		json_decref(v);
		return rc;
	}
	json_object_set_new(spec, s->node->key, v);
	return draft_put(q->m, s->arg, spec);
}

int apply_draft_env(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	json_t *spec;
	int rc = spec_of(q, s->arg, &spec);

	if (rc < 0)
		return rc;
	if (!append)
		json_object_del(spec, "env");
	rc = value_env(q, value, len, member(spec, "env"));
	if (rc < 0) {
		json_decref(spec);
		return rc;
	}
	return draft_put(q->m, s->arg, spec);
}

int apply_draft_schedule(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	int64_t every, keep;
	json_t *spec = NULL;
	int rc = value_pair(q, s->node->name, value, len, &every, &keep);

	(void)append;
	if (rc == 0)
		rc = spec_of(q, s->arg, &spec);
	if (rc < 0)
		return rc;
	json_object_del(spec, "snapshot_every_secs");
	json_object_del(spec, "snapshot_keep");
	if (every) {
		json_object_set_new(spec, "snapshot_every_secs", json_integer(every));
		json_object_set_new(spec, "snapshot_keep", json_integer(keep));
	}
	return draft_put(q->m, s->arg, spec);
}

int apply_draft_volumes(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	json_t *spec, *list, *old;
	int rc = value_to_mounts(q, value, len, &list);

	if (rc < 0)
		return rc;
	rc = spec_of(q, s->arg, &spec);
	if (rc < 0) {
		json_decref(list);
		return rc;
	}
	old = json_object_get(spec, "volumes");
	if (append && json_is_array(old)) {
		json_array_extend(old, list);
		json_decref(list);
	} else {
		json_object_set_new(spec, "volumes", list);
	}
	return draft_put(q->m, s->arg, spec);
}

int read_draft_net(struct req *q, const struct spot *s, struct text *t)
{
	json_t *spec;
	int rc = spec_of(q, s->arg, &spec);

	if (rc < 0)
		return rc;
	value_text(t, json_object_get(json_object_get(spec, "network"), s->node->key));
	json_decref(spec);
	return 0;
}

int apply_draft_net(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	json_t *spec = NULL, *v = NULL, *net, *old;
	int rc = 0;

	if (s->node->kind == KIND_LIST) {
		rc = value_lines(q, value, len, &v);
	} else {
		char *line = value_line(value, len);

		v = line ? json_string(line) : NULL;
		free(line);
		if (!v)
			rc = refuse(q, EINVAL, "mode: none, allowlist or open is needed");
	}
	if (rc == 0)
		rc = spec_of(q, s->arg, &spec);
	if (rc < 0) {
		json_decref(v);
		return rc;
	}
	net = member(spec, "network");
	old = json_object_get(net, s->node->key);
	if (append && json_is_array(old) && json_is_array(v)) {
		json_array_extend(old, v);
		json_decref(v);
	} else {
		json_object_set_new(net, s->node->key, v);
	}
	return draft_put(q->m, s->arg, spec);
}

/* Labels of a draft: the argument of a label's file is "DRAFT/KEY"; "/" in a key is "_" here too. */
static int labels_find(struct req *q, const struct spot *d, const char *name, struct found *ret)
{
	char arg[200];
	json_t *spec;
	int rc = spec_of(q, d->arg, &spec);

	if (rc < 0)
		return rc;
	rc = json_object_get(json_object_get(spec, "labels"), name) ? 0 : -ENOENT;
	json_decref(spec);
	if (rc < 0 || strlen(d->arg) + strlen(name) + 2 > sizeof(arg))
		return -ENOENT;
	strcpy(arg, d->arg);
	strcat(arg, "/");
	strcat(arg, name);
	return found_set(ret, N_DRAFT_LABEL, "", arg);
}

static int labels_list(struct req *q, const struct spot *d, struct lister *l)
{
	json_t *spec, *v;
	const char *key;
	int rc = spec_of(q, d->arg, &spec);

	if (rc < 0)
		return rc;
	json_object_foreach (json_object_get(spec, "labels"), key, v)
		lister_add(l, key, N_DRAFT_LABEL, "");
	json_decref(spec);
	return 0;
}

static int labels_put(struct req *q, const char *draft, const char *key, const char *value)
{
	json_t *spec, *labels;
	int rc = spec_of(q, draft, &spec);

	if (rc < 0)
		return rc;
	labels = member(spec, "labels");
	if (value)
		rc = json_object_set_new(labels, key, json_string(value)) < 0 ? -EINVAL : 0;
	else
		rc = json_object_del(labels, key) < 0 ? -ENOENT : 0;
	if (rc < 0) {
		json_decref(spec);
		return rc;
	}
	return draft_put(q->m, draft, spec);
}

static int labels_create(struct req *q, const struct spot *d, const char *name)
{
	if (!label_key_ok(name))
		return refuse(q, EINVAL, "not a label key: %s", name);
	return labels_put(q, d->arg, name, "");
}

static int labels_unlink(struct req *q, const struct spot *d, const char *name)
{
	return labels_put(q, d->arg, name, NULL);
}

const struct dir dir_draft_labels = { .id = N_DRAFT_LABELS, .find = labels_find,
	.list = labels_list, .create = labels_create, .unlink = labels_unlink };

static const char *label_split(const struct spot *s, char *draft, size_t size)
{
	const char *slash = strchr(s->arg, '/');

	if (!slash || (size_t)(slash - s->arg) >= size)
		return NULL;
	memcpy(draft, s->arg, (size_t)(slash - s->arg));
	draft[slash - s->arg] = '\0';
	return slash + 1;
}

int read_draft_label(struct req *q, const struct spot *s, struct text *t)
{
	char draft[NAME_MAX_LEN + 1];
	const char *key = label_split(s, draft, sizeof(draft));
	json_t *spec;
	int rc = key ? spec_of(q, draft, &spec) : -ENOENT;

	if (rc < 0)
		return rc;
	value_text(t, json_object_get(json_object_get(spec, "labels"), key));
	json_decref(spec);
	return 0;
}

int apply_draft_label(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	char draft[NAME_MAX_LEN + 1], *line = value_line(value, len);
	const char *key = label_split(s, draft, sizeof(draft));
	int rc;

	(void)append;
	rc = key && line ? labels_put(q, draft, key, line) :
			   refuse(q, EINVAL, "a label is UTF-8 text without NUL");
	free(line);
	return rc;
}
