/* SPDX-License-Identifier: MIT */
/* Names of guest objects: which path the kernel believes an inode has. Requests about a path are
 * made from here, and how far a symbolic link may climb is counted here. */
#include "sbxfs/inodes.h"
#include "sbxfs/nodes.h"
#include "sbxfs/session.h"
#include "sbxfs/trust.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINKS_MAX 8      /* names remembered for one inode */
#define DEPTH_MAX 2048   /* path elements */
#define STEPS_MAX 20000  /* of the search for the shortest way up */

static struct link **bucket(struct inodes *t, const struct inode *parent, const char *name)
{
	uint64_t h = (uint64_t)(uintptr_t)parent * 0x9e3779b97f4a7c15ull;

	while (*name)
		h = (h ^ (unsigned char)*name++) * 0x100000001b3ull;
	return &t->links[(h ^ h >> 32) % INODE_BUCKETS];
}

struct link *link_at(struct inodes *t, const struct inode *parent, const char *name)
{
	struct link *l = *bucket(t, parent, name);

	while (l && (l->parent != parent || strcmp(l->name, name)))
		l = l->hash_next;
	return l;
}

void link_drop(struct inodes *t, struct link *l)
{
	struct link **p = bucket(t, l->parent, l->name);

	while (*p != l)
		p = &(*p)->hash_next;
	*p = l->hash_next;
	for (p = &l->child->links; *p != l; p = &(*p)->next)
		;
	*p = l->next;
	free(l->name);
	free(l);
}

static bool is_top(const struct inode *i)
{
	return (i->node->id == N_FS || i->node->id == N_SNAP_FS) && !i->is_tree;
}

/* Path elements from the guest's root to an object: by its names, and where the kernel may have it. -1: unknown. */
struct way {
	int named, least;
};

static int fewer(int a, int b)
{
	return a < 0 || (b >= 0 && b < a) ? b : a;
}

static int one_more(int depth)
{
	return depth < 0 ? depth : depth + 1;
}

struct search {
	uint64_t now, until_ms;
	int steps, above;
};

static const struct way unknown = { -1, -1 };

/* Lock held, in these. */
static struct way way_up(struct search *s, const struct inode *i)
{
	struct way w = unknown;

	if (is_top(i))
		return (struct way){ 0, 0 };
	if (s->above++ == DEPTH_MAX)
		s->steps = 0;
	for (const struct link *l = i->links; l && --s->steps >= 0; l = l->next) {
		struct way up = way_up(s, l->parent);

		w.named = fewer(w.named, one_more(up.named));
		w.least = fewer(w.least, one_more(up.least));
	}
	s->above--;
	if (i->astray_ms > s->now) {
		w.least = fewer(w.least, i->astray_depth);
		if (s->until_ms < i->astray_ms)
			s->until_ms = i->astray_ms;
	}
	return w;
}

static struct way search_way(struct search *s, const struct inode *i)
{
	struct way w;

	*s = (struct search){ .now = now_ms(), .steps = STEPS_MAX };
	w = way_up(s, i);
	return s->steps < 0 ? unknown : w;
}

static struct way way_of(const struct inode *i)
{
	struct search s;

	return search_way(&s, i);
}

static void drop_with_ref(struct inodes *t, struct link *l)
{
	/* The parent is in use by the caller's request, so that nothing is freed here. */
	l->parent->refs--;
	link_drop(t, l);
}

#define ASTRAY_MS 2000 /* a walk of the kernel's from one element to the next */
#define TOLD_MS   200  /* an answer of ours on its way through it */

static mode_t kind_of(struct inode *i)
{
	mode_t mode;

	pthread_mutex_lock(&i->tree_lock);
	mode = i->known.st_mode & S_IFMT;
	pthread_mutex_unlock(&i->tree_lock);
	return mode;
}

/* Until then the kernel may have it where it was. */
static void goes_astray(struct inode *i, struct way was, uint64_t until_ms)
{
	if (i->astray_ms < until_ms)
		i->astray_ms = until_ms;
	i->astray_depth = was.least < 0 ? 0 : was.least;
}

/* Drops a name that the kernel itself did not take away: who stands in the directory is still where it was, and
 * so is who has just looked up a link there. Until `until_ms` the kernel may use a link by that name. */
static void drop_behind(struct inodes *t, struct link *l, uint64_t until_ms)
{
	struct inode *i = l->child;
	mode_t kind = i->is_tree && i->nlookup ? kind_of(i) : 0;

	if (S_ISDIR(kind))
		goes_astray(i, way_of(i), LINK_ASTRAY);
	else if (S_ISLNK(kind))
		goes_astray(i, way_of(i), until_ms + ASTRAY_MS);
	drop_with_ref(t, l);
}

/* How long the kernel may still believe a name. */
static uint64_t believed_until(const struct mount *m, const struct link *l)
{
	uint64_t now = now_ms();

	if (m->opt.cache == CACHE_FIXED)
		return now + (uint64_t)(m->opt.cache_secs * 1000);
	return l->trust.believed_ms > now ? l->trust.believed_ms : now;
}

/* One of its names more than is remembered, or one that it has lost. The parent may go with it. */
static void give_up(struct inodes *t, struct link *l)
{
	struct inode *parent = l->parent;

	/* Nobody would tell of it any more. */
	if (l->trust.believed_ms > now_ms())
		notify_entry(t->m, inode_nodeid(t->m, parent), l->name);
	drop_behind(t, l, believed_until(t->m, l));
	inode_reap(t, parent);
}

static void trim(struct inodes *t, struct inode *child)
{
	unsigned n = 0;

	for (struct link *l = child->links; l; l = l->next)
		if (++n > LINKS_MAX) {
			give_up(t, l);
			return;
		}
}

/* A directory has one name, and the kernel one place for it. It does not move it while somebody else is at work in the
 * directory where it was, or moves something, and then who asked is told that it is stale and asks once more. */
void link_told(struct req *q, struct inode *dir, const char *name, struct inode *i)
{
	struct inodes *t = q->m->inodes;
	struct link *next;
	bool known;

	if (!i->is_tree)
		return;
	pthread_mutex_lock(&t->lock);
	known = i->nlookup && S_ISDIR(kind_of(i));
	for (struct link *l = known ? i->links : NULL; l; l = next) {
		next = l->next;
		if (l->parent != dir || strcmp(l->name, name))
			give_up(t, l);
	}
	if (known && (i->astray_ms == LINK_ASTRAY || (i->astray_ms > now_ms() && i->told_pid == q->pid))) {
		i->astray_ms = session_is_calm(q->m) ? now_ms() + TOLD_MS : LINK_ASTRAY;
		i->told_pid = q->pid;
	}
	pthread_mutex_unlock(&t->lock);
}

/* The name is another's now; who was about to open it by that name still says so. */
static void remember(const struct link *l)
{
	struct inode *i = l->child;

	free(i->was_name);
	i->was_name = strdup(l->name);
	i->was_in = l->parent;
}

bool link_last(struct mount *m, const struct inode *i, const struct inode **ret_dir, char out[256])
{
	const char *name;

	pthread_mutex_lock(&m->inodes->lock);
	name = i->links ? i->links->name : i->was_name;
	*ret_dir = i->links ? i->links->parent : i->was_in;
	if (name)
		(void)snprintf(out, 256, "%s", name);
	pthread_mutex_unlock(&m->inodes->lock);
	return name != NULL;
}

/* Paths are made of the name that was seen last: the others may be gone. */
static void to_front(struct link *l)
{
	struct link **p;

	for (p = &l->child->links; *p != l; p = &(*p)->next)
		;
	*p = l->next;
	l->next = l->child->links;
	l->child->links = l;
}

/* A directory within itself is a lie: paths would have no beginning, and nothing could be forgotten. */
static bool is_above(const struct inode *child, const struct inode *i)
{
	for (int left = DEPTH_MAX; i && left--; i = i->links ? i->links->parent : NULL)
		if (i == child)
			return true;
	return false;
}

static int add_locked(struct inodes *t, struct inode *parent, const char *name, struct inode *child)
{
	struct link *l = link_at(t, parent, name), **b;

	if (l && l->child == child) {
		to_front(l);
		return 0;
	}
	if (is_above(child, parent))
		return -ELOOP;
	if (l) {
		remember(l);
		drop_behind(t, l, now_ms());
	}
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->name = strdup(name);
	if (!l->name) {
		free(l);
		return -ENOMEM;
	}
	b = bucket(t, parent, name);
	l->parent = parent;
	l->child = child;
	l->hash_next = *b;
	*b = l;
	l->next = child->links;
	child->links = l;
	parent->refs++;
	trim(t, child);
	return 0;
}

int link_add(struct mount *m, struct inode *parent, const char *name, struct inode *child)
{
	struct inodes *t = m->inodes;
	uint64_t now = now_ms();
	int rc, before, after;
	bool known;

	pthread_mutex_lock(&t->lock);
	known = child->is_tree && child->nlookup && S_ISDIR(kind_of(child));
	before = known ? way_of(child).named : 0;
	rc = add_locked(t, parent, name, child);
	after = known ? way_of(child).named : 0;
	if (rc == 0 && known && (before < 0 || after < before))
		child->up_ms = now + LINK_CLIMB_MS;
	if (rc == 0 && known)
		rc = child->up_ms > now;
	pthread_mutex_unlock(&t->lock);
	return rc;
}

void link_remove(struct mount *m, struct inode *parent, const char *name)
{
	struct link *l;

	pthread_mutex_lock(&m->inodes->lock);
	l = link_at(m->inodes, parent, name);
	if (l)
		drop_behind(m->inodes, l, now_ms());
	pthread_mutex_unlock(&m->inodes->lock);
}

/* The kernel moves what it knows along, with the time for which it believes it. */
static void move_belief(struct inodes *t, struct inode *dir, const char *name, uint64_t believed_ms)
{
	struct link *l = link_at(t, dir, name);

	if (l && l->trust.believed_ms < believed_ms)
		l->trust.believed_ms = believed_ms;
}

/* The kernel moves it, once it has our answer. */
static void follows_down(struct inode *i, struct way was)
{
	if (i && i->nlookup && way_of(i).named > was.named)
		goes_astray(i, was, now_ms() + TOLD_MS);
}

static bool is_up(const struct inode *i, bool is_dir, struct way was)
{
	return is_dir && way_of(i).named < was.named;
}

bool link_rename(struct mount *m, struct inode *p1, const char *n1, struct inode *p2, const char *n2,
	bool exchange)
{
	struct inodes *t = m->inodes;
	struct link *a, *b;
	struct inode *ca, *cb;
	struct way wa, wb;
	uint64_t a_ms, b_ms;
	bool up;

	pthread_mutex_lock(&t->lock);
	a = link_at(t, p1, n1);
	b = link_at(t, p2, n2);
	ca = a && a->child->is_tree ? a->child : NULL;
	cb = b && b->child->is_tree && exchange ? b->child : NULL;
	wa = ca ? way_of(ca) : unknown;
	wb = cb ? way_of(cb) : unknown;
	a_ms = a ? a->trust.believed_ms : 0;
	b_ms = b ? b->trust.believed_ms : 0;
	if (a)
		drop_with_ref(t, a);
	if (b && b != a)
		drop_with_ref(t, b);
	if (ca)
		(void)add_locked(t, p2, n2, ca);
	if (cb)
		(void)add_locked(t, p1, n1, cb);
	move_belief(t, p2, n2, a_ms);
	if (exchange)
		move_belief(t, p1, n1, b_ms);
	follows_down(ca, wa);
	follows_down(cb, wb);
	up = is_up(ca, ca && S_ISDIR(kind_of(ca)), wa) || is_up(cb, cb && S_ISDIR(kind_of(cb)), wb);
	pthread_mutex_unlock(&t->lock);
	return up;
}

struct inode *link_find(struct mount *m, struct inode *parent, const char *name)
{
	struct inode *i = NULL;
	struct link *l;

	pthread_mutex_lock(&m->inodes->lock);
	l = link_at(m->inodes, parent, name);
	if (l) {
		i = l->child;
		i->refs++;
	}
	pthread_mutex_unlock(&m->inodes->lock);
	return i;
}

struct inode *link_parent(struct mount *m, struct inode *i)
{
	struct inode *above = NULL;

	pthread_mutex_lock(&m->inodes->lock);
	if (i->links) {
		above = i->links->parent;
		above->refs++;
	}
	pthread_mutex_unlock(&m->inodes->lock);
	return above;
}

int link_path(struct mount *m, struct inode *i, const char *name, char *out, size_t size)
{
	char buf[FS_PATH_MAX];
	size_t at = sizeof(buf) - 1;
	int rc = 0, left = DEPTH_MAX;

	buf[at] = '\0';
	pthread_mutex_lock(&m->inodes->lock);
	while (name || !is_top(i)) {
		const char *part = name ? name : i->links ? i->links->name : NULL;
		size_t n = part ? strlen(part) : 0;

		if (!part || !left--) {
			rc = -ESTALE;
			break;
		}
		if (n + 1 > at) {
			rc = -ENAMETOOLONG;
			break;
		}
		at -= n;
		memcpy(buf + at, part, n);
		buf[--at] = '/';
		if (!name)
			i = i->links->parent;
		name = NULL;
	}
	pthread_mutex_unlock(&m->inodes->lock);
	if (rc < 0)
		return rc;
	if (!buf[at])
		buf[--at] = '/';
	if (sizeof(buf) - at > size)
		return -ENAMETOOLONG;
	memcpy(out, buf + at, sizeof(buf) - at);
	return 0;
}

static int holder(int depth)
{
	return depth > 0 ? depth - 1 : depth;
}

struct climb link_climb(struct mount *m, struct inode *i)
{
	struct search s;
	struct way w;
	bool astray;

	pthread_mutex_lock(&m->inodes->lock);
	w = search_way(&s, i);
	pthread_mutex_unlock(&m->inodes->lock);
	astray = w.least < w.named || w.named < 0;
	return (struct climb){ holder(w.named), holder(w.least), astray ? s.until_ms : 0 };
}
