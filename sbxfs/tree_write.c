/* SPDX-License-Identifier: MIT */
/* Writes to guest files. The first write of an open file, and any that does not go on where the last
 * one ended, is through before it is answered: so "no space" meets the write and not only the close.
 * What follows is collected to 1 MiB and sent when full, when somebody looks, or soon. A late failure
 * is told by the next write, fsync and close, once by each, and the open file takes no more writes. */
#include "sbxfs/remote.h"
#include "sbxfs/treefs.h"

#include <errno.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>

#define COLLECT_MAX CHUNK
#define PARTS_MAX 64 /* a server that takes ever so little of a write does not want it */

struct write_arg {
	uint64_t off;
	const char *buf;
	size_t len;
	uint64_t written;
};

static int write_fn(struct req *q, struct tree_file *f, void *arg)
{
	struct write_arg *w = arg;

	return wire_write(q, f->h->inode->box, f->handle, w->off, f->append, w->buf, w->len, &w->written);
}

#define LATE_MAX 8 /* of COLLECT_MAX, under way for one file */

static int send_write(struct req *q, struct tree_file *f, uint64_t off, const char *buf, size_t len,
	uint64_t *ret)
{
	struct write_arg w = { .off = off, .buf = buf, .len = len };
	int rc = tree_with_handle(q, f, write_fn, &w);

	*ret = w.written;
	tree_changed(q, f->h->inode);
	return rc;
}

/* *ret: how much of it is through. */
static int send_parts(struct req *q, struct tree_file *f, uint64_t off, const char *buf, size_t len,
	size_t *ret)
{
	int rc = 0, left = PARTS_MAX;

	for (*ret = 0; *ret < len && rc == 0;) {
		uint64_t n = 0;

		rc = left-- ? send_write(q, f, off + *ret, buf + *ret, len - *ret, &n) : -EIO;
		if (rc == 0 && !n)
			rc = -ENOSPC; /* a write that gets nowhere */
		*ret += n;
	}
	return rc;
}

static int send_again(struct req *q, struct tree_file *f, uint64_t off, const char *buf, size_t len)
{
	size_t done;

	return send_parts(q, f, off, buf, len, &done);
}

static int reap(struct req *q, struct tree_file *f, bool all, bool keep)
{
	int rc = late_reap(q, f, all, keep, send_again);

	tree_changed(q, f->h->inode);
	return rc;
}

int tree_file_lock(struct req *q, struct tree_file *f)
{
	return remote_lock(q, &f->lock);
}

/* What is collected. Appended bytes must not be sent twice, so nobody gives up waiting for them. */
static int send_collected(struct req *q, struct tree_file *f, size_t *ret)
{
	fuse_req_t fr = q->fr;
	int rc;

	if (f->append)
		q->fr = NULL;
	rc = send_parts(q, f, f->buf_off, f->buf.p, f->buf_len, ret);
	q->fr = fr;
	return rc;
}

/* Its writer does not ask, or who asks has gone: it stays. */
static bool stays(const struct req *q, const struct tree_file *f, int rc, bool keep)
{
	return rc == -EHOSTDOWN ? keep && !q->err.sent : rc == -EINTR && !f->append;
}

int tree_file_drain(struct req *q, struct tree_file *f, bool keep)
{
	size_t at = 0;
	int rc = 0;

	if (f->nlate) {
		if (f->buf_len)
			(void)late_send(q, f);
		rc = reap(q, f, true, keep);
		if (f->nlate)
			return rc;
	}
	if (rc == 0)
		rc = send_collected(q, f, &at);
	if (at < f->buf_len && stays(q, f, rc, keep)) {
		memmove(f->buf.p, f->buf.p + at, f->buf_len - at);
		f->buf_len -= at;
		f->buf_off += at;
		return rc;
	}
	f->buf_len = 0;
	atomic_store(&f->dirty, false);
	if (rc < 0 && !f->error)
		f->error = rc;
	return rc;
}

/* All files of the inode but one. */
static void drain_but(struct req *q, struct inode *i, const struct tree_file *but)
{
	struct tree_file *f;
	int rc = 0;

	do {
		pthread_mutex_lock(&i->tree_lock);
		for (f = i->files; f && (f == but || !atomic_load(&f->dirty)); f = f->next)
			;
		if (f)
			f->refs++;
		pthread_mutex_unlock(&i->tree_lock);
		if (f) {
			struct sbx_error saved = q->err;

			rc = tree_file_lock(q, f);
			if (rc == 0) {
				rc = tree_file_drain(q, f, true);
				pthread_mutex_unlock(&f->lock);
			}
			q->err = saved; /* it is that file's failure, not ours */
			tree_file_put(q->m, f);
		}
	} while (f && rc != -EHOSTDOWN && rc != -EINTR);
}

void tree_drain(struct req *q, struct inode *i)
{
	drain_but(q, i, NULL);
}

/* Keeps it for later; false: it has to go through now. */
static bool collect(struct req *q, struct tree_file *f, const char *buf, size_t size, uint64_t off)
{
	bool goes_on = f->append || off == f->next_off;

	if (!f->wrote || !goes_on || size > COLLECT_MAX - f->buf_len)
		return false;
	if (!f->buf.p && !fs1_buf_take(q, f->h->inode->box, &f->buf))
		return false;
	if (!f->buf_len)
		f->buf_off = off;
	memcpy(f->buf.p + f->buf_len, buf, size);
	f->buf_len += size;
	f->next_off = off + size;
	atomic_store(&f->dirty, true);
	return true;
}

/* The same when it has to go out now, without waiting for its answer. */
static bool collect_and_send(struct req *q, struct tree_file *f, const char *buf, size_t size, uint64_t off)
{
	if (!f->wrote || off != f->next_off || size > COLLECT_MAX || !late_may(q, f))
		return false;
	if (size > COLLECT_MAX - f->buf_len && !late_send(q, f))
		return false;
	if (!collect(q, f, buf, size, off))
		return false;
	if ((size >= COLLECT_MAX / 2 || f->buf_len == COLLECT_MAX) && !late_send(q, f))
		(void)tree_file_drain(q, f, false);
	while (f->nlate >= LATE_MAX && reap(q, f, false, false) != -EINTR)
		;
	return true;
}

/* The late failure, if `who` has not heard of it. */
static int tell(struct tree_file *f, enum tell who)
{
	int rc = f->told & who ? 0 : f->error;

	f->told |= who;
	return rc;
}

static ssize_t write_locked(struct req *q, struct tree_file *f, const char *buf, size_t size,
	uint64_t off, bool *ret_late)
{
	uint64_t n = 0;
	int rc;

	if (f->error) {
		rc = tell(f, TELL_WRITE);
		return rc ? rc : -EIO;
	}
	tree_inline_drop(q->m, f);
	*ret_late = size < COLLECT_MAX / 2 && collect(q, f, buf, size, off);
	if (*ret_late)
		return (ssize_t)size;
	*ret_late = collect_and_send(q, f, buf, size, off);
	if (*ret_late)
		return (ssize_t)size;
	rc = tree_file_drain(q, f, false);
	if (f->error)
		return tell(f, TELL_WRITE);
	/* Not full any more: small writes go on being collected. */
	*ret_late = rc == 0 && size < COLLECT_MAX / 2 && collect(q, f, buf, size, off);
	if (*ret_late)
		return (ssize_t)size;
	if (rc == 0)
		rc = send_write(q, f, off, buf, size, &n);
	f->wrote = rc == 0;
	if (rc < 0)
		return rc;
	f->next_off = off + n;
	return (ssize_t)n;
}

/* A write does not append any more, or does again; and what the kernel writes of a mapping has its place,
 * whichever open file it takes for that. What is collected is of the other sort. Where O_APPEND was not
 * there at the open, the kernel holds pages, and the place is the one that it believes to be the end. */
static void set_append(struct req *q, struct tree_file *f, bool append)
{
	if (f->append == append)
		return;
	(void)tree_file_drain(q, f, false);
	f->append = append;
}

void tree_write(struct req *q, struct handle *h, const char *buf, size_t size, off_t off, int flags)
{
	struct tree_file *f = h->file;
	bool late = false;
	ssize_t n;

	q->acts = true;
	/* What another open file has collected is older than this. */
	drain_but(q, h->inode, f);
	n = tree_file_lock(q, f);
	if (n == 0) {
		set_append(q, f, (h->flags & O_APPEND) && (flags & O_APPEND));
		n = write_locked(q, f, buf, size, (uint64_t)off, &late);
		pthread_mutex_unlock(&f->lock);
	}
	if (late) {
		pthread_mutex_lock(&h->inode->tree_lock);
		/* An answer about its size that is on its way does not count it. */
		h->inode->is_known = false;
		h->inode->changes++;
		h->inode->contents++;
		pthread_mutex_unlock(&h->inode->tree_lock);
		flusher_add(q->m, f);
	}
	if (n < 0)
		req_fail(q, (int)n);
	else
		fuse_reply_write(q->fr, (size_t)n);
}

/* Drains, and gives a late failure once. */
static int settle(struct req *q, struct tree_file *f, enum tell who)
{
	int rc = tree_file_lock(q, f);

	if (rc < 0)
		return rc;
	rc = tree_file_drain(q, f, false);
	if (f->error)
		rc = tell(f, who);
	pthread_mutex_unlock(&f->lock);
	return rc;
}

void tree_flush(struct req *q, struct handle *h, uint64_t owner)
{
	int rc = 0;

	if (h->file->writes) {
		/* What this one wrote through a mapping the kernel may have sent by another open file. */
		drain_but(q, h->inode, h->file);
		rc = settle(q, h->file, TELL_CLOSE);
	}

	tree_closed(q, h, owner);
	req_done(q, rc);
}

static int sync_fn(struct req *q, struct tree_file *f, void *arg)
{
	return wire_sync(q, f->h->inode->box, f->handle, *(bool *)arg);
}

void tree_fsync(struct req *q, struct handle *h, bool data_only)
{
	int rc;

	q->acts = true;
	tree_drain(q, h->inode);
	rc = settle(q, h->file, TELL_SYNC);
	if (rc == 0)
		rc = tree_with_handle(q, h->file, sync_fn, &data_only);
	req_done(q, rc);
}

struct fallocate_arg {
	int mode;
	off_t off, len;
};

static int fallocate_fn(struct req *q, struct tree_file *f, void *arg)
{
	const struct fallocate_arg *a = arg;

	return wire_fallocate(q, f->h->inode->box, f->handle, a->mode, a->off, a->len);
}

#define KNOWN_MODES (FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_COLLAPSE_RANGE | \
	FALLOC_FL_ZERO_RANGE | FALLOC_FL_INSERT_RANGE)

void tree_fallocate(struct req *q, struct handle *h, int mode, off_t off, off_t len)
{
	struct fallocate_arg a = { .mode = mode, .off = off, .len = len };
	int rc;

	if (mode & ~KNOWN_MODES) {
		req_fail(q, -EOPNOTSUPP);
		return;
	}
	tree_drain(q, h->inode);
	rc = tree_with_handle(q, h->file, fallocate_fn, &a);
	tree_changed(q, h->inode);
	req_done(q, rc);
}

struct copy_arg {
	struct wire_copy w;
	struct tree_file *out;
	uint64_t copied;
};

static int copy_fn(struct req *q, struct tree_file *f, void *arg)
{
	struct copy_arg *a = arg;

	a->w.from = f->handle;
	a->w.to = a->out->handle;
	return wire_copy(q, f->h->inode->box, &a->w, &a->copied);
}

/* A copy inside of a sandbox moves no bytes through here. */
void tree_copy(struct req *q, struct handle *in, off_t in_off, struct handle *out, off_t out_off,
	size_t len)
{
	struct copy_arg a = { .w = { .from_off = in_off, .to_off = out_off, .len = len } };
	int rc;

	if (!in->file || !out->file || strcmp(in->inode->box, out->inode->box)) {
		req_fail(q, -EXDEV); /* the kernel copies by reading and writing */
		return;
	}
	a.out = out->file;
	tree_drain(q, in->inode);
	tree_drain(q, out->inode);
	rc = tree_with_handle(q, in->file, copy_fn, &a);
	tree_changed(q, out->inode);
	if (rc < 0) {
		req_fail(q, rc == -EOPNOTSUPP || rc == -ESTALE || rc == -ENOENT ? -EXDEV : rc);
		return;
	}
	if (q->m->se)
		(void)fuse_lowlevel_notify_inval_inode(q->m->se, inode_nodeid(q->m, out->inode), -1, 0);
	fuse_reply_write(q->fr, (size_t)a.copied);
}

struct seek_arg {
	off_t off, to;
	int whence;
};

static int seek_fn(struct req *q, struct tree_file *f, void *arg)
{
	struct seek_arg *a = arg;

	return wire_seek(q, f->h->inode->box, f->handle, a->off, a->whence, &a->to);
}

void tree_lseek(struct req *q, struct handle *h, off_t off, int whence)
{
	struct seek_arg a = { .off = off, .whence = whence };
	int rc;

	if ((whence != SEEK_DATA && whence != SEEK_HOLE) || off < 0) {
		req_fail(q, off < 0 ? -ENXIO : -EINVAL);
		return;
	}
	tree_drain(q, h->inode);
	rc = tree_with_handle(q, h->file, seek_fn, &a);
	if (rc < 0)
		req_fail(q, rc);
	else
		fuse_reply_lseek(q->fr, a.to);
}
