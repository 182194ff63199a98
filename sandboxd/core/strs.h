/* SPDX-License-Identifier: MIT */
/* Lists and maps of strings as the core keeps them. Copies own their strings; the functions that
 * allocate return 0 or -1 (out of memory) and leave nothing half done. */
#ifndef SANDBOXD_CORE_STRS_H
#define SANDBOXD_CORE_STRS_H

#include "common/json/schema.h"

#include <stdbool.h>

void strs_free(struct strlist *l);
int strs_copy(const struct strlist *from, struct strlist *ret);
int strs_add(struct strlist *l, const char *s);
void strs_sort_unique(struct strlist *l);
bool strs_has(const struct strlist *l, const char *s);
bool strs_equal(const struct strlist *a, const struct strlist *b);
json_t *strs_json(const struct strlist *l);
int strs_from_json(const json_t *a, struct strlist *ret); /* -1 also for what is no string */

void map_free(struct strmap *m); /* overwrites the values first: they may be secrets */
int map_copy(const struct strmap *from, struct strmap *ret);
void map_sort(struct strmap *m); /* by key */
const char *map_get(const struct strmap *m, const char *key); /* NULL when absent */
json_t *map_json(const struct strmap *m);
int map_from_json(const json_t *o, struct strmap *ret);
json_t *map_names_json(const struct strmap *m); /* sorted */

#endif
