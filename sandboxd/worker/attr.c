/* SPDX-License-Identifier: MIT */
/* Attributes as they go over the wire, and the version of a file's content. The version is a mix of
 * inode, birth time, change time and size. Change times may be as coarse as a timer tick, so a file
 * that changed within the last ticks gets a version that never comes again: a reader then takes a
 * changed file for changed, at the price of sometimes taking an unchanged one for changed. */
#include "sandboxd/worker/state.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#define UNSETTLED_NS 12000000 /* more than a tick at 100 per second */

int fchmod(int fd, mode_t mode);
int fchmodat(int dirfd, const char *path, mode_t mode, int flags);

static uint64_t mix(uint64_t h, uint64_t v)
{
	h ^= v + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
	h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
	h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
	return h ^ (h >> 31);
}

static bool unsettled(const struct statx_timestamp *ctime)
{
	struct timespec now;
	int64_t age;

	clock_gettime(CLOCK_REALTIME, &now);
	if (now.tv_sec < ctime->tv_sec || now.tv_sec - ctime->tv_sec > 1)
		return now.tv_sec < ctime->tv_sec && ctime->tv_sec - now.tv_sec <= 1;
	age = (now.tv_sec - ctime->tv_sec) * 1000000000 + now.tv_nsec - (int64_t)ctime->tv_nsec;
	return age < UNSETTLED_NS;
}

static uint64_t version(struct worker *w, const struct statx *x)
{
	uint64_t h = mix(0, x->stx_ino);

	h = mix(h, (uint64_t)x->stx_btime.tv_sec);
	h = mix(h, x->stx_btime.tv_nsec);
	h = mix(h, (uint64_t)x->stx_ctime.tv_sec);
	h = mix(h, x->stx_ctime.tv_nsec);
	h = mix(h, x->stx_size);
	if (unsettled(&x->stx_ctime))
		h = mix(h, __atomic_add_fetch(&w->counter, 1, __ATOMIC_RELAXED));
	return h;
}

/* From the time of birth; short enough to stay exact in a client that counts in doubles. */
static uint64_t generation(const struct statx_timestamp *t)
{
	if (!t->tv_sec && !t->tv_nsec)
		return 0;
	return mix(mix(0, (uint64_t)t->tv_sec), t->tv_nsec) & 0xffffffffffffu;
}

static struct files_time wire_time(const struct statx_timestamp *t)
{
	return (struct files_time){ .sec = t->tv_sec, .nsec = t->tv_nsec };
}

/* `name` empty: the descriptor itself, which may be an O_PATH one. */
int attr_get(struct worker *w, int fd, const char *name, bool follow, struct files_attr *ret)
{
	struct statx x;
	int flags = AT_NO_AUTOMOUNT | (follow ? 0 : AT_SYMLINK_NOFOLLOW);

	memset(&x, 0, sizeof(x));
	if (!*name)
		flags |= AT_EMPTY_PATH;
	if (syscall(SYS_statx, fd, name, flags, STATX_BASIC_STATS | STATX_BTIME, &x) < 0)
		return -errno;
	*ret = (struct files_attr){
		.mode = x.stx_mode,
		.uid = x.stx_uid,
		.gid = x.stx_gid,
		.nlink = x.stx_nlink,
		.size = x.stx_size,
		.blocks = x.stx_blocks,
		.ino = x.stx_ino,
		.dev = (uint64_t)x.stx_dev_major << 32 | x.stx_dev_minor,
		.gen = generation(&x.stx_btime),
		.version = version(w, &x),
		.atime = wire_time(&x.stx_atime),
		.mtime = wire_time(&x.stx_mtime),
		.ctime = wire_time(&x.stx_ctime),
	};
	return 0;
}

bool attr_is_mount_root(int fd)
{
	struct statx x;

	memset(&x, 0, sizeof(x));
	return syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_TYPE, &x) == 0 &&
	       (x.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

/* We hold the right to keep set-id bits, so the kernel leaves them where it would take them from
 * anybody else who writes. */
int attr_drop_setid(struct worker *w, int fd, struct files_attr *a)
{
	unsigned drop = a->mode & S_ISUID;

	if ((a->mode & S_ISGID) && (a->mode & S_IXGRP))
		drop |= S_ISGID;
	if (!drop)
		return 0;
	if (fchmod(fd, a->mode & 07777 & ~drop) < 0)
		return -errno;
	return attr_get(w, fd, "", false, a);
}

ssize_t attr_target(int dirfd, const char *name, char *buf, size_t size)
{
	ssize_t n = readlinkat(dirfd, name, buf, size);

	return n < 0 ? -errno : n;
}

/* A real descriptor is simple. An O_PATH one: by itself where the kernel can (6.6); through our own
 * /proc where there is one; by name at last, which is safe only because our root directory then is
 * the guest's. */
int attr_chmod(const struct worker *w, int pathfd, int dirfd, const char *name, mode_t mode)
{
	char link[40];

	/* The call itself: a library may answer EBADF by way of a /proc that is not ours. */
	if (syscall(SYS_fchmod, pathfd, mode) == 0)
		return 0;
	if (errno != EBADF)
		return -errno;
	if (syscall(SYS_fchmodat2, pathfd, "", mode, AT_EMPTY_PATH) == 0)
		return 0;
	if (errno != ENOSYS)
		return -errno;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", pathfd);
	if (fchmodat(AT_FDCWD, link, mode, 0) == 0)
		return 0;
	if (errno != ENOENT || w->fake || !name)
		return -errno;
	return fchmodat(dirfd, name, mode, 0) < 0 ? -errno : 0;
}
