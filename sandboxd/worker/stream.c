/* SPDX-License-Identifier: MIT */
/* Connections of sbx-fs/1 (doc/sbx-fs.md): which there are, and who is inside of one. A stream holds
 * at most STREAM_BUSY threads in any state, all streams STREAMS_BUSY: one that has so many is
 * parked, and read again when a thread leaves. So a client that does not take its answers stops only
 * itself. At its end a stream waits for the threads inside; then the front gets the answer to its
 * ADOPT. What is asked on one is carried out in serve.c. */
#include "sandboxd/worker/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

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
	if (s->ctl_gone || !wire_answer(s->ctl, &j, 0, NULL) ||
		wait_for(w, EPOLL_CTL_MOD, s->ctl, EVENT_FD, NULL) < 0)
		end_connection(w, s->ctl);
	stream_free(s);
}

struct stream *stream_find(struct worker *w, uint64_t data)
{
	struct stream *s = w->streams[data & 0xff];

	return s && s->gen == (data >> 8 & 0xffffff) ? s : NULL;
}

/* No more is read of it; with `cut` nothing is sent either, and who waits on it is woken. */
void stream_end(struct stream *s, bool cut)
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

void stream_read_on(struct worker *w, struct stream *s)
{
	if (s->over)
		return;
	s->parked = !has_room(w, s);
	if (!s->parked && wait_for(w, EPOLL_CTL_MOD, s->fd, EVENT_STREAM, s) < 0)
		stream_end(s, true);
}

/* What was put off when there was no room. */
static void resume(struct worker *w, struct stream *s)
{
	if (s->parked)
		stream_read_on(w, s);
	if (!s->untold || s->over || !has_room(w, s))
		return;
	s->untold = false;
	if (wait_for(w, EPOLL_CTL_MOD, __atomic_load_n(&s->ino, __ATOMIC_RELAXED), EVENT_CHANGES,
		    s) < 0)
		stream_end(s, true);
}

/* Takes the lock. The stream, with this thread inside; NULL: nothing to do, or no room now. */
struct stream *stream_enter(struct worker *w, uint64_t data)
{
	struct stream *s;

	pthread_mutex_lock(&w->streams_lock);
	s = stream_find(w, data);
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
void stream_leave(struct worker *w, struct stream *s)
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

/* --- pushes ---------------------------------------------------------------------------------- */

/* Only one at a time, and only where there is room: a client that reads nothing holds no more
 * threads by being told. */
int stream_push_begin(struct worker *w, unsigned slot, uint32_t gen, struct stream **ret)
{
	struct stream *s;
	int r;

	pthread_mutex_lock(&w->streams_lock);
	s = stream_find(w, (uint64_t)gen << 8 | slot);
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
		stream_end(s, true);
	pthread_mutex_unlock(&w->streams_lock);
	stream_leave(w, s);
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
			    FS_FEATURE_QUIET | FS_FEATURE_SHARED | FS_FEATURE_WATCH_FIRST |
			    FS_FEATURE_LONG_PATHS };

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
