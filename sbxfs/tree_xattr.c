/* SPDX-License-Identifier: MIT */
/* Extended attributes. user.* is the guest's; user.sbx.* is ours and read only; the kernel's question
 * for security.capability before every write is answered from memory. */
#include "sbxfs/errlog.h"
#include "sbxfs/treefs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

void reply_xattr(struct req *q, const char *value, size_t len, size_t size)
{
	if (!size)
		fuse_reply_xattr(q->fr, len);
	else if (len > size)
		fuse_reply_err(q->fr, ERANGE);
	else
		fuse_reply_buf(q->fr, value, len);
}

static bool is_ours(const char *name)
{
	return !strncmp(name, "user.sbx.", 9);
}

/* Only these reach the guest. */
static bool is_guest(const char *name)
{
	return !strncmp(name, "user.", 5) && !is_ours(name);
}

static void get_target(struct req *q, struct inode *i, size_t size)
{
	_cleanup_attr_ struct tree_attr a = { .target = NULL };
	int rc = tree_get(q, i, &a);

	if (rc == 0 && !a.target)
		rc = -ENODATA;
	if (rc < 0)
		req_fail(q, rc);
	else
		reply_xattr(q, a.target, strlen(a.target), size);
}

/* By its name; what has none any more by a handle of it, or *ret_handle is NULL. */
static int find(struct req *q, struct inode *i, char path[FS_PATH_MAX], char handle[24],
	const char **ret_handle)
{
	int rc = tree_path(q, i, NULL, path);

	*ret_handle = rc == -ESTALE && tree_any_handle(i, false, handle) ? handle : NULL;
	return *ret_handle ? 0 : rc;
}

void tree_getxattr(struct req *q, struct inode *i, const char *name, size_t size)
{
	char path[FS_PATH_MAX], handle[24], *value = NULL;
	const char *open;
	size_t len = 0;
	int rc;

	/* The kernel lets nobody have user.* of a link; the other name is for links. */
	if (!strcmp(name, "user.sbx.target") || !strcmp(name, "security.sbx.target")) {
		get_target(q, i, size);
		return;
	}
	if (!strcmp(name, "security.selinux")) {
		/* "Not supported": ls then asks once, and not for each file. */
		fuse_reply_err(q->fr, EOPNOTSUPP);
		return;
	}
	if (!is_guest(name)) {
		fuse_reply_err(q->fr, strncmp(name, "system.", 7) ? ENODATA : EOPNOTSUPP);
		return;
	}
	rc = find(q, i, path, handle, &open);
	if (rc == 0)
		rc = wire_xattr_get(q, i->box, path, open, name, &value, &len);
	if (rc < 0)
		req_fail(q, rc);
	else
		reply_xattr(q, value, len, size);
	free(value);
}

/* Ours, and what is not the guest's, cannot be set. */
static int may_set(const char *name)
{
	return is_guest(name) ? 0 : is_ours(name) ? -EPERM : -EOPNOTSUPP;
}

void tree_setxattr(struct req *q, struct inode *i, const char *name, const char *value, size_t size,
	int flags)
{
	struct wire_value v = { .p = value, .len = size, .flags = flags };
	char path[FS_PATH_MAX], handle[24];
	const char *open;
	int rc = may_set(name);

	if (rc == 0)
		rc = find(q, i, path, handle, &open);
	if (rc == 0) {
		rc = wire_xattr_set(q, i->box, path, open, name, &v);
		tree_changed(q, i);
	}
	req_done(q, rc);
}

void tree_listxattr(struct req *q, struct inode *i, size_t size)
{
	_cleanup_text_ struct text t = TEXT_NULL;
	char path[FS_PATH_MAX], handle[24], *names = NULL;
	const char *open;
	size_t len = 0;
	int rc = find(q, i, path, handle, &open);

	if (rc == 0)
		rc = wire_xattr_list(q, i->box, path, open, &names, &len);
	if (rc < 0) {
		free(names);
		req_fail(q, rc);
		return;
	}
	for (const char *p = names; p && p < names + len; p += strlen(p) + 1)
		if (is_guest(p))
			txt_add(&t, p, strlen(p) + 1);
	free(names);
	/* Not user.sbx.error: who copies a file with all that it lists would copy the words, too. */
	reply_xattr(q, t.p, t.len, size);
}

void tree_removexattr(struct req *q, struct inode *i, const char *name)
{
	char path[FS_PATH_MAX], handle[24];
	const char *open;
	int rc = may_set(name);

	if (rc == 0)
		rc = find(q, i, path, handle, &open);
	if (rc == 0) {
		rc = wire_xattr_remove(q, i->box, path, open, name);
		tree_changed(q, i);
	}
	req_done(q, rc);
}
