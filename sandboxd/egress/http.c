/* SPDX-License-Identifier: MIT */
/* HTTP/1 requests: each head is read whole, bodies only as far as it takes to find the next head.
 */
#include "sandboxd/egress/head.h"
#include "sandboxd/egress/policy.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define CHUNK_LINE_MAX 256
#define LENGTH_DIGITS  18

struct text {
	const char *p;
	size_t n;
};
struct fields { /* what one head says */
	unsigned hosts, lengths, codings;
	bool has_upgrade, websocket;
	uint64_t length;
	struct text host;
};

static bool is(struct text t, const char *word)
{
	return strlen(word) == t.n && strncasecmp(t.p, word, t.n) == 0;
}

static bool token_only(struct text t)
{
	for (size_t i = 0; i < t.n; i++) {
		unsigned char c = (unsigned char)t.p[i];
		if (c <= ' ' || c >= 127 || strchr("\"(),/:;<=>?@[\\]{}", c))
			return false;
	}
	return t.n > 0;
}

static bool value_ok(struct text t)
{
	for (size_t i = 0; i < t.n; i++) {
		unsigned char c = (unsigned char)t.p[i];
		if ((c < ' ' && c != '\t') || c == 127)
			return false;
	}
	return true;
}

static struct text trim(struct text t)
{
	while (t.n && (*t.p == ' ' || *t.p == '\t')) {
		t.p++;
		t.n--;
	}
	while (t.n && (t.p[t.n - 1] == ' ' || t.p[t.n - 1] == '\t'))
		t.n--;
	return t;
}

static int decimal(struct text t, uint64_t *ret)
{
	*ret = 0;
	if (t.n == 0 || t.n > LENGTH_DIGITS)
		return -EINVAL;
	for (size_t i = 0; i < t.n; i++) {
		if (t.p[i] < '0' || t.p[i] > '9')
			return -EINVAL;
		*ret = *ret * 10 + (uint64_t)(t.p[i] - '0');
	}
	return 0;
}

/* An address has no name, and is written in digits, dots and colons only. */
static bool is_address(struct text t)
{
	bool v6 = t.n > 2 && t.p[0] == '[' && t.p[t.n - 1] == ']', digit = false;

	for (size_t i = v6; i < t.n - v6; i++) {
		char c = t.p[i];
		if (!(c >= '0' && c <= '9') && c != '.' &&
			!(v6 && (c == ':' || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))))
			return false;
		digit |= c != '.' && c != ':';
	}
	return digit;
}

/* host or host:port, no user; name is "" for an address. */
static int authority(struct text t, char *name, uint16_t *port)
{
	const char *end = t.n && t.p[0] == '[' ? memchr(t.p, ']', t.n) : t.p;
	const char *colon = end ? memchr(end, ':', t.n - (size_t)(end - t.p)) : NULL;
	struct text host = { t.p, colon ? (size_t)(colon - t.p) : t.n };
	uint64_t n = 0;

	if (colon) {
		struct text digits = { colon + 1, t.n - host.n - 1 };
		if (digits.n && (decimal(digits, &n) < 0 || n > 65535))
			return -EINVAL;
	}
	*port = (uint16_t)n;
	name[0] = 0;
	return is_address(host) ? 0 : name_clean(host.p, host.n, name);
}

/* --- one head -------------------------------------------------------------------------------- */

static int field(struct fields *f, struct text name, struct text value)
{
	if (is(name, "host")) {
		f->hosts++;
		f->host = value;
	} else if (is(name, "content-length")) {
		f->lengths++;
		return decimal(value, &f->length);
	} else if (is(name, "transfer-encoding")) {
		f->codings++;
		return is(value, "chunked") ? 0 : -EINVAL;
	} else if (is(name, "upgrade")) {
		f->websocket = !f->has_upgrade && is(value, "websocket");
		f->has_upgrade = true;
	}
	return 0;
}

/* One line without its end; *rest moves behind it. -EINVAL: a bare CR or LF. */
static int take_line(struct text *rest, struct text *line)
{
	const char *lf = memchr(rest->p, '\n', rest->n);

	if (!lf || lf == rest->p || lf[-1] != '\r')
		return -EINVAL;
	*line = (struct text){ rest->p, (size_t)(lf - rest->p) - 1 };
	rest->n -= (size_t)(lf + 1 - rest->p);
	rest->p = lf + 1;
	return memchr(line->p, '\r', line->n) ? -EINVAL : 0;
}

static int read_fields(struct text rest, struct fields *f)
{
	struct text line;

	for (;;) {
		if (take_line(&rest, &line) < 0)
			return -EINVAL;
		if (line.n == 0)
			return 0;
		const char *colon = memchr(line.p, ':', line.n);
		if (!colon)
			return -EINVAL;
		struct text name = { line.p, (size_t)(colon - line.p) };
		struct text value = trim((struct text){ colon + 1, line.n - name.n - 1 });
		/* a folded line begins with a space and so has no token */
		if (!token_only(name) || !value_ok(value) || field(f, name, value) < 0)
			return -EINVAL;
	}
}

static int words(struct text line, struct text w[3])
{
	for (int i = 0; i < 3; i++) {
		const char *sp = i < 2 ? memchr(line.p, ' ', line.n) : line.p + line.n;
		if (!sp || sp == line.p)
			return -EINVAL;
		w[i] = (struct text){ line.p, (size_t)(sp - line.p) };
		if (i < 2) {
			line.n -= w[i].n + 1;
			line.p = sp + 1;
		}
	}
	for (size_t i = 0; i < w[1].n; i++)
		if ((unsigned char)w[1].p[i] <= ' ' || (unsigned char)w[1].p[i] >= 127)
			return -EINVAL;
	return token_only(w[0]) ? 0 : -EINVAL;
}

/* The name in the request line: 1, or 0 for /path and *. */
static int target_name(struct text method, struct text target, struct http_head *head)
{
	uint16_t port;

	head->connect = method.n == 7 && memcmp(method.p, "CONNECT", 7) == 0;
	if (head->connect)
		return authority(target, head->name, &head->port) < 0 || !head->port ? -EINVAL : 1;
	if (target.p[0] == '/' || (target.n == 1 && target.p[0] == '*'))
		return 0;
	const char *sep = memmem(target.p, target.n, "://", 3);
	if (!sep)
		return -EINVAL;
	struct text rest = { sep + 3, target.n - (size_t)(sep + 3 - target.p) };
	for (size_t i = 0; i < rest.n; i++)
		if (strchr("/?#", rest.p[i])) {
			rest.n = i;
			break;
		}
	return authority(rest, head->name, &port) < 0 ? -EINVAL : 1;
}

/* named: the request line holds a name or an address. */
static int names_agree(const struct fields *f, bool old, bool named, struct http_head *head)
{
	char host[EGRESS_NAME_MAX + 1];
	uint16_t port;

	if (f->hosts > 1 || (f->hosts == 0 && (!old || !named)))
		return -EINVAL;
	if (f->hosts == 0)
		return 0;
	if (authority(f->host, host, &port) < 0)
		return -EINVAL;
	if (named && strcmp(host, head->name) != 0)
		return -EINVAL;
	memcpy(head->name, host, sizeof(host));
	return 0;
}

/* text: request line to empty line. */
static int head_parse(struct http *h, struct text text, struct http_head *head)
{
	struct fields f = { 0 };
	struct text line, w[3];
	bool old;
	int named;

	if (take_line(&text, &line) < 0 || words(line, w) < 0)
		return -EINVAL;
	old = w[2].n == 8 && memcmp(w[2].p, "HTTP/1.0", 8) == 0;
	if (!old && (w[2].n != 8 || memcmp(w[2].p, "HTTP/1.1", 8) != 0))
		return -EINVAL;
	named = target_name(w[0], w[1], head);
	if (named < 0 || read_fields(text, &f) < 0 || names_agree(&f, old, named, head) < 0)
		return -EINVAL;
	/* Two ways to say where the body ends are one too many. */
	if (f.lengths > 1 || f.codings > 1 || (f.codings && (f.lengths || old)))
		return -EINVAL;
	if (head->connect && (f.codings || f.length))
		return -EINVAL;
	head->seen = true;
	head->upgrade = !f.has_upgrade ? UPGRADE_NONE
			: f.websocket  ? UPGRADE_WEBSOCKET
				       : UPGRADE_OTHER;
	h->requests++;
	h->left = f.length;
	h->phase = f.codings ? HTTP_CHUNK : f.length ? HTTP_BODY : HTTP_HEAD;
	return 0;
}

/* --- the stream ------------------------------------------------------------------------------ */

static int64_t feed_head(struct http *h, const uint8_t *b, size_t n, struct http_head *head)
{
	size_t skip = 0;

	while (skip + 1 < n && b[skip] == '\r' && b[skip + 1] == '\n')
		skip += 2;
	size_t from = h->scanned > skip + 3 ? h->scanned - 3 : skip;
	const uint8_t *end = memmem(b + from, n - from, "\r\n\r\n", 4);
	h->scanned = end ? 0 : n;
	if (!end)
		return n >= HEAD_MAX ? -EMSGSIZE : 0;
	struct text t = { (const char *)b + skip, (size_t)(end + 4 - b) - skip };
	if (t.n > HEAD_MAX)
		return -EMSGSIZE;
	int r = head_parse(h, t, head);
	return r < 0 ? r : (int64_t)(skip + t.n);
}

static int64_t feed_data(struct http *h, size_t n, enum http_phase then)
{
	size_t k = h->left < n ? (size_t)h->left : n;

	h->left -= k;
	if (h->left == 0)
		h->phase = then;
	return (int64_t)k;
}

static int hex_line(const uint8_t *b, size_t n, uint64_t *ret)
{
	size_t i = 0;

	*ret = 0;
	for (; i < n && i < 16; i++) {
		uint8_t c = b[i] | 32;
		if (b[i] >= '0' && b[i] <= '9')
			*ret = *ret << 4 | (unsigned)(b[i] - '0');
		else if (c >= 'a' && c <= 'f')
			*ret = *ret << 4 | (unsigned)(c - 'a' + 10);
		else
			break;
	}
	/* Extensions have no users but those who hope that two readers see two lengths. */
	return i == 0 || i != n || i >= 16 ? -EINVAL : 0;
}

/* A line of the chunked coding, with its end; 0: more are needed. */
static int64_t whole_line(const uint8_t *b, size_t n, size_t max)
{
	const uint8_t *lf = memchr(b, '\n', n);

	if (!lf)
		return n > max ? -EMSGSIZE : 0;
	if (lf == b || lf[-1] != '\r' || memchr(b, '\r', (size_t)(lf - b) - 1))
		return -EINVAL;
	return lf + 1 - b;
}

static int64_t feed_chunk(struct http *h, const uint8_t *b, size_t n)
{
	int64_t line = whole_line(b, n, CHUNK_LINE_MAX);

	if (line <= 0)
		return line;
	if (hex_line(b, (size_t)line - 2, &h->left) < 0)
		return -EINVAL;
	h->phase = h->left ? HTTP_CHUNK_DATA : HTTP_TRAILER;
	return line;
}

static int64_t feed_chunk_end(struct http *h, const uint8_t *b, size_t n)
{
	if (n < 2)
		return n && b[0] != '\r' ? -EINVAL : 0;
	if (b[0] != '\r' || b[1] != '\n')
		return -EINVAL;
	h->phase = HTTP_CHUNK;
	return 2;
}

static int64_t feed_trailer(struct http *h, const uint8_t *b, size_t n)
{
	int64_t line = whole_line(b, n, HEAD_MAX);

	if (line == 2)
		h->phase = HTTP_HEAD;
	return line;
}

static int64_t feed(struct http *h, const uint8_t *b, size_t n, struct http_head *head)
{
	switch (h->phase) {
	case HTTP_HEAD:
		return feed_head(h, b, n, head);
	case HTTP_BODY:
		return feed_data(h, n, HTTP_HEAD);
	case HTTP_CHUNK:
		return feed_chunk(h, b, n);
	case HTTP_CHUNK_DATA:
		return feed_data(h, n, HTTP_CHUNK_END);
	case HTTP_CHUNK_END:
		return feed_chunk_end(h, b, n);
	case HTTP_TRAILER:
		return feed_trailer(h, b, n);
	}
	return -EINVAL;
}

int64_t http_feed(
	struct http *h, const uint8_t *b, size_t n, bool stop_at_head, struct http_head *head)
{
	size_t done = 0;

	*head = (struct http_head){ .port = 0 };
	while (done < n && !head->seen && !(stop_at_head && h->phase == HTTP_HEAD)) {
		int64_t k = feed(h, b + done, n - done, head);
		if (k < 0)
			return k;
		if (k == 0)
			break;
		done += (size_t)k;
	}
	return (int64_t)done;
}

uint64_t http_body_left(const struct http *h)
{
	return h->phase == HTTP_BODY || h->phase == HTTP_CHUNK_DATA ? h->left : 0;
}

void http_skip(struct http *h, uint64_t n)
{
	(void)feed_data(h, (size_t)n, h->phase == HTTP_BODY ? HTTP_HEAD : HTTP_CHUNK_END);
}
