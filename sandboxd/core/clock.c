/* SPDX-License-Identifier: MIT */
/* Wall time for people and lifetimes, monotonic time for idle clocks: a stepped wall clock must not
 * end anybody's sandbox as idle. */
#include "sandboxd/core/clock.h"

#include <stdio.h>
#include <time.h>

int64_t clock_wall_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec / 1000 * 1000;
}

int64_t clock_mono_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000 + 1;
}

void clock_text(int64_t wall_ns, char out[CLOCK_TEXT_LEN])
{
	time_t sec = (time_t)(wall_ns / 1000000000);
	struct tm tm;
	size_t n;

	gmtime_r(&sec, &tm);
	n = strftime(out, CLOCK_TEXT_LEN, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out + n, CLOCK_TEXT_LEN - n, ".%06dZ", (int)(wall_ns % 1000000000 / 1000));
}
