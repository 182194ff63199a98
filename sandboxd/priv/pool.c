/* SPDX-License-Identifier: MIT */
#include "sandboxd/priv/pool.h"

#include "common/sys/mem.h"
#include "sandboxd/priv/btrfs.h"
#include "sandboxd/priv/loopdev.h"
#include "sandboxd/priv/root.h"

#include <linux/loop.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#define NAME     "pool.btrfs"
#define UNIT_MIN ((int64_t)256 << 20)
#define UNIT_MAX ((int64_t)2 << 30)
#define MB       (1 << 20)

/* What the host keeps for itself, whatever sandboxes write. */
static int64_t host_room(int dir, int64_t *total)
{
	struct statvfs st;
	int64_t keep, avail;

	if (fstatvfs(dir, &st) < 0)
		return 0;
	*total = (int64_t)((uint64_t)st.f_blocks * st.f_frsize);
	avail = (int64_t)((uint64_t)st.f_bavail * st.f_frsize);
	keep = *total / 20 < UNIT_MAX ? *total / 20 : UNIT_MAX;
	return avail - keep;
}

static int64_t unit_of(int dir)
{
	int64_t total = 0, unit;

	(void)host_room(dir, &total);
	unit = total / 32 / MB * MB;
	return unit < UNIT_MIN ? UNIT_MIN : unit > UNIT_MAX ? UNIT_MAX : unit;
}

/* One copy of the tables: below lies the host's file system, and what a power loss may do to them
 * is what copy on write is for. */
static int mkfs(const char *path, struct fail *f)
{
	char *env[] = { (char[]){ "PATH=/usr/sbin:/sbin:/usr/bin:/bin" }, NULL };
	char *argv[] = { (char[]){ "mkfs.btrfs" }, (char[]){ "-q" }, (char[]){ "-f" },
		(char[]){ "-K" }, (char[]){ "-m" }, (char[]){ "single" }, (char[]){ "-d" },
		(char[]){ "single" }, (char[]){ "-L" }, (char[]){ "sandboxd" },
		(char *)(size_t)path, NULL };
	posix_spawn_file_actions_t quiet;
	pid_t pid;
	int status, r;

	posix_spawn_file_actions_init(&quiet);
	posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	r = posix_spawnp(&pid, "mkfs.btrfs", &quiet, NULL, argv, env);
	posix_spawn_file_actions_destroy(&quiet);
	if (r != 0)
		return fail_set(f, r, "start mkfs.btrfs (package btrfs-progs)");
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return fail_set(f, EIO, "mkfs.btrfs exited with status %d", status);
	return 0;
}

static int fill_image(int fd, int64_t size, struct fail *f)
{
	char path[64];

	if (fallocate(fd, 0, 0, size) < 0)
		return fail_set(f, errno, "reserve %lld MiB for the pool", (long long)(size / MB));
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), fd);
	return mkfs(path, f);
}

static int make_image(struct area_store *s, struct fail *f)
{
	const char *tmp = "." NAME ".tmp";
	int64_t total, room = host_room(s->priv, &total), size = 2 * s->unit;
	int r;

	if (size > room)
		size = room / MB * MB;
	if (size < UNIT_MIN / 2)
		return fail_set(f, ENOSPC, "reserve space for the pool");
	(void)unlinkat(s->priv, tmp, 0);
	_cleanup_close_ int fd =
		openat(s->priv, tmp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail_set(f, errno, "make the pool");
	r = fill_image(fd, size, f);
	if (r == 0 && fsync(fd) < 0)
		r = fail_set(f, errno, "sync the pool");
	if (r == 0 && renameat(s->priv, tmp, s->priv, NAME) < 0)
		r = fail_set(f, errno, "name the pool");
	if (r < 0)
		(void)unlinkat(s->priv, tmp, 0);
	else
		(void)fsync(s->priv);
	return r;
}

bool pool_exists(int priv)
{
	return faccessat(priv, NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int open_image(struct area_store *s, struct fail *f)
{
	int r;

	s->image = open_below(s->priv, NAME, O_RDWR, 0);
	if (s->image == -ENOENT) {
		r = make_image(s, f);
		if (r < 0)
			return r;
		s->image = open_below(s->priv, NAME, O_RDWR, 0);
	}
	return s->image < 0 ? fail_set(f, s->image, "open priv/" NAME) : 0;
}

/* Without sums of the data, which the host's file system below does not have either, a file cannot be compressed: a
 * guest could ask for that with an attribute, and the kernel would do it in threads that no limit counts. */
static int mount_pool(struct area_store *s, const char *device, struct fail *f)
{
	static const char *const flags[] = { "nodiscard", "nodatasum", NULL };
	_cleanup_close_ int dir = dir_make(s->priv, "pool", 0700);
	_cleanup_close_ int mnt = dir < 0 ? fail_set(f, dir, "make priv/pool")
					  : loopdev_mount("btrfs", device, flags, f);
	int r;

	if (mnt < 0)
		return mnt;
	r = root_move_onto(mnt, dir);
	if (r < 0)
		return fail_set(f, r, "mount priv/pool");
	s->pool = openat(mnt, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return s->pool < 0 ? fail_set(f, errno, "open the pool") : 0;
}

int pool_open(struct area_store *s, struct fail *f)
{
	char device[LOOPDEV_PATH_MAX];
	int r;

	s->unit = unit_of(s->priv);
	r = open_image(s, f);
	if (r < 0)
		return r;
	s->loop = loopdev_get(s->image, NAME, device, f);
	if (s->loop < 0)
		return s->loop;
	r = mount_pool(s, device, NULL);
	if (r == -EINVAL && btrfs_mend_super(s->loop) == 1)
		fprintf(stderr, "<warn> sbx-priv: the first superblock of priv/" NAME
				" was half written, and is made whole from its copy\n");
	if (r < 0)
		r = mount_pool(s, device, f);
	if (r < 0)
		return r;
	/* A step of growth that was cut short is finished. */
	(void)ioctl(s->loop, LOOP_SET_CAPACITY, 0);
	(void)btrfs_resize_max(s->pool);
	return 0;
}

void pool_close(struct area_store *s, bool forget)
{
	if (s->pool >= 0) {
		close(s->pool);
		s->pool = open_below(s->priv, "pool", O_PATH | O_DIRECTORY, 0);
		if (s->pool >= 0 && fchdir(s->pool) == 0)
			(void)umount2(".", MNT_DETACH);
		(void)!chdir("/");
	}
	close_p(&s->pool);
	close_p(&s->loop);
	close_p(&s->image);
	s->pool = s->loop = s->image = -1;
	if (forget)
		(void)unlinkat(s->priv, NAME, 0);
}

enum pool_state pool_look(const struct area_store *s, int64_t *left)
{
	int64_t unallocated = s->unit, avail;
	struct statvfs st;

	*left = 0;
	if (s->image < 0 || fstatvfs(s->pool, &st) < 0)
		return POOL_FINE;
	avail = *left = (int64_t)((uint64_t)st.f_bavail * st.f_frsize);
	(void)btrfs_unallocated(s->pool, &unallocated);
	/* Its tables need room, too, that no file holds. */
	if (avail >= s->unit && unallocated >= s->unit / 8)
		return POOL_FINE;
	return avail < s->unit / 2 || unallocated < s->unit / 16 ? POOL_URGENT : POOL_LOW;
}

bool pool_may_grow(const struct area_store *s)
{
	int64_t total;

	return host_room(s->priv, &total) >= UNIT_MIN / 4;
}

int pool_reclaim(const struct area_store *s)
{
	return btrfs_sync(s->pool);
}

int pool_grow(const struct area_store *s, struct fail *f)
{
	int64_t total, room = host_room(s->priv, &total), step = s->unit;
	struct stat st;
	int r;

	if (step > room)
		step = room / MB * MB;
	if (step <= 0)
		return fail_set(f, ENOSPC, "grow the pool");
	if (fstat(s->image, &st) < 0 || fallocate(s->image, 0, st.st_size, step) < 0)
		return fail_set(f, errno, "grow the pool");
	if (fsync(s->image) < 0) /* no table may speak of space that a power loss takes back */
		return fail_set(f, errno, "sync the pool");
	if (ioctl(s->loop, LOOP_SET_CAPACITY, 0) < 0)
		return fail_set(f, errno, "grow the pool's device");
	r = btrfs_resize_max(s->pool);
	return r < 0 ? fail_set(f, r, "grow the pool's file system") : 0;
}
