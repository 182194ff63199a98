/* SPDX-License-Identifier: MIT */
/* Which directories a connection watches. A watch is asked for on the way and answered later; until
 * then nothing is believed. What is pushed changes our tables (trust.c) on the receiver's thread, so
 * that an answer which follows is never met by what was before the push. */
#include "sbxfs/fs1_priv.h"
#include "sbxfs/inodes.h"
#include "sbxfs/locks.h"
#include "sbxfs/trust.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WATCHES_MAX 16384
#define BUCKETS 4096
#define SAME_MAX 64     /* inodes of one object: it is one directory, seen at several places */
#define DOUBTS_MAX 16   /* in a second: more is too much to follow */
#define DEAF_MS 10000

struct watch_entry {
	struct watch_entry *next; /* of the bucket; of the pending ones while it has no number */
	struct fs1_conn *conn;    /* not referenced: it ends before it goes */
	uint64_t id;
	bool answered;
	unsigned changes;  /* our own of the directory, when it was asked for */
	struct inode *dir; /* referenced */
};
struct watches {
	struct mount *m;
	pthread_mutex_t lock;
	struct watch_entry *pending, *by_id[BUCKETS];
	unsigned n;
};

int watches_new(struct mount *m, struct watches **ret)
{
	*ret = calloc(1, sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	(*ret)->m = m;
	pthread_mutex_init(&(*ret)->lock, NULL);
	return 0;
}

void watches_free(struct watches *w)
{
	if (!w)
		return;
	pthread_mutex_destroy(&w->lock);
	free(w);
}

unsigned watches_count(struct watches *w)
{
	unsigned n;

	pthread_mutex_lock(&w->lock);
	n = w->n;
	pthread_mutex_unlock(&w->lock);
	return n;
}

static struct watch_entry **chain(struct watches *w, uint64_t id)
{
	return &w->by_id[id % BUCKETS];
}

/* Lock held: out of its list. */
static void unlist(struct watches *w, struct watch_entry *e)
{
	struct watch_entry **at = e->answered ? chain(w, e->id) : &w->pending;

	while (*at && *at != e)
		at = &(*at)->next;
	if (*at)
		*at = e->next;
	w->n--;
}

static void drop(struct watches *w, struct watch_entry *e)
{
	pthread_mutex_lock(&w->lock);
	unlist(w, e);
	pthread_mutex_unlock(&w->lock);
	inode_unref(w->m, e->dir);
	free(e);
}

/* False: the connection has ended, and nobody would take the entry away. */
static bool add_pending(struct watches *w, struct watch_entry *e)
{
	bool ok;

	pthread_mutex_lock(&w->lock);
	ok = !e->conn->unwatched;
	if (ok) {
		e->next = w->pending;
		w->pending = e;
		w->n++;
	}
	pthread_mutex_unlock(&w->lock);
	return ok;
}

/* No answer will come. When the connection has ended meanwhile, that took the entry away. */
static void take_back(struct watches *w, struct fs1_conn *c, struct watch_entry *e)
{
	bool ours;

	pthread_mutex_lock(&w->lock);
	ours = !c->unwatched;
	if (ours)
		unlist(w, e);
	pthread_mutex_unlock(&w->lock);
	if (!ours)
		return;
	inode_unref(w->m, e->dir);
	free(e);
}

/* Once on each connection. */
static bool first_try(struct mount *m, struct inode *dir, uint64_t epoch)
{
	bool first;

	pthread_mutex_lock(&m->inodes->lock);
	first = dir->watch.tried != epoch;
	dir->watch.tried = epoch;
	if (first)
		dir->refs++;
	pthread_mutex_unlock(&m->inodes->lock);
	return first;
}

static void ask(struct req *q, struct fs1_conn *c, struct inode *dir)
{
	struct watches *w = q->m->fs1->watches;
	struct watch_entry *e;
	char path[FS_PATH_MAX];
	struct files_req r = { .flags = 0 };
	uint64_t epoch = atomic_load(&c->epoch);
	int rc;

	if (!first_try(q->m, dir, epoch))
		return;
	e = calloc(1, sizeof(*e));
	if (!e || tree_path(q, dir, NULL, path) < 0 || !fs1_takes(c, path)) {
		free(e);
		inode_unref(q->m, dir);
		return;
	}
	e->conn = c;
	e->dir = dir;
	e->changes = tree_changes_of(dir);
	if (!add_pending(w, e)) {
		free(e);
		inode_unref(q->m, dir);
		return;
	}
	/* When it was cut off, the end takes it. */
	rc = fs1_send_bare(c, FILES_WATCH, &r, path, (uint64_t)(uintptr_t)e);
	if (rc == -EBUSY)
		take_back(w, c, e);
	else if (rc == 0 && (c->hello.features & FS_FEATURE_WATCH_FIRST))
		trust_asked(q->m, dir, epoch, atomic_fetch_add(&c->pushes, 1) + 1);
}

static bool is_deaf(struct fs1_conn *c)
{
	return now_ms() < atomic_load(&c->deaf_until_ms);
}

void watch_dir(struct req *q, struct inode *dir)
{
	struct fs1_conn *c = fs1_get(q, dir->box);

	if (!c)
		return;
	if (c->hello.watch_kind == FS_WATCH_INOTIFY && (c->hello.features & FS_FEATURE_WATCH) &&
		watches_count(q->m->fs1->watches) < WATCHES_MAX && !is_deaf(c))
		ask(q, c, dir);
	fs1_put(c);
}

/* Lock held: what the connection watches under a number, the n-th: one object may be several inodes. */
static struct watch_entry *find(struct fs1_conn *c, uint64_t id, unsigned n)
{
	struct watch_entry *e = *chain(c->m->fs1->watches, id);

	while (e && (e->conn != c || e->id != id || n--))
		e = e->next;
	return e;
}

static bool has_room(struct fs1_conn *c, uint64_t id)
{
	struct watches *w = c->m->fs1->watches;
	bool room;

	pthread_mutex_lock(&w->lock);
	room = !find(c, id, SAME_MAX - 1);
	pthread_mutex_unlock(&w->lock);
	return room;
}

/* Its attributes come with the watch: who opens a directory asks for them next. What changes them later is
 * pushed after this. */
static void take_attr(struct fs1_conn *c, const struct watch_entry *e, const struct files_attr *told, uint64_t seq)
{
	struct tree_attr a;

	if (!fs1_attr_ok(told))
		return;
	frame_attr(c->m, told, &a);
	a.stamp = (struct tree_stamp){ atomic_load(&c->epoch), seq, seq };
	tree_watched(c->m, e->dir, &a, e->changes);
}

int watches_answer(struct fs1_conn *c, uint64_t arg, int64_t value, const struct files_rep *rep)
{
	struct watches *w = c->m->fs1->watches;
	struct watch_entry *e = (struct watch_entry *)(uintptr_t)arg, **at;
	uint64_t seq;

	if (value < 0 || is_deaf(c)) {
		atomic_fetch_add(&c->m->fs1->unwatched, 1);
		drop(w, e);
		return 0;
	}
	if (!has_room(c, (uint64_t)value))
		return -EPROTO;
	seq = atomic_fetch_add(&c->pushes, 1) + 1;
	trust_begin(c->m, e->dir, atomic_load(&c->epoch), seq);
	take_attr(c, e, &rep->attr, seq);
	pthread_mutex_lock(&w->lock);
	unlist(w, e);
	w->n++;
	e->id = (uint64_t)value;
	e->answered = true;
	at = chain(w, e->id);
	e->next = *at;
	*at = e;
	pthread_mutex_unlock(&w->lock);
	return 0;
}

/* The same as a directory, referenced. */
static struct inode *watched(struct fs1_conn *c, uint64_t id, unsigned n)
{
	struct watches *w = c->m->fs1->watches;
	struct inode *dir = NULL;
	struct watch_entry *e;

	pthread_mutex_lock(&w->lock);
	e = find(c, id, n);
	if (e) {
		dir = e->dir;
		inode_ref(c->m, dir);
	}
	pthread_mutex_unlock(&w->lock);
	return dir;
}

static void gone(struct fs1_conn *c, uint64_t id)
{
	struct watches *w = c->m->fs1->watches;
	struct watch_entry *e;

	do {
		pthread_mutex_lock(&w->lock);
		e = find(c, id, 0);
		if (e)
			unlist(w, e);
		pthread_mutex_unlock(&w->lock);
		if (e)
			inode_unref(c->m, e->dir);
		free(e);
	} while (e);
}

/* Lock held: takes out one entry of a connection, of those without a number last. */
static struct watch_entry *take_one(struct watches *w, const struct fs1_conn *c, unsigned *bucket,
	unsigned end)
{
	for (; *bucket < end; ++*bucket) {
		struct watch_entry *e = *bucket < BUCKETS ? w->by_id[*bucket] : w->pending;

		while (e && e->conn != c)
			e = e->next;
		if (e) {
			unlist(w, e);
			return e;
		}
	}
	return NULL;
}

/* What it watches counts no more; `ends`: nor does what it has been asked to watch. */
static void forget_all(struct fs1_conn *c, bool ends)
{
	struct watches *w = c->m->fs1->watches;
	struct watch_entry *e;
	unsigned bucket = 0;

	do {
		pthread_mutex_lock(&w->lock);
		e = take_one(w, c, &bucket, ends ? BUCKETS + 1 : BUCKETS);
		c->unwatched |= ends && !e;
		pthread_mutex_unlock(&w->lock);
		if (e)
			inode_unref(c->m, e->dir);
		free(e);
	} while (e);
}

/* Each doubt walks through all that is known. Who loses its place all the time is not listened to for a
 * while, and asked instead. */
static bool too_often(struct fs1_conn *c)
{
	uint64_t now = now_ms();

	if (now - c->doubt_ms > 1000) {
		c->doubt_ms = now;
		c->doubts = 0;
	}
	return ++c->doubts > DOUBTS_MAX;
}

/* Everything this connection told is in doubt, but its watches still stand. */
static void doubt_all(struct fs1_conn *c)
{
	struct fs1 *f = c->m->fs1;
	struct watches *w = f->watches;
	uint64_t old = atomic_load(&c->epoch), since = atomic_fetch_add(&c->pushes, 1) + 1;

	pthread_mutex_lock(&f->lock);
	atomic_store(&c->epoch, ++f->epochs);
	pthread_mutex_unlock(&f->lock);
	trust_end(c->m, c->box, old);
	if (too_often(c)) {
		atomic_store(&c->deaf_until_ms, now_ms() + DEAF_MS);
		forget_all(c, false);
	}
	pthread_mutex_lock(&w->lock);
	for (unsigned b = 0; b < BUCKETS; b++)
		for (struct watch_entry *e = w->by_id[b]; e; e = e->next)
			if (e->conn == c)
				trust_begin(c->m, e->dir, atomic_load(&c->epoch), since);
	pthread_mutex_unlock(&w->lock);
}

static void change(struct fs1_conn *c, const struct fs1_change *g, uint64_t seq)
{
	struct inode *dir;

	atomic_fetch_add(&c->m->fs1->changes, 1);
	if (g->head.what & FS_INVAL_ALL) {
		atomic_fetch_add(&c->m->fs1->doubted, 1);
		doubt_all(c);
		return;
	}
	for (unsigned n = 0; (dir = watched(c, g->head.watch, n)); n++) {
		trust_change(c->m, dir, g->name, g->head.what, seq);
		inode_unref(c->m, dir);
	}
	if (g->head.what & FS_INVAL_GONE)
		gone(c, g->head.watch);
}

int watches_push(struct fs1_conn *c, const char *buf, size_t len)
{
	uint64_t seq = atomic_fetch_add(&c->pushes, 1) + 1;
	struct fs1_change g;
	size_t at = 0;
	int more;

	if (is_deaf(c))
		return 0;
	while ((more = fs1_next_change(buf, len, &at, &g)) > 0 && !is_deaf(c))
		change(c, &g, seq);
	return more < 0 ? -EPROTO : 0;
}

void watches_end(struct fs1_conn *c)
{
	forget_all(c, true);
	trust_end(c->m, c->box, atomic_load(&c->epoch));
}

void watches_doubt(struct fs1_conn *c)
{
	trust_end(c->m, c->box, atomic_load(&c->epoch));
}

/* Nobody but us knows the directory any more. */
static bool is_forgotten(struct mount *m, const struct inode *i)
{
	bool is;

	pthread_mutex_lock(&m->inodes->lock);
	is = !i->nlookup && i->refs == 1;
	pthread_mutex_unlock(&m->inodes->lock);
	return is;
}

/* Lock held. The connection is marked by the number alone: it is asked by its sandbox. */
static struct watch_entry *forgotten(struct watches *w, unsigned *bucket)
{
	for (; *bucket < BUCKETS; ++*bucket)
		for (struct watch_entry *e = w->by_id[*bucket]; e; e = e->next)
			if (is_forgotten(w->m, e->dir)) {
				unlist(w, e);
				return e;
			}
	return NULL;
}

void watches_tidy(struct mount *m)
{
	struct watches *w = m->fs1->watches;
	struct req q = { .m = m, .op = "tidy", .start_ms = now_ms() };
	struct watch_entry *e;
	unsigned bucket = 0;

	do {
		pthread_mutex_lock(&w->lock);
		e = forgotten(w, &bucket);
		pthread_mutex_unlock(&w->lock);
		if (!e)
			break;
		if (fs1_epoch(m, e->dir->box) == e->dir->watch.tried)
			(void)fs1_tell(&q, e->dir->box, FILES_UNWATCH, e->id);
		inode_unref(m, e->dir);
		free(e);
	} while (1);
}
