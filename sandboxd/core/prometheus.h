/* SPDX-License-Identifier: MIT */
/* The server's own figures in Prometheus' text format (node contract, 26.5): a table of names, what each
 * counts, and a function that prints its samples. */
#ifndef SANDBOXD_CORE_PROMETHEUS_H
#define SANDBOXD_CORE_PROMETHEUS_H

#include "common/base/err.h"

#include <stdint.h>

#define PROMETHEUS_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct core;
struct create_counts; /* how creates ended, and how long those took that went well */

struct create_counts *create_counts_new(void); /* NULL: out of memory */
void create_counts_free(struct create_counts *n);
void create_counted(struct core *c, enum err_code code, int64_t ns); /* any thread */

/* The whole page; caller frees. NULL: out of memory. */
char *prometheus_text(struct core *c);

#endif
