/* SPDX-License-Identifier: MIT */
/* Open guest files. An open asks the server first; what the kernel holds of the content is kept only
 * when the version is the same. */
#include "sbxfs/remote.h"
#include "sbxfs/treefs.h"
#include "sbxfs/trust.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INLINE_MAX (16u * 1024 * 1024) /* of all open files; beyond it opens bring no bytes */

static struct tree_file *file_of(struct handle *h)
{
	return h->file;
}

bool tree_has_handle(const struct tree_file *f)
{
	return f->handle[0] != '0';
}

bool tree_any_handle(struct inode *i, bool writes, char out[24])
{
	struct tree_file *f;

	pthread_mutex_lock(&i->tree_lock);
	for (f = i->files; f && (!tree_has_handle(f) || (writes && !f->writes)); f = f->next)
		;
	if (f)
		memcpy(out, f->handle, 24);
	pthread_mutex_unlock(&i->tree_lock);
	return f != NULL;
}

void tree_inline_drop(struct mount *m, struct tree_file *f)
{
	if (f->inl)
		atomic_fetch_sub(&m->inline_bytes, f->inl_len);
	free(f->inl);
	f->inl = NULL;
}

void tree_file_put(struct mount *m, struct tree_file *f)
{
	struct inode *i = f->h->inode;
	bool last;

	pthread_mutex_lock(&i->tree_lock);
	last = --f->refs == 0;
	pthread_mutex_unlock(&i->tree_lock);
	if (!last)
		return;
	ahead_drop(m, f);
	handle_free(m, f->h);
	pthread_mutex_destroy(&f->lock);
	tree_inline_drop(m, f);
	fs1_buf_free(&f->buf);
	free(f);
}

static struct tree_file *file_new(struct mount *m, struct inode *i, int flags, const char *handle)
{
	struct tree_file *f = calloc(1, sizeof(*f));
	int how = flags & O_ACCMODE;

	if (!f)
		return NULL;
	f->h = handle_new(m, i, flags);
	if (!f->h) {
		free(f);
		return NULL;
	}
	pthread_mutex_init(&f->lock, NULL);
	f->refs = 1;
	f->reads = how != O_WRONLY;
	f->writes = how != O_RDONLY;
	f->append = f->writes && (flags & O_APPEND);
	(void)snprintf(f->handle, sizeof(f->handle), "%s", handle);
	pthread_mutex_lock(&m->lock);
	f->h->file = f; /* the handle is listed: others may look at it by now */
	pthread_mutex_unlock(&m->lock);
	pthread_mutex_lock(&i->tree_lock);
	f->next = i->files;
	i->files = f;
	atomic_fetch_add(&i->nfiles, 1);
	atomic_fetch_add(&i->nwriters, f->writes);
	pthread_mutex_unlock(&i->tree_lock);
	flusher_hold(m, i->box, 1);
	return f;
}

static void file_unlist(struct tree_file *f)
{
	struct inode *i = f->h->inode;
	struct tree_file **at;

	pthread_mutex_lock(&i->tree_lock);
	for (at = &i->files; *at != f; at = &(*at)->next)
		;
	*at = f->next;
	atomic_fetch_sub(&i->nfiles, 1);
	atomic_fetch_sub(&i->nwriters, f->writes);
	pthread_mutex_unlock(&i->tree_lock);
}

void tree_file_close(struct req *q, struct handle *h)
{
	struct tree_file *f = file_of(h);

	flusher_remove(q->m, f);
	pthread_mutex_lock(&f->lock);
	(void)tree_file_drain(q, f, false);
	pthread_mutex_unlock(&f->lock);
	file_unlist(f);
	if (tree_has_handle(f))
		wire_close(q, h->inode->box, f->handle);
	flusher_hold(q->m, h->inode->box, -1);
	tree_file_put(q->m, f);
}

/* Is the version that the kernel's pages are of still the one? Takes over the new one, unless we have
 * changed the file since it was asked for: then what came with the open is old as well. The pages are shared
 * by all open files, so that with another version none may fill them from what it got with its own open. */
static bool same_version(struct inode *i, const struct tree_attr *a, unsigned changes, unsigned *ret_contents)
{
	bool same, ours;

	pthread_mutex_lock(&i->tree_lock);
	same = i->version[0] && !strcmp(i->version, a->version);
	ours = i->changes != changes;
	(void)snprintf(i->version, sizeof(i->version), "%s", ours ? "" : a->version);
	i->contents += !same;
	*ret_contents = i->contents - ours;
	pthread_mutex_unlock(&i->tree_lock);
	return same;
}

/* What the kernel was told of a file that it has no pages of, is it still so? */
static bool is_as_told(struct inode *i, const struct tree_attr *a)
{
	const struct stat *st = &i->known;
	bool is;

	pthread_mutex_lock(&i->tree_lock);
	is = !i->version[0] && i->is_known && st->st_size == a->st.st_size &&
		!memcmp(&st->st_mtim, &a->st.st_mtim, sizeof(st->st_mtim)) &&
		!memcmp(&st->st_ctim, &a->st.st_ctim, sizeof(st->st_ctim));
	pthread_mutex_unlock(&i->tree_lock);
	return is;
}

static void reply_opened(struct req *q, struct tree_file *f, struct inode *i, bool same, bool as_told,
	struct fuse_file_info *fi)
{
	fi->fh = (uint64_t)(uintptr_t)f->h;
	fi->keep_cache = same;
	fi->noflush = !f->writes && !atomic_load(&i->locks);
	/* The kernel would keep appended bytes where it believes the end to be. */
	fi->direct_io = f->append;
	/* The kernel cuts a read at the size it remembers: it has to forget that before it reads. */
	if (!same && !as_told && q->m->se)
		(void)fuse_lowlevel_notify_inval_inode(q->m->se, inode_nodeid(q->m, i), -1, 0);
	if (fuse_reply_open(q->fr, fi) < 0) {
		q->fr = NULL; /* it is over */
		tree_file_close(q, f->h);
	}
}

#define SETTLED_SECS 10

/* How many first bytes to ask for with the open. The whole of a small file, even when the kernel has
 * its pages: it costs next to nothing and then the server needs no handle. Not of one that was changed
 * just now: who holds it open may want to see it grow, or be moved away. */
static size_t inline_want(struct inode *i, int flags, int *ret_how)
{
	bool small, settled, fresh;

	if ((flags & O_ACCMODE) != O_RDONLY)
		return 0;
	pthread_mutex_lock(&i->tree_lock);
	small = S_ISREG(i->known.st_mode) && i->known.st_size <= TREE_INLINE;
	settled = i->known.st_mtim.tv_sec + SETTLED_SECS < time(NULL) &&
		i->known.st_ctim.tv_sec + SETTLED_SECS < time(NULL);
	fresh = !i->version[0];
	pthread_mutex_unlock(&i->tree_lock);
	if (small && settled)
		*ret_how = WIRE_CLOSE;
	return fresh || *ret_how ? TREE_INLINE : 0;
}

static void close_handle(struct req *q, struct inode *i, const char *handle)
{
	if (handle[0] != '0')
		wire_close(q, i->box, handle);
}

void tree_open(struct req *q, struct inode *i, struct fuse_file_info *fi)
{
	struct tree_attr a = { .target = NULL };
	char path[FS_PATH_MAX], handle[24];
	bool same, as_told;
	unsigned changes;
	int how = 0;
	size_t want = atomic_load(&q->m->inline_bytes) < INLINE_MAX ? inline_want(i, fi->flags, &how) : 0;
	struct tree_file *f;
	size_t len = 0;
	char *data = NULL;
	bool again;
	int rc = 0;

	tree_drain(q, i);
	changes = tree_changes_of(i);
	again = again_open(q, i, fi->flags, handle, &a);
	if (!again)
		rc = tree_path(q, i, NULL, path);
	if (rc == 0 && !again)
		rc = wire_open(q, i->box, path, (fi->flags & ~(O_CREAT | O_EXCL | WIRE_CLOSE)) | how, 0, want,
			handle, &a, &data, &len);
	if (rc == 0 && (fi->flags & O_TRUNC)) {
		tree_changed(q, i); /* no listing of before may tell its size */
		changes = tree_changes_of(i);
	}
	if (rc == -ENOENT) {
		tree_changed(q, i); /* a listing of before may not answer the next lookup */
		rc = -ESTALE;       /* which the kernel does at once */
	}
	if (rc == 0 && !inode_is(q->m, i, &a.id, false)) {
		tree_changed(q, i);
		close_handle(q, i, handle);
		rc = -ESTALE;
	}
	f = rc == 0 ? file_new(q->m, i, fi->flags, handle) : NULL;
	if (rc == 0 && !f) {
		close_handle(q, i, handle);
		rc = -ENOMEM;
	}
	if (rc == -ESTALE)
		again_mark(q, i, fi->flags);
	if (rc < 0) {
		free(data);
		tree_attr_fini(&a);
		req_fail(q, rc);
		return;
	}
	f->inl = data;
	f->inl_len = len;
	if (data)
		atomic_fetch_add(&q->m->inline_bytes, len);
	f->inl_all = (off_t)len >= a.st.st_size;
	f->inl_ms = now_ms();
	as_told = is_as_told(i, &a);
	same = same_version(i, &a, changes, &f->inl_contents);
	a.at_ms = changes == tree_changes_of(i) ? 0 : 1;
	tree_shown(q, i, &a);
	tree_attr_fini(&a);
	reply_opened(q, f, i, same, as_told, fi);
}

void tree_create(struct req *q, struct inode *dir, const char *name, mode_t mode,
	struct fuse_file_info *fi)
{
	_cleanup_attr_ struct tree_attr a = { .target = NULL };
	char path[FS_PATH_MAX], handle[24];
	struct fuse_entry_param e;
	struct tree_file *f;
	struct inode *i;
	int rc = tree_path(q, dir, name, path);

	trust_own(q, dir, name, true);
	if (rc == 0)
		rc = wire_open(q, dir->box, path, fi->flags | O_CREAT, mode, 0, handle, &a, NULL, NULL);
	trust_own(q, dir, name, false);
	if (rc < 0) {
		req_fail(q, rc);
		return;
	}
	rc = tree_inode(q, dir, name, &a, TREE_ATTR_SECS, &i, &e);
	f = rc == 0 ? file_new(q->m, i, fi->flags, handle) : NULL;
	if (!f) {
		wire_close(q, dir->box, handle);
		if (rc == 0)
			inode_unref(q->m, i);
		req_fail(q, rc < 0 ? rc : -ENOMEM);
		return;
	}
	trust_entry(q, dir, name, i, &a, &e);
	tree_changed(q, dir);
	(void)same_version(i, &a, tree_changes_of(i), &f->inl_contents);
	fi->direct_io = f->append;
	fi->fh = (uint64_t)(uintptr_t)f->h;
	e.ino = inode_nodeid(q->m, i);
	e.generation = i->generation;
	inode_looked(q->m, i);
	if (fuse_reply_create(q->fr, &e, fi) < 0) {
		inode_forget(q->m, i, 1);
		q->fr = NULL; /* it is over */
		tree_file_close(q, f->h);
	}
	inode_unref(q->m, i);
}

/* The server lost the handle (it was away, or we were silent for too long). */
static int reopen(struct req *q, struct tree_file *f)
{
	_cleanup_attr_ struct tree_attr a = { .target = NULL };
	struct inode *i = f->h->inode;
	char path[FS_PATH_MAX], handle[24];
	int flags = f->h->flags & ~(O_CREAT | O_EXCL | O_TRUNC);
	int rc = tree_path(q, i, NULL, path);

	if (atomic_load(&f->locked))
		return refuse(q, EIO, "the sandbox was away for so long that the file's locks are lost");
	if (rc == 0)
		rc = wire_open(q, i->box, path, flags, 0, 0, handle, &a, NULL, NULL);
	if (rc < 0)
		return -ESTALE;
	if (!inode_is(q->m, i, &a.id, false)) {
		wire_close(q, i->box, handle);
		return refuse(q, ESTALE, "another file has this name now");
	}
	pthread_mutex_lock(&i->tree_lock);
	memcpy(f->handle, handle, sizeof(f->handle));
	pthread_mutex_unlock(&i->tree_lock);
	return 0;
}

int tree_with_handle(struct req *q, struct tree_file *f,
	int (*fn)(struct req *q, struct tree_file *f, void *arg), void *arg)
{
	int rc = tree_has_handle(f) ? fn(q, f, arg) : -ESTALE;

	/* The sandbox itself gone is 404 too, or 409 when it has ended. */
	if (rc != -ESTALE && rc != -ENOENT)
		return rc;
	rc = reopen(q, f);
	return rc == 0 ? fn(q, f, arg) : rc;
}
