/* SPDX-License-Identifier: MIT */
#include "sbxfs/trust.h"

#include "sbxfs/fs1.h"
#include "sbxfs/inodes.h"

#include <string.h>

#define TRUST_MS 1000

static bool is_on(const struct req *q)
{
	return q->m->opt.cache == CACHE_WATCH && q->m->opt.proto != PROTO_HTTP;
}

/* Lock held, in all of these. */
static bool told(const struct inode *dir, const struct tree_stamp *s)
{
	const struct dir_watch *w = &dir->watch;

	return w->epoch && w->epoch == s->epoch && s->asked >= w->since && s->seen >= w->change;
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
	return t->epoch && t->epoch == s->epoch && s->seen >= t->from && s->seen >= t->change;
}

/* A directory's attributes change with its entries: only its own watch tells. */
static bool attr_told(const struct inode *dir, const struct inode *i, const struct tree_attr *a)
{
	if (S_ISDIR(a->st.st_mode))
		return told(i, &a->stamp) && told(dir, &a->stamp);
	return a->st.st_nlink == 1 && told(dir, &a->stamp) && !atomic_load(&i->nfiles);
}

static void let_believe(struct inode *i, const struct tree_attr *a, uint64_t now)
{
	heard_from(&i->trust, &a->stamp);
	i->trust.believed_ms = now + TRUST_MS;
}

void trust_entry(struct req *q, struct inode *dir, const char *name, struct inode *i,
	const struct tree_attr *a, struct fuse_entry_param *e)
{
	struct inodes *t = q->m->inodes;
	uint64_t now = now_ms();
	struct link *l;

	if (q->m->opt.cache == CACHE_FIXED)
		e->entry_timeout = e->attr_timeout = q->m->opt.cache_secs;
	else if (q->m->opt.cache == CACHE_STRICT)
		e->entry_timeout = e->attr_timeout = 0;
	if (!is_on(q) || !a->stamp.epoch)
		return;
	pthread_mutex_lock(&t->lock);
	l = link_at(t, dir, name);
	if (l && l->child == i && told(dir, &a->stamp)) {
		heard_from(&l->trust, &a->stamp);
		l->trust.believed_ms = now + TRUST_MS;
		e->entry_timeout = TRUST_SECS;
		if (attr_told(dir, i, a)) {
			let_believe(i, a, now);
			e->attr_timeout = TRUST_SECS;
		}
	}
	pthread_mutex_unlock(&t->lock);
}

double trust_attr(struct req *q, struct inode *i, const struct tree_attr *a)
{
	struct inodes *t = q->m->inodes;
	double secs = TREE_ATTR_SECS;

	if (q->m->opt.cache == CACHE_FIXED)
		return q->m->opt.cache_secs;
	if (q->m->opt.cache == CACHE_STRICT)
		return 0;
	if (!is_on(q) || !a->stamp.epoch)
		return secs;
	pthread_mutex_lock(&t->lock);
	if (i->links && attr_told(i->links->parent, i, a)) {
		let_believe(i, a, now_ms());
		secs = TRUST_SECS;
	}
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
	ok = !atomic_load(&i->nfiles) && holds(&i->trust, s) && (!is_dir || told(i, s));
	if (ok)
		i->trust.believed_ms = now_ms() + TRUST_MS;
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
	ok = l && l->child == i && l->trust.epoch && l->trust.epoch == dir->watch.epoch;
	if (ok)
		l->trust.believed_ms = now_ms() + TRUST_MS;
	pthread_mutex_unlock(&t->lock);
	return ok;
}

bool trust_stale(struct req *q, const struct inode *i, const struct tree_stamp *s)
{
	struct inodes *t = q->m->inodes;
	bool stale;

	pthread_mutex_lock(&t->lock);
	stale = i->trust.epoch == s->epoch && i->trust.change > s->seen;
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
	ok = told(dir, s);
	pthread_mutex_unlock(&t->lock);
	return ok;
}

double trust_absent(struct req *q, struct inode *dir, const struct tree_stamp *s)
{
	struct inodes *t = q->m->inodes;
	bool ok;

	if (!is_on(q) || !s->epoch)
		return 0;
	pthread_mutex_lock(&t->lock);
	ok = told(dir, s);
	if (ok)
		dir->watch.absent_ms = now_ms() + TRUST_MS;
	pthread_mutex_unlock(&t->lock);
	return ok ? TRUST_SECS : 0;
}

static atomic_uint *own_at(struct mount *m, const struct inode *dir, const char *name)
{
	uint64_t h = (uint64_t)(uintptr_t)dir * 0x9e3779b97f4a7c15ull;

	while (*name)
		h = (h ^ (unsigned char)*name++) * 0x100000001b3ull;
	return &m->own[(h ^ h >> 32) % (sizeof(m->own) / sizeof(m->own[0]))];
}

void trust_own(struct req *q, const struct inode *dir, const char *name, int n)
{
	atomic_fetch_add(own_at(q->m, dir, name), (unsigned)n);
}

void trust_begin(struct mount *m, struct inode *dir, uint64_t epoch, uint64_t since)
{
	pthread_mutex_lock(&m->inodes->lock);
	dir->watch.epoch = epoch;
	dir->watch.since = since;
	dir->watch.change = 0;
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
	bool entry = dir->watch.absent_ms > now;
	struct inode *i = l ? l->child : NULL;

	if (i) {
		i->trust.change = seq;
		if (doubt(&i->trust, now))
			notify_attr(m, inode_nodeid(m, i));
	}
	if (!(what & FS_INVAL_NAME))
		return;
	if (l) {
		entry |= doubt(&l->trust, now);
		l->trust.epoch = 0;
		i->trust.epoch = 0; /* it may have gone where nobody tells of it */
	}
	if (entry && !atomic_load(own_at(m, dir, name)))
		notify_entry(m, inode_nodeid(m, dir), name);
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

void trust_wanted(struct req *q, struct inode *dir, bool lists)
{
	struct inodes *t = q->m->inodes;
	bool wanted;

	if (!is_on(q))
		return;
	pthread_mutex_lock(&t->lock);
	wanted = !dir->watch.epoch && (lists || ++dir->watch.looks > 1);
	pthread_mutex_unlock(&t->lock);
	if (wanted)
		watch_dir(q, dir);
}
