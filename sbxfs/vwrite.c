/* SPDX-License-Identifier: MIT */
/* Open, read and write of the files that we make ourselves. Errors surface in the write: no tool
 * looks at close. What a write does may last, so a thread of the pool does it. */
#include "sbxfs/feed.h"
#include "sbxfs/ops.h"
#include "sbxfs/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DOC_MAX (1024u * 1024)
#define FEED_MAX (1024u * 1024)

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
	if ((h->flags & O_ACCMODE) == O_RDWR && i->node->kind == KIND_VERBS) {
		pthread_mutex_lock(&h->lock);
		at = h->cursor;
		h->cursor = at + size < i->size ? at + size : i->size;
		pthread_mutex_unlock(&h->lock);
	}
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

static ssize_t write_kind(struct work *w)
{
	struct spot s = inode_spot(w->i);

	switch (w->i->node->kind) {
	case KIND_VERBS:
		return write_verbs(w, &s);
	case KIND_DOC:
		return write_doc(w, &s);
	default:
		return write_value(w, &s);
	}
}

static void do_write(void *arg)
{
	struct work *w = arg;
	struct handle *h = w->h;
	ssize_t n;

	pthread_mutex_lock(&h->lock);
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
	pthread_mutex_unlock(&h->lock);
	if (w->i->node->id != N_PROC_STDIN)
		mount_touch(w->q.m);
	if (n < 0)
		req_fail(&w->q, (int)n);
	else
		fuse_reply_write(w->q.fr, (size_t)n);
	atomic_fetch_sub(&w->q.m->stats.parked, 1);
	free(w->buf);
	free(w);
}

void virtual_write(struct req *q, struct inode *i, const char *buf, size_t size,
	struct fuse_file_info *fi)
{
	struct work *w = calloc(1, sizeof(*w));
	int rc = -ENOMEM;

	if (w && (w->buf = malloc(size + 1))) {
		w->q = *q;
		w->q.patient = true;
		w->i = i;
		w->h = (struct handle *)(uintptr_t)fi->fh;
		w->size = size;
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
}

/* A flush is not the end: shells flush before their first byte. Only a document that somebody began
 * and left unfinished is worth a word. */
void virtual_flush(struct req *q, struct handle *h)
{
	int rc = 0;

	pthread_mutex_lock(&h->lock);
	if (h->inode->node->kind == KIND_DOC && h->doc.len && !h->done && !h->failed &&
		!is_space(h->doc.p, h->doc.len)) {
		rc = refuse(q, EINVAL, "the document ends too early; nothing was done");
		h->failed = true;
	}
	pthread_mutex_unlock(&h->lock);
	req_done(q, rc);
}

/* mkdir and the like. */
struct change_work {
	struct req q;
	enum change what;
	struct inode *dir, *to;
	char *name, *to_name;
	struct fuse_file_info fi;
};

static int change_call(struct change_work *w)
{
	struct spot d = inode_spot(w->dir), to = w->to ? inode_spot(w->to) : d;
	const struct dir *ops = node_dir(w->dir->node->id);
	struct req *q = &w->q;

	if (!ops)
		return -EPERM;
	if (!file_name_ok(w->name))
		return -EINVAL;
	switch (w->what) {
	case CHANGE_MKDIR:
		return ops->mkdir ? ops->mkdir(q, &d, w->name) : -EPERM;
	case CHANGE_RMDIR:
		return ops->rmdir ? ops->rmdir(q, &d, w->name) : -EPERM;
	case CHANGE_CREATE:
		return ops->create ? ops->create(q, &d, w->name) : -EPERM;
	case CHANGE_UNLINK:
		return ops->unlink ? ops->unlink(q, &d, w->name) : -EPERM;
	case CHANGE_RENAME:
		return ops->rename ? ops->rename(q, &d, w->name, &to, w->to_name) : -EPERM;
	}
	return -EPERM;
}

static void created(struct req *q, struct inode *i, struct fuse_entry_param *e,
	struct fuse_file_info *fi)
{
	struct handle *h = handle_new(q->m, i, fi->flags);

	if (!h) {
		inode_unref(q->m, i);
		req_fail(q, -ENOMEM);
		return;
	}
	fi->fh = (uint64_t)(uintptr_t)h;
	fi->direct_io = 1;
	e->ino = inode_nodeid(q->m, i);
	e->generation = i->generation;
	inode_looked(q->m, i);
	if (fuse_reply_create(q->fr, e, fi) < 0) {
		inode_forget(q->m, i, 1);
		handle_free(q->m, h);
	}
	inode_unref(q->m, i);
}

static void do_change(void *arg)
{
	struct change_work *w = arg;
	struct fuse_entry_param e;
	struct inode *i;
	int rc = change_call(w);
	/* mv takes EINVAL for "into itself" and says so. */
	if (rc == -EINVAL && w->what == CHANGE_RENAME)
		rc = -EBADRQC;
	bool makes = w->what == CHANGE_MKDIR || w->what == CHANGE_CREATE;

	if (rc == 0 && makes)
		rc = virtual_entry(&w->q, w->dir, w->name, &i, &e);
	if (rc < 0 || !makes)
		req_done(&w->q, rc);
	else if (w->what == CHANGE_MKDIR)
		reply_entry(&w->q, i, &e);
	else
		created(&w->q, i, &e, &w->fi);
	atomic_fetch_sub(&w->q.m->stats.parked, 1);
	free(w->name);
	free(w->to_name);
	free(w);
}

void virtual_change(struct req *q, enum change what, struct inode *dir, const char *name,
	struct inode *to, const char *to_name, struct fuse_file_info *fi)
{
	struct change_work *w = calloc(1, sizeof(*w));
	int rc = -ENOMEM;

	if (w) {
		w->q = *q;
		w->q.patient = what == CHANGE_MKDIR || what == CHANGE_RENAME;
		w->what = what;
		w->dir = dir;
		w->to = to;
		w->name = strdup(name);
		w->to_name = to_name ? strdup(to_name) : NULL;
		w->q.about_name = w->name;
		if (fi)
			w->fi = *fi;
		atomic_fetch_add(&q->m->stats.parked, 1);
		rc = w->name && (w->to_name || !to_name) ? pool_run(q->m->pool, do_change, w) : -ENOMEM;
		if (rc < 0)
			atomic_fetch_sub(&q->m->stats.parked, 1);
	}
	if (rc == 0)
		return;
	if (w) {
		free(w->name);
		free(w->to_name);
	}
	free(w);
	req_fail(q, rc == -EAGAIN ? -EBUSY : rc);
}
