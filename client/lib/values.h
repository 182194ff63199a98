/* SPDX-License-Identifier: MIT */
/* What the common calls share: a struct to JSON, one request, JSON to a struct by a table of its
 * members. Nothing here is exported. */
#ifndef CLIENT_LIB_VALUES_H
#define CLIENT_LIB_VALUES_H

#include "client/lib/internal.h"

/* One member of an answer and where it goes. An optional one that is absent leaves zeros. */
struct member {
	const char *key;
	enum { MEMBER_STR, MEMBER_INT, MEMBER_NUM, MEMBER_BOOL } type;
	size_t off, size;
	bool required;
};
#define MEMBER(t, field, kind, req)                                                                \
	{ #field, kind, offsetof(struct t, field), sizeof(((struct t *)0)->field), req }
/* The same under another name on the wire. */
#define MEMBER_AS(t, field, key, kind, req)                                                        \
	{ key, kind, offsetof(struct t, field), sizeof(((struct t *)0)->field), req }

/* `out` is zeroed by the caller. False: no object, a wrong type, or a value that does not fit. */
bool values_take(json_t *o, const struct member *m, size_t n, void *out);

/* How the array under `key` becomes an array of structs. */
struct list_shape {
	const char *key;
	size_t size;
	bool (*take)(json_t *o, void *out); /* out is zeroed */
};
/* GET path (taken); *ret is one block, NULL when it is empty. */
int values_list(struct sbx *s, char *path, const struct list_shape *shape, void *ret, size_t *ret_n,
	struct sbx_error *e);
int values_of_list(json_t *list, const struct list_shape *shape, void *ret, size_t *ret_n,
	struct sbx_error *e);

/* Sends `body` (taken, may be NULL) and parses a JSON answer into *ret when that is given. `path`
 * is taken; timeout_ms as in sbx_request. */
int values_call(struct sbx *s, const char *method, char *path, json_t *body, int timeout_ms,
	json_t **ret, struct sbx_error *e);
/* The same for an answer that is one sandbox; ret may be NULL. */
int values_call_sandbox(struct sbx *s, const char *method, char *path, json_t *body, int timeout_ms,
	struct sbx_sandbox *ret, struct sbx_error *e);
int values_no_memory(struct sbx_error *e);

/* Zero and NULL are left out. */
void values_put_str(json_t *o, const char *key, const char *v);
void values_put_int(json_t *o, const char *key, int64_t v);
/* "key=value" strings as an object, strings as an array; NULL is left out. */
int values_put_pairs(json_t *o, const char *key, const char *const *list, struct sbx_error *e);
int values_put_list(json_t *o, const char *key, const char *const *list, struct sbx_error *e);

#endif
