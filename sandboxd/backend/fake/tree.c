/* SPDX-License-Identifier: MIT */
/* The folder that plays the guest's root. */
#include "sandboxd/backend/fake/fake.h"

#include "common/sys/fd.h"
#include "common/sys/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
	const char *name;
	mode_t mode;
} folders[] = {
	{ "etc", 0755 },
	{ "sandbox", 0755 },
	{ "sandbox/home", 0755 },
	{ "tmp", 01777 },
};
static const struct {
	const char *name, *text;
} files[] = {
	{ "etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"
			"sandbox:x:1001:1001:sandbox:/sandbox/home:/bin/sh\n" },
	{ "etc/group", "root:x:0:\nsandbox:x:1001:\n" },
	{ "etc/hosts", "127.0.0.1 localhost\n" },
};

static int put_file(int root, const char *name, const char *text, size_t len)
{
	_cleanup_close_ int fd =
		openat(root, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);

	return fd < 0 ? -errno : fd_write_full(fd, text, len);
}

static int fill(int root, const char *hostname)
{
	char line[128];
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(folders); i++)
		/* chmod, because the umask may be anything */
		if (mkdirat(root, folders[i].name, 0700) < 0 ||
		    fchmodat(root, folders[i].name, folders[i].mode, 0) < 0)
			return -errno;
	for (size_t i = 0; i < ARRAY_LEN(files) && r == 0; i++)
		r = put_file(root, files[i].name, files[i].text, strlen(files[i].text));
	if (r < 0)
		return r;
	snprintf(line, sizeof(line), "%s\n", hostname);
	return put_file(root, "etc/hostname", line, strlen(line));
}

int tree_make(int dirfd, const char *name, const char *hostname, int *ret_root_fd, struct err *e)
{
	if (mkdirat(dirfd, name, 0755) < 0)
		return err_sys(e, errno, "folder of sandbox %s", name);
	_cleanup_close_ int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r = fd < 0 ? -errno : fill(fd, hostname);
	if (r < 0) {
		(void)fake_tree_remove(dirfd, name);
		return err_sys(e, -r, "folder of sandbox %s", name);
	}
	*ret_root_fd = steal_fd(&fd);
	return 0;
}

/* Depth is not bounded by the stack's comfort but by descriptors: the guest may nest as it likes, so
 * a folder that is too deep is moved up to the top and emptied there. */
#define DEPTH_MAX 64

static int empty(int fd, int top, unsigned depth);

static int remove_entry(int dirfd, const char *name, int top, unsigned depth)
{
	char up[64];

	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM && errno != EACCES)
		return -errno;
	if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0)
		return 0;
	if (depth >= DEPTH_MAX) {
		static unsigned long counter;
		snprintf(up, sizeof(up), ".deep-%lu",
			__atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED));
		return renameat(dirfd, name, top, up) < 0 ? -errno : 0;
	}
	(void)!fchmodat(dirfd, name, 0700, AT_SYMLINK_NOFOLLOW);
	_cleanup_close_ int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	(void)!fchmod(fd, 0700);
	int r = empty(fd, top, depth + 1);
	if (unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && r == 0)
		r = errno == ENOENT ? 0 : -errno;
	return r;
}

static int empty_once(DIR *d, int fd, int top, unsigned depth, bool *ret_any)
{
	struct dirent *de;
	int first = 0;

	*ret_any = false;
	rewinddir(d);
	while ((de = readdir(d))) {
		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		int r = remove_entry(fd, de->d_name, top, depth);
		*ret_any |= r == 0;
		if (r < 0 && !first)
			first = r;
	}
	return first;
}

static int empty(int fd, int top, unsigned depth)
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = copy < 0 ? NULL : fdopendir(copy);
	bool any;
	int r;

	if (!d) {
		close_p(&copy);
		return -errno;
	}
	/* Again while something could be removed: reading while removing may skip entries, and deep
	 * folders come up while we go. */
	do
		r = empty_once(d, fd, top, depth, &any);
	while (any);
	closedir(d);
	return r;
}

int fake_tree_remove(int dirfd, const char *name)
{
	_cleanup_close_ int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	int r = empty(fd, fd, 0);
	if (unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && r == 0)
		r = -errno;
	return r;
}
