/* SPDX-License-Identifier: MIT */
/* Attributes, space, extended attributes. Attributes are changed through an O_PATH descriptor, so
 * that the thing looked at is the thing changed, whatever its type. */
#include "sandboxd/worker/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

static int open_path(struct job *j, bool follow)
{
	return path_open(j->w, j->path, O_PATH | (follow ? 0 : O_NOFOLLOW), 0);
}

static bool is_link(const struct files_attr *a)
{
	return (a->mode & S_IFMT) == S_IFLNK;
}

int64_t op_stat(struct job *j)
{
	_cleanup_close_ int fd = open_path(j, j->q.flags & FILES_FOLLOW);
	int r;

	if (fd < 0)
		return fd;
	r = attr_get(j->w, fd, "", false, &j->rep.attr);
	if (r == 0 && is_link(&j->rep.attr)) {
		ssize_t n = attr_target(fd, "", j->out, FILES_PATH_MAX - 1);
		j->out_len = n > 0 ? (size_t)n : 0;
	}
	return r;
}

static struct timespec time_of(const struct job *j, unsigned set, unsigned now, struct files_time t)
{
	if (j->q.flags & now)
		return (struct timespec){ .tv_nsec = UTIME_NOW };
	if (j->q.flags & set)
		return (struct timespec){ .tv_sec = (time_t)t.sec, .tv_nsec = (long)t.nsec };
	return (struct timespec){ .tv_nsec = UTIME_OMIT };
}

static int set_owner(struct job *j, int fd)
{
	uid_t uid = j->q.flags & FILES_SET_UID ? j->q.uid : (uid_t)-1;
	gid_t gid = j->q.flags & FILES_SET_GID ? j->q.gid : (gid_t)-1;

	if (fchownat(fd, "", uid, gid, AT_EMPTY_PATH) == 0)
		return 0;
	return errno == EPERM && j->w->fake ? 0 : -errno;
}

static int set_times(struct job *j, int fd)
{
	struct timespec ts[2] = {
		time_of(j, FILES_SET_ATIME, FILES_ATIME_NOW, j->q.atime),
		time_of(j, FILES_SET_MTIME, FILES_MTIME_NOW, j->q.mtime),
	};

	if (((j->q.flags & FILES_SET_ATIME) && j->q.atime.nsec > 999999999) ||
		((j->q.flags & FILES_SET_MTIME) && j->q.mtime.nsec > 999999999))
		return -EINVAL;
	return utimensat(fd, "", ts, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

static int set_size(struct job *j, struct handle *h, int pathfd)
{
	_cleanup_close_ int fd = -1;

	if (j->q.offset > INT64_MAX)
		return -EFBIG;
	if (h) {
		h->changed |= h->writable;
		return !h->writable                               ? -EBADF
		       : ftruncate(h->fd, (off_t)j->q.offset) < 0 ? -errno
								  : 0;
	}
	int r = path_check_type(pathfd, false);
	if (r < 0)
		return r;
	fd = path_open_data(j->w, j->path, O_WRONLY, j->q.flags & FILES_FOLLOW, false);
	if (fd < 0)
		return fd;
	return ftruncate(fd, (off_t)j->q.offset) < 0 ? -errno : 0;
}

static int set_mode(struct job *j, const struct handle *h, int fd, mode_t mode)
{
	const char *last = NULL;
	_cleanup_close_ int parent = h ? -1 : path_parent(j->w, j->path, &last);

	return attr_chmod(j->w, fd, parent, parent < 0 ? NULL : last, mode);
}

/* `fd`: the thing, maybe O_PATH. Size first: it may fail, and it changes times and set-id bits. */
static int set_all(struct job *j, struct handle *h, int fd)
{
	struct files_attr *a = &j->rep.attr;
	int r = path_check_fs(fd);

	if (r == 0)
		r = attr_get(j->w, fd, "", false, a);
	if (r == 0 && (j->q.flags & FILES_SET_SIZE)) {
		r = set_size(j, h, fd);
		if (r == 0 && (a->mode & (S_ISUID | S_ISGID)))
			r = set_mode(j, h, fd, a->mode & 01777);
	}
	if (r == 0 && (j->q.flags & (FILES_SET_UID | FILES_SET_GID)))
		r = set_owner(j, fd);
	if (r == 0 && (j->q.flags & FILES_SET_MODE))
		r = is_link(a) ? -EOPNOTSUPP : set_mode(j, h, fd, j->q.mode & 07777);
	if (r == 0 && (j->q.flags & (FILES_SET_ATIME | FILES_SET_MTIME | FILES_ATIME_NOW |
					    FILES_MTIME_NOW)))
		r = set_times(j, fd);
	return r < 0 ? r : attr_get(j->w, fd, "", false, a);
}

int64_t op_setattr(struct job *j)
{
	int64_t r = -FILES_E_HANDLE;

	if (j->q.handle) {
		struct handle *h = handle_get(j->w, j->q.client, j->q.handle);
		if (!h)
			return r;
		if (h->fd >= 0)
			r = set_all(j, h, h->fd);
		handle_put(j->w, h);
		return r;
	}
	_cleanup_close_ int fd = open_path(j, j->q.flags & FILES_FOLLOW);
	return fd < 0 ? fd : set_all(j, NULL, fd);
}

int64_t op_statfs(struct job *j)
{
	_cleanup_close_ int fd = open_path(j, true);
	struct statvfs v;
	struct statfs kind;
	struct files_statfs s;

	if (fd < 0)
		return fd;
	if (fstatvfs(fd, &v) < 0 || fstatfs(fd, &kind) < 0)
		return -errno;
	s = (struct files_statfs){ .bsize = v.f_frsize,
		.blocks = v.f_blocks,
		.bfree = v.f_bfree,
		.bavail = v.f_bavail,
		.files = v.f_files,
		.ffree = v.f_ffree,
		.namelen = v.f_namemax,
		.type = (uint32_t)kind.f_type };
	memcpy(j->out, &s, sizeof(s));
	j->out_len = sizeof(s);
	return 0;
}

static bool ours(const char *name)
{
	return !strncmp(name, "user.sbx.", 9);
}

static bool visible(const char *name)
{
	return (!strncmp(name, "user.", 5) && !ours(name)) || !strcmp(name, "security.capability");
}

/* What the name alone decides: 0 to go on, or the answer. */
static int xattr_policy(const struct job *j, bool write)
{
	const char *name = j->path2;

	if (!strncmp(name, "system.", 7))
		return -EOPNOTSUPP;
	if (!visible(name))
		return write ? -EPERM : -ENODATA;
	if (write && j->w->fake && strncmp(name, "user.", 5))
		return -EPERM; /* the folder is a real one of the host */
	return 0;
}

/* Extended attributes need a real descriptor, so a handle's, or a file's or directory's. */
static int xattr_fd(struct job *j, struct handle **ret_handle)
{
	*ret_handle = NULL;
	if (!j->q.handle)
		return path_open_data(j->w, j->path, O_RDONLY, j->q.flags & FILES_FOLLOW, true);
	*ret_handle = handle_get(j->w, j->q.client, j->q.handle);
	if (!*ret_handle)
		return -FILES_E_HANDLE;
	return (*ret_handle)->fd >= 0 ? (*ret_handle)->fd : -FILES_E_HANDLE;
}

static void xattr_done(struct job *j, int fd, struct handle *h)
{
	if (h)
		handle_put(j->w, h);
	else if (fd >= 0)
		close(fd);
}

/* Links, FIFOs and the like hold none of the attributes that we show. */
static bool holds_none(int r)
{
	return r == -ELOOP || r == -FILES_E_NOTREG || r == -FILES_E_REFUSED;
}

int64_t op_xattr_get(struct job *j)
{
	struct handle *h;
	int64_t r = xattr_policy(j, false);

	if (r < 0)
		return r;
	int fd = xattr_fd(j, &h);
	r = fd < 0 ? (holds_none(fd) ? -ENODATA : fd)
		   : fgetxattr(fd, j->path2, j->out, FILES_XATTR_MAX);
	if (r == -1 && fd >= 0)
		r = -errno;
	xattr_done(j, fd, h);
	j->out_len = r > 0 ? (size_t)r : 0;
	return r;
}

int64_t op_xattr_set(struct job *j)
{
	struct handle *h;
	int64_t r = xattr_policy(j, true);

	if (r < 0)
		return r;
	int fd = xattr_fd(j, &h);
	r = fd < 0 ? (holds_none(fd) ? -EPERM : fd)
		   : fsetxattr(fd, j->path2, j->data, j->q.data_len, (int)j->q.mode);
	if (r == -1 && fd >= 0)
		r = -errno;
	xattr_done(j, fd, h);
	return r;
}

int64_t op_xattr_remove(struct job *j)
{
	struct handle *h;
	int64_t r = xattr_policy(j, true);

	if (r < 0)
		return r;
	int fd = xattr_fd(j, &h);
	r = fd < 0 ? (holds_none(fd) ? -ENODATA : fd) : fremovexattr(fd, j->path2);
	if (r == -1 && fd >= 0)
		r = -errno;
	xattr_done(j, fd, h);
	return r;
}

static size_t keep_visible(char *names, size_t len)
{
	size_t out = 0;

	for (size_t i = 0; i < len;) {
		size_t n = strnlen(names + i, len - i) + 1;
		if (i + n > len)
			break;
		if (visible(names + i)) {
			memmove(names + out, names + i, n);
			out += n;
		}
		i += n;
	}
	return out;
}

int64_t op_xattr_list(struct job *j)
{
	struct handle *h;
	int fd = xattr_fd(j, &h);
	int64_t r = fd < 0 ? (holds_none(fd) ? 0 : fd) : flistxattr(fd, j->out, FILES_XATTR_MAX);

	if (r == -1 && fd >= 0)
		r = errno == EOPNOTSUPP ? 0 : -errno;
	xattr_done(j, fd, h);
	if (r > 0)
		j->out_len = keep_visible(j->out, (size_t)r);
	return r < 0 ? r : (int64_t)j->out_len;
}
