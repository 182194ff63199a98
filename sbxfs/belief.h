/* SPDX-License-Identifier: MIT */
/* Which names outside of the guests' trees the kernel may believe. */
#ifndef SBXFS_BELIEF_H
#define SBXFS_BELIEF_H

#include "sbxfs/mount.h"

struct inode;
/* Taken before a name is looked up. */
struct doubt {
	uint64_t gen, list_gen;
};
struct doubt belief_now(struct mount *m);
/* For how long, in seconds, may the kernel believe that the name leads to the sandbox `box`, or into it? 0 when
 * something has changed since. */
double belief_secs(struct mount *m, const struct inode *dir, const char *name, const char *box,
	struct doubt since);
/* Something has changed, after it was counted (gen, list_gen), or changes are not heard of any more. */
void belief_end(struct mount *m);
/* The sandbox `box` stands in the root as `entry` now, or has ended (""), and this has been counted: only what
 * speaks against that ends. */
void belief_told(struct mount *m, const char *box, const char *entry);

#endif
