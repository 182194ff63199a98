/* SPDX-License-Identifier: MIT */
/* One request of the kernel from its beginning to its answer: who asks, whether he may, what is told of a
 * failure and where. */
#include "sbxfs/ops_fn.h"

#include "sbxfs/box.h"
#include "sbxfs/errlog.h"
#include "sbxfs/host.h"
#include "sbxfs/pool.h"
#include "sbxfs/treefs.h"

#include "common/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Below a sandbox the path begins with its id; people know it by its name. */
static void name_box(struct req *q, const char *id)
{
	size_t n = strlen(id);
	char name[SBX_ID_MAX], rest[sizeof(q->path)];

	if (!n || strncmp(q->path, id, n))
		return;
	box_shown(q->m, id, name, sizeof(name));
	(void)snprintf(rest, sizeof(rest), "%s", q->path + n);
	(void)snprintf(q->path, sizeof(q->path), "%s%.255s", name, rest);
}

void req_path(struct req *q, const struct inode *i, const char *name)
{
	struct spot s = inode_spot(i);
	char guest[GUEST_PATH_MAX];

	if (tree_is(i)) {
		if (link_path(q->m, (struct inode *)(uintptr_t)i, name, guest, sizeof(guest)) < 0)
			strcpy(guest, "/?");
		(void)snprintf(q->path, sizeof(q->path), "%s/fs%.240s", i->box, guest);
	} else {
		node_path(&s, name, q->path, sizeof(q->path));
	}
	name_box(q, i->box);
}

void req_init(struct req *q, fuse_req_t fr, const char *op, const struct inode *i, const char *name)
{
	const struct fuse_ctx *c = fuse_req_ctx(fr);

	/* The error's text is the large part of it and is written before it is read. */
	memset(q, 0, offsetof(struct req, path));
	q->m = mount_of(fr);
	q->fr = fr;
	q->uid = c->uid;
	q->gid = c->gid;
	q->pid = c->pid;
	q->op = op;
	q->start_ms = now_ms();
	q->path[0] = '\0';
	memcpy(q->box, i->box, sizeof(q->box));
	memset(&q->err, 0, sizeof(q->err));
	q->about = i;
	q->about_name = name;
	q->uses = tree_is(i) && tree_is_view(i);
	atomic_fetch_add(&q->m->stats.fuse_ops, 1);
}

/* What cannot be there is asked for all the time; nobody reads about it. */
static bool is_noise(const struct req *q, int rc)
{
	static const char *const quiet[] = { "lookup", "getattr", "getxattr", "access", "readlink" };

	if (rc != -ENOENT && rc != -ENODATA && rc != -ESTALE)
		return false;
	for (size_t n = 0; n < sizeof(quiet) / sizeof(quiet[0]); n++)
		if (!strcmp(quiet[n], q->op))
			return true;
	return false;
}

static bool moves_data(const struct req *q)
{
	return !strcmp(q->op, "read") || !strcmp(q->op, "write") || !strcmp(q->op, "close") ||
		!strcmp(q->op, "fsync");
}

static void trace(struct req *q, int rc)
{
	if (!atomic_load(&q->m->tracing))
		return;
	if (q->about && !q->path[0])
		req_path(q, q->about, q->about_name);
	log_info("%s %s: %s (%lld ms)", q->op, q->path, rc ? errno_word(-rc) : "ok",
		(long long)(now_ms() - q->start_ms));
}

void req_fail(struct req *q, int rc)
{
	/* On read and write a caller that polls would wait for ever after EAGAIN. Streams answer it
	 * themselves, since there a wake-up follows. */
	if (rc == -EAGAIN && moves_data(q) && q->err.message[0])
		rc = -EBUSY;
	if (!is_noise(q, rc) && q->err.message[0]) {
		if (q->about)
			req_path(q, q->about, q->about_name);
		errlog_note(q->m->errors, q, -rc);
	}
	trace(q, rc);
	if (q->fr)
		fuse_reply_err(q->fr, -rc);
}

void req_done(struct req *q, int rc)
{
	if (rc < 0) {
		req_fail(q, rc);
		return;
	}
	trace(q, 0);
	if (q->fr)
		fuse_reply_err(q->fr, 0);
}

int req_may(struct req *q)
{
	const struct mount *m = q->m;

	if (q->uid == 0 || q->uid == m->opt.owner || !m->opt.allow_other)
		return 0;
	if (!m->opt.has_gid)
		return -EACCES;
	if (q->gid == m->opt.gid || caller_in_group(q->fr, m->opt.gid))
		return 0;
	return -EACCES;
}

void reply_entry(struct req *q, struct inode *i, struct fuse_entry_param *e)
{
	e->ino = inode_nodeid(q->m, i);
	e->generation = i->generation;
	inode_looked(q->m, i);
	trace(q, 0);
	if (fuse_reply_entry(q->fr, e) < 0)
		inode_forget(q->m, i, 1);
	inode_unref(q->m, i);
}

static void read_ahead(void *arg)
{
	struct mount *m = arg;

	host_read_ahead(m->opt.mountpoint);
}

bool req_begin(struct req *q, fuse_req_t fr, const char *op, fuse_ino_t ino, const char *name,
	struct inode **ret)
{
	int rc;

	*ret = inode_get(mount_of(fr), ino);
	req_init(q, fr, op, *ret, name);
	/* Only now: while it takes up the connection the kernel sets its own default. */
	if (!atomic_load(&q->m->used) && !atomic_exchange(&q->m->used, true))
		(void)pool_run(q->m->pool, read_ahead, q->m);
	rc = req_may(q);
	if (rc == 0)
		return true;
	fuse_reply_err(fr, -rc);
	return false;
}

bool req_read_only(struct req *q, const struct inode *i)
{
	if (!tree_is(i) || !tree_is_view(i))
		return false;
	req_fail(q, refuse(q, EROFS, "a snapshot cannot be changed: fork it"));
	return true;
}
