/* SPDX-License-Identifier: MIT */
/* Directories at one moment. */
#include "sbxfs/listing.h"

#include "sbxfs/remote.h"
#include "sbxfs/trust.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define YOUNG_MS 200
#define CLOSE_MS 50    /* lookups this close together ... */
#define CLOSE_COUNT 8  /* ... and this many of them are a walk */

struct maker {
	struct req *q;
	struct listing *l;
	size_t cap, max;
};

void listing_unref(struct listing *l)
{
	if (!l || atomic_fetch_sub(&l->refs, 1) != 1)
		return;
	for (size_t n = 0; n < l->n; n++) {
		free(l->v[n].name);
		tree_attr_fini(&l->v[n].attr);
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

static int add_entry(void *arg, const char *name, struct tree_attr *attr)
{
	struct maker *m = arg;
	struct listing *l = m->l;
	struct listed_file *e;

	if (l->n >= m->max)
		return -E2BIG;
	if (l->n == m->cap) {
		m->cap = m->cap ? m->cap * 2 : 64;
		e = realloc(l->v, m->cap * sizeof(*e));
		if (!e)
			return -ENOMEM;
		l->v = e;
	}
	e = &l->v[l->n];
	e->name = strdup(name);
	if (!e->name)
		return -ENOMEM;
	e->attr = *attr;
	attr->target = NULL;
	l->n++;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(struct listed_file *const *)a)->name, (*(struct listed_file *const *)b)->name);
}

static int sort(struct listing *l)
{
	l->sorted = malloc((l->n ? l->n : 1) * sizeof(struct listed_file *));
	if (!l->sorted)
		return -ENOMEM;
	for (size_t n = 0; n < l->n; n++)
		l->sorted[n] = &l->v[n];
	qsort(l->sorted, l->n, sizeof(struct listed_file *), by_name);
	return 0;
}

int listing_fetch(struct req *q, struct inode *dir, size_t max, struct listing **ret)
{
	struct maker m = { .q = q, .l = calloc(1, sizeof(struct listing)), .max = max };
	char path[GUEST_PATH_MAX];
	int rc;

	if (!m.l)
		return -ENOMEM;
	atomic_store(&m.l->refs, 1);
	/* All of these before the question: what changes while it is answered makes the answer old. */
	m.l->at_ms = now_ms();
	m.l->gen = atomic_load(&q->m->gen);
	m.l->changes = atomic_load(&q->m->tree_changes);
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
		int c = strcmp(name, l->sorted[mid]->name);

		if (c == 0)
			return l->sorted[mid];
		if (c < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return NULL;
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

struct listing *listing_watched(struct req *q, struct inode *dir)
{
	struct listing *l;

	pthread_mutex_lock(&dir->tree_lock);
	l = dir->listing;
	if (l)
		listing_ref(l);
	pthread_mutex_unlock(&dir->tree_lock);
	if (!l || trust_dir(q, dir, &l->stamp))
		return l;
	listing_unref(l);
	return NULL;
}

void listing_keep(struct inode *dir, struct listing *l)
{
	struct listing *old;

	pthread_mutex_lock(&dir->tree_lock);
	old = dir->listing;
	dir->listing = listing_ref(l);
	pthread_mutex_unlock(&dir->tree_lock);
	listing_unref(old);
}

bool listing_wanted(struct inode *dir)
{
	uint64_t now = now_ms();
	bool many;

	pthread_mutex_lock(&dir->tree_lock);
	if (now - dir->looks_ms > CLOSE_MS)
		dir->looks = 0;
	dir->looks_ms = now;
	many = ++dir->looks % CLOSE_COUNT == 0;
	pthread_mutex_unlock(&dir->tree_lock);
	return many;
}
