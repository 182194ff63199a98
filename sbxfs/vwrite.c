/* SPDX-License-Identifier: MIT */
/* Open, read and write of the files that we make ourselves. Errors surface in the write: no tool
 * looks at close. What a write does may last, so a thread of the pool does it. */
#include "sbxfs/feed.h"
#include "sbxfs/ops.h"
#include "sbxfs/pool.h"
#include "sbxfs/remote.h"
#include "sbxfs/trust.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DOC_MAX (1024u * 1024)
#define LINE_MAX_BYTES (1024u * 1024)
#define PIECE_MIN 4096u /* the least that a tool's buffer holds */

void virtual_open(struct req *q, struct inode *i, struct fuse_file_info *fi)
{
	bool writes = (fi->flags & O_ACCMODE) != O_RDONLY;
	enum kind k = i->node->kind;
	struct handle *h;
	int rc = 0;

	if (writes && !i->node->apply)
		rc = refuse(q, EPERM, "this file cannot be written");
	else if (k == KIND_DOC && writes && (fi->flags & O_APPEND))
		rc = refuse(q, EINVAL, "a document is written as a whole: use > and not >>");
	h = rc == 0 ? handle_new(q->m, i, fi->flags) : NULL;
	if (rc == 0 && !h)
		rc = -ENOMEM;
	if (rc == 0 && k == KIND_STREAM)
		rc = feed_open(q, h);
	if (rc < 0) {
		handle_free(q->m, h);
		req_fail(q, rc);
		return;
	}
	fi->fh = (uint64_t)(uintptr_t)h;
	fi->direct_io = writes || k == KIND_LOG || k == KIND_STREAM || k == KIND_FEED;
	fi->nonseekable = k == KIND_STREAM;
	fi->keep_cache = !fi->direct_io;
	/* Nothing is kept for its close, which must not wait for a guest that does not read. */
	fi->noflush = k == KIND_FEED;
	if (fuse_reply_open(q->fr, fi) < 0)
		handle_free(q->m, h);
}

static void read_log(struct req *q, struct inode *i, size_t size, off_t off)
{
	char *buf = malloc(size ? size : 1);
	ssize_t n = buf ? log_read(q, i, (uint64_t)off, buf, size) : -ENOMEM;

	if (n < 0)
		req_fail(q, (int)n);
	else
		fuse_reply_buf(q->fr, buf, (size_t)n);
	free(buf);
}

void virtual_read(struct req *q, struct inode *i, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct handle *h = (struct handle *)(uintptr_t)fi->fh;
	size_t at = (size_t)off, n;

	if (i->node->kind == KIND_STREAM) {
		feed_read(q, h, size);
		return;
	}
	if (i->node->kind == KIND_LOG) {
		read_log(q, i, size, off);
		return;
	}
	/* On a read-write handle the kernel's offset has moved with what was written. */
	if ((h->flags & O_ACCMODE) == O_RDWR && i->node->kind == KIND_VERBS)
		at = atomic_fetch_add(&h->cursor, size);
	n = at < i->size ? i->size - at : 0;
	fuse_reply_buf(q->fr, n ? i->data + at : NULL, n < size ? n : size);
}

/* One write, in the hands of the pool. */
struct work {
	struct req q;
	struct inode *i;
	struct handle *h;
	char *buf; /* size bytes and a NUL */
	size_t size;
	bool flush; /* nothing new: what an earlier write began is all there is */
	bool last;  /* the file is closed, and the handle to be freed */
};

/* Line by line. What was done before a failing line is the write's answer; the failure is that of
 * the next write, and later ones are cancelled: `snapshot` must not be followed by `delete` when it
 * failed. */
static ssize_t write_verbs(struct work *w, const struct spot *s)
{
	size_t at = 0;

	while (at < w->size) {
		char *line = w->buf + at, *nl = memchr(line, '\n', w->size - at);
		size_t len = nl ? (size_t)(nl - line) : w->size - at;
		int rc;

		if (memchr(line, '\0', len))
			rc = refuse(&w->q, EINVAL, "a command is text without NUL");
		else {
			line[len] = '\0';
			rc = s->node->apply(&w->q, s, line, len, false);
		}
		if (rc < 0 && at == 0)
			return rc;
		if (rc < 0) {
			w->h->pending = rc;
			return (ssize_t)at;
		}
		at += len + (nl != NULL);
	}
	return (ssize_t)w->size;
}

static bool is_space(const char *p, size_t n)
{
	for (; n; p++, n--)
		if (!strchr(" \t\r\n", *p))
			return false;
	return true;
}

/* Any pieces; applied by the one that completes it. */
static ssize_t write_doc(struct work *w, const struct spot *s)
{
	struct handle *h = w->h;
	json_error_t je;
	json_t *v;
	int rc;

	if (h->done)
		return is_space(w->buf, w->size) ? (ssize_t)w->size :
			refuse(&w->q, EINVAL, "text behind the document");
	if (h->doc.len + w->size > DOC_MAX)
		return refuse(&w->q, EFBIG, "a document has at most 1 MiB");
	txt_add(&h->doc, w->buf, w->size);
	if (h->doc.failed)
		return -ENOMEM;
	v = json_loadb(h->doc.p, h->doc.len, JSON_REJECT_DUPLICATES, &je);
	if (!v && json_error_code(&je) == json_error_premature_end_of_input)
		return (ssize_t)w->size;
	json_decref(v);
	if (!v && is_space(h->doc.p, h->doc.len))
		return (ssize_t)w->size;
	rc = v ? s->node->apply(&w->q, s, h->doc.p, h->doc.len, false) :
		 refuse(&w->q, EINVAL, "not JSON: line %d: %.200s", je.line, je.text);
	h->done = true;
	return rc < 0 ? rc : (ssize_t)w->size;
}

static ssize_t write_value(struct work *w, const struct spot *s)
{
	bool append = (w->h->flags & O_APPEND) || w->h->wrote;
	int rc = s->node->apply(&w->q, s, w->buf, w->size, append);

	w->h->wrote = true;
	return rc < 0 ? rc : (ssize_t)w->size;
}

static bool is_lines(enum kind k)
{
	return k == KIND_VERBS || k == KIND_SETTING || k == KIND_LIST;
}

/* What was kept of earlier writes goes before this one's. */
static int put_before(struct work *w)
{
	struct text *kept = &w->h->doc;
	char *p;

	if (!kept->len)
		return 0;
	if (kept->len + w->size > LINE_MAX_BYTES)
		return refuse(&w->q, EFBIG, "a line has at most 1 MiB");
	p = realloc(w->buf, kept->len + w->size + 1);
	if (!p)
		return -ENOMEM;
	memmove(p + kept->len, p, w->size + 1);
	memcpy(p, kept->p, kept->len);
	w->buf = p;
	w->size += kept->len;
	txt_fini(kept);
	return 0;
}

/* A write that fills a tool's buffer and does not end a line is a piece: what has no end yet is
 * kept for the next write, for a command that was cut in two would be two others. */
static int keep_piece(struct work *w, size_t written)
{
	char *nl = NULL;
	size_t at;

	if (w->flush || written < PIECE_MIN || w->buf[w->size - 1] == '\n')
		return 0;
	if (w->i->node->kind != KIND_SETTING)
		nl = memrchr(w->buf, '\n', w->size);
	at = nl ? (size_t)(nl + 1 - w->buf) : 0;
	txt_add(&w->h->doc, w->buf + at, w->size - at);
	w->size = at;
	w->buf[at] = '\0';
	return w->h->doc.failed ? -ENOMEM : 0;
}

static ssize_t write_lines(struct work *w, const struct spot *s)
{
	size_t before = w->h->doc.len, written = w->size, all;
	bool was_unended = w->h->unended;
	ssize_t n;
	int rc;

	/* A program without a buffer writes the end of its line by itself. The line was carried out. */
	w->h->unended = false;
	if (was_unended && !w->flush && w->size == 1 && w->buf[0] == '\n')
		return 1;
	rc = put_before(w);
	if (rc == 0)
		rc = keep_piece(w, written);
	if (rc < 0)
		return rc;
	if (!w->size)
		return (ssize_t)written;
	all = w->size;
	w->h->unended = w->buf[all - 1] != '\n';
	n = w->i->node->kind == KIND_VERBS ? write_verbs(w, s) : write_value(w, s);
	if (n < 0 || (size_t)n == all)
		return n < 0 ? n : (ssize_t)written;
	return n > (ssize_t)before ? n - (ssize_t)before : 0;
}

static ssize_t write_kind(struct work *w)
{
	struct spot s = inode_spot(w->i);

	if (is_lines(w->i->node->kind))
		return write_lines(w, &s);
	if (w->i->node->kind == KIND_DOC)
		return write_doc(w, &s);
	return write_value(w, &s);
}

/* What the write did has told what it changed, and nothing else did. */
static bool is_told(const struct req *q)
{
	return q->changes && q->learned == q->changes;
}

/* The handle's lock is held. */
static ssize_t write_next(struct work *w)
{
	struct handle *h = w->h;
	ssize_t n;

	if (h->pending) {
		n = h->pending;
		h->pending = 0;
	} else if (h->failed) {
		n = refuse(&w->q, ECANCELED, "an earlier write of the same open file failed");
	} else {
		n = write_kind(w);
	}
	if (n < 0)
		h->failed = true;
	h->writer = w->q.pid;
	return n;
}

static void do_write(void *arg)
{
	struct work *w = arg;
	struct handle *h = w->h;
	ssize_t n = remote_lock(&w->q, &h->lock);

	if (n == 0) {
		n = write_next(w);
		pthread_mutex_unlock(&h->lock);
	}
	if (w->i->node->id != N_PROC_STDIN && !is_told(&w->q))
		mount_touch(w->q.m);
	if (w->i->node->kind == KIND_VERBS)
		notify_top_told(w->q.m);
	if (n < 0 || w->flush)
		req_done(&w->q, n < 0 ? (int)n : 0);
	else
		fuse_reply_write(w->q.fr, (size_t)n);
	atomic_fetch_sub(&w->q.m->stats.parked, 1);
	if (w->last)
		handle_free(w->q.m, h);
	free(w->buf);
	free(w);
}

static void hand_over(struct req *q, struct handle *h, const char *buf, size_t size,
	const struct work *how)
{
	struct work *w = calloc(1, sizeof(*w));
	int rc = -ENOMEM;

	if (w && (w->buf = malloc(size + 1))) {
		w->q = *q;
		w->q.patient = true;
		w->i = h->inode;
		w->h = h;
		w->size = size;
		w->flush = how->flush;
		w->last = how->last;
		memcpy(w->buf, buf, size);
		w->buf[size] = '\0';
		atomic_fetch_add(&q->m->stats.parked, 1);
		rc = pool_run(q->m->pool, do_write, w);
		if (rc < 0)
			atomic_fetch_sub(&q->m->stats.parked, 1);
	}
	if (rc == 0)
		return;
	if (w)
		free(w->buf);
	free(w);
	req_fail(q, rc == -EAGAIN ? -EBUSY : rc);
	if (how->last)
		handle_free(q->m, h);
}

void virtual_write(struct req *q, struct inode *i, const char *buf, size_t size,
	struct fuse_file_info *fi)
{
	static const struct work more = { .flush = false };

	(void)i;
	hand_over(q, (struct handle *)(uintptr_t)fi->fh, buf, size, &more);
}

/* A line whose newline has not come. */
static bool has_line(const struct handle *h)
{
	return is_lines(h->inode->node->kind) && h->doc.len && !h->failed && !h->pending;
}

static int unfinished_doc(struct req *q, struct handle *h)
{
	if (h->inode->node->kind != KIND_DOC || !h->doc.len || h->done || h->failed ||
		is_space(h->doc.p, h->doc.len))
		return 0;
	h->failed = true;
	return refuse(q, EINVAL, "the document ends too early; nothing was done");
}

/* A flush is not the end: shells flush before their first byte, and so does each child that ends
 * with the file open. Only that of who wrote last is taken for it: then a document that was left
 * unfinished is worth a word, and a line without its newline is complete. */
void virtual_flush(struct req *q, struct handle *h)
{
	static const struct work rest = { .flush = true };
	bool writer, line;
	int rc = 0;

	if (pthread_mutex_trylock(&h->lock) != 0) {
		req_done(q, 0); /* another one writes just now, and so is not the one that closes */
		return;
	}
	writer = h->writer == q->pid;
	line = writer && has_line(h);
	if (writer)
		rc = unfinished_doc(q, h);
	pthread_mutex_unlock(&h->lock);
	if (line)
		hand_over(q, h, "", 0, &rest);
	else
		req_done(q, rc);
}

void virtual_release(struct req *q, struct handle *h)
{
	static const struct work end = { .flush = true, .last = true };
	int rc;

	if (has_line(h)) {
		hand_over(q, h, "", 0, &end);
		return;
	}
	rc = unfinished_doc(q, h);
	if (rc < 0)
		req_fail(q, rc);
	handle_free(q->m, h);
}
