/* SPDX-License-Identifier: MIT */
/* The kernel's requests about names: looking them up, making, moving and removing them, reading
 * directories. Each is answered by one of the two worlds, the guests' trees or the files around them. */
#include "sbxfs/ops_fn.h"
#include "sbxfs/treefs.h"

#include <errno.h>

void op_lookup(fuse_req_t fr, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e;
	struct inode *dir, *i;
	struct req q;
	int rc;

	if (!req_begin(&q, fr, "lookup", parent, name, &dir))
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

void op_forget(fuse_req_t fr, fuse_ino_t ino, uint64_t n)
{
	struct mount *m = mount_of(fr);

	if (ino != FUSE_ROOT_ID)
		inode_forget(m, inode_get(m, ino), n);
	fuse_reply_none(fr);
}

void op_forget_multi(fuse_req_t fr, size_t count, struct fuse_forget_data *f)
{
	struct mount *m = mount_of(fr);

	for (size_t n = 0; n < count; n++)
		if (f[n].ino != FUSE_ROOT_ID)
			inode_forget(m, inode_get(m, f[n].ino), f[n].nlookup);
	fuse_reply_none(fr);
}

void op_readlink(fuse_req_t fr, fuse_ino_t ino)
{
	struct inode *i;
	struct req q;

	if (!req_begin(&q, fr, "readlink", ino, NULL, &i))
		return;
	if (tree_is(i))
		tree_readlink(&q, i);
	else
		fuse_reply_readlink(fr, i->data ? i->data : "");
}

void op_mkdir(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct inode *dir;
	struct req q;

	if (!req_begin(&q, fr, "mkdir", parent, name, &dir) || req_read_only(&q, dir))
		return;
	if (tree_is(dir))
		tree_mkdir(&q, dir, name, mode);
	else
		virtual_change(&q, CHANGE_MKDIR, dir, name, NULL, NULL, NULL);
}

void op_rmdir(fuse_req_t fr, fuse_ino_t parent, const char *name)
{
	struct inode *dir;
	struct req q;

	if (!req_begin(&q, fr, "rmdir", parent, name, &dir) || req_read_only(&q, dir))
		return;
	if (tree_is(dir))
		tree_drop(&q, dir, name, true);
	else
		virtual_change(&q, CHANGE_RMDIR, dir, name, NULL, NULL, NULL);
}

void op_unlink(fuse_req_t fr, fuse_ino_t parent, const char *name)
{
	struct inode *dir;
	struct req q;

	if (!req_begin(&q, fr, "unlink", parent, name, &dir) || req_read_only(&q, dir))
		return;
	if (tree_is(dir))
		tree_drop(&q, dir, name, false);
	else
		virtual_change(&q, CHANGE_UNLINK, dir, name, NULL, NULL, NULL);
}

void op_mknod(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev)
{
	struct inode *dir;
	struct req q;

	(void)dev;
	if (!req_begin(&q, fr, "mknod", parent, name, &dir) || req_read_only(&q, dir))
		return;
	if (tree_is(dir))
		tree_mknod(&q, dir, name, mode);
	else
		fuse_reply_err(fr, EPERM);
}

void op_symlink(fuse_req_t fr, const char *target, fuse_ino_t parent, const char *name)
{
	struct inode *dir;
	struct req q;

	if (!req_begin(&q, fr, "symlink", parent, name, &dir) || req_read_only(&q, dir))
		return;
	if (tree_is(dir))
		tree_symlink(&q, dir, name, target);
	else
		fuse_reply_err(fr, EPERM);
}

void op_link(fuse_req_t fr, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	struct inode *dir, *i = inode_get(mount_of(fr), ino);
	struct req q;

	if (!req_begin(&q, fr, "link", parent, name, &dir) || req_read_only(&q, dir))
		return;
	if (tree_is(dir) && tree_is(i))
		tree_link(&q, i, dir, name);
	else
		fuse_reply_err(fr, EPERM);
}

void op_rename(fuse_req_t fr, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
	const char *new_name, unsigned flags)
{
	struct inode *dir, *to = inode_get(mount_of(fr), new_parent);
	struct req q;

	if (!req_begin(&q, fr, "rename", parent, name, &dir) || req_read_only(&q, dir) ||
		req_read_only(&q, to))
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

void op_opendir(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct handle *h;
	struct inode *i;
	struct req q;

	if (!req_begin(&q, fr, "opendir", ino, NULL, &i))
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

void op_readdir(fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off,
	struct fuse_file_info *fi)
{
	readdir(fr, ino, size, off, fi, false);
}

void op_readdirplus(fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off,
	struct fuse_file_info *fi)
{
	readdir(fr, ino, size, off, fi, true);
}

void op_releasedir(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	handle_free(mount_of(fr), handle_of(fi));
	fuse_reply_err(fr, 0);
}

void op_fsyncdir(fuse_req_t fr, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
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
