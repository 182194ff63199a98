/* SPDX-License-Identifier: MIT */
/* Names and drafts of processes. The server numbers processes; names are this mount's own. */
#include "sbxfs/proc.h"

#include "sbxfs/box.h"
#include "sbxfs/remote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRAFTS_MAX 4096
#define KILL_MS 2000

struct entry {
	struct entry *next;
	struct draft_proc d;
	uint64_t serial; /* names change, and are given again */
	bool hidden; /* only says that a number is not shown any more */
};
struct last {
	struct last *next;
	char box[SBX_ID_MAX];
	uid_t uid;
	int64_t pid;
};
struct procs {
	pthread_mutex_t lock;
	struct entry *all; /* newest first */
	size_t n;
	uint64_t serials;
	struct last *last;
};

int procs_new(struct procs **ret)
{
	*ret = calloc(1, sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	pthread_mutex_init(&(*ret)->lock, NULL);
	return 0;
}

static void entry_free(struct entry *e)
{
	free(e->d.cmd);
	free(e->d.cwd);
	free(e->d.argv);
	json_decref(e->d.env);
	free(e);
}

void procs_free(struct procs *p)
{
	if (!p)
		return;
	while (p->all) {
		struct entry *e = p->all;

		p->all = e->next;
		entry_free(e);
	}
	while (p->last) {
		struct last *l = p->last;

		p->last = l->next;
		free(l);
	}
	pthread_mutex_destroy(&p->lock);
	free(p);
}

int64_t pid_of_word(const char *word)
{
	int64_t n = 0;

	if (word[0] < '1' || word[0] > '9' || strlen(word) > 18)
		return 0;
	for (; *word; word++) {
		if (*word < '0' || *word > '9')
			return 0;
		n = n * 10 + (*word - '0');
	}
	return n;
}

static struct entry *find(struct procs *p, const char *box, const char *name)
{
	for (struct entry *e = p->all; e; e = e->next)
		if (!e->hidden && !strcmp(e->d.name, name) && !strcmp(e->d.box, box))
			return e;
	return NULL;
}

static struct entry *find_pid(struct procs *p, const char *box, int64_t pid, bool hidden)
{
	for (struct entry *e = p->all; e; e = e->next)
		if (e->hidden == hidden && e->d.pid == pid && !strcmp(e->d.box, box))
			return e;
	return NULL;
}

static struct entry *find_serial(struct procs *p, uint64_t serial)
{
	struct entry *e = p->all;

	while (e && e->serial != serial)
		e = e->next;
	return e;
}

static struct entry *entry_new(struct procs *p, const char *box, const char *name)
{
	struct entry *e = p->n < DRAFTS_MAX ? calloc(1, sizeof(*e)) : NULL;

	if (!e)
		return NULL;
	(void)snprintf(e->d.box, sizeof(e->d.box), "%s", box);
	(void)snprintf(e->d.name, sizeof(e->d.name), "%s", name);
	e->serial = ++p->serials;
	e->next = p->all;
	p->all = e;
	p->n++;
	return e;
}

static void entry_remove(struct procs *p, struct entry *e)
{
	struct entry **at = &p->all;

	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	p->n--;
	entry_free(e);
}

static bool lives_in(const json_t *all, const char *box)
{
	const json_t *o;
	size_t n;

	json_array_foreach (all, n, o)
		if (box_is_live(o) && !strcmp(box_id(o), box))
			return true;
	return false;
}

/* What is left of sandboxes whose end was not heard of. */
static void forget_ended(struct req *q)
{
	struct procs *p = q->m->procs;
	struct sbx_error saved = q->err;
	uint64_t before;
	json_t *all;

	pthread_mutex_lock(&p->lock);
	before = p->serials;
	pthread_mutex_unlock(&p->lock);
	mount_touch(q->m);
	if (box_all(q, &all) == 0) {
		pthread_mutex_lock(&p->lock);
		for (struct entry *e = p->all, *next; e; e = next) {
			next = e->next;
			if (e->serial <= before && !lives_in(all, e->d.box))
				entry_remove(p, e);
		}
		pthread_mutex_unlock(&p->lock);
		json_decref(all);
	}
	q->err = saved;
}

static bool is_full(struct procs *p)
{
	bool is;

	pthread_mutex_lock(&p->lock);
	is = p->n >= DRAFTS_MAX;
	pthread_mutex_unlock(&p->lock);
	return is;
}

int process_make(struct req *q, const char *box, const char *name)
{
	struct procs *p = q->m->procs;
	int rc = 0;

	if (!process_name_ok(name))
		return refuse(q, EINVAL, "a process name begins with a letter a-z and has letters, "
			"digits, . _ - (at most 63): %s", name);
	if (is_full(p))
		forget_ended(q);
	pthread_mutex_lock(&p->lock);
	if (find(p, box, name))
		rc = -EEXIST;
	else if (!entry_new(p, box, name))
		rc = -ENOSPC;
	pthread_mutex_unlock(&p->lock);
	if (rc == -ENOSPC)
		return refuse(q, ENOSPC, "this mount keeps at most %d named processes", DRAFTS_MAX);
	return rc;
}

int process_pid(struct req *q, const char *box, const char *name, int64_t *ret_pid)
{
	struct procs *p = q->m->procs;
	struct entry *e;
	int rc = 0;

	*ret_pid = pid_of_word(name);
	if (*ret_pid)
		return 0;
	pthread_mutex_lock(&p->lock);
	e = find(p, box, name);
	if (e)
		*ret_pid = e->d.pid;
	else
		rc = -ENOENT;
	pthread_mutex_unlock(&p->lock);
	return rc;
}

bool process_alias(struct req *q, const char *box, int64_t pid, char *ret_name, size_t size)
{
	struct procs *p = q->m->procs;
	struct entry *e;

	pthread_mutex_lock(&p->lock);
	e = find_pid(p, box, pid, false);
	if (e)
		(void)snprintf(ret_name, size, "%s", e->d.name);
	pthread_mutex_unlock(&p->lock);
	return e != NULL;
}

bool process_is_hidden(struct req *q, const char *box, int64_t pid)
{
	struct procs *p = q->m->procs;
	bool hidden;

	pthread_mutex_lock(&p->lock);
	hidden = find_pid(p, box, pid, true) != NULL;
	pthread_mutex_unlock(&p->lock);
	return hidden;
}

bool process_nth(struct req *q, const char *box, size_t n, char *ret_name, size_t size, int64_t *ret_pid)
{
	struct procs *p = q->m->procs;
	struct entry *e;

	pthread_mutex_lock(&p->lock);
	for (e = p->all; e; e = e->next)
		if (!e->hidden && !strcmp(e->d.box, box) && n-- == 0)
			break;
	if (e) {
		(void)snprintf(ret_name, size, "%s", e->d.name);
		*ret_pid = e->d.pid;
	}
	pthread_mutex_unlock(&p->lock);
	return e != NULL;
}

static bool is_running(const json_t *o)
{
	const char *state = json_string_value(json_object_get(o, "state"));

	return state && !strcmp(state, "running");
}

/* Until the server says so itself: a sandbox whose processes have ended can be removed. */
static void wait_exited(struct req *q, const char *box, int64_t pid)
{
	const struct timespec pause = { .tv_nsec = 5000000 };
	uint64_t until = now_ms() + KILL_MS;
	bool runs = true;

	while (runs && now_ms() < until) {
		json_t *o;

		if (process_object(q, box, pid, &o) < 0)
			return;
		runs = is_running(o);
		json_decref(o);
		if (runs)
			nanosleep(&pause, NULL);
	}
}

static int kill_running(struct req *q, const char *box, int64_t pid)
{
	json_t *o;
	bool runs;
	int rc = process_object(q, box, pid, &o);

	if (rc == -ENOENT || rc == -ESTALE)
		return 0;
	if (rc < 0)
		return rc;
	runs = is_running(o);
	json_decref(o);
	if (!runs)
		return 0;
	rc = process_signal(q, box, pid, "KILL");
	if (rc == 0)
		wait_exited(q, box, pid);
	/* A sandbox that ended meanwhile has taken its processes with it. */
	return rc == -ENOENT || rc == -EBUSY ? 0 : rc;
}

int process_remove(struct req *q, const char *box, const char *name)
{
	struct procs *p = q->m->procs;
	struct entry *e;
	int64_t pid;
	int rc = process_pid(q, box, name, &pid);

	if (rc == 0 && pid)
		rc = kill_running(q, box, pid);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&p->lock);
	e = find(p, box, name);
	if (e)
		entry_remove(p, e);
	else if ((e = entry_new(p, box, ""))) {
		e->hidden = true;
		e->d.pid = pid;
	}
	pthread_mutex_unlock(&p->lock);
	return e ? 0 : -ENOMEM;
}

int process_rename(struct req *q, const char *box, const char *name, const char *to)
{
	struct procs *p = q->m->procs;
	struct entry *e;
	int rc = 0;

	if (!process_name_ok(to))
		return refuse(q, EINVAL, "not a process name: %s", to);
	pthread_mutex_lock(&p->lock);
	e = find(p, box, name);
	if (!e)
		rc = -EPERM;
	else if (find(p, box, to))
		rc = -EEXIST;
	else
		(void)snprintf(e->d.name, sizeof(e->d.name), "%s", to);
	pthread_mutex_unlock(&p->lock);
	return rc;
}

void process_forget_box(struct mount *m, const char *box)
{
	struct procs *p = m->procs;

	pthread_mutex_lock(&p->lock);
	for (struct entry **at = &p->all; *at;) {
		struct entry *e = *at;

		if (strcmp(e->d.box, box)) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		p->n--;
		entry_free(e);
	}
	for (struct last **at = &p->last; *at;) {
		struct last *l = *at;

		if (strcmp(l->box, box)) {
			at = &l->next;
			continue;
		}
		*at = l->next;
		free(l);
	}
	pthread_mutex_unlock(&p->lock);
}

int process_edit(struct req *q, const char *box, const char *name,
	int (*edit)(struct req *q, struct draft_proc *d, const char *value, size_t len),
	const char *value, size_t len)
{
	struct procs *p = q->m->procs;
	struct entry *e;
	int rc;

	pthread_mutex_lock(&p->lock);
	e = find(p, box, name);
	if (!e || e->d.pid || e->d.starting)
		rc = -EBUSY;
	else
		rc = edit(q, &e->d, value, len);
	pthread_mutex_unlock(&p->lock);
	if (rc == -EBUSY)
		return refuse(q, EBUSY, "%s was started: only a draft can be changed", name);
	return rc;
}

int process_view(struct req *q, const char *box, const char *name,
	void (*view)(const struct draft_proc *d, void *arg), void *arg)
{
	struct procs *p = q->m->procs;
	struct entry *e;

	pthread_mutex_lock(&p->lock);
	e = find(p, box, name);
	if (e)
		view(&e->d, arg);
	pthread_mutex_unlock(&p->lock);
	return e ? 0 : -ENOENT;
}

/* Lock held. The words of argv, or the shell line. */
static json_t *argv_json(struct req *q, const struct draft_proc *d)
{
	json_t *argv = json_array();
	bool whole = true;
	size_t at = 0;

	if (d->cmd) {
		json_array_append_new(argv, json_string("/bin/sh"));
		json_array_append_new(argv, json_string("-c"));
		json_array_append_new(argv, json_string(d->cmd));
	}
	while (!d->cmd && at < d->argv_len) {
		size_t n = strnlen(d->argv + at, d->argv_len - at);

		whole &= json_array_append_new(argv, json_stringn(d->argv + at, n)) == 0;
		at += n + 1;
	}
	if (!whole) { /* without that word it would be another command */
		json_decref(argv);
		(void)refuse(q, EINVAL, "argv: a word is not UTF-8 text, which is all the API takes");
		return NULL;
	}
	if (json_array_size(argv) == 0) {
		json_decref(argv);
		(void)refuse(q, EINVAL, "nothing to run: write cmd, or argv and then start");
		return NULL;
	}
	return argv;
}

static json_t *draft_body(struct req *q, const struct draft_proc *d)
{
	json_t *body = json_object(), *argv = argv_json(q, d);

	if (!argv) {
		json_decref(body);
		return NULL;
	}
	json_object_set_new(body, "argv", argv);
	if (d->cwd)
		json_object_set_new(body, "cwd", json_string(d->cwd));
	if (d->env)
		json_object_set(body, "env", d->env);
	if (d->tty)
		json_object_set_new(body, "tty", json_true());
	return body;
}

int process_start_draft(struct req *q, const char *box, const char *name)
{
	struct procs *p = q->m->procs;
	struct entry *e;
	json_t *body = NULL;
	uint64_t serial = 0;
	int64_t pid = 0;
	int rc = -EINVAL;

	pthread_mutex_lock(&p->lock);
	e = find(p, box, name);
	if (!e || e->d.pid || e->d.starting) {
		rc = -EBUSY;
	} else {
		body = draft_body(q, &e->d);
		e->d.starting = body != NULL;
		serial = e->serial;
	}
	pthread_mutex_unlock(&p->lock);
	if (rc == -EBUSY)
		return refuse(q, EBUSY, "%s was started already", name);
	if (!body)
		return rc;
	rc = process_start(q, box, body, &pid);
	pthread_mutex_lock(&p->lock);
	e = find_serial(p, serial); /* it may have another name by now */
	if (e) {
		e->d.pid = pid;
		e->d.starting = false;
	}
	pthread_mutex_unlock(&p->lock);
	if (rc == 0 && !e) /* removed while it started */
		(void)process_signal(q, box, pid, "KILL");
	return rc;
}

int process_object(struct req *q, const char *box, int64_t pid, json_t **ret)
{
	return remote_json(q, "GET", sbx_path("/v1/sandboxes/%s/processes/%lld", box, (long long)pid),
		NULL, ret);
}

int process_signal(struct req *q, const char *box, int64_t pid, const char *signal)
{
	q->acts = true;
	return remote_json(q, "POST",
		sbx_path("/v1/sandboxes/%s/processes/%lld/signal", box, (long long)pid),
		json_pack("{s:s}", "signal", signal), NULL);
}

int process_start(struct req *q, const char *box, json_t *body, int64_t *ret_pid)
{
	json_t *o = NULL;
	int rc;

	q->acts = true;
	rc = remote_json(q, "POST", sbx_path("/v1/sandboxes/%s/processes", box), body, &o);
	if (rc < 0)
		return rc;
	*ret_pid = json_integer_value(json_object_get(o, "pid"));
	json_decref(o);
	mount_touch(q->m);
	return *ret_pid > 0 ? 0 : refuse(q, EPROTO, "the server's answer has no pid");
}

/* The last line of the output says the exit code; all before it is skipped. */
struct exit_sink {
	struct req *q;
	char line[64];
	size_t len;
	bool skip, found;
	int code;
};

static void exit_line(struct exit_sink *s)
{
	static const char key[] = "{\"exit_code\":";
	const char *p = s->line + sizeof(key) - 1;

	s->line[s->len] = '\0';
	if (!s->skip && !strncmp(s->line, key, sizeof(key) - 1)) {
		while (*p == ' ')
			p++;
		s->code = (int)strtol(p, NULL, 10);
		s->found = true;
	}
	s->len = 0;
	s->skip = false;
}

static bool exit_data(void *arg, const void *buf, size_t len)
{
	struct exit_sink *s = arg;
	const char *p = buf;

	for (size_t n = 0; n < len; n++) {
		if (s->skip) {
			const char *nl = memchr(p + n, '\n', len - n);

			if (!nl)
				break;
			n = (size_t)(nl - p);
		}
		if (p[n] == '\n')
			exit_line(s);
		else if (s->len + 1 < sizeof(s->line))
			s->line[s->len++] = p[n];
		else
			s->skip = true;
	}
	return true;
}

int process_wait(struct req *q, const char *box, int64_t pid, int *ret_exit)
{
	struct exit_sink s = { .q = q };
	struct sbx_request r = { .on_data = exit_data, .arg = &s, .timeout_ms = -1 };
	_cleanup_response_ struct sbx_response resp = { 0 };
	int rc;

	rc = remote_send(q, "GET",
		sbx_path("/v1/sandboxes/%s/processes/%lld/output", box, (long long)pid), &r, &resp);
	if (rc < 0)
		return rc;
	if (s.len)
		exit_line(&s);
	if (!s.found)
		return refuse(q, EIO, "the output ended without an exit code");
	*ret_exit = s.code;
	return 0;
}

int64_t process_last(struct mount *m, const char *box, uid_t uid)
{
	int64_t pid = 0;

	pthread_mutex_lock(&m->procs->lock);
	for (struct last *l = m->procs->last; l; l = l->next)
		if (l->uid == uid && !strcmp(l->box, box))
			pid = l->pid;
	pthread_mutex_unlock(&m->procs->lock);
	return pid;
}

void process_set_last(struct mount *m, const char *box, uid_t uid, int64_t pid)
{
	struct last *l;

	pthread_mutex_lock(&m->procs->lock);
	for (l = m->procs->last; l; l = l->next)
		if (l->uid == uid && !strcmp(l->box, box))
			break;
	if (!l && (l = calloc(1, sizeof(*l)))) {
		(void)snprintf(l->box, sizeof(l->box), "%s", box);
		l->uid = uid;
		l->next = m->procs->last;
		m->procs->last = l;
	}
	if (l)
		l->pid = pid;
	pthread_mutex_unlock(&m->procs->lock);
}
