/* SPDX-License-Identifier: MIT */
/* Reading open guest files: from what came with the open, from what was read ahead (tree_ahead.c), else by a
 * request. A short one has no thread that waits for it: who reads the answer gives it to the kernel. */
#include "sbxfs/pool.h"
#include "sbxfs/treefs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define INLINE_MS  1000
#define PARKED_MAX (64u * 1024)
#define DATA_MS    30000

static bool same_contents(struct inode *i, unsigned contents)
{
	bool same;

	pthread_mutex_lock(&i->tree_lock);
	same = i->contents == contents;
	pthread_mutex_unlock(&i->tree_lock);
	return same;
}

struct read_arg {
	uint64_t off;
	size_t size, len;
	char *buf;
};

static int read_fn(struct req *q, struct tree_file *f, void *arg)
{
	struct read_arg *r = arg;

	return wire_read(q, f->h->inode->box, f->handle, r->off, r->size, r->buf, &r->len);
}

/* From what came with the open, while that is young; or when nothing better is to be had. */
static bool read_inline(struct req *q, struct tree_file *f, size_t size, off_t off, bool anyway)
{
	size_t at = (size_t)off, n;
	bool fits;

	if (tree_file_lock(q, f) < 0)
		return false;
	fits = f->inl && (anyway || (now_ms() - f->inl_ms <= INLINE_MS &&
		same_contents(f->h->inode, f->inl_contents))) &&
		(f->inl_all || (at < f->inl_len && size <= f->inl_len - at));
	if (fits) {
		n = at < f->inl_len ? f->inl_len - at : 0;
		fuse_reply_buf(q->fr, n ? f->inl + at : NULL, n < size ? n : size);
	} else if (tree_has_handle(f)) {
		tree_inline_drop(q->m, f);
	}
	pthread_mutex_unlock(&f->lock);
	return fits;
}

/* With a thread that waits for the answer. */
static void read_now(struct req *q, struct tree_file *f, size_t size, off_t off)
{
	struct read_arg r = { .off = (uint64_t)off, .size = size };
	bool had_handle = tree_has_handle(f);
	int rc;

	r.buf = malloc(size ? size : 1);
	rc = r.buf ? tree_with_handle(q, f, read_fn, &r) : -ENOMEM;
	/* Its name is gone, and all of it is here. */
	if (rc < 0 && !had_handle && !q->err.status && read_inline(q, f, size, off, true))
		;
	else if (rc < 0)
		req_fail(q, rc);
	else
		fuse_reply_buf(q->fr, r.buf, r.len);
	free(r.buf);
}

/* A read that nobody waits for (fs1_park.c). */
struct parked_read {
	struct fs1_call c; /* first */
	struct req q;
	struct tree_file *f; /* the kernel lets go of it after the answer */
	size_t size;
	off_t off;
	char buf[];
};

static void read_anew(void *arg)
{
	struct parked_read *p = arg;

	memset(&p->q.err, 0, sizeof(p->q.err));
	read_now(&p->q, p->f, p->size, p->off);
	free(p);
}

/* Handles that are to be opened anew, and the plain way, need a thread that can wait. */
static void read_ended(struct fs1_call *c, int rc)
{
	struct parked_read *p = (struct parked_read *)c;

	if (rc == 0)
		fuse_reply_buf(p->q.fr, p->buf, c->out_len);
	else if ((rc == FS1_PLAIN || rc == -ESTALE || rc == -ENOENT) &&
		pool_run(p->q.m->pool, read_anew, p) == 0)
		return;
	else
		req_fail(&p->q, rc == FS1_PLAIN ? -EIO : rc);
	free(p);
}

static bool read_parked(struct req *q, struct tree_file *f, size_t size, off_t off)
{
	struct parked_read *p;
	bool parked;

	if (!q->fr || size > PARKED_MAX || q->m->opt.proto == PROTO_HTTP)
		return false;
	p = malloc(sizeof(*p) + size);
	if (!p)
		return false;
	p->q = *q;
	p->f = f;
	p->size = size;
	p->off = off;
	p->c = (struct fs1_call){ .op = FILES_READ, .into = p->buf, .max = size, .timeout_ms = DATA_MS,
		.ended = read_ended, .r = { .handle = strtoull(f->handle, NULL, 10), .offset = (uint64_t)off,
			.length = size } };
	parked = fs1_park(&p->q, f->h->inode->box, &p->c) == 0;
	if (!parked)
		free(p);
	return parked;
}

void tree_read(struct req *q, struct handle *h, size_t size, off_t off)
{
	struct tree_file *f = h->file;

	if (read_inline(q, f, size, off, false))
		return;
	tree_drain(q, h->inode);
	if (tree_has_handle(f) && (ahead_read(q, f, size, off) || read_parked(q, f, size, off)))
		return;
	read_now(q, f, size, off);
}
