/* SPDX-License-Identifier: MIT */
/* Inside of the kernel's requests: what request.c gives to all of them, and the rows of the table in ops.c. */
#ifndef SBXFS_OPS_FN_H
#define SBXFS_OPS_FN_H

#include "sbxfs/ops.h"

static inline struct mount *mount_of(fuse_req_t fr)
{
	return fuse_req_userdata(fr);
}

static inline struct handle *handle_of(const struct fuse_file_info *fi)
{
	return (struct handle *)(uintptr_t)fi->fh;
}

/* Begins a request: false when it is answered already. */
bool req_begin(struct req *q, fuse_req_t fr, const char *op, fuse_ino_t ino, const char *name,
	struct inode **ret);
/* Writing to a view of a snapshot is refused here, once for all operations. True: answered. */
bool req_read_only(struct req *q, const struct inode *i);
/* Fills in q->path, as people know it. */
void req_path(struct req *q, const struct inode *i, const char *name);

/* ops_name.c */
void op_lookup(fuse_req_t fr, fuse_ino_t parent, const char *name);
void op_forget(fuse_req_t fr, fuse_ino_t ino, uint64_t n);
void op_forget_multi(fuse_req_t fr, size_t count, struct fuse_forget_data *f);
void op_readlink(fuse_req_t fr, fuse_ino_t ino);
void op_mkdir(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode);
void op_rmdir(fuse_req_t fr, fuse_ino_t parent, const char *name);
void op_unlink(fuse_req_t fr, fuse_ino_t parent, const char *name);
void op_mknod(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev);
void op_symlink(fuse_req_t fr, const char *target, fuse_ino_t parent, const char *name);
void op_link(fuse_req_t fr, fuse_ino_t ino, fuse_ino_t parent, const char *name);
void op_rename(fuse_req_t fr, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
	const char *new_name, unsigned flags);
void op_opendir(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi);
void op_readdir(fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off,
	struct fuse_file_info *fi);
void op_readdirplus(fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off,
	struct fuse_file_info *fi);
void op_releasedir(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi);
void op_fsyncdir(fuse_req_t fr, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
/* ops_file.c */
void op_open(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi);
void op_create(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode,
	struct fuse_file_info *fi);
void op_read(fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void op_write(fuse_req_t fr, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	struct fuse_file_info *fi);
void op_flush(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi);
void op_release(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi);
void op_fsync(fuse_req_t fr, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void op_poll(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi,
	struct fuse_pollhandle *ph);
void op_fallocate(fuse_req_t fr, fuse_ino_t ino, int mode, off_t off, off_t len,
	struct fuse_file_info *fi);
void op_copy(fuse_req_t fr, fuse_ino_t in, off_t in_off, struct fuse_file_info *in_fi,
	fuse_ino_t out, off_t out_off, struct fuse_file_info *out_fi, size_t len, int flags);
void op_lseek(fuse_req_t fr, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
void op_getlk(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *l);
void op_setlk(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *l, int wait);
void op_flock(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi, int op);
/* ops_attr.c */
void op_getattr(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi);
void op_setattr(fuse_req_t fr, fuse_ino_t ino, struct stat *st, int set,
	struct fuse_file_info *fi);
void op_statfs(fuse_req_t fr, fuse_ino_t ino);
void op_getxattr(fuse_req_t fr, fuse_ino_t ino, const char *name, size_t size);
void op_setxattr(fuse_req_t fr, fuse_ino_t ino, const char *name, const char *value, size_t size,
	int flags);
void op_listxattr(fuse_req_t fr, fuse_ino_t ino, size_t size);
void op_removexattr(fuse_req_t fr, fuse_ino_t ino, const char *name);
void op_access(fuse_req_t fr, fuse_ino_t ino, int mask);

#endif
