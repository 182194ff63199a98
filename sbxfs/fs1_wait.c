/* SPDX-License-Identifier: MIT */
/* Waiting for answers. Who waits reads, when nobody does: so an answer reaches the one that asked for it
 * without waking another thread first. Who reads takes what comes for others, too, and when it has its own,
 * the next one that waits reads on; when nobody waits, the connection's own thread does. */
#include "sbxfs/fs1_priv.h"
#include "sbxfs/session.h"

#include "common/sys/deadline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define CANCEL_MS 2000
#define LEAD_MAX 256 /* frames that are not ours before we look at the clock */

/* Lock held, in all but what is said. The connection's own thread is woken by bytes, or not. */
static void arm(struct fs1_conn *c, bool on)
{
	/* For what nobody waits for it looks at the clock, too: there is always room to send, so it comes now. */
	uint32_t now = atomic_load(&c->parked) ? EPOLLIN | EPOLLOUT : EPOLLIN;
	struct epoll_event ev = { .events = EPOLLONESHOT | (on ? now : 0u) };

	if (c->armed == on)
		return;
	c->armed = on;
	(void)epoll_ctl(c->ep, EPOLL_CTL_MOD, c->fd, &ev);
}

bool fs1_start_reading(struct fs1_conn *c)
{
	if (c->reading || c->broken)
		return false;
	c->reading = true;
	arm(c, false);
	return true;
}

/* Somebody must read on. */
static void pass_on(struct fs1_conn *c)
{
	if (c->reading)
		return;
	for (unsigned n = 0; c->waiters && n < SLOTS && !c->broken; n++)
		if (c->slots[n].call && c->slots[n].call->waiting) {
			pthread_cond_signal(&c->slots[n].answered);
			return;
		}
	arm(c, true);
}

/* Not held, in these two. */
static void leave(struct fs1_conn *c, int rc)
{
	if (rc < 0)
		fs1_drop(c);
	pthread_mutex_lock(&c->lock);
	c->reading = false;
	if (rc < 0) {
		c->broken = true;
		if (c->cur.call) {
			c->cur.call->filling = false;
			pthread_cond_broadcast(&c->slots[c->cur.call->slot].answered);
			c->cur.call = NULL;
		}
	}
	pass_on(c);
	pthread_mutex_unlock(&c->lock);
}

/* What has come already is not told of by the kernel: it is taken before another thread waits. */
void fs1_stop_reading(struct fs1_conn *c, int rc)
{
	while (rc >= 0 && fs1_whole(c) && (rc = fs1_step(c, MSG_DONTWAIT)) > 0)
		;
	leave(c, rc);
}

/* The same for one that sends and has not read yet: the peer may be waiting for its answers to be read. */
void fs1_let_read(struct fs1_conn *c, struct fs1_call *call)
{
	if (!call || !call->leads)
		return;
	call->leads = false;
	leave(c, 0);
}

/* An answer that comes at once is not slept for. */
int fs1_next(struct fs1_conn *c)
{
	int rc;

	spin_begin(&c->spin);
	while ((rc = fs1_step(c, MSG_DONTWAIT)) == 0 && spin_goes_on(&c->spin))
		session_looks();
	if (rc == 0) {
		session_sleeps();
		rc = fs1_step(c, 0);
	}
	spin_end(&c->spin);
	return rc;
}

/* One turn of reading. Others' answers that have come with ours are taken along when nobody waits who
 * could. */
static void lead(struct fs1_conn *c, struct fs1_call *call)
{
	int rc, most = LEAD_MAX;

	pthread_mutex_unlock(&c->lock);
	do
		rc = fs1_next(c);
	while (rc > 0 && !call->done && --most);
	call->leads = false;
	fs1_stop_reading(c, rc);
	pthread_mutex_lock(&c->lock);
}

static void wait_slot(struct fs1_conn *c, struct fs1_call *call)
{
	session_sleeps();
	c->waiters++;
	call->waiting = true;
	(void)cond_wait_ms(&c->slots[call->slot].answered, &c->lock, FS1_LOOK_MS);
	call->waiting = false;
	c->waiters--;
}

/* Nobody waits any more; while data is being read into the caller's memory that has to stop first. */
void fs1_abandon(struct fs1_conn *c, struct fs1_call *call)
{
	if (call->filling && c->reading)
		(void)shutdown(c->fd, SHUT_RDWR);
	while (call->filling && c->reading)
		pthread_cond_wait(&c->slots[call->slot].answered, &c->lock);
	if (call->filling) { /* between two readers: the rest is skipped */
		call->filling = false;
		c->cur.call = NULL;
	}
	if (call->done)
		return;
	c->slots[call->slot].call = NULL;
	if (call->shared)
		c->slots[call->slot].held = fs1_buf_hold(call->buf);
}

bool fs1_expired(const struct fs1_conn *c, const struct fs1_call *call)
{
	uint64_t now = now_ms(), heard = atomic_load(&c->heard_ms), start = call->begun_ms;
	uint64_t limit = (uint64_t)mount_patience(c->m, call->timeout_ms ? call->timeout_ms : FS1_TIMEOUT_MS);

	if (now - start <= limit)
		return false;
	return now - start > limit * FS1_PATIENCE || (heard < now && now - heard > limit);
}

/* Lock held: until it is done. -ETIMEDOUT, -EINTR. */
static int await(struct req *q, struct fs1_conn *c, struct fs1_call *call)
{
	uint64_t look = now_ms() + FS1_LOOK_MS;

	while (!call->done) {
		if (call->leads || fs1_start_reading(c))
			lead(c, call);
		else
			wait_slot(c, call);
		if (call->done || now_ms() < look)
			continue;
		look = now_ms() + FS1_LOOK_MS;
		if (fs1_expired(c, call))
			return -ETIMEDOUT;
		if (remote_interrupted(q))
			return -EINTR;
	}
	return 0;
}

int fs1_ready(struct req *q, struct fs1_call *call)
{
	struct fs1_conn *c = call->conn;
	int rc;

	pthread_mutex_lock(&c->lock);
	rc = await(q, c, call);
	pass_on(c);
	pthread_mutex_unlock(&c->lock);
	return rc == -EINTR ? refuse(q, EINTR, "interrupted") : 0;
}

int fs1_result(struct req *q, struct fs1_call *call)
{
	int rc;

	if (call->lost) {
		atomic_fetch_add(&q->m->fs1->lost, 1);
		return call->once ? refuse(q, EIO, "the connection was lost while this was under way") :
				    FS1_PLAIN;
	}
	if (call->value >= 0)
		return 0;
	rc = fs1_errno(call->value);
	return refuse(q, -rc, "the sandbox's file system says: %s", strerror(-rc));
}

int fs1_wait(struct req *q, struct fs1_call *call)
{
	struct fs1_conn *c = call->conn;
	uint64_t limit = (uint64_t)mount_patience(c->m, FS1_TIMEOUT_MS);
	bool late;
	int rc;

	pthread_mutex_lock(&c->lock);
	rc = await(q, c, call);
	late = rc == -ETIMEDOUT;
	if (!call->done)
		fs1_abandon(c, call);
	if (call->done)
		rc = 0;
	pass_on(c);
	pthread_mutex_unlock(&c->lock);
	if (rc == 0)
		rc = fs1_result(q, call);
	else
		(void)refuse(q, -rc, late ? "the sandbox does not answer" : "interrupted");
	if (late && now_ms() - atomic_load(&c->heard_ms) > limit)
		fs1_shun(c);
	if (rc)
		fs1_call_fini(call);
	call->conn = NULL;
	fs1_put(c);
	return rc;
}

void fs1_cancel(struct fs1_call *call)
{
	struct fs1_conn *c = call->conn;
	/* Bytes that come right now come to their end soon, or the connection does. */
	struct timespec until = deadline_ms(CANCEL_MS);

	pthread_mutex_lock(&c->lock);
	while (call->filling && c->reading &&
		cond_wait_until(&c->slots[call->slot].answered, &c->lock, &until))
		;
	fs1_abandon(c, call);
	pthread_mutex_unlock(&c->lock);
	fs1_call_fini(call);
	call->conn = NULL;
	fs1_put(c);
}
