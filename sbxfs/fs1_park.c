/* SPDX-License-Identifier: MIT */
/* Requests that nobody waits for. Who reads the answer answers the kernel with it, so that the thread which
 * asked is not woken and has asked the next thing meanwhile: of many that ask at once one reads and the others
 * only send. What is under way has always somebody who reads, and looks at interrupts and deadlines: the
 * thread of one of the requests, else the connection's own. */
#include "sbxfs/fs1_priv.h"

#include "common/sys/deadline.h"

#include <errno.h>

bool fs1_park_takes(struct fs1_conn *c, struct fs1_call *call)
{
	if (!call->ended || !call->sent)
		return false;
	atomic_fetch_sub(&c->parked, 1);
	return true;
}

void fs1_park_end(struct fs1_conn *c, struct fs1_call *call)
{
	struct fs1 *f = c->m->fs1;
	int rc = call->gives_up;

	if (!rc)
		rc = fs1_result(call->q, call);
	else
		(void)refuse(call->q, -rc, rc == -ETIMEDOUT ? "the sandbox does not answer" : "interrupted");
	if (rc)
		fs1_call_fini(call);
	call->conn = NULL;
	call->ended(call, rc);
	if (atomic_fetch_sub(&f->parked, 1) == 1 && atomic_load(&f->m->stopping)) {
		pthread_mutex_lock(&f->lock);
		pthread_cond_broadcast(&f->gone);
		pthread_mutex_unlock(&f->lock);
	}
	fs1_put(c);
}

/* Lock held: is its time over? */
static int must_end(const struct fs1_conn *c, const struct fs1_call *call)
{
	if (fs1_expired(c, call))
		return -ETIMEDOUT;
	return atomic_load(&c->m->stopping) || remote_interrupted(call->q) ? -EINTR : 0;
}

/* Lock held: of those that nobody waits for, what must end now. Only by the one that reads. */
static struct fs1_call *give_up(struct fs1_conn *c)
{
	struct fs1_call *list = NULL;

	for (unsigned n = 0; n < SLOTS; n++) {
		struct fs1_call *call = c->slots[n].call;

		if (!call || !call->ended || !call->sent || !(call->gives_up = must_end(c, call)))
			continue;
		if (c->cur.call == call) /* the rest of its answer is skipped */
			c->cur.call = NULL;
		c->slots[n].call = NULL;
		(void)fs1_park_takes(c, call);
		call->next = list;
		list = call;
	}
	return list;
}

static void look(struct fs1_conn *c)
{
	uint64_t limit = (uint64_t)mount_patience(c->m, FS1_TIMEOUT_MS);
	struct fs1_call *list, *call;
	bool late = false;

	pthread_mutex_lock(&c->lock);
	list = give_up(c);
	pthread_mutex_unlock(&c->lock);
	while ((call = list)) {
		list = call->next;
		late |= call->gives_up == -ETIMEDOUT;
		fs1_park_end(c, call);
	}
	if (late && now_ms() - atomic_load(&c->heard_ms) > limit)
		fs1_shun(c);
}

int fs1_park_read(struct fs1_conn *c)
{
	uint64_t at = now_ms() + FS1_LOOK_MS;
	int rc = 0;

	while (rc >= 0 && atomic_load(&c->parked)) {
		rc = fs1_next(c);
		if (now_ms() < at)
			continue;
		at = now_ms() + FS1_LOOK_MS;
		look(c);
	}
	return rc;
}

/* It is on its way. True: this thread reads now. */
static bool leave_it(struct fs1_conn *c, struct fs1_call *call, bool *ret_done)
{
	bool reads;

	pthread_mutex_lock(&c->lock);
	*ret_done = call->done;
	reads = call->leads || (!call->done && fs1_start_reading(c));
	call->leads = false;
	call->sent = true;
	if (!call->done)
		atomic_fetch_add(&c->parked, 1);
	pthread_mutex_unlock(&c->lock);
	return reads;
}

int fs1_park(struct req *q, const char *box, struct fs1_call *call)
{
	struct fs1 *f = q->m->fs1;
	struct fs1_conn *c;
	bool reads, done;
	int rc;

	call->q = q;
	call->gives_up = 0;
	rc = fs1_begin_for(q, box, call, true);
	if (rc)
		return rc;
	c = call->conn;
	atomic_fetch_add(&f->parked, 1);
	atomic_fetch_add(&c->refs, 1); /* the call's own may end with it */
	reads = leave_it(c, call, &done);
	if (done)
		fs1_park_end(c, call);
	if (reads)
		fs1_stop_reading(c, fs1_park_read(c));
	fs1_put(c);
	return 0;
}

void fs1_park_stop(struct fs1 *f)
{
	if (!f)
		return;
	pthread_mutex_lock(&f->lock);
	while (atomic_load(&f->parked))
		(void)cond_wait_ms(&f->gone, &f->lock, FS1_LOOK_MS);
	pthread_mutex_unlock(&f->lock);
}
