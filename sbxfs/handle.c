/* SPDX-License-Identifier: MIT */
/* Open files and directories. */
#include "sbxfs/handle.h"

#include "sbxfs/feed.h"
#include "sbxfs/listing.h"

#include <stdlib.h>

struct handle *handle_new(struct mount *m, struct inode *i, int flags)
{
	struct handle *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	pthread_mutex_init(&h->lock, NULL);
	h->inode = i;
	h->flags = flags;
	inode_ref(m, i);
	return h;
}

void handle_free(struct mount *m, struct handle *h)
{
	if (!h)
		return;
	feed_close(m, h->feed, h);
	listing_unref(h->dir);
	lister_fini(&h->list);
	txt_fini(&h->doc);
	inode_unref(m, h->inode);
	pthread_mutex_destroy(&h->lock);
	free(h);
}
