/* SPDX-License-Identifier: MIT */
/* The kernel's requests: who asks, what about, and which of the two worlds answers. */
#include "sbxfs/ops.h"

#include "sbxfs/box.h"
#include "sbxfs/errlog.h"
#include "sbxfs/feed.h"
#include "sbxfs/host.h"
#include "sbxfs/pool.h"
#include "sbxfs/remote.h"
#include "sbxfs/treefs.h"

#include "common/base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define MAX_WRITE (1024u * 1024)

static struct mount *mount_of(fuse_req_t fr)
{
	return fuse_req_userdata(fr);
}

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

static void path_of(struct req *q, const struct inode *i, const char *name)
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

static void trace(const struct req *q, int rc)
{
	if (atomic_load(&q->m->tracing))
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
			path_of(q, q->about, q->about_name);
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

/* Begins a request: false when it is answered already. */
static bool begin(struct req *q, fuse_req_t fr, const char *op, fuse_ino_t ino, const char *name,
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

/* Writing to a view of a snapshot is refused here, once for all operations. */
static bool is_read_only(struct req *q, const struct inode *i)
{
	if (!tree_is(i) || !tree_is_view(i))
		return false;
	req_fail(q, refuse(q, EROFS, "a snapshot cannot be changed: fork it"));
	return true;
}

static struct handle *handle_of(const struct fuse_file_info *fi)
{
	return (struct handle *)(uintptr_t)fi->fh;
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	static const unsigned want = FUSE_CAP_ASYNC_READ | FUSE_CAP_PARALLEL_DIROPS |
		FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_READDIRPLUS |
		FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_ASYNC_DIO;
	static const unsigned locks = FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS;
	static const unsigned avoid = FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_SPLICE_READ |
		FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE | FUSE_CAP_EXPORT_SUPPORT | FUSE_CAP_POSIX_ACL |
		FUSE_CAP_DONT_MASK | FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_NO_OPEN_SUPPORT |
		FUSE_CAP_NO_OPENDIR_SUPPORT;

	const struct mount *m = userdata;

	conn->want |= conn->capable & (m->has_locks ? want | locks : want);
	conn->want &= ~(m->has_locks ? avoid : avoid | locks);
	conn->max_write = MAX_WRITE;
	conn->max_read = MAX_WRITE;
	conn->max_readahead = 4 * MAX_WRITE;
	conn->max_background = 64;
	conn->congestion_threshold = 48;
}

static void op_lookup(fuse_req_t fr, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e;
	struct inode *dir, *i;
	struct req q;
	int rc;

	if (!begin(&q, fr, "lookup", parent, name, &dir))
		return;
	if (tree_is(dir)) {
		tree_lookup(&q, dir, name);
		return;
	}
	rc = virtual_entry(&q, dir, name, &i, &e);
	if (rc < 0)
		req_fail(&q, rc);
	else
		reply_entry(&q, i, &e);
}

static void op_forget(fuse_req_t fr, fuse_ino_t ino, uint64_t n)
{
	struct mount *m = mount_of(fr);

	if (ino != FUSE_ROOT_ID)
		inode_forget(m, inode_get(m, ino), n);
	fuse_reply_none(fr);
}

static void op_forget_multi(fuse_req_t fr, size_t count, struct fuse_forget_data *f)
{
	struct mount *m = mount_of(fr);

	for (size_t n = 0; n < count; n++)
		if (f[n].ino != FUSE_ROOT_ID)
			inode_forget(m, inode_get(m, f[n].ino), f[n].nlookup);
	fuse_reply_none(fr);
}

static void op_getattr(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct inode *i;
	struct stat st;
	struct req q;

	(void)fi;
	if (!begin(&q, fr, "getattr", ino, NULL, &i))
		return;
	if (tree_is(i)) {
		tree_getattr(&q, i);
		return;
	}
	virtual_attr(&q, i, &st);
	fuse_reply_attr(fr, &st, i->node->kind == KIND_LOG ? 0.0 : 1.0);
}

static void op_setattr(fuse_req_t fr, fuse_ino_t ino, struct stat *st, int set,
	struct fuse_file_info *fi)
{
	struct inode *i;
	struct req q;

	if (!begin(&q, fr, "setattr", ino, NULL, &i) || is_read_only(&q, i))
		return;
	if (tree_is(i))
		tree_setattr(&q, i, st, set, fi);
	else
		virtual_setattr(&q, i, st, set);
}

static void op_readlink(fuse_req_t fr, fuse_ino_t ino)
{
	struct inode *i;
	struct req q;

	if (!begin(&q, fr, "readlink", ino, NULL, &i))
		return;
	if (tree_is(i))
		tree_readlink(&q, i);
	else
		fuse_reply_readlink(fr, i->data ? i->data : "");
}

static void op_mkdir(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct inode *dir;
	struct req q;

	if (!begin(&q, fr, "mkdir", parent, name, &dir) || is_read_only(&q, dir))
		return;
	if (tree_is(dir))
		tree_mkdir(&q, dir, name, mode);
	else
		virtual_change(&q, CHANGE_MKDIR, dir, name, NULL, NULL, NULL);
}

static void op_rmdir(fuse_req_t fr, fuse_ino_t parent, const char *name)
{
	struct inode *dir;
	struct req q;

	if (!begin(&q, fr, "rmdir", parent, name, &dir) || is_read_only(&q, dir))
		return;
	if (tree_is(dir))
		tree_drop(&q, dir, name, true);
	else
		virtual_change(&q, CHANGE_RMDIR, dir, name, NULL, NULL, NULL);
}

static void op_unlink(fuse_req_t fr, fuse_ino_t parent, const char *name)
{
	struct inode *dir;
	struct req q;

	if (!begin(&q, fr, "unlink", parent, name, &dir) || is_read_only(&q, dir))
		return;
	if (tree_is(dir))
		tree_drop(&q, dir, name, false);
	else
		virtual_change(&q, CHANGE_UNLINK, dir, name, NULL, NULL, NULL);
}

static void op_mknod(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev)
{
	struct inode *dir;
	struct req q;

	(void)dev;
	if (!begin(&q, fr, "mknod", parent, name, &dir) || is_read_only(&q, dir))
		return;
	if (tree_is(dir))
		tree_mknod(&q, dir, name, mode);
	else
		fuse_reply_err(fr, EPERM);
}

static void op_symlink(fuse_req_t fr, const char *target, fuse_ino_t parent, const char *name)
{
	struct inode *dir;
	struct req q;

	if (!begin(&q, fr, "symlink", parent, name, &dir) || is_read_only(&q, dir))
		return;
	if (tree_is(dir))
		tree_symlink(&q, dir, name, target);
	else
		fuse_reply_err(fr, EPERM);
}

static void op_link(fuse_req_t fr, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	struct inode *dir, *i = inode_get(mount_of(fr), ino);
	struct req q;

	if (!begin(&q, fr, "link", parent, name, &dir) || is_read_only(&q, dir))
		return;
	if (tree_is(dir) && tree_is(i))
		tree_link(&q, i, dir, name);
	else
		fuse_reply_err(fr, EPERM);
}

static void op_rename(fuse_req_t fr, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
	const char *new_name, unsigned flags)
{
	struct inode *dir, *to = inode_get(mount_of(fr), new_parent);
	struct req q;

	if (!begin(&q, fr, "rename", parent, name, &dir) || is_read_only(&q, dir) ||
		is_read_only(&q, to))
		return;
	if (tree_is(dir) && tree_is(to))
		tree_rename(&q, dir, name, to, new_name, flags);
	else if (tree_is(dir) || tree_is(to))
		/* Not EXDEV: mv would copy and delete. */
		req_fail(&q, refuse(&q, EPERM, "files cannot be moved between a sandbox and the tree "
			"around it: copy them"));
	else if (flags & ~1u)
		fuse_reply_err(fr, EINVAL);
	else
		virtual_change(&q, CHANGE_RENAME, dir, name, to, new_name, NULL);
}

static void op_open(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct inode *i;
	struct req q;

	if (!begin(&q, fr, "open", ino, NULL, &i))
		return;
	if ((fi->flags & (O_ACCMODE | O_TRUNC)) != O_RDONLY && is_read_only(&q, i))
		return;
	if (atomic_load(&q.m->stopping))
		fuse_reply_err(fr, ESHUTDOWN);
	else if (tree_is(i))
		tree_open(&q, i, fi);
	else
		virtual_open(&q, i, fi);
}

static void op_create(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode,
	struct fuse_file_info *fi)
{
	struct inode *dir;
	struct req q;

	if (!begin(&q, fr, "create", parent, name, &dir) || is_read_only(&q, dir))
		return;
	if (tree_is(dir))
		tree_create(&q, dir, name, mode, fi);
	else
		virtual_change(&q, CHANGE_CREATE, dir, name, NULL, NULL, fi);
}

static void op_read(fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct inode *i = inode_get(mount_of(fr), ino);
	struct req q;

	req_init(&q, fr, "read", i, NULL);
	if (tree_is(i))
		tree_read(&q, handle_of(fi), size, off);
	else
		virtual_read(&q, i, size, off, fi);
}

static void op_write(fuse_req_t fr, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	struct fuse_file_info *fi)
{
	struct inode *i = inode_get(mount_of(fr), ino);
	struct req q;

	req_init(&q, fr, "write", i, NULL);
	if (tree_is(i))
		tree_write(&q, handle_of(fi), buf, size, off, fi->writepage ? 0 : fi->flags);
	else
		virtual_write(&q, i, buf, size, fi);
}

static void op_flush(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct inode *i = inode_get(mount_of(fr), ino);
	struct req q;

	req_init(&q, fr, "close", i, NULL);
	if (tree_is(i))
		tree_flush(&q, handle_of(fi), fi->lock_owner);
	else
		virtual_flush(&q, handle_of(fi));
}

static void op_release(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct inode *i = inode_get(mount_of(fr), ino);
	struct req q;

	req_init(&q, fr, "release", i, NULL);
	fuse_reply_err(fr, 0);
	q.fr = NULL; /* answered: the kernel waits for nothing here */
	atomic_fetch_add(&q.m->closing, 1);
	if (tree_is(i))
		tree_file_close(&q, handle_of(fi));
	else
		virtual_release(&q, handle_of(fi));
	atomic_fetch_sub(&q.m->closing, 1);
}

static void op_fsync(fuse_req_t fr, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct inode *i = inode_get(mount_of(fr), ino);
	struct req q;

	req_init(&q, fr, "fsync", i, NULL);
	if (tree_is(i))
		tree_fsync(&q, handle_of(fi), datasync != 0);
	else
		fuse_reply_err(fr, 0);
}

static void op_opendir(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct handle *h;
	struct inode *i;
	struct req q;

	if (!begin(&q, fr, "opendir", ino, NULL, &i))
		return;
	if (tree_is(i)) {
		tree_opendir(&q, i, fi);
		return;
	}
	h = handle_new(q.m, i, fi->flags);
	if (!h) {
		fuse_reply_err(fr, ENOMEM);
		return;
	}
	fi->fh = (uint64_t)(uintptr_t)h;
	if (fuse_reply_open(fr, fi) < 0)
		handle_free(q.m, h);
}

static void readdir(fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi,
	bool plus)
{
	struct inode *i = inode_get(mount_of(fr), ino);
	struct req q;

	req_init(&q, fr, "readdir", i, NULL);
	if (tree_is(i))
		tree_readdir(&q, i, size, off, handle_of(fi), plus);
	else
		virtual_readdir(&q, i, size, off, handle_of(fi), plus);
}

static void op_readdir(fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off,
	struct fuse_file_info *fi)
{
	readdir(fr, ino, size, off, fi, false);
}

static void op_readdirplus(fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off,
	struct fuse_file_info *fi)
{
	readdir(fr, ino, size, off, fi, true);
}

static void op_releasedir(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	handle_free(mount_of(fr), handle_of(fi));
	fuse_reply_err(fr, 0);
}

static void op_fsyncdir(fuse_req_t fr, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct inode *i = inode_get(mount_of(fr), ino);
	struct req q;

	(void)fi;
	req_init(&q, fr, "fsync", i, NULL);
	if (tree_is(i))
		tree_fsyncdir(&q, i, datasync != 0);
	else
		fuse_reply_err(fr, 0);
}

static void op_statfs(fuse_req_t fr, fuse_ino_t ino)
{
	struct inode *i;
	struct req q;

	if (!begin(&q, fr, "statfs", ino, NULL, &i))
		return;
	if (tree_is(i))
		tree_statfs(&q, i);
	else
		virtual_statfs(&q);
}

static void own_xattr(struct req *q, const struct inode *i, size_t size)
{
	_cleanup_text_ struct text t = TEXT_NULL;

	path_of(q, i, NULL);
	errlog_last(q->m->errors, q->uid, NULL, q->path, &t);
	if (!t.len)
		fuse_reply_err(q->fr, ENODATA);
	else
		reply_xattr(q, t.p, t.len, size);
}

static void op_getxattr(fuse_req_t fr, fuse_ino_t ino, const char *name, size_t size)
{
	struct inode *i;
	struct req q;

	/* Before each write the kernel asks for this one. */
	if (!strcmp(name, "security.capability")) {
		fuse_reply_err(fr, ENODATA);
		return;
	}
	if (!begin(&q, fr, "getxattr", ino, NULL, &i))
		return;
	if (!strcmp(name, "user.sbx.error"))
		own_xattr(&q, i, size);
	else if (tree_is(i))
		tree_getxattr(&q, i, name, size);
	else
		fuse_reply_err(fr, strncmp(name, "system.", 7) ? ENODATA : EOPNOTSUPP);
}

static void op_setxattr(fuse_req_t fr, fuse_ino_t ino, const char *name, const char *value, size_t size,
	int flags)
{
	struct inode *i;
	struct req q;

	if (!begin(&q, fr, "setxattr", ino, NULL, &i) || is_read_only(&q, i))
		return;
	if (tree_is(i))
		tree_setxattr(&q, i, name, value, size, flags);
	else
		fuse_reply_err(fr, EOPNOTSUPP);
}

static void op_listxattr(fuse_req_t fr, fuse_ino_t ino, size_t size)
{
	_cleanup_text_ struct text t = TEXT_NULL;
	struct inode *i;
	struct req q;

	if (!begin(&q, fr, "listxattr", ino, NULL, &i))
		return;
	path_of(&q, i, NULL);
	if (tree_is(i)) {
		tree_listxattr(&q, i, size);
		return;
	}
	errlog_last(q.m->errors, q.uid, NULL, q.path, &t);
	reply_xattr(&q, "user.sbx.error", t.len ? sizeof("user.sbx.error") : 0, size);
}

static void op_removexattr(fuse_req_t fr, fuse_ino_t ino, const char *name)
{
	struct inode *i;
	struct req q;

	if (!begin(&q, fr, "removexattr", ino, NULL, &i) || is_read_only(&q, i))
		return;
	if (tree_is(i))
		tree_removexattr(&q, i, name);
	else
		fuse_reply_err(fr, ENODATA);
}

static void op_access(fuse_req_t fr, fuse_ino_t ino, int mask)
{
	struct inode *i;
	struct stat st;
	struct req q;

	if (!begin(&q, fr, "access", ino, NULL, &i))
		return;
	if (tree_is(i)) {
		tree_access(&q, i, mask);
		return;
	}
	virtual_attr(&q, i, &st);
	if ((mask & W_OK) && !(st.st_mode & 0222))
		fuse_reply_err(fr, EACCES);
	else
		fuse_reply_err(fr, (mask & X_OK) && S_ISREG(st.st_mode) && !(st.st_mode & 0111) ? EACCES : 0);
}

static void op_poll(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi,
	struct fuse_pollhandle *ph)
{
	struct inode *i = inode_get(mount_of(fr), ino);
	struct req q;

	req_init(&q, fr, "poll", i, NULL);
	if (i->node->kind == KIND_STREAM) {
		feed_poll(&q, handle_of(fi), ph);
		return;
	}
	if (ph)
		fuse_pollhandle_destroy(ph);
	fuse_reply_poll(fr, POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM);
}

static void op_fallocate(fuse_req_t fr, fuse_ino_t ino, int mode, off_t off, off_t len,
	struct fuse_file_info *fi)
{
	struct inode *i = inode_get(mount_of(fr), ino);
	struct req q;

	req_init(&q, fr, "fallocate", i, NULL);
	if (tree_is(i))
		tree_fallocate(&q, handle_of(fi), mode, off, len);
	else
		fuse_reply_err(fr, EOPNOTSUPP);
}

static void op_copy(fuse_req_t fr, fuse_ino_t in, off_t in_off, struct fuse_file_info *in_fi,
	fuse_ino_t out, off_t out_off, struct fuse_file_info *out_fi, size_t len, int flags)
{
	struct inode *i = inode_get(mount_of(fr), in);
	struct req q;

	(void)out;
	(void)flags;
	req_init(&q, fr, "copy", i, NULL);
	tree_copy(&q, handle_of(in_fi), in_off, handle_of(out_fi), out_off, len);
}

static void op_lseek(fuse_req_t fr, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	struct inode *i = inode_get(mount_of(fr), ino);
	struct req q;

	req_init(&q, fr, "lseek", i, NULL);
	if (tree_is(i))
		tree_lseek(&q, handle_of(fi), off, whence);
	else
		virtual_lseek(&q, i, off, whence);
}

static void op_getlk(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *l)
{
	struct req q;

	req_init(&q, fr, "lock", inode_get(mount_of(fr), ino), NULL);
	tree_getlk(&q, handle_of(fi), fi->lock_owner, l);
}

static void op_setlk(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *l, int wait)
{
	struct req q;

	req_init(&q, fr, "lock", inode_get(mount_of(fr), ino), NULL);
	tree_setlk(&q, handle_of(fi), fi->lock_owner, l, wait != 0);
}

static void op_flock(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi, int op)
{
	struct req q;

	req_init(&q, fr, "lock", inode_get(mount_of(fr), ino), NULL);
	tree_flock(&q, handle_of(fi), op);
}

const struct fuse_lowlevel_ops sbxfs_ops = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.readlink = op_readlink,
	.mkdir = op_mkdir,
	.rmdir = op_rmdir,
	.unlink = op_unlink,
	.mknod = op_mknod,
	.symlink = op_symlink,
	.link = op_link,
	.rename = op_rename,
	.open = op_open,
	.create = op_create,
	.read = op_read,
	.write = op_write,
	.flush = op_flush,
	.release = op_release,
	.fsync = op_fsync,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.releasedir = op_releasedir,
	.fsyncdir = op_fsyncdir,
	.statfs = op_statfs,
	.getxattr = op_getxattr,
	.setxattr = op_setxattr,
	.listxattr = op_listxattr,
	.removexattr = op_removexattr,
	.access = op_access,
	.poll = op_poll,
	.fallocate = op_fallocate,
	.copy_file_range = op_copy,
	.lseek = op_lseek,
	.getlk = op_getlk,
	.setlk = op_setlk,
	.flock = op_flock,
};
