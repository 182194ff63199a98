/* SPDX-License-Identifier: MIT */
/* Connections of sbx-fs/1 (doc/sbx-fs.md). A thread that finds a stream readable carries out what
 * is quick itself, one after the other, without waking anybody. Before what may take long it lets
 * other threads read on; so several are under way, and answers go out as they are ready, whole,
 * under the lock `send`. A stream holds at most STREAM_BUSY threads in any state, all streams
 * STREAMS_BUSY: one that has so many is parked, and read again when a thread leaves. So a client
 * that does not take its answers stops only itself. At its end a stream waits for the threads
 * inside; then the front gets the answer to its ADOPT. */
#include "sandboxd/worker/state.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LARGE       (256 * 1024)
#define AT_ONCE     64 /* quick requests that one thread serves in a row */
#define QUICK_BYTES 65536
#define SLOW_US     300 /* a read from memory takes less ... */
#define SLOW_MS     20  /* ... and so long the next ones are handed over */
#define STAY_MS     5
#define STAY_MAX    2 /* threads inside of all streams, of which one may stay */

/* --- begin and end; streams_lock held unless said otherwise ---------------------------------- */

static bool is_local_stream(int fd)
{
	int domain = 0, type = 0;
	socklen_t len = sizeof(domain);

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX &&
	       getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_STREAM;
}

static struct stream *stream_new(const struct job *j, int fd, int ctl)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->fd = fd;
	s->ctl = ctl;
	s->ino = -1;
	s->client = j->q.client;
	s->adopt = j->f;
	pthread_mutex_init(&s->send, NULL);
	pthread_cond_init(&s->done, NULL);
	return s;
}

static void stream_free(struct stream *s)
{
	pthread_cond_destroy(&s->done);
	pthread_mutex_destroy(&s->send);
	free(s);
}

static int enlist(struct worker *w, struct stream *s)
{
	for (s->slot = 0; s->slot < FS_CONNS_MAX; s->slot++)
		if (!w->streams[s->slot])
			break;
	if (s->slot == FS_CONNS_MAX)
		return -EMFILE;
	s->gen = ++w->stream_gen & 0xffffff;
	if (wait_for(w, EPOLL_CTL_ADD, s->fd, EVENT_STREAM, s) < 0)
		return -errno;
	if (wait_for(w, EPOLL_CTL_MOD, s->ctl, EVENT_CONTROL, s) < 0) {
		int r = -errno;
		(void)epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
		return r;
	}
	w->streams[s->slot] = s;
	w->nstreams++;
	return 0;
}

/* On success fd and ctl are the stream's. */
int stream_adopt(struct worker *w, struct job *j, int fd, int ctl)
{
	struct stream *s;
	int r;

	if (!is_local_stream(fd))
		return -EINVAL;
	s = stream_new(j, fd, ctl);
	if (!s)
		return -ENOMEM;
	pthread_mutex_lock(&w->streams_lock);
	r = enlist(w, s);
	pthread_mutex_unlock(&w->streams_lock);
	if (r < 0)
		stream_free(s);
	return r;
}

/* Without the lock; the stream is out of the table and nobody is inside. */
static void stream_finish(struct worker *w, struct stream *s)
{
	struct job j = { .w = w, .f = s->adopt };

	watch_close(w, s);
	wait_end(w, s);
	share_end(s);
	close(s->fd);
	if (s->ctl_gone || !wire_answer(s->ctl, &j, 0) ||
		wait_for(w, EPOLL_CTL_MOD, s->ctl, EVENT_FD, NULL) < 0)
		end_connection(w, s->ctl);
	stream_free(s);
}

static struct stream *find(struct worker *w, uint64_t data)
{
	struct stream *s = w->streams[data & 0xff];

	return s && s->gen == (data >> 8 & 0xffffff) ? s : NULL;
}

/* No more is read of it; with `cut` nothing is sent either, and who waits on it is woken. */
static void end(struct stream *s, bool cut)
{
	s->over = true;
	if (cut)
		(void)shutdown(s->fd, SHUT_RDWR);
	pthread_cond_broadcast(&s->done);
}

/* --- who may be inside ----------------------------------------------------------------------- */

static bool has_room(const struct worker *w, const struct stream *s)
{
	return s->inside < STREAM_BUSY && w->inside < STREAMS_BUSY;
}

static void read_on(struct worker *w, struct stream *s)
{
	if (s->over)
		return;
	s->parked = !has_room(w, s);
	if (!s->parked && wait_for(w, EPOLL_CTL_MOD, s->fd, EVENT_STREAM, s) < 0)
		end(s, true);
}

/* What was put off when there was no room. */
static void resume(struct worker *w, struct stream *s)
{
	if (s->parked)
		read_on(w, s);
	if (!s->untold || s->over || !has_room(w, s))
		return;
	s->untold = false;
	if (wait_for(w, EPOLL_CTL_MOD, __atomic_load_n(&s->ino, __ATOMIC_RELAXED), EVENT_CHANGES,
		    s) < 0)
		end(s, true);
}

/* Takes the lock. The stream, with this thread inside; NULL: nothing to do, or no room now. */
static struct stream *enter(struct worker *w, uint64_t data)
{
	struct stream *s;

	pthread_mutex_lock(&w->streams_lock);
	s = find(w, data);
	if (s && s->over) {
		s = NULL;
	} else if (s && !has_room(w, s)) {
		*(data >> 32 == EVENT_STREAM ? &s->parked : &s->untold) = true;
		s = NULL;
	} else if (s) {
		s->inside++;
		w->inside++;
	}
	pthread_mutex_unlock(&w->streams_lock);
	return s;
}

/* Takes the lock. */
static void leave(struct worker *w, struct stream *s)
{
	bool last;

	pthread_mutex_lock(&w->streams_lock);
	s->inside--;
	w->inside--;
	for (unsigned i = 0; i < FS_CONNS_MAX; i++)
		if (w->streams[i])
			resume(w, w->streams[i]);
	last = s->over && !s->inside;
	if (last) {
		w->streams[s->slot] = NULL;
		w->nstreams--;
	}
	pthread_mutex_unlock(&w->streams_lock);
	if (last)
		stream_finish(w, s);
}

/* --- a request ------------------------------------------------------------------------------- */

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
	case FILES_UNLINK:
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

static int64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
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
		read_on(w, s);
	s->queued += waits;
	while (waits && must_wait(s, t))
		pthread_cond_wait(&s->done, &w->streams_lock);
	s->queued -= waits;
	if (stops)
		read_on(w, s);
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
	end(s, true);
	pthread_mutex_unlock(&w->streams_lock);
}

/* What had changed before goes first. */
static bool reply(struct worker *w, struct stream *s, struct job *j, int64_t value)
{
	bool ok;

	if (!j->holds_send)
		pthread_mutex_lock(&s->send);
	ok = (j->holds_send || watch_drain(w, s)) && wire_answer(s->fd, j, value);
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
	int64_t value, start = now_us();

	if (j->q.flags & FILES_USE)
		__atomic_add_fetch(&w->uses, 1, __ATOMIC_RELAXED);
	value = job_run(j);
	if (reads && j->f.op == FILES_READ && now_us() - start > SLOW_US)
		s->slow_until_ms = now_ms() + SLOW_MS;
	if (!(is_quiet(j) || reply(w, s, j, value)))
		cut(w, s);
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
	if (r <= 0 || (fd >= 0 && j.f.op != FILES_SHARE) || !well_formed(s, &j)) {
		pthread_mutex_lock(&w->streams_lock);
		end(s, r != 0);
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
	read_on(w, s);
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
	s = find(w, data);
	if (s) {
		s->ctl_gone = true;
		end(s, true);
		s->inside++;
		w->inside++;
	}
	pthread_mutex_unlock(&w->streams_lock);
	if (s)
		leave(w, s);
}

void stream_event(struct worker *w, uint64_t data, struct buffers *b)
{
	enum event_kind kind = (enum event_kind)(data >> 32);
	struct stream *s;

	if (kind == EVENT_CONTROL) {
		control_ended(w, data);
		return;
	}
	s = enter(w, data);
	if (!s)
		return;
	thread_wanted(w);
	if (kind == EVENT_STREAM)
		serve(w, s, b);
	else
		tell_changes(w, s);
	leave(w, s);
}

/* Only one at a time, and only where there is room: a client that reads nothing holds no more
 * threads by being told. */
int stream_push_begin(struct worker *w, unsigned slot, uint32_t gen, struct stream **ret)
{
	struct stream *s;
	int r;

	pthread_mutex_lock(&w->streams_lock);
	s = find(w, (uint64_t)gen << 8 | slot);
	r = !s || s->over ? -1 : !s->telling && has_room(w, s);
	if (r > 0) {
		s->telling = true;
		s->inside++;
		w->inside++;
		*ret = s;
	}
	pthread_mutex_unlock(&w->streams_lock);
	return r;
}

void stream_push(struct worker *w, struct stream *s, struct proto_frame *f, struct files_rep *rep)
{
	struct iovec v[2] = { { f, sizeof(*f) }, { rep, sizeof(*rep) } };
	bool ok;

	pthread_mutex_lock(&s->send);
	ok = watch_drain(w, s) && wire_send(w, s, s->fd, v, ARRAY_LEN(v));
	pthread_mutex_unlock(&s->send);
	pthread_mutex_lock(&w->streams_lock);
	s->telling = false;
	if (!ok)
		end(s, true);
	pthread_mutex_unlock(&w->streams_lock);
	leave(w, s);
}

/* --- for others ------------------------------------------------------------------------------ */

/* Handles live while their client is heard from; one that holds a stream open is. */
void streams_heard(struct worker *w)
{
	uint64_t clients[FS_CONNS_MAX];
	unsigned n = 0;

	pthread_mutex_lock(&w->streams_lock);
	for (unsigned i = 0; i < FS_CONNS_MAX; i++)
		if (w->streams[i])
			clients[n++] = w->streams[i]->client;
	pthread_mutex_unlock(&w->streams_lock);
	while (n)
		handle_heard(w, clients[--n]);
}

bool streams_starve(struct worker *w)
{
	bool yes = false;

	pthread_mutex_lock(&w->streams_lock);
	for (unsigned i = 0; i < FS_CONNS_MAX && !yes; i++)
		yes = w->streams[i] && w->streams[i]->parked && !w->streams[i]->inside;
	pthread_mutex_unlock(&w->streams_lock);
	return yes;
}

int64_t op_hello(struct job *j)
{
	struct fs_hello h = { .data_max = FILES_DATA_MAX,
		.inflight_max = FS_INFLIGHT_MAX,
		.handles_max = FILES_CLIENT_HANDLES_MAX,
		.watch_max = FS_WATCH_MAX,
		.watch_kind = FS_WATCH_INOTIFY,
		.features = FS_FEATURE_WATCH | FS_FEATURE_ORDERED | FS_FEATURE_LOCKS |
			    FS_FEATURE_QUIET | FS_FEATURE_SHARED | FS_FEATURE_WATCH_FIRST };

	if (!j->starts)
		return -EINVAL;
	memcpy(j->out, &h, sizeof(h));
	j->out_len = sizeof(h);
	return FS_VERSION;
}

int64_t op_activity(struct job *j)
{
	struct worker *w = j->w;

	(void)op_expired(j);
	pthread_mutex_lock(&w->streams_lock);
	j->rep.handle = w->nstreams;
	pthread_mutex_unlock(&w->streams_lock);
	return (int64_t)(__atomic_load_n(&w->uses, __ATOMIC_RELAXED) & INT64_MAX);
}
