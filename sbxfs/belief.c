/* SPDX-License-Identifier: MIT */
/* Names of sandboxes, and of `fs` in them, that the kernel may believe for a second. They stand in every
 * path, and asking for them each time would cost more than what the path leads to. While the server tells
 * of changes the kernel is told at once that it may not believe any more. */
#include "sbxfs/belief.h"

#include "sbxfs/inode.h"
#include "sbxfs/nodes.h"
#include "sbxfs/trust.h"

#include <stdio.h>
#include <string.h>

struct doubt belief_now(struct mount *m)
{
	return (struct doubt){ atomic_load(&m->gen), atomic_load(&m->list_gen) };
}

static bool is_new(const struct belief *b, fuse_ino_t dir, const char *name, uint64_t now)
{
	return b->until_ms <= now || (b->dir == dir && !strcmp(b->name, name));
}

double belief_secs(struct mount *m, const struct inode *dir, const char *name, const char *box,
	struct doubt since)
{
	fuse_ino_t ino = inode_nodeid(m, dir);
	uint64_t now = now_ms();
	struct belief *b = NULL;
	struct doubt is;

	/* What the kernel believes it tells to everybody: where strangers may come to the mount, each of
	 * their paths has to be asked about before it leads into a sandbox. */
	if (m->opt.allow_other || !atomic_load(&m->watched) || strlen(name) >= sizeof(b->name) ||
		m->opt.cache == CACHE_STRICT)
		return 0;
	pthread_mutex_lock(&m->lock);
	for (size_t n = 0; n < BELIEFS && !b; n++)
		if (is_new(&m->beliefs[n], ino, name, now))
			b = &m->beliefs[n];
	is = belief_now(m);
	if (b && is.gen == since.gen && is.list_gen == since.list_gen) {
		b->dir = ino;
		(void)snprintf(b->name, sizeof(b->name), "%s", name);
		(void)snprintf(b->box, sizeof(b->box), "%s", box);
		b->until_ms = now + (uint64_t)(BRIEF_SECS * 1000) + 1;
	} else {
		b = NULL;
	}
	pthread_mutex_unlock(&m->lock);
	return b ? BRIEF_SECS : 0;
}

/* Lock held. Most are none: the clock is not read for them. */
static void drop(struct mount *m, struct belief *b)
{
	if (b->until_ms && b->until_ms > now_ms())
		notify_top(m, b->dir, b->name);
	b->until_ms = 0;
}

void belief_end(struct mount *m)
{
	pthread_mutex_lock(&m->lock);
	for (size_t n = 0; n < BELIEFS; n++)
		drop(m, &m->beliefs[n]);
	pthread_mutex_unlock(&m->lock);
}

/* Names inside of a sandbox stay as long as it lives. */
static bool is_against(const struct belief *b, fuse_ino_t root, const char *box, const char *entry)
{
	bool same_name = b->dir == root && !strcmp(b->name, entry);

	if (strcmp(b->box, box) != 0)
		return same_name;
	return !entry[0] || (b->dir == root && !same_name);
}

void belief_told(struct mount *m, const char *box, const char *entry)
{
	fuse_ino_t root = inode_nodeid(m, inode_root(m));

	pthread_mutex_lock(&m->lock);
	for (size_t n = 0; n < BELIEFS; n++)
		if (is_against(&m->beliefs[n], root, box, entry))
			drop(m, &m->beliefs[n]);
	pthread_mutex_unlock(&m->lock);
}
