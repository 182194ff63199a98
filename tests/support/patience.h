/* SPDX-License-Identifier: MIT */
/* How long a test waits for what must come: all deadlines pass through here, so that one setting, SLOW=N, makes
 * them N times as long on a machine that is so much slower. What must not come within a time does not. */
#ifndef TESTS_SUPPORT_PATIENCE_H
#define TESTS_SUPPORT_PATIENCE_H

#include <limits.h>
#include <stdlib.h>

static inline int patience_ms(int ms)
{
	const char *slow = getenv("SLOW");
	int factor = slow ? atoi(slow) : 1;

	if (factor <= 1 || ms <= 0)
		return ms;
	return ms > INT_MAX / factor ? INT_MAX : ms * factor;
}

#endif
