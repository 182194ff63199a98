/* SPDX-License-Identifier: MIT */
/* Texts that people write into files, as values; and values as texts. */
#ifndef SBXFS_VALUE_H
#define SBXFS_VALUE_H

#include "sbxfs/mount.h"
#include "sbxfs/text.h"

/* The text without one newline at its end, as a string of its own; NULL: it has a NUL or no memory. */
char *value_line(const char *value, size_t len);
/* A whole number in [min, max]; -EINVAL with the words. */
int value_int(struct req *q, const char *what, const char *value, size_t len, int64_t min,
	int64_t max, int64_t *ret);
/* Two whole numbers, "300 2"; the second may be left out and is then 0. */
int value_pair(struct req *q, const char *what, const char *value, size_t len, int64_t *ret_first,
	int64_t *ret_second);
/* The schedule of a sandbox or of a spec in the same form; nothing when there is none. */
void value_schedule(struct text *t, const json_t *o);
/* The lines as an array of strings; empty lines are left out. */
int value_lines(struct req *q, const char *value, size_t len, json_t **ret);
/* NAME=VALUE lines added to an object. */
int value_env(struct req *q, const char *value, size_t len, json_t *object);
/* Volumes in a sandbox, "NAME PATH rw|ro" a line, and such lines as the API's list. */
void value_mounts(struct text *t, const json_t *list);
int value_to_mounts(struct req *q, const char *value, size_t len, json_t **ret);
/* One value a line: strings without quotes, arrays one item a line, objects as JSON. */
void value_text(struct text *t, const json_t *v);
/* The keys of an object, one a line. */
void value_keys(struct text *t, json_t *object);

#endif
