/* SPDX-License-Identifier: MIT */
/* Time as the contract shows it: RFC 3339, UTC, always six digits of a second. Moments that are shown
 * are whole microseconds, so that sums of them print exactly. Libc only. */
#ifndef SANDBOXD_CORE_CLOCK_H
#define SANDBOXD_CORE_CLOCK_H

#include <stdint.h>

#define CLOCK_TEXT_LEN 32

int64_t clock_wall_ns(void); /* CLOCK_REALTIME, cut to a microsecond */
int64_t clock_mono_ms(void); /* CLOCK_MONOTONIC, never 0 */
void clock_text(int64_t wall_ns, char out[CLOCK_TEXT_LEN]); /* "2026-01-31T10:20:30.123456Z" */

#endif
