/* SPDX-License-Identifier: MIT */
/* The loop provider: one sparse ext4 image per area. mke2fs runs once for every size; an area is a
 * sparse copy of that template, so making one costs a few small writes. The device clears itself
 * when the last mount goes, so nothing is left to detach. */
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/priv/area.h"

#include <linux/fs.h>
#include <linux/loop.h>
#include <linux/mount.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#define BLOCK           4096
#define TEMPLATE_MAX_MB (16 * 1024 * 1024)

static int mke2fs(const char *path, int64_t disk_mb, struct fail *f)
{
	int64_t inodes = disk_mb * 16 < 16384 ? 16384 : disk_mb * 16;
	char count[24], *env[] = { (char[]){ "PATH=/usr/sbin:/sbin:/usr/bin:/bin" }, NULL };
	char *argv[] = { (char[]){ "mke2fs" }, (char[]){ "-q" }, (char[]){ "-F" }, (char[]){ "-t" },
		(char[]){ "ext4" }, (char[]){ "-b" }, (char[]){ "4096" }, (char[]){ "-m" },
		(char[]){ "0" }, (char[]){ "-N" }, count, (char[]){ "-O" },
		(char[]){ "^has_journal,^resize_inode,sparse_super2,uninit_bg,extent,flex_bg" },
		(char[]){ "-E" }, (char[]){ "lazy_itable_init=1,nodiscard,root_owner=0:0" },
		(char *)(size_t)path, NULL };
	pid_t pid;
	int status, r;

	snprintf(count, sizeof(count), "%lld", (long long)(inodes > 1 << 22 ? 1 << 22 : inodes));
	r = posix_spawnp(&pid, "mke2fs", NULL, NULL, argv, env);
	if (r != 0)
		return fail_set(f, r, "start mke2fs (package e2fsprogs)");
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return fail_set(f, EIO, "mke2fs exited with status %d", status);
	return 0;
}

static int make_template(
	const struct area_store *s, const char *name, int64_t disk_mb, struct fail *f)
{
	char tmp[64], path[64];
	int r;

	snprintf(tmp, sizeof(tmp), "%s.%d.tmp", name, (int)getpid());
	_cleanup_close_ int fd =
		openat(s->templates, tmp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail_set(f, errno, "make an area template");
	if (ftruncate(fd, disk_mb << 20) < 0)
		r = fail_set(f, errno, "size an area template");
	else {
		/* mke2fs gets the file by a name that is ours: /proc/<our pid>/fd/N. */
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), fd);
		r = mke2fs(path, disk_mb, f);
	}
	if (r == 0 && renameat(s->templates, tmp, s->templates, name) < 0)
		r = fail_set(f, errno, "name an area template");
	if (r < 0)
		(void)unlinkat(s->templates, tmp, 0);
	return r;
}

static int open_template(const struct area_store *s, int64_t disk_mb, struct fail *f)
{
	char name[40];
	int fd, r;

	if (disk_mb <= 0 || disk_mb > TEMPLATE_MAX_MB)
		return fail_set(f, EINVAL, "area of %lld MiB", (long long)disk_mb);
	snprintf(name, sizeof(name), "ext4-%lld", (long long)disk_mb);
	fd = open_below(s->templates, name, O_RDONLY, 0);
	if (fd != -ENOENT)
		return fd < 0 ? fail_set(f, fd, "open an area template") : fd;
	r = make_template(s, name, disk_mb, f);
	if (r < 0)
		return r;
	fd = open_below(s->templates, name, O_RDONLY, 0);
	return fd < 0 ? fail_set(f, fd, "open an area template") : fd;
}

static int copy_range(int from, int to, off_t pos, off_t end)
{
	char buf[16384];

	while (pos < end) {
		size_t want = end - pos < (off_t)sizeof(buf) ? (size_t)(end - pos) : sizeof(buf);
		ssize_t n = pread(from, buf, want, pos);
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		if (pwrite(to, buf, (size_t)n, pos) != n)
			return errno ? -errno : -EIO;
		pos += n;
	}
	return 0;
}

static int copy_sparse(int from, int to)
{
	off_t size = lseek(from, 0, SEEK_END), pos = 0;
	int r = 0;

	if (ioctl(to, FICLONE, from) == 0)
		return 0;
	if (ftruncate(to, size) < 0)
		return -errno;
	while (r == 0 && (pos = lseek(from, pos, SEEK_DATA)) >= 0 && pos < size) {
		off_t end = lseek(from, pos, SEEK_HOLE);
		r = copy_range(from, to, pos, end);
		pos = end;
	}
	return r;
}

static int open_loop(long n)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/dev/loop%ld", n);
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0 || errno != ENOENT)
		return fd < 0 ? -errno : fd;
	/* No devtmpfs: this mount namespace is the broker's own, so is what appears here. */
	if (mknod(path, S_IFBLK | 0600, makedev(7, (unsigned int)n)) < 0 && errno != EEXIST)
		return -errno;
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

/* Attaches to a free device; others are looking for one at the same time. */
static int attach(int image, long *num, struct fail *f)
{
	struct loop_config c = { .fd = (uint32_t)image,
		.block_size = BLOCK,
		.info = { .lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO } };
	_cleanup_close_ int ctl = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

	if (ctl < 0)
		return fail_set(f, errno, "open /dev/loop-control");
	for (int tries = 0; tries < 200; tries++) {
		*num = ioctl(ctl, LOOP_CTL_GET_FREE);
		if (*num < 0)
			return fail_set(f, errno, "find a free loop device");
		int fd = open_loop(*num);
		if (fd < 0)
			return fail_set(f, fd, "open /dev/loop%ld", *num);
		if (ioctl(fd, LOOP_CONFIGURE, &c) == 0)
			return fd;
		int sys = errno;
		close(fd);
		if (sys != EBUSY)
			return fail_set(f, sys, "attach /dev/loop%ld", *num);
	}
	return fail_set(f, EBUSY, "find a free loop device");
}

static int mount_ext4(const char *device, int *ret, struct fail *f)
{
	static const char *const flags[] = { "noinit_itable", "nodiscard", "noauto_da_alloc" };
	_cleanup_close_ int fs = fsopen("ext4", FSOPEN_CLOEXEC);

	if (fs < 0)
		return fail_set(f, errno, "open the file system ext4");
	if (fsconfig(fs, FSCONFIG_SET_STRING, "source", device, 0) < 0)
		return fail_set(f, errno, "name the area's device");
	for (size_t i = 0; i < ARRAY_LEN(flags); i++)
		if (fsconfig(fs, FSCONFIG_SET_FLAG, flags[i], NULL, 0) < 0)
			return fail_set(f, errno, "set the mount option %s", flags[i]);
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return fail_set(f, errno, "mount the area");
	*ret = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	return *ret < 0 ? fail_set(f, errno, "mount the area") : 0;
}

static int loop_make(const struct area_store *s, const char *name, int64_t disk_mb, uint32_t num,
	int *ret, struct fail *f)
{
	_cleanup_close_ int template = open_template(s, disk_mb, f);
	_cleanup_close_ int image = -1, loop = -1;
	char device[32];
	long n = -1;
	int r;

	(void)num;
	if (template <0)
		return template;
	(void)unlinkat(s->areas, name, 0);
	image = openat(s->areas, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (image < 0)
		return fail_set(f, errno, "make the area's image");
	r = copy_sparse(template, image);
	if (r < 0)
		return fail_set(f, r, "copy the area's template");
	loop = attach(image, &n, f);
	if (loop < 0)
		return loop;
	snprintf(device, sizeof(device), "/dev/loop%ld", n);
	return mount_ext4(device, ret, f);
}

static int loop_test(struct area_store *s, struct fail *f)
{
	_cleanup_close_ int mnt = -1;
	char name[40];
	int r;

	snprintf(name, sizeof(name), "test-%d", (int)getpid());
	r = loop_make(s, name, 64, 0, &mnt, f);
	(void)unlinkat(s->areas, name, 0);
	return r;
}

const struct area_provider area_loop = { "loop", 1, loop_test, loop_make };
