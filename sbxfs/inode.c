/* SPDX-License-Identifier: MIT */
/* The table of inodes: one hash over what identifies an inode, counts of the kernel and of us. */
#include "sbxfs/inode.h"

#include "common/sys/fnv.h"
#include "sbxfs/inodes.h"
#include "sbxfs/listing.h"
#include "sbxfs/memory.h"
#include "sbxfs/nodes.h"
#include "sbxfs/trust.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Of this program alone: numbers of objects are the guest's choice, and he shall not choose what one list of them
 * holds. */
static uint64_t seed;

static uint64_t hash_name(const struct node *node, const char *box, const char *arg, uid_t uid)
{
	uint64_t h = fnv64(FNV64, &node, sizeof(node));

	h = fnv64(h, box, strlen(box) + 1);
	h = fnv64(h, arg, strlen(arg) + 1);
	return fnv64(h, &uid, sizeof(uid));
}

static uint64_t hash_tree(const char *box, const struct tree_id *id)
{
	uint64_t h = fnv64(seed, id, sizeof(*id));

	h = fnv64(h, box, strlen(box) + 1);
	return h ^ h >> 32;
}

static uint64_t hash_of(const struct inode *i)
{
	return i->is_tree ? hash_tree(i->box, &i->tid) : hash_name(i->node, i->box, i->arg, i->uid);
}

/* Stable for the life of the object: made from its name in the tree, not from our memory. */
static uint64_t shown_ino(const struct node *node, const char *box, const char *arg)
{
	uint64_t id = (uint64_t)node->id, h = fnv64(FNV64, &id, sizeof(id));

	h = fnv64(h, box, strlen(box) + 1);
	h = fnv64(h, arg, strlen(arg) + 1);
	return h >> 1 ? h >> 1 : 2;
}

int inodes_new(struct mount *m, struct inodes **ret)
{
	struct inodes *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return -ENOMEM;
	pthread_mutex_init(&t->lock, NULL);
	t->m = m;
	while (!seed && getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		;
	*ret = m->inodes = t;
	rc = inode_virtual(m, node_by_id(N_ROOT), "", "", 0, &t->root);
	if (rc < 0) {
		pthread_mutex_destroy(&t->lock);
		free(t);
		*ret = m->inodes = NULL;
	}
	return rc;
}

static void inode_free(struct inodes *t, struct inode *i)
{
	listing_drop(t->m, i);
	pthread_mutex_destroy(&i->tree_lock);
	free(i->arg);
	if (!i->base)
		free(i->data);
	free(i->was_name);
	free(i);
	memory_freed(INODE_BYTES);
}

void inodes_free(struct inodes *t)
{
	if (!t)
		return;
	for (size_t b = 0; b < INODE_BUCKETS; b++) {
		struct link *l;

		while ((l = t->links[b])) {
			t->links[b] = l->hash_next;
			free(l->name);
			free(l);
		}
	}
	while (t->all) {
		struct entry *e = t->all;

		t->all = e->next;
		inode_free(t, &e->inode);
	}
	pthread_mutex_destroy(&t->lock);
	free(t);
}

size_t inodes_count(struct inodes *t)
{
	size_t n;

	pthread_mutex_lock(&t->lock);
	n = t->count;
	pthread_mutex_unlock(&t->lock);
	return n;
}

struct inode *inode_root(struct mount *m)
{
	return m->inodes->root;
}

struct inode *inode_get(struct mount *m, fuse_ino_t nodeid)
{
	return nodeid == FUSE_ROOT_ID ? m->inodes->root : (struct inode *)(uintptr_t)nodeid;
}

fuse_ino_t inode_nodeid(struct mount *m, const struct inode *i)
{
	return i == m->inodes->root ? FUSE_ROOT_ID : (fuse_ino_t)(uintptr_t)i;
}

static void list_in(struct inodes *t, struct entry *e)
{
	e->prev = NULL;
	e->next = t->all;
	*(t->all ? &t->all->prev : &t->oldest) = e;
	t->all = e;
}

static void list_out(struct inodes *t, struct entry *e)
{
	*(e->prev ? &e->prev->next : &t->all) = e->next;
	*(e->next ? &e->next->prev : &t->oldest) = e->prev;
}

static struct inode *inode_new(struct inodes *t, const struct node *node, const char *box,
	const char *arg)
{
	struct entry *e = calloc(1, sizeof(*e));
	struct inode *i;

	if (!e)
		return NULL;
	i = &e->inode;
	i->arg = strdup(arg);
	if (!i->arg) {
		free(e);
		return NULL;
	}
	pthread_mutex_init(&i->tree_lock, NULL);
	i->node = node;
	strncpy(i->box, box, sizeof(i->box) - 1);
	i->refs = 1;
	i->generation = ++t->generation;
	list_in(t, e);
	t->count++;
	return i;
}

static void hash_in(struct inodes *t, struct inode *i)
{
	struct inode **b = &t->buckets[hash_of(i) % INODE_BUCKETS];

	i->next = *b;
	*b = i;
	i->hashed = true;
}

static void hash_out(struct inodes *t, struct inode *i)
{
	struct inode **p = &t->buckets[hash_of(i) % INODE_BUCKETS];

	if (!i->hashed)
		return;
	while (*p != i)
		p = &(*p)->next;
	*p = i->next;
	i->hashed = false;
}

static struct inode *find_name(struct inodes *t, const struct node *node, const char *box,
	const char *arg, uid_t uid)
{
	struct inode *i = t->buckets[hash_name(node, box, arg, uid) % INODE_BUCKETS];

	for (; i; i = i->next)
		if (i->node == node && !i->is_tree && i->uid == uid && !strcmp(i->box, box) &&
			!strcmp(i->arg, arg))
			return i;
	return NULL;
}

int inode_virtual(struct mount *m, const struct node *node, const char *box, const char *arg,
	uid_t uid, struct inode **ret)
{
	struct inodes *t = m->inodes;
	struct inode *i;

	pthread_mutex_lock(&t->lock);
	i = find_name(t, node, box, arg, uid);
	if (i) {
		i->refs++;
	} else if ((i = inode_new(t, node, box, arg))) {
		i->uid = uid;
		i->ino = shown_ino(node, box, arg);
		clock_gettime(CLOCK_REALTIME, &i->mtime);
		hash_in(t, i);
	}
	pthread_mutex_unlock(&t->lock);
	*ret = i;
	return i ? 0 : -ENOMEM;
}

#define RENDERING_MS 100

struct inode *inode_rendering(struct mount *m, const struct node *node, const char *box,
	const char *arg, uid_t uid)
{
	struct inodes *t = m->inodes;
	struct inode *i;

	pthread_mutex_lock(&t->lock);
	i = find_name(t, node, box, arg, uid);
	if (i && (now_ms() - i->made_ms > RENDERING_MS || i->made_gen != mount_news(m)))
		i = NULL;
	if (i)
		i->refs++;
	pthread_mutex_unlock(&t->lock);
	return i;
}

static struct inode *rendering_new(struct mount *m, const struct node *node, const char *box,
	const char *arg, uid_t uid)
{
	struct inode *i = inode_new(m->inodes, node, box, arg);

	if (!i)
		return NULL;
	i->uid = uid;
	/* The text's own number: two texts of one file are two inodes for everyone who compares. */
	i->ino = (shown_ino(node, box, arg) ^ (i->generation << 40)) & INT64_MAX;
	clock_gettime(CLOCK_REALTIME, &i->mtime);
	hash_in(m->inodes, i);
	return i;
}

int inode_render(struct mount *m, const struct node *node, const char *box, const char *arg,
	uid_t uid, char *data, size_t size, uint64_t gen, struct inode **ret)
{
	struct inodes *t = m->inodes;
	struct inode *i;

	pthread_mutex_lock(&t->lock);
	i = find_name(t, node, box, arg, uid);
	if (i && i->size == size && (!size || !memcmp(i->data, data, size))) {
		i->refs++;
		free(data);
	} else {
		if (i)
			hash_out(t, i);
		i = rendering_new(m, node, box, arg, uid);
		if (i) {
			i->data = data;
			i->size = size;
		} else {
			free(data);
		}
	}
	if (i) {
		i->made_ms = now_ms();
		i->made_gen = gen;
	}
	pthread_mutex_unlock(&t->lock);
	*ret = i;
	return i ? 0 : -ENOMEM;
}

/* Lock held. */
static void keep_base(struct inodes *t, struct inode *base)
{
	struct inode **at = &t->bases[hash_of(base) % BASES_KEPT], *old = *at;

	if (old == base)
		return;
	base->refs++;
	*at = base;
	if (old) {
		old->refs--;
		inode_reap(t, old);
	}
}

int inode_alone(struct mount *m, struct inode *base, struct inode **ret)
{
	struct inode *i;

	pthread_mutex_lock(&m->inodes->lock);
	i = inode_new(m->inodes, base->node, base->box, base->arg);
	if (i) {
		i->uid = base->uid;
		i->ino = base->ino;
		i->mtime = base->mtime;
		i->data = base->data;
		i->size = base->size;
		i->base = base;
		keep_base(m->inodes, base);
	}
	pthread_mutex_unlock(&m->inodes->lock);
	if (!i)
		inode_unref(m, base);
	*ret = i;
	return i ? 0 : -ENOMEM;
}

/* A view of a snapshot shows the same objects as the sandbox behind it, but cannot be written. */
static struct inode *find_tree(struct inodes *t, const struct node *node, const char *box,
	const struct tree_id *id)
{
	struct inode *i = t->buckets[hash_tree(box, id) % INODE_BUCKETS];

	for (; i; i = i->next)
		if (i->is_tree && i->node == node && !memcmp(&i->tid, id, sizeof(*id)) &&
			!strcmp(i->box, box))
			return i;
	return NULL;
}

/* Nobody has it open or works on it, and it is no directory, which somebody may stand in. */
static bool can_go(struct inode *i)
{
	bool file;

	if (!i->is_tree || i->refs || !i->nlookup)
		return false;
	pthread_mutex_lock(&i->tree_lock);
	file = i->is_known && !S_ISDIR(i->known.st_mode);
	pthread_mutex_unlock(&i->tree_lock);
	return file;
}

/* Lock held. The kernel keeps names for as long as it has memory; here each costs as much as there. Those
 * that were not looked up for longest it is asked to forget, some each time a new one comes. */
static void ask_to_forget(struct inodes *t)
{
	for (unsigned n = 0; n < FORGET_STEP && t->oldest != t->all; n++) {
		struct entry *e = t->oldest;

		list_out(t, e);
		list_in(t, e); /* if it stays it has its turn again, after all others */
		if (!can_go(&e->inode))
			continue;
		for (struct link *l = e->inode.links; l; l = l->next)
			notify_forget(t->m, inode_nodeid(t->m, l->parent), inode_nodeid(t->m, &e->inode), l->name);
	}
}

int inode_tree(struct mount *m, const struct node *node, const char *box, const struct tree_id *id,
	struct inode **ret)
{
	struct inodes *t = m->inodes;
	struct inode *i;

	pthread_mutex_lock(&t->lock);
	i = find_tree(t, node, box, id);
	if (i) {
		i->refs++;
	} else if ((i = inode_new(t, node, box, ""))) {
		i->is_tree = true;
		i->tid = *id;
		i->ino = id->ino;
		hash_in(t, i);
		if (t->count > FILES_KNOWN && t->count % (FORGET_STEP / 2) == 0)
			ask_to_forget(t);
	}
	pthread_mutex_unlock(&t->lock);
	*ret = i;
	return i ? 0 : -ENOMEM;
}

struct inode *inode_tree_known(struct mount *m, const struct node *node, const char *box,
	const struct tree_id *id)
{
	struct inode *i;

	pthread_mutex_lock(&m->inodes->lock);
	i = find_tree(m->inodes, node, box, id);
	if (i)
		i->refs++;
	pthread_mutex_unlock(&m->inodes->lock);
	return i;
}

bool inode_is(struct mount *m, struct inode *i, const struct tree_id *id, bool carry)
{
	struct inodes *t = m->inodes;
	bool same;

	pthread_mutex_lock(&t->lock);
	same = !memcmp(&i->tid, id, sizeof(*id));
	if (!same && carry && i->tid.dev == id->dev && i->tid.ino == id->ino && i->hashed &&
		!find_tree(t, i->node, i->box, id)) {
		hash_out(t, i);
		i->tid = *id;
		hash_in(t, i);
		same = true;
	}
	pthread_mutex_unlock(&t->lock);
	return same;
}

void inode_ref(struct mount *m, struct inode *i)
{
	pthread_mutex_lock(&m->inodes->lock);
	i->refs++;
	pthread_mutex_unlock(&m->inodes->lock);
}

static void entry_drop(struct inodes *t, struct inode *i)
{
	struct entry *e = (struct entry *)i;

	list_out(t, e);
	t->count--;
	inode_free(t, i);
}

/* Then the parents that only its names held, and what only it was made of. */
void inode_reap(struct inodes *t, struct inode *i)
{
	struct inode *todo[64];
	size_t n = 0;

	todo[n++] = i;
	while (n) {
		i = todo[--n];
		if (i->nlookup || i->refs || i == t->root)
			continue;
		while (i->links) {
			struct link *l = i->links;
			struct inode *parent = l->parent;

			link_drop(t, l);
			/* Once, and not for each name that it held of this one. */
			if (--parent->refs == 0 && n < 64)
				todo[n++] = parent;
		}
		if (i->base && --i->base->refs == 0 && n < 64)
			todo[n++] = i->base;
		hash_out(t, i);
		entry_drop(t, i);
	}
}

void inode_unref(struct mount *m, struct inode *i)
{
	struct inodes *t = m->inodes;

	if (!i)
		return;
	pthread_mutex_lock(&t->lock);
	i->refs--;
	inode_reap(t, i);
	pthread_mutex_unlock(&t->lock);
}

void inode_looked(struct mount *m, struct inode *i)
{
	struct inodes *t = m->inodes;
	struct entry *e = (struct entry *)i;

	pthread_mutex_lock(&t->lock);
	i->nlookup++;
	if (t->all != e) {
		list_out(t, e);
		list_in(t, e);
	}
	pthread_mutex_unlock(&t->lock);
}

void inode_forget(struct mount *m, struct inode *i, uint64_t n)
{
	struct inodes *t = m->inodes;

	pthread_mutex_lock(&t->lock);
	i->nlookup = n < i->nlookup ? i->nlookup - n : 0;
	if (!i->nlookup) /* then the kernel has it nowhere */
		i->astray_ms = 0;
	inode_reap(t, i);
	pthread_mutex_unlock(&t->lock);
	memory_relieve(m->pool);
}
