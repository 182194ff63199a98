/* SPDX-License-Identifier: MIT */
/* Names of guest objects: which path the kernel believes an inode has. Requests about a path are
 * made from here, and how far a symbolic link may climb is counted here. */
#include "sbxfs/inodes.h"
#include "sbxfs/nodes.h"
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

/* Lock held. What goes astray on the way up is added to *astray. */
static int depth_up(const struct inode *i, int *steps, int limit, uint64_t *astray)
{
	int best = -1;

	if (is_top(i))
		return 0;
	if (limit <= 0)
		return -1;
	if (*astray < i->astray_ms)
		*astray = i->astray_ms;
	for (const struct link *l = i->links; l; l = l->next) {
		int d;

		if (--*steps < 0)
			return -1;
		d = depth_up(l->parent, steps, limit - 1, astray);
		if (d >= 0 && (best < 0 || d + 1 < best))
			best = d + 1;
	}
	return best;
}

static int depth_of(const struct inode *i, uint64_t *astray)
{
	int steps = STEPS_MAX, d = depth_up(i, &steps, DEPTH_MAX, astray);

	if (steps < 0)
		return -1;
	return d > 0 ? d - 1 : d;
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

/* Drops a name that the kernel itself did not take away: who stands in the directory is still where it was, and
 * so is who has just looked up a link there. Until `until_ms` the kernel may use a link by that name. */
static void drop_behind(struct inodes *t, struct link *l, uint64_t until_ms)
{
	struct inode *i = l->child;
	uint64_t none = 0, at = 0;
	mode_t kind = i->is_tree && i->nlookup ? kind_of(i) : 0;
	int before = S_ISLNK(kind) ? depth_of(i, &none) : 0, after;

	drop_with_ref(t, l);
	if (S_ISDIR(kind))
		at = LINK_ASTRAY;
	else if (S_ISLNK(kind) && ((after = depth_of(i, &none)) > before || after < 0))
		at = until_ms + ASTRAY_MS;
	if (i->astray_ms < at)
		i->astray_ms = at;
}

void link_told(struct mount *m, struct inode *i)
{
	pthread_mutex_lock(&m->inodes->lock);
	if (i->astray_ms == LINK_ASTRAY)
		i->astray_ms = now_ms() + TOLD_MS;
	pthread_mutex_unlock(&m->inodes->lock);
}

/* How long the kernel may still believe a name. */
static uint64_t believed_until(const struct mount *m, const struct link *l)
{
	uint64_t now = now_ms();

	if (m->opt.cache == CACHE_FIXED)
		return now + (uint64_t)(m->opt.cache_secs * 1000);
	return l->trust.believed_ms > now ? l->trust.believed_ms : now;
}

static void trim(struct inodes *t, struct inode *child)
{
	unsigned n = 0;

	for (struct link *l = child->links; l; l = l->next) {
		if (++n <= LINKS_MAX)
			continue;
		if (l->parent->refs > 1 || l->parent->nlookup) {
			/* Nobody would tell of it any more. */
			if (l->trust.believed_ms > now_ms())
				notify_entry(t->m, inode_nodeid(t->m, l->parent), l->name);
			drop_behind(t, l, believed_until(t->m, l));
			return;
		}
	}
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
	int rc, before = 0;
	uint64_t none = 0;
	bool known;

	pthread_mutex_lock(&t->lock);
	known = child->is_tree && child->nlookup && S_ISDIR(kind_of(child));
	if (known)
		before = depth_of(child, &none);
	rc = add_locked(t, parent, name, child);
	if (rc == 0 && known)
		rc = before < 0 || depth_of(child, &none) < before;
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

static int depth_of_dir(struct inode *i)
{
	uint64_t none = 0;

	return i && i->is_tree && S_ISDIR(kind_of(i)) ? depth_of(i, &none) : -1;
}

bool link_rename(struct mount *m, struct inode *p1, const char *n1, struct inode *p2, const char *n2,
	bool exchange)
{
	struct inodes *t = m->inodes;
	struct link *a, *b;
	struct inode *ca, *cb;
	uint64_t a_ms, b_ms;
	int a_depth, b_depth;
	bool up;

	pthread_mutex_lock(&t->lock);
	a = link_at(t, p1, n1);
	b = link_at(t, p2, n2);
	ca = a ? a->child : NULL;
	cb = b ? b->child : NULL;
	a_depth = p1 == p2 ? -1 : depth_of_dir(ca);
	b_depth = p1 == p2 || !exchange ? -1 : depth_of_dir(cb);
	a_ms = a ? a->trust.believed_ms : 0;
	b_ms = b ? b->trust.believed_ms : 0;
	if (a)
		drop_with_ref(t, a);
	if (b && b != a)
		drop_with_ref(t, b);
	if (ca)
		(void)add_locked(t, p2, n2, ca);
	if (exchange && cb)
		(void)add_locked(t, p1, n1, cb);
	move_belief(t, p2, n2, a_ms);
	if (exchange)
		move_belief(t, p1, n1, b_ms);
	up = depth_of_dir(ca) < a_depth || depth_of_dir(cb) < b_depth;
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

int link_depth(struct mount *m, struct inode *i, uint64_t *ret_astray)
{
	uint64_t astray = 0;
	int d;

	pthread_mutex_lock(&m->inodes->lock);
	d = depth_of(i, &astray);
	pthread_mutex_unlock(&m->inodes->lock);
	if (ret_astray)
		*ret_astray = astray > now_ms() ? astray : 0;
	return d;
}
