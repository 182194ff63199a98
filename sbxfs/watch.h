/* SPDX-License-Identifier: MIT */
/* The list of sandboxes, watched: one connection on which the server tells each change, so that
 * nothing needs to be listed again to be sure, and what belongs to an ended sandbox goes with it. */
#ifndef SBXFS_WATCH_H
#define SBXFS_WATCH_H

#include "sbxfs/mount.h"

int watch_new(struct mount *m, struct watch **ret);
/* Begins; without the capability list_watch it only looks now and then whether it came. */
int watch_start(struct watch *w);
void watch_stop(struct watch *w); /* joins the thread; may be called twice */
void watch_free(struct watch *w); /* NULL is fine */

/* One line of the stream. */
void watch_line(struct mount *m, const char *line, size_t len);

#endif
