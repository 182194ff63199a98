/* SPDX-License-Identifier: MIT */
/* The one error value above common/sys: its code is the API's error, chosen where the cause is
 * known. Functions return 0 and leave the error alone, or return -1 and fill it. */
#ifndef COMMON_BASE_ERR_H
#define COMMON_BASE_ERR_H

#include <stdbool.h>

enum err_code {
	ERR_NONE = 0,
#define E(name, word, status, sys) ERR_##name,
#include "common/base/errors.def"
#undef E
	ERR_COUNT
};

struct err {
	enum err_code code; /* ERR_NONE means success */
	int sys;            /* the errno behind it, 0 if there was none; shown as error.errno */
	int http;           /* overrides the code's HTTP status when not 0 (413, 415) */
	char msg[320];      /* one sentence, names the object, says what to do, no full stop */
};
#define ERR_NULL { .code = ERR_NONE }

/* All return -1, so that a caller can write `return err_set(...)`. `e` may be NULL. */
int err_set(struct err *e, enum err_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* As err_set, and remembers `sys` (an errno) for error.errno. */
int err_set_sys(struct err *e, enum err_code code, int sys, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Chooses the code from an errno by the contract's table of outcomes (ENOENT 404, EISDIR 400,
 * ENOTEMPTY 409, EROFS 409 "read-only", ENOSPC 409 ...) and appends the system's reason. */
int err_sys(struct err *e, int sys, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* unavailable, "out of memory". */
int err_oom(struct err *e);
/* No descriptor, no memory: this errno says nothing about what was asked for. */
bool err_is_short(int sys);
/* Puts a prefix before the message, keeps the code. */
int err_prefix(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

const char *err_word(enum err_code code);          /* "conflict"; never NULL */
int err_http(const struct err *e);                 /* HTTP status, 200 for ERR_NONE */
int err_errno(enum err_code code);                 /* errno of the mount's table */
enum err_code err_code_of_word(const char *word);  /* ERR_INTERNAL when unknown */
const char *err_errno_name(int sys);               /* "ENOTEMPTY", NULL when not on the list */
int err_errno_of_name(const char *name);           /* 0 when unknown */

#endif
