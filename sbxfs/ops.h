/* SPDX-License-Identifier: MIT */
/* What the kernel asks: the table of operations, and what its files share. */
#ifndef SBXFS_OPS_H
#define SBXFS_OPS_H

#include "sbxfs/handle.h"
#include "sbxfs/inode.h"
#include "sbxfs/nodes.h"

extern const struct fuse_lowlevel_ops sbxfs_ops;

/* A request on the stack of the thread that answers it. */
void req_init(struct req *q, fuse_req_t fr, const char *op, const struct inode *i, const char *name);
/* Logs what is worth it, keeps the words, answers with the errno. */
void req_fail(struct req *q, int rc);
/* 0 or a failure: one of the two answers. */
void req_done(struct req *q, int rc);
/* May this caller use the mount? -EACCES otherwise. */
int req_may(struct req *q);

struct spot inode_spot(const struct inode *i);
/* Attributes of an inode that is not of a guest tree. */
void virtual_attr(struct req *q, const struct inode *i, struct stat *st);
/* Finds name and gives its inode (referenced) with attributes and timeouts in *e. */
int virtual_entry(struct req *q, const struct inode *dir, const char *name, struct inode **ret,
	struct fuse_entry_param *e);
/* Makes or renews the text of a spot. */
int render(struct req *q, const struct spot *s, struct inode **ret);

/* Answers with an entry: counts the lookup, takes it back when the caller has gone. */
void reply_entry(struct req *q, struct inode *i, struct fuse_entry_param *e);

/* Operations on virtual files; each answers. */
void virtual_open(struct req *q, struct inode *i, struct fuse_file_info *fi);
void virtual_read(struct req *q, struct inode *i, size_t size, off_t off, struct fuse_file_info *fi);
void virtual_write(struct req *q, struct inode *i, const char *buf, size_t size,
	struct fuse_file_info *fi);
void virtual_flush(struct req *q, struct handle *h);
/* Frees the handle, now or when its last line has been done. */
void virtual_release(struct req *q, struct handle *h);
void virtual_setattr(struct req *q, struct inode *i, const struct stat *st, int set);
void virtual_readdir(struct req *q, struct inode *i, size_t size, off_t off, struct handle *h,
	bool plus);
/* mkdir, rmdir, create, unlink, rename: may last, so that another thread does them. */
enum change { CHANGE_MKDIR, CHANGE_RMDIR, CHANGE_CREATE, CHANGE_UNLINK, CHANGE_RENAME };
void virtual_change(struct req *q, enum change what, struct inode *dir, const char *name,
	struct inode *to, const char *to_name, struct fuse_file_info *fi);

void virtual_statfs(struct req *q);
void virtual_lseek(struct req *q, const struct inode *i, off_t off, int whence);
/* Is the calling process in that group? */
bool caller_in_group(fuse_req_t fr, gid_t gid);

/* Logs: size so far and bytes. */
int log_size(struct req *q, const struct inode *i, uint64_t *ret, bool *ret_complete);
ssize_t log_read(struct req *q, struct inode *i, uint64_t off, char *buf, size_t size);

#endif
