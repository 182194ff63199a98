/* SPDX-License-Identifier: MIT */
/* The loop provider: one sparse ext4 image per area. mke2fs runs once for every size; an area is a
 * sparse copy of that template, so making one costs a few small writes. The device clears itself
 * when the last mount goes, so nothing is left to detach. */
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/priv/area.h"
#include "sandboxd/priv/loopdev.h"

#include <linux/fs.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define FEATURES        "^resize_inode,sparse_super2,uninit_bg,extent,flex_bg"
#define VOLUME_FEATURES "has_journal," FEATURES
#define JOURNAL_MB      8 /* beside what a volume holds */
#define TEMPLATE_MAX_MB (16 * 1024 * 1024)

/* A sandbox's own disk is of no use after a power loss and does without a journal. skel: a folder
 * whose content is put into it. */
static int mke2fs(const char *path, const char *skel, const struct area_spec *a, struct fail *f)
{
	int64_t disk_mb = a->disk_mb;
	int64_t inodes = disk_mb * 16 < 16384 ? 16384 : disk_mb * 16;
	char count[24], *env[] = { (char[]){ "PATH=/usr/sbin:/sbin:/usr/bin:/bin" }, NULL };
	char *argv[] = { (char[]){ "mke2fs" }, (char[]){ "-q" }, (char[]){ "-F" }, (char[]){ "-t" },
		(char[]){ "ext4" }, (char[]){ "-b" }, (char[]){ "4096" }, (char[]){ "-m" },
		(char[]){ "0" }, (char[]){ "-N" }, count, (char[]){ "-O" },
		a->volume ? (char[]){ VOLUME_FEATURES } : (char[]){ "^has_journal," FEATURES },
		(char[]){ "-E" },
		(char[]){ "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0" },
		(char[]){ "-d" }, (char *)(size_t)skel, (char *)(size_t)path,
		a->volume ? (char[]){ "-J" } : NULL, (char[]){ "size=8" /* JOURNAL_MB */ }, NULL };
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

/* The overlay's folders: made once here, not for every sandbox. */
static int make_skeleton(const struct area_store *s, const char *name, bool volume)
{
	int dir = dir_make(s->templates, name, 0700), r = 0;

	if (dir < 0 || volume)
		return dir;
	if ((mkdirat(dir, "upper", 0755) < 0 && errno != EEXIST) ||
		(mkdirat(dir, "work", 0700) < 0 && errno != EEXIST) ||
		fchmodat(dir, "upper", 0755, 0) < 0)
		r = -errno;
	if (r < 0)
		close(dir);
	return r < 0 ? r : dir;
}

static void drop_skeleton(const struct area_store *s, const char *name, int dir)
{
	(void)unlinkat(dir, "upper", AT_REMOVEDIR);
	(void)unlinkat(dir, "work", AT_REMOVEDIR);
	(void)unlinkat(s->templates, name, AT_REMOVEDIR);
}

static int make_template(
	const struct area_store *s, const char *name, const struct area_spec *a, struct fail *f)
{
	char tmp[64], dir[64], path[64], skel[64];
	int r;

	snprintf(tmp, sizeof(tmp), "%s.%d.tmp", name, (int)getpid());
	snprintf(dir, sizeof(dir), "%s.%d.dir", name, (int)getpid());
	_cleanup_close_ int fd =
		openat(s->templates, tmp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail_set(f, errno, "make an area template");
	_cleanup_close_ int from = make_skeleton(s, dir, a->volume);
	if (from < 0)
		r = fail_set(f, from, "make an area template");
	else if (ftruncate(fd, (a->disk_mb + (a->volume ? JOURNAL_MB : 0)) << 20) < 0)
		r = fail_set(f, errno, "size an area template");
	else {
		/* mke2fs gets the file by a name that is ours: /proc/<our pid>/fd/N. */
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), fd);
		snprintf(skel, sizeof(skel), "/proc/%d/fd/%d", (int)getpid(), from);
		r = mke2fs(path, skel, a, f);
	}
	if (from >= 0)
		drop_skeleton(s, dir, from);
	if (r == 0 && renameat(s->templates, tmp, s->templates, name) < 0)
		r = fail_set(f, errno, "name an area template");
	if (r < 0)
		(void)unlinkat(s->templates, tmp, 0);
	return r;
}

static int open_template(const struct area_store *s, const struct area_spec *a, struct fail *f)
{
	int64_t disk_mb = a->disk_mb;
	char name[40];
	int fd, r;

	if (disk_mb <= 0 || disk_mb > TEMPLATE_MAX_MB)
		return fail_set(f, EINVAL, "area of %lld MiB", (long long)disk_mb);
	snprintf(name, sizeof(name), "%s-%lld", a->volume ? "ext4j" : "area", (long long)disk_mb);
	fd = open_below(s->templates, name, O_RDONLY, 0);
	if (fd != -ENOENT)
		return fd < 0 ? fail_set(f, fd, "open an area template") : fd;
	r = make_template(s, name, a, f);
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

static const char *const ext4_flags[] = { "noinit_itable", "nodiscard", "noauto_da_alloc", NULL };

static int loop_make(
	const struct area_store *s, const struct area_spec *a, int *ret, struct fail *f)
{
	_cleanup_close_ int template = open_template(s, a, f);
	_cleanup_close_ int image = -1, loop = -1;
	char device[LOOPDEV_PATH_MAX];
	int r;

	if (template <0)
		return template;
	(void)unlinkat(s->areas, a->name, 0);
	image = openat(s->areas, a->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (image < 0)
		return fail_set(f, errno, "make the area's image");
	r = copy_sparse(template, image);
	if (r < 0)
		return fail_set(f, r, "copy the area's template");
	loop = loopdev_attach(image, device, f);
	if (loop < 0)
		return loop;
	*ret = loopdev_mount("ext4", device, ext4_flags, f);
	return *ret < 0 ? *ret : 0;
}

/* The super block that is in use, when there is one: the device that carries the image leads to it.
 */
static int loop_reopen(const struct area_store *s, const char *name, int *ret, struct fail *f)
{
	_cleanup_close_ int image = open_below(s->areas, name, O_RDWR, 0);
	_cleanup_close_ int loop = -1;
	char device[LOOPDEV_PATH_MAX];

	if (image < 0)
		return fail_set(f, image, "open the area %s", name);
	loop = loopdev_get(image, name, device, f);
	if (loop < 0)
		return loop;
	*ret = loopdev_mount("ext4", device, ext4_flags, f);
	return *ret < 0 ? *ret : 0;
}

static int loop_test(struct area_store *s, struct fail *f)
{
	_cleanup_close_ int mnt = -1;
	char name[40];
	struct area_spec a = { .name = name, .disk_mb = 64 };
	int r;

	snprintf(name, sizeof(name), "test-%d", (int)getpid());
	r = loop_make(s, &a, &mnt, f);
	(void)unlinkat(s->areas, name, 0);
	return r;
}

const struct area_provider area_loop = {
	.name = "loop",
	.automatic = true,
	.test = loop_test,
	.make = loop_make,
	.reopen = loop_reopen,
};
