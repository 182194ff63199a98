/* SPDX-License-Identifier: MIT */
/* Limits of resources (getrlimit(2)) of the calling process. */
#ifndef COMMON_SYS_RLIMIT_H
#define COMMON_SYS_RLIMIT_H

#include <errno.h>
#include <sys/resource.h>

/* Both of them to `most`, or to what the hard one is where that is less: downwards only, for raising takes a right that
 * not every host gives its root. RLIM_INFINITY: they stay. 0 or -errno. */
static inline int rlimit_lower(int what, rlim_t most)
{
	struct rlimit l;

	if (most == RLIM_INFINITY)
		return 0;
	if (getrlimit(what, &l) < 0)
		return -errno;
	if (l.rlim_max > most)
		l.rlim_max = most;
	l.rlim_cur = l.rlim_max;
	return setrlimit(what, &l) < 0 ? -errno : 0;
}

/* The soft one as far up as the hard one; where that does not go, it stays. */
static inline void rlimit_use_all(int what)
{
	struct rlimit l;

	if (getrlimit(what, &l) < 0)
		return;
	l.rlim_cur = l.rlim_max;
	(void)setrlimit(what, &l);
}

#endif
