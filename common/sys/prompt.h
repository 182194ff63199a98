/* SPDX-License-Identifier: MIT */
/* Being served soon on a machine whose processors are all taken. Who answers works for some microseconds and
 * waits again; with a slice as short as that a fair scheduler lets it run before those who work on, and takes
 * nobody's share for it. Kernels before 6.12 know no slice of a task's own: there this does nothing. */
#ifndef COMMON_SYS_PROMPT_H
#define COMMON_SYS_PROMPT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PROMPT_SLICE_NS 100000 /* the kernel's least */

/* The calling thread; what it starts afterwards has the same, or, with `alone`, nothing of it. Its class and its
 * niceness stay. */
static inline void prompt_self(bool alone)
{
	struct { /* the kernel's struct sched_attr in its first form */
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} a = { 0 };

	if (syscall(SYS_sched_getattr, 0, &a, sizeof(a), 0) != 0 || a.policy != 0 /* SCHED_OTHER */)
		return;
	a.flags = alone ? 1 : 0; /* SCHED_FLAG_RESET_ON_FORK */
	a.runtime = PROMPT_SLICE_NS;
	(void)syscall(SYS_sched_setattr, 0, &a, 0);
}

#endif
