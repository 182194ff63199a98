/* SPDX-License-Identifier: MIT */
/* What comes on a connection. The peer is the guest's side: a frame that breaks a rule ends the
 * connection, and memory is only taken for bytes that have come. */
#include "sbxfs/fs1_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* More into the buffer, which has room. */
static int more(struct fs1_conn *c)
{
	ssize_t n;

	if (c->in_at == c->in_len)
		c->in_at = c->in_len = 0;
	if (c->in_at && c->in_len == sizeof(c->in)) {
		memmove(c->in, c->in + c->in_at, c->in_len - c->in_at);
		c->in_len -= c->in_at;
		c->in_at = 0;
	}
	do
		n = recv(c->fd, c->in + c->in_len, sizeof(c->in) - c->in_len, 0);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return -ECONNRESET;
	c->in_len += (size_t)n;
	atomic_store(&c->heard_ms, now_ms());
	return 0;
}

/* The next bytes, from the buffer. */
static int take(struct fs1_conn *c, void *buf, size_t len)
{
	while (c->in_len - c->in_at < len)
		if (more(c) < 0)
			return -ECONNRESET;
	memcpy(buf, c->in + c->in_at, len);
	c->in_at += len;
	return 0;
}

/* The same past the buffer, for what is long. */
static int take_long(struct fs1_conn *c, char *buf, size_t len)
{
	size_t have = c->in_len - c->in_at;

	if (have > len)
		have = len;
	memcpy(buf, c->in + c->in_at, have);
	c->in_at += have;
	while (have < len) {
		ssize_t n = recv(c->fd, buf + have, len - have, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -ECONNRESET;
		have += (size_t)n;
		atomic_store(&c->heard_ms, now_ms());
	}
	return 0;
}

static int skip(struct fs1_conn *c, size_t len)
{
	while (len) {
		size_t have = c->in_len - c->in_at;

		if (!have) {
			if (more(c) < 0)
				return -ECONNRESET;
			continue;
		}
		if (have > len)
			have = len;
		c->in_at += have;
		len -= have;
	}
	return 0;
}

#define GROW (64u * 1024)

static int fill(struct fs1_conn *c, struct fs1_call *call, size_t len)
{
	if (len > call->max)
		return -EPROTO;
	if (call->into)
		call->out = call->into;
	while (call->out_len < len) {
		size_t n = len - call->out_len;
		char *p;

		if (!call->into && n > GROW + call->out_len)
			n = GROW + call->out_len; /* twice as much as has come */
		if (!call->into) {
			p = realloc(call->out, call->out_len + n + 1);
			if (!p)
				return -ENOMEM;
			call->out = p;
		}
		if (take_long(c, call->out + call->out_len, n) < 0)
			return -ECONNRESET;
		call->out_len += n;
	}
	if (!call->into && call->out)
		call->out[len] = '\0';
	return 0;
}

/* An open that nobody waits for any more has made a handle that nobody knows. */
static void close_orphan(struct fs1_conn *c, enum files_op op, const struct fs_frame *f,
	const struct files_rep *r)
{
	struct files_req q = { .handle = r->handle };

	if (f->value >= 0 && r->handle && (op == FILES_OPEN || op == FILES_LIST))
		(void)fs1_send_bare(c, FILES_CLOSE, &q, NULL, 0);
}

static int answer(struct fs1_conn *c, const struct fs_frame *f, const struct files_rep *r)
{
	struct slot *s = &c->slots[f->tag % SLOTS];
	struct fs1_call *call;
	uint64_t arg;
	bool ends;
	int rc;

	pthread_mutex_lock(&c->lock);
	if (s->tag != f->tag || s->op != f->op) {
		pthread_mutex_unlock(&c->lock);
		return -EPROTO;
	}
	call = s->call;
	arg = s->arg;
	if (call)
		call->filling = true;
	pthread_mutex_unlock(&c->lock);
	rc = call && f->value >= 0 ? fill(c, call, r->data_len) : skip(c, r->data_len);
	if (rc == 0 && f->op == FILES_WATCH)
		watches_answer(c, arg, f->value);
	pthread_mutex_lock(&c->lock);
	if (call) {
		call->value = f->value;
		call->rep = *r;
		call->seen = atomic_load(&c->pushes);
		call->filling = false;
		call->done = rc == 0;
	}
	pthread_cond_broadcast(&s->answered);
	if (rc == 0) {
		s->tag = 0;
		s->call = NULL;
		c->busy--;
		pthread_cond_signal(&c->room);
	}
	ends = c->retired && !c->busy;
	pthread_mutex_unlock(&c->lock);
	if (ends)
		fs1_drop(c);
	if (rc == 0 && !call)
		close_orphan(c, (enum files_op)f->op, f, r);
	return rc;
}

static int push(struct fs1_conn *c, size_t len)
{
	char *buf = malloc(len + 1); /* at most FS_PUSH_MAX */
	int rc = buf ? take_long(c, buf, len) : -ENOMEM;

	if (rc == 0) {
		atomic_fetch_add(&c->m->fs1->pushes, 1);
		rc = watches_push(c, buf, len);
	}
	free(buf);
	return rc;
}

void *fs1_receive(void *arg)
{
	struct fs1_conn *c = arg;
	struct files_rep r;
	struct fs_frame f;
	int rc;

	do {
		rc = take(c, &f, sizeof(f));
		if (rc == 0 && f.len < sizeof(r))
			rc = -EPROTO;
		if (rc == 0)
			rc = take(c, &r, sizeof(r));
		if (rc == 0 && !fs1_head_ok(&f, &r))
			rc = -EPROTO;
		if (rc == 0)
			rc = f.tag ? answer(c, &f, &r) : push(c, r.data_len);
	} while (rc == 0);
	fs1_drop(c);
	fs1_fail_all(c);
	watches_end(c);
	fs1_put(c);
	return NULL;
}
