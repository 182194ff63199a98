/* SPDX-License-Identifier: MIT */
/* What comes on a connection. The peer is the guest's side: a frame that breaks a rule ends the
 * connection, and memory is only taken for bytes that have come. One thread reads at a time, now this
 * one, now that (fs1_wait.c); where it stops in a frame, the next one goes on. */
#include "sbxfs/fs1_priv.h"
#include "sbxfs/locks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define GROW (64u * 1024)
#define HEAD (sizeof(struct fs_frame) + sizeof(struct files_rep))

/* All of these give 1, 0 when nothing came in time, or -errno when the connection is of no use. */
static int take(struct fs1_conn *c, void *buf, size_t len, int flags, size_t *ret)
{
	ssize_t n;

	do
		n = recv(c->fd, buf, len, flags);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n <= 0)
		return -ECONNRESET;
	*ret = (size_t)n;
	if (c->cur.begun && c->cur.f.tag) /* changes are told by a peer that answers nobody, too */
		atomic_store(&c->heard_ms, now_ms());
	return 1;
}

/* More into the buffer, which has room behind what is left of it. */
static int more(struct fs1_conn *c, int flags)
{
	size_t n = 0;
	int rc;

	if (c->in_at) {
		memmove(c->in, c->in + c->in_at, c->in_len - c->in_at);
		c->in_len -= c->in_at;
		c->in_at = 0;
	}
	rc = take(c, c->in + c->in_len, sizeof(c->in) - c->in_len, flags, &n);
	c->in_len += n;
	return rc;
}

static size_t have(const struct fs1_conn *c)
{
	return c->in_len - c->in_at;
}

/* Not more than was asked for. What is in shared memory comes with no data. */
static bool is_fit(const struct fs1_call *call, const struct incoming *i)
{
	if (call->shared)
		return !i->r.data_len && (call->op != FILES_READ || (uint64_t)i->f.value <= call->max);
	return i->r.data_len <= call->max;
}

/* Whose frame it is. */
static int begin(struct fs1_conn *c)
{
	struct incoming *i = &c->cur;
	struct slot *s = &c->slots[i->f.tag % SLOTS];
	int rc = 0;

	i->got = 0;
	i->call = NULL;
	if (!i->f.tag) {
		i->push = malloc(i->r.data_len + 1); /* at most FS_PUSH_MAX */
		return i->push ? 1 : -ENOMEM;
	}
	atomic_store(&c->heard_ms, now_ms());
	pthread_mutex_lock(&c->lock);
	if (s->tag != i->f.tag || s->op != i->f.op)
		rc = -EPROTO;
	else if (s->call && i->f.value >= 0 && !is_fit(s->call, i))
		rc = -EPROTO;
	i->arg = s->arg;
	if (rc == 0 && s->call) {
		i->call = s->call;
		i->call->filling = true;
	}
	pthread_mutex_unlock(&c->lock);
	return rc < 0 ? rc : 1;
}

static int head(struct fs1_conn *c, int flags)
{
	struct incoming *i = &c->cur;
	int rc;

	while (have(c) < HEAD) {
		if (have(c) >= sizeof(i->f)) {
			memcpy(&i->f, c->in + c->in_at, sizeof(i->f));
			if (i->f.len < sizeof(i->r))
				return -EPROTO;
		}
		rc = more(c, flags);
		if (rc <= 0)
			return rc;
	}
	memcpy(&i->f, c->in + c->in_at, sizeof(i->f));
	memcpy(&i->r, c->in + c->in_at + sizeof(i->f), sizeof(i->r));
	c->in_at += HEAD;
	if (!fs1_head_ok(&i->f, &i->r))
		return -EPROTO;
	rc = begin(c);
	i->begun = rc > 0;
	return rc;
}

/* Where the next bytes go, and for how many there is room; NULL: nobody wants them. */
static int place(struct incoming *i, char **ret, size_t *ret_room)
{
	struct fs1_call *call = i->f.value >= 0 ? i->call : NULL;
	size_t left = i->r.data_len - i->got;
	char *p;

	*ret = i->push ? i->push + i->got : NULL;
	*ret_room = left;
	if (i->push || !call)
		return 0;
	if (call->into) {
		call->out = call->into;
	} else if (i->got == call->cap) {
		left = left < GROW + i->got ? left : GROW + i->got; /* twice as much as has come */
		p = realloc(call->out, i->got + left + 1);
		if (!p)
			return -ENOMEM;
		call->out = p;
		call->cap = i->got + left;
	}
	if (!call->into)
		*ret_room = call->cap - i->got;
	*ret = call->out + i->got;
	return 0;
}

static int body(struct fs1_conn *c, int flags)
{
	struct incoming *i = &c->cur;
	uint64_t began = now_ms();

	while (i->got < i->r.data_len) {
		size_t n = 0, room;
		char *to;
		int rc = place(i, &to, &room);

		if (rc == 0 && !have(c))
			rc = to ? take(c, to, room, flags, &n) : more(c, flags);
		else if (rc == 0)
			rc = 1;
		if (rc <= 0)
			return rc;
		if (!n) {
			n = have(c) < room ? have(c) : room;
			if (to)
				memcpy(to, c->in + c->in_at, n);
			c->in_at += n;
		}
		i->got += n;
		/* Byte by byte it could last for ever, and who reads has a deadline of its own. */
		if (i->got < i->r.data_len && now_ms() - began > FS1_LOOK_MS)
			return 0;
	}
	return 1;
}

/* An open that nobody waits for any more has made a handle that nobody knows. */
static void close_orphan(struct fs1_conn *c, enum files_op op, const struct fs_frame *f,
	const struct files_rep *r)
{
	struct files_req q = { .handle = r->handle };

	if (f->value >= 0 && r->handle && (op == FILES_OPEN || op == FILES_LIST))
		(void)fs1_send_bare(c, FILES_CLOSE, &q, NULL, 0);
}

/* Lock held. */
static void fulfil(struct fs1_conn *c, struct incoming *i)
{
	struct fs1_call *call = i->call;

	if (i->f.value >= 0) {
		call->out_len = call->shared && call->op == FILES_READ ? (size_t)i->f.value : i->got;
		if (call->shared)
			call->out = call->into;
		if (!call->into && call->out)
			call->out[i->got] = '\0';
	}
	call->value = i->f.value;
	call->rep = i->r;
	call->seen = atomic_load(&c->pushes);
	call->filling = false;
	call->done = true;
}

static int answered(struct fs1_conn *c)
{
	struct incoming *i = &c->cur;
	struct slot *s = &c->slots[i->f.tag % SLOTS];
	struct fs1_call *parked = NULL;
	unsigned held;
	bool ends, orphan;
	int rc = 0;

	if (i->f.op == FILES_WATCH)
		rc = watches_answer(c, i->arg, i->f.value, &i->r);
	pthread_mutex_lock(&c->lock);
	orphan = !i->call;
	if (i->call) {
		fulfil(c, i);
		if (fs1_park_takes(c, i->call))
			parked = i->call;
	}
	i->call = NULL;
	pthread_cond_broadcast(&s->answered);
	held = s->held;
	s->held = 0;
	s->tag = 0;
	s->call = NULL;
	c->busy--;
	pthread_cond_signal(&c->room);
	ends = c->retired && !c->busy;
	pthread_mutex_unlock(&c->lock);
	fs1_buf_let(c, held);
	if (parked)
		fs1_park_end(c, parked);
	if (ends)
		fs1_drop(c);
	if (orphan)
		close_orphan(c, (enum files_op)i->f.op, &i->f, &i->r);
	return rc < 0 ? rc : 1;
}

static int pushed(struct fs1_conn *c)
{
	struct incoming *i = &c->cur;
	int rc;

	atomic_fetch_add(&c->m->fs1->pushes, 1);
	rc = i->f.op == FILES_GRANT ? lock_granted(c, &i->f, &i->r) :
				      watches_push(c, i->push, i->r.data_len);
	free(i->push);
	i->push = NULL;
	return rc < 0 ? rc : 1;
}

int fs1_step(struct fs1_conn *c, int flags)
{
	int rc = c->cur.begun ? 1 : head(c, flags);

	if (rc > 0)
		rc = body(c, flags);
	if (rc <= 0)
		return rc;
	c->cur.begun = false;
	if (!c->cur.f.tag)
		return pushed(c);
	return answered(c);
}

bool fs1_whole(const struct fs1_conn *c)
{
	const struct incoming *i = &c->cur;
	struct fs_frame f;

	if (i->begun)
		return have(c) >= i->r.data_len - i->got;
	if (have(c) < HEAD)
		return false;
	memcpy(&f, c->in + c->in_at, sizeof(f));
	return f.len <= have(c) - sizeof(f);
}

/* Reads while nobody waits for an answer: what is pushed, what was asked for ahead, and what others left. */
void *fs1_receive(void *arg)
{
	struct fs1_conn *c = arg;
	struct epoll_event ev;
	bool broken;
	int rc;

	do {
		if (epoll_wait(c->ep, &ev, 1, -1) < 0 && errno != EINTR)
			fs1_drop(c);
		pthread_mutex_lock(&c->lock);
		c->armed = false;
		if (!c->reading && !c->broken) {
			c->reading = true;
			pthread_mutex_unlock(&c->lock);
			while ((rc = fs1_step(c, MSG_DONTWAIT)) > 0)
				;
			if (rc == 0)
				rc = fs1_park_read(c);
			fs1_stop_reading(c, rc);
			pthread_mutex_lock(&c->lock);
		}
		broken = c->broken;
		pthread_mutex_unlock(&c->lock);
	} while (!broken);
	fs1_drop(c);
	fs1_fail_all(c);
	watches_end(c);
	lock_conn_end(c->m, c->box);
	free(c->cur.push);
	fs1_put(c);
	return NULL;
}
