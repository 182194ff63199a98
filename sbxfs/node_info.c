/* SPDX-License-Identifier: MIT */
/* Files at the top that tell about the server and this mount, and the files that make sandboxes. */
#include "sbxfs/box.h"
#include "sbxfs/draft.h"
#include "sbxfs/errlog.h"
#include "sbxfs/fs1.h"
#include "sbxfs/nodes_fn.h"
#include "sbxfs/remote.h"
#include "sbxfs/value.h"
#include "sbxfs/verbs.h"

#include "common/json/json.h"

#include <errno.h>
#include <string.h>

#define README_NAME 15 /* columns */

static void readme_rows(struct req *q, enum node_id dir, struct text *t)
{
	for (int n = 1; n < N_COUNT; n++) {
		const struct node *node = node_by_id((enum node_id)n);

		if (node->parent != dir || !node->name || !remote_has(q, node->cap))
			continue;
		txt_printf(t, "  %s%-*s %s\n", node->name, README_NAME - (int)strlen(node->name),
			node->kind == KIND_DIR || node->kind == KIND_TREE ? "/" : "", node->help);
	}
}

int read_readme(struct req *q, const struct spot *s, struct text *t)
{
	(void)s;
	txt_str(t, "Sandboxes as files.\n\n"
		"  mkdir NAME                     makes a sandbox; it runs when mkdir returns\n"
		"  NAME/bin/PROGRAM ARG...        runs PROGRAM inside, with this terminal\n"
		"  echo 'make test' > NAME/run    runs a line to its end; see NAME/last/\n"
		"  ls NAME/fs  NAME/home          its files\n"
		"  mv NAME OTHER                  renames it\n"
		"  rmdir NAME                     ends it; refused while its processes run\n\n"
		"Reading never changes anything. When a write is refused, `cat error` says why.\n"
		"Do not use rm -r on a sandbox: it empties fs/ first. rmdir is the word.\n"
		"Entries that wait (wait, *.follow) can be opened but are not listed.\n\nHere:\n");
	readme_rows(q, N_ROOT, t);
	txt_str(t, "\nIn a sandbox:\n");
	readme_rows(q, N_BOX, t);
	txt_str(t, "\nIn processes/NAME (mkdir makes a draft):\n");
	readme_rows(q, N_PROC, t);
	txt_str(t, "\nIn new/NAME (mkdir makes a draft, mv new/NAME . makes the sandbox):\n");
	readme_rows(q, N_DRAFT, t);
	return 0;
}

int read_capabilities(struct req *q, const struct spot *s, struct text *t)
{
	json_t *caps;
	int rc = remote_caps(q, &caps);

	(void)s;
	if (rc < 0)
		return rc;
	txt_json(t, caps);
	json_decref(caps);
	return 0;
}

int read_error(struct req *q, const struct spot *s, struct text *t)
{
	errlog_last(q->m->errors, q->uid, s->box[0] ? s->box : NULL, NULL, t);
	return 0;
}

int read_errors(struct req *q, const struct spot *s, struct text *t)
{
	errlog_all(q->m->errors, q->uid, s->box[0] ? s->box : NULL, t);
	return 0;
}

/* The empty spec: everything is the server's default. */
int read_create(struct req *q, const struct spot *s, struct text *t)
{
	(void)q;
	(void)s;
	txt_str(t, "{}\n");
	return 0;
}

int apply_create(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	struct err e = ERR_NULL;
	json_t *spec;

	(void)s;
	(void)append;
	if (json_parse_object(value, len, &spec, &e) < 0)
		return refuse(q, EINVAL, "create: %s", e.msg);
	return sandbox_make(q, spec);
}

int read_created(struct req *q, const struct spot *s, struct text *t)
{
	char id[SBX_ID_MAX];

	(void)s;
	created_get(q->m, q->uid, id, sizeof(id));
	if (id[0])
		txt_printf(t, "%s\n", id);
	return 0;
}

#define STAT(o, m, name) \
	json_object_set_new(o, #name, json_integer((json_int_t)atomic_load(&(m)->stats.name)))

/* How this mount hears of changes inside: not yet, with the connection, or never. */
static const char *watch_word(const struct mount *m, const struct fs1_figures *f)
{
	if (m->opt.proto == PROTO_HTTP || m->opt.cache != CACHE_WATCH)
		return "none";
	return f->inotify ? "inotify" : f->connections ? "none" : "unknown";
}

/* Which way the requests about guests' files go. */
static void stats_files(struct mount *m, json_t *o)
{
	struct fs1_figures f;

	fs1_figures(m, &f);
	json_object_set_new(o, "files",
		json_pack("{s:s, s:s, s:s, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
		"watch", watch_word(m, &f), "locks", m->has_locks ? "shared" : "local",
		"by", m->opt.proto == PROTO_HTTP ? "http" : f.connections ? FS_PROTOCOL : "auto",
		"connections", (int)f.connections, "watches", (int)f.watches,
		"requests", (json_int_t)f.requests, "plain", (json_int_t)f.plain,
		"lost", (json_int_t)f.lost, "refused", (json_int_t)f.refused,
		"pushes", (json_int_t)f.pushes, "changes", (json_int_t)f.changes,
		"unwatched", (json_int_t)f.unwatched, "doubted", (json_int_t)f.doubted));
}

int read_stats(struct req *q, const struct spot *s, struct text *t)
{
	struct mount *m = q->m;
	json_t *o = json_object();
	struct timespec now;

	(void)s;
	clock_gettime(CLOCK_REALTIME, &now);
	json_object_set_new(o, "endpoint", json_string(sbx_endpoint(m->sbx)));
	json_object_set_new(o, "server", json_string(remote_is_down(m) ? "down" : "up"));
	json_object_set_new(o, "up_secs", json_integer((json_int_t)(now.tv_sec - m->started.tv_sec)));
	STAT(o, m, requests);
	STAT(o, m, failures);
	STAT(o, m, reconnects);
	STAT(o, m, rtt_us);
	STAT(o, m, fuse_ops);
	STAT(o, m, cache_hits);
	STAT(o, m, parked);
	STAT(o, m, bad_names);
	stats_files(m, o);
	json_object_set_new(o, "inodes", json_integer((json_int_t)inodes_count(m->inodes)));
	txt_json(t, o);
	json_decref(o);
	return 0;
}

int read_node(struct req *q, const struct spot *s, struct text *t)
{
	json_t *o, *v;
	int rc = remote_json(q, "GET", sbx_path("/v1/node"), NULL, &o);

	if (rc < 0)
		return rc;
	v = s->node->key ? json_object_get(o, s->node->key) : o;
	value_text(t, v);
	json_decref(o);
	return 0;
}

int apply_cordoned(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	int64_t on;
	int rc = value_int(q, s->node->name, value, len, 0, 1, &on);

	(void)append;
	if (rc < 0)
		return rc;
	q->acts = true;
	return remote_json(q, "POST", sbx_path("/v1/node/cordon"),
		json_pack("{s:b}", "cordoned", on ? 1 : 0), NULL);
}

static int do_reconnect(struct req *q, const struct spot *s, char **args, unsigned n)
{
	(void)s;
	(void)args;
	(void)n;
	remote_reconnect(q->m);
	fs1_reset(q->m);
	return remote_caps(q, NULL);
}

static int do_drop(struct req *q, const struct spot *s, char **args, unsigned n)
{
	(void)s;
	(void)args;
	(void)n;
	mount_touch(q->m);
	fs1_reset(q->m);
	return 0;
}

static int do_debug(struct req *q, const struct spot *s, char **args, unsigned n)
{
	(void)s;
	(void)n;
	if (strcmp(args[0], "on") && strcmp(args[0], "off"))
		return refuse(q, EINVAL, "debug: on or off is needed");
	atomic_store(&q->m->tracing, !strcmp(args[0], "on"));
	return 0;
}

const struct verb root_verbs[] = {
	{ "reconnect", 0, 0, do_reconnect, "ask the server at once, after it was away", CAP_NONE },
	{ "drop-caches", 0, 0, do_drop, "ask the server anew about everything", CAP_NONE },
	{ "debug", 1, 1, do_debug, "on or off: one line a request in the log", CAP_NONE },
	{ NULL, 0, 0, NULL, NULL, CAP_NONE },
};
