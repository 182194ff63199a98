/* SPDX-License-Identifier: MIT */
/* Streams: files whose read waits. However many readers a stream has, one thread follows it at the
 * server; reads that cannot be answered yet are parked in a list and cost nothing. */
#ifndef SBXFS_FEED_H
#define SBXFS_FEED_H

#include "sbxfs/handle.h"

int feeds_new(struct mount *m, struct feeds **ret);
/* Ends all streams with end of file. Their threads belong to the pool and end with it. */
void feeds_stop(struct feeds *f);
void feeds_free(struct feeds *f);

/* Attaches a handle of a stream's file. */
int feed_open(struct req *q, struct handle *h);
void feed_close(struct mount *m, struct feed *f, struct handle *h);
/* Answers now or later. */
void feed_read(struct req *q, struct handle *h, size_t size);
/* Answers the poll; `ph` (may be NULL) is taken. */
void feed_poll(struct req *q, struct handle *h, struct fuse_pollhandle *ph);

/* One line of the server's event stream as the line we show: the event itself, when it is about
 * `box` ("": about any). Gives its number. */
void event_line(const char *line, size_t len, const char *box, struct text *t, int64_t *ret_seq);

#endif
