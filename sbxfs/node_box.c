/* SPDX-License-Identifier: MIT */
/* One sandbox: its values, settings and verbs. */
#include "sbxfs/box.h"
#include "sbxfs/draft.h"
#include "sbxfs/nodes_fn.h"
#include "sbxfs/ports.h"
#include "sbxfs/proc.h"
#include "sbxfs/remote.h"
#include "sbxfs/snaps.h"
#include "sbxfs/value.h"
#include "sbxfs/verbs.h"

#include "common/json/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int read_box_field(struct req *q, const struct spot *s, struct text *t)
{
	json_t *o;
	int rc = box_live(q, s->box, &o);

	if (rc < 0)
		return rc;
	if (s->node->id == N_BOX_IDLE_ACT && !json_object_get(o, s->node->key))
		txt_str(t, "terminate\n"); /* the API leaves its default out */
	else
		value_text(t, json_object_get(o, s->node->key));
	json_decref(o);
	return 0;
}

int read_box_info(struct req *q, const struct spot *s, struct text *t)
{
	json_t *o;
	int rc = s->node->id == N_ENDED_INFO ? box_get(q, s->box, &o) : box_live(q, s->box, &o);

	if (rc < 0)
		return rc;
	txt_json(t, o);
	json_decref(o);
	return 0;
}

int read_box_list(struct req *q, const struct spot *s, struct text *t)
{
	return read_box_field(q, s, t);
}

int read_box_doc(struct req *q, const struct spot *s, struct text *t)
{
	json_t *o, *v;
	int rc = box_live(q, s->box, &o);

	if (rc < 0)
		return rc;
	v = json_object_get(o, s->node->key);
	if (v)
		txt_json(t, v);
	json_decref(o);
	return 0;
}

int read_box_volumes(struct req *q, const struct spot *s, struct text *t)
{
	json_t *o;
	int rc = box_live(q, s->box, &o);

	if (rc < 0)
		return rc;
	value_mounts(t, json_object_get(o, "volumes"));
	json_decref(o);
	return 0;
}

int read_network(struct req *q, const struct spot *s, struct text *t)
{
	json_t *o, *net;
	int rc = box_live(q, s->box, &o);

	if (rc < 0)
		return rc;
	net = json_object_get(o, "network");
	if (s->node->key)
		value_text(t, json_object_get(net, s->node->key));
	else
		txt_json(t, net);
	json_decref(o);
	return 0;
}

int read_home(struct req *q, const struct spot *s, struct text *t)
{
	(void)q;
	(void)s;
	txt_str(t, "fs/sandbox/home");
	return 0;
}

int apply_name(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	char *line = value_line(value, len);
	int rc;

	(void)append;
	if (!line)
		return refuse(q, EINVAL, "name: text without NUL is needed");
	rc = box_patch(q, s->box, json_pack("{s:s}", "name", line));
	free(line);
	return rc == -EBUSY && q->err.status == 409 ? -EEXIST : rc;
}

int apply_box_int(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	int64_t n;
	int rc = value_int(q, s->node->name, value, len, 0, INT32_MAX, &n);

	(void)append;
	if (rc < 0)
		return rc;
	return box_patch(q, s->box, json_pack("{s:I}", s->node->key, (json_int_t)n));
}

int apply_box_str(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	char *line = value_line(value, len);
	json_t *body = line ? json_pack("{s:s}", s->node->key, line) : NULL;

	(void)append;
	free(line);
	if (!body)
		return refuse(q, EINVAL, "%s: text is needed", s->node->name);
	return box_patch(q, s->box, body);
}

int apply_box_doc(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	struct err e = ERR_NULL;
	json_t *v;

	(void)append;
	if (json_parse_object(value, len, &v, &e) < 0)
		return refuse(q, EINVAL, "%s: %s", s->node->name, e.msg);
	return box_patch(q, s->box, json_pack("{s:o}", s->node->key, v));
}

/* The policy in force, asked for just now, with one member changed. */
static int network_with(struct req *q, const struct spot *s, json_t *member, bool append, json_t **ret)
{
	json_t *o, *net, *old;
	int rc;

	mount_touch(q->m);
	rc = box_live(q, s->box, &o);

	if (rc < 0) {
		json_decref(member);
		return rc;
	}
	net = json_deep_copy(json_object_get(o, "network"));
	json_decref(o);
	old = json_object_get(net, s->node->key);
	if (append && json_is_array(old)) {
		json_t *both = json_copy(old);

		json_array_extend(both, member);
		json_decref(member);
		member = both;
	}
	json_object_set_new(net, s->node->key, member);
	/* A list belongs to the mode allowlist; another mode takes the default one. */
	if (s->node->id == N_BOX_NET_MODE)
		json_object_del(net, "allow");
	*ret = net;
	return 0;
}

int apply_network(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	json_t *member = NULL, *net = NULL;
	int rc = remote_need(q, CAP_NETWORK_POLICY_UPDATE, "change the network of a running sandbox");

	if (rc < 0)
		return rc;
	if (s->node->kind == KIND_LIST) {
		rc = value_lines(q, value, len, &member);
	} else {
		char *line = value_line(value, len);

		member = line ? json_string(line) : NULL;
		free(line);
		if (!member)
			rc = refuse(q, EINVAL, "mode: none, allowlist or open is needed");
	}
	if (rc == 0 && (rc = box_edit(q, s->box)) < 0)
		json_decref(member);
	if (rc < 0)
		return rc;
	rc = network_with(q, s, member, append, &net);
	if (rc == 0)
		rc = box_patch(q, s->box, json_pack("{s:o}", "network", net));
	box_edited(q, s->box);
	return rc;
}

int apply_policy(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	struct err e = ERR_NULL;
	json_t *net;
	int rc = remote_need(q, CAP_NETWORK_POLICY_UPDATE, "change the network of a running sandbox");

	(void)append;
	if (rc < 0)
		return rc;
	if (json_parse_object(value, len, &net, &e) < 0)
		return refuse(q, EINVAL, "policy: %s", e.msg);
	rc = box_edit(q, s->box); /* not between the reading and the answer of who changes a part */
	if (rc < 0) {
		json_decref(net);
		return rc;
	}
	rc = box_patch(q, s->box, json_pack("{s:o}", "network", net));
	box_edited(q, s->box);
	return rc;
}

static int do_delete(struct req *q, const struct spot *s, char **args, unsigned n)
{
	int rc;

	(void)args;
	(void)n;
	q->acts = true;
	rc = remote_json(q, "DELETE", sbx_path("/v1/sandboxes/%s", s->box), NULL, NULL);
	if (rc == 0)
		box_ended(q->m, s->box);
	mount_touch(q->m);
	return rc;
}

static int do_sleep(struct req *q, const struct spot *s, const char *verb)
{
	int rc = remote_need(q, CAP_SUSPEND, "suspend a sandbox");

	if (rc < 0)
		return rc;
	q->acts = true;
	rc = remote_json(q, "POST", sbx_path("/v1/sandboxes/%s/%s", s->box, verb), NULL, NULL);
	mount_touch(q->m);
	return rc;
}

static int do_suspend(struct req *q, const struct spot *s, char **args, unsigned n)
{
	(void)args;
	(void)n;
	return do_sleep(q, s, "suspend");
}

static int do_resume(struct req *q, const struct spot *s, char **args, unsigned n)
{
	(void)args;
	(void)n;
	return do_sleep(q, s, "resume");
}

/* A snapshot that has the name, unless it was deleted elsewhere. */
static int name_is_free(struct req *q, const char *box, const char *name)
{
	char id[SBX_ID_MAX];
	json_t *o;
	int rc;

	if (!snap_by_name(q->m, box, name, id))
		return 0;
	rc = snap_get(q, id, &o);
	if (rc == 0) {
		json_decref(o);
		return refuse(q, EEXIST, "there is a snapshot of that name: %s", name);
	}
	if (rc != -ENOENT)
		return rc;
	snap_forget(q->m, id);
	return 0;
}

static int do_snapshot(struct req *q, const struct spot *s, char **args, unsigned n)
{
	char id[SBX_ID_MAX];
	int rc = remote_need(q, CAP_SNAPSHOT, "take snapshots");

	if (rc == 0 && n && !process_name_ok(args[0]))
		rc = refuse(q, EINVAL, "not a name for a snapshot: %s", args[0]);
	if (rc == 0 && n)
		rc = name_is_free(q, s->box, args[0]);
	return rc < 0 ? rc : snap_take(q, s->box, n ? args[0] : "", id);
}

/* By a snapshot for this alone, which does not stay. */
static int do_fork(struct req *q, const struct spot *s, char **args, unsigned n)
{
	struct sbx_error first;
	char id[SBX_ID_MAX];
	int rc = remote_need(q, CAP_SNAPSHOT, "fork a sandbox");

	(void)n;
	if (rc == 0 && (!name_ok(args[0]) || node_is_reserved(args[0])))
		rc = refuse(q, EINVAL, "not a name for a sandbox: %s", args[0]);
	if (rc == 0)
		rc = snap_take(q, s->box, "", id);
	if (rc < 0)
		return rc;
	rc = sandbox_make(q, json_pack("{s:s,s:s}", "snapshot_id", id, "name", args[0]));
	first = q->err;
	if (snap_delete(q, id) < 0 && rc == 0)
		return rc; /* it stays, and is listed */
	q->err = first;
	return rc;
}

static int do_refresh(struct req *q, const struct spot *s, char **args, unsigned n)
{
	(void)s;
	(void)args;
	(void)n;
	mount_touch(q->m);
	return 0;
}

const struct verb box_verbs[] = {
	{ "suspend", 0, 0, do_suspend, "freeze it", CAP_SUSPEND },
	{ "resume", 0, 0, do_resume, "let it go on", CAP_SUSPEND },
	{ "snapshot", 0, 1, do_snapshot, "[NAME] take a snapshot: snapshots/NAME", CAP_SNAPSHOT },
	{ "fork", 1, 1, do_fork, "NAME make a sandbox with its files as they are now", CAP_SNAPSHOT },
	{ "refresh", 0, 0, do_refresh, "ask the server anew about everything", CAP_NONE },
	{ "delete", 0, 0, do_delete, "end it with all its processes and files", CAP_NONE },
	{ NULL, 0, 0, NULL, NULL, CAP_NONE },
};
