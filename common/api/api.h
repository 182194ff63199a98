/* SPDX-License-Identifier: MIT */
/* The contract as enums and tables, expanded from routes.def and caps.def. */
#ifndef COMMON_API_API_H
#define COMMON_API_API_H

#include <stdbool.h>
#include <stddef.h>

enum cap {
	CAP_NONE = 0,
	CAP_SNAPSHOT, /* memory_snapshot or disk_snapshot */
#define C(name, word) CAP_##name,
#include "common/api/caps.def"
#undef C
	CAP_COUNT
};
enum route_id {
#define R(handler, method, path, cap, body, flags, help) ROUTE_##handler,
#include "common/api/routes.def"
#undef R
	ROUTE_COUNT
};
enum route_method { M_GET, M_POST, M_PUT, M_PATCH, M_DELETE };
enum route_body { BODY_NONE, BODY_JSON, BODY_RAW };
enum route_flags { ROUTE_PUBLIC = 1, ROUTE_USE = 2, ROUTE_STREAM = 4, ROUTE_UPGRADE = 8 };

#define ROUTE_PARAMS_MAX 3
#define ROUTE_PARAM_LEN 768 /* decoded bytes, with the final NUL */

struct route {
	enum route_id id;
	const char *name; /* "sandbox_create" */
	enum route_method method;
	const char *path; /* pattern, "{ref}" for one segment */
	enum cap cap;
	enum route_body body;
	unsigned flags;
	const char *help;
};
extern const struct route routes[ROUTE_COUNT];

/* Parameters of one match, decoded; may hold any byte but NUL. */
struct route_match {
	const struct route *route;
	size_t n;
	char name[ROUTE_PARAMS_MAX][16];
	char value[ROUTE_PARAMS_MAX][ROUTE_PARAM_LEN];
};
/* Finds the row for a method word ("HEAD" finds GET rows) and a raw, undecoded path without the
 * query. Segments are split first and decoded once after. False: no such route (404). */
bool route_find(const char *method, const char *raw_path, struct route_match *ret);
/* A decoded parameter of a match; NULL when the route has none of that name. */
const char *route_param(const struct route_match *m, const char *name);
/* Decodes %XX once, in place or to `out` of `size` bytes; "+" stays. -1: bad escape, NUL, too long. */
int percent_decode(const char *in, size_t len, char *out, size_t size, size_t *ret_len);
/* RFC 3986 unreserved bytes stay, everything else becomes %XX; `keep` names further bytes to keep.
 * Caller frees. */
char *percent_encode(const void *in, size_t len, const char *keep);

const char *cap_word(enum cap c); /* "disk_snapshot"; for CAP_SNAPSHOT too */
enum cap cap_of_word(const char *word); /* CAP_NONE when unknown */

#endif
