/* SPDX-License-Identifier: MIT */
/* Requests on a connection. A slot is taken and the frame is sent by the thread that asks. Who gives up
 * leaves the slot to who reads, which frees it when the answer comes after all. */
#include "sbxfs/fs1_priv.h"
#include "sbxfs/session.h"

#include "common/sys/deadline.h"
#include "common/sys/fd.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define STILL_MS 1000  /* the same when the sender is told to stop */

static void skip(struct msghdr *msg, size_t sent)
{
	while (msg->msg_iovlen && sent >= msg->msg_iov->iov_len) {
		sent -= msg->msg_iov->iov_len;
		msg->msg_iov++;
		msg->msg_iovlen--;
	}
	if (msg->msg_iovlen) {
		msg->msg_iov->iov_base = (char *)msg->msg_iov->iov_base + sent;
		msg->msg_iov->iov_len -= sent;
	}
}

/* A frame on its way out. */
struct sending {
	struct fs1_conn *c;
	struct fs1_call *call; /* whose it is, or NULL */
	struct req *q;         /* who may be interrupted, or NULL */
	uint64_t start_ms, moved_ms; /* 0: nothing has stopped it yet */
	bool begun;
};

/* The peer takes nothing now, and who reads does not wait for it: may it go on? -EINTR: not a byte has
 * left. */
static int wait_room(struct sending *s)
{
	uint64_t now = now_ms(), limit = (uint64_t)mount_patience(s->c->m, FS1_SEND_MS);

	session_sleeps();
	fs1_let_read(s->c, s->call);
	if (!s->moved_ms)
		s->moved_ms = now;
	if (!s->start_ms)
		s->start_ms = now;
	if (now - s->moved_ms > limit || now - s->start_ms > limit * FS1_PATIENCE)
		return -ETIMEDOUT;
	if (s->q && (!s->begun || now - s->moved_ms > STILL_MS) && remote_interrupted(s->q))
		return s->begun ? -ECONNABORTED : -EINTR;
	(void)fd_wait(s->c->fd, POLLOUT, FS1_LOOK_MS);
	return 0;
}

/* All of it; else, but for -EINTR, the connection is of no use any more. */
static int send_full(struct sending *s, struct iovec *v, size_t n)
{
	struct msghdr msg = { .msg_iov = v, .msg_iovlen = n };

	while (msg.msg_iovlen) {
		ssize_t sent = sendmsg(s->c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
		int rc;

		if (sent < 0 && errno == EAGAIN) {
			rc = wait_room(s);
			if (rc < 0)
				return rc;
		} else if (sent < 0 && errno != EINTR) {
			return -errno;
		} else if (sent > 0) {
			s->begun = true;
			s->moved_ms = 0;
			skip(&msg, (size_t)sent);
		}
	}
	return 0;
}

struct message {
	struct fs_frame f;
	struct files_req r;
	const char *path, *path2;
	const void *data;
	size_t data_len;
};

/* -EINTR: the caller does not want to wait for those who send before it. */
static int lock_send(struct sending *s)
{
	struct fs1_conn *c = s->c;

	if (pthread_mutex_trylock(&c->send) == 0)
		return 0;
	session_sleeps();
	fs1_let_read(c, s->call);
	do {
		if (s->q && remote_interrupted(s->q))
			return -EINTR;
	} while (!mutex_lock_ms(&c->send, FS1_LOOK_MS));
	return 0;
}

/* call: whose it is, and q who asks for it, or NULL. */
static int send_message(struct fs1_conn *c, struct message *m, struct fs1_call *call, struct req *q)
{
	struct sending s = { .c = c, .call = call, .q = q };
	struct iovec v[5] = { { &m->f, sizeof(m->f) }, { &m->r, sizeof(m->r) } };
	size_t n = 2;
	int rc;

	m->r.path_len = (uint32_t)(m->path ? strlen(m->path) : 0);
	m->r.path2_len = (uint32_t)(m->path2 ? strlen(m->path2) : 0);
	m->r.data_len = (uint32_t)m->data_len;
	m->f.len = (uint32_t)sizeof(m->r) + m->r.path_len + m->r.path2_len + m->r.data_len;
	if (m->r.path_len)
		v[n++] = (struct iovec){ (void *)(uintptr_t)m->path, m->r.path_len };
	if (m->r.path2_len)
		v[n++] = (struct iovec){ (void *)(uintptr_t)m->path2, m->r.path2_len };
	if (m->data_len)
		v[n++] = (struct iovec){ (void *)(uintptr_t)m->data, m->data_len };
	rc = lock_send(&s);
	if (rc < 0)
		return rc;
	rc = send_full(&s, v, n);
	pthread_mutex_unlock(&c->send);
	return rc;
}

/* Lock held, and there is room. */
static unsigned take_slot(struct fs1_conn *c, struct fs1_call *call, enum files_op op, uint64_t arg)
{
	unsigned n = 0;

	while (c->slots[n].tag)
		n++;
	c->slots[n].call = call;
	c->slots[n].tag = ++c->serial * SLOTS + n;
	c->slots[n].op = op;
	c->slots[n].arg = arg;
	c->slots[n].held = 0;
	c->busy++;
	c->used_ms = now_ms();
	return n;
}

static void free_slot(struct fs1_conn *c, unsigned n)
{
	c->slots[n].tag = 0;
	c->slots[n].call = NULL;
	c->busy--;
	pthread_cond_signal(&c->room);
}

/* Takes the lock. reads: its thread does, from now on, if nobody does. */
static int claim(struct req *q, struct fs1_conn *c, struct fs1_call *call, bool reads)
{
	uint64_t start = now_ms(), limit = (uint64_t)mount_patience(c->m, FS1_TIMEOUT_MS);
	int rc = 0;

	pthread_mutex_lock(&c->lock);
	while (!c->dead && c->busy >= c->limit && rc == 0) {
		session_sleeps();
		(void)cond_wait_ms(&c->room, &c->lock, FS1_LOOK_MS);
		if (c->busy < c->limit)
			break;
		if (remote_interrupted(q))
			rc = refuse(q, EINTR, "interrupted");
		else if ((now_ms() - start > limit && now_ms() - atomic_load(&c->heard_ms) > limit) ||
			now_ms() - start > limit * FS1_PATIENCE)
			c->dead = true; /* it answers nobody */
	}
	if (rc == 0 && (c->dead || (c->retired && !c->busy)))
		rc = FS1_PLAIN;
	if (rc == 0)
		call->slot = take_slot(c, call, call->op, 0);
	if (rc == 0) {
		call->tag = c->slots[call->slot].tag;
		call->leads = reads && fs1_start_reading(c);
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

static bool counts_as_use(const struct req *q)
{
	return q->acts || q->uses || q->m->opt.use_all;
}

/* What is not complete is not carried out, so that the plain way may do it. */
static int send_call(struct req *q, struct fs1_conn *c, struct fs1_call *call)
{
	struct message m = { .f = { .op = (uint16_t)call->op }, .r = call->r, .path = call->path,
		.path2 = call->path2, .data = call->data, .data_len = call->data_len };
	int rc;

	if (counts_as_use(q))
		m.r.flags |= FILES_USE;
	m.f.tag = call->tag;
	if (call->shared) {
		m.r.flags |= FILES_SHARED;
		m.r.offset2 = fs1_buf_place(call->buf);
		m.r.length = call->op == FILES_WRITE ? m.data_len : m.r.length;
		m.data_len = 0;
	}
	rc = send_message(c, &m, call, q);
	if (rc == 0)
		return 0;
	if (rc != -EINTR)
		fs1_drop(c);
	fs1_let_read(c, call);
	pthread_mutex_lock(&c->lock);
	fs1_abandon(c, call);
	if (!call->done)
		free_slot(c, call->slot);
	pthread_mutex_unlock(&c->lock);
	fs1_call_fini(call);
	return rc == -EINTR ? refuse(q, EINTR, "interrupted") : FS1_PLAIN;
}

int fs1_begin_for(struct req *q, const char *box, struct fs1_call *call, bool reads)
{
	struct fs1 *f = q->m->fs1;
	struct fs1_conn *c = fs1_get(q, box);
	int rc;

	if (!fs1_takes(c, call->path) || !fs1_takes(c, call->path2)) {
		if (c)
			fs1_put(c);
		return -ENAMETOOLONG;
	}
	if (!c)
		return FS1_PLAIN;
	call->conn = c;
	call->done = call->lost = call->filling = call->waiting = call->leads = call->sent = false;
	call->out = NULL;
	call->out_len = call->cap = 0;
	call->begun_ms = now_ms();
	call->shared = call->buf && call->buf->conn == c;
	call->epoch = atomic_load(&c->epoch);
	call->asked = atomic_load(&c->pushes);
	rc = claim(q, c, call, reads);
	if (rc == FS1_PLAIN)
		fs1_drop(c);
	if (rc == 0) {
		atomic_fetch_add(&f->requests, 1);
		atomic_fetch_add(&q->m->stats.requests, 1);
		rc = send_call(q, c, call);
	}
	if (rc) {
		if (rc == FS1_PLAIN)
			atomic_fetch_add(&f->lost, 1);
		call->conn = NULL;
		fs1_put(c);
	}
	return rc;
}

int fs1_begin(struct req *q, const char *box, struct fs1_call *call)
{
	return fs1_begin_for(q, box, call, false);
}

int fs1_call(struct req *q, const char *box, struct fs1_call *call)
{
	int rc = fs1_begin_for(q, box, call, true);

	if (rc == 0)
		rc = fs1_wait(q, call);
	if (rc == FS1_PLAIN && (!fs1_takes(NULL, call->path) || !fs1_takes(NULL, call->path2)))
		rc = -EIO;
	if (rc == FS1_PLAIN)
		atomic_fetch_add(&q->m->fs1->plain, 1);
	return rc;
}

bool fs1_takes(const struct fs1_conn *c, const char *path)
{
	size_t len = path ? strlen(path) : 0;

	return len < FILES_PATH_MAX || (c && len < FS_PATH_MAX && (c->hello.features & FS_FEATURE_LONG_PATHS));
}

void fs1_call_fini(struct fs1_call *call)
{
	if (call->out != call->into)
		free(call->out);
	call->out = NULL;
	call->out_len = 0;
}

int fs1_send_bare(struct fs1_conn *c, enum files_op op, const struct files_req *r, const char *path,
	uint64_t arg)
{
	struct message m = { .f = { .op = (uint16_t)op }, .r = *r, .path = path };
	unsigned slot = 0;
	int rc;

	pthread_mutex_lock(&c->lock);
	/* Half of the room is for those who wait. */
	rc = c->dead || c->busy >= (c->limit + 1) / 2 ? -EBUSY : 0;
	if (rc == 0) {
		slot = take_slot(c, NULL, op, arg);
		m.f.tag = c->slots[slot].tag;
	}
	pthread_mutex_unlock(&c->lock);
	if (rc == -EBUSY)
		return rc;
	rc = send_message(c, &m, NULL, NULL);
	if (rc < 0)
		fs1_drop(c); /* the slots end with it */
	return rc;
}

/* Where the peer can, it does not answer: then no slot is taken, and the tag is nobody's. */
static int send_quiet(struct fs1_conn *c, enum files_op op, struct files_req *r)
{
	struct message m = { .f = { .op = (uint16_t)op, .tag = UINT64_MAX }, .r = *r };
	int rc;

	m.r.flags |= FILES_QUIET;
	rc = send_message(c, &m, NULL, NULL);
	if (rc < 0)
		fs1_drop(c);
	return rc;
}

bool fs1_tell(struct req *q, const char *box, enum files_op op, uint64_t handle)
{
	struct files_req r = { .handle = handle };
	struct fs1_conn *c = fs1_get(q, box);
	int rc;

	if (!c)
		return false;
	if (op == FILES_CLOSE && (c->hello.features & FS_FEATURE_QUIET))
		rc = send_quiet(c, op, &r);
	else
		rc = fs1_send_bare(c, op, &r, NULL, 0);
	fs1_put(c);
	if (rc == 0) {
		atomic_fetch_add(&q->m->fs1->requests, 1);
		atomic_fetch_add(&q->m->stats.requests, 1);
	}
	return rc == 0;
}

void fs1_fail_all(struct fs1_conn *c)
{
	struct fs1_call *ends = NULL, *call;

	pthread_mutex_lock(&c->lock);
	c->dead = true;
	for (unsigned n = 0; n < SLOTS; n++) {
		struct slot *s = &c->slots[n];

		if (!s->tag)
			continue;
		if ((call = s->call))
			call->done = call->lost = true;
		if (call && fs1_park_takes(c, call)) {
			call->next = ends;
			ends = call;
		}
		pthread_cond_broadcast(&s->answered);
		free_slot(c, n);
	}
	pthread_cond_broadcast(&c->room);
	pthread_mutex_unlock(&c->lock);
	while ((call = ends)) {
		ends = call->next;
		fs1_park_end(c, call);
	}
}
