/* SPDX-License-Identifier: MIT */
/* Tells the kernel what it may not believe any more. One thread and one queue for the guests' trees and
 * one for what is around them; no lock is held while it tells: the kernel may have to wait for an operation
 * in the same directory, which waits for us. What the kernel believes for long is told once, so that it
 * always fits into the queue: while that is long nothing more is let be believed. Names that are not there
 * have no such bound; the kernel finds out by itself what of these does not fit, a second later. */
#include "sbxfs/trust.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define QUEUE_LATE 16384 /* longer: nothing more is let be believed */
#define QUEUE_MAX  65536
#define JOIN_SECS 2
#define TOLD_MS   200

struct note {
	struct note *next;
	fuse_ino_t ino;
	fuse_ino_t child; /* not 0: to be given up */
	size_t len;       /* 0: attributes */
	char name[];
};
struct notifier {
	struct mount *m;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work, idle;
	/* under lock */
	struct note *first, **last;
	atomic_uint n; /* changed under it */
	atomic_bool mute; /* something could not be told: nothing is let be believed from then on */
	bool started, stopping, telling;
};

static void tell(struct fuse_session *se, const struct note *o)
{
	/* Only this takes an inode out of the kernel's own cache; a name that is not of `child` any more it
	 * leaves alone. */
	if (o->child)
		(void)fuse_lowlevel_notify_delete(se, o->ino, o->child, o->name, o->len);
	else if (o->len)
		(void)fuse_lowlevel_notify_inval_entry(se, o->ino, o->name, o->len);
	else
		/* Attributes only: pages may be locked by a reader that waits for us, and an open with
		 * another version drops them. */
		(void)fuse_lowlevel_notify_inval_inode(se, o->ino, -1, 0);
}

static void *run(void *arg)
{
	struct notifier *n = arg;

	pthread_mutex_lock(&n->lock);
	while (!n->stopping) {
		struct note *o = n->first;

		if (!o) {
			pthread_cond_broadcast(&n->idle);
			pthread_cond_wait(&n->work, &n->lock);
			continue;
		}
		n->first = o->next;
		if (!n->first)
			n->last = &n->first;
		n->n--;
		n->telling = true;
		pthread_mutex_unlock(&n->lock);
		tell(n->m->se, o);
		free(o);
		pthread_mutex_lock(&n->lock);
		n->telling = false;
	}
	pthread_mutex_unlock(&n->lock);
	return NULL;
}

int notifier_new(struct mount *m, struct notifier **ret)
{
	struct notifier *n = calloc(1, sizeof(*n));

	if (!n)
		return -ENOMEM;
	n->m = m;
	n->last = &n->first;
	pthread_mutex_init(&n->lock, NULL);
	pthread_cond_init(&n->work, NULL);
	pthread_cond_init(&n->idle, NULL);
	*ret = n;
	return 0;
}

/* Lock held. */
static bool start(struct notifier *n)
{
	sigset_t all, old;

	if (n->started)
		return true;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	n->started = pthread_create(&n->thread, NULL, run, n) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return n->started;
}

static void put(struct notifier *n, fuse_ino_t ino, fuse_ino_t child, const char *name, bool must)
{
	size_t len = strlen(name);
	struct note *o;

	if (!n || !n->m->se)
		return;
	o = malloc(sizeof(*o) + len + 1);
	if (!o) {
		atomic_store(&n->mute, true);
		return;
	}
	*o = (struct note){ .ino = ino, .child = child, .len = len };
	memcpy(o->name, name, len + 1);
	pthread_mutex_lock(&n->lock);
	if (!n->stopping && (must || n->n < QUEUE_MAX) && start(n)) {
		*n->last = o;
		n->last = &o->next;
		n->n++;
		o = NULL;
		pthread_cond_signal(&n->work);
	} else if (must) {
		atomic_store(&n->mute, true);
	}
	pthread_mutex_unlock(&n->lock);
	free(o);
}

void notify_entry(struct mount *m, fuse_ino_t dir, const char *name)
{
	atomic_fetch_add(&m->stats.told, 1);
	put(m->notifier, dir, 0, name, true);
}

void notify_absent(struct mount *m, fuse_ino_t dir, const char *name)
{
	atomic_fetch_add(&m->stats.told, 1);
	put(m->notifier, dir, 0, name, false);
}

void notify_top(struct mount *m, fuse_ino_t dir, const char *name)
{
	put(m->top_notifier, dir, 0, name, false);
}

void notify_top_told(struct mount *m)
{
	struct notifier *n = m->top_notifier;
	struct timespec until;

	if (!n)
		return;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += TOLD_MS * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&n->lock);
	while ((n->first || n->telling) && !n->stopping &&
		pthread_cond_timedwait(&n->idle, &n->lock, &until) != ETIMEDOUT)
		;
	pthread_mutex_unlock(&n->lock);
}

void notify_forget(struct mount *m, fuse_ino_t dir, fuse_ino_t child, const char *name)
{
	put(m->notifier, dir, child, name, false);
}

void notify_attr(struct mount *m, fuse_ino_t ino)
{
	atomic_fetch_add(&m->stats.told, 1);
	put(m->notifier, ino, 0, "", true);
}

bool notify_is_late(struct mount *m)
{
	return m->notifier && (m->notifier->mute || m->notifier->n > QUEUE_LATE);
}

bool notifier_stop(struct notifier *n)
{
	struct timespec until;
	bool ended;

	if (!n)
		return true;
	pthread_mutex_lock(&n->lock);
	n->stopping = true;
	pthread_cond_signal(&n->work);
	ended = !n->started;
	pthread_mutex_unlock(&n->lock);
	if (ended)
		return true;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += JOIN_SECS;
	ended = pthread_timedjoin_np(n->thread, NULL, &until) == 0;
	if (ended)
		n->started = false;
	return ended;
}

void notifier_free(struct notifier *n)
{
	if (!n || !notifier_stop(n))
		return;
	while (n->first) {
		struct note *o = n->first;

		n->first = o->next;
		free(o);
	}
	pthread_cond_destroy(&n->work);
	pthread_cond_destroy(&n->idle);
	pthread_mutex_destroy(&n->lock);
	free(n);
}
