/* SPDX-License-Identifier: MIT */
/* Inside of the inode table; only inode.c and links.c include this. */
#ifndef SBXFS_INODES_H
#define SBXFS_INODES_H

#include "sbxfs/inode.h"

#define INODE_BUCKETS 65536u
#define FILES_KNOWN   262144u /* more inodes than this: the kernel is asked to forget files */
#define FORGET_STEP   256u
#define BASES_KEPT    64u
#define INODE_BYTES   1100u /* about, with its names */

struct entry {
	struct inode inode; /* first: an inode is its entry */
	struct entry *next, *prev; /* looked up last, first */
};

struct inodes {
	pthread_mutex_t lock;
	/* under lock */
	struct inode *buckets[INODE_BUCKETS];
	struct link *links[INODE_BUCKETS]; /* by parent and name */
	struct mount *m;
	struct entry *all, *oldest;
	struct inode *root;
	/* What inode_alone was asked for last: between two lookups the kernel may forget all that was made of one,
	 * and its numbers shall stay. */
	struct inode *bases[BASES_KEPT];
	uint64_t generation;
	size_t count;
};

/* Lock held. NULL: there is no such name. */
struct link *link_at(struct inodes *t, const struct inode *parent, const char *name);
/* Lock held: frees it when nobody counts it. */
void inode_reap(struct inodes *t, struct inode *i);
/* Lock held: takes a name out of both lists and frees it; the parent's reference stays with the
 * caller. */
void link_drop(struct inodes *t, struct link *l);

#endif
