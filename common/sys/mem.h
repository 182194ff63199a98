/* SPDX-License-Identifier: MIT */
/* Scope-exit clean-up and ownership helpers. Libc only. */
#ifndef COMMON_SYS_MEM_H
#define COMMON_SYS_MEM_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define _cleanup_(f) __attribute__((cleanup(f)))

/* Hands a pointer on and clears the variable, so that its clean-up does nothing. */
#define steal(p)                                   \
	__extension__({                            \
		__typeof__(p) stolen_ = (p);       \
		(p) = NULL;                        \
		stolen_;                           \
	})
static inline int steal_fd(int *fd)
{
	int n = *fd;

	*fd = -1;
	return n;
}

/* Overwrites a secret, then frees it; NULL is fine. */
static inline void wipe_free(char *s)
{
	if (s)
		explicit_bzero(s, strlen(s));
	free(s);
}
static inline void free_p(void *p)
{
	free(*(void **)p);
}
static inline void close_p(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}
#define _cleanup_free_ _cleanup_(free_p)
#define _cleanup_close_ _cleanup_(close_p)

#endif
