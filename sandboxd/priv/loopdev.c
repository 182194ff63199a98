/* SPDX-License-Identifier: MIT */
#include "sandboxd/priv/loopdev.h"

#include "common/sys/mem.h"

#include <dirent.h>
#include <linux/loop.h>
#include <linux/mount.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define BLOCK 4096

static int open_number(long n, char path[LOOPDEV_PATH_MAX])
{
	int fd;

	snprintf(path, LOOPDEV_PATH_MAX, "/dev/loop%ld", n);
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0 || errno != ENOENT)
		return fd < 0 ? -errno : fd;
	/* No devtmpfs: this mount namespace is the broker's own, so is what appears here. */
	if (mknod(path, S_IFBLK | 0600, makedev(7, (unsigned int)n)) < 0 && errno != EEXIST)
		return -errno;
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

/* A free device may be gone by the time it is used: others look for one at the same time. */
int loopdev_attach(int image, char path[LOOPDEV_PATH_MAX], struct fail *f)
{
	struct loop_config c = { .fd = (uint32_t)image,
		.block_size = BLOCK,
		.info = { .lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO } };
	_cleanup_close_ int ctl = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

	if (ctl < 0)
		return fail_set(f, errno, "open /dev/loop-control");
	for (int tries = 0; tries < 200; tries++) {
		long n = ioctl(ctl, LOOP_CTL_GET_FREE);
		if (n < 0)
			return fail_set(f, errno, "find a free loop device");
		int fd = open_number(n, path);
		if (fd < 0)
			return fail_set(f, fd, "open %s", path);
		if (ioctl(fd, LOOP_CONFIGURE, &c) == 0)
			return fd;
		int sys = errno;
		close(fd);
		if (sys != EBUSY)
			return fail_set(f, sys, "attach %s", path);
	}
	return fail_set(f, EBUSY, "find a free loop device");
}

/* Looks at the file's name first: only a device that may be ours is opened. */
static bool may_carry(int block, const char *dev, const char *name)
{
	char path[64], file[4096];
	size_t n, m = strlen(name);

	snprintf(path, sizeof(path), "%.31s/loop/backing_file", dev);
	if (file_read(block, path, file, sizeof(file)) < 0)
		return false;
	n = strlen(file);
	return n > m && file[n - m - 1] == '/' && strcmp(file + n - m, name) == 0;
}

/* Held open first and looked at then: it cannot clear itself in between. */
static int open_if_same(const char *dev, const struct stat *image, char path[LOOPDEV_PATH_MAX])
{
	struct loop_info64 info;
	int fd = open_number(strtol(dev + 4, NULL, 10), path);

	if (fd < 0)
		return fd;
	if (ioctl(fd, LOOP_GET_STATUS64, &info) == 0 && info.lo_inode == image->st_ino &&
		info.lo_device == image->st_dev)
		return fd;
	close(fd);
	return -ENOENT;
}

int loopdev_find(int image, const char *name, char path[LOOPDEV_PATH_MAX])
{
	_cleanup_dir_ DIR *d = dir_read(AT_FDCWD, "/sys/block");
	int fd = -ENOENT;
	struct dirent *de;
	struct stat st;

	if (!d || fstat(image, &st) < 0)
		return -errno;
	while (fd < 0 && (de = readdir(d)))
		if (strncmp(de->d_name, "loop", 4) == 0 && may_carry(dirfd(d), de->d_name, name))
			fd = open_if_same(de->d_name, &st, path);
	return fd;
}

int loopdev_get(int image, const char *name, char path[LOOPDEV_PATH_MAX], struct fail *f)
{
	int fd;

	/* One file system on two devices would be destroyed. */
	if (flock(image, LOCK_EX) < 0)
		return fail_set(f, errno, "lock %s", name);
	fd = loopdev_find(image, name, path);
	if (fd < 0)
		fd = loopdev_attach(image, path, f);
	(void)flock(image, LOCK_UN);
	return fd;
}

int loopdev_mount(const char *type, const char *path, const char *const *flags, struct fail *f)
{
	_cleanup_close_ int fs = fsopen(type, FSOPEN_CLOEXEC);
	int mnt;

	if (fs < 0)
		return fail_set(f, errno, "open the file system %s", type);
	if (fsconfig(fs, FSCONFIG_SET_STRING, "source", path, 0) < 0)
		return fail_set(f, errno, "name the device %s", path);
	for (; flags && *flags; flags++)
		if (fsconfig(fs, FSCONFIG_SET_FLAG, *flags, NULL, 0) < 0)
			return fail_set(f, errno, "set the mount option %s", *flags);
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return fail_set(f, errno, "mount %s", path);
	mnt = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	return mnt < 0 ? fail_set(f, errno, "mount %s", path) : mnt;
}
