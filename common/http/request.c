/* SPDX-License-Identifier: MIT */
/* Reading one request: framing, headers, query. The target is kept as the client sent it; whoever
 * wants a part of it decodes that part, once. */
#include "common/http/internal.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* "http://host/path?query", which every server has to understand, or "/path?query". */
static int cut_target(struct http_req *r)
{
	char *scheme = strstr(r->target, "://");
	char *path = r->target, *query;

	if (path[0] != '/' && scheme) {
		size_t len = strcspn(scheme + 3, "/?");

		r->authority = strndup(scheme + 3, len);
		if (!r->authority)
			return -1;
		path = scheme + 3 + len;
	}
	query = strchr(path, '?');
	if (query) {
		*query = '\0';
		r->query = query + 1;
	}
	r->path = *path ? path : "/";
	return 0;
}

struct http_req *req_new(
	struct http_server *s, struct conn *c, struct MHD_Connection *mhd, const char *uri)
{
	struct http_req *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->target = strdup(uri);
	if (!r->target || cut_target(r) < 0) {
		free(r->target);
		free(r);
		return NULL;
	}
	r->target_len = strlen(uri);
	r->server = s;
	r->conn = c;
	r->mhd = mhd;
	r->body_max = UINT64_MAX;
	r->refs = 1;
	return r;
}

void req_gone(struct http_req *r, bool complete)
{
	if (r->begun)
		r->server->app.gone(r->server->app.arg, r, complete);
}

void req_unref(struct http_req *r)
{
	struct text *t;

	if (--r->refs > 0)
		return;

	while ((t = r->texts)) {
		r->texts = t->next;
		free(t);
	}
	for (size_t i = 0; i < r->nextra; i++) {
		free(r->extra[i].name);
		free(r->extra[i].value);
	}
	free(r->authority);
	free(r->target);
	free(r);
}

const char *http_method(const struct http_req *r)
{
	return r->method;
}

const char *http_path(const struct http_req *r)
{
	return r->path;
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes in[0..len) to out (room for len + 1); -1 at a broken escape. */
static ssize_t unescape(const char *in, size_t len, char *out)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		int hi, lo;

		if (in[i] != '%') {
			out[n++] = in[i];
			continue;
		}
		if (i + 2 >= len || (hi = hex(in[i + 1])) < 0 || (lo = hex(in[i + 2])) < 0)
			return -1;
		out[n++] = (char)(hi << 4 | lo);
		i += 2;
	}
	out[n] = '\0';
	return (ssize_t)n;
}

static bool key_matches(const char *raw, size_t len, const char *key)
{
	size_t want = strlen(key);
	char buf[128];
	ssize_t n;

	if (len < want || len >= sizeof(buf))
		return false;
	n = unescape(raw, len, buf);
	return n >= 0 && (size_t)n == want && !memcmp(buf, key, want);
}

static const char *query_value(
	struct http_req *r, const char *raw, size_t len, size_t *ret_len, bool *ret_bad)
{
	struct text *t = malloc(sizeof(*t) + len + 1);
	ssize_t n;

	if (!t) {
		*ret_bad = true;
		return NULL;
	}
	n = unescape(raw, len, t->data);
	if (n < 0) {
		free(t);
		*ret_bad = true;
		return NULL;
	}
	t->next = r->texts;
	r->texts = t;
	*ret_len = (size_t)n;
	return t->data;
}

const char *http_query(
	struct http_req *r, const char *key, size_t n, size_t *ret_len, bool *ret_bad)
{
	const char *p = r->query;

	*ret_bad = false;
	*ret_len = 0;
	while (p && *p) {
		size_t len = strcspn(p, "&");
		size_t klen = strcspn(p, "=&");

		if (key_matches(p, klen, key) && n-- == 0) {
			size_t skip = klen < len ? klen + 1 : klen;

			return query_value(r, p + skip, len - skip, ret_len, ret_bad);
		}
		p += len;
		p += *p == '&';
	}
	return NULL;
}

const char *http_header(const struct http_req *r, const char *name)
{
	return MHD_lookup_connection_value(r->mhd, MHD_HEADER_KIND, name);
}

struct counting {
	const char *name;
	size_t n;
};

static enum MHD_Result count_one(
	void *cls, enum MHD_ValueKind kind, const char *key, const char *value)
{
	struct counting *c = cls;

	(void)kind;
	(void)value;
	if (!strcasecmp(key, c->name))
		c->n++;
	return MHD_YES;
}

size_t http_header_count(const struct http_req *r, const char *name)
{
	struct counting c = { .name = name };

	MHD_get_connection_values(r->mhd, MHD_HEADER_KIND, count_one, &c);
	return c.n;
}

static int64_t parse_length(const char *s)
{
	int64_t n = 0;

	for (; *s >= '0' && *s <= '9'; s++)
		if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *s - '0', &n))
			return INT64_MAX;
	return n;
}

/* --- lines ---
 *
 * The library (CUT_BY) ends a line at a bare CR or LF, joins folded lines, takes names with blanks, and
 * all that it gives ends at a NUL: other readers of the same bytes see other headers there. It cuts the
 * header into strings where it lies, though, so that what was there can be told afterwards: each string
 * stands right behind the one before it, and only CRLF leaves two NULs. A header that grew beyond its first
 * buffer fails this, too, and is larger than any that we have a use for. */
#define CUT_BY "0.9.75" /* another version lies out differently, and has a strict parser of its own */
#define NAME_CHARS                                                                                 \
	"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

bool req_lines_known(void)
{
	return strcmp(MHD_get_version(), CUT_BY) == 0;
}

struct lines {
	const char *at; /* where the next one has to begin; NULL: one was bad */
};

static bool has_control(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (((unsigned char)s[i] < ' ' && s[i] != '\t') || s[i] == 0x7f)
			return true;
	return false;
}

/* Blanks behind a value are no part of it. The text lies in the connection's own memory. */
static void trim(const char *value, size_t len)
{
	while (len > 0 && (value[len - 1] == ' ' || value[len - 1] == '\t'))
		((char *)(uintptr_t)value)[--len] = '\0';
}

static enum MHD_Result check_line(void *cls, enum MHD_ValueKind kind, const char *name,
	size_t name_len, const char *value, size_t len)
{
	struct lines *l = cls;
	const char *p = l->at;

	(void)kind;
	l->at = NULL;
	if (name != p || !name_len || strspn(name, NAME_CHARS) != name_len || p[name_len])
		return MHD_NO;
	p += name_len + 1;
	p += strspn(p, " \t");
	if (value != p || has_control(value, len) || p[len] || p[len + 1])
		return MHD_NO;
	l->at = p + len + 2;
	trim(value, len);
	return MHD_YES;
}

const char *req_lines_fault(const struct http_req *r, const char *url, const char *version)
{
	const union MHD_ConnectionInfo *size =
		MHD_get_connection_info(r->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
	const char *p = r->method + strlen(r->method) + 1;
	struct lines l;

	if (!req_lines_known())
		return NULL;
	if (url != p || strpbrk(url, " \t") || version != p + r->target_len + 1)
		return "malformed request line";
	p = version + strlen(version);
	if (p[0] || p[1])
		return "malformed request line";
	l.at = p + 2;
	MHD_get_connection_values_n(r->mhd, MHD_HEADER_KIND, check_line, &l);
	if (!l.at || !size || l.at[0] || l.at[1] || l.at + 2 != r->method + size->header_size)
		return "malformed header";
	return NULL;
}

/* Two readers of one header that disagree where the body ends make two requests out of one: each of
 * these is refused and the connection closed. */
const char *req_framing_fault(struct http_req *r)
{
	const char *te = http_header(r, "Transfer-Encoding");
	const char *cl = http_header(r, "Content-Length");
	size_t hosts = http_header_count(r, "Host");

	if (te && cl)
		return "both Content-Length and Transfer-Encoding";
	if (te && (strcasecmp(te, "chunked") || http_header_count(r, "Transfer-Encoding") > 1))
		return "the only Transfer-Encoding is chunked";
	if (te && r->http10)
		return "Transfer-Encoding needs HTTP/1.1";
	if (http_header_count(r, "Content-Length") > 1)
		return "more than one Content-Length";
	if (cl && (!*cl || strspn(cl, "0123456789") != strlen(cl)))
		return "Content-Length is not a number";
	if (hosts > 1)
		return "more than one Host";
	if (!hosts && !r->http10)
		return "Host is missing";
	if (r->authority && (!hosts || strcasecmp(r->authority, http_header(r, "Host"))))
		return "the target and Host name different hosts";
	r->content_length = te ? -1 : cl ? parse_length(cl) : 0;
	return NULL;
}

bool req_has_body(const struct http_req *r)
{
	return r->content_length != 0;
}

int64_t http_content_length(const struct http_req *r)
{
	return r->content_length;
}

void http_set_body_max(struct http_req *r, uint64_t max)
{
	r->body_max = max;
}

void *http_ctx(const struct http_req *r)
{
	return r->ctx;
}

void http_set_ctx(struct http_req *r, void *ctx)
{
	r->ctx = ctx;
}

int http_client_fd(const struct http_req *r)
{
	return r->conn->fd;
}

bool http_client_gone(const struct http_req *r)
{
	struct pollfd p = { .fd = r->conn->fd, .events = POLLRDHUP };

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL));
}
