/* SPDX-License-Identifier: MIT */
/* Open files and directories: what fi->fh points to. */
#ifndef SBXFS_HANDLE_H
#define SBXFS_HANDLE_H

#include "sbxfs/inode.h"
#include "sbxfs/nodes.h"

struct feed;
struct tree_file;
struct listing;

struct handle {
	struct inode *inode; /* referenced */
	int flags;           /* of the open */
	pthread_mutex_t lock;
	struct handle *next, *prev; /* all of the mount; under its lock */

	/* under lock: control files */
	struct text doc;     /* collected so far */
	int pending;         /* -errno that the next write is to get */
	pid_t writer;        /* the last one: what it began is over when it closes */
	bool failed, done, wrote;
	bool unended;        /* what the last write carried out had no newline yet */

	atomic_size_t cursor; /* reads of a read-write handle */

	/* streams */
	struct feed *feed;   /* fixed */
	uint64_t pos;        /* under the feed's lock */

	/* directories: a snapshot, under lock */
	struct lister list;
	bool listed;
	bool plus; /* read with attributes so far */

	struct tree_file *file; /* guest tree */
	struct listing *dir;    /* guest directory: what is being read; under lock */
};

struct handle *handle_new(struct mount *m, struct inode *i, int flags);
void handle_free(struct mount *m, struct handle *h);
/* What is still open when the mount ends. */
void handles_free(struct mount *m);

#endif
