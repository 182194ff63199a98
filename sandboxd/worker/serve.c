/* SPDX-License-Identifier: MIT */
/* The requests of a stream. A thread that finds one readable carries out what is quick itself, one
 * after the other, without waking anybody, and looks for the next one for a moment before it
 * sleeps. Before what may take long it lets other threads read on; so several are under way, and
 * answers go out as they are ready, whole, under the lock `send`. */
#include "common/sys/clock.h"
#include "sandboxd/worker/state.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>

#define LARGE       (256 * 1024)
#define AT_ONCE     64 /* quick requests that one thread serves in a row */
#define QUICK_BYTES 65536
#define SLOW_US     300 /* a read from memory takes less ... */
#define SLOW_MS     20  /* ... and so long the next ones are handed over */
#define STAY_MS     5
#define STAY_MAX    2 /* threads inside of all streams, of which one may stay */

static bool uses_handle(const struct turn *t, uint64_t h)
{
	return h && (t->handle == h || t->handle2 == h);
}

/* Is an earlier request of the same handles still unanswered? */
static bool must_wait(const struct stream *s, const struct turn *mine)
{
	for (unsigned i = 0; i < STREAM_BUSY; i++) {
		const struct turn *t = &s->turns[i];
		if (t->serial && t->serial < mine->serial &&
			(uses_handle(t, mine->handle) || uses_handle(t, mine->handle2)))
			return true;
	}
	return false;
}

static struct turn *take_turn(struct stream *s, const struct job *j)
{
	struct turn *t = s->turns;

	while (t->serial)
		t++; /* as many as threads inside */
	*t = (struct turn){ ++s->serial, j->q.handle, j->q.handle2 };
	return t;
}

/* Names and attributes come from memory nearly always: handing the reading over would cost more.
 * The same is true of short reads, until one had to wait for a disk. */
static bool is_quick(const struct stream *s, const struct job *j)
{
	switch (j->f.op) {
	case FILES_READ:
		return j->q.length <= QUICK_BYTES && now_ms() >= s->slow_until_ms;
	case FILES_STAT:
	case FILES_OPEN:
	case FILES_CLOSE:
	case FILES_UNLINK: /* what these remove is let go before the next one, see names.c */
	case FILES_REMOVE:
	case FILES_RMDIR:
	case FILES_MKDIR:
	case FILES_RENAME:
	case FILES_XATTR_GET:
	case FILES_LOCK:
	case FILES_SHARE:
	case FILES_WATCH: /* and so it stands before what comes after it is looked at */
		return !(j->q.flags & FILES_O_TRUNC);
	case FILES_WRITE:
		return j->q.data_len <= QUICK_BYTES &&
		       !(j->q.flags & (FILES_WRITE_SYNC | FILES_SHARED));
	default:
		return false;
	}
}

/* Who serves request after request tells of changes with its answers: nobody else is woken for
 * them. Only by the one that reads. */
static void hold_changes(struct worker *w, struct stream *s, bool hold)
{
	struct epoll_event ev = { .events = EPOLLONESHOT };
	int ino = __atomic_load_n(&s->ino, __ATOMIC_RELAXED);

	if (ino < 0 || hold == s->holds)
		return;
	s->holds = hold;
	if (hold)
		(void)epoll_ctl(w->epoll_fd, EPOLL_CTL_MOD, ino, &ev);
	else
		(void)wait_for(w, EPOLL_CTL_MOD, ino, EVENT_CHANGES, s);
}

/* *ret_reads: the caller is still the one that reads. The first ordered request that waits lets
 * others pass; a second one does not, or all threads of the stream would wait for one handle. */
static struct turn *wait_turn(
	struct worker *w, struct stream *s, const struct job *j, bool *ret_reads)
{
	struct turn *t;
	bool waits, stops;

	pthread_mutex_lock(&w->streams_lock);
	t = take_turn(s, j);
	waits = (j->q.flags & FILES_ORDERED) && must_wait(s, t);
	stops = waits && s->queued;
	*ret_reads = !waits && is_quick(s, j);
	if (!*ret_reads)
		hold_changes(w, s, false);
	if (!stops && !*ret_reads)
		stream_read_on(w, s);
	s->queued += waits;
	while (waits && must_wait(s, t))
		pthread_cond_wait(&s->done, &w->streams_lock);
	s->queued -= waits;
	if (stops)
		stream_read_on(w, s);
	pthread_mutex_unlock(&w->streams_lock);
	return t;
}

static void end_turn(struct worker *w, struct stream *s, struct turn *t)
{
	pthread_mutex_lock(&w->streams_lock);
	t->serial = 0;
	pthread_cond_broadcast(&s->done);
	pthread_mutex_unlock(&w->streams_lock);
}

static void cut(struct worker *w, struct stream *s)
{
	pthread_mutex_lock(&w->streams_lock);
	stream_end(s, true);
	pthread_mutex_unlock(&w->streams_lock);
}

/* What had changed before goes first, and with the answer: so its receiver is woken once. */
static bool reply(struct worker *w, struct stream *s, struct job *j, int64_t value)
{
	struct push before;
	bool ok;

	if (!j->holds_send)
		pthread_mutex_lock(&s->send);
	ok = j->holds_send ? wire_answer(s->fd, j, value, NULL)
			   : watch_take(w, s, &before) && wire_answer(s->fd, j, value, &before);
	pthread_mutex_unlock(&s->send);
	return ok;
}

static bool is_quiet(const struct job *j)
{
	return j->f.op == FILES_CLOSE && (j->q.flags & FILES_QUIET);
}

/* One thread at a time reads a stream, and so knows what came first. */
static bool well_formed(struct stream *s, struct job *j)
{
	if (!j->f.tag || j->f.flags)
		return false;
	j->starts = !s->greeted;
	s->greeted = true;
	return !j->starts || (j->f.op == FILES_HELLO && j->f.value == FS_VERSION);
}

/* True: the caller is still the one that reads. */
static bool carry_out(struct worker *w, struct stream *s, struct job *j)
{
	bool reads;
	struct turn *t = wait_turn(w, s, j, &reads);
	int64_t value, start = clock_mono_us();

	if (j->q.flags & FILES_USE)
		__atomic_add_fetch(&w->uses, 1, __ATOMIC_RELAXED);
	value = job_run(j);
	if (reads && j->f.op == FILES_READ && clock_mono_us() - start > SLOW_US)
		s->slow_until_ms = now_ms() + SLOW_MS;
	if (!(is_quiet(j) || reply(w, s, j, value)))
		cut(w, s);
	close_p(&j->held);
	end_turn(w, s, t);
	return reads;
}

/* One request. True: the caller is still the one that reads. */
static bool serve_one(struct worker *w, struct stream *s, struct buffers *b)
{
	struct job j = { .w = w, .stream = s, .out = b->out };
	_cleanup_close_ int fd = -1;
	int r = wire_read(s->fd, &j, b->in, &fd);
	bool reads;

	j.fd = fd;
	j.held = -1;
	if (r <= 0 || (fd >= 0 && j.f.op != FILES_SHARE) || !well_formed(s, &j)) {
		pthread_mutex_lock(&w->streams_lock);
		stream_end(s, r != 0);
		pthread_mutex_unlock(&w->streams_lock);
		return false;
	}
	j.q.client = s->client;
	reads = carry_out(w, s, &j);
	b->large |= j.q.data_len > LARGE || j.out_len > LARGE;
	return reads;
}

static bool drain(struct worker *w, struct stream *s)
{
	bool ok;

	pthread_mutex_lock(&s->send);
	ok = watch_drain(w, s);
	pthread_mutex_unlock(&s->send);
	if (!ok)
		cut(w, s);
	return ok;
}

static unsigned inside(struct worker *w)
{
	unsigned n;

	pthread_mutex_lock(&w->streams_lock);
	n = w->inside;
	pthread_mutex_unlock(&w->streams_lock);
	return n;
}

/* Only who is alone looks without sleeping: others have work for the processors. */
static int look(struct stream *s, struct pollfd p[2], unsigned threads)
{
	int n;

	spin_begin(&s->spin);
	do
		n = poll(p, 2, 0);
	while (n == 0 && threads == 1 && spin_goes_on(&s->spin));
	if (n == 0 && threads <= STAY_MAX)
		n = poll(p, 2, STAY_MS);
	spin_end(&s->spin);
	return n;
}

/* Who is asked one thing is asked the next one soon: while threads are free, one stays and is woken
 * by the request itself. */
static bool comes(struct worker *w, struct stream *s)
{
	struct pollfd p[2] = { { .fd = s->fd, .events = POLLIN }, { .fd = -1, .events = POLLIN } };
	int n, most = AT_ONCE; /* a guest that changes things all the while does not keep us */

	if (s->holds)
		p[1].fd = __atomic_load_n(&s->ino, __ATOMIC_RELAXED);
	do
		n = look(s, p, inside(w));
	while ((n < 0 && errno == EINTR) || (n > 0 && !p[0].revents && most-- && drain(w, s)));
	return n > 0 && p[0].revents;
}

static void serve(struct worker *w, struct stream *s, struct buffers *b)
{
	hold_changes(w, s, true);
	for (int i = 0; i < AT_ONCE; i++) {
		if (!serve_one(w, s, b))
			return;
		if (!comes(w, s))
			break;
	}
	hold_changes(w, s, false);
	pthread_mutex_lock(&w->streams_lock);
	stream_read_on(w, s);
	pthread_mutex_unlock(&w->streams_lock);
}

static void tell_changes(struct worker *w, struct stream *s)
{
	bool ok;

	pthread_mutex_lock(&s->send);
	ok = watch_drain(w, s) && wait_for(w, EPOLL_CTL_MOD, s->ino, EVENT_CHANGES, s) == 0;
	pthread_mutex_unlock(&s->send);
	if (!ok)
		cut(w, s);
}

/* The front has nothing to say before its answer, so this is its end. */
static void control_ended(struct worker *w, uint64_t data)
{
	struct stream *s;

	pthread_mutex_lock(&w->streams_lock);
	s = stream_find(w, data);
	if (s) {
		s->ctl_gone = true;
		stream_end(s, true);
		s->inside++;
		w->inside++;
	}
	pthread_mutex_unlock(&w->streams_lock);
	if (s)
		stream_leave(w, s);
}

void stream_event(struct worker *w, uint64_t data, struct buffers *b)
{
	enum event_kind kind = (enum event_kind)(data >> 32);
	struct stream *s;

	if (kind == EVENT_CONTROL) {
		control_ended(w, data);
		return;
	}
	s = stream_enter(w, data);
	if (!s)
		return;
	thread_wanted(w);
	if (kind == EVENT_STREAM)
		serve(w, s, b);
	else
		tell_changes(w, s);
	stream_leave(w, s);
}
