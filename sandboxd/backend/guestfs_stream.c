/* SPDX-License-Identifier: MIT */
/* Streams: a client's connection is given to the worker, which serves it until it ends. The request
 * that gives it is answered then, so the wait for that answer is the life of the stream here. What
 * happened on streams is asked for once a second, by whichever of a sandbox's streams comes first.
 */
#include "sandboxd/backend/guestfs_check.h"

#include "common/base/log.h"
#include "common/sys/fd.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define ASK_MS     1000
#define GONE_TICKS 3 /* so long a worker may still be busy with what a client that is gone has asked for */

static int64_t mono_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

bool guestfs_stream_begin(struct guestfs *fs)
{
	struct guestfs_streams *s = guestfs_streams_of(fs);
	bool room;

	pthread_mutex_lock(&s->lock);
	room = s->n < FS_CONNS_MAX;
	s->n += room;
	pthread_mutex_unlock(&s->lock);
	return room;
}

void guestfs_stream_end(struct guestfs *fs)
{
	struct guestfs_streams *s = guestfs_streams_of(fs);

	pthread_mutex_lock(&s->lock);
	s->n--;
	pthread_mutex_unlock(&s->lock);
}

/* A worker's count that falls makes no use. */
static bool take_uses(struct guestfs_streams *s, const struct guestfs_result *r, uint64_t *ret_lost)
{
	bool used;

	pthread_mutex_lock(&s->lock);
	used = (uint64_t)r->value > s->uses;
	s->uses = (uint64_t)r->value;
	*ret_lost = r->offset > s->lost ? r->offset - s->lost : 0;
	s->lost = r->offset;
	pthread_mutex_unlock(&s->lock);
	return used;
}

bool guestfs_may_tell(struct guestfs *fs, size_t path_len)
{
	struct guestfs_streams *s = guestfs_streams_of(fs);
	int64_t now = mono_ms(), more = (int64_t)path_len + GUESTFS_TELL_ONE;
	bool room;

	pthread_mutex_lock(&s->lock);
	s->told -= (now - s->told_ms) * GUESTFS_TELL_A_SEC / 1000;
	s->told_ms = now;
	if (s->told < 0)
		s->told = 0;
	room = s->told + more <= GUESTFS_TELL_BURST;
	s->told += room ? more : 0;
	pthread_mutex_unlock(&s->lock);
	return room;
}

/* How many things it told; *more: there is more to fetch. */
static unsigned ask(struct guestfs *fs, const struct guestfs_watch *w, bool *more)
{
	struct guestfs_args none = { .client = 0 };
	struct guestfs_result r;
	uint64_t lost;
	unsigned n;

	*more = false;
	if (guestfs_call(fs, FILES_ACTIVITY, &none, &r, NULL) < 0)
		return 0;
	if (take_uses(guestfs_streams_of(fs), &r, &lost))
		w->used(w->arg);
	if (lost)
		log_warn("more happened to a sandbox's files than its log could take lost=%llu",
			(unsigned long long)lost);
	n = guestfs_tell_done(fs, &r, w->each, w->arg);
	*more = n && r.data_len > FILES_EXPIRED_MAX / 2;
	guestfs_result_free(&r);
	return n;
}

/* All of it, but no more than a worker can have kept: one that goes on for ever is not followed. */
static void ask_all(struct guestfs *fs, const struct guestfs_watch *w)
{
	unsigned n = 0;
	bool more;

	do
		n += ask(fs, w, &more);
	while (more && n < GUESTFS_CLOSED_MAX);
}

static bool due(struct guestfs_streams *s)
{
	int64_t now = mono_ms();
	bool yes;

	pthread_mutex_lock(&s->lock);
	yes = now - s->asked_ms >= ASK_MS / 2;
	if (yes)
		s->asked_ms = now;
	pthread_mutex_unlock(&s->lock);
	return yes;
}

static int give(int conn, uint64_t client, int fd, uint64_t tag)
{
	struct {
		struct proto_frame f;
		struct files_req q;
	} m = { .f = { .op = FILES_ADOPT, .tag = tag, .len = sizeof(m.q) },
		.q = { .client = client } };

	return fd_send_msg(conn, &m, sizeof(m), &fd, 1);
}

/* Both directions are closed: a client that only ended its sending still reads. */
static bool hung_up(int fd)
{
	struct pollfd p = { .fd = fd };

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR | POLLNVAL));
}

/* Until the worker answers; false: it has not, and nobody is there any more for whom it would. */
static bool wait_end(struct guestfs *fs, int conn, int fd, const struct guestfs_watch *w)
{
	for (int gone = 0; !fd_wait(conn, POLLIN, ASK_MS); gone = hung_up(fd) ? gone + 1 : 0) {
		if (gone == GONE_TICKS)
			return false;
		if (w->stop && w->stop(w->arg))
			(void)shutdown(fd, SHUT_RDWR);
		if (due(guestfs_streams_of(fs)))
			ask_all(fs, w);
	}
	return true;
}

int guestfs_stream(
	struct guestfs *fs, uint64_t client, int fd, const struct guestfs_watch *w, struct err *e)
{
	struct guestfs_args none = { .client = client };
	struct guestfs_conn *c;
	struct proto_frame f;
	struct files_rep rep;
	uint64_t tag;
	int conn, r;

	if (guestfs_take(fs, &c, &conn, &tag, e) < 0)
		return -1;
	if (give(conn, client, fd, tag) < 0) {
		guestfs_give(fs, c, false);
		return err_set(e, ERR_UNAVAILABLE, "the sandbox's files do not answer");
	}
	if (!wait_end(fs, conn, fd, w)) {
		ask_all(fs, w);
		guestfs_give(fs, c, false);
		return err_set(e, ERR_UNAVAILABLE, "the sandbox's files do not answer");
	}
	r = guestfs_head(fs, conn, FILES_ADOPT, tag, 0, &f, &rep, e);
	guestfs_give(fs, c, r >= 0);
	if (r > 0)
		return guestfs_refused(f.value, FILES_ADOPT, &none, e);
	if (r == 0)
		ask_all(fs, w);
	return r;
}
