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

/* One write: what it makes of a draft. */
struct edit {
	const char *in;  /* the member of the spec that is meant; NULL: the spec itself */
	const char *key;
	json_t *v;       /* taken; NULL: it goes */
	bool append;     /* lists and objects */
};

/* The draft's object under `key`, made when it is missing; borrowed. */
static json_t *member(json_t *spec, const char *key)
{
	json_t *o = key ? json_object_get(spec, key) : spec;

	if (o)
		return o;
	json_object_set_new(spec, key, json_object());
	return json_object_get(spec, key);
}

static int edit_one(json_t *spec, void *arg)
{
	struct edit *e = arg;
	json_t *in, *old;

	if (!e->v)
		return json_object_del(e->in ? json_object_get(spec, e->in) : spec, e->key) < 0 ? -ENOENT : 0;
	in = member(spec, e->in);
	old = json_object_get(in, e->key);
	if (e->append && json_is_array(old) && json_is_array(e->v))
		return json_array_extend(old, e->v) < 0 ? -ENOMEM : 0;
	if (e->append && json_is_object(old) && json_is_object(e->v))
		return json_object_update(old, e->v) < 0 ? -ENOMEM : 0;
	return json_object_set(in, e->key, e->v) < 0 ? -EINVAL : 0;
}

static int edit(struct req *q, const char *draft, struct edit e)
{
	int rc = draft_edit(q->m, draft, edit_one, &e);

	json_decref(e.v);
	return rc;
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
	json_t *v = NULL;

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
	return edit(q, s->arg, (struct edit){ .key = s->node->key, .v = v });
}

int apply_draft_env(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	json_t *env = json_object();
	int rc = value_env(q, value, len, env);

	if (rc < 0) {
		json_decref(env);
		return rc;
	}
	return edit(q, s->arg, (struct edit){ .key = "env", .v = env, .append = append });
}

static int edit_schedule(json_t *spec, void *arg)
{
	const int64_t *plan = arg; /* every, keep */

	json_object_del(spec, "snapshot_every_secs");
	json_object_del(spec, "snapshot_keep");
	if (plan[0]) {
		json_object_set_new(spec, "snapshot_every_secs", json_integer(plan[0]));
		json_object_set_new(spec, "snapshot_keep", json_integer(plan[1]));
	}
	return 0;
}

int apply_draft_schedule(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	int64_t plan[2];
	int rc = value_pair(q, s->node->name, value, len, &plan[0], &plan[1]);

	(void)append;
	return rc < 0 ? rc : draft_edit(q->m, s->arg, edit_schedule, plan);
}

int apply_draft_volumes(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	json_t *list;
	int rc = value_to_mounts(q, value, len, &list);

	if (rc < 0)
		return rc;
	return edit(q, s->arg, (struct edit){ .key = "volumes", .v = list, .append = append });
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
	json_t *v = NULL;
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
	if (rc < 0)
		return rc;
	return edit(q, s->arg, (struct edit){ "network", s->node->key, v, append });
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
	struct edit e = { .in = "labels", .key = key, .v = value ? json_string(value) : NULL };

	return value && !e.v ? -EINVAL : edit(q, draft, e);
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
