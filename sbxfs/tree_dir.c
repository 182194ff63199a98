/* SPDX-License-Identifier: MIT */
/* Guest directories: the whole listing is fetched when it is first read, with attributes, and served
 * from there by number. Reading from the beginning fetches anew. */
#include "sbxfs/remote.h"
#include "sbxfs/treefs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES_MAX 2000000

struct dir_entry {
	char *name;
	struct tree_attr attr;
};
struct tree_dir {
	struct dir_entry *v;
	size_t n, cap;
	bool listed;
	struct req *q; /* while it is being fetched */
};

static void entries_drop(struct tree_dir *d)
{
	for (size_t n = 0; n < d->n; n++) {
		free(d->v[n].name);
		tree_attr_fini(&d->v[n].attr);
	}
	free(d->v);
	*d = (struct tree_dir){ .v = NULL };
}

void tree_dir_free(struct tree_dir *d)
{
	if (!d)
		return;
	entries_drop(d);
	free(d);
}

static int add_entry(void *arg, const char *name, json_t *attr)
{
	struct tree_dir *d = arg;
	struct dir_entry *e;
	int rc;

	if (d->n == d->cap) {
		size_t cap = d->cap ? d->cap * 2 : 64;

		e = cap <= ENTRIES_MAX ? realloc(d->v, cap * sizeof(*e)) : NULL;
		if (!e)
			return -ENOMEM;
		d->v = e;
		d->cap = cap;
	}
	e = &d->v[d->n];
	rc = tree_attr_of(d->q, attr, &e->attr);
	if (rc < 0)
		return rc;
	e->name = strdup(name);
	if (!e->name) {
		tree_attr_fini(&e->attr);
		return -ENOMEM;
	}
	d->n++;
	return 0;
}

void tree_opendir(struct req *q, struct inode *i, struct fuse_file_info *fi)
{
	struct handle *h = handle_new(q->m, i, fi->flags);

	if (h)
		h->dir = calloc(1, sizeof(*h->dir));
	if (!h || !h->dir) {
		handle_free(q->m, h);
		req_fail(q, -ENOMEM);
		return;
	}
	fi->fh = (uint64_t)(uintptr_t)h;
	if (fuse_reply_open(q->fr, fi) < 0)
		handle_free(q->m, h);
}

static int fetch(struct req *q, struct inode *i, struct tree_dir *d)
{
	char path[GUEST_PATH_MAX];
	int rc = tree_path(q, i, NULL, path);

	entries_drop(d);
	d->q = q;
	if (rc == 0)
		rc = wire_list(q, i->box, path, add_entry, d);
	d->q = NULL;
	d->listed = rc == 0;
	return rc;
}

struct page {
	char *p;
	size_t len, size;
};

/* False: it does not fit any more. An entry with attributes counts as a lookup. */
static bool put_plus(struct req *q, struct inode *dir, struct dir_entry *d, size_t n, struct page *b)
{
	struct fuse_entry_param e;
	struct inode *i;
	size_t need;

	need = fuse_add_direntry_plus(q->fr, NULL, 0, d->name, NULL, 0);
	if (need > b->size - b->len)
		return false;
	/* What is open here may be newer than the listing. */
	if (tree_inode(q, dir, d->name, &d->attr, TREE_LISTED_SECS, &i, &e) < 0)
		return false;
	if (i->files)
		e.attr_timeout = 0;
	e.ino = inode_nodeid(q->m, i);
	e.generation = i->generation;
	inode_looked(q->m, i);
	inode_unref(q->m, i);
	b->len += fuse_add_direntry_plus(q->fr, b->p + b->len, b->size - b->len, d->name, &e,
		(off_t)n + 1);
	return true;
}

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

static bool put(struct req *q, struct inode *dir, struct tree_dir *d, size_t n, struct page *b, bool plus)
{
	struct stat dot = { .st_mode = S_IFDIR, .st_ino = dir->ino };

	if (n < 2)
		return put_plain(q, n ? ".." : ".", &dot, n, b, plus);
	if (plus)
		return put_plus(q, dir, &d->v[n - 2], n, b);
	return put_plain(q, d->v[n - 2].name, &d->v[n - 2].attr.st, n, b, false);
}

void tree_readdir(struct req *q, struct inode *i, size_t size, off_t off, struct handle *h, bool plus)
{
	struct page b = { .p = malloc(size), .size = size };
	struct tree_dir *d = h->dir;
	int rc = b.p ? 0 : -ENOMEM;

	pthread_mutex_lock(&h->lock);
	if (rc == 0 && (off == 0 || !d->listed))
		rc = fetch(q, i, d);
	for (size_t n = (size_t)off; rc == 0 && n < d->n + 2; n++)
		if (!put(q, i, d, n, &b, plus))
			break;
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
	char path[GUEST_PATH_MAX], handle[24];
	int rc = tree_path(q, i, NULL, path);

	if (rc == 0)
		rc = wire_open(q, i->box, path, O_RDONLY, 0, 0, handle, &a, NULL, NULL);
	if (rc == 0) {
		rc = wire_sync(q, i->box, handle, data_only);
		wire_close(q, i->box, handle);
	}
	req_done(q, rc);
}
