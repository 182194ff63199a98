/* SPDX-License-Identifier: MIT */
/* Tells the kernel what it may not believe any more, of the guests' trees and, apart from it, of what is around them. No
 * lock is held while it is told: the kernel may have to wait for an operation in the same directory, which waits for
 * us, or for a sandbox that does not answer. So each sandbox has a line of its own, told by one thread at a time, and
 * those of others are told by others. What the kernel believes for long is told once, so that it always fits into these:
 * while they are long nothing more is let be believed. Names that are not there have no such bound; the kernel finds
 * out by itself what of these does not fit, a second later. */
#include "sbxfs/trust.h"

#include "sbxfs/inode.h"

#include "common/sys/deadline.h"
#include "common/sys/fnv.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define QUEUE_LATE 16384 /* longer: nothing more is let be believed */
#define QUEUE_MAX  65536
#define JOIN_MS   2000
#define TOLD_MS   200
#define TELLERS   16

enum what {
	ATTR,   /* the inode's attributes */
	NAME,   /* a name, with all that the kernel knows below it */
	EXPIRE, /* a name is asked for again; what lies below stays when it is the same one still */
	GONE,   /* a name and its file, which nobody uses */
};
struct note {
	struct note *next;
	enum what what;
	uint64_t of; /* which sandbox's */
	fuse_ino_t ino, child; /* child: of GONE */
	size_t len;
	char name[];
};
struct line {
	struct line *next;
	uint64_t of;
	struct note *first, **last;
	bool told; /* by one of the threads, right now */
};
struct notifier {
	struct mount *m;
	pthread_mutex_t lock;
	pthread_cond_t work, idle;
	/* under lock */
	struct line *lines; /* that have something to be told, or are told; whose turn is next first */
	atomic_uint n; /* changed under it */
	atomic_bool mute; /* something could not be told: nothing is let be believed from then on */
	bool stopping;
	pthread_t threads[TELLERS];
	unsigned started, joined, waiting, telling; /* of these */
};

/* Attributes only: pages may be locked by a reader that waits for us, and an open with another version
 * drops them. */
static void tell_attr(struct fuse_session *se, const struct note *o)
{
	(void)fuse_lowlevel_notify_inval_inode(se, o->ino, -1, 0);
}

static void tell_name(struct fuse_session *se, const struct note *o)
{
	(void)fuse_lowlevel_notify_inval_entry(se, o->ino, o->name, o->len);
}

/* Kernels before 6.2 have no such thing: there all that is known below goes with the name. */
static void tell_expire(struct fuse_session *se, const struct note *o)
{
	if (fuse_lowlevel_notify_expire_entry(se, o->ino, o->name, o->len, FUSE_LL_EXPIRE_ONLY) == -ENOSYS)
		tell_name(se, o);
}

/* Only this takes an inode out of the kernel's own cache; a name that is not of `child` any more it leaves
 * alone. */
static void tell_gone(struct fuse_session *se, const struct note *o)
{
	(void)fuse_lowlevel_notify_delete(se, o->ino, o->child, o->name, o->len);
}

static void (*const tellers[])(struct fuse_session *, const struct note *) = {
	[ATTR] = tell_attr,
	[NAME] = tell_name,
	[EXPIRE] = tell_expire,
	[GONE] = tell_gone,
};

/* Lock held, in these. */
static struct line *line_of(struct notifier *n, uint64_t of)
{
	struct line **at = &n->lines, *x;

	while ((x = *at) && x->of != of)
		at = &x->next;
	if (x || !(x = calloc(1, sizeof(*x))))
		return x;
	x->of = of;
	x->last = &x->first;
	return *at = x;
}

static struct line *wanted(struct notifier *n)
{
	struct line *x = n->lines;

	while (x && (x->told || !x->first))
		x = x->next;
	return x;
}

static struct note *take(struct notifier *n, struct line *x)
{
	struct note *o = x->first;
	struct line **at = &n->lines;

	x->first = o->next;
	if (!x->first)
		x->last = &x->first;
	n->n--;
	while (*at != x)
		at = &(*at)->next;
	*at = x->next;
	while (*at)
		at = &(*at)->next;
	x->next = NULL;
	*at = x;
	return o;
}

static void let_go(struct notifier *n, struct line *x)
{
	struct line **at = &n->lines;

	if (x->first)
		return;
	while (*at != x)
		at = &(*at)->next;
	*at = x->next;
	free(x);
}

static void *run(void *arg);

static bool start(struct notifier *n)
{
	sigset_t all, old;

	if (n->started == TELLERS)
		return true;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	n->started += pthread_create(&n->threads[n->started], NULL, run, n) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return n->started > 0;
}

/* What nobody tells yet somebody shall tell: who has been woken before may be needed for what was there before. */
static void wake(struct notifier *n)
{
	if (!wanted(n))
		return;
	if (n->waiting)
		pthread_cond_signal(&n->work);
	else
		(void)start(n);
}

static void *run(void *arg)
{
	struct notifier *n = arg;

	pthread_mutex_lock(&n->lock);
	while (!n->stopping) {
		struct line *x = wanted(n);
		struct note *o;

		if (!x) {
			if (!n->n && !n->telling)
				pthread_cond_broadcast(&n->idle);
			n->waiting++;
			pthread_cond_wait(&n->work, &n->lock);
			n->waiting--;
			continue;
		}
		o = take(n, x);
		x->told = true;
		n->telling++;
		wake(n);
		pthread_mutex_unlock(&n->lock);
		tellers[o->what](n->m->se, o);
		free(o);
		pthread_mutex_lock(&n->lock);
		x->told = false;
		n->telling--;
		let_go(n, x);
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
	pthread_mutex_init(&n->lock, NULL);
	pthread_cond_init(&n->work, NULL);
	pthread_cond_init(&n->idle, NULL);
	*ret = n;
	return 0;
}

/* Without `must` it may be left out when the queue is full. */
static void put(struct notifier *n, const struct note *what, const char *name, bool must)
{
	size_t len = strlen(name);
	struct line *x;
	struct note *o;

	if (!n || !n->m->se)
		return;
	o = malloc(sizeof(*o) + len + 1);
	if (!o) {
		atomic_store(&n->mute, true);
		return;
	}
	*o = *what;
	o->next = NULL;
	o->len = len;
	memcpy(o->name, name, len + 1);
	pthread_mutex_lock(&n->lock);
	if (!n->stopping && (must || n->n < QUEUE_MAX) && (n->started || start(n)) && (x = line_of(n, what->of))) {
		*x->last = o;
		x->last = &o->next;
		n->n++;
		o = NULL;
		wake(n);
	} else if (must) {
		atomic_store(&n->mute, true);
	}
	pthread_mutex_unlock(&n->lock);
	free(o);
}

/* Lock of the inodes held, in all but what is told of the top: the inode is one of ours. */
static uint64_t box_of(struct mount *m, fuse_ino_t ino)
{
	const char *box = inode_get(m, ino)->box;

	return fnv64(FNV64, box, strlen(box));
}

void notify_entry(struct mount *m, fuse_ino_t dir, const char *name)
{
	atomic_fetch_add(&m->stats.told, 1);
	put(m->notifier, &(struct note){ .what = NAME, .ino = dir, .of = box_of(m, dir) }, name, true);
}

void notify_absent(struct mount *m, fuse_ino_t dir, const char *name)
{
	atomic_fetch_add(&m->stats.told, 1);
	put(m->notifier, &(struct note){ .what = NAME, .ino = dir, .of = box_of(m, dir) }, name, false);
}

void notify_top(struct mount *m, fuse_ino_t dir, const char *name)
{
	put(m->top_notifier, &(struct note){ .what = EXPIRE, .ino = dir }, name, false);
}

void notify_top_told(struct mount *m)
{
	struct notifier *n = m->top_notifier;
	struct timespec until;

	if (!n)
		return;
	until = deadline_ms(TOLD_MS);
	pthread_mutex_lock(&n->lock);
	while ((n->n || n->telling) && !n->stopping && cond_wait_until(&n->idle, &n->lock, &until))
		;
	pthread_mutex_unlock(&n->lock);
}

void notify_forget(struct mount *m, fuse_ino_t dir, fuse_ino_t child, const char *name)
{
	put(m->notifier, &(struct note){ .what = GONE, .ino = dir, .child = child, .of = box_of(m, dir) }, name, false);
}

void notify_attr(struct mount *m, fuse_ino_t ino)
{
	atomic_fetch_add(&m->stats.told, 1);
	put(m->notifier, &(struct note){ .what = ATTR, .ino = ino, .of = box_of(m, ino) }, "", true);
}

bool notify_is_late(struct mount *m)
{
	return m->notifier && (m->notifier->mute || m->notifier->n > QUEUE_LATE);
}

/* One that the kernel holds ends when that lets it go. */
bool notifier_stop(struct notifier *n)
{
	if (!n)
		return true;
	pthread_mutex_lock(&n->lock);
	n->stopping = true;
	pthread_cond_broadcast(&n->work);
	pthread_mutex_unlock(&n->lock);
	while (n->joined < n->started && thread_join_ms(n->threads[n->joined], JOIN_MS))
		n->joined++;
	return n->joined == n->started;
}

void notifier_free(struct notifier *n)
{
	if (!n || !notifier_stop(n))
		return;
	while (n->lines) {
		struct line *x = n->lines;

		while (x->first)
			free(take(n, x));
		let_go(n, x);
	}
	pthread_cond_destroy(&n->work);
	pthread_cond_destroy(&n->idle);
	pthread_mutex_destroy(&n->lock);
	free(n);
}
