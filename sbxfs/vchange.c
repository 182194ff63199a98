/* SPDX-License-Identifier: MIT */
/* mkdir, rmdir, create, unlink and rename among the files that we make ourselves: what is done is
 * the directory's to know. It may last, so a thread of the pool does it. */
#include "sbxfs/handle.h"
#include "sbxfs/ops.h"
#include "sbxfs/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct change_work {
	struct req q;
	enum change what;
	struct inode *dir, *to;
	char *name, *to_name;
	struct fuse_file_info fi;
};

static int change_call(struct change_work *w)
{
	struct spot d = inode_spot(w->dir), to = w->to ? inode_spot(w->to) : d;
	const struct dir *ops = node_dir(w->dir->node->id);
	struct req *q = &w->q;

	if (!ops)
		return -EPERM;
	if (!file_name_ok(w->name))
		return -EINVAL;
	switch (w->what) {
	case CHANGE_MKDIR:
		return ops->mkdir ? ops->mkdir(q, &d, w->name) : -EPERM;
	case CHANGE_RMDIR:
		return ops->rmdir ? ops->rmdir(q, &d, w->name) : -EPERM;
	case CHANGE_CREATE:
		return ops->create ? ops->create(q, &d, w->name) : -EPERM;
	case CHANGE_UNLINK:
		return ops->unlink ? ops->unlink(q, &d, w->name) : -EPERM;
	case CHANGE_RENAME:
		return ops->rename ? ops->rename(q, &d, w->name, &to, w->to_name) : -EPERM;
	}
	return -EPERM;
}

static void created(struct req *q, struct inode *i, struct fuse_entry_param *e,
	struct fuse_file_info *fi)
{
	struct handle *h = handle_new(q->m, i, fi->flags);

	if (!h) {
		inode_unref(q->m, i);
		req_fail(q, -ENOMEM);
		return;
	}
	fi->fh = (uint64_t)(uintptr_t)h;
	fi->direct_io = 1;
	e->ino = inode_nodeid(q->m, i);
	e->generation = i->generation;
	inode_looked(q->m, i);
	if (fuse_reply_create(q->fr, e, fi) < 0) {
		inode_forget(q->m, i, 1);
		handle_free(q->m, h);
	}
	inode_unref(q->m, i);
}

static void do_change(void *arg)
{
	struct change_work *w = arg;
	struct fuse_entry_param e;
	struct inode *i;
	int rc = change_call(w);
	/* mv takes EINVAL for "into itself" and says so. */
	if (rc == -EINVAL && w->what == CHANGE_RENAME)
		rc = -EBADRQC;
	bool makes = w->what == CHANGE_MKDIR || w->what == CHANGE_CREATE;

	if (rc == 0 && makes)
		rc = virtual_entry(&w->q, w->dir, w->name, &i, &e);
	if (rc < 0 || !makes)
		req_done(&w->q, rc);
	else if (w->what == CHANGE_MKDIR)
		reply_entry(&w->q, i, &e);
	else
		created(&w->q, i, &e, &w->fi);
	atomic_fetch_sub(&w->q.m->stats.parked, 1);
	atomic_fetch_sub(&w->q.m->changes, 1);
	free(w->name);
	free(w->to_name);
	free(w);
}

void virtual_change(struct req *q, enum change what, struct inode *dir, const char *name,
	struct inode *to, const char *to_name, struct fuse_file_info *fi)
{
	struct change_work *w = calloc(1, sizeof(*w));
	int rc = -ENOMEM;

	if (w) {
		w->q = *q;
		w->q.patient = what == CHANGE_MKDIR || what == CHANGE_RENAME;
		w->what = what;
		w->dir = dir;
		w->to = to;
		w->name = strdup(name);
		w->to_name = to_name ? strdup(to_name) : NULL;
		w->q.about_name = w->name;
		if (fi)
			w->fi = *fi;
		atomic_fetch_add(&q->m->stats.parked, 1);
		atomic_fetch_add(&q->m->changes, 1);
		rc = w->name && (w->to_name || !to_name) ? pool_run(q->m->pool, do_change, w) : -ENOMEM;
		if (rc < 0) {
			atomic_fetch_sub(&q->m->stats.parked, 1);
			atomic_fetch_sub(&q->m->changes, 1);
		}
	}
	if (rc == 0)
		return;
	if (w) {
		free(w->name);
		free(w->to_name);
	}
	free(w);
	req_fail(q, rc == -EAGAIN ? -EBUSY : rc);
}
