/* SPDX-License-Identifier: MIT */
/* Which way a request about guest files goes: over the sandbox's connection, else the plain way. Both
 * give the same results. A plain request that counted as use has woken the sandbox. */
#include "sbxfs/wire.h"

#include <string.h>

static int plain(struct req *q, const char *box, int rc)
{
	if (rc == 0 && (q->acts || q->uses || q->m->opt.use_all))
		fs1_awake(q->m, box);
	return rc;
}

/* The same call of both ways, by the second half of its name. */
#define EITHER(name, ...)                                                                          \
	__extension__({                                                                            \
		int rc_ = frame_##name(q, box, __VA_ARGS__);                                       \
		if (rc_ == FS1_PLAIN)                                                              \
			rc_ = plain(q, box, http_##name(q, box, __VA_ARGS__));                     \
		rc_;                                                                               \
	})

int wire_stat(struct req *q, const char *box, const char *path, struct tree_attr *ret)
{
	return EITHER(stat, path, ret);
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
	q->acts |= (flags & O_ACCMODE) != O_RDONLY;
	return EITHER(open, path, flags, mode, want, ret_handle, ret, ret_data, ret_len);
}

int wire_read(struct req *q, const char *box, const char *handle, uint64_t off, size_t len,
	char *buf, size_t *ret)
{
	return EITHER(read, handle, off, len, buf, ret);
}

int wire_write(struct req *q, const char *box, const char *handle, uint64_t off, bool append,
	const void *buf, size_t len, uint64_t *ret_written)
{
	q->acts = true;
	return EITHER(write, handle, off, append, buf, len, ret_written);
}

int wire_sync(struct req *q, const char *box, const char *handle, bool data_only)
{
	return EITHER(sync, handle, data_only);
}

int wire_fstat(struct req *q, const char *box, const char *handle, struct tree_attr *ret)
{
	return EITHER(fstat, handle, ret);
}

int wire_make(struct req *q, const char *box, enum wire_make what, const char *path, mode_t mode,
	const char *target, struct tree_attr *ret)
{
	q->acts = true;
	return EITHER(make, what, path, mode, target, ret);
}

int wire_link(struct req *q, const char *box, const char *from, const char *to,
	struct tree_attr *ret)
{
	q->acts = true;
	return EITHER(link, from, to, ret);
}

int wire_drop(struct req *q, const char *box, const char *path, bool is_dir)
{
	q->acts = true;
	return EITHER(drop, path, is_dir);
}

int wire_rename(struct req *q, const char *box, const char *from, const char *to, unsigned flags)
{
	q->acts = true;
	return EITHER(rename, from, to, flags);
}

int wire_setattr(struct req *q, const char *box, const char *path, const char *handle,
	const struct stat *st, int set, struct tree_attr *ret)
{
	q->acts = true;
	return EITHER(setattr, path, handle, st, set, ret);
}

int wire_fallocate(struct req *q, const char *box, const char *handle, int mode, off_t off,
	off_t len)
{
	q->acts = true;
	return EITHER(fallocate, handle, mode, off, len);
}

int wire_copy(struct req *q, const char *box, const struct wire_copy *c, uint64_t *ret)
{
	q->acts = true;
	return EITHER(copy, c, ret);
}

int wire_seek(struct req *q, const char *box, const char *handle, off_t off, int whence, off_t *ret)
{
	return EITHER(seek, handle, off, whence, ret);
}

int wire_xattr_get(struct req *q, const char *box, const char *path, const char *name, char **ret,
	size_t *ret_len)
{
	return EITHER(xattr_get, path, name, ret, ret_len);
}

int wire_xattr_set(struct req *q, const char *box, const char *path, const char *name,
	const struct wire_value *v)
{
	q->acts = true;
	return EITHER(xattr_set, path, name, v);
}

int wire_xattr_list(struct req *q, const char *box, const char *path, char **ret, size_t *ret_len)
{
	return EITHER(xattr_list, path, ret, ret_len);
}

int wire_xattr_remove(struct req *q, const char *box, const char *path, const char *name)
{
	q->acts = true;
	return EITHER(xattr_remove, path, name);
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
