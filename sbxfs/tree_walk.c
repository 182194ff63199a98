/* SPDX-License-Identifier: MIT */
/* Who goes through a tree that is far away is met by its listings. When he uses one below another that he has
 * used, those of the directories in it, and in these, are asked for, several at once; who comes to one that is
 * on its way waits for that (listing_get). Of PLACES directories at most, until he has come to them. */
#include "sbxfs/listing.h"
#include "sbxfs/pool.h"
#include "sbxfs/trust.h"

#include <errno.h>
#include <stdlib.h>

#define PLACES  512
#define THREADS 16
#define HOLD_MS 5000
#define LEVELS  2
#define ENTRIES 4000 /* a larger directory is left to who reads it */

struct place {
	struct inode *dir; /* referenced */
	unsigned levels;   /* wanted: of these, its own is the first */
	uint64_t at_ms;    /* held: since when */
};
struct walk {
	pthread_mutex_t lock;
	struct place wanted[PLACES]; /* a ring */
	unsigned first, n, threads;
	struct place held[PLACES]; /* a ring, so that their listings stay until somebody comes */
	unsigned next;
};

int walk_new(struct walk **ret)
{
	*ret = calloc(1, sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	pthread_mutex_init(&(*ret)->lock, NULL);
	return 0;
}

static bool take_wanted(struct walk *w, struct place *ret)
{
	bool is;

	pthread_mutex_lock(&w->lock);
	is = w->n > 0;
	if (is) {
		*ret = w->wanted[w->first];
		w->first = (w->first + 1) % PLACES;
		w->n--;
	} else {
		w->threads--;
	}
	pthread_mutex_unlock(&w->lock);
	return is;
}

/* Takes the reference, and gives up the oldest one. */
static void hold(struct mount *m, struct inode *dir)
{
	struct walk *w = m->walk;
	struct inode *old;

	pthread_mutex_lock(&w->lock);
	old = w->held[w->next].dir;
	w->held[w->next] = (struct place){ .dir = dir, .at_ms = now_ms() };
	w->next = (w->next + 1) % PLACES;
	pthread_mutex_unlock(&w->lock);
	inode_unref(m, old);
}

/* Lock held: the place that the next one would get is one's that nobody has come to yet. */
static bool is_full(struct walk *w)
{
	const struct place *p = &w->held[(w->next + w->n) % PLACES];
	struct listing *l = NULL;
	bool waits;

	if (p->dir && now_ms() - p->at_ms < HOLD_MS)
		l = listing_own(p->dir, NULL);
	waits = l && !atomic_load(&l->walked);
	listing_unref(l);
	return waits || w->n + THREADS >= PLACES;
}

static void ahead(struct req *q, struct inode *dir, struct listing *l, unsigned levels);

static void run(void *arg)
{
	struct mount *m = arg;
	struct place p;

	while (take_wanted(m->walk, &p)) {
		struct req q = { .m = m, .op = "list", .start_ms = now_ms(), .aside = true, .stop = &m->stopping };
		struct listing *l = NULL;
		int rc = atomic_load(&m->stopping) ? -EINTR : listing_get(&q, p.dir, ENTRIES, &l);

		if (rc == -E2BIG)
			listing_too_long(p.dir);
		if (rc == 0 && p.levels > 1)
			ahead(&q, p.dir, l, p.levels - 1);
		listing_unref(l);
		hold(m, p.dir);
	}
}

/* Takes the reference. False: there is no place for it. */
static bool want(struct mount *m, struct inode *dir, unsigned levels)
{
	struct walk *w = m->walk;
	bool room, starts;

	pthread_mutex_lock(&w->lock);
	room = !is_full(w);
	if (room)
		w->wanted[(w->first + w->n++) % PLACES] = (struct place){ .dir = dir, .levels = levels };
	starts = room && w->threads < THREADS && w->threads < w->n;
	w->threads += starts;
	pthread_mutex_unlock(&w->lock);
	if (!room)
		inode_unref(m, dir);
	if (starts && pool_run(m->pool, run, m) < 0) {
		pthread_mutex_lock(&w->lock);
		w->threads--; /* another one, or the next that is wanted, sees to it */
		pthread_mutex_unlock(&w->lock);
	}
	return room;
}

/* The directory of that entry, referenced. Its name is answered from the listing, too: by then more is known of
 * the directory itself than the listing tells. */
static struct inode *child(struct req *q, struct inode *dir, const struct listing *l, const struct listed_file *f)
{
	struct inode *i = link_find(q->m, dir, f->name);
	struct tree_attr a = listing_attr(l, f);
	struct fuse_entry_param e;

	if (!i && tree_inode(q, dir, f->name, &a, 0, &i, &e) < 0)
		return NULL;
	if (inode_is(q->m, i, &f->id, true))
		trust_entry(q, dir, f->name, i, &a, &e);
	return i;
}

static void ahead(struct req *q, struct inode *dir, struct listing *l, unsigned levels)
{
	bool room = true;

	for (size_t n = 0; room && n < l->n; n++) {
		const struct listed_file *f = &l->v[l->sorted[n]];
		struct inode *i = S_ISDIR(f->st.st_mode) ? child(q, dir, l, f) : NULL;
		bool is_long = false;
		struct listing *below = i ? listing_own(i, &is_long) : NULL;

		if (below && levels > 1)
			ahead(q, i, below, levels - 1);
		if (i && !below && !is_long)
			room = want(q->m, i, levels);
		else
			inode_unref(q->m, i);
		listing_unref(below);
	}
}

void walk_on(struct req *q, struct inode *dir, struct listing *l)
{
	if (atomic_load(&l->walked) || !q->fr || q->m->opt.cache != CACHE_WATCH ||
		q->m->opt.proto == PROTO_HTTP || !listing_is_walk(q->m, dir) || atomic_exchange(&l->walked, true))
		return;
	ahead(q, dir, l, LEVELS);
}

/* Those before a moment. */
static void let_go(struct mount *m, uint64_t before_ms)
{
	struct walk *w = m->walk;

	for (unsigned n = 0; n < PLACES; n++) {
		struct inode *old = NULL;

		pthread_mutex_lock(&w->lock);
		if (w->held[n].at_ms <= before_ms) {
			old = w->held[n].dir;
			w->held[n].dir = NULL;
		}
		pthread_mutex_unlock(&w->lock);
		inode_unref(m, old);
	}
}

void walk_tidy(struct mount *m)
{
	let_go(m, now_ms() - HOLD_MS);
}

void walk_free(struct mount *m)
{
	struct walk *w = m->walk;
	struct place p;

	if (!w)
		return;
	w->threads = 1;
	while (take_wanted(w, &p))
		inode_unref(m, p.dir);
	let_go(m, UINT64_MAX);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
