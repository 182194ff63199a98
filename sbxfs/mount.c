/* SPDX-License-Identifier: MIT */
/* The parts of a mount, made and taken down in order. */
#include "sbxfs/mount.h"

#include "sbxfs/belief.h"
#include "sbxfs/box.h"
#include "sbxfs/draft.h"
#include "sbxfs/errlog.h"
#include "sbxfs/feed.h"
#include "sbxfs/fs1.h"
#include "sbxfs/handle.h"
#include "sbxfs/inode.h"
#include "sbxfs/locks.h"
#include "sbxfs/pool.h"
#include "sbxfs/ports.h"
#include "sbxfs/proc.h"
#include "sbxfs/snaps.h"
#include "sbxfs/treefs.h"
#include "sbxfs/trust.h"
#include "sbxfs/watch.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void mount_touch(struct mount *m)
{
	atomic_fetch_add(&m->gen, 1);
	belief_end(m);
}

int mount_patience(const struct mount *m, int ms)
{
	return m->opt.timeout ? ms / DEADLINE_SECS * m->opt.timeout : ms;
}

int refuse(struct req *q, int sys, const char *fmt, ...)
{
	va_list ap;

	memset(&q->err, 0, sizeof(q->err));
	q->err.sys = sys;
	va_start(ap, fmt);
	(void)vsnprintf(q->err.message, sizeof(q->err.message), fmt, ap);
	va_end(ap);
	return -sys;
}

/* Hard to guess: whoever says it may use our handles. */
static void client_name(struct mount *m)
{
	unsigned char r[16];
	size_t n = 0;

	if (getentropy(r, sizeof(r)) < 0)
		memset(r, 0, sizeof(r));
	n = (size_t)snprintf(m->client, sizeof(m->client), "fs-");
	for (size_t i = 0; i < sizeof(r); i++)
		n += (size_t)snprintf(m->client + n, sizeof(m->client) - n, "%02x", r[i]);
}

int mount_init(struct mount *m, const struct options *opt, struct sbx *sbx)
{
	int rc;

	memset(m, 0, sizeof(*m));
	m->opt = *opt;
	m->sbx = sbx;
	clock_gettime(CLOCK_REALTIME, &m->started);
	client_name(m);
	pthread_mutex_init(&m->lock, NULL);
	pthread_mutex_init(&m->listings.lock, NULL);
	pthread_cond_init(&m->listings.came, NULL);
	rc = inodes_new(m, &m->inodes);
	if (rc == 0)
		rc = errlog_new(&m->errors);
	if (rc == 0)
		rc = boxes_new(&m->boxes);
	if (rc == 0)
		rc = drafts_new(&m->drafts);
	if (rc == 0)
		rc = procs_new(&m->procs);
	if (rc == 0)
		rc = pool_new(&m->pool);
	if (rc == 0)
		rc = feeds_new(m, &m->feeds);
	if (rc == 0)
		rc = notifier_new(m, &m->notifier);
	if (rc == 0)
		rc = notifier_new(m, &m->top_notifier);
	if (rc == 0)
		rc = fs1_new(m, &m->fs1);
	if (rc == 0)
		rc = lock_waits_new(m, &m->lock_waits);
	if (rc == 0)
		rc = agains_new(&m->agains);
	if (rc == 0)
		rc = walk_new(&m->walk);
	if (rc == 0)
		rc = flusher_new(m, &m->flusher);
	if (rc == 0)
		rc = ports_new(m, &m->ports);
	if (rc == 0)
		rc = snaps_new(m, &m->snaps);
	if (rc == 0)
		rc = watch_new(m, &m->watch);
	if (rc < 0)
		mount_fini(m);
	return rc;
}

void mount_stop(struct mount *m)
{
	atomic_store(&m->stopping, true);
	watch_stop(m->watch);
	ports_stop(m->ports);
	if (m->feeds)
		feeds_stop(m->feeds);
	lock_waits_stop(m->lock_waits);
	fs1_park_stop(m->fs1); /* what it leaves goes to the pool */
	flusher_stop(m->flusher);
	pool_free(m->pool);
	m->pool = NULL;
	snaps_stop(m);
}

void mount_fini(struct mount *m)
{
	mount_stop(m);
	handles_free(m);
	flusher_free(m->flusher);
	fs1_free(m->fs1);
	lock_waits_free(m->lock_waits);
	agains_free(m->agains);
	walk_free(m);
	notifier_free(m->notifier);
	notifier_free(m->top_notifier);
	watch_free(m->watch);
	ports_free(m->ports);
	snaps_free(m->snaps);
	feeds_free(m->feeds);
	procs_free(m->procs);
	drafts_free(m->drafts);
	boxes_free(m->boxes);
	errlog_free(m->errors);
	inodes_free(m->inodes);
	json_decref(m->caps);
	pthread_cond_destroy(&m->listings.came);
	pthread_mutex_destroy(&m->listings.lock);
	pthread_mutex_destroy(&m->lock);
	memset(m, 0, sizeof(*m));
}
