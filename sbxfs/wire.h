/* SPDX-License-Identifier: MIT */
/* The two ways that wire.c chooses from: plain requests (wire_http.c) and frames (wire_fs1.c), which
 * give FS1_PLAIN when there is no connection. What each does is told in treefs.h. */
#ifndef SBXFS_WIRE_H
#define SBXFS_WIRE_H

#include "sbxfs/fs1.h"
#include "sbxfs/treefs.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#define RENAME_EXCHANGE 2
#endif

/* The bytes of `key`, or of `key`_b64 when it is there; the caller frees. NULL: neither, or a NUL. */
char *wire_bytes(const json_t *o, const char *key);
/* Who owns a file, as the guest counts. */
uint32_t wire_uid(const struct mount *m, uint32_t id);
uint32_t wire_gid(const struct mount *m, uint32_t id);
/* The other way. */
uint32_t wire_uid_shown(const struct mount *m, uint32_t id);
uint32_t wire_gid_shown(const struct mount *m, uint32_t id);

int http_stat(struct req *q, const char *box, const char *path, struct tree_attr *ret);
int http_list(struct req *q, const char *box, const char *path, wire_entry *each, void *arg);
int http_open(struct req *q, const char *box, const char *path, int flags, mode_t mode, size_t want,
	char ret_handle[24], struct tree_attr *ret, char **ret_data, size_t *ret_len);
int http_read(struct req *q, const char *box, const char *handle, uint64_t off, size_t len, char *buf,
	size_t *ret);
int http_write(struct req *q, const char *box, const char *handle, uint64_t off, bool append,
	const void *buf, size_t len, uint64_t *ret_written);
int http_sync(struct req *q, const char *box, const char *handle, bool data_only);
int http_fstat(struct req *q, const char *box, const char *handle, struct tree_attr *ret);
int http_make(struct req *q, const char *box, enum wire_make what, const char *path, mode_t mode,
	const char *target, struct tree_attr *ret);
int http_link(struct req *q, const char *box, const char *from, const char *to, struct tree_attr *ret);
int http_drop(struct req *q, const char *box, const char *path, bool is_dir);
int http_rename(struct req *q, const char *box, const char *from, const char *to, unsigned flags);
int http_setattr(struct req *q, const char *box, const char *path, const char *handle,
	const struct stat *st, int set, struct tree_attr *ret);
int http_fallocate(struct req *q, const char *box, const char *handle, int mode, off_t off, off_t len);
int http_copy(struct req *q, const char *box, const struct wire_copy *c, uint64_t *ret);
int http_seek(struct req *q, const char *box, const char *handle, off_t off, int whence, off_t *ret);
int http_xattr_get(struct req *q, const char *box, const char *path, const char *name, char **ret,
	size_t *ret_len);
int http_xattr_set(struct req *q, const char *box, const char *path, const char *name,
	const struct wire_value *v);
int http_xattr_list(struct req *q, const char *box, const char *path, char **ret, size_t *ret_len);
int http_xattr_remove(struct req *q, const char *box, const char *path, const char *name);
void http_close(struct req *q, const char *box, const char *handle);
int http_statfs(struct req *q, const char *box, const char *path, struct statvfs *ret);

int frame_stat(struct req *q, const char *box, const char *path, struct tree_attr *ret);
int frame_list(struct req *q, const char *box, const char *path, wire_entry *each, void *arg,
	struct tree_stamp *ret_stamp);
int frame_open(struct req *q, const char *box, const char *path, int flags, mode_t mode, size_t want,
	char ret_handle[24], struct tree_attr *ret, char **ret_data, size_t *ret_len);
int frame_read(struct req *q, const char *box, const char *handle, uint64_t off, size_t len, char *buf,
	size_t *ret);
int frame_write(struct req *q, const char *box, const char *handle, uint64_t off, bool append,
	const void *buf, size_t len, uint64_t *ret_written);
int frame_sync(struct req *q, const char *box, const char *handle, bool data_only);
int frame_fstat(struct req *q, const char *box, const char *handle, struct tree_attr *ret);
int frame_make(struct req *q, const char *box, enum wire_make what, const char *path, mode_t mode,
	const char *target, struct tree_attr *ret);
int frame_link(struct req *q, const char *box, const char *from, const char *to, struct tree_attr *ret);
int frame_drop(struct req *q, const char *box, const char *path, bool is_dir);
int frame_rename(struct req *q, const char *box, const char *from, const char *to, unsigned flags);
int frame_setattr(struct req *q, const char *box, const char *path, const char *handle,
	const struct stat *st, int set, struct tree_attr *ret);
int frame_fallocate(struct req *q, const char *box, const char *handle, int mode, off_t off, off_t len);
int frame_copy(struct req *q, const char *box, const struct wire_copy *c, uint64_t *ret);
int frame_seek(struct req *q, const char *box, const char *handle, off_t off, int whence, off_t *ret);
int frame_xattr_get(struct req *q, const char *box, const char *path, const char *name, char **ret,
	size_t *ret_len);
int frame_xattr_set(struct req *q, const char *box, const char *path, const char *name,
	const struct wire_value *v);
int frame_xattr_list(struct req *q, const char *box, const char *path, char **ret, size_t *ret_len);
int frame_xattr_remove(struct req *q, const char *box, const char *path, const char *name);
bool frame_close(struct req *q, const char *box, const char *handle);

#endif
