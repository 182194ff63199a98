/* SPDX-License-Identifier: MIT */
/* The API as an application of common/http: the guard in front of every handler, and the frame that
 * calls one. One of these per daemon. */
#ifndef SANDBOXD_API_SERVER_H
#define SANDBOXD_API_SERVER_H

#include "common/http/http.h"
#include "common/json/schema.h"

struct core;
struct api_conf {
	struct core *core;              /* outlives the api */
	struct strlist allowed_hosts;   /* borrowed; besides the loopback names */
	struct strlist allowed_origins; /* borrowed; exact strings */
};
struct api;
int api_new(const struct api_conf *conf, struct api **ret, struct err *e);
void api_free(struct api *a); /* after http_server_stop */
/* NULL: no token is asked for. Copied; may be called while requests run. */
int api_set_token(struct api *a, const char *token, struct err *e);
struct http_app api_app(struct api *a);

#endif
