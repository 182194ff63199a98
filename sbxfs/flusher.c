/* SPDX-License-Identifier: MIT */
/* One thread that sends collected writes which nobody waits for, and says a word to the server about
 * each sandbox with open files before it takes their handles for dead. */
#include "sbxfs/fs1.h"
#include "sbxfs/listing.h"
#include "sbxfs/memory.h"
#include "sbxfs/remote.h"
#include "sbxfs/treefs.h"

#include "common/sys/deadline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATE_MS 25
#define ALIVE_SECS 20

struct held {
	struct held *next;
	char box[SBX_ID_MAX];
	int n;
};
struct flusher {
	struct mount *m;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work;
	/* under lock */
	struct tree_file *dirty;
	struct held *held;
	bool stopping, joined;
};

void flusher_add(struct mount *m, struct tree_file *f)
{
	struct flusher *fl = m->flusher;

	pthread_mutex_lock(&fl->lock);
	if (!f->dirty_listed) {
		f->dirty_listed = true;
		pthread_mutex_lock(&f->h->inode->tree_lock);
		f->refs++;
		pthread_mutex_unlock(&f->h->inode->tree_lock);
		f->dirty_next = fl->dirty;
		fl->dirty = f;
		pthread_cond_signal(&fl->work);
	}
	pthread_mutex_unlock(&fl->lock);
}

void flusher_remove(struct mount *m, struct tree_file *f)
{
	struct flusher *fl = m->flusher;
	bool was;

	pthread_mutex_lock(&fl->lock);
	was = f->dirty_listed;
	for (struct tree_file **at = &fl->dirty; was && *at; at = &(*at)->dirty_next) {
		if (*at != f)
			continue;
		*at = f->dirty_next;
		f->dirty_listed = false;
		break;
	}
	pthread_mutex_unlock(&fl->lock);
	if (was)
		tree_file_put(m, f);
}

void flusher_hold(struct mount *m, const char *box, int n)
{
	struct flusher *fl = m->flusher;
	struct held **at, *x;

	pthread_mutex_lock(&fl->lock);
	for (at = &fl->held; *at && strcmp((*at)->box, box); at = &(*at)->next)
		;
	x = *at;
	if (!x && n > 0 && (x = calloc(1, sizeof(*x)))) {
		(void)snprintf(x->box, sizeof(x->box), "%s", box);
		x->next = fl->held;
		fl->held = x;
		x->n = n;
	} else if (x) {
		x->n += n;
		if (x->n <= 0) {
			*at = x->next;
			free(x);
		}
	}
	pthread_mutex_unlock(&fl->lock);
}

static struct tree_file *take(struct flusher *fl)
{
	struct tree_file *f;

	pthread_mutex_lock(&fl->lock);
	f = fl->dirty;
	if (f) {
		fl->dirty = f->dirty_next;
		f->dirty_listed = false;
	}
	pthread_mutex_unlock(&fl->lock);
	return f;
}

static void send_late(struct flusher *fl)
{
	struct tree_file *f;
	int rc = 0;

	while (rc != -EHOSTDOWN && (f = take(fl))) {
		struct req q = { .m = fl->m, .op = "write", .start_ms = now_ms(), .acts = true };

		pthread_mutex_lock(&f->lock);
		rc = tree_file_drain(&q, f, true);
		pthread_mutex_unlock(&f->lock);
		/* The server is away: this one and the others have their turn when it is back. */
		if (rc == -EHOSTDOWN && atomic_load(&f->dirty))
			flusher_add(fl->m, f);
		tree_file_put(fl->m, f);
	}
}

/* The n-th sandbox with open files. */
static bool held_nth(struct flusher *fl, size_t n, char *box)
{
	struct held *x;

	pthread_mutex_lock(&fl->lock);
	for (x = fl->held; x && n; x = x->next)
		n--;
	if (x)
		memcpy(box, x->box, SBX_ID_MAX);
	pthread_mutex_unlock(&fl->lock);
	return x != NULL;
}

static void say_alive(struct flusher *fl)
{
	char box[SBX_ID_MAX];

	for (size_t n = 0; held_nth(fl, n, box); n++) {
		struct req q = { .m = fl->m, .op = "alive", .start_ms = now_ms() };
		struct tree_attr a = { .target = NULL };

		if (wire_stat(&q, box, "/", &a) == 0)
			tree_attr_fini(&a);
	}
}

/* Lock held. True: there is something to send soon. */
static bool wait_for_work(struct flusher *fl, uint64_t until_ms)
{
	struct timespec until = deadline_at_ms((int64_t)until_ms);

	while (!fl->stopping && !fl->dirty)
		if (!cond_wait_until(&fl->work, &fl->lock, &until))
			return false;
	return true;
}

static void *flusher_main(void *arg)
{
	const struct timespec pause = { .tv_nsec = LATE_MS * 1000000 };
	uint64_t alive_ms = now_ms() + ALIVE_SECS * 1000;
	struct flusher *fl = arg;
	bool stop;

	do {
		pthread_mutex_lock(&fl->lock);
		(void)wait_for_work(fl, alive_ms);
		stop = fl->stopping;
		pthread_mutex_unlock(&fl->lock);
		/* More may come; and while the server is away there is no hurry. */
		for (int n = remote_is_down(fl->m) ? 8 : 1; !stop && n; n--)
			nanosleep(&pause, NULL);
		send_late(fl);
		if (now_ms() >= alive_ms) {
			say_alive(fl);
			fs1_tidy(fl->m);
			listings_tidy(fl->m);
			agains_tidy(fl->m);
			walk_tidy(fl->m);
			memory_tidy();
			alive_ms = now_ms() + ALIVE_SECS * 1000;
		}
	} while (!stop);
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
	while (fl->held) {
		struct held *x = fl->held;

		fl->held = x->next;
		free(x);
	}
	pthread_cond_destroy(&fl->work);
	pthread_mutex_destroy(&fl->lock);
	free(fl);
}
