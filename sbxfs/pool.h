/* SPDX-License-Identifier: MIT */
/* Threads for what may last: they come when there is work and go when there is none, so that the
 * threads which answer the kernel never wait. */
#ifndef SBXFS_POOL_H
#define SBXFS_POOL_H

struct pool;
int pool_new(struct pool **ret);
/* Waits for all work; what runs must see that the mount is stopping. */
void pool_free(struct pool *p);
/* Runs fn(arg) soon; -EAGAIN when there are too many already. */
int pool_run(struct pool *p, void (*fn)(void *), void *arg);

#endif
