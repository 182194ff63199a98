/* SPDX-License-Identifier: MIT */
/* What a handler gets: one request that passed the guard, its decoded body, reply functions.
 * A handler is: decode, one core call, reply. It returns 0 after a reply, or -1 with *e filled, and
 * the frame answers the error. */
#ifndef SANDBOXD_API_CALL_H
#define SANDBOXD_API_CALL_H

#include "common/api/api.h"
#include "common/api/types.h"
#include "common/http/http.h"
#include "sandboxd/core/core.h"

struct call {
	struct http_req *req;
	struct core *core;
	struct route_match match;
	bool background; /* Sandbox-Background: 1 */
	json_t *body;    /* BODY_JSON: the parsed object */
	void *state;     /* a RAW handler's own */
};
/* One entry per row of routes.def, in handlers.c: handle for NONE and JSON bodies; RAW rows have
 * begin (header seen: check and prepare, may fail), data (may fail: the answer is then the error),
 * handle (whole body there: answer), drop (once for each begin that was called, failed ones
 * included: frees c->state, which may be NULL; complete: handle returned 0; else undo what was
 * begun). */
struct handler {
	int (*handle)(struct call *c, struct err *e);
	int (*begin)(struct call *c, struct err *e);
	int (*data)(struct call *c, const void *buf, size_t len, struct err *e);
	void (*drop)(struct call *c, bool complete);
};
extern const struct handler handlers[ROUTE_COUNT];

const char *call_param(const struct call *c, const char *name);
/* First value of a query key or NULL; bad escapes and NUL are invalid_request (then -1). */
int call_query(struct call *c, const char *key, const char **ret, size_t *ret_len, struct err *e);
bool call_gone(void *call); /* has the client left? fits gone(arg) */
/* Decodes c->body by a table. */
int call_decode(struct call *c, const struct field *fields, void *ret, struct err *e);
/* Finds {ref}; referenced. */
int call_sandbox(struct call *c, struct sandbox **ret, struct err *e);
static inline bool call_use(const struct call *c)
{
	return !c->background;
}

/* Replies; all return 0. reply_json takes the value (NULL: out of memory, 500). */
int reply_json(struct call *c, int status, json_t *value);
int reply_empty(struct call *c); /* 204 */
int reply_error(struct call *c, const struct err *e);
int reply_bytes(struct call *c, int status, const void *buf, size_t len);
/* NDJSON or bytes, flushed as produced. */
int reply_stream(struct call *c, int status, const char *type, int64_t length,
	const struct http_source *src);

/* Handlers by file:
 * system.c health capabilities node · sandboxes.c create list get update delete suspend resume
 * processes.c run start list get output bytes stdin signal · attach.c attach tunnel
 * files.c file_* dir_list · fs.c fs_* · events.c events_* · images.c image_* */
#define R(handler, method, path, cap, body, flags, help)                                           \
	int handle_##handler(struct call *c, struct err *e);
#include "common/api/routes.def"
#undef R
/* RAW rows have three more, for the fields of struct handler with these names. */
#define RAW_DECL_NONE(h)
#define RAW_DECL_JSON(h)
#define RAW_DECL_RAW(h)                                                                            \
	int handle_##h##_begin(struct call *c, struct err *e);                                     \
	int handle_##h##_data(struct call *c, const void *buf, size_t len, struct err *e);         \
	void handle_##h##_drop(struct call *c, bool complete);
#define R(handler, method, path, cap, body, flags, help) RAW_DECL_##body(handler)
#include "common/api/routes.def"
#undef R

#endif
