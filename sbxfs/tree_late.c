/* SPDX-License-Identifier: MIT */
/* Writes under way. They name their places, so that it does not matter in which order they are carried
 * out; appended data is never late. */
#include "sbxfs/fs1.h"
#include "sbxfs/treefs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DATA_MS 30000

struct late {
	struct late *next;
	struct fs1_call c;
	struct fs1_buf buf;
	size_t len;
	uint64_t off;
	bool ended; /* its call is over: */
	int rc;
	size_t done;
};

static bool chunk_take(struct mount *m)
{
	if (atomic_fetch_add(&m->chunks, 1) < CHUNKS_MAX)
		return true;
	atomic_fetch_sub(&m->chunks, 1);
	return false;
}

bool late_may(struct req *q, struct tree_file *f)
{
	return !f->append && tree_has_handle(f) && fs1_epoch(q->m, f->h->inode->box);
}

bool late_send(struct req *q, struct tree_file *f)
{
	struct late *l, **at = &f->late;

	if (!late_may(q, f) || !chunk_take(q->m))
		return false;
	l = calloc(1, sizeof(*l));
	if (l) {
		l->buf = f->buf;
		l->len = f->buf_len;
		l->off = f->buf_off;
		l->c = (struct fs1_call){ .op = FILES_WRITE, .data = l->buf.p, .data_len = l->len,
			.buf = &l->buf,
			.timeout_ms = DATA_MS,
			.r = { .handle = strtoull(f->handle, NULL, 10), .offset = l->off } };
	}
	if (!l || fs1_begin(q, f->h->inode->box, &l->c) != 0) {
		free(l);
		atomic_fetch_sub(&q->m->chunks, 1);
		return false;
	}
	while (*at)
		at = &(*at)->next;
	*at = l;
	f->nlate++;
	f->buf = (struct fs1_buf){ .p = NULL };
	f->buf_len = 0;
	return true;
}

/* Who does not want to wait for it, for somebody else's file, leaves it as it is. */
static int end_call(struct req *q, struct late *l)
{
	int rc = fs1_ready(q, &l->c);

	if (rc < 0)
		return rc;
	l->rc = fs1_wait(q, &l->c);
	l->ended = true;
	if (l->rc == 0)
		l->done = (uint64_t)l->c.value < l->len ? (size_t)l->c.value : l->len;
	return 0;
}

static int reap_one(struct req *q, struct tree_file *f, bool keep, late_again *again)
{
	struct late *l = f->late;
	int rc = l->ended ? 0 : end_call(q, l);

	if (rc < 0)
		return rc;
	rc = l->rc;
	/* Lost with the connection or with the handle, or only a part: once more, in full. */
	if (rc == FS1_PLAIN || rc == -ESTALE || (rc == 0 && l->done < l->len))
		rc = again(q, f, l->off + l->done, l->buf.p + l->done, l->len - l->done);
	if (rc == -EINTR || (rc == -EHOSTDOWN && keep))
		return rc;
	f->late = l->next;
	f->nlate--;
	fs1_buf_free(&l->buf);
	free(l);
	atomic_fetch_sub(&q->m->chunks, 1);
	return rc;
}

int late_reap(struct req *q, struct tree_file *f, bool all, bool keep, late_again *again)
{
	int first = 0;

	while (f->late) {
		unsigned before = f->nlate;
		int rc = reap_one(q, f, keep, again);

		if (f->nlate == before)
			return rc; /* it stays, and so do those behind it */
		if (rc < 0 && !f->error)
			f->error = rc;
		if (rc < 0 && !first)
			first = rc;
		if (!all)
			break;
	}
	return first;
}
