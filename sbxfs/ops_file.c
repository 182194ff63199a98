/* SPDX-License-Identifier: MIT */
/* The kernel's requests about open files: their bytes, their locks, and the open and the close themselves. */
#include "sbxfs/feed.h"
#include "sbxfs/ops_fn.h"
#include "sbxfs/treefs.h"

#include <errno.h>
#include <poll.h>

void op_open(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct inode *i;
	struct req q;

	if (!req_begin(&q, fr, "open", ino, NULL, &i))
		return;
	if ((fi->flags & (O_ACCMODE | O_TRUNC)) != O_RDONLY && req_read_only(&q, i))
		return;
	if (atomic_load(&q.m->stopping))
		fuse_reply_err(fr, ESHUTDOWN);
	else if (tree_is(i))
		tree_open(&q, i, fi);
	else
		virtual_open(&q, i, fi);
}

void op_create(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode,
	struct fuse_file_info *fi)
{
	struct inode *dir;
	struct req q;

	if (!req_begin(&q, fr, "create", parent, name, &dir) || req_read_only(&q, dir))
		return;
	if (tree_is(dir))
		tree_create(&q, dir, name, mode, fi);
	else
		virtual_change(&q, CHANGE_CREATE, dir, name, NULL, NULL, fi);
}

void op_read(fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct inode *i = inode_get(mount_of(fr), ino);
	struct req q;

	req_init(&q, fr, "read", i, NULL);
	if (tree_is(i))
		tree_read(&q, handle_of(fi), size, off);
	else
		virtual_read(&q, i, size, off, fi);
}

void op_write(fuse_req_t fr, fuse_ino_t ino, const char *buf, size_t size, off_t off,
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

void op_flush(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct inode *i = inode_get(mount_of(fr), ino);
	struct req q;

	req_init(&q, fr, "close", i, NULL);
	if (tree_is(i))
		tree_flush(&q, handle_of(fi), fi->lock_owner);
	else
		virtual_flush(&q, handle_of(fi));
}

void op_release(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
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

void op_fsync(fuse_req_t fr, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct inode *i = inode_get(mount_of(fr), ino);
	struct req q;

	req_init(&q, fr, "fsync", i, NULL);
	if (tree_is(i))
		tree_fsync(&q, handle_of(fi), datasync != 0);
	else
		fuse_reply_err(fr, 0);
}

void op_poll(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi,
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

void op_fallocate(fuse_req_t fr, fuse_ino_t ino, int mode, off_t off, off_t len,
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

void op_copy(fuse_req_t fr, fuse_ino_t in, off_t in_off, struct fuse_file_info *in_fi,
	fuse_ino_t out, off_t out_off, struct fuse_file_info *out_fi, size_t len, int flags)
{
	struct inode *i = inode_get(mount_of(fr), in);
	struct req q;

	(void)out;
	(void)flags;
	req_init(&q, fr, "copy", i, NULL);
	tree_copy(&q, handle_of(in_fi), in_off, handle_of(out_fi), out_off, len);
}

void op_lseek(fuse_req_t fr, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	struct inode *i = inode_get(mount_of(fr), ino);
	struct req q;

	req_init(&q, fr, "lseek", i, NULL);
	if (tree_is(i))
		tree_lseek(&q, handle_of(fi), off, whence);
	else
		virtual_lseek(&q, i, off, whence);
}

void op_getlk(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *l)
{
	struct req q;

	req_init(&q, fr, "lock", inode_get(mount_of(fr), ino), NULL);
	tree_getlk(&q, handle_of(fi), fi->lock_owner, l);
}

void op_setlk(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *l, int wait)
{
	struct req q;

	req_init(&q, fr, "lock", inode_get(mount_of(fr), ino), NULL);
	tree_setlk(&q, handle_of(fi), fi->lock_owner, l, wait != 0);
}

void op_flock(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi, int op)
{
	struct req q;

	req_init(&q, fr, "lock", inode_get(mount_of(fr), ino), NULL);
	tree_flock(&q, handle_of(fi), op);
}
