/* SPDX-License-Identifier: MIT */
/* Which connection: opened when a sandbox is first asked about (fs1_open.c), closed when nobody has for a
 * minute. While one is being opened, and for a pause after a failure, requests go the plain way. */
#include "sbxfs/fs1_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define IDLE_MS   60000
#define AGAIN_MS  100 /* after a loss */
#define SHUN_MS   10000 /* after a peer that did not answer */
#define CONNS_MAX 256 /* of one mount; a thread and 64 KiB each */

int fs1_new(struct mount *m, struct fs1 **ret)
{
	struct fs1 *f = calloc(1, sizeof(*f));
	int rc;

	if (!f)
		return -ENOMEM;
	f->m = m;
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->gone, NULL);
	rc = watches_new(m, &f->watches);
	if (rc < 0) {
		free(f);
		return rc;
	}
	*ret = f;
	return 0;
}

struct fs1_box *fs1_box_find(struct fs1 *f, const char *id)
{
	struct fs1_box *b = f->boxes;

	while (b && strcmp(b->id, id))
		b = b->next;
	return b;
}

static struct fs1_box *find_or_make(struct fs1 *f, const char *id)
{
	struct fs1_box *b = fs1_box_find(f, id);

	if (b || !(b = calloc(1, sizeof(*b))))
		return b;
	(void)snprintf(b->id, sizeof(b->id), "%s", id);
	b->next = f->boxes;
	f->boxes = b;
	return b;
}

void fs1_put(struct fs1_conn *c)
{
	struct fs1 *f = c->m->fs1;

	if (atomic_fetch_sub(&c->refs, 1) > 1)
		return;
	pthread_mutex_lock(&f->lock);
	close(c->fd);
	close(c->ep);
	fs1_share_end(c);
	for (unsigned n = 0; n < SLOTS; n++)
		pthread_cond_destroy(&c->slots[n].answered);
	pthread_cond_destroy(&c->room);
	pthread_mutex_destroy(&c->lock);
	pthread_mutex_destroy(&c->send);
	free(c);
	f->conns--;
	pthread_cond_broadcast(&f->gone);
	pthread_mutex_unlock(&f->lock);
}

static void drop(struct fs1_conn *c, uint64_t pause_ms)
{
	struct fs1 *f = c->m->fs1;
	struct fs1_box *b;
	bool was;

	pthread_mutex_lock(&c->lock);
	c->dead = true;
	pthread_cond_broadcast(&c->room);
	pthread_mutex_unlock(&c->lock);
	(void)shutdown(c->fd, SHUT_RDWR);
	pthread_mutex_lock(&f->lock);
	was = c->listed;
	c->listed = false;
	b = was ? fs1_box_find(f, c->box) : NULL;
	if (b) {
		b->conn = NULL;
		b->retry_ms = now_ms() + pause_ms;
	}
	pthread_mutex_unlock(&f->lock);
	if (was)
		fs1_put(c);
}

void fs1_drop(struct fs1_conn *c)
{
	drop(c, AGAIN_MS);
}

void fs1_shun(struct fs1_conn *c)
{
	drop(c, SHUN_MS);
}

struct fs1_conn *fs1_get(struct req *q, const char *box)
{
	struct fs1 *f = q->m->fs1;
	struct fs1_conn *c = NULL;
	struct fs1_box *b;

	if (q->m->opt.proto == PROTO_HTTP || !box[0])
		return NULL;
	pthread_mutex_lock(&f->lock);
	b = f->stopping ? NULL : find_or_make(f, box);
	if (b && !b->conn && !b->opening && now_ms() >= b->retry_ms && f->conns < CONNS_MAX) {
		fs1_open_begin(f, b);
		b = fs1_open_wait(q, f, box);
	}
	if (b && b->conn) {
		c = b->conn;
		c->refs++;
	}
	pthread_mutex_unlock(&f->lock);
	return c;
}

uint64_t fs1_epoch(struct mount *m, const char *box)
{
	struct fs1 *f = m->fs1;
	struct fs1_box *b;
	uint64_t epoch;

	pthread_mutex_lock(&f->lock);
	b = fs1_box_find(f, box);
	epoch = b && b->conn ? atomic_load(&b->conn->epoch) : 0;
	pthread_mutex_unlock(&f->lock);
	return epoch;
}

void fs1_awake(struct mount *m, const char *box)
{
	struct fs1 *f = m->fs1;
	struct fs1_box *b;

	if (m->opt.proto == PROTO_HTTP)
		return;
	pthread_mutex_lock(&f->lock);
	b = fs1_box_find(f, box);
	if (b && !b->conn && b->step_ms > 0 && b->step_ms < FS1_STEP_MAX)
		b->retry_ms = 0;
	pthread_mutex_unlock(&f->lock);
}

/* A connection to drop, referenced: any, or one that nobody has used for long. */
static struct fs1_conn *to_drop(struct fs1 *f, bool any)
{
	struct fs1_conn *c = NULL;

	pthread_mutex_lock(&f->lock);
	for (struct fs1_box *b = f->boxes; b && !c; b = b->next) {
		if (!b->conn)
			continue;
		pthread_mutex_lock(&b->conn->lock);
		if (any || (!b->conn->busy && now_ms() - b->conn->used_ms > IDLE_MS))
			c = b->conn;
		pthread_mutex_unlock(&b->conn->lock);
	}
	if (c)
		c->refs++;
	pthread_mutex_unlock(&f->lock);
	return c;
}

static void drop_all(struct fs1 *f, bool any)
{
	struct fs1_conn *c;

	while ((c = to_drop(f, any))) {
		fs1_drop(c);
		fs1_put(c);
	}
}

/* What is known about sandboxes that nobody asks about any more. */
static void forget_boxes(struct fs1 *f, bool all)
{
	struct fs1_box **at, *b;

	pthread_mutex_lock(&f->lock);
	for (at = &f->boxes; (b = *at);) {
		if (b->conn || b->opening || (!all && now_ms() < b->retry_ms + IDLE_MS)) {
			at = &b->next;
			continue;
		}
		*at = b->next;
		free(b);
	}
	pthread_mutex_unlock(&f->lock);
}

static void give_memory_back(struct fs1 *f)
{
	pthread_mutex_lock(&f->lock);
	for (struct fs1_box *b = f->boxes; b; b = b->next)
		if (b->conn)
			fs1_share_tidy(b->conn);
	pthread_mutex_unlock(&f->lock);
}

void fs1_tidy(struct mount *m)
{
	drop_all(m->fs1, false);
	give_memory_back(m->fs1);
	forget_boxes(m->fs1, false);
	watches_tidy(m);
}

/* Lock held: no more is asked on it. A reference goes to the caller. */
static struct fs1_conn *retire_one(struct fs1 *f)
{
	for (struct fs1_box *b = f->boxes; b; b = b->next) {
		struct fs1_conn *c = b->conn;

		if (!c)
			continue;
		b->conn = NULL;
		b->retry_ms = 0;
		c->listed = false;
		return c;
	}
	return NULL;
}

/* What is under way is answered: it is not lost because somebody wants to see all anew. */
void fs1_reset(struct mount *m)
{
	struct fs1 *f = m->fs1;
	struct fs1_conn *c;
	bool idle;

	do {
		pthread_mutex_lock(&f->lock);
		c = retire_one(f);
		pthread_mutex_unlock(&f->lock);
		if (!c)
			break;
		pthread_mutex_lock(&c->lock);
		c->retired = true;
		idle = !c->busy;
		pthread_mutex_unlock(&c->lock);
		watches_doubt(c);
		if (idle)
			fs1_drop(c);
		fs1_put(c);
	} while (1);
	forget_boxes(f, true);
}

void fs1_free(struct fs1 *f)
{
	if (!f)
		return;
	pthread_mutex_lock(&f->lock);
	f->stopping = true;
	pthread_mutex_unlock(&f->lock);
	drop_all(f, true);
	pthread_mutex_lock(&f->lock);
	while (f->conns || f->opening)
		pthread_cond_wait(&f->gone, &f->lock);
	pthread_mutex_unlock(&f->lock);
	forget_boxes(f, true);
	watches_free(f->watches);
	pthread_cond_destroy(&f->gone);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

void fs1_figures(struct mount *m, struct fs1_figures *ret)
{
	struct fs1 *f = m->fs1;

	pthread_mutex_lock(&f->lock);
	*ret = (struct fs1_figures){ .connections = f->conns };
	for (struct fs1_box *b = f->boxes; b; b = b->next)
		ret->inotify |= b->conn && b->conn->hello.watch_kind == FS_WATCH_INOTIFY;
	pthread_mutex_unlock(&f->lock);
	ret->watches = watches_count(f->watches);
	ret->requests = atomic_load(&f->requests);
	ret->plain = atomic_load(&f->plain);
	ret->lost = atomic_load(&f->lost);
	ret->pushes = atomic_load(&f->pushes);
	ret->changes = atomic_load(&f->changes);
	ret->refused = atomic_load(&f->refused);
	ret->unwatched = atomic_load(&f->unwatched);
	ret->doubted = atomic_load(&f->doubted);
}
