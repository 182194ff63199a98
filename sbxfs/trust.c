/* SPDX-License-Identifier: MIT */
#include "sbxfs/trust.h"

#include "sbxfs/fs1.h"
#include "sbxfs/inodes.h"

#include <string.h>

#define NAME_MIX 0x100000001b3ull

/* How much an answer is worth. */
enum worth { NOTHING, BRIEF, FULL };

static bool is_on(const struct req *q)
{
	return q->m->opt.cache == CACHE_WATCH && q->m->opt.proto != PROTO_HTTP;
}

static double secs_of(enum worth w)
{
	return w == FULL ? TRUST_SECS : w == BRIEF ? BRIEF_SECS : 0;
}

static uint64_t until(enum worth w)
{
	return now_ms() + (uint64_t)(secs_of(w) * 1000);
}

/* Lock held, in all of these. */
static enum worth told(const struct inode *dir, const struct tree_stamp *s)
{
	const struct dir_watch *w = &dir->watch;

	if (!w->epoch || w->epoch != s->epoch || s->asked < w->since || s->seen < w->change)
		return NOTHING;
	return s->asked >= w->change ? FULL : BRIEF;
}

/* The same of what the kernel is told. */
static enum worth believable(struct req *q, const struct inode *dir, const struct tree_stamp *s)
{
	return notify_is_late(q->m) ? NOTHING : told(dir, s);
}

static void heard_from(struct trust *t, const struct tree_stamp *s)
{
	if (t->epoch == s->epoch)
		return; /* already, and without a gap */
	t->epoch = s->epoch;
	t->from = s->seen;
	t->change = 0;
}

static bool holds(const struct trust *t, const struct tree_stamp *s)
{
	return t->epoch && t->epoch == s->epoch && s->seen >= t->from && s->asked >= t->change;
}

/* A directory's attributes change with its entries: only its own watch tells. */
static enum worth attr_told(struct req *q, const struct inode *dir, const struct inode *i,
	const struct tree_attr *a)
{
	enum worth by_dir = believable(q, dir, &a->stamp), own;

	if (!S_ISDIR(a->st.st_mode))
		return a->st.st_nlink == 1 && !atomic_load(&i->nwriters) ? by_dir : NOTHING;
	own = told(i, &a->stamp);
	return own < by_dir ? own : by_dir;
}

/* An answer of less than full worth is not answered from again. Which of two the kernel gets last nobody
 * knows: it counts as believed for the longer time. */
static double let_believe(struct trust *t, const struct tree_stamp *s, enum worth w)
{
	uint64_t ms = until(w);

	if (w == NOTHING)
		return 0;
	if (w == FULL)
		heard_from(t, s);
	if (t->believed_ms < ms)
		t->believed_ms = ms;
	return secs_of(w);
}

void trust_entry(struct req *q, struct inode *dir, const char *name, struct inode *i,
	const struct tree_attr *a, struct fuse_entry_param *e)
{
	struct inodes *t = q->m->inodes;
	enum worth w;
	struct link *l;

	if (q->m->opt.cache == CACHE_FIXED)
		e->entry_timeout = e->attr_timeout = q->m->opt.cache_secs;
	else if (q->m->opt.cache == CACHE_STRICT)
		e->entry_timeout = e->attr_timeout = 0;
	if (!is_on(q) || !a->stamp.epoch)
		return;
	pthread_mutex_lock(&t->lock);
	l = link_at(t, dir, name);
	if (l && l->child == i && (w = believable(q, dir, &a->stamp)) != NOTHING) {
		e->entry_timeout = let_believe(&l->trust, &a->stamp, w);
		w = attr_told(q, dir, i, a);
		if (w != NOTHING)
			e->attr_timeout = let_believe(&i->trust, &a->stamp, w);
	}
	pthread_mutex_unlock(&t->lock);
}

double trust_attr(struct req *q, struct inode *i, const struct tree_attr *a)
{
	struct inodes *t = q->m->inodes;
	double secs = TREE_ATTR_SECS;
	enum worth w;

	if (q->m->opt.cache == CACHE_FIXED)
		return q->m->opt.cache_secs;
	if (q->m->opt.cache == CACHE_STRICT)
		return 0;
	if (!is_on(q) || !a->stamp.epoch)
		return secs;
	pthread_mutex_lock(&t->lock);
	if (i->links && (w = attr_told(q, i->links->parent, i, a)) != NOTHING)
		secs = let_believe(&i->trust, &a->stamp, w);
	pthread_mutex_unlock(&t->lock);
	return secs;
}

bool trust_known(struct req *q, struct inode *i, const struct tree_stamp *s, bool is_dir)
{
	struct inodes *t = q->m->inodes;
	bool ok;

	if (!is_on(q) || !s->epoch)
		return false;
	pthread_mutex_lock(&t->lock);
	ok = !atomic_load(&i->nwriters) && holds(&i->trust, s) && (!is_dir || told(i, s) == FULL) &&
		!notify_is_late(q->m);
	if (ok)
		i->trust.believed_ms = until(FULL);
	pthread_mutex_unlock(&t->lock);
	return ok;
}

bool trust_name(struct req *q, struct inode *dir, const char *name, const struct inode *i)
{
	struct inodes *t = q->m->inodes;
	struct link *l;
	bool ok;

	if (!is_on(q))
		return false;
	pthread_mutex_lock(&t->lock);
	l = link_at(t, dir, name);
	ok = l && l->child == i && l->trust.epoch && l->trust.epoch == dir->watch.epoch &&
		!notify_is_late(q->m);
	if (ok)
		l->trust.believed_ms = until(FULL);
	pthread_mutex_unlock(&t->lock);
	return ok;
}

bool trust_stale(struct req *q, const struct inode *i, const struct tree_stamp *s)
{
	struct inodes *t = q->m->inodes;
	bool stale;

	pthread_mutex_lock(&t->lock);
	stale = i->trust.epoch == s->epoch && i->trust.change > s->asked;
	pthread_mutex_unlock(&t->lock);
	return stale;
}

bool trust_dir(struct req *q, struct inode *dir, const struct tree_stamp *s)
{
	struct inodes *t = q->m->inodes;
	bool ok;

	if (!is_on(q) || !s->epoch)
		return false;
	pthread_mutex_lock(&t->lock);
	ok = told(dir, s) == FULL;
	pthread_mutex_unlock(&t->lock);
	return ok;
}

/* For a second at most: here nobody knows which names the kernel was told of. */
double trust_absent(struct req *q, struct inode *dir, const struct tree_stamp *s)
{
	struct inodes *t = q->m->inodes;
	bool ok;

	if (!is_on(q) || !s->epoch)
		return 0;
	pthread_mutex_lock(&t->lock);
	ok = believable(q, dir, s) != NOTHING;
	if (ok)
		dir->watch.absent_ms = until(BRIEF);
	pthread_mutex_unlock(&t->lock);
	return ok ? BRIEF_SECS : 0;
}

static uint64_t own_hash(const struct inode *dir, const char *name)
{
	uint64_t h = (uint64_t)(uintptr_t)dir * 0x9e3779b97f4a7c15ull;

	while (*name)
		h = (h ^ (unsigned char)*name++) * NAME_MIX;
	return h;
}

/* Lock held. NULL: none of ours changes that name. */
static uint64_t *own_find(struct mount *m, uint64_t hash)
{
	for (unsigned n = 0; n < m->own.n; n++)
		if (m->own.names[n] == hash)
			return &m->own.names[n];
	return NULL;
}

void trust_own(struct req *q, const struct inode *dir, const char *name, bool on)
{
	struct mount *m = q->m;
	uint64_t hash = own_hash(dir, name), *at;

	pthread_mutex_lock(&m->inodes->lock);
	if (on && m->own.n < OWN_MAX)
		m->own.names[m->own.n++] = hash;
	else if (!on && (at = own_find(m, hash)))
		*at = m->own.names[--m->own.n];
	pthread_mutex_unlock(&m->inodes->lock);
}

void trust_begin(struct mount *m, struct inode *dir, uint64_t epoch, uint64_t since)
{
	struct dir_watch *w = &dir->watch;

	pthread_mutex_lock(&m->inodes->lock);
	w->epoch = epoch;
	w->since = w->asked_epoch == epoch && w->asked < since ? w->asked : since;
	w->change = 0;
	pthread_mutex_unlock(&m->inodes->lock);
}

void trust_asked(struct mount *m, struct inode *dir, uint64_t epoch, uint64_t since)
{
	struct dir_watch *w = &dir->watch;

	pthread_mutex_lock(&m->inodes->lock);
	w->asked_epoch = epoch;
	w->asked = since;
	if (w->epoch == epoch && since < w->since)
		w->since = since;
	pthread_mutex_unlock(&m->inodes->lock);
}

static bool doubt(struct trust *t, uint64_t now)
{
	bool was = t->believed_ms > now;

	t->believed_ms = 0;
	return was;
}

/* Lock held; notifications are only put into a queue. */
static void child_change(struct mount *m, struct inode *dir, const char *name, uint32_t what, uint64_t seq)
{
	uint64_t now = now_ms();
	struct link *l = link_at(m->inodes, dir, name);
	bool absent = dir->watch.absent_ms > now, believed = false;
	struct inode *i = l ? l->child : NULL;

	if (i) {
		i->trust.change = seq;
		if (doubt(&i->trust, now))
			notify_attr(m, inode_nodeid(m, i));
	}
	if (!(what & FS_INVAL_NAME))
		return;
	if (l) {
		believed = doubt(&l->trust, now);
		l->trust.epoch = 0;
		i->trust.epoch = 0; /* it may have gone where nobody tells of it */
	}
	if ((!believed && !absent) || own_find(m, own_hash(dir, name)))
		return;
	if (believed)
		notify_entry(m, inode_nodeid(m, dir), name);
	else
		notify_absent(m, inode_nodeid(m, dir), name);
}

void trust_change(struct mount *m, struct inode *dir, const char *name, uint32_t what, uint64_t seq)
{
	pthread_mutex_lock(&m->inodes->lock);
	if (what & FS_INVAL_GONE)
		dir->watch.epoch = 0;
	dir->watch.change = seq;
	if (name[0])
		child_change(m, dir, name, what, seq);
	if ((!name[0] || (what & FS_INVAL_NAME)) && doubt(&dir->trust, now_ms()))
		notify_attr(m, inode_nodeid(m, dir));
	pthread_mutex_unlock(&m->inodes->lock);
}

static void end_inode(struct mount *m, struct inode *i, uint64_t epoch, uint64_t now)
{
	if (i->watch.epoch == epoch)
		i->watch.epoch = 0;
	if (i->trust.epoch == epoch) {
		i->trust.epoch = 0;
		if (doubt(&i->trust, now))
			notify_attr(m, inode_nodeid(m, i));
	}
	for (struct link *l = i->links; l; l = l->next) {
		if (l->trust.epoch != epoch)
			continue;
		l->trust.epoch = 0;
		if (doubt(&l->trust, now))
			notify_entry(m, inode_nodeid(m, l->parent), l->name);
	}
}

void trust_end(struct mount *m, const char *box, uint64_t epoch)
{
	uint64_t now = now_ms();

	pthread_mutex_lock(&m->inodes->lock);
	for (struct entry *e = m->inodes->all; e; e = e->next)
		if (!strcmp(e->inode.box, box))
			end_inode(m, &e->inode, epoch, now);
	pthread_mutex_unlock(&m->inodes->lock);
}

bool trust_wanted(struct req *q, struct inode *dir, bool lists)
{
	struct inodes *t = q->m->inodes;
	bool stands, wanted;

	if (!is_on(q))
		return false;
	pthread_mutex_lock(&t->lock);
	stands = dir->watch.epoch != 0;
	wanted = !stands && (lists || ++dir->watch.looks > 1);
	pthread_mutex_unlock(&t->lock);
	if (wanted)
		watch_dir(q, dir);
	return stands;
}
