/* SPDX-License-Identifier: MIT */
/* The TLS hello and the guess at what is spoken. A hello has to lie whole in its first record: one
 * that is spread over several is no client's habit, only a way past readers like this one. */
#include "sandboxd/egress/head.h"
#include "sandboxd/egress/policy.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define RECORD_HANDSHAKE 22
#define CLIENT_HELLO     1
#define EXT_SERVER_NAME  0
#define EXT_ECH          0xfe0d
#define EXT_ESNI         0xffce
#define LINE_SNIFFED     8192 /* longer ones are for the HTTP reader to refuse */

struct cursor {
	const uint8_t *p, *end;
	bool bad;
};

static size_t left(const struct cursor *c)
{
	return (size_t)(c->end - c->p);
}

static uint32_t number(struct cursor *c, unsigned bytes)
{
	uint32_t v = 0;

	if (c->bad || left(c) < bytes) {
		c->bad = true;
		return 0;
	}
	while (bytes--)
		v = v << 8 | *c->p++;
	return v;
}

/* The part behind a length of `bytes` bytes. */
static struct cursor part(struct cursor *c, unsigned bytes)
{
	uint32_t n = number(c, bytes);
	struct cursor in = { c->p, c->p, false };

	if (c->bad || left(c) < n) {
		c->bad = in.bad = true;
		return in;
	}
	c->p += n;
	in.end = c->p;
	return in;
}

/* Exactly one name of the one kind there is. */
static int server_name(struct cursor ext, struct hello *ret)
{
	struct cursor list = part(&ext, 2);
	uint32_t kind = number(&list, 1);
	struct cursor name = part(&list, 2);

	if (ext.bad || list.bad || left(&ext) || left(&list) || kind != 0 || ret->name[0])
		return -EINVAL;
	return name_clean((const char *)name.p, left(&name), ret->name);
}

static int extensions(struct cursor all, struct hello *ret)
{
	while (left(&all) && !all.bad) {
		uint32_t type = number(&all, 2);
		struct cursor ext = part(&all, 2);
		if (all.bad)
			break;
		if (type == EXT_SERVER_NAME && server_name(ext, ret) < 0)
			return -EINVAL;
		if (type == EXT_ECH || type == EXT_ESNI)
			ret->hidden = true;
	}
	return all.bad ? -EINVAL : 1;
}

static int client_hello(struct cursor c, struct hello *ret)
{
	(void)number(&c, 2); /* version */
	if (c.bad || left(&c) < 32)
		return -EINVAL;
	c.p += 32;
	struct cursor session = part(&c, 1);
	(void)part(&c, 2); /* ciphers */
	(void)part(&c, 1); /* compressions */
	if (c.bad || left(&session) > 32)
		return -EINVAL;
	if (!left(&c))
		return 1;
	struct cursor all = part(&c, 2);
	if (c.bad || left(&c))
		return -EINVAL;
	return extensions(all, ret);
}

int hello_parse(const uint8_t *b, size_t n, struct hello *ret)
{
	struct cursor c = { b, b + n, false };

	*ret = (struct hello){ .hidden = false };
	if (n < 5)
		return 0;
	size_t record = (size_t)b[3] << 8 | b[4];
	if (b[0] != RECORD_HANDSHAKE || b[1] != 3 || record < 4 || record > HELLO_MAX - 5)
		return -EINVAL;
	if (n >= 6 && b[5] != CLIENT_HELLO)
		return -EINVAL;
	if (n < 5 + record)
		return 0;
	c.p += 6;
	c.end = b + 5 + record;
	struct cursor body = part(&c, 3);
	if (c.bad || left(&c))
		return -EINVAL;
	return client_hello(body, ret);
}

static bool token_char(uint8_t c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
	       (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool space(uint8_t c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool says_http(const uint8_t *b, size_t n)
{
	for (size_t i = 0; i + 5 <= n; i++)
		if ((b[i] | 32) == 'h' && strncasecmp((const char *)b + i, "http/", 5) == 0)
			return true;
	return false;
}

/* A first line that the most lenient of servers could take for a request: space before it, any word
 * as a method, any length. What cannot be one is told as early as possible. */
static enum sniff sniff_line(const uint8_t *b, size_t n)
{
	size_t i = 0, end;

	while (i < n && space(b[i]))
		i++;
	if (i < n && !token_char(b[i]))
		return SNIFF_OTHER;
	for (end = i; end < n && b[end] != '\n'; end++)
		if ((b[end] < ' ' && !space(b[end])) || b[end] == 127)
			return SNIFF_OTHER;
	if (says_http(b + i, end - i) || (end == n && n >= LINE_SNIFFED))
		return SNIFF_HTTP;
	return end == n ? SNIFF_MORE : SNIFF_OTHER;
}

enum sniff sniff(const uint8_t *b, size_t n)
{
	if (n == 0)
		return SNIFF_MORE;
	if (b[0] == RECORD_HANDSHAKE)
		return n < 2 ? SNIFF_MORE : b[1] == 3 ? SNIFF_TLS : SNIFF_OTHER;
	return sniff_line(b, n);
}
