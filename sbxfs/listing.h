/* SPDX-License-Identifier: MIT */
/* The entries of one guest directory at one moment, with attributes. Whoever reads the directory gets
 * one; lookups that come close together are answered from it for a short while, so that `ls -l` and
 * `git status` do not ask about every name. What is not in it is asked for all the same: it may have
 * been made since. */
#ifndef SBXFS_LISTING_H
#define SBXFS_LISTING_H

#include "sbxfs/treefs.h"

struct listed_file {
	char *name;
	struct tree_attr attr;
};
/* Fixed once it is made; shared by reference. */
struct listing {
	atomic_uint refs;
	uint64_t at_ms, gen, changes;
	struct tree_stamp stamp;
	size_t n;
	struct listed_file *v;  /* in the server's order */
	struct listed_file **sorted;
};

/* Fetches; more entries than max: -E2BIG. */
int listing_fetch(struct req *q, struct inode *dir, size_t max, struct listing **ret);
struct listing *listing_ref(struct listing *l);
void listing_unref(struct listing *l); /* NULL is fine */
/* NULL: not in it. */
const struct listed_file *listing_find(const struct listing *l, const char *name);

/* The directory's own, when it is young and we have changed nothing since. Referenced, or NULL. */
struct listing *listing_recent(struct req *q, struct inode *dir);
/* The same when a watch tells that nothing has changed since, however old it is. */
struct listing *listing_watched(struct req *q, struct inode *dir);
/* Makes it the directory's own. */
void listing_keep(struct inode *dir, struct listing *l);
/* Counts a lookup; true when there were so many just now that a listing is cheaper. */
bool listing_wanted(struct inode *dir);

#endif
