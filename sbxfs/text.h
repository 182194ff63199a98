/* SPDX-License-Identifier: MIT */
/* A growing text, bounded. Adding never fails by itself: `failed` tells at the end. */
#ifndef SBXFS_TEXT_H
#define SBXFS_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define TEXT_MAX (64u * 1024 * 1024)

struct text {
	char *p; /* NUL-terminated when not NULL */
	size_t len, cap;
	bool failed; /* out of memory or above TEXT_MAX */
};
#define TEXT_NULL { .p = NULL }

void text_add(struct text *t, const void *buf, size_t len);
void text_str(struct text *t, const char *s);
void text_printf(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Pretty JSON with a newline at the end; control bytes are escaped by JSON itself, DEL and C1 here. */
void text_json(struct text *t, const json_t *v);
/* One JSON value on one line. */
void text_json_line(struct text *t, const json_t *v);
/* Text of others, made safe for a terminal: C0, DEL and C1 become \xNN. */
void text_safe(struct text *t, const char *s, size_t max);
void text_fini(struct text *t);

static inline void text_p(struct text *t)
{
	text_fini(t);
}
#define _cleanup_text_ __attribute__((cleanup(text_p)))

#endif
