/* SPDX-License-Identifier: MIT */
/* processes/: the server's numbers, this mount's names, and the files of one process. */
#include "sbxfs/nodes_fn.h"
#include "sbxfs/proc.h"
#include "sbxfs/remote.h"
#include "sbxfs/value.h"
#include "sbxfs/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARGV_MAX (1024u * 1024)

static int procs_find(struct req *q, const struct spot *d, const char *name, struct found *ret)
{
	int64_t pid = pid_of_word(name);
	char alias[64];
	json_t *o;
	int rc;

	if (!pid) {
		rc = process_pid(q, d->box, name, &pid);
		if (rc == 0)
			return found_set(ret, N_PROC, d->box, name);
		/* A name that somebody gave through the API is a link to the number. */
		if (!process_name_ok(name) || !remote_has(q, CAP_PROCESS_NAMES))
			return -ENOENT;
		rc = remote_json(q, "GET", sbx_path("/v1/sandboxes/%s/processes/%s", d->box, name),
			NULL, &o);
		if (rc < 0)
			return rc;
		json_decref(o);
		return found_set(ret, N_PROC_LINK, d->box, name);
	}
	if (process_is_hidden(q, d->box, pid))
		return -ENOENT;
	if (process_alias(q, d->box, pid, alias, sizeof(alias)))
		return found_set(ret, N_PROC_LINK, d->box, name);
	rc = process_object(q, d->box, pid, &o);
	if (rc < 0)
		return rc;
	json_decref(o);
	return found_set(ret, N_PROC, d->box, name);
}

static void list_one(struct req *q, const struct spot *d, const json_t *o, struct lister *l)
{
	const char *given = json_string_value(json_object_get(o, "name"));
	int64_t pid = json_integer_value(json_object_get(o, "pid")), other;
	char word[24], alias[64];
	bool named;

	if (pid <= 0 || process_is_hidden(q, d->box, pid))
		return;
	named = process_alias(q, d->box, pid, alias, sizeof(alias));
	(void)snprintf(word, sizeof(word), "%lld", (long long)pid);
	lister_add(l, word, named ? N_PROC_LINK : N_PROC, d->box);
	if (given && process_name_ok(given) && process_pid(q, d->box, given, &other) < 0)
		lister_add(l, given, N_PROC_LINK, d->box);
}

static int procs_list(struct req *q, const struct spot *d, struct lister *l)
{
	json_t *body, *o;
	char name[64];
	int64_t pid;
	size_t n;
	int rc = remote_json(q, "GET", sbx_path("/v1/sandboxes/%s/processes", d->box), NULL, &body);

	if (rc < 0)
		return rc;
	json_array_foreach (json_object_get(body, "processes"), n, o)
		list_one(q, d, o, l);
	json_decref(body);
	for (n = 0; process_nth(q, d->box, n, name, sizeof(name), &pid); n++)
		lister_add(l, name, N_PROC, d->box);
	return 0;
}

static int procs_mkdir(struct req *q, const struct spot *d, const char *name)
{
	int rc = process_make(q, d->box, name);

	mount_touch(q->m);
	return rc;
}

static int procs_rmdir(struct req *q, const struct spot *d, const char *name)
{
	int rc = process_remove(q, d->box, name);

	mount_touch(q->m);
	return rc;
}

static int procs_rename(struct req *q, const struct spot *d, const char *name, const struct spot *to,
	const char *to_name)
{
	if (to->node->id != N_BOX_PROCS || strcmp(to->box, d->box))
		return refuse(q, EPERM, "a process stays in its sandbox");
	mount_touch(q->m);
	return process_rename(q, d->box, name, to_name);
}

const struct dir dir_processes = { .id = N_BOX_PROCS, .find = procs_find, .list = procs_list,
	.mkdir = procs_mkdir, .rmdir = procs_rmdir, .rename = procs_rename };
const struct dir dir_ended_processes = { .id = N_ENDED_PROCS, .find = procs_find,
	.list = procs_list };

int read_proc_link(struct req *q, const struct spot *s, struct text *t)
{
	int64_t pid = pid_of_word(s->arg);
	char alias[64];
	json_t *o;
	int rc;

	if (pid && process_alias(q, s->box, pid, alias, sizeof(alias))) {
		txt_str(t, alias);
		return 0;
	}
	rc = remote_json(q, "GET", sbx_path("/v1/sandboxes/%s/processes/%s", s->box, s->arg), NULL, &o);
	if (rc < 0)
		return rc;
	txt_printf(t, "%lld", (long long)json_integer_value(json_object_get(o, "pid")));
	json_decref(o);
	return 0;
}

/* A draft seen through the eyes of one file. */
struct draft_view {
	enum node_id id;
	struct text *t;
};

static void view_draft(const struct draft_proc *d, void *arg)
{
	struct draft_view *v = arg;

	switch (v->id) {
	case N_PROC_STATE:
		txt_str(v->t, "draft\n");
		break;
	case N_PROC_CMD:
		if (d->cmd) {
			txt_str(v->t, d->cmd);
			txt_str(v->t, "\n");
		}
		break;
	case N_PROC_ARGV:
		txt_add(v->t, d->argv ? d->argv : "", d->argv_len);
		break;
	case N_PROC_CWD:
		if (d->cwd) {
			txt_str(v->t, d->cwd);
			txt_str(v->t, "\n");
		}
		break;
	case N_PROC_ENV:
		value_keys(v->t, d->env);
		break;
	case N_PROC_TTY:
		txt_str(v->t, d->tty ? "1\n" : "0\n");
		break;
	case N_PROC_INFO:
		txt_str(v->t, "{\n  \"state\": \"draft\"\n}\n");
		break;
	default:
		break;
	}
}

/* A shell line is shown as `cmd`, whatever started it. */
static void view_cmd(const json_t *argv, struct text *t)
{
	const char *sh = json_string_value(json_array_get(argv, 0));
	const char *c = json_string_value(json_array_get(argv, 1));
	const json_t *word;
	size_t n;

	if (json_array_size(argv) == 3 && sh && c && !strcmp(sh, "/bin/sh") && !strcmp(c, "-c")) {
		value_text(t, json_array_get(argv, 2));
		return;
	}
	json_array_foreach ((json_t *)(uintptr_t)argv, n, word) {
		txt_str(t, n ? " " : "");
		txt_safe(t, json_string_value(word) ? json_string_value(word) : "", SIZE_MAX);
	}
	txt_str(t, "\n");
}

static void view_argv(const json_t *argv, struct text *t)
{
	const json_t *word;
	size_t n;

	json_array_foreach ((json_t *)(uintptr_t)argv, n, word)
		if (json_is_string(word))
			txt_add(t, json_string_value(word), json_string_length(word) + 1);
}

static void view_object(enum node_id id, const json_t *o, struct text *t)
{
	switch (id) {
	case N_PROC_CMD:
		view_cmd(json_object_get(o, "argv"), t);
		break;
	case N_PROC_ARGV:
		view_argv(json_object_get(o, "argv"), t);
		break;
	case N_PROC_CWD:
		value_text(t, json_object_get(o, "cwd"));
		break;
	case N_PROC_ENV:
		value_text(t, json_object_get(o, "env_names"));
		break;
	case N_PROC_TTY:
		txt_str(t, json_is_true(json_object_get(o, "tty")) ? "1\n" : "0\n");
		break;
	case N_PROC_STATE:
		value_text(t, json_object_get(o, "state"));
		break;
	case N_PROC_EXIT:
		value_text(t, json_object_get(o, "exit_code"));
		break;
	case N_PROC_PID:
		value_text(t, json_object_get(o, "pid"));
		break;
	case N_PROC_STARTED:
		value_text(t, json_object_get(o, "started_at"));
		break;
	default:
		txt_json(t, o);
	}
}

int read_proc_field(struct req *q, const struct spot *s, struct text *t)
{
	struct draft_view v = { .id = s->node->id, .t = t };
	int64_t pid;
	json_t *o;
	int rc = process_pid(q, s->box, s->arg, &pid);

	if (rc < 0)
		return rc;
	if (!pid)
		return process_view(q, s->box, s->arg, view_draft, &v);
	rc = process_object(q, s->box, pid, &o);
	if (rc < 0)
		return rc;
	view_object(s->node->id, o, t);
	json_decref(o);
	return 0;
}

static int set_string(char **where, struct req *q, const char *what, const char *value, size_t len)
{
	char *line = value_line(value, len);

	if (!line || !utf8_ok(line, strlen(line))) {
		free(line);
		return refuse(q, EINVAL, "%s: UTF-8 text without NUL is needed", what);
	}
	free(*where);
	*where = line;
	return 0;
}

static int edit_cmd(struct req *q, struct draft_proc *d, const char *value, size_t len)
{
	return set_string(&d->cmd, q, "cmd", value, len);
}

static int edit_cwd(struct req *q, struct draft_proc *d, const char *value, size_t len)
{
	return set_string(&d->cwd, q, "cwd", value, len);
}

static int edit_argv(struct req *q, struct draft_proc *d, const char *value, size_t len)
{
	char *p;

	if (d->argv_len + len > ARGV_MAX)
		return refuse(q, E2BIG, "argv: at most 1 MiB");
	p = realloc(d->argv, d->argv_len + len + 1);
	if (!p)
		return -ENOMEM;
	memcpy(p + d->argv_len, value, len);
	d->argv = p;
	d->argv_len += len;
	return 0;
}

static int edit_env(struct req *q, struct draft_proc *d, const char *value, size_t len)
{
	if (!d->env)
		d->env = json_object();
	return value_env(q, value, len, d->env);
}

static int edit_env_anew(struct req *q, struct draft_proc *d, const char *value, size_t len)
{
	json_decref(d->env);
	d->env = NULL;
	return edit_env(q, d, value, len);
}

static int edit_tty(struct req *q, struct draft_proc *d, const char *value, size_t len)
{
	int64_t on;
	int rc = value_int(q, "tty", value, len, 0, 1, &on);

	if (rc == 0)
		d->tty = on;
	return rc;
}

int apply_proc_cmd(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	int rc = process_edit(q, s->box, s->arg, edit_cmd, value, len);

	(void)append;
	return rc < 0 ? rc : process_start_draft(q, s->box, s->arg);
}

int apply_proc_argv(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	(void)append;
	return process_edit(q, s->box, s->arg, edit_argv, value, len);
}

int apply_proc_cwd(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	(void)append;
	return process_edit(q, s->box, s->arg, edit_cwd, value, len);
}

int apply_proc_env(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	return process_edit(q, s->box, s->arg, append ? edit_env : edit_env_anew, value, len);
}

int apply_proc_tty(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	(void)append;
	return process_edit(q, s->box, s->arg, edit_tty, value, len);
}

static int pid_started(struct req *q, const struct spot *s, int64_t *ret_pid)
{
	int rc = process_pid(q, s->box, s->arg, ret_pid);

	if (rc < 0)
		return rc;
	return *ret_pid ? 0 : refuse(q, EINVAL, "%s is a draft: start it first", s->arg);
}

static int stdin_send(struct req *q, const struct spot *s, const char *value, size_t len, bool eof)
{
	struct sbx_response resp = { 0 };
	int64_t pid;
	int rc = pid_started(q, s, &pid);

	if (rc < 0)
		return rc;
	q->acts = true;
	rc = remote_call(q, "POST",
		sbx_path(eof ? "/v1/sandboxes/%s/processes/%lld/stdin?close=1" :
			       "/v1/sandboxes/%s/processes/%lld/stdin",
			s->box, (long long)pid),
		value, len, "application/octet-stream", &resp);
	sbx_response_free(&resp);
	/* It has ended or its input is closed: what a pipe would say. */
	return rc == -EBUSY && q->err.status == 409 ? -EPIPE : rc;
}

int apply_proc_stdin(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	(void)append;
	return stdin_send(q, s, value, len, false);
}

static int do_start(struct req *q, const struct spot *s, char **args, unsigned n)
{
	(void)args;
	(void)n;
	return process_start_draft(q, s->box, s->arg);
}

static int do_eof(struct req *q, const struct spot *s, char **args, unsigned n)
{
	int rc = stdin_send(q, s, "", 0, true);

	(void)args;
	(void)n;
	return rc == -EPIPE ? 0 : rc; /* closed already */
}

/* The words are the names of the signals; args[-1] is the word itself. */
static int do_signal(struct req *q, const struct spot *s, char **args, unsigned n)
{
	int64_t pid;
	int rc = pid_started(q, s, &pid);

	(void)n;
	if (rc == 0)
		rc = process_signal(q, s->box, pid, args[-1]);
	mount_touch(q->m);
	return rc;
}

/* The API takes a new size from whoever is attached; frames sent before the end are still applied. */
static int do_resize(struct req *q, const struct spot *s, char **args, unsigned n)
{
	struct sbx_error e = { .status = 0 };
	int64_t pid, size[2];
	unsigned char frame[4];
	char *path;
	int fd, rc = pid_started(q, s, &pid);

	(void)n;
	for (int k = 0; k < 2 && rc == 0; k++)
		rc = value_int(q, k ? "columns" : "rows", args[k], strlen(args[k]), 1, 65535, &size[k]);
	if (rc < 0)
		return rc;
	for (int k = 0; k < 2; k++) {
		frame[2 * k] = (unsigned char)(size[k] >> 8);
		frame[2 * k + 1] = (unsigned char)size[k];
	}
	path = sbx_path("/v1/sandboxes/%s/processes/%lld/attach", s->box, (long long)pid);
	if (!path)
		return -ENOMEM;
	rc = sbx_upgrade(q->m->sbx, path, "sbx-stream/1", false, &fd, &e);
	free(path);
	if (rc < 0) {
		q->err = e;
		return e.sys ? -e.sys : -EIO;
	}
	rc = sbx_frame_write(fd, 'r', frame, sizeof(frame));
	close(fd);
	return rc < 0 ? -EIO : 0;
}

const struct verb proc_verbs[] = {
	{ "start", 0, 0, do_start, "start the draft", CAP_NONE },
	{ "INT", 0, 0, do_signal, "interrupt it", CAP_NONE },
	{ "TERM", 0, 0, do_signal, "ask it to end", CAP_NONE },
	{ "KILL", 0, 0, do_signal, "end it", CAP_NONE },
	{ "HUP", 0, 0, do_signal, "tell it that its terminal is gone", CAP_NONE },
	{ "resize", 2, 2, do_resize, "ROWS COLUMNS of its terminal", CAP_NONE },
	{ "eof", 0, 0, do_eof, "end of its input", CAP_NONE },
	{ NULL, 0, 0, NULL, NULL, CAP_NONE },
};
