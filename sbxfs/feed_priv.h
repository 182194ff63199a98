/* SPDX-License-Identifier: MIT */
/* Inside of streams: feed.c keeps the readers, follow.c brings the bytes. */
#ifndef SBXFS_FEED_PRIV_H
#define SBXFS_FEED_PRIV_H

#include "sbxfs/feed.h"

#define WINDOW_MAX (1024u * 1024)

struct parked {
	struct parked *next;
	struct feed *feed;
	struct handle *h;
	fuse_req_t fr;
	struct req q;
	size_t size;
	bool listed, interrupted;
};
struct poller {
	struct poller *next;
	struct handle *h;
	struct fuse_pollhandle *ph;
};
struct feed {
	/* fixed */
	struct feeds *feeds;
	struct mount *m;
	const struct node *node;
	char box[SBX_ID_MAX];
	char arg[600]; /* of an image; else "" */
	int64_t pid;
	atomic_bool stop;

	/* under the lock of all feeds */
	struct feed *next;
	unsigned refs;      /* handles, and the following thread */
	char *win;          /* the last bytes of the stream; base is the offset of the first */
	size_t len;
	uint64_t base;
	bool ended;
	struct parked *parked;
	struct poller *pollers;
};
struct feeds {
	struct mount *m;
	pthread_mutex_t lock;
	struct feed *all;
};

/* The thread's side. */
void feed_follow(void *feed);
/* New bytes, and the end: wakes readers. */
void feed_add(struct feed *f, const void *buf, size_t len);
void feed_end(struct feed *f);
void feed_put(struct feed *f);
/* A short sleep between two questions. */
void feed_rest(const struct feed *f);
/* node_metrics.c: each new sample until the sandbox ends. */
int follow_metrics(struct req *q, struct feed *f);

#endif
