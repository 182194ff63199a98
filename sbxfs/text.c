/* SPDX-License-Identifier: MIT */
/* A growing text, bounded. */
#include "sbxfs/text.h"

#include "common/api/ids.h"
#include "common/json/json.h"

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

	s = s ? json_visible(s) : NULL;
	if (!s) {
		t->failed = true;
		return;
	}
	txt_str(t, s);
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
	size_t len = strnlen(s, max), n;

	for (const char *end = s + len; s < end; s += n ? n : 1) {
		n = printable_one(s, (size_t)(end - s));
		if (n == 0)
			txt_printf(t, "\\x%02x", (unsigned char)*s);
		txt_add(t, s, n);
	}
}

void txt_fini(struct text *t)
{
	free(t->p);
	*t = (struct text)TEXT_NULL;
}
