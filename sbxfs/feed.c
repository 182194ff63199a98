/* SPDX-License-Identifier: MIT */
/* Readers of streams. A request that is parked is answered by whoever takes it out of the list, so
 * that data, end, close and interrupt never answer it twice. */
#include "sbxfs/feed.h"

#include "sbxfs/feed_priv.h"
#include "sbxfs/ops.h"
#include "sbxfs/pool.h"
#include "sbxfs/proc.h"
#include "sbxfs/remote.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int feeds_new(struct mount *m, struct feeds **ret)
{
	*ret = calloc(1, sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	(*ret)->m = m;
	pthread_mutex_init(&(*ret)->lock, NULL);
	return 0;
}

void feeds_free(struct feeds *f)
{
	if (!f)
		return;
	pthread_mutex_destroy(&f->lock);
	free(f);
}

/* Lock held. */
static void feed_drop(struct feed *f)
{
	struct feed **at = &f->feeds->all;

	if (--f->refs)
		return;
	while (*at && *at != f)
		at = &(*at)->next;
	if (*at)
		*at = f->next;
	free(f->win);
	free(f);
}

void feed_put(struct feed *f)
{
	struct feeds *all = f->feeds;

	pthread_mutex_lock(&all->lock);
	feed_drop(f);
	pthread_mutex_unlock(&all->lock);
}

static struct feed *feed_new(struct mount *m, const struct inode *i, int64_t pid)
{
	struct feed *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->win = malloc(WINDOW_MAX);
	if (!f->win) {
		free(f);
		return NULL;
	}
	f->feeds = m->feeds;
	f->m = m;
	f->node = i->node;
	(void)snprintf(f->box, sizeof(f->box), "%s", i->box);
	(void)snprintf(f->arg, sizeof(f->arg), "%s", i->node->parent == N_IMAGE ? i->arg : "");
	f->pid = pid;
	return f;
}

/* Lock held. A stream that somebody reads already. Events begin where the reader comes. */
static struct feed *feed_find(struct feeds *all, const struct inode *i, int64_t pid)
{
	for (struct feed *f = all->all; f; f = f->next)
		if (f->node == i->node && f->pid == pid && !strcmp(f->box, i->box) &&
			!strcmp(f->arg, f->node->parent == N_IMAGE ? i->arg : "") &&
			!atomic_load(&f->stop) && !(f->ended && pid < 0))
			return f;
	return NULL;
}

int feed_open(struct req *q, struct handle *h)
{
	struct feeds *all = q->m->feeds;
	const struct inode *i = h->inode;
	int64_t pid = -1;
	struct feed *f;
	int rc = 0;

	if (i->node->parent == N_PROC) {
		rc = process_pid(q, i->box, i->arg, &pid);
		if (rc == 0 && !pid)
			rc = refuse(q, EINVAL, "%s is a draft: start it first", i->arg);
		if (rc < 0)
			return rc;
	}
	pthread_mutex_lock(&all->lock);
	f = feed_find(all, i, pid);
	if (f) {
		f->refs++;
	} else if ((f = feed_new(q->m, i, pid))) {
		f->refs = 2;
		rc = pool_run(q->m->pool, feed_follow, f);
		if (rc == 0) {
			f->next = all->all;
			all->all = f;
		} else {
			free(f->win);
			free(f);
		}
	} else {
		rc = -ENOMEM;
	}
	if (rc == 0) {
		h->feed = f;
		h->pos = pid < 0 && i->node->parent != N_IMAGE ? f->base + f->len : 0;
	}
	pthread_mutex_unlock(&all->lock);
	return rc;
}

/* Takes a request out of the list; false: somebody else answers it. Lock held. */
static bool unpark(struct parked *p)
{
	struct parked **at = &p->feed->parked;

	if (!p->listed)
		return false;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	p->listed = false;
	return true;
}

static void parked_free(struct parked *p)
{
	atomic_fetch_sub(&p->q.m->stats.parked, 1);
	free(p);
}

/* The interrupt's thread holds the request's own lock here: nothing of ours is locked while we set
 * this function, and it may answer at once. */
static void on_interrupt(fuse_req_t fr, void *arg)
{
	struct parked *p = arg;
	struct feeds *all = p->feed->feeds;
	bool mine;

	pthread_mutex_lock(&all->lock);
	mine = unpark(p);
	p->interrupted = true;
	pthread_mutex_unlock(&all->lock);
	if (mine) {
		fuse_reply_err(fr, EINTR);
		parked_free(p);
	}
}

static void answer(struct parked *p, const char *buf, ssize_t n)
{
	fuse_req_interrupt_func(p->fr, NULL, NULL);
	if (n < 0)
		req_fail(&p->q, (int)n);
	else
		fuse_reply_buf(p->fr, buf, (size_t)n);
	parked_free(p);
}

/* Bytes that are no longer in the window come from the server. */
static void catch_up(void *arg)
{
	struct parked *p = arg;
	char *buf = malloc(p->size);
	uint64_t pos;
	ssize_t n = -ENOMEM;

	pthread_mutex_lock(&p->feed->feeds->lock);
	pos = p->h->pos;
	pthread_mutex_unlock(&p->feed->feeds->lock);
	if (buf) {
		p->q.patient = true;
		n = log_read(&p->q, p->h->inode, pos, buf, p->size);
	}
	if (n > 0) {
		pthread_mutex_lock(&p->feed->feeds->lock);
		p->h->pos = pos + (uint64_t)n;
		pthread_mutex_unlock(&p->feed->feeds->lock);
	}
	answer(p, buf, n);
	free(buf);
}

enum ready { READY_DATA, READY_END, READY_LATE, READY_NOT };

/* Lock held. */
static enum ready ready(const struct feed *f, const struct handle *h)
{
	uint64_t end = f->base + f->len;

	if (h->pos < f->base)
		return READY_LATE;
	if (h->pos < end)
		return READY_DATA;
	return f->ended ? READY_END : READY_NOT;
}

/* Lock held: takes what the reader gets. The caller frees. */
static char *take(struct feed *f, struct handle *h, size_t size, size_t *ret)
{
	size_t at = (size_t)(h->pos - f->base), n = f->len - at;
	char *buf;

	*ret = n < size ? n : size;
	buf = malloc(*ret ? *ret : 1);
	if (buf) {
		memcpy(buf, f->win + at, *ret);
		h->pos += *ret;
	}
	return buf;
}

static void serve(struct parked *p, enum ready r)
{
	struct feeds *all = p->feed->feeds;
	char *buf = NULL;
	size_t n = 0;

	if (r == READY_LATE && p->feed->node->parent == N_BOX_METRICS) {
		/* Whoever slept for hours goes on with what is still known. */
		pthread_mutex_lock(&all->lock);
		p->h->pos = p->feed->base;
		r = ready(p->feed, p->h);
		pthread_mutex_unlock(&all->lock);
	}
	if (r == READY_LATE) {
		if (pool_run(p->q.m->pool, catch_up, p) < 0)
			answer(p, NULL, -EBUSY);
		return;
	}
	if (r == READY_DATA) {
		pthread_mutex_lock(&all->lock);
		/* Another reader of the same handle may have been faster, the window may have moved. */
		r = ready(p->feed, p->h);
		if (r == READY_DATA)
			buf = take(p->feed, p->h, p->size, &n);
		pthread_mutex_unlock(&all->lock);
		if (r != READY_DATA) {
			serve(p, r == READY_NOT ? READY_END : r);
			return;
		}
	}
	answer(p, buf, r == READY_DATA && !buf ? -ENOMEM : (ssize_t)n);
	free(buf);
}

void feed_read(struct req *q, struct handle *h, size_t size)
{
	struct feeds *all = q->m->feeds;
	struct parked *p = calloc(1, sizeof(*p));
	enum ready r;
	bool interrupted;

	if (!p) {
		req_fail(q, -ENOMEM);
		return;
	}
	*p = (struct parked){ .feed = h->feed, .h = h, .fr = q->fr, .q = *q, .size = size };
	atomic_fetch_add(&q->m->stats.parked, 1);
	fuse_req_interrupt_func(q->fr, on_interrupt, p);
	pthread_mutex_lock(&all->lock);
	r = ready(h->feed, h);
	interrupted = p->interrupted;
	if (r == READY_NOT && !interrupted && !(h->flags & O_NONBLOCK)) {
		p->listed = true;
		p->next = h->feed->parked;
		h->feed->parked = p;
		p = NULL;
	}
	pthread_mutex_unlock(&all->lock);
	if (!p)
		return;
	if (interrupted)
		answer(p, NULL, -EINTR);
	else if (r == READY_NOT)
		answer(p, NULL, -EAGAIN);
	else
		serve(p, r);
}

/* Everyone who can be answered now, and everyone who polls. */
static void wake(struct feed *f)
{
	struct feeds *all = f->feeds;

	for (;;) {
		struct poller *w;
		struct parked *p;
		enum ready r = READY_NOT;

		pthread_mutex_lock(&all->lock);
		for (p = f->parked; p; p = p->next)
			if ((r = ready(f, p->h)) != READY_NOT)
				break;
		if (p)
			(void)unpark(p);
		w = p ? NULL : f->pollers;
		if (w)
			f->pollers = w->next;
		pthread_mutex_unlock(&all->lock);
		if (p) {
			serve(p, r);
		} else if (w) {
			fuse_lowlevel_notify_poll(w->ph);
			fuse_pollhandle_destroy(w->ph);
			free(w);
		} else {
			return;
		}
	}
}

void feed_add(struct feed *f, const void *buf, size_t len)
{
	const char *from = buf;

	while (len) {
		size_t n = len < WINDOW_MAX / 2 ? len : WINDOW_MAX / 2;

		pthread_mutex_lock(&f->feeds->lock);
		if (f->len + n > WINDOW_MAX) {
			size_t gone = f->len + n - WINDOW_MAX;

			memmove(f->win, f->win + gone, f->len - gone);
			f->len -= gone;
			f->base += gone;
		}
		memcpy(f->win + f->len, from, n);
		f->len += n;
		pthread_mutex_unlock(&f->feeds->lock);
		from += n;
		len -= n;
		wake(f);
	}
}

void feed_end(struct feed *f)
{
	pthread_mutex_lock(&f->feeds->lock);
	f->ended = true;
	pthread_mutex_unlock(&f->feeds->lock);
	wake(f);
}

void feed_poll(struct req *q, struct handle *h, struct fuse_pollhandle *ph)
{
	struct feeds *all = q->m->feeds;
	struct fuse_pollhandle *old = ph;
	unsigned events = 0;

	pthread_mutex_lock(&all->lock);
	if (ready(h->feed, h) != READY_NOT) {
		events = POLLIN | POLLRDNORM;
	} else if (ph) {
		struct poller *w;

		for (w = h->feed->pollers; w && w->h != h; w = w->next)
			;
		if (w) { /* only the newest counts */
			old = w->ph;
			w->ph = ph;
		} else if ((w = calloc(1, sizeof(*w)))) {
			*w = (struct poller){ .next = h->feed->pollers, .h = h, .ph = ph };
			h->feed->pollers = w;
			old = NULL;
		}
	}
	pthread_mutex_unlock(&all->lock);
	if (old)
		fuse_pollhandle_destroy(old);
	fuse_reply_poll(q->fr, events);
}

void feed_close(struct mount *m, struct feed *f, struct handle *h)
{
	struct poller *gone = NULL;

	if (!f)
		return;
	pthread_mutex_lock(&m->feeds->lock);
	for (struct poller **at = &f->pollers; *at; at = &(*at)->next) {
		if ((*at)->h != h)
			continue;
		gone = *at;
		*at = gone->next;
		break;
	}
	if (f->refs == 2 && !f->ended)
		atomic_store(&f->stop, true); /* only the thread is left */
	feed_drop(f);
	pthread_mutex_unlock(&m->feeds->lock);
	if (gone)
		fuse_pollhandle_destroy(gone->ph);
	free(gone);
}

void feeds_stop(struct feeds *all)
{
	struct feed *f;

	do {
		pthread_mutex_lock(&all->lock);
		for (f = all->all; f && f->ended; f = f->next)
			;
		if (f)
			f->refs++;
		pthread_mutex_unlock(&all->lock);
		if (f) {
			atomic_store(&f->stop, true);
			feed_end(f);
			feed_put(f);
		}
	} while (f);
}
