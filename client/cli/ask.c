/* SPDX-License-Identifier: MIT */
/* Requests whose answers are JSON: one document, or one object a line. */
#include "client/cli/cli.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define ANSWER_MAX     (16 * 1024 * 1024)
#define REJOIN_MS      15000
#define REJOIN_STEP_MS 100
#define LINE_MAX_BYTES (16 * 1024 * 1024)

static int no_memory(struct sbx_error *e)
{
	*e = (struct sbx_error){ .sys = ENOMEM, .code = "internal", .message = "out of memory" };
	return -1;
}

int ask(struct cli *c, const char *method, char *path, json_t *body, struct sbx_response *ret,
	struct sbx_error *e)
{
	_cleanup_free_ char *own = path;
	_cleanup_json_ json_t *own_body = body;
	_cleanup_free_ char *text = own_body ? json_text(own_body) : NULL;
	struct sbx_request q = { .method = method,
		.path = own,
		.body = text,
		.body_len = text ? strlen(text) : 0,
		.timeout_ms = -1,
		.cancelled = c->cancelled };

	if (!own || (own_body && !text))
		return no_memory(e);
	return sbx_call(c->s, &q, ret, e);
}

static int parse(struct sbx_response *r, json_t **ret)
{
	if (json_parse_any(r->body, r->len, ANSWER_MAX, ret, NULL) == 0)
		return 0;
	return complain(-1, "the server's answer is not JSON; is this the Sandbox API?");
}

int ask_json(struct cli *c, const char *method, char *path, json_t *body, json_t **ret)
{
	struct sbx_response r;
	struct sbx_error e;
	int bad;

	if (ask(c, method, path, body, &r, &e) < 0) {
		fail(&e);
		return -1;
	}
	bad = parse(&r, ret);
	sbx_response_free(&r);
	return bad;
}

/* ref: what a refusal is about, where a command line names several; else NULL. */
static int show_about(struct cli *c, const char *ref, const char *method, char *path, json_t *body,
	void (*show)(json_t *v))
{
	struct sbx_response r;
	struct sbx_error e;
	json_t *v = NULL;
	int code = 0;

	if (ask(c, method, path, body, &r, &e) < 0)
		return ref ? fail_about(ref, &e) : fail(&e);
	if (c->json && r.len)
		put_json(r.body, r.len);
	else if (!c->json && show && (code = parse(&r, &v) < 0) == 0)
		show(v);
	json_decref(v);
	sbx_response_free(&r);
	return code;
}

int ask_show(struct cli *c, const char *method, char *path, json_t *body, void (*show)(json_t *v))
{
	return show_about(c, NULL, method, path, body, show);
}

int ask_each(struct cli *c, const char *method, const char *fmt, void (*show)(json_t *v))
{
	int code = 0;

	for (int i = 0; i < c->n_pos; i++)
		code |= show_about(c, c->n_pos > 1 ? c->pos[i] : NULL, method,
			sbx_path(fmt, c->pos[i]), NULL, show);
	return code;
}

bool server_came_back(struct cli *c, const struct sbx_error *why)
{
	struct sbx_error e = { 0 };

	if (why->status != 0 || why->sys != EHOSTDOWN || !why->sent)
		return false;
	for (int ms = 0; ms < REJOIN_MS; ms += REJOIN_STEP_MS) {
		if (ask(c, "GET", strdup("/v1/capabilities"), NULL, NULL, &e) == 0)
			return true;
		if (e.status != 0)
			return false;
		ask_pause(REJOIN_STEP_MS);
	}
	return false;
}

bool server_can(struct cli *c, const char *capability)
{
	_cleanup_json_ json_t *v = NULL;
	struct sbx_response r;
	struct sbx_error e;

	if (ask(c, "GET", strdup("/v1/capabilities"), NULL, &r, &e) < 0)
		return false;
	if (json_parse_any(r.body, r.len, ANSWER_MAX, &v, NULL) < 0)
		v = NULL;
	sbx_response_free(&r);
	return json_is_true(json_object_get(json_object_get(v, "capabilities"), capability));
}

void ask_pause(int ms)
{
	const struct timespec t = { ms / 1000, ms % 1000 * 1000000L };

	fflush(stdout);
	nanosleep(&t, NULL);
}

static bool keep(struct lines *l, const char *p, size_t n)
{
	if (n > LINE_MAX_BYTES - l->len)
		return false;
	if (l->len + n > l->room) {
		size_t room = (l->len + n) * 2;
		char *fresh = realloc(l->buf, room);
		if (!fresh)
			return false;
		l->buf = fresh;
		l->room = room;
	}
	memcpy(l->buf + l->len, p, n);
	l->len += n;
	return true;
}

static bool on_lines(void *arg, const void *buf, size_t len)
{
	struct lines *l = arg;
	const char *p = buf, *end = p + len;

	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		if (!keep(l, p, (size_t)((nl ? nl : end) - p))) {
			l->broken = true;
			return false;
		}
		if (!nl)
			return true;
		if (l->len && !l->line(l->arg, l->buf, l->len))
			return false;
		l->len = 0;
		p = nl + 1;
	}
	return true;
}

int ask_lines(struct cli *c, char *path, struct lines *l, struct sbx_error *e)
{
	_cleanup_free_ char *own = path;
	struct sbx_request q = {
		.method = "GET", .path = own, .timeout_ms = -1, .on_data = on_lines, .arg = l
	};
	int r;

	if (!own)
		return no_memory(e);
	r = sbx_call(c->s, &q, NULL, e);
	if (r == 0 && !l->broken && l->len)
		l->line(l->arg, l->buf, l->len);
	free(l->buf);
	l->buf = NULL;
	if (r == 0 && l->broken) {
		*e = (struct sbx_error){ .sys = EPROTO,
			.code = "protocol",
			.message = "the server sent a line that is too long" };
		return -1;
	}
	return r;
}
