/* SPDX-License-Identifier: MIT */
/* Guest directories: the whole listing is fetched when it is first read, with attributes, and served
 * from there by number. Reading from the beginning fetches anew. */
#include "sbxfs/listing.h"
#include "sbxfs/remote.h"
#include "sbxfs/treefs.h"
#include "sbxfs/trust.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES_MAX 1000000
#define KEEP_MS ((uint64_t)(TRUST_SECS * 700))

/* Lock of the handle held. A directory that is gone is ESTALE: the C library takes ENOENT of a reading
 * for the end. */
static int fetch(struct req *q, struct inode *i, struct handle *h)
{
	int rc;

	listing_unref(h->dir);
	h->dir = NULL;
	rc = listing_get(q, i, ENTRIES_MAX, &h->dir);
	if (rc == 0)
		walk_on(q, i, h->dir);
	else if (rc == -ENOENT || rc == -ENOTDIR)
		rc = -ESTALE;
	return rc;
}

/* The entries of a directory that is watched the kernel may keep itself. For as long as it believes the
 * names and attributes that came with them it need not read them again. */
static void let_keep(struct req *q, struct inode *i, const struct handle *h, struct fuse_file_info *fi)
{
	fi->cache_readdir = trust_dir(q, i, &h->dir->stamp);
	fi->keep_cache = fi->cache_readdir && now_ms() - atomic_load(&h->dir->shown_ms) < KEEP_MS;
}

/* Fetches at once, so that an open of what is gone fails: then the kernel looks the name up anew, and
 * what we believed about it must not answer. */
void tree_opendir(struct req *q, struct inode *i, struct fuse_file_info *fi)
{
	struct handle *h = handle_new(q->m, i, fi->flags);
	int rc = h ? fetch(q, i, h) : -ENOMEM;

	if (rc == -ESTALE)
		tree_changed(q, i);
	if (rc < 0) {
		handle_free(q->m, h);
		req_fail(q, rc);
		return;
	}
	h->listed = true;
	let_keep(q, i, h, fi);
	fi->fh = (uint64_t)(uintptr_t)h;
	if (fuse_reply_open(q->fr, fi) < 0)
		handle_free(q->m, h);
}

struct page {
	char *p;
	size_t len, size;
};

static bool put_plain(struct req *q, const char *name, const struct stat *st, size_t n, struct page *b,
	bool plus)
{
	struct fuse_entry_param e = { .ino = 0, .attr = *st };
	size_t need = plus ? fuse_add_direntry_plus(q->fr, b->p + b->len, b->size - b->len, name, &e,
				     (off_t)n + 1) :
			     fuse_add_direntry(q->fr, b->p + b->len, b->size - b->len, name, st,
				     (off_t)n + 1);

	if (need > b->size - b->len)
		return false;
	b->len += need;
	return true;
}

/* False: it does not fit any more. An entry with attributes counts as a lookup. */
static bool put_plus(struct req *q, struct inode *dir, const struct listing *l, size_t n, struct page *b)
{
	const struct listed_file *d = &l->v[n - 2];
	struct tree_attr a = listing_attr(l, d);
	struct fuse_entry_param e;
	struct inode *i;
	size_t need;

	need = fuse_add_direntry_plus(q->fr, NULL, 0, d->name, NULL, 0);
	if (need > b->size - b->len)
		return false;
	/* Who reads on later is told what was there when the directory was opened. Of what we have removed since, or
	 * know better, that is the name alone: who wants more looks it up, and is told. */
	if (l->of_dir != tree_changes_of(dir) || tree_known_better(q, dir, d, l))
		return put_plain(q, d->name, &d->st, n, b, true);
	if (tree_inode(q, dir, d->name, &a, TREE_LISTED_SECS, &i, &e) < 0)
		return put_plain(q, d->name, &d->st, n, b, true);
	trust_entry(q, dir, d->name, i, &a, &e);
	link_told(q, dir, d->name, i);
	e.ino = inode_nodeid(q->m, i);
	e.generation = i->generation;
	inode_looked(q->m, i);
	inode_unref(q->m, i);
	b->len += fuse_add_direntry_plus(q->fr, b->p + b->len, b->size - b->len, d->name, &e,
		(off_t)n + 1);
	return true;
}

static bool put(struct req *q, struct inode *dir, const struct listing *d, size_t n, struct page *b,
	bool plus)
{
	struct stat dot = { .st_mode = S_IFDIR, .st_ino = dir->ino };

	if (n < 2)
		return put_plain(q, n ? ".." : ".", &dot, n, b, plus);
	if (plus)
		return put_plus(q, dir, d, n, b);
	return put_plain(q, d->v[n - 2].name, &d->v[n - 2].st, n, b, false);
}

void tree_readdir(struct req *q, struct inode *i, size_t size, off_t off, struct handle *h, bool plus)
{
	struct page b = { .p = malloc(size), .size = size };
	int rc = b.p ? 0 : -ENOMEM;
	size_t n;

	pthread_mutex_lock(&h->lock);
	if (rc == 0 && ((off == 0 && !h->listed) || !h->dir))
		rc = fetch(q, i, h);
	h->listed = false; /* from the beginning once more: as it is then */
	for (n = (size_t)off; rc == 0 && n < h->dir->n + 2; n++)
		if (!put(q, i, h->dir, n, &b, plus))
			break;
	if (b.len) /* the last reading, of nothing, the kernel does not ask attributes with */
		h->plus = off ? h->plus && plus : plus;
	if (rc == 0 && h->plus && !b.len)
		atomic_store(&h->dir->shown_ms, now_ms());
	pthread_mutex_unlock(&h->lock);
	if (rc < 0)
		req_fail(q, rc);
	else
		fuse_reply_buf(q->fr, b.p, b.len);
	free(b.p);
}

void tree_fsyncdir(struct req *q, struct inode *i, bool data_only)
{
	_cleanup_attr_ struct tree_attr a = { .target = NULL };
	char path[FS_PATH_MAX], handle[24];
	int rc;

	if (tree_gone(i, NULL)) {
		req_done(q, 0);
		return;
	}
	rc = tree_path(q, i, NULL, path);
	if (rc == 0)
		rc = wire_open(q, i->box, path, O_RDONLY, 0, 0, handle, &a, NULL, NULL);
	if (rc == 0) {
		rc = wire_sync(q, i->box, handle, data_only);
		wire_close(q, i->box, handle);
	}
	req_done(q, rc);
}
