/* SPDX-License-Identifier: MIT */
#include "common/sys/spin.h"

#include "common/sys/clock.h"

#include <sched.h>

#define FIRST_US 15
#define TAKEN_US 500 /* nobody whose answer is waited for keeps the processor so long */
#define REST_US  20000
#define REST_MAX 1280000

/* Somebody else wants the processors; atomic. */
static int64_t rest_us, resting_us; /* how long nobody looks then; until when */

/* On a single processor whoever looks keeps the other from running. 0: not known yet. */
static bool alone(void)
{
	static int processors;
	int n = __atomic_load_n(&processors, __ATOMIC_RELAXED);
	cpu_set_t set;

	if (!n) {
		n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
		__atomic_store_n(&processors, n, __ATOMIC_RELAXED);
	}
	return n < 2;
}

static void taken(int64_t now)
{
	int64_t rest = __atomic_load_n(&rest_us, __ATOMIC_RELAXED);
	int64_t last = __atomic_load_n(&resting_us, __ATOMIC_RELAXED);

	rest = !rest || now - last > REST_MAX * 2 ? REST_US : rest < REST_MAX ? rest * 8 : REST_MAX;
	__atomic_store_n(&rest_us, rest, __ATOMIC_RELAXED);
	__atomic_store_n(&resting_us, now + rest, __ATOMIC_RELAXED);
}

void spin_begin(struct spin *s)
{
	s->began_us = s->looked_us = clock_mono_us();
}

bool spin_goes_on(struct spin *s)
{
	int64_t now;

	if (s->looked_us - s->began_us >= s->window_us ||
		s->began_us < __atomic_load_n(&resting_us, __ATOMIC_RELAXED))
		return false;
	(void)sched_yield();
	now = clock_mono_us();
	if (now - s->looked_us > TAKEN_US)
		taken(now);
	s->looked_us = now;
	return true; /* it may have come meanwhile */
}

void spin_end(struct spin *s)
{
	int64_t took = clock_mono_us() - s->began_us;

	if (took > SPIN_US)
		s->window_us = took > SPIN_US * 4 ? 0 : s->window_us / 2;
	else if (!alone())
		s->window_us = !s->window_us ? FIRST_US : s->window_us * 2 < SPIN_US ? s->window_us * 2 : SPIN_US;
}
