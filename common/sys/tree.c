/* SPDX-License-Identifier: MIT */
#include "common/sys/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
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

static int remove_at(int parent, const char *name, int depth)
{
	const struct dirent *de;
	int r = 0, one;
	DIR *d;

	if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	if (depth == DEPTH_MAX)
		return -ELOOP;
	d = open_dir(parent, name);
	if (!d)
		return -errno;
	while ((de = readdir(d)))
		if (is_entry(de) && (one = remove_at(dirfd(d), de->d_name, depth + 1)) < 0 &&
			r == 0)
			r = one;
	closedir(d);
	if (unlinkat(parent, name, AT_REMOVEDIR) < 0 && r == 0)
		r = -errno;
	return r;
}

int tree_remove(int parent, const char *name)
{
	return remove_at(parent, name, 0);
}

static int64_t size_at(int parent, const char *name, int depth)
{
	const struct dirent *de;
	int64_t sum = 0;
	struct stat st;
	DIR *d;

	if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (S_ISREG(st.st_mode))
		return st.st_size;
	if (!S_ISDIR(st.st_mode) || depth == DEPTH_MAX || !(d = open_dir(parent, name)))
		return 0;
	while ((de = readdir(d)))
		if (is_entry(de))
			sum += size_at(dirfd(d), de->d_name, depth + 1);
	closedir(d);
	return sum;
}

int64_t tree_size(int parent, const char *name)
{
	return size_at(parent, name, 0);
}
