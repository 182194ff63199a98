/* SPDX-License-Identifier: MIT */
/* The kernel's requests about attributes: times and sizes, rights, extended ones, and what is free. */
#include "sbxfs/errlog.h"
#include "sbxfs/ops_fn.h"
#include "sbxfs/treefs.h"

#include <errno.h>
#include <string.h>

void op_getattr(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct inode *i;
	struct stat st;
	struct req q;

	(void)fi;
	if (!req_begin(&q, fr, "getattr", ino, NULL, &i))
		return;
	if (tree_is(i)) {
		tree_getattr(&q, i);
		return;
	}
	virtual_attr(&q, i, &st);
	fuse_reply_attr(fr, &st, i->node->kind == KIND_LOG ? 0.0 : 1.0);
}

void op_setattr(fuse_req_t fr, fuse_ino_t ino, struct stat *st, int set,
	struct fuse_file_info *fi)
{
	struct inode *i;
	struct req q;

	if (!req_begin(&q, fr, "setattr", ino, NULL, &i) || req_read_only(&q, i))
		return;
	if (tree_is(i))
		tree_setattr(&q, i, st, set, fi);
	else
		virtual_setattr(&q, i, st, set);
}

void op_statfs(fuse_req_t fr, fuse_ino_t ino)
{
	struct inode *i;
	struct req q;

	if (!req_begin(&q, fr, "statfs", ino, NULL, &i))
		return;
	if (tree_is(i))
		tree_statfs(&q, i);
	else
		virtual_statfs(&q);
}

static void own_xattr(struct req *q, const struct inode *i, size_t size)
{
	_cleanup_text_ struct text t = TEXT_NULL;

	req_path(q, i, NULL);
	errlog_last(q->m->errors, q->uid, NULL, q->path, &t);
	if (!t.len)
		fuse_reply_err(q->fr, ENODATA);
	else
		reply_xattr(q, t.p, t.len, size);
}

void op_getxattr(fuse_req_t fr, fuse_ino_t ino, const char *name, size_t size)
{
	struct inode *i;
	struct req q;

	/* Before each write the kernel asks for this one. */
	if (!strcmp(name, "security.capability")) {
		fuse_reply_err(fr, ENODATA);
		return;
	}
	if (!req_begin(&q, fr, "getxattr", ino, NULL, &i))
		return;
	if (!strcmp(name, "user.sbx.error"))
		own_xattr(&q, i, size);
	else if (tree_is(i))
		tree_getxattr(&q, i, name, size);
	else
		fuse_reply_err(fr, strncmp(name, "system.", 7) ? ENODATA : EOPNOTSUPP);
}

void op_setxattr(fuse_req_t fr, fuse_ino_t ino, const char *name, const char *value, size_t size,
	int flags)
{
	struct inode *i;
	struct req q;

	if (!req_begin(&q, fr, "setxattr", ino, NULL, &i) || req_read_only(&q, i))
		return;
	if (tree_is(i))
		tree_setxattr(&q, i, name, value, size, flags);
	else
		fuse_reply_err(fr, EOPNOTSUPP);
}

void op_listxattr(fuse_req_t fr, fuse_ino_t ino, size_t size)
{
	_cleanup_text_ struct text t = TEXT_NULL;
	struct inode *i;
	struct req q;

	if (!req_begin(&q, fr, "listxattr", ino, NULL, &i))
		return;
	req_path(&q, i, NULL);
	if (tree_is(i)) {
		tree_listxattr(&q, i, size);
		return;
	}
	errlog_last(q.m->errors, q.uid, NULL, q.path, &t);
	reply_xattr(&q, "user.sbx.error", t.len ? sizeof("user.sbx.error") : 0, size);
}

void op_removexattr(fuse_req_t fr, fuse_ino_t ino, const char *name)
{
	struct inode *i;
	struct req q;

	if (!req_begin(&q, fr, "removexattr", ino, NULL, &i) || req_read_only(&q, i))
		return;
	if (tree_is(i))
		tree_removexattr(&q, i, name);
	else
		fuse_reply_err(fr, ENODATA);
}

void op_access(fuse_req_t fr, fuse_ino_t ino, int mask)
{
	struct inode *i;
	struct stat st;
	struct req q;

	if (!req_begin(&q, fr, "access", ino, NULL, &i))
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
