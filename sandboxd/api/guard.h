/* SPDX-License-Identifier: MIT */
/* What is checked before any handler: node contract, section 2, in its order. */
#ifndef SANDBOXD_API_GUARD_H
#define SANDBOXD_API_GUARD_H

#include "common/api/api.h"
#include "common/http/http.h"
#include "common/json/schema.h"

#define RAW_BODY_MAX (64u * 1024 * 1024)

/* Rows 1 and 2. *ret_cors: the origin is a configured one and wants its headers. */
int guard_origin(struct http_req *r, const struct strlist *hosts, const struct strlist *origins,
	bool *ret_cors, struct err *e);
/* Row 3; token NULL: none is configured. */
int guard_token(struct http_req *r, const char *token, struct err *e);
/* Rows 4 and 5, from the header alone; a chunked body is counted while it comes. */
int guard_body(struct http_req *r, const struct route *route, struct err *e);
int guard_conditions(struct http_req *r, const struct route *route, struct err *e);
/* Pure parts, for tests. */
bool guard_host_ok(const char *host, const struct strlist *allowed);
bool guard_bearer_ok(const char *authorization, const char *token);

#endif
