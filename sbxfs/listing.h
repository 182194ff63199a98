/* SPDX-License-Identifier: MIT */
/* The entries of one guest directory at one moment, with attributes. Whoever reads the directory gets
 * one; lookups that come close together are answered from it for a short while, so that `ls -l` and
 * `git status` do not ask about every name. What is not in it is asked for all the same: it may have
 * been made since. */
#ifndef SBXFS_LISTING_H
#define SBXFS_LISTING_H

#include "sbxfs/treefs.h"

#define LISTED_MAX 2000000 /* entries of all listings of a mount; 200 bytes each */
#define KEPT_MAX   262144  /* of those that no reader holds */
#define KEPT_MS    60000   /* not used for so long: given back */

struct listed_file {
	const char *name, *target; /* in the listing's text; no link: NULL */
	struct stat st;
	struct tree_id id;
};
/* Fixed once it is made, but for what is said; shared by reference. */
struct listing {
	atomic_uint refs;
	uint64_t at_ms, gen, changes;
	unsigned of_dir; /* changes of ours in the directory, when it was asked for */
	struct tree_stamp stamp;
	size_t n;
	struct listed_file *v; /* in the server's order */
	uint32_t *sorted;
	struct listed_text *text;
	struct mount *m;
	atomic_uint_fast64_t used_ms;
	atomic_uint_fast64_t hits;     /* lookups that it answered */
	atomic_bool walked;            /* what is below was asked for (tree_walk.c) */
	atomic_uint_fast64_t shown_ms; /* when the kernel got all of it, with attributes, to keep */
	struct inode *home;          /* whose own it is; under the lock of m->listings, as are the next */
	struct listing *next, *prev; /* newest first */
};

/* Fetches; more entries than max: -E2BIG; more than LISTED_MAX with the others: -ENOMEM. */
int listing_fetch(struct req *q, struct inode *dir, size_t max, struct listing **ret);
/* The same as the directory's own; from a watch when it tells that nothing has changed. Far away one fetches,
 * and others wait for that. */
int listing_get(struct req *q, struct inode *dir, size_t max, struct listing **ret);
struct listing *listing_ref(struct listing *l);
void listing_unref(struct listing *l); /* NULL is fine */
/* NULL: not in it. */
const struct listed_file *listing_find(const struct listing *l, const char *name);
/* Attributes of an entry; the target stays the listing's. */
struct tree_attr listing_attr(const struct listing *l, const struct listed_file *f);

/* The directory's own, however old it is. Referenced, or NULL. *ret_long, unless NULL: it is not to be had. */
struct listing *listing_own(struct inode *dir, bool *ret_long);
/* The directory's own, when it is young and we have changed nothing since. Referenced, or NULL. */
struct listing *listing_recent(struct req *q, struct inode *dir);
/* The same when a watch tells that nothing has changed since, however old it is. */
struct listing *listing_watched(struct req *q, struct inode *dir);
/* Makes it the directory's own. */
void listing_keep(struct inode *dir, struct listing *l);
/* It has none any more. */
void listing_drop(struct mount *m, struct inode *dir);
/* Gives back what nobody has used for long. */
void listings_tidy(struct mount *m);
/* A name that is there had to be asked for. */
void listing_missed(struct inode *dir);
/* There were so many just now that a listing is cheaper. What is not there does not count: who makes
 * many files asks for each name once, and what he makes changes the listing. */
bool listing_wanted(struct mount *m, struct inode *dir);
/* Somebody goes through a tree that is far away: the directory above was listed as well. */
bool listing_is_walk(struct mount *m, struct inode *dir);
/* It has more entries than are fetched for the sake of lookups. */
void listing_too_long(struct inode *dir);

#endif
