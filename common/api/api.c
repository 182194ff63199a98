/* SPDX-License-Identifier: MIT */
#include "common/api/api.h"

#include "common/sys/mem.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The short words of routes.def's columns. */
#define GET M_GET
#define POST M_POST
#define PUT M_PUT
#define PATCH M_PATCH
#define DELETE M_DELETE
#define NONE BODY_NONE
#define JSON BODY_JSON
#define RAW BODY_RAW
#define PUBLIC ROUTE_PUBLIC
#define USE ROUTE_USE
#define STREAM ROUTE_STREAM
#define UPGRADE ROUTE_UPGRADE
const struct route routes[ROUTE_COUNT] = {
#define R(handler, m, p, c, b, f, h) \
	[ROUTE_##handler] = { ROUTE_##handler, #handler, m, p, CAP_##c, b, f, h },
#include "common/api/routes.def"
#undef R
};
#undef NONE

static const char *const method_words[] = {
	[M_GET] = "GET", [M_POST] = "POST", [M_PUT] = "PUT", [M_PATCH] = "PATCH", [M_DELETE] = "DELETE",
};

static const char *const cap_words[CAP_COUNT] = {
	[CAP_NONE] = "",
	[CAP_SNAPSHOT] = "disk_snapshot",
#define C(name, word) [CAP_##name] = word,
#include "common/api/caps.def"
#undef C
};

const char *cap_word(enum cap c)
{
	return cap_words[c];
}

enum cap cap_of_word(const char *word)
{
	for (int c = CAP_SNAPSHOT + 1; c < CAP_COUNT; c++)
		if (!strcmp(cap_words[c], word))
			return (enum cap)c;
	return CAP_NONE;
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int percent_decode(const char *in, size_t len, char *out, size_t size, size_t *ret_len)
{
	size_t o = 0;

	for (size_t i = 0; i < len; i++) {
		int c = (unsigned char)in[i];
		if (c == '%') {
			if (len - i <= 2 || hex(in[i + 1]) < 0 || hex(in[i + 2]) < 0)
				return -1;
			c = hex(in[i + 1]) << 4 | hex(in[i + 2]);
			i += 2;
		}
		if (c == 0 || o + 1 >= size)
			return -1;
		out[o++] = (char)c;
	}
	out[o] = '\0';
	if (ret_len)
		*ret_len = o;
	return 0;
}

static bool unreserved(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
	       c == '.' || c == '_' || c == '~';
}

char *percent_encode(const void *in, size_t len, const char *keep)
{
	static const char digits[] = "0123456789ABCDEF";
	const unsigned char *p = in;
	char *out, *o;

	if (len > SIZE_MAX / 4)
		return NULL;
	out = o = malloc(len * 3 + 1);
	if (!out)
		return NULL;
	for (size_t i = 0; i < len; i++) {
		if (unreserved(p[i]) || (keep && p[i] && strchr(keep, p[i]))) {
			*o++ = (char)p[i];
			continue;
		}
		*o++ = '%'; /* cppcheck-suppress uninitdata */
		*o++ = digits[p[i] >> 4];
		*o++ = digits[p[i] & 15];
	}
	*o = '\0';
	return out;
}

/* Splits off one segment: [*p, *p + returned length), *p moves behind the slash that follows. */
static const char *segment(const char **p, size_t *len)
{
	const char *start = *p, *end = strchrnul(start, '/');

	*len = (size_t)(end - start);
	*p = *end ? end + 1 : NULL;
	return start;
}

static bool take_param(struct route_match *m, const char *pat, size_t plen, const char *seg, size_t slen)
{
	size_t n = m->n;

	if (n == ROUTE_PARAMS_MAX || plen - 2 >= sizeof(m->name[0]))
		return false;
	memcpy(m->name[n], pat + 1, plen - 2);
	m->name[n][plen - 2] = '\0';
	if (slen == 0 || percent_decode(seg, slen, m->value[n], ROUTE_PARAM_LEN, NULL) < 0)
		return false;
	m->n++;
	return true;
}

static bool path_matches(const char *pattern, const char *path, struct route_match *m)
{
	m->n = 0;
	while (pattern && path) {
		size_t plen, slen;
		const char *pat = segment(&pattern, &plen);
		const char *seg = segment(&path, &slen);
		if (plen > 2 && pat[0] == '{') {
			if (!take_param(m, pat, plen, seg, slen))
				return false;
		} else {
			char plain[64];
			if (percent_decode(seg, slen, plain, sizeof(plain), NULL) < 0 ||
				strlen(plain) != plen || memcmp(plain, pat, plen))
				return false;
		}
	}
	return !pattern && !path;
}

bool route_find(const char *method, const char *raw_path, struct route_match *ret)
{
	if (!strcmp(method, "HEAD"))
		method = "GET";
	for (size_t i = 0; i < ROUTE_COUNT; i++) {
		if (strcmp(method_words[routes[i].method], method) ||
			!path_matches(routes[i].path, raw_path, ret))
			continue;
		ret->route = &routes[i];
		return true;
	}
	return false;
}

const char *route_param(const struct route_match *m, const char *name)
{
	for (size_t i = 0; i < m->n; i++)
		if (!strcmp(m->name[i], name))
			return m->value[i];
	return NULL;
}
