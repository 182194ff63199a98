/* SPDX-License-Identifier: MIT */
/* The library's parser accepts a little more than the contract: it replaces repeated keys unless told,
 * and its recursion costs stack. Depth is therefore counted on the text before it sees any of it. */
#include "common/json/json.h"

#include "common/sys/mem.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Deepest nesting of the text, strings skipped. Broken text gives some number; the parser judges it. */
static int text_depth(const char *p, size_t len)
{
	int depth = 0, most = 0;
	bool string = false;

	for (size_t i = 0; i < len; i++) {
		if (string) {
			if (p[i] == '\\')
				i++;
			else if (p[i] == '"')
				string = false;
			continue;
		}
		if (p[i] == '"')
			string = true;
		else if (p[i] == '{' || p[i] == '[')
			most = ++depth > most ? depth : most;
		else if (p[i] == '}' || p[i] == ']')
			depth--;
	}
	return most;
}

static bool is_blank(const char *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != ' ' && p[i] != '\t' && p[i] != '\r' && p[i] != '\n')
			return false;
	return true;
}

static int parse(const char *buf, size_t len, size_t max, size_t flags, json_t **ret, struct err *e)
{
	json_error_t je;

	if (len > max)
		return err_set(e, ERR_INVALID_REQUEST, "JSON text is larger than %zu bytes", max);
	if (text_depth(buf, len) > JSON_DEPTH_MAX)
		return err_set(e, ERR_INVALID_REQUEST, "JSON is nested deeper than %d levels",
			JSON_DEPTH_MAX);
	*ret = json_loadb(buf, len, flags | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
	if (!*ret)
		/* The library's own message quotes the text, which may hold a secret. */
		return err_set(e, ERR_INVALID_REQUEST, "malformed JSON at line %d, column %d%s", je.line,
			je.column,
			json_error_code(&je) == json_error_duplicate_key ? ": repeated key" : "");
	return 0;
}

int json_parse_object(const char *buf, size_t len, json_t **ret_object, struct err *e)
{
	_cleanup_json_ json_t *v = NULL;

	if (is_blank(buf, len)) {
		*ret_object = json_object();
		return *ret_object ? 0 : err_oom(e);
	}
	if (parse(buf, len, JSON_BODY_MAX, 0, &v, e) < 0)
		return -1;
	if (!json_is_object(v))
		return err_set(e, ERR_INVALID_REQUEST, "the body must be one JSON object");
	*ret_object = steal(v);
	return 0;
}

int json_parse_any(const char *buf, size_t len, size_t max, json_t **ret_value, struct err *e)
{
	return parse(buf, len, max, JSON_DECODE_ANY, ret_value, e);
}

/* What a terminal takes for a command, and JSON lets through: DEL and C1. 0, or the bytes of it. */
static size_t unseen(const char *s)
{
	const unsigned char *p = (const unsigned char *)s;

	return p[0] == 0x7f ? 1 : p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f ? 2 : 0;
}

char *json_visible(char *text)
{
	size_t many = 0, n;
	char *out, *o;

	for (const char *p = text; *p; p++)
		many += unseen(p) > 0;
	if (!many)
		return text;
	o = out = malloc(strlen(text) + 5 * many + 1);
	for (const char *p = text; out && *p; p += n ? n : 1) {
		n = unseen(p);
		if (n)
			o += sprintf(o, "\\u%04x", (unsigned char)p[n - 1]);
		else
			*o++ = *p;
	}
	if (out)
		*o = '\0';
	free(text);
	return out;
}

/* Fifteen digits: 0.1 stays 0.1. */
char *json_text(const json_t *v)
{
	char *text = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15))
		       : NULL;

	return text ? json_visible(text) : NULL;
}

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t base64_put(const void *buf, size_t len, char *out)
{
	const unsigned char *p = buf;
	char *o = out;

	for (; len >= 3; p += 3, len -= 3) {
		uint32_t v = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
		*o++ = alphabet[v >> 18];
		*o++ = alphabet[v >> 12 & 63];
		*o++ = alphabet[v >> 6 & 63];
		*o++ = alphabet[v & 63];
	}
	if (len) {
		uint32_t v = (uint32_t)p[0] << 16 | (len > 1 ? (uint32_t)p[1] << 8 : 0);
		*o++ = alphabet[v >> 18];
		*o++ = alphabet[v >> 12 & 63];
		*o++ = len > 1 ? alphabet[v >> 6 & 63] : '=';
		*o++ = '=';
	}
	return (size_t)(o - out);
}

char *base64_encode(const void *buf, size_t len)
{
	char *out;

	if (len > SIZE_MAX / 2)
		return NULL;
	out = malloc((len + 2) / 3 * 4 + 1);
	if (out)
		out[base64_put(buf, len, out)] = '\0';
	return out;
}

static int digit(unsigned char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+')
		return 62;
	return c == '/' ? 63 : -1;
}

int base64_decode(const char *text, size_t len, void **ret, size_t *ret_len)
{
	size_t pad = 0, n;

	if (len % 4)
		return -1;
	while (pad < 2 && pad < len && text[len - 1 - pad] == '=')
		pad++;
	n = len / 4 * 3 - pad;
	_cleanup_free_ unsigned char *out = malloc(n + 3);
	if (!out)
		return -1;
	for (size_t i = 0, o = 0; i < len; i += 4, o += 3) {
		uint32_t v = 0;
		for (size_t k = 0; k < 4; k++) {
			int d = i + k >= len - pad ? 0 : digit((unsigned char)text[i + k]);
			if (d < 0)
				return -1;
			v = v << 6 | (uint32_t)d;
		}
		out[o] = (unsigned char)(v >> 16);
		out[o + 1] = (unsigned char)(v >> 8);
		out[o + 2] = (unsigned char)v;
		/* Bits behind the last byte must be zero, or two texts would mean one value. */
		if (i + 4 == len && ((pad == 1 && (v & 0xff)) || (pad == 2 && (v & 0xffff))))
			return -1;
	}
	out[n] = '\0';
	*ret = steal(out);
	*ret_len = n;
	return 0;
}
