/* SPDX-License-Identifier: MIT */
/* Reading ahead: after two reads that went on, pieces of 1 MiB are asked for before the reader comes
 * to them, twice as many each time it enters a new one, at most sixteen. A piece only answers what it
 * covers in full: where a file ends is always asked. */
#include "sbxfs/fs1.h"
#include "sbxfs/trust.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>

#define PIECES 16
#define YOUNG_MS 1000
#define DATA_MS 30000
#define LARGE (128u * 1024)
#define NEAR (4 * (uint64_t)CHUNK) /* the kernel's own reads come in several threads */

struct piece {
	struct fs1_call c;
	struct fs1_buf buf; /* NULL: nothing here */
	uint64_t index, at_ms;
	unsigned changes;
	bool waiting; /* not answered yet */
	size_t len;
};
struct ahead {
	unsigned window;
	uint64_t entered; /* highest piece that the reader has come to */
	struct piece v[PIECES];
};

static void piece_drop(struct mount *m, struct piece *p)
{
	if (!p->buf.p)
		return;
	if (p->waiting)
		fs1_cancel(&p->c);
	fs1_buf_free(&p->buf);
	p->waiting = false;
	atomic_fetch_sub(&m->chunks, 1);
}

void ahead_drop(struct mount *m, struct tree_file *f)
{
	if (!f->ahead)
		return;
	for (unsigned n = 0; n < PIECES; n++)
		piece_drop(m, &f->ahead->v[n]);
	free(f->ahead);
	f->ahead = NULL;
}

/* Size and number of our changes, as known. */
static uint64_t size_of(struct inode *i, unsigned *ret_changes)
{
	uint64_t size;

	pthread_mutex_lock(&i->tree_lock);
	size = (uint64_t)i->known.st_size;
	*ret_changes = i->contents;
	pthread_mutex_unlock(&i->tree_lock);
	return size;
}

static bool is_good(struct req *q, const struct tree_file *f, const struct piece *p, unsigned changes)
{
	struct tree_stamp s;

	if (p->changes != changes || now_ms() - p->at_ms > YOUNG_MS)
		return false;
	if (p->waiting)
		return true;
	s = (struct tree_stamp){ p->c.epoch, p->c.asked, p->c.seen };
	return !trust_stale(q, f->h->inode, &s);
}

static void piece_ask(struct req *q, struct tree_file *f, uint64_t index, unsigned changes)
{
	struct piece *p = &f->ahead->v[index % PIECES];

	if (p->buf.p && p->index == index && is_good(q, f, p, changes))
		return;
	piece_drop(q->m, p);
	if (atomic_fetch_add(&q->m->chunks, 1) >= CHUNKS_MAX ||
		!fs1_buf_take(q, f->h->inode->box, &p->buf)) {
		atomic_fetch_sub(&q->m->chunks, 1);
		return;
	}
	p->index = index;
	p->at_ms = now_ms();
	p->changes = changes;
	p->c = (struct fs1_call){ .op = FILES_READ, .into = p->buf.p, .buf = &p->buf, .max = CHUNK,
		.timeout_ms = DATA_MS,
		.r = { .handle = strtoull(f->handle, NULL, 10), .offset = index * CHUNK,
			.length = CHUNK } };
	p->waiting = fs1_begin(q, f->h->inode->box, &p->c) == 0;
	if (!p->waiting)
		piece_drop(q->m, p);
}

/* Has this read gone on where the others were? Large ones are the kernel's own reading ahead: they come
 * several at a time, in any order, and one of them is enough. */
static bool goes_on(struct req *q, struct tree_file *f, uint64_t off, size_t size)
{
	bool near = off + NEAR >= f->seq_next && off <= f->seq_next + NEAR;
	bool large = size >= LARGE;

	if (off == f->seq_next || (near && (large || f->seq >= 2))) {
		f->seq += large ? 2 : off == f->seq_next;
		if (off + size > f->seq_next)
			f->seq_next = off + size;
	} else {
		f->seq = 0;
		f->seq_next = off + size;
		ahead_drop(q->m, f);
	}
	return f->seq >= 2;
}

static void ask_ahead(struct req *q, struct tree_file *f, uint64_t off, size_t size)
{
	struct ahead *a = f->ahead;
	uint64_t first = off / CHUNK, last = (off + size - 1) / CHUNK, end;
	unsigned changes;

	end = (size_of(f->h->inode, &changes) + CHUNK - 1) / CHUNK;
	if (last > a->entered) {
		a->entered = last;
		a->window = a->window < PIECES / 2 ? a->window * 2 : PIECES;
	}
	/* What is behind the reader is not needed any more. */
	for (unsigned n = 0; n < PIECES; n++)
		if (a->v[n].buf.p && a->v[n].index + NEAR / CHUNK < first)
			piece_drop(q->m, &a->v[n]);
	for (uint64_t n = first; n < first + a->window && n < end && n < first + PIECES; n++)
		piece_ask(q, f, n, changes);
}

/* The piece with these bytes, answered; NULL: not to be had. */
static struct piece *piece_at(struct req *q, struct tree_file *f, uint64_t off, size_t size)
{
	struct piece *p = &f->ahead->v[off / CHUNK % PIECES];
	struct sbx_error saved = q->err;
	unsigned changes;

	if (!p->buf.p || p->index != off / CHUNK)
		return NULL;
	/* Only the pieces before what is known to be the end were looked at when more was asked for. */
	(void)size_of(f->h->inode, &changes);
	if (!is_good(q, f, p, changes)) {
		piece_drop(q->m, p);
		return NULL;
	}
	if (p->waiting) {
		p->waiting = false;
		if (fs1_wait(q, &p->c) != 0) {
			q->err = saved; /* the read itself is still to be asked for */
			piece_drop(q->m, p);
			return NULL;
		}
		p->len = p->c.out_len;
	}
	return off % CHUNK + size <= p->len ? p : NULL;
}

static bool reply(struct req *q, struct tree_file *f, size_t size, uint64_t off)
{
	size_t head = CHUNK - off % CHUNK;
	struct piece *a, *b;
	struct iovec v[2];

	if (head > size)
		head = size;
	a = piece_at(q, f, off, head);
	if (!a)
		return false;
	if (head == size) {
		fuse_reply_buf(q->fr, a->buf.p + off % CHUNK, size);
		return true;
	}
	b = piece_at(q, f, off + head, size - head);
	if (!b || size - head > CHUNK)
		return false;
	v[0] = (struct iovec){ a->buf.p + off % CHUNK, head };
	v[1] = (struct iovec){ b->buf.p, size - head };
	fuse_reply_iov(q->fr, v, 2);
	return true;
}

bool ahead_read(struct req *q, struct tree_file *f, size_t size, off_t off)
{
	bool done = false;

	if (!size || size > CHUNK || q->m->opt.proto == PROTO_HTTP)
		return false;
	if (tree_file_lock(q, f) < 0)
		return false; /* the read itself says so */
	if (goes_on(q, f, (uint64_t)off, size) && tree_has_handle(f)) {
		if (!f->ahead && (f->ahead = calloc(1, sizeof(*f->ahead))))
			f->ahead->window = 1;
		if (f->ahead) {
			ask_ahead(q, f, (uint64_t)off, size);
			done = reply(q, f, size, (uint64_t)off);
		}
	}
	pthread_mutex_unlock(&f->lock);
	return done;
}
