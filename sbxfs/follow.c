/* SPDX-License-Identifier: MIT */
/* The thread behind a stream: follows it at the server, by offset or number, and takes it up again
 * when the server was away. */
#include "sbxfs/feed_priv.h"

#include "sbxfs/proc.h"
#include "sbxfs/remote.h"
#include "sbxfs/res.h"

#include "common/json/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define RETRY_MS 200
#define LINE_MAX_BYTES (1024u * 1024)

struct sink {
	struct req *q;
	struct feed *f;
	struct text line;
	int64_t seq;
};

static bool may_retry(const struct feed *f, int rc)
{
	return !atomic_load(&f->stop) && (rc == -EHOSTDOWN || rc == -ETIMEDOUT || rc == -EAGAIN ||
						 rc == -EIO || rc == -ECONNRESET || rc == -EPROTO);
}

static void rest(void)
{
	const struct timespec t = { .tv_nsec = RETRY_MS * 1000000 };

	nanosleep(&t, NULL);
}

void feed_rest(const struct feed *f)
{
	if (!atomic_load(&f->stop))
		rest();
}

/* Until its install has ended, one way or the other. */
static int follow_image(struct req *q, struct feed *f)
{
	for (;;) {
		char state[32];
		json_t *o;
		int rc;

		q->start_ms = now_ms();
		rc = image_get(q, f->arg, &o);
		if (rc < 0)
			return rc;
		(void)snprintf(state, sizeof(state), "%.30s\n",
			json_string_value(json_object_get(o, "state")) ?
			json_string_value(json_object_get(o, "state")) : "?");
		json_decref(o);
		if (strcmp(state, "installing\n")) {
			feed_add(f, state, strlen(state));
			return 0;
		}
		if (atomic_load(&f->stop))
			return 0;
		rest();
	}
}

static bool bytes_data(void *arg, const void *buf, size_t len)
{
	struct sink *s = arg;

	feed_add(s->f, buf, len);
	return !atomic_load(&s->f->stop);
}

static int follow_bytes(struct req *q, struct feed *f)
{
	struct sink s = { .q = q, .f = f };
	char range[64];
	const char *headers[] = { range, NULL };
	struct sbx_request r = { .on_data = bytes_data, .arg = &s, .timeout_ms = -1,
		.headers = headers };
	_cleanup_response_ struct sbx_response resp = { 0 };

	(void)snprintf(range, sizeof(range), "Range: bytes=%llu-",
		(unsigned long long)(f->base + f->len));
	return remote_send(q, "GET",
		sbx_path("/v1/sandboxes/%s/processes/%lld/output/%s?follow=1", f->box,
			(long long)f->pid, f->node->key), &r, &resp);
}

static int follow_exit(struct req *q, struct feed *f)
{
	char word[16];
	int code, rc = process_wait(q, f->box, f->pid, &code);

	if (rc == 0) {
		(void)snprintf(word, sizeof(word), "%d\n", code);
		feed_add(f, word, strlen(word));
	}
	return rc;
}

void event_line(const char *line, size_t len, const char *box, struct text *t, int64_t *ret_seq)
{
	struct err e = ERR_NULL;
	const char *id;
	json_t *o, *ev;

	if (json_parse_any(line, len, LINE_MAX_BYTES, &o, &e) < 0)
		return;
	ev = json_object_get(o, "event");
	id = json_string_value(json_object_get(ev, "sandbox"));
	if (json_is_integer(json_object_get(o, "seq")))
		*ret_seq = json_integer_value(json_object_get(o, "seq"));
	if (ev && (!box[0] || (id && !strcmp(id, box))))
		txt_json_line(t, ev);
	json_decref(o);
}

static bool events_data(void *arg, const void *buf, size_t len)
{
	struct sink *s = arg;
	const char *p = buf, *end = p + len, *nl;

	while ((nl = memchr(p, '\n', (size_t)(end - p)))) {
		_cleanup_text_ struct text out = TEXT_NULL;

		txt_add(&s->line, p, (size_t)(nl - p));
		event_line(s->line.p, s->line.len, s->f->box, &out, &s->seq);
		feed_add(s->f, out.p, out.len);
		s->line.len = 0;
		p = nl + 1;
	}
	if (s->line.len + (size_t)(end - p) > LINE_MAX_BYTES)
		return false;
	txt_add(&s->line, p, (size_t)(end - p));
	return !atomic_load(&s->f->stop);
}

static bool last_seq_data(void *arg, const void *buf, size_t len)
{
	struct sink *s = arg;
	const char *p = buf, *end = p + len, *nl;

	while ((nl = memchr(p, '\n', (size_t)(end - p)))) {
		_cleanup_text_ struct text out = TEXT_NULL;

		txt_add(&s->line, p, (size_t)(nl - p));
		event_line(s->line.p, s->line.len, "-", &out, &s->seq);
		s->line.len = 0;
		p = nl + 1;
	}
	if (s->line.len + (size_t)(end - p) > LINE_MAX_BYTES)
		return false;
	txt_add(&s->line, p, (size_t)(end - p));
	return !s->line.failed;
}

static int events_once(struct req *q, struct feed *f, struct sink *s, bool live)
{
	struct sbx_request r = { .on_data = live ? events_data : last_seq_data, .arg = s,
		.timeout_ms = live ? -1 : 0 };
	_cleanup_response_ struct sbx_response resp = { 0 };
	int rc;

	(void)f;
	s->line.len = 0;
	rc = remote_send(q, "GET", live ? sbx_path("/v1/events?follow=1&after=%lld", (long long)s->seq) :
					  sbx_path("/v1/events"), &r, &resp);
	/* A server that ends its stream goes away: we come again. */
	return rc == 0 && live ? -EAGAIN : rc;
}

static int follow_events(struct req *q, struct feed *f)
{
	struct sink s = { .q = q, .f = f };
	int rc = events_once(q, f, &s, false);

	while (rc == 0 || may_retry(f, rc)) {
		if (rc < 0)
			rest();
		rc = events_once(q, f, &s, true);
	}
	txt_fini(&s.line);
	return rc;
}

static int follow_one(struct req *q, struct feed *f)
{
	if (f->node->id == N_METRIC_FOLLOW)
		return follow_metrics(q, f);
	if (f->node->id == N_IMAGE_WAIT)
		return follow_image(q, f);
	if (f->pid < 0)
		return follow_events(q, f);
	return f->node->key ? follow_bytes(q, f) : follow_exit(q, f);
}

void feed_follow(void *arg)
{
	struct feed *f = arg;
	struct req q = { .m = f->m, .patient = true, .stop = &f->stop };
	int rc;

	do {
		q.start_ms = now_ms();
		rc = follow_one(&q, f);
		if (rc < 0 && may_retry(f, rc))
			rest();
	} while (rc < 0 && may_retry(f, rc));
	feed_end(f);
	feed_put(f);
}
