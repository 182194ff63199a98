/* SPDX-License-Identifier: MIT */
/* What is agreed with the kernel at the beginning, and the table of its requests (request.c, ops_name.c,
 * ops_file.c, ops_attr.c). */
#include "sbxfs/ops_fn.h"

#define MAX_WRITE (1024u * 1024)

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
