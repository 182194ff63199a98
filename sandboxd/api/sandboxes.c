/* SPDX-License-Identifier: MIT */
/* Sandboxes over HTTP: decode, one call of the core, reply.
 *
 * GET /v1/sandboxes?watch=1 (capability list_watch) answers NDJSON for as long as the client stays:
 *   {"op":"put","sandbox":{…}}   a sandbox as it is now; first every one there is, then each change
 *   {"op":"gone","id":"sbx_…"}   forgotten, or no longer matching the label filters
 *   {"op":"synced"}              once, when the first round is complete
 *   {"op":"ping"}                every 15 s without a change
 * Only the newest state counts: changes that follow each other closely may come as one line. */
#include "sandboxd/api/call.h"

#include "common/sys/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABEL_FILTERS_MAX 64
#define PING_MS           15000
#define GONE_CHECK_MS     1000

static int reply_sandbox(struct call *c, int status, struct sandbox *s)
{
	_cleanup_free_ char *text = sandbox_text(s);

	if (!text)
		return reply_json(c, status, NULL);
	http_reply(c->req, status, "application/json", text, strlen(text));
	return 0;
}

static void wipe_values(const struct strmap *m)
{
	for (size_t i = 0; i < m->n; i++)
		explicit_bzero(m->values[i], strlen(m->values[i]));
}

int handle_sandbox_create(struct call *c, struct err *e)
{
	_cleanup_(sandbox_unref_p) struct sandbox *s = NULL;
	struct create_body body = { 0 };
	int rc;

	if (call_decode(c, create_fields, &body, e) < 0)
		return -1;
	rc = sandbox_create(c->core, &body, call_gone, c, &s, e);
	wipe_values(&body.env);
	wipe_values(&body.metrics_export.headers);
	schema_free(create_fields, &body);
	return rc < 0 ? -1 : reply_sandbox(c, 201, s);
}

int handle_sandbox_get(struct call *c, struct err *e)
{
	_cleanup_(sandbox_unref_p) struct sandbox *s = NULL;

	if (call_sandbox(c, &s, e) < 0)
		return -1;
	return reply_sandbox(c, 200, s);
}

int handle_sandbox_update(struct call *c, struct err *e)
{
	_cleanup_(sandbox_unref_p) struct sandbox *s = NULL;
	struct update_body body = { 0 };
	int rc = -1;

	if (call_decode(c, update_fields, &body, e) < 0)
		return -1;
	/* In a create it means the server's default; here that might open what was shut. */
	body.has_network = body.has_network && !net_body_empty(&body.network);
	if (update_body_empty(&body))
		err_set(e, ERR_INVALID_REQUEST, "nothing to change");
	else if (call_sandbox(c, &s, e) == 0)
		rc = sandbox_update(s, &body, c->background, e);
	wipe_values(&body.metrics_export.headers);
	schema_free(update_fields, &body);
	return rc < 0 ? -1 : reply_sandbox(c, 200, s);
}

int handle_sandbox_delete(struct call *c, struct err *e)
{
	_cleanup_(sandbox_unref_p) struct sandbox *s = NULL;
	int rc;

	if (call_sandbox(c, &s, e) < 0)
		return -1;
	rc = sandbox_end(s, "request", e);
	if (rc == 0)
		rc = reply_empty(c);
	core_tell_ends(c->core);
	return rc;
}

static int turn(struct call *c, int (*fn)(struct sandbox *, struct err *), struct err *e)
{
	_cleanup_(sandbox_unref_p) struct sandbox *s = NULL;

	if (call_sandbox(c, &s, e) < 0 || fn(s, e) < 0)
		return -1;
	return reply_sandbox(c, 200, s);
}

int handle_sandbox_suspend(struct call *c, struct err *e)
{
	return turn(c, sandbox_suspend, e);
}

int handle_sandbox_resume(struct call *c, struct err *e)
{
	return turn(c, sandbox_resume, e);
}

/* The filters of a listing; the strings are copies, as a watch outlives nothing but is long. */
struct filters {
	char *v[LABEL_FILTERS_MAX];
	size_t n;
};

static void filters_free(struct filters *f)
{
	for (size_t i = 0; i < f->n; i++)
		free(f->v[i]);
	f->n = 0;
}

static int filters_read(struct call *c, struct filters *f, struct err *e)
{
	const char *v;
	size_t len;
	bool bad = false;

	f->n = 0;
	while ((v = http_query(c->req, "label", f->n, &len, &bad)) || bad) {
		if (bad || strlen(v) != len)
			return err_set(e, ERR_INVALID_REQUEST, "label: bad escape in the query");
		if (f->n == LABEL_FILTERS_MAX)
			return err_set(
				e, ERR_INVALID_REQUEST, "label: at most %d", LABEL_FILTERS_MAX);
		f->v[f->n] = strdup(v);
		if (!f->v[f->n])
			return err_oom(e);
		f->n++;
	}
	return 0;
}

/* What a watcher was told of one sandbox. */
struct told {
	char id[SBX_ID_MAX];
	uint64_t version;
	bool seen; /* in this round */
	UT_hash_handle hh;
};
struct watch {
	struct call *call;
	struct core *core;
	struct filters filters;
	struct told *told;
	uint64_t change;
	bool started, synced;
	char *out; /* lines that are not sent yet */
	size_t len, pos, room;
};

static bool put_line(struct watch *w, json_t *line)
{
	_cleanup_free_ char *text = json_text(line);
	size_t n = text ? strlen(text) : 0;

	json_decref(line);
	if (!text)
		return false;
	if (w->len + n + 1 > w->room) {
		size_t room = (w->len + n + 1) * 2;
		char *out = realloc(w->out, room);
		if (!out)
			return false;
		w->out = out;
		w->room = room;
	}
	memcpy(w->out + w->len, text, n);
	w->out[w->len + n] = '\n';
	w->len += n + 1;
	return true;
}

static bool tell(struct watch *w, struct sandbox *s)
{
	uint64_t version = __atomic_load_n(&s->version, __ATOMIC_ACQUIRE);
	struct told *t;

	HASH_FIND_STR(w->told, s->id, t);
	if (t && t->version == version) {
		t->seen = true;
		return true;
	}
	if (!t) {
		t = calloc(1, sizeof(*t));
		if (!t)
			return false;
		memcpy(t->id, s->id, sizeof(t->id));
		HASH_ADD_STR(w->told, id, t);
		if (!t->hh.tbl) {
			free(t);
			return false;
		}
	}
	t->version = version;
	t->seen = true;
	return put_line(w, json_pack("{s:s,s:o}", "op", "put", "sandbox", sandbox_json(s)));
}

static bool tell_gone(struct watch *w)
{
	struct told *t, *next;
	bool ok = true;

	HASH_ITER (hh, w->told, t, next) {
		if (t->seen) {
			t->seen = false;
			continue;
		}
		ok = ok && put_line(w, json_pack("{s:s,s:s}", "op", "gone", "id", t->id));
		HASH_DEL(w->told, t);
		free(t);
	}
	return ok;
}

static bool watch_round(struct watch *w)
{
	struct sandbox **all;
	bool ok = true;
	size_t n;

	if (core_list(w->core, (const char *const *)w->filters.v, w->filters.n, &all, &n, NULL) < 0)
		return false;
	for (size_t i = n; i-- > 0;) { /* oldest first */
		ok = ok && tell(w, all[i]);
		sandbox_unref(all[i]);
	}
	free(all);
	ok = ok && tell_gone(w);
	if (ok && !w->synced) {
		w->synced = true;
		ok = put_line(w, json_pack("{s:s}", "op", "synced"));
	}
	return ok;
}

/* Waits for a change; a ping after a while. False: the client has left, or the server stops. */
static bool watch_wait(struct watch *w)
{
	uint64_t now = w->change;

	for (int waited = 0; waited < PING_MS && now == w->change; waited += GONE_CHECK_MS) {
		now = core_wait_change(w->core, w->change, GONE_CHECK_MS);
		if (call_gone(w->call) || core_stopping(w->core))
			return false;
	}
	if (now == w->change)
		return put_line(w, json_pack("{s:s}", "op", "ping"));
	w->change = now;
	return watch_round(w);
}

static ssize_t watch_read(void *arg, uint64_t pos, char *buf, size_t max)
{
	struct watch *w = arg;
	size_t n;

	(void)pos;
	while (w->pos == w->len) {
		w->pos = w->len = 0;
		if (!w->started) {
			w->started = true;
			w->change = core_wait_change(w->core, 0, 0);
			if (!watch_round(w))
				return -1;
		} else if (!watch_wait(w)) {
			return core_stopping(w->core) ? 0 : -1;
		}
	}
	n = w->len - w->pos < max ? w->len - w->pos : max;
	memcpy(buf, w->out + w->pos, n);
	w->pos += n;
	return (ssize_t)n;
}

static void watch_free(void *arg)
{
	struct watch *w = arg;
	struct told *t, *next;

	HASH_ITER (hh, w->told, t, next) {
		HASH_DEL(w->told, t);
		free(t);
	}
	filters_free(&w->filters);
	free(w->out);
	free(w);
}

static int watch_start(struct call *c, struct filters *f, struct err *e)
{
	struct watch *w = calloc(1, sizeof(*w));
	struct http_source src = { .arg = w, .read = watch_read, .done = watch_free };

	if (!w)
		return err_oom(e);
	w->call = c;
	w->core = c->core;
	w->filters = *f;
	f->n = 0;
	return reply_stream(c, 200, "application/x-ndjson", -1, &src);
}

/* Put together from the sandboxes' own texts: hundreds of them are asked for every second. */
static bool print_list(FILE *m, struct sandbox **all, size_t n)
{
	bool ok = true;

	fputs("{\"sandboxes\":[", m);
	for (size_t i = 0; i < n; i++) {
		_cleanup_free_ char *text = sandbox_text(all[i]);
		if (i)
			fputc(',', m);
		fputs(text ? text : "", m);
		ok = ok && text;
		sandbox_unref(all[i]);
	}
	fputs("]}", m);
	return ok;
}

static int list_once(struct call *c, const struct filters *f, struct err *e)
{
	struct sandbox **all;
	char *text = NULL;
	size_t n, len;
	FILE *m;
	bool ok;

	if (core_list(c->core, (const char *const *)f->v, f->n, &all, &n, e) < 0)
		return -1;
	m = open_memstream(&text, &len);
	if (!m)
		while (n > 0)
			sandbox_unref(all[--n]);
	ok = m && print_list(m, all, n);
	if (m)
		ok = fclose(m) == 0 && ok;
	free(all);
	if (ok)
		http_reply(c->req, 200, "application/json", text, len);
	free(text);
	return ok ? 0 : err_oom(e);
}

int handle_sandbox_list(struct call *c, struct err *e)
{
	_cleanup_(filters_free) struct filters f;
	struct sandbox **none;
	const char *watch = NULL;
	size_t len, n;

	if (filters_read(c, &f, e) < 0 || call_query(c, "watch", &watch, &len, e) < 0)
		return -1;
	if (!watch || strcmp(watch, "1"))
		return list_once(c, &f, e);
	/* filters are checked before the answer begins */
	if (core_list(c->core, (const char *const *)f.v, f.n, &none, &n, e) < 0)
		return -1;
	while (n > 0)
		sandbox_unref(none[--n]);
	free(none);
	return watch_start(c, &f, e);
}
