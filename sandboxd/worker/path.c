/* SPDX-License-Identifier: MIT */
/* Names to descriptors. Every lookup starts at the root descriptor and is held inside it by the
 * kernel (RESOLVE_IN_ROOT); links of procfs are refused. A race with a rename shows as EAGAIN and
 * is tried again a bounded number of times. Nothing is opened for data before its type is known,
 * and what was opened is looked at once more, because the name may have changed hands meanwhile. */
#include "sandboxd/worker/state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef MQUEUE_MAGIC
#define MQUEUE_MAGIC 0x19800202
#endif

static int open_at(int dir, const char *path, int flags, mode_t mode, uint64_t resolve)
{
	struct open_how how = {
		.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
		.mode = flags & O_CREAT ? mode & 07777 : 0,
		.resolve = resolve | RESOLVE_NO_MAGICLINKS,
	};

	for (int i = 0; i < RESOLVE_TRIES; i++) {
		long fd = syscall(SYS_openat2, dir, path, &how, sizeof(how));
		if (fd >= 0)
			return (int)fd;
		/* With O_NONBLOCK a leased file also gives EAGAIN; O_PATH never does. */
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
	}
	return -FILES_E_RACED;
}

/* The next piece of a path, at most as long as one call takes; the rest, "": nothing. */
static const char *piece_of(const char *path, char piece[PATH_MAX])
{
	size_t len = strnlen(path, PATH_MAX);

	if (len == PATH_MAX)
		while (--len && path[len] != '/')
			;
	memcpy(piece, path, len);
	piece[len] = '\0';
	return path[len] ? path + len + 1 : path + len;
}

/* A path that is too long for one call. After its first piece no link is followed: inside the root each
 * of them would have to begin there again. */
static int open_far(const struct worker *w, const char *path, int flags, mode_t mode)
{
	_cleanup_close_ int dir = -1;
	char piece[PATH_MAX];

	do {
		const char *rest = piece_of(path, piece);
		int fd = open_at(dir < 0 ? w->root_fd : dir, piece, *rest ? O_PATH | O_DIRECTORY : flags, mode,
			dir < 0 ? RESOLVE_IN_ROOT : RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);

		if (fd < 0 || !*rest)
			return piece[0] ? fd : -ENAMETOOLONG;
		if (dir >= 0)
			close(dir);
		dir = fd;
		path = rest;
	} while (1);
}

int path_open(const struct worker *w, const char *path, int flags, mode_t mode)
{
	return strlen(path) < PATH_MAX ? open_at(w->root_fd, path, flags, mode, RESOLVE_IN_ROOT)
				       : open_far(w, path, flags, mode);
}

int path_parent(const struct worker *w, const char *path, const char **ret_last)
{
	char dir[FS_PATH_MAX];
	const char *slash = strrchr(path, '/');

	if (!slash || !slash[1])
		return -EBUSY; /* the root has no parent and never changes */
	if (strlen(slash + 1) > 255)
		return -ENAMETOOLONG;
	memcpy(dir, path, (size_t)(slash - path));
	dir[slash - path] = '\0';
	*ret_last = slash + 1;
	return path_open(w, dir[0] ? dir : "/", O_PATH | O_DIRECTORY, 0);
}

int path_check_type(int fd, bool dir_ok)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (S_ISREG(st.st_mode) || (dir_ok && S_ISDIR(st.st_mode)))
		return 0;
	if (S_ISLNK(st.st_mode))
		return -ELOOP;
	return S_ISDIR(st.st_mode) ? -EISDIR : -FILES_E_NOTREG;
}

/* A file of procfs that the sandbox may not see has an empty read-only one mounted on it. */
static bool is_mask(int fd, const struct statfs *fs)
{
	return ((unsigned long)fs->f_type & 0xffffffffUL) == TMPFS_MAGIC &&
	       (fs->f_flags & ST_RDONLY) && path_check_type(fd, false) == 0 &&
	       attr_is_mount_root(fd);
}

int path_check_fs(int fd)
{
	static const unsigned long refused[] = {
		PROC_SUPER_MAGIC,
		SYSFS_MAGIC,
		DEVPTS_SUPER_MAGIC,
		CGROUP_SUPER_MAGIC,
		CGROUP2_SUPER_MAGIC,
		MQUEUE_MAGIC,
		DEBUGFS_MAGIC,
		TRACEFS_MAGIC,
		SECURITYFS_MAGIC,
		BPF_FS_MAGIC,
		NSFS_MAGIC,
		PIPEFS_MAGIC,
		SOCKFS_MAGIC,
		BINFMTFS_MAGIC,
		SELINUX_MAGIC,
	};
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return -errno;
	for (size_t i = 0; i < ARRAY_LEN(refused); i++)
		if (((unsigned long)fs.f_type & 0xffffffffUL) == refused[i])
			return -FILES_E_REFUSED;
	return is_mask(fd, &fs) ? -FILES_E_REFUSED : 0;
}

static int check_data(int fd, bool dir_ok)
{
	int r = path_check_type(fd, dir_ok);

	/* The file system says more than the type: /proc/kmsg looks like a regular file. */
	if (r == 0 || r == -FILES_E_NOTREG) {
		int f = path_check_fs(fd);
		r = f < 0 ? f : r;
	}
	return r;
}

int path_open_data(const struct worker *w, const char *path, int flags, bool follow, bool dir_ok)
{
	int nofollow = follow ? 0 : O_NOFOLLOW;
	_cleanup_close_ int p = path_open(w, path, O_PATH | nofollow, 0);
	int r;

	if (p < 0)
		return p;
	r = check_data(p, dir_ok);
	if (r < 0)
		return r;
	_cleanup_close_ int fd = path_open(w, path, flags | nofollow | O_NONBLOCK | O_NOCTTY, 0);
	if (fd < 0)
		return fd == -ENXIO ? -FILES_E_NOTREG : fd;
	r = check_data(fd, dir_ok);
	return r < 0 ? r : steal_fd(&fd);
}

/* Gives what we have just made to the sandbox's user, where the kernel did not do so already. A
 * directory with the set-group bit has chosen the group. */
int path_own_new(const struct worker *w, int dirfd, const char *name, int fd)
{
	struct stat st;
	gid_t gid = w->gid;

	if (w->by_fsid || w->fake)
		return 0;
	if (dirfd >= 0 && fstat(dirfd, &st) == 0 && (st.st_mode & S_ISGID))
		gid = (gid_t)-1;
	if (fd >= 0)
		return fchown(fd, w->uid, gid) < 0 ? -errno : 0;
	return fchownat(dirfd, name, w->uid, gid, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

static int mkdir_one(const struct worker *w, const char *dir)
{
	const char *last;
	_cleanup_close_ int parent = path_parent(w, dir, &last);
	int r;

	if (parent < 0)
		return parent;
	r = path_check_fs(parent);
	if (r < 0)
		return r;
	if (mkdirat(parent, last, 0755) < 0)
		return errno == EEXIST ? 0 : -errno;
	return path_own_new(w, parent, last, -1);
}

int path_mkdirs(const struct worker *w, const char *dir)
{
	char part[FS_PATH_MAX];
	size_t len = strlen(dir);

	memcpy(part, dir, len + 1);
	for (size_t i = 1; i <= len; i++) {
		if (part[i] != '/' && part[i] != '\0')
			continue;
		char keep = part[i];
		part[i] = '\0';
		int fd = path_open(w, part, O_PATH | O_DIRECTORY, 0);
		if (fd == -ENOENT) {
			int r = mkdir_one(w, part);
			if (r < 0)
				return r;
			fd = path_open(w, part, O_PATH | O_DIRECTORY, 0);
		}
		if (fd < 0)
			return fd;
		close(fd);
		part[i] = keep;
	}
	return 0;
}
