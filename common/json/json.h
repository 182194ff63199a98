/* SPDX-License-Identifier: MIT */
/* Strict JSON in, JSON out; jansson underneath. Node contract, section 3 and Annex B. */
#ifndef COMMON_JSON_JSON_H
#define COMMON_JSON_JSON_H

#include "common/base/err.h"

#include <jansson.h>
#include <stddef.h>

#define JSON_BODY_MAX (1024 * 1024) /* section 2, row 5 */
#define JSON_DEPTH_MAX 64           /* section 3 */

/* Parses one JSON object. Empty or white space reads as {}. Refuses with invalid_request and a
 * message that never repeats the text: trailing data, repeated keys, invalid UTF-8, BOM, lone
 * surrogates, U+0000 in a key, depth above JSON_DEPTH_MAX (checked before the parser recurses),
 * anything but an object at the top. U+0000 in values is kept (json_string_length). */
int json_parse_object(const char *buf, size_t len, json_t **ret_object, struct err *e);
/* As json_parse_object for any answer from a server: limits depth and size, any top-level type. */
int json_parse_any(const char *buf, size_t len, size_t max, json_t **ret_value, struct err *e);
/* Text of JSON (freed, or returned) with what a terminal would take for a command, DEL and C1, as \uXXXX; C0 is
 * written so by the library. NULL when out of memory. */
char *json_visible(char *text);
/* Compact text, visible as above, caller frees; NULL when out of memory. */
char *json_text(const json_t *v);

/* base64, standard alphabet with padding. */
char *base64_encode(const void *buf, size_t len); /* caller frees */
/* Writes (len + 2) / 3 * 4 characters to `out`, no NUL; returns how many. */
size_t base64_put(const void *buf, size_t len, char *out);
/* -1 on anything that is not canonical base64. Caller frees *ret. "" gives a length of 0. */
int base64_decode(const char *text, size_t len, void **ret, size_t *ret_len);

static inline void json_p(json_t **j)
{
	json_decref(*j);
}
#define _cleanup_json_ __attribute__((cleanup(json_p)))

#endif
