/* SPDX-License-Identifier: MIT */
/* Names: made, moved and removed relative to their parent's descriptor; the last element is never
 * followed. */
#include "sandboxd/worker/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int parent_of(struct job *j, const char *path, const char **ret_last)
{
	int fd = path_parent(j->w, path, ret_last);
	int r;

	if (fd < 0)
		return fd;
	r = path_check_fs(fd);
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

/* The end of an object that loses its last name costs more than the loss of the name. While somebody
 * holds it, that can wait until the answer is out: the same thread lets go before it reads on, so
 * nothing that is asked on this stream later is done earlier. */
static void hold(struct job *j, int dirfd, const char *name)
{
	if (j->stream && j->held < 0)
		j->held = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

int64_t op_rename(struct job *j)
{
	unsigned flags =
		(j->q.flags & FILES_NOREPLACE ? 1u : 0) | (j->q.flags & FILES_EXCHANGE ? 2u : 0);
	const char *from, *to;
	_cleanup_close_ int a = parent_of(j, j->path, &from);
	if (a < 0)
		return a;
	_cleanup_close_ int b = parent_of(j, j->path2, &to);
	if (b < 0)
		return b;
	hold(j, b, to);
	return syscall(SYS_renameat2, a, from, b, to, flags) < 0 ? -errno : 0;
}

static int64_t unlink_as(struct job *j, int flags)
{
	const char *last;
	_cleanup_close_ int fd = parent_of(j, j->path, &last);

	if (fd < 0)
		return fd;
	hold(j, fd, last);
	if (unlinkat(fd, last, flags) == 0)
		return 0;
	/* POSIX allows EEXIST for a directory that is not empty; some file systems use it. */
	return (flags & AT_REMOVEDIR) && errno == EEXIST ? -ENOTEMPTY : -errno;
}

int64_t op_unlink(struct job *j)
{
	return unlink_as(j, 0);
}

int64_t op_rmdir(struct job *j)
{
	return unlink_as(j, AT_REMOVEDIR);
}

int64_t op_remove(struct job *j)
{
	int64_t r = unlink_as(j, 0);

	if (r != -EISDIR && r != -EPERM)
		return r;
	int64_t d = unlink_as(j, AT_REMOVEDIR);
	return d == -ENOTDIR ? r : d;
}

/* After a name was made: owner, then attributes for the answer. */
static int64_t made(struct job *j, int dirfd, const char *last, bool own)
{
	int r = own ? path_own_new(j->w, dirfd, last, -1) : 0;

	if (r < 0)
		return r;
	return attr_get(j->w, dirfd, last, false, &j->rep.attr);
}

int64_t op_mkdir(struct job *j)
{
	const char *last;
	_cleanup_close_ int fd = parent_of(j, j->path, &last);

	if (fd < 0)
		return fd == -EBUSY ? -EEXIST : fd;
	if (mkdirat(fd, last, j->q.mode & 01777) < 0)
		return -errno;
	return made(j, fd, last, true);
}

int64_t op_link(struct job *j)
{
	const char *from, *to;
	_cleanup_close_ int a = parent_of(j, j->path, &from);
	if (a < 0)
		return a;
	_cleanup_close_ int b = parent_of(j, j->path2, &to);
	if (b < 0)
		return b;
	if (linkat(a, from, b, to, 0) < 0)
		return -errno;
	return made(j, b, to, false);
}

int64_t op_symlink(struct job *j)
{
	const char *last;
	_cleanup_close_ int fd = parent_of(j, j->path, &last);

	if (fd < 0)
		return fd == -EBUSY ? -EEXIST : fd;
	if (symlinkat(j->path2, fd, last) < 0)
		return -errno;
	return made(j, fd, last, true);
}

int64_t op_mknod(struct job *j)
{
	const char *last;
	_cleanup_close_ int fd = -1;

	if ((j->q.mode & S_IFMT) != S_IFIFO)
		return -EPERM;
	fd = parent_of(j, j->path, &last);
	if (fd < 0)
		return fd == -EBUSY ? -EEXIST : fd;
	if (mknodat(fd, last, S_IFIFO | (j->q.mode & 01777), 0) < 0)
		return -errno;
	return made(j, fd, last, true);
}
