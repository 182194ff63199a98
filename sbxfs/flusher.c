/* SPDX-License-Identifier: MIT */
/* One thread that sees to it that collected writes which nobody waits for are sent, and that a word is said to the
 * server about each sandbox with open files before it takes their handles for dead. Each sandbox's is done by a thread
 * of the pool, so that one that does not answer holds up none but itself. */
#include "sbxfs/fs1.h"
#include "sbxfs/listing.h"
#include "sbxfs/memory.h"
#include "sbxfs/pool.h"
#include "sbxfs/remote.h"
#include "sbxfs/treefs.h"

#include "common/sys/deadline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATE_MS 25
#define ALIVE_SECS 20

struct lane {
	struct lane *next;
	struct flusher *fl;
	char box[SBX_ID_MAX];
	/* under the lock of the flusher */
	int n; /* open files */
	struct tree_file *dirty;
	bool alive; /* a word is to be said about it */
	bool busy;  /* a thread of the pool is at it */
};
struct flusher {
	struct mount *m;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work;
	/* under lock */
	struct lane *lanes;
	unsigned busy; /* of these */
	bool stopping, joined;
};

/* Lock held, in these. NULL: there is none, and it is not to be made, or cannot be. */
static struct lane *lane_of(struct flusher *fl, const char *box, bool make)
{
	struct lane *x;

	for (x = fl->lanes; x && strcmp(x->box, box); x = x->next)
		;
	if (x || !make || !(x = calloc(1, sizeof(*x))))
		return x;
	x->fl = fl;
	(void)snprintf(x->box, sizeof(x->box), "%s", box);
	x->next = fl->lanes;
	fl->lanes = x;
	return x;
}

static void lane_let(struct flusher *fl, struct lane *x)
{
	struct lane **at;

	if (x->n > 0 || x->dirty || x->busy)
		return;
	for (at = &fl->lanes; *at != x; at = &(*at)->next)
		;
	*at = x->next;
	free(x);
}

void flusher_add(struct mount *m, struct tree_file *f)
{
	struct flusher *fl = m->flusher;
	struct lane *x;

	pthread_mutex_lock(&fl->lock);
	x = f->dirty_listed ? NULL : lane_of(fl, f->h->inode->box, true);
	if (x) { /* else whoever looks at it next, or closes it, sends it */
		f->dirty_listed = true;
		pthread_mutex_lock(&f->h->inode->tree_lock);
		f->refs++;
		pthread_mutex_unlock(&f->h->inode->tree_lock);
		f->dirty_next = x->dirty;
		x->dirty = f;
		pthread_cond_signal(&fl->work);
	}
	pthread_mutex_unlock(&fl->lock);
}

void flusher_remove(struct mount *m, struct tree_file *f)
{
	struct flusher *fl = m->flusher;
	struct tree_file **at;
	struct lane *x;
	bool was;

	pthread_mutex_lock(&fl->lock);
	was = f->dirty_listed;
	x = was ? lane_of(fl, f->h->inode->box, false) : NULL;
	if (x) {
		for (at = &x->dirty; *at != f; at = &(*at)->dirty_next)
			;
		*at = f->dirty_next;
		f->dirty_listed = false;
	}
	pthread_mutex_unlock(&fl->lock);
	if (was)
		tree_file_put(m, f);
}

void flusher_hold(struct mount *m, const char *box, int n)
{
	struct flusher *fl = m->flusher;
	struct lane *x;

	pthread_mutex_lock(&fl->lock);
	x = lane_of(fl, box, n > 0);
	if (x) {
		x->n += n;
		lane_let(fl, x);
	}
	pthread_mutex_unlock(&fl->lock);
}

static struct tree_file *take(struct lane *x)
{
	struct tree_file *f;

	pthread_mutex_lock(&x->fl->lock);
	f = x->dirty;
	if (f) {
		x->dirty = f->dirty_next;
		f->dirty_listed = false;
	}
	pthread_mutex_unlock(&x->fl->lock);
	return f;
}

static int send_late(struct lane *x)
{
	struct mount *m = x->fl->m;
	struct tree_file *f;
	int rc = 0;

	while (rc != -EHOSTDOWN && (f = take(x))) {
		struct req q = { .m = m, .op = "write", .start_ms = now_ms(), .acts = true };

		pthread_mutex_lock(&f->lock);
		rc = tree_file_drain(&q, f, true);
		pthread_mutex_unlock(&f->lock);
		/* The server is away: this one and the others have their turn when it is back. */
		if (rc == -EHOSTDOWN && atomic_load(&f->dirty))
			flusher_add(m, f);
		tree_file_put(m, f);
	}
	return rc;
}

static void say_alive(struct lane *x)
{
	struct req q = { .m = x->fl->m, .op = "alive", .start_ms = now_ms() };
	struct tree_attr a = { .target = NULL };

	if (wire_stat(&q, x->box, "/", &a) == 0)
		tree_attr_fini(&a);
}

/* In a thread of the pool. */
static void serve(void *arg)
{
	struct lane *x = arg;
	struct flusher *fl = x->fl;
	bool alive;

	(void)send_late(x);
	pthread_mutex_lock(&fl->lock);
	alive = x->alive;
	x->alive = false;
	pthread_mutex_unlock(&fl->lock);
	if (alive)
		say_alive(x);
	pthread_mutex_lock(&fl->lock);
	x->busy = false;
	fl->busy--;
	lane_let(fl, x);
	pthread_cond_signal(&fl->work);
	pthread_mutex_unlock(&fl->lock);
}

/* Lock held, in these. */
static bool is_wanted(const struct lane *x)
{
	return !x->busy && (x->dirty || x->alive);
}

/* True: there is something to do soon. */
static bool wait_for_work(struct flusher *fl, uint64_t until_ms)
{
	struct timespec until = deadline_at_ms((int64_t)until_ms);
	struct lane *x;

	for (;;) {
		for (x = fl->lanes; x && !is_wanted(x); x = x->next)
			;
		if (x || fl->stopping)
			return true;
		if (!cond_wait_until(&fl->work, &fl->lock, &until))
			return false;
	}
}

static void hand_out(struct flusher *fl, bool alive)
{
	pthread_mutex_lock(&fl->lock);
	for (struct lane *x = fl->lanes; x; x = x->next) {
		x->alive |= alive && x->n > 0;
		if (!is_wanted(x))
			continue;
		x->busy = pool_run(fl->m->pool, serve, x) == 0; /* else it is its turn in a moment */
		fl->busy += x->busy;
	}
	pthread_mutex_unlock(&fl->lock);
}

/* The end: what is there, and nobody else is at it any more. */
static void send_all(struct flusher *fl)
{
	int rc = 0;

	pthread_mutex_lock(&fl->lock);
	while (fl->busy)
		pthread_cond_wait(&fl->work, &fl->lock);
	pthread_mutex_unlock(&fl->lock);
	for (struct lane *x = fl->lanes; x && rc != -EHOSTDOWN; x = x->next)
		rc = send_late(x);
}

static void tidy(struct mount *m)
{
	fs1_tidy(m);
	listings_tidy(m);
	agains_tidy(m);
	walk_tidy(m);
	memory_tidy();
}

static void *flusher_main(void *arg)
{
	const struct timespec pause = { .tv_nsec = LATE_MS * 1000000 };
	uint64_t alive_ms = now_ms() + ALIVE_SECS * 1000;
	struct flusher *fl = arg;
	bool stop, due;

	for (;;) {
		pthread_mutex_lock(&fl->lock);
		(void)wait_for_work(fl, alive_ms);
		stop = fl->stopping;
		pthread_mutex_unlock(&fl->lock);
		if (stop)
			break;
		/* More may come; and while the server is away there is no hurry. */
		for (int n = remote_is_down(fl->m) ? 8 : 1; n; n--)
			nanosleep(&pause, NULL);
		due = now_ms() >= alive_ms;
		hand_out(fl, due);
		if (due) {
			tidy(fl->m);
			alive_ms = now_ms() + ALIVE_SECS * 1000;
		}
	}
	send_all(fl);
	return NULL;
}

int flusher_new(struct mount *m, struct flusher **ret)
{
	struct flusher *fl = calloc(1, sizeof(*fl));
	int rc;

	if (!fl)
		return -ENOMEM;
	fl->m = m;
	pthread_mutex_init(&fl->lock, NULL);
	pthread_cond_init(&fl->work, NULL);
	*ret = fl;
	rc = pthread_create(&fl->thread, NULL, flusher_main, fl);
	if (rc) {
		*ret = NULL;
		free(fl);
	}
	return -rc;
}

void flusher_stop(struct flusher *fl)
{
	if (!fl || fl->joined)
		return;
	pthread_mutex_lock(&fl->lock);
	fl->stopping = true;
	pthread_cond_signal(&fl->work);
	pthread_mutex_unlock(&fl->lock);
	pthread_join(fl->thread, NULL);
	fl->joined = true;
}

void flusher_free(struct flusher *fl)
{
	if (!fl)
		return;
	flusher_stop(fl);
	while (fl->lanes) {
		struct lane *x = fl->lanes;

		fl->lanes = x->next;
		free(x);
	}
	pthread_cond_destroy(&fl->work);
	pthread_mutex_destroy(&fl->lock);
	free(fl);
}
