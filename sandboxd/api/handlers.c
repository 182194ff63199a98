/* SPDX-License-Identifier: MIT */
/* The routes' handlers, one row an endpoint, expanded from the contract. */
#include "sandboxd/api/call.h"

#define ROW_NONE(h) { .handle = handle_##h }
#define ROW_JSON(h) { .handle = handle_##h }
#define ROW_RAW(h)                                                                      \
	{ .handle = handle_##h, .begin = handle_##h##_begin, .data = handle_##h##_data, \
	  .drop = handle_##h##_drop }

const struct handler handlers[ROUTE_COUNT] = {
#define R(handler, method, path, cap, body, flags, help) [ROUTE_##handler] = ROW_##body(handler),
#include "common/api/routes.def"
#undef R
};
