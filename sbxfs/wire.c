/* SPDX-License-Identifier: MIT */
/* Which way a request about guest files goes: over the sandbox's connection,
	else the plain way. Both
 * give the same results. A plain request that counted as use has woken the sandbox. */
#include "sbxfs/wire.h"

#include <string.h>

static int plain(struct req *q, const char *box, int rc)
{
	if (rc == 0 && (q->acts || q->uses || q->m->opt.use_all))
		fs1_awake(q->m, box);
	return rc;
}

int wire_stat(struct req *q, const char *box, const char *path, struct tree_attr *ret)
{
	int rc;

	rc = frame_stat(q, box, path, ret);
	if (rc == FS1_PLAIN)
		rc = plain(q, box, http_stat(q, box, path, ret));
	return rc;
}

int wire_list(struct req *q, const char *box, const char *path, wire_entry *each, void *arg,
	struct tree_stamp *ret_stamp)
{
	int rc;

	if (ret_stamp)
		memset(ret_stamp, 0, sizeof(*ret_stamp));
	rc = frame_list(q, box, path, each, arg, ret_stamp);
	if (rc == FS1_PLAIN)
		rc = plain(q, box, http_list(q, box, path, each, arg));
	return rc;
}

int wire_open(struct req *q, const char *box, const char *path, int flags, mode_t mode, size_t want,
	char ret_handle[24], struct tree_attr *ret, char **ret_data, size_t *ret_len)
{
	int rc;

	q->acts |= (flags & O_ACCMODE) != O_RDONLY;
	rc = frame_open(q, box, path, flags, mode, want, ret_handle, ret, ret_data, ret_len);
	if (rc == FS1_PLAIN)
		rc = plain(q, box, http_open(q, box, path, flags, mode, want, ret_handle, ret,
			ret_data, ret_len));
	return rc;
}

int wire_read(struct req *q, const char *box, const char *handle, uint64_t off, size_t len,
	char *buf,
	size_t *ret)
{
	int rc;

	rc = frame_read(q, box, handle, off, len, buf, ret);
	if (rc == FS1_PLAIN)
		rc = plain(q, box, http_read(q, box, handle, off, len, buf, ret));
	return rc;
}

int wire_write(struct req *q, const char *box, const char *handle, uint64_t off, bool append,
	const void *buf, size_t len, uint64_t *ret_written)
{
	int rc;

	q->acts = true;
	rc = frame_write(q, box, handle, off, append, buf, len, ret_written);
	if (rc == FS1_PLAIN)
		rc = plain(q, box, http_write(q, box, handle, off, append, buf, len, ret_written));
	return rc;
}

int wire_sync(struct req *q, const char *box, const char *handle, bool data_only)
{
	int rc;

	rc = frame_sync(q, box, handle, data_only);
	if (rc == FS1_PLAIN)
		rc = plain(q, box, http_sync(q, box, handle, data_only));
	return rc;
}

int wire_fstat(struct req *q, const char *box, const char *handle, struct tree_attr *ret)
{
	int rc;

	rc = frame_fstat(q, box, handle, ret);
	if (rc == FS1_PLAIN)
		rc = plain(q, box, http_fstat(q, box, handle, ret));
	return rc;
}

int wire_make(struct req *q, const char *box, enum wire_make what, const char *path, mode_t mode,
	const char *target, struct tree_attr *ret)
{
	int rc;

	q->acts = true;
	rc = frame_make(q, box, what, path, mode, target, ret);
	if (rc == FS1_PLAIN)
		rc = plain(q, box, http_make(q, box, what, path, mode, target, ret));
	return rc;
}

int wire_link(struct req *q, const char *box, const char *from, const char *to,
	struct tree_attr *ret)
{
	int rc;

	q->acts = true;
	rc = frame_link(q, box, from, to, ret);
	if (rc == FS1_PLAIN)
		rc = plain(q, box, http_link(q, box, from, to, ret));
	return rc;
}

int wire_drop(struct req *q, const char *box, const char *path, bool is_dir)
{
	int rc;

	q->acts = true;
	rc = frame_drop(q, box, path, is_dir);
	if (rc == FS1_PLAIN)
		rc = plain(q, box, http_drop(q, box, path, is_dir));
	return rc;
}

int wire_rename(struct req *q, const char *box, const char *from, const char *to, unsigned flags)
{
	int rc;

	q->acts = true;
	rc = frame_rename(q, box, from, to, flags);
	if (rc == FS1_PLAIN)
		rc = plain(q, box, http_rename(q, box, from, to, flags));
	return rc;
}

int wire_setattr(struct req *q, const char *box, const char *path, const char *handle,
	const struct stat *st, int set, struct tree_attr *ret)
{
	int rc;

	q->acts = true;
	rc = frame_setattr(q, box, path, handle, st, set, ret);
	if (rc == FS1_PLAIN)
		rc = plain(q, box, http_setattr(q, box, path, handle, st, set, ret));
	return rc;
}

int wire_fallocate(struct req *q, const char *box, const char *handle, int mode, off_t off,
	off_t len)
{
	int rc;

	q->acts = true;
	rc = frame_fallocate(q, box, handle, mode, off, len);
	if (rc == FS1_PLAIN)
		rc = plain(q, box, http_fallocate(q, box, handle, mode, off, len));
	return rc;
}

int wire_copy(struct req *q, const char *box, const struct wire_copy *c, uint64_t *ret)
{
	int rc;

	q->acts = true;
	rc = frame_copy(q, box, c, ret);
	if (rc == FS1_PLAIN)
		rc = plain(q, box, http_copy(q, box, c, ret));
	return rc;
}

int wire_seek(struct req *q, const char *box, const char *handle, off_t off, int whence, off_t *ret)
{
	int rc;

	rc = frame_seek(q, box, handle, off, whence, ret);
	if (rc == FS1_PLAIN)
		rc = plain(q, box, http_seek(q, box, handle, off, whence, ret));
	return rc;
}

int wire_xattr_get(struct req *q, const char *box, const char *path, const char *name, char **ret,
	size_t *ret_len)
{
	int rc;

	rc = frame_xattr_get(q, box, path, name, ret, ret_len);
	if (rc == FS1_PLAIN)
		rc = plain(q, box, http_xattr_get(q, box, path, name, ret, ret_len));
	return rc;
}

int wire_xattr_set(struct req *q, const char *box, const char *path, const char *name,
	const struct wire_value *v)
{
	int rc;

	q->acts = true;
	rc = frame_xattr_set(q, box, path, name, v);
	if (rc == FS1_PLAIN)
		rc = plain(q, box, http_xattr_set(q, box, path, name, v));
	return rc;
}

int wire_xattr_list(struct req *q, const char *box, const char *path, char **ret, size_t *ret_len)
{
	int rc;

	rc = frame_xattr_list(q, box, path, ret, ret_len);
	if (rc == FS1_PLAIN)
		rc = plain(q, box, http_xattr_list(q, box, path, ret, ret_len));
	return rc;
}

int wire_xattr_remove(struct req *q, const char *box, const char *path, const char *name)
{
	int rc;

	q->acts = true;
	rc = frame_xattr_remove(q, box, path, name);
	if (rc == FS1_PLAIN)
		rc = plain(q, box, http_xattr_remove(q, box, path, name));
	return rc;
}

void wire_close(struct req *q, const char *box, const char *handle)
{
	if (!frame_close(q, box, handle))
		http_close(q, box, handle);
}

/* Frames tell the file system's figures only; the plain way knows the sandbox's limits, too. */
int wire_statfs(struct req *q, const char *box, const char *path, struct statvfs *ret)
{
	return http_statfs(q, box, path, ret);
}
