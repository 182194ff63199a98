/* SPDX-License-Identifier: MIT */
/* Opens that lost a race. The kernel looks a name up, then opens what it found; when the name leads to
 * another file by then, the open is ESTALE and the kernel tries both once more, and once only. Where
 * somebody renames over a name all the time that is not enough. So a lookup by a thread whose open has
 * just failed so opens what it finds, and the open that follows takes that. */
#include "sbxfs/remote.h"
#include "sbxfs/treefs.h"
#include "sbxfs/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLACES 64
#define YOUNG_MS 1000

struct place {
	pid_t pid; /* 0: free */
	uint64_t since_ms;
	const struct inode *dir; /* only compared */
	char name[256];
	int flags;
	bool opened, busy; /* busy: a request is under way for it */
	char handle[24];
	char box[SBX_ID_MAX];
	struct tree_attr attr; /* without a target */
};
struct agains {
	pthread_mutex_t lock;
	struct place places[PLACES];
	atomic_uint n;
};

int agains_new(struct agains **ret)
{
	*ret = calloc(1, sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	pthread_mutex_init(&(*ret)->lock, NULL);
	return 0;
}

void agains_free(struct agains *g)
{
	if (!g)
		return;
	pthread_mutex_destroy(&g->lock);
	free(g);
}

/* --- lock held --- */

static struct place *find(struct agains *g, pid_t pid)
{
	for (size_t n = 0; n < PLACES; n++)
		if (g->places[n].pid == pid && now_ms() - g->places[n].since_ms < YOUNG_MS)
			return &g->places[n];
	return NULL;
}

static void clear(struct agains *g, struct place *p)
{
	if (p->pid)
		atomic_fetch_sub(&g->n, 1);
	memset(p, 0, sizeof(*p));
}

static struct place *free_or_old(struct agains *g, uint64_t age_ms)
{
	for (size_t n = 0; n < PLACES; n++) {
		struct place *p = &g->places[n];

		if (!p->busy && (!p->pid || now_ms() - p->since_ms >= age_ms))
			return p;
	}
	return NULL;
}

/* --- not held --- */

/* One that was never taken is closed. */
static void drop(struct req *q, struct place *p)
{
	struct sbx_error saved = q->err;

	if (p->opened && p->handle[0] != '0')
		wire_close(q, p->box, p->handle);
	q->err = saved;
}

void again_mark(struct req *q, struct inode *i, int flags)
{
	struct agains *g = q->m->agains;
	struct place old = { .pid = 0 }, *p;
	const struct inode *dir;
	char name[256];

	if (!q->pid || !q->fr || !link_last(q->m, i, &dir, name))
		return;
	pthread_mutex_lock(&g->lock);
	p = find(g, q->pid);
	if (!p)
		p = free_or_old(g, YOUNG_MS);
	if (p && !p->busy) {
		old = *p;
		clear(g, p);
		p->pid = q->pid;
		p->since_ms = now_ms();
		p->dir = dir;
		p->flags = flags & (O_ACCMODE | O_APPEND);
		memcpy(p->name, name, sizeof(name));
		atomic_fetch_add(&g->n, 1);
	}
	pthread_mutex_unlock(&g->lock);
	drop(q, &old);
}

/* The place of this thread for that name, busy; NULL: it has none. */
static struct place *claim(struct req *q, const struct inode *dir, const char *name)
{
	struct agains *g = q->m->agains;
	struct place *p;

	pthread_mutex_lock(&g->lock);
	p = find(g, q->pid);
	if (p && (p->busy || p->dir != dir || strcmp(p->name, name)))
		p = NULL;
	if (p)
		p->busy = true;
	pthread_mutex_unlock(&g->lock);
	return p;
}

static int open_along(struct req *q, struct inode *dir, const char *name, struct place *p)
{
	struct tree_attr a = { .target = NULL };
	char path[FS_PATH_MAX], handle[24];
	int rc = tree_path(q, dir, name, path);

	if (rc == 0)
		rc = wire_open(q, dir->box, path, p->flags, 0, 0, handle, &a, NULL, NULL);
	if (rc < 0)
		return rc;
	tree_attr_fini(&a);
	a.target = NULL;
	if (!S_ISREG(a.st.st_mode)) {
		if (handle[0] != '0')
			wire_close(q, dir->box, handle);
		return -ESTALE;
	}
	p->attr = a;
	p->opened = true;
	memcpy(p->handle, handle, sizeof(handle));
	memcpy(p->box, dir->box, sizeof(p->box));
	return 0;
}

bool again_lookup(struct req *q, struct inode *dir, const char *name)
{
	struct agains *g = q->m->agains;
	struct tree_attr a;
	struct place *p;
	int rc;

	if (!atomic_load(&g->n) || !(p = claim(q, dir, name)))
		return false;
	rc = p->opened ? 0 : open_along(q, dir, name, p);
	a = p->attr;
	pthread_mutex_lock(&g->lock);
	p->busy = false;
	if (rc < 0)
		clear(g, p);
	pthread_mutex_unlock(&g->lock);
	if (rc == -ENOENT) {
		link_remove(q->m, dir, name);
		req_fail(q, rc);
		return true;
	}
	if (rc < 0) {
		memset(&q->err, 0, sizeof(q->err)); /* the plain question is still to be asked */
		return false;
	}
	memset(&a.stamp, 0, sizeof(a.stamp)); /* nobody else shall believe it */
	tree_reply(q, dir, name, &a);
	return true;
}

bool again_open(struct req *q, struct inode *i, int flags, char ret_handle[24], struct tree_attr *ret)
{
	struct agains *g = q->m->agains;
	struct place mine = { .pid = 0 }, *p;
	struct stat none = { .st_size = 0 };
	bool ok;

	if (!atomic_load(&g->n))
		return false;
	pthread_mutex_lock(&g->lock);
	p = find(g, q->pid);
	if (p && !p->busy && p->opened) {
		mine = *p;
		clear(g, p);
	}
	pthread_mutex_unlock(&g->lock);
	ok = mine.pid && !strcmp(mine.box, i->box) && mine.flags == (flags & (O_ACCMODE | O_APPEND)) &&
		inode_is(q->m, i, &mine.attr.id, false);
	if (ok && (flags & O_TRUNC))
		ok = wire_setattr(q, i->box, NULL, mine.handle, &none, FUSE_SET_ATTR_SIZE, &mine.attr) == 0;
	if (!ok) {
		drop(q, &mine);
		return false;
	}
	memcpy(ret_handle, mine.handle, sizeof(mine.handle));
	*ret = mine.attr;
	ret->target = NULL;
	return true;
}

void agains_tidy(struct mount *m)
{
	struct req q = { .m = m, .op = "tidy", .start_ms = now_ms() };
	struct place old, *p;

	do {
		pthread_mutex_lock(&m->agains->lock);
		for (p = m->agains->places; p < m->agains->places + PLACES; p++)
			if (p->pid && !p->busy && now_ms() - p->since_ms >= YOUNG_MS)
				break;
		old = p < m->agains->places + PLACES ? *p : (struct place){ .pid = 0 };
		if (old.pid)
			clear(m->agains, p);
		pthread_mutex_unlock(&m->agains->lock);
		drop(&q, &old);
	} while (old.pid);
}
