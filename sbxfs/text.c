/* SPDX-License-Identifier: MIT */
/* A growing text, bounded. */
#include "sbxfs/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool txt_room(struct text *t, size_t more)
{
	size_t want, cap;
	char *p;

	if (t->failed || more > TEXT_MAX - t->len) {
		t->failed = true;
		return false;
	}
	want = t->len + more + 1;
	if (want <= t->cap)
		return true;
	cap = t->cap ? t->cap : 256;
	while (cap < want)
		cap *= 2;
	p = realloc(t->p, cap);
	if (!p) {
		t->failed = true;
		return false;
	}
	t->p = p;
	t->cap = cap;
	return true;
}

void txt_add(struct text *t, const void *buf, size_t len)
{
	if (!txt_room(t, len))
		return;
	if (len)
		memcpy(t->p + t->len, buf, len);
	t->len += len;
	t->p[t->len] = '\0';
}

void txt_str(struct text *t, const char *s)
{
	txt_add(t, s, strlen(s));
}

void txt_printf(struct text *t, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0 || !txt_room(t, (size_t)n))
		return;
	va_start(ap, fmt);
	(void)vsnprintf(t->p + t->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	t->len += (size_t)n;
}

static void json_dump_safe(struct text *t, const json_t *v, size_t flags)
{
	char *s = json_dumps(v, flags | JSON_ENCODE_ANY);
	const char *p, *from;

	if (!s) {
		t->failed = true;
		return;
	}
	for (p = from = s; *p; p++) {
		unsigned char c = (unsigned char)*p, d = (unsigned char)p[1];
		bool c1 = c == 0xc2 && d >= 0x80 && d <= 0x9f;

		if (c != 0x7f && !c1)
			continue;
		txt_add(t, from, (size_t)(p - from));
		txt_printf(t, "\\u%04x", c1 ? d : c);
		p += c1;
		from = p + 1;
	}
	txt_str(t, from);
	txt_str(t, "\n");
	free(s);
}

void txt_json(struct text *t, const json_t *v)
{
	json_dump_safe(t, v, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
}

void txt_json_line(struct text *t, const json_t *v)
{
	json_dump_safe(t, v, JSON_COMPACT | JSON_REAL_PRECISION(15));
}

void txt_safe(struct text *t, const char *s, size_t max)
{
	for (; *s && max; s++, max--) {
		unsigned char c = (unsigned char)*s, d = (unsigned char)s[1];

		if (c < 0x20 || c == 0x7f)
			txt_printf(t, "\\x%02x", c);
		else if (c == 0xc2 && d >= 0x80 && d <= 0x9f)
			txt_printf(t, "\\x%02x", (unsigned char)*++s);
		else
			txt_add(t, s, 1);
	}
}

void txt_fini(struct text *t)
{
	free(t->p);
	*t = (struct text)TEXT_NULL;
}
