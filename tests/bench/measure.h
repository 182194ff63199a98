/* SPDX-License-Identifier: MIT */
/* What the measuring programs have in common. */
#ifndef TESTS_BENCH_MEASURE_H
#define TESTS_BENCH_MEASURE_H

#include "client/include/sbx.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

__attribute__((noreturn)) static inline void die(const char *what, const char *why)
{
	fprintf(stderr, "bench: %s: %s\n", what, why);
	exit(1);
}

static inline int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* `call` puts its error into `e`. */
#define CHECK(what, call)                                                                          \
	do {                                                                                       \
		struct sbx_error e;                                                                \
		if ((call) < 0)                                                                    \
			die(what, e.message);                                                      \
	} while (0)

#endif
