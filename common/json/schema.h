/* SPDX-License-Identifier: MIT */
/* Field tables: a JSON object into a C struct, checked. A table names every key that is allowed;
 * any other key is a 400 that names it. `null` is absent. */
#ifndef COMMON_JSON_SCHEMA_H
#define COMMON_JSON_SCHEMA_H

#include "common/json/json.h"

#include <stdbool.h>
#include <stdint.h>

/* What the C member must be:
 * STR  char * (owned, no U+0000)      INT  int64_t           NUM  double        BOOL bool
 * B64  struct blob (owned)            STRS struct strlist    MAP  struct strmap
 * OBJ  decoded by .sub at the member  OBJS struct objlist (elements of .size, decoded by .sub)
 * ANY  json_t * (owned reference)     MODE uint32_t, a number or an octal string "0644" */
enum field_type { F_STR, F_INT, F_NUM, F_BOOL, F_B64, F_STRS, F_MAP, F_OBJ, F_OBJS, F_ANY, F_MODE };

struct blob { void *data; size_t len; };
struct strlist { char **v; size_t n; };           /* v has n entries and a final NULL */
struct strmap { char **keys; char **values; size_t n; };
struct objlist { void *v; size_t n; };

struct field {
	const char *name;
	enum field_type type;
	size_t offset;
	size_t has;          /* offset of a bool set when the key is present and not null; SIZE_MAX: none */
	bool required;
	int64_t min, max;    /* INT: inclusive range when max > min; STR: most bytes; lists: most entries */
	const struct field *sub;
	size_t size;         /* OBJS: size of one element */
};
#define FIELD(st, member, ty, ...) \
	{ .name = #member, .type = (ty), .offset = offsetof(struct st, member), .has = SIZE_MAX, __VA_ARGS__ }
/* As FIELD, for a member `has_<member>` of type bool beside it. */
#define FIELD_HAS(st, member, ty, ...) \
	{ .name = #member, .type = (ty), .offset = offsetof(struct st, member), \
	  .has = offsetof(struct st, has_##member), __VA_ARGS__ }
#define FIELDS_END { .name = NULL }

/* Fills a zeroed struct. On failure nothing stays allocated. The message names the field by its
 * path ("network.allow[2]"), never its value. */
int schema_decode(const struct field *fields, json_t *object, void *ret_struct, struct err *e);
/* Frees what schema_decode allocated; the struct is zeroed. */
void schema_free(const struct field *fields, void *st);

#endif
