/* SPDX-License-Identifier: MIT */
/* Directories at one moment. */
#include "sbxfs/listing.h"

#include "sbxfs/memory.h"
#include "sbxfs/remote.h"
#include "sbxfs/session.h"
#include "sbxfs/trust.h"

#include "common/sys/deadline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define YOUNG_MS 200
#define CLOSE_MS 50    /* lookups this close together ... */
#define CLOSE_COUNT 8  /* ... and this many of them are a walk */
#define FAR_US 3000    /* where each question takes so long, the second is enough; of a walk, the first */
#define FAR_MS 1000
#define WALK_MS 2000
#define GAIN 16        /* entries of a listing that cost as much as one question */
#define WASTED_MAX 8

#define LISTED_BYTES 200 /* about, of an entry with its name */
#define TEXT_FIRST 480
#define TEXT_MOST  32720

/* Names and targets, in blocks that grow. */
struct listed_text {
	struct listed_text *next;
	size_t used, size;
	char p[];
};
struct maker {
	struct listing *l;
	size_t cap, max;
};

void listing_unref(struct listing *l)
{
	if (!l || atomic_fetch_sub(&l->refs, 1) != 1)
		return;
	atomic_fetch_sub(&l->m->listings.entries, l->n);
	memory_freed(l->n * LISTED_BYTES);
	while (l->text) {
		struct listed_text *t = l->text;

		l->text = t->next;
		free(t);
	}
	free(l->v);
	free(l->sorted);
	free(l);
}

struct listing *listing_ref(struct listing *l)
{
	atomic_fetch_add(&l->refs, 1);
	return l;
}

static const char *add_text(struct listing *l, const char *s)
{
	size_t len = strlen(s) + 1, size = TEXT_FIRST;
	struct listed_text *t = l->text;

	if (!t || len > t->size - t->used) {
		if (t)
			size = t->size * 2 < TEXT_MOST ? t->size * 2 : TEXT_MOST;
		size = size < len ? len : size;
		t = malloc(sizeof(*t) + size);
		if (!t)
			return NULL;
		*t = (struct listed_text){ .next = l->text, .size = size };
		l->text = t;
	}
	t->used += len;
	return memcpy(t->p + t->used - len, s, len);
}

/* So many directories are being read that there is room for no more of them. */
static bool too_many(struct mount *m)
{
	return atomic_load(&m->listings.entries) >= LISTED_MAX;
}

static int add_entry(void *arg, const char *name, struct tree_attr *attr)
{
	struct maker *m = arg;
	struct listing *l = m->l;
	struct listed_file *e;

	if (l->n >= m->max)
		return -E2BIG;
	if (l->n == m->cap) {
		m->cap = m->cap ? m->cap * 2 : 64;
		e = too_many(l->m) ? NULL : realloc(l->v, m->cap * sizeof(*e));
		if (!e)
			return -ENOMEM;
		l->v = e;
	}
	e = &l->v[l->n];
	*e = (struct listed_file){ .name = add_text(l, name), .st = attr->st, .id = attr->id };
	if (attr->target)
		e->target = add_text(l, attr->target);
	if (!e->name || (attr->target && !e->target))
		return -ENOMEM;
	l->n++;
	atomic_fetch_add(&l->m->listings.entries, 1);
	return 0;
}

static int by_name(const void *a, const void *b, void *arg)
{
	const struct listed_file *v = arg;

	return strcmp(v[*(const uint32_t *)a].name, v[*(const uint32_t *)b].name);
}

/* It will not grow any more. */
static int sort(struct listing *l)
{
	struct listed_file *v = realloc(l->v, (l->n ? l->n : 1) * sizeof(*v));

	if (v)
		l->v = v;
	l->sorted = malloc((l->n ? l->n : 1) * sizeof(*l->sorted));
	if (!v || !l->sorted)
		return -ENOMEM;
	for (size_t n = 0; n < l->n; n++)
		l->sorted[n] = (uint32_t)n;
	qsort_r(l->sorted, l->n, sizeof(*l->sorted), by_name, l->v);
	return 0;
}

int listing_fetch(struct req *q, struct inode *dir, size_t max, struct listing **ret)
{
	struct maker m = { .l = calloc(1, sizeof(struct listing)), .max = max };
	char path[FS_PATH_MAX];
	int rc;

	if (!m.l)
		return -ENOMEM;
	atomic_store(&m.l->refs, 1);
	m.l->m = q->m;
	/* All of these before the question: what changes while it is answered makes the answer old. */
	m.l->at_ms = now_ms();
	atomic_store(&m.l->used_ms, m.l->at_ms);
	m.l->gen = atomic_load(&q->m->gen);
	m.l->changes = atomic_load(&q->m->tree_changes);
	m.l->of_dir = tree_changes_of(dir);
	rc = tree_path(q, dir, NULL, path);
	if (rc == 0)
		rc = wire_list(q, dir->box, path, add_entry, &m, &m.l->stamp);
	if (rc == 0)
		rc = sort(m.l);
	if (rc < 0) {
		listing_unref(m.l);
		return rc;
	}
	*ret = m.l;
	return 0;
}

const struct listed_file *listing_find(const struct listing *l, const char *name)
{
	size_t lo = 0, hi = l->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct listed_file *f = &l->v[l->sorted[mid]];
		int c = strcmp(name, f->name);

		if (c == 0)
			return f;
		if (c < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return NULL;
}

struct tree_attr listing_attr(const struct listing *l, const struct listed_file *f)
{
	return (struct tree_attr){ .st = f->st, .id = f->id, .stamp = l->stamp,
		/* Older than a change of ours: nothing to answer from. */
		.at_ms = l->changes == atomic_load(&l->m->tree_changes) ? l->at_ms : 1,
		.target = (char *)(uintptr_t)f->target };
}

struct listing *listing_recent(struct req *q, struct inode *dir)
{
	struct listing *l;

	pthread_mutex_lock(&dir->tree_lock);
	l = dir->listing;
	if (l && (now_ms() - l->at_ms > YOUNG_MS || l->gen != atomic_load(&q->m->gen) ||
			 l->changes != atomic_load(&q->m->tree_changes)))
		l = NULL;
	if (l)
		listing_ref(l);
	pthread_mutex_unlock(&dir->tree_lock);
	return l;
}

struct listing *listing_own(struct inode *dir, bool *ret_long)
{
	struct listing *l;

	pthread_mutex_lock(&dir->tree_lock);
	l = dir->listing;
	if (l)
		listing_ref(l);
	if (ret_long)
		*ret_long = dir->is_long;
	pthread_mutex_unlock(&dir->tree_lock);
	return l;
}

/* What we have changed ourselves we may not have heard of yet. */
struct listing *listing_watched(struct req *q, struct inode *dir)
{
	struct listing *l = listing_own(dir, NULL);

	if (!l || (l->of_dir == tree_changes_of(dir) && trust_dir(q, dir, &l->stamp))) {
		if (l)
			atomic_store(&l->used_ms, now_ms());
		return l;
	}
	listing_unref(l);
	return NULL;
}

/* Lock of m->listings held, in these three. Gives the reference that the directory had, or NULL. */
static struct listing *take_from(struct inode *dir)
{
	struct listing *l;

	pthread_mutex_lock(&dir->tree_lock);
	l = dir->listing;
	dir->listing = NULL;
	pthread_mutex_unlock(&dir->tree_lock);
	return l;
}

static struct listing *unlist(struct mount *m, struct listing *l)
{
	struct listing *held = take_from(l->home);

	*(l->prev ? &l->prev->next : &m->listings.first) = l->next;
	*(l->next ? &l->next->prev : &m->listings.last) = l->prev;
	l->home = NULL;
	m->listings.kept -= l->n;
	return held;
}

static void enlist(struct mount *m, struct inode *dir, struct listing *l)
{
	l->home = dir;
	l->prev = NULL;
	l->next = m->listings.first;
	*(l->next ? &l->next->prev : &m->listings.last) = l;
	m->listings.first = l;
	m->listings.kept += l->n;
	pthread_mutex_lock(&dir->tree_lock);
	dir->listing = listing_ref(l);
	pthread_mutex_unlock(&dir->tree_lock);
}

void listing_drop(struct mount *m, struct inode *dir)
{
	struct listing *old = NULL;

	pthread_mutex_lock(&m->listings.lock);
	if (dir->listing)
		old = unlist(m, dir->listing);
	pthread_mutex_unlock(&m->listings.lock);
	listing_unref(old);
}

void listing_keep(struct inode *dir, struct listing *l)
{
	struct mount *m = l->m;
	struct listing *old = NULL;
	bool full;

	pthread_mutex_lock(&m->listings.lock);
	if (dir->listing)
		old = unlist(m, dir->listing);
	if (!l->home)
		enlist(m, dir, l);
	pthread_mutex_unlock(&m->listings.lock);
	do {
		listing_unref(old);
		old = NULL;
		pthread_mutex_lock(&m->listings.lock);
		full = m->listings.kept > KEPT_MAX && m->listings.last != m->listings.first;
		if (full)
			old = unlist(m, m->listings.last);
		pthread_mutex_unlock(&m->listings.lock);
	} while (full);
}

void listings_tidy(struct mount *m)
{
	uint64_t now = now_ms();
	struct listing *old;

	do {
		struct listing *l;

		pthread_mutex_lock(&m->listings.lock);
		for (l = m->listings.last; l && now - atomic_load(&l->used_ms) < KEPT_MS; l = l->prev)
			;
		old = l ? unlist(m, l) : NULL;
		pthread_mutex_unlock(&m->listings.lock);
		listing_unref(old);
	} while (old);
}

void listing_missed(struct inode *dir)
{
	uint64_t now = now_ms();

	pthread_mutex_lock(&dir->tree_lock);
	if (now - dir->looks_ms > CLOSE_MS)
		dir->looks = 0;
	if (now - dir->looks_ms > WALK_MS)
		dir->wasted = 0;
	dir->looks_ms = now;
	dir->looks++;
	pthread_mutex_unlock(&dir->tree_lock);
}

void listing_too_long(struct inode *dir)
{
	pthread_mutex_lock(&dir->tree_lock);
	dir->is_long = true;
	pthread_mutex_unlock(&dir->tree_lock);
}

static bool is_far(struct mount *m)
{
	return atomic_load(&m->ask_us) >= FAR_US;
}

bool listing_is_walk(struct mount *m, struct inode *dir)
{
	struct inode *above = is_far(m) ? link_parent(m, dir) : NULL;
	bool listed = false;

	if (!above)
		return false;
	pthread_mutex_lock(&above->tree_lock);
	listed = above->listing && now_ms() - atomic_load(&above->listing->used_ms) <= WALK_MS;
	pthread_mutex_unlock(&above->tree_lock);
	inode_unref(m, above);
	return listed;
}

/* Lock held. Who removes one name after the other looks each up and makes the listing old at once: each that
 * was not worth its price makes the next one wait for twice as many lookups. */
static void was_worth_it(struct inode *dir)
{
	const struct listing *l = dir->listing;

	if (!l)
		return;
	if (atomic_load(&l->hits) * GAIN >= l->n)
		dir->wasted = 0;
	else if (dir->wasted < WASTED_MAX)
		dir->wasted++;
}

bool listing_wanted(struct mount *m, struct inode *dir)
{
	bool far = is_far(m), walk = listing_is_walk(m, dir), many;

	pthread_mutex_lock(&dir->tree_lock);
	many = !dir->is_long && (walk || (dir->looks >= (far ? 1u : CLOSE_COUNT) << dir->wasted &&
		now_ms() - dir->looks_ms <= (far ? FAR_MS : CLOSE_MS)));
	if (many) {
		dir->looks = 0;
		was_worth_it(dir);
	}
	pthread_mutex_unlock(&dir->tree_lock);
	return many;
}

/* True: this one fetches it, and says so at the end. *ret_waited: it was another one. */
static bool begin_fetch(struct req *q, struct inode *dir, bool *ret_waited)
{
	struct mount *m = q->m;
	bool ours;

	pthread_mutex_lock(&m->listings.lock);
	*ret_waited = dir->listing_comes;
	while (dir->listing_comes && !remote_interrupted(q)) {
		session_sleeps();
		(void)cond_wait_ms(&m->listings.came, &m->listings.lock, 1000);
	}
	ours = !dir->listing_comes;
	dir->listing_comes = true;
	pthread_mutex_unlock(&m->listings.lock);
	return ours;
}

static void end_fetch(struct mount *m, struct inode *dir)
{
	pthread_mutex_lock(&m->listings.lock);
	dir->listing_comes = false;
	pthread_cond_broadcast(&m->listings.came);
	pthread_mutex_unlock(&m->listings.lock);
}

static int fetch_and_keep(struct req *q, struct inode *dir, size_t max, struct listing **ret)
{
	int rc;

	trust_wanted(q, dir, true);
	rc = listing_fetch(q, dir, max, ret);
	if (rc == 0)
		listing_keep(dir, *ret);
	return rc;
}

int listing_get(struct req *q, struct inode *dir, size_t max, struct listing **ret)
{
	bool waited, ours;
	int rc = 0;

	*ret = listing_watched(q, dir);
	if (*ret)
		return 0;
	if (!is_far(q->m))
		return fetch_and_keep(q, dir, max, ret);
	ours = begin_fetch(q, dir, &waited);
	*ret = waited ? listing_watched(q, dir) : NULL;
	if (!*ret)
		rc = ours ? fetch_and_keep(q, dir, max, ret) : -EINTR;
	if (ours)
		end_fetch(q->m, dir);
	return rc;
}
