/* SPDX-License-Identifier: MIT */
/* Freed memory goes back to the system. malloc keeps what is freed, each thread's apart, where it would add up after
 * a walk through a large tree. So those who free much count it here; a lot goes back while the kernel forgets, the
 * rest when the mount tidies up. One count for the process, as malloc is one. By any thread, under any lock. */
#ifndef SBXFS_MEMORY_H
#define SBXFS_MEMORY_H

#include <stddef.h>

struct pool;

/* About so many. */
void memory_freed(size_t bytes);
/* A lot was freed: a thread of the pool gives it back. */
void memory_relieve(struct pool *pool);
/* Now and then, from the flusher; takes milliseconds when there is something to give back. */
void memory_tidy(void);

#endif
