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

void txt_add(struct text *t, const void *buf, size_t len);
void txt_str(struct text *t, const char *s);
void txt_printf(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Pretty JSON with a newline at the end; control bytes are escaped by JSON itself, DEL and C1 here. */
void txt_json(struct text *t, const json_t *v);
/* One JSON value on one line. */
void txt_json_line(struct text *t, const json_t *v);
/* Text of others, made safe for a terminal: controls, and bytes that are no UTF-8, become \xNN. */
void txt_safe(struct text *t, const char *s, size_t max);
void txt_fini(struct text *t);

static inline void txt_p(struct text *t)
{
	txt_fini(t);
}
#define _cleanup_text_ __attribute__((cleanup(txt_p)))

#endif
