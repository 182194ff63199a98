/* SPDX-License-Identifier: MIT */
#include "common/sys/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEPTH_MAX 64

static DIR *open_dir(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (fd >= 0 && !d)
		close(fd);
	return d;
}

static int is_entry(const struct dirent *de)
{
	return strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0;
}

/* Of a tree that is to go: what is mounted in it is somebody else's. */
static DIR *open_here(int parent, const char *name)
{
	struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV };
	int fd = (int)syscall(SYS_openat2, parent, name, &how, sizeof(how));
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (fd >= 0 && !d)
		close(fd);
	return d;
}

/* A guest may make folders in folders without end. Each level that is gone down costs a descriptor, so what lies
 * too deep is moved up, beside the tree, and removed from there. A sweep knows the name, should we end before. */
struct removal {
	int top;
	unsigned moved;
};

static void name_moved(char name[32], unsigned i)
{
	snprintf(name, 32, ".deep-%u.tmp", i);
}

static int move_up(struct removal *m, int parent, const char *name)
{
	char to[32];
	int r;

	do
		name_moved(to, m->moved++);
	while ((r = (int)syscall(SYS_renameat2, parent, name, m->top, to, 1u /* RENAME_NOREPLACE */)) < 0 &&
		errno == EEXIST);
	return r < 0 ? -errno : 0;
}

/* A folder of ours that we may not open. Its descriptor gives no right to change it but by this name. */
static int open_up(int parent, const char *name)
{
	int fd = openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), r;
	char path[40];

	if (fd < 0)
		return -errno;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	r = chmod(path, 0700) < 0 ? -errno : 0;
	close(fd);
	return r;
}

/* With the right to read it, and to take names out of it. */
static DIR *open_to_empty(int parent, const char *name)
{
	DIR *d = open_here(parent, name);
	struct stat st;

	if (!d && errno == EACCES && open_up(parent, name) == 0)
		d = open_here(parent, name);
	if (d && fstat(dirfd(d), &st) == 0 && (st.st_mode & 0700) != 0700)
		(void)fchmod(dirfd(d), 0700);
	return d;
}

static int remove_at(struct removal *m, int parent, const char *name, int depth)
{
	const struct dirent *de;
	int r = 0, one;
	DIR *d;

	if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	if (depth == DEPTH_MAX) {
		r = move_up(m, parent, name);
		return r == -EACCES && open_up(parent, name) == 0 ? move_up(m, parent, name) : r;
	}
	d = open_to_empty(parent, name);
	if (!d)
		return errno == ENOENT ? 0 : -errno; /* another removes it, too */
	while ((de = readdir(d)))
		if (is_entry(de) && (one = remove_at(m, dirfd(d), de->d_name, depth + 1)) < 0 &&
			r == 0)
			r = one;
	closedir(d);
	if (unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT && r == 0)
		r = -errno;
	return r;
}

int tree_remove(int parent, const char *name)
{
	struct removal m = { .top = parent };
	int r = remove_at(&m, parent, name, 0), one;
	char moved[32];

	for (unsigned i = 0; i < m.moved; i++) {
		name_moved(moved, i);
		if ((one = remove_at(&m, parent, moved, 0)) < 0 && r == 0)
			r = one;
	}
	return r;
}

static int64_t not_seen(bool is_there, int *left)
{
	if (is_there)
		*left = -1;
	return 0;
}

/* *left: entries that may come; below 0 nothing more is looked at. What is closed to us, or too deep, may hold any
 * number. */
static int64_t size_at(int parent, const char *name, int depth, int *left)
{
	const struct dirent *de;
	int64_t sum = 0;
	struct stat st;
	DIR *d;

	if (--*left < 0)
		return 0;
	if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return not_seen(errno == EACCES, left);
	if (!S_ISDIR(st.st_mode))
		return S_ISREG(st.st_mode) ? st.st_size : 0;
	d = depth == DEPTH_MAX ? NULL : open_dir(parent, name);
	if (!d)
		return not_seen(depth == DEPTH_MAX || errno == EACCES, left);
	while (*left >= 0 && (de = readdir(d)))
		if (is_entry(de) && __builtin_add_overflow(sum, size_at(dirfd(d), de->d_name, depth + 1, left), &sum))
			*left = -1;
	closedir(d);
	return sum;
}

int64_t tree_size(int parent, const char *name, int most)
{
	int64_t sum = size_at(parent, name, 0, &most);

	return most < 0 ? INT64_MAX : sum;
}
