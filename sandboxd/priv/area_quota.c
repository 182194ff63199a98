/* SPDX-License-Identifier: MIT */
/* The project quota providers: an area is a folder whose project id is inherited by everything in
 * it, and the file system counts and limits the project. A writer with CAP_SYS_RESOURCE ignores
 * ext4's limit: neither a guest process nor the file worker has it. */
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "common/sys/tree.h"
#include "sandboxd/priv/area.h"

#include <linux/dqblk_xfs.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/quota.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/statfs.h>

#define XFS_MAGIC    0x58465342
#define PROJECT_BASE 0x5b000000u /* far from what an administrator numbers by hand */
#define PRJ          2

#ifndef SYS_quotactl_fd
#define SYS_quotactl_fd 443
#endif

static int on_file_system(const struct area_store *s, long magic)
{
	struct statfs st;

	if (fstatfs(s->areas, &st) < 0)
		return -errno;
	return (long)st.f_type == magic ? 0 : -ENOTSUP;
}

static int set_project(int dir, uint32_t project)
{
	struct fsxattr x;

	if (ioctl(dir, FS_IOC_FSGETXATTR, &x) < 0)
		return -errno;
	x.fsx_projid = project;
	x.fsx_xflags |= FS_XFLAG_PROJINHERIT;
	return ioctl(dir, FS_IOC_FSSETXATTR, &x) < 0 ? -errno : 0;
}

/* An empty file takes no block, but one of the inodes that the file system has once for all: about as
 * many as an ext4 of that size would have had. */
static uint64_t names_of(int64_t disk_mb)
{
	return (uint64_t)disk_mb * 64 + 12288;
}

static int limit_xfs(int dir, uint32_t project, int64_t disk_mb)
{
	fs_disk_quota_t q = { .d_version = FS_DQUOT_VERSION,
		.d_flags = FS_PROJ_QUOTA,
		.d_fieldmask = FS_DQ_BHARD | FS_DQ_BSOFT | FS_DQ_IHARD | FS_DQ_ISOFT,
		.d_id = project };

	q.d_ino_hardlimit = q.d_ino_softlimit = names_of(disk_mb);
	q.d_blk_hardlimit = q.d_blk_softlimit = (uint64_t)disk_mb << 11; /* 512-byte units */
	return syscall(SYS_quotactl_fd, dir, QCMD((unsigned int)Q_XSETQLIM, PRJ), project, &q) < 0
		       ? -errno
		       : 0;
}

static int limit_ext4(int dir, uint32_t project, int64_t disk_mb)
{
	struct if_dqblk q = { .dqb_valid = QIF_BLIMITS | QIF_ILIMITS };

	q.dqb_ihardlimit = q.dqb_isoftlimit = names_of(disk_mb);
	q.dqb_bhardlimit = q.dqb_bsoftlimit = (uint64_t)disk_mb << 10; /* KiB */
	return syscall(SYS_quotactl_fd, dir, QCMD((unsigned int)Q_SETQUOTA, PRJ), project, &q) < 0
		       ? -errno
		       : 0;
}

typedef int limit_fn(int dir, uint32_t project, int64_t disk_mb);

static int make_folder(
	const struct area_store *s, const struct area_spec *a, limit_fn *limit, struct fail *f)
{
	uint32_t project = PROJECT_BASE + a->num;
	int dir, r;

	(void)tree_remove(s->areas, a->name);
	dir = dir_make(s->areas, a->name, 0755);
	if (dir < 0)
		return fail_set(f, dir, "make the area's folder");
	r = limit(dir, project, a->disk_mb);
	if (r < 0)
		fail_set(f, r, "set the project quota");
	else if ((r = set_project(dir, project)) < 0)
		fail_set(f, r, "set the project");
	if (r < 0)
		close(dir);
	return r < 0 ? r : dir;
}

static int clone_folder(int dir, int *ret, struct fail *f)
{
	*ret = open_tree(dir, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
	return *ret < 0 ? fail_set(f, errno, "clone the area's folder") : 0;
}

static int make_mount(const struct area_store *s, const struct area_spec *a, limit_fn *limit,
	int *ret, struct fail *f)
{
	_cleanup_close_ int dir = make_folder(s, a, limit, f);

	return dir < 0 ? dir : clone_folder(dir, ret, f);
}

static int reopen(const struct area_store *s, const char *name, int *ret, struct fail *f)
{
	_cleanup_close_ int dir = open_below(s->areas, name, O_RDONLY | O_DIRECTORY, 0);

	return dir < 0 ? fail_set(f, dir, "open the area %s", name) : clone_folder(dir, ret, f);
}

/* Does the limit hold? Reserve twice as much as is allowed. */
static int holds(int dir)
{
	_cleanup_close_ int fd = openat(dir, "probe", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	if (fallocate(fd, 0, 0, 2 << 20) == 0)
		return -ENOTSUP;
	return errno == EDQUOT || errno == ENOSPC ? 0 : -errno;
}

/* Whoever has CAP_SYS_RESOURCE is let past ext4's limit; nobody who writes into an area has it. */
static int set_resource_right(int on)
{
	struct {
		uint32_t version;
		int pid;
	} head = { 0x20080522, 0 };
	struct {
		uint32_t effective, permitted, inheritable;
	} caps[2];

	if (syscall(SYS_capget, &head, caps) < 0)
		return -errno;
	if (on)
		caps[0].effective |= caps[0].permitted & 1u << 24;
	else
		caps[0].effective &= ~(1u << 24);
	return syscall(SYS_capset, &head, caps) < 0 ? -errno : 0;
}

static int test(const struct area_store *s, long magic, limit_fn *limit, struct fail *f)
{
	int r = on_file_system(s, magic), dir;
	char name[40];
	struct area_spec a = { .name = name, .disk_mb = 1, .num = 0x00fffff0u };

	if (r < 0)
		return fail_set(f, r, "the state folder's file system");
	snprintf(name, sizeof(name), "test-%d", (int)getpid());
	dir = make_folder(s, &a, limit, f);
	if (dir >= 0) {
		r = set_resource_right(0);
		if (r == 0)
			r = holds(dir);
		(void)set_resource_right(1);
		if (r < 0)
			fail_set(f, r, "the project quota does not hold");
		close(dir);
	} else {
		r = dir;
	}
	(void)tree_remove(s->areas, name);
	return r;
}

static int xfs_test(struct area_store *s, struct fail *f)
{
	return test(s, XFS_MAGIC, limit_xfs, f);
}

static int ext4_test(struct area_store *s, struct fail *f)
{
	return test(s, EXT4_SUPER_MAGIC, limit_ext4, f);
}

static int xfs_make(const struct area_store *s, const struct area_spec *a, int *ret, struct fail *f)
{
	return make_mount(s, a, limit_xfs, ret, f);
}

static int ext4_make(
	const struct area_store *s, const struct area_spec *a, int *ret, struct fail *f)
{
	return make_mount(s, a, limit_ext4, ret, f);
}

const struct area_provider area_xfs = {
	.name = "xfs",
	.automatic = true,
	.test = xfs_test,
	.make = xfs_make,
	.reopen = reopen,
};
const struct area_provider area_ext4 = {
	.name = "ext4",
	.automatic = true,
	.test = ext4_test,
	.make = ext4_make,
	.reopen = reopen,
};
