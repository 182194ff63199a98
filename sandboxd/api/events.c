/* SPDX-License-Identifier: MIT */
/* The event log over HTTP.
 *
 * GET /v1/events[?after=SEQ][&follow=1] (capability list_watch) answers NDJSON, oldest first:
 *   {"seq":N,"event":{…}}   events with a number above SEQ; without `after` all that are held
 *   {"lost":true}           first, when events after SEQ are no longer held
 *   {"ping":true}           with follow=1, every 15 s without an event
 * Without follow=1 the answer ends with the newest event. Numbers grow over restarts. */
#include "sandboxd/api/call.h"

#include "common/sys/mem.h"
#include "sandboxd/core/audit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PING_MS       15000
#define GONE_CHECK_MS 1000

/* A name only while its record exists, an id for as long as the log remembers. */
static int events_id(struct call *c, char id[SBX_ID_MAX], struct err *e)
{
	_cleanup_(sandbox_unref_p) struct sandbox *s = NULL;
	const char *ref = call_param(c, "ref");

	if (call_sandbox(c, &s, e) == 0) {
		memcpy(id, s->id, SBX_ID_MAX);
		return 0;
	}
	if (e->code != ERR_NOT_FOUND || !id_is_sandbox(ref))
		return -1;
	snprintf(id, SBX_ID_MAX, "%s", ref);
	return 0;
}

int handle_events_get(struct call *c, struct err *e)
{
	struct audit *a = core_audit(c->core);
	char id[SBX_ID_MAX];
	bool truncated;
	json_t *events, *o;

	if (!a)
		return err_set(e, ERR_UNSUPPORTED, "this server keeps no event log");
	if (events_id(c, id, e) < 0 || audit_read(a, id, &events, &truncated, e) < 0)
		return -1;
	if (!json_array_size(events)) {
		json_decref(events);
		return err_set(e, ERR_NOT_FOUND, "no events of this sandbox");
	}
	o = json_pack("{s:o}", "events", events);
	if (truncated)
		json_object_set_new(o, "truncated", json_true());
	return reply_json(c, 200, o);
}

struct follow {
	struct call *call;
	struct audit *audit;
	uint64_t after;
	bool live, from_start;
	char *out;
	size_t len, pos;
};

/* Takes the values of a list; false: out of memory. */
static bool set_lines(struct follow *f, const json_t *list, const char *first)
{
	FILE *m;
	size_t i;
	json_t *v;

	free(f->out);
	f->out = NULL;
	f->len = f->pos = 0;
	m = open_memstream(&f->out, &f->len);
	if (!m)
		return false;
	if (first)
		fprintf(m, "%s\n", first);
	json_array_foreach (list, i, v) {
		_cleanup_free_ char *text = json_text(v);
		fprintf(m, "%s\n", text ? text : "{}");
	}
	return fclose(m) == 0;
}

/* 1: lines are there; 0: the end; -1: the client has left. */
static int more_events(struct follow *f)
{
	for (int waited = 0; waited < PING_MS; waited += GONE_CHECK_MS) {
		bool lost = false;
		_cleanup_json_ json_t *list =
			audit_follow(f->audit, f->after, f->live ? GONE_CHECK_MS : 0, &lost);
		size_t n = json_array_size(list);
		if (n > 0) {
			const json_t *last = json_array_get(list, n - 1);
			f->after = (uint64_t)json_integer_value(json_object_get(last, "seq"));
			lost = lost && !f->from_start;
			f->from_start = false;
			return set_lines(f, list, lost ? "{\"lost\":true}" : NULL) ? 1 : -1;
		}
		if (!f->live || core_stopping(f->call->core))
			return 0;
		if (call_gone(f->call))
			return -1;
	}
	return set_lines(f, NULL, "{\"ping\":true}") ? 1 : -1;
}

static ssize_t follow_read(void *arg, uint64_t pos, char *buf, size_t max)
{
	struct follow *f = arg;
	size_t n;

	(void)pos;
	if (f->pos == f->len) {
		int rc = more_events(f);
		if (rc <= 0)
			return rc;
	}
	n = f->len - f->pos < max ? f->len - f->pos : max;
	memcpy(buf, f->out + f->pos, n);
	f->pos += n;
	return (ssize_t)n;
}

static void follow_free(void *arg)
{
	struct follow *f = arg;

	free(f->out);
	free(f);
}

static int read_after(struct call *c, uint64_t *ret, bool *ret_given, struct err *e)
{
	const char *v = NULL;
	size_t len;

	*ret = 0;
	if (call_query(c, "after", &v, &len, e) < 0)
		return -1;
	*ret_given = v && *v;
	if (!*ret_given)
		return 0;
	if (len > 18 || strspn(v, "0123456789") != len)
		return err_set(e, ERR_INVALID_REQUEST, "after must be an event's number");
	*ret = strtoull(v, NULL, 10);
	return 0;
}

int handle_events_all(struct call *c, struct err *e)
{
	struct http_source src = { .read = follow_read, .done = follow_free };
	const char *live = NULL;
	struct follow *f;
	uint64_t after;
	bool given;
	size_t len;

	if (!core_audit(c->core))
		return err_set(e, ERR_UNSUPPORTED, "this server keeps no event log");
	if (read_after(c, &after, &given, e) < 0 || call_query(c, "follow", &live, &len, e) < 0)
		return -1;
	f = calloc(1, sizeof(*f));
	if (!f)
		return err_oom(e);
	f->call = c;
	f->audit = core_audit(c->core);
	f->after = after;
	f->from_start = !given;
	f->live = live && !strcmp(live, "1");
	src.arg = f;
	return reply_stream(c, 200, "application/x-ndjson", -1, &src);
}
