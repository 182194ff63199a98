/* SPDX-License-Identifier: MIT */
/* Syntax of identifiers: node contract, section 7. All functions are pure. */
#ifndef COMMON_API_IDS_H
#define COMMON_API_IDS_H

#include "common/base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define SBX_ID_MAX 64      /* "sbx_" [node "_"] 16 hex digits, with NUL */
#define SNP_ID_MAX 24      /* "snp_" 16 hex digits, with NUL */
#define NAME_MAX_LEN 63
#define LABELS_MAX 32
#define LABEL_VALUE_MAX 256
#define GUEST_PATH_MAX 4096

bool id_is_sandbox(const char *s);               /* sbx_ + 16 hex, or sbx_node_ + 16 hex */
void id_new_sandbox(const char *node, char out[SBX_ID_MAX]); /* 8 random bytes; node may be "" */
bool id_is_snapshot(const char *s);              /* snp_ + 16 hex */
void id_new_snapshot(char out[SNP_ID_MAX]);
bool name_ok(const char *s);                     /* ^[a-z0-9][a-z0-9-]{0,62}$ */
bool node_name_ok(const char *s);                /* ^[a-z0-9][a-z0-9-]{0,30}$ */
bool process_name_ok(const char *s);             /* ^[a-z][a-z0-9._-]{0,62}$ */
bool label_key_ok(const char *s);
bool label_value_ok(const char *s);              /* bytes, UTF-8, no controls */
bool image_ref_ok(const char *s);
bool env_name_ok(const char *s);
bool env_name_reserved(const char *s);
bool utf8_ok(const char *s, size_t len);
/* Bytes of the character at s that a terminal shows; 0: it is a control, or no UTF-8. */
size_t printable_one(const char *s, size_t len);
/* Checks and cleans a guest path into out (GUEST_PATH_MAX bytes): absolute, no NUL, no "..".
 * `len` counts all bytes, so an embedded NUL is seen. invalid_request otherwise; `what` names the
 * field in the message ("path", "cwd"). */
int guest_path_clean(const char *path, size_t len, const char *what, char *out, struct err *e);
/* 9.2: trims, lower-cases, drops one trailing dot, checks. Caller frees *ret. */
int host_name_clean(const char *in, char **ret, struct err *e);
/* Does a plain or wildcard entry match under a pattern (9.3: equal or broader)? */
bool host_pattern_covers(const char *pattern, const char *entry);

#endif
