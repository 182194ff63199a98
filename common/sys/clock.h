/* SPDX-License-Identifier: MIT */
/* The clock by which waits are measured: it never jumps. */
#ifndef COMMON_SYS_CLOCK_H
#define COMMON_SYS_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t clock_mono_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

#endif
