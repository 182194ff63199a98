/* SPDX-License-Identifier: MIT */
/* The command line as a struct, filled by the table in options.def. */
#ifndef SANDBOXD_OPTIONS_H
#define SANDBOXD_OPTIONS_H

#include "common/base/err.h"
#include "common/json/schema.h"

#include <stdbool.h>
#include <stdint.h>

typedef char *opt_STR;           /* borrowed from argv or NULL */
typedef struct strlist opt_LIST; /* entries borrowed from argv */
typedef int64_t opt_INT;         /* 0: not given */
typedef double opt_NUM;
typedef bool opt_FLAG;

struct options {
#define O(member, flag, kind, arg, help) opt_##kind member;
#include "sandboxd/options.def"
#undef O
};

/* argv must outlive the struct. Refuses unknown flags, stray words and bad numbers. */
int options_parse(int argc, char **argv, struct options *ret, struct err *e);
void options_free(struct options *o);
void options_usage(void); /* the table, to stdout */

#endif
