/* SPDX-License-Identifier: MIT */
/* Waiting for locks. No thread waits: who could not have a lock stands in a list, and all in it are
 * tried again when a lock was let go here, and else by a timer, because nobody tells when a process
 * of the guest lets go. The more wait, and the longer, the rarer. Who has it is told by a push; a
 * lock that was had is told when the connection takes it. */
#include "sandboxd/worker/state.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define YOUNG_MS   2000
#define TRY_MS     5  /* while there is a young one */
#define TRY_OLD_MS 50
#define TRIES_MS   4  /* at most so many a millisecond */
#define REST       4  /* times as long as trying all has lasted */

struct lock_wait {
	struct lock_wait *next;
	unsigned slot;
	uint32_t gen;
	uint64_t client;
	int64_t since_ms;
	struct files_req q;
	bool decided;
	int64_t value;
	struct files_rep rep;
};

static void set_timer(const struct worker *w, int64_t ms)
{
	struct itimerspec t = { .it_value = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 + 1 } };

	(void)timerfd_settime(__atomic_load_n(&w->locks.timer_fd, __ATOMIC_RELAXED), 0, &t, NULL);
}

static int64_t rest(const struct worker *w)
{
	int64_t left = __atomic_load_n(&w->locks.rests_ms, __ATOMIC_RELAXED) - now_ms();

	return left > 0 ? left : 0;
}

void wait_poke(struct worker *w)
{
	if (__atomic_load_n(&w->locks.nwaits, __ATOMIC_RELAXED))
		set_timer(w, rest(w));
}

/* --- locks.lock held in all below -------------------------------------------------------------- */

static int have_timer(struct worker *w)
{
	int fd = w->locks.timer_fd;

	if (fd >= 0)
		return 0;
	fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (fd < 0)
		return -ENOLCK;
	__atomic_store_n(&w->locks.timer_fd, fd, __ATOMIC_RELAXED);
	if (wait_for(w, EPOLL_CTL_ADD, fd, EVENT_FD, NULL) == 0)
		return 0;
	__atomic_store_n(&w->locks.timer_fd, -1, __ATOMIC_RELAXED);
	close(fd);
	return -ENOLCK;
}

static void arm(struct worker *w)
{
	int64_t ms = TRY_OLD_MS, now = now_ms();

	for (const struct lock_wait *x = w->locks.waits; x && ms > TRY_MS; x = x->next)
		if (now - x->since_ms < YOUNG_MS)
			ms = TRY_MS;
	set_timer(w, ms + rest(w) + __atomic_load_n(&w->locks.nwaits, __ATOMIC_RELAXED) / TRIES_MS);
	(void)wait_for(w, EPOLL_CTL_MOD, w->locks.timer_fd, EVENT_FD, NULL);
}

static void unlist(struct worker *w, struct lock_wait *x)
{
	struct lock_wait **at = &w->locks.waits;

	while (*at != x)
		at = &(*at)->next;
	*at = x->next;
	__atomic_sub_fetch(&w->locks.nwaits, 1, __ATOMIC_RELAXED);
}

static bool is_of(const struct lock_wait *x, const struct stream *s)
{
	return x->slot == s->slot && x->gen == s->gen;
}

/* Room for it, and its number is new? One connection gets at most half. */
static int check(struct worker *w, const struct stream *s, uint32_t number)
{
	unsigned n = 0;

	for (const struct lock_wait *x = w->locks.waits; x; x = x->next) {
		if (is_of(x, s) && x->q.gid == number)
			return -EINVAL;
		n += is_of(x, s);
	}
	return n >= FS_WAITS_MAX / 2 || w->locks.nwaits >= FS_WAITS_MAX ? -ENOLCK : have_timer(w);
}

static int add(struct worker *w, const struct stream *s, const struct job *j)
{
	struct lock_wait **at = &w->locks.waits, *x;
	int r = check(w, s, j->q.gid);

	if (r < 0)
		return r;
	x = calloc(1, sizeof(*x));
	if (!x)
		return -ENOMEM;
	x->slot = s->slot;
	x->gen = s->gen;
	x->client = s->client;
	x->since_ms = now_ms();
	x->q = j->q;
	while (*at)
		at = &(*at)->next;
	*at = x;
	__atomic_add_fetch(&w->locks.nwaits, 1, __ATOMIC_RELAXED);
	arm(w);
	return 0;
}

static void try(struct worker *w, struct lock_wait *x)
{
	if (x->decided)
		return;
	x->rep = (struct files_rep){ .handle = x->q.gid };
	x->value = lock_ask(w, x->client, &x->q, &x->rep, NULL);
	x->decided = x->value != -EAGAIN;
}

/* Out of the list, with its stream entered; the rest is looked at again by whoever comes. */
static struct lock_wait *next_decided(struct worker *w, struct stream **ret)
{
	struct lock_wait *x, *next;
	int64_t began = now_ms(), now;

	for (x = w->locks.waits; x; x = next) {
		int r = 0;

		next = x->next;
		try(w, x);
		if (x->decided)
			r = stream_push_begin(w, x->slot, x->gen, ret);
		if (r == 0)
			continue;
		unlist(w, x);
		if (r > 0)
			break;
		free(x); /* what it got ends with its handle */
	}
	now = now_ms();
	__atomic_store_n(&w->locks.rests_ms, now + REST * (now - began), __ATOMIC_RELAXED);
	if (w->locks.waits)
		arm(w);
	return x;
}

/* --- the lock is taken here -------------------------------------------------------------------- */

void wait_tick(struct worker *w)
{
	struct lock_wait *x;
	struct stream *s;
	uint64_t n;

	if (read(w->locks.timer_fd, &n, sizeof(n)) < 0)
		n = 0; /* set anew in between: looking once more does no harm */
	do {
		pthread_mutex_lock(&w->locks.lock);
		x = next_decided(w, &s);
		pthread_mutex_unlock(&w->locks.lock);
		if (!x)
			break;
		struct proto_frame f = { .op = FILES_GRANT, .value = x->value, .len = sizeof(x->rep) };
		thread_wanted(w);
		stream_push(w, s, &f, &x->rep);
		free(x);
	} while (1);
}

/* The answer that there will be a push goes out before the push may. */
int64_t wait_begin(struct job *j)
{
	int r;

	pthread_mutex_lock(&j->stream->send);
	j->holds_send = true;
	(void)watch_drain(j->w, j->stream); /* when it fails so does the answer */
	pthread_mutex_lock(&j->w->locks.lock);
	r = add(j->w, j->stream, j);
	pthread_mutex_unlock(&j->w->locks.lock);
	return r < 0 ? r : 1;
}

/* -ENOENT: it is told already, or just now, or never was. */
int64_t op_unwait(struct job *j)
{
	struct worker *w = j->w;
	struct lock_wait *x;

	pthread_mutex_lock(&w->locks.lock);
	for (x = w->locks.waits; x && !(is_of(x, j->stream) && x->q.gid == j->q.handle); x = x->next)
		;
	if (x) {
		unlist(w, x);
		if (x->decided && x->value == 0) { /* it has it, only nobody knows */
			x->q.mode &= FILES_LOCK_FLOCK;
			(void)lock_ask(w, x->client, &x->q, &x->rep, NULL);
		}
	}
	pthread_mutex_unlock(&w->locks.lock);
	free(x);
	return x ? 0 : -ENOENT;
}

void wait_end(struct worker *w, const struct stream *s)
{
	struct lock_wait *x, *next;

	pthread_mutex_lock(&w->locks.lock);
	for (x = w->locks.waits; x; x = next) {
		next = x->next;
		if (!is_of(x, s))
			continue;
		unlist(w, x);
		free(x);
	}
	pthread_mutex_unlock(&w->locks.lock);
}
