/* SPDX-License-Identifier: MIT */
/* What handlers use: parameters, queries, bodies, sandboxes, and the few forms of answers. */
#include "sandboxd/api/call.h"

#include "common/base/log.h"
#include "common/sys/mem.h"

#include <string.h>

const char *call_param(const struct call *c, const char *name)
{
	return route_param(&c->match, name);
}

int call_query(struct call *c, const char *key, const char **ret, size_t *ret_len, struct err *e)
{
	size_t len;
	bool bad;

	*ret = http_query(c->req, key, 0, &len, &bad);
	if (bad)
		return err_set(e, ERR_INVALID_REQUEST, "query parameter %s: malformed escape", key);
	if (*ret && memchr(*ret, '\0', len))
		return err_set(
			e, ERR_INVALID_REQUEST, "query parameter %s: contains a zero byte", key);
	if (ret_len)
		*ret_len = len;
	return 0;
}

bool call_gone(void *call)
{
	const struct call *c = call;

	return http_client_gone(c->req);
}

int call_decode(struct call *c, const struct field *fields, void *ret, struct err *e)
{
	return schema_decode(fields, c->body, ret, e);
}

int call_sandbox(struct call *c, struct sandbox **ret, struct err *e)
{
	return sandbox_find(c->core, call_param(c, "ref"), ret, e);
}

int reply_json(struct call *c, int status, json_t *value)
{
	_cleanup_json_ json_t *v = value;
	_cleanup_free_ char *text = v ? json_text(v) : NULL;
	struct err e = ERR_NULL;

	if (!text) {
		err_set(&e, ERR_INTERNAL, "out of memory");
		return reply_error(c, &e);
	}
	http_reply(c->req, status, "application/json", text, strlen(text));
	return 0;
}

int reply_empty(struct call *c)
{
	http_reply(c->req, 204, NULL, "", 0);
	return 0;
}

/* Details of what is our own fault are for the log: they may name paths of the host. */
static const char *public_message(struct call *c, const struct err *e)
{
	char safe[2 * sizeof(e->msg)];

	if (e->code != ERR_INTERNAL)
		return e->msg;
	log_error("request failed route=%s reason=\"%s\"",
		c->match.route ? c->match.route->name : "none",
		log_quote(e->msg, safe, sizeof(safe)));
	return "internal error; the server's log tells more";
}

/* Messages may quote bytes of a request; the answer is UTF-8 all the same. */
static json_t *message_json(const char *s)
{
	json_t *v = json_string(s);
	char clean[sizeof(((struct err *)0)->msg)];
	size_t n = 0;

	if (v)
		return v;
	for (; s[n] && n + 1 < sizeof(clean); n++)
		clean[n] = s[n] >= 0x20 && s[n] < 0x7f ? s[n] : '?';
	clean[n] = '\0';
	return json_string(clean);
}

int reply_error(struct call *c, const struct err *e)
{
	static const char fallback[] =
		"{\"error\":{\"code\":\"internal\",\"message\":\"out of memory\"}}";
	_cleanup_json_ json_t *v = json_pack("{s:{s:s,s:o}}", "error", "code", err_word(e->code),
		"message", message_json(public_message(c, e)));
	_cleanup_free_ char *text = NULL;

	if (v && err_errno_name(e->sys))
		json_object_set_new(
			json_object_get(v, "error"), "errno", json_string(err_errno_name(e->sys)));
	text = v ? json_text(v) : NULL;
	if (e->code == ERR_UNAUTHORIZED)
		http_add_header(c->req, "WWW-Authenticate", "Bearer");
	http_reply(c->req, text ? err_http(e) : 500, "application/json", text ? text : fallback,
		strlen(text ? text : fallback));
	return 0;
}

int reply_bytes(struct call *c, int status, const void *buf, size_t len)
{
	http_reply(c->req, status, "application/octet-stream", buf, len);
	return 0;
}

int reply_stream(
	struct call *c, int status, const char *type, int64_t length, const struct http_source *src)
{
	http_reply_stream(c->req, status, type, length, src);
	return 0;
}
