/* SPDX-License-Identifier: MIT */
/* Open files and directories. */
#include "sbxfs/handle.h"

#include "sbxfs/feed.h"
#include "sbxfs/listing.h"
#include "sbxfs/treefs.h"

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
	pthread_mutex_lock(&m->lock);
	h->next = m->handles;
	if (h->next)
		h->next->prev = h;
	m->handles = h;
	pthread_mutex_unlock(&m->lock);
	return h;
}

static void unlist(struct mount *m, struct handle *h)
{
	pthread_mutex_lock(&m->lock);
	if (h->prev)
		h->prev->next = h->next;
	else
		m->handles = h->next;
	if (h->next)
		h->next->prev = h->prev;
	pthread_mutex_unlock(&m->lock);
}

void handles_free(struct mount *m)
{
	struct handle *h;

	while ((h = m->handles)) {
		if (h->file)
			tree_file_put(m, h->file);
		else
			handle_free(m, h);
	}
}

void handle_free(struct mount *m, struct handle *h)
{
	if (!h)
		return;
	unlist(m, h);
	feed_close(m, h->feed, h);
	listing_unref(h->dir);
	lister_fini(&h->list);
	txt_fini(&h->doc);
	inode_unref(m, h->inode);
	pthread_mutex_destroy(&h->lock);
	free(h);
}
