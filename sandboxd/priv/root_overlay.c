/* SPDX-License-Identifier: MIT */
/* The overlay of id-mapped layers and an id-mapped area. On disk, ids are the image's: the shift is
 * a property of the mounts, so a layer serves every sandbox at the same time. */
#include "sandboxd/priv/root.h"

#include "common/sys/mem.h"

#include <linux/mount.h>
#include <linux/securebits.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

/* Files made here belong to the block's first id, which is 0 on disk; the thread keeps its
 * capabilities although its file-system id is not 0. */
static void act_as(uid_t uid)
{
	setfsgid(uid);
	setfsuid(uid);
}

/* volatile: a sandbox ends with its host's power, and its files with it, so nothing of it has to
 * reach the disk for its own sake; without it each end of a sandbox would sync the disk of all of
 * them. */
static int overlay_config(int fs, const struct root_spec *s, int upper, int work)
{
	static const char *const opts[][2] = { { "redirect_dir", "on" }, { "metacopy", "off" },
		{ "index", "off" }, { "xino", "auto" } };

	for (size_t i = 0; i < ARRAY_LEN(opts); i++)
		if (fsconfig(fs, FSCONFIG_SET_STRING, opts[i][0], opts[i][1], 0) < 0)
			return -errno;
	if (fsconfig(fs, FSCONFIG_SET_FLAG, "volatile", NULL, 0) < 0)
		return -errno;
	for (uint32_t i = 0; i < s->nlowers; i++) /* each goes below the last */
		if (fsconfig(fs, FSCONFIG_SET_FD, "lowerdir+", NULL, s->lowers[i]) < 0)
			return -errno;
	if (fsconfig(fs, FSCONFIG_SET_FD, "upperdir", NULL, upper) < 0 ||
		fsconfig(fs, FSCONFIG_SET_FD, "workdir", NULL, work) < 0)
		return -errno;
	return fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0 ? -errno : 0;
}

static int overlay_by_fd(const struct root_spec *s, int upper, int work)
{
	_cleanup_close_ int fs = fsopen("overlay", FSOPEN_CLOEXEC);
	int r, mnt;

	if (fs < 0)
		return -errno;
	r = overlay_config(fs, s, upper, work);
	if (r < 0)
		return r;
	mnt = fsmount(fs, FSMOUNT_CLOEXEC, ROOT_SAFE);
	return mnt < 0 ? -errno : mnt;
}

static int place(int mnt, const char *name)
{
	if (mkdir(name, 0755) < 0)
		return -errno;
	return move_mount(mnt, "", AT_FDCWD, name, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

/* "lowerdir=0:1:2,…": numbers, because the kernel takes one page. */
static int place_lowers(const struct root_spec *s, char *opts, size_t size)
{
	size_t n = (size_t)snprintf(opts, size, "lowerdir=");
	char name[16];

	for (uint32_t i = 0; i < s->nlowers; i++) {
		snprintf(name, sizeof(name), "%u", i);
		int r = place(s->lowers[i], name);
		if (r < 0)
			return r;
		n += (size_t)snprintf(opts + n, size - n, "%s%s", i ? ":" : "", name);
	}
	snprintf(opts + n, size - n,
		",upperdir=a/upper,workdir=a/work,redirect_dir=on,metacopy=off,index=off,xino=auto,"
		"volatile");
	return 0;
}

/* Kernels without layers by descriptor: the mapped clones get short names in a memory file system
 * of this namespace, and the old call is made from there. */
static int overlay_by_name(const struct root_spec *s)
{
	_cleanup_close_ int base = root_make_fs("tmpfs", NULL, ROOT_SAFE, NULL);
	_cleanup_close_ int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char opts[4096];
	int r = base < 0 ? base : root_move_onto(base, here), mnt;

	if (r < 0 || fchdir(base) < 0)
		return r < 0 ? r : -errno;
	r = place_lowers(s, opts, sizeof(opts));
	if (r == 0)
		r = place(s->area, "a");
	if (r < 0)
		return r;
	if (mkdir("m", 0755) < 0 ||
		mount("overlay", "m", "overlay", MS_NOSUID | MS_NODEV, opts) < 0)
		return -errno;
	mnt = root_clone_of(AT_FDCWD, "m");
	if (fchdir(here) < 0)
		return -errno;
	return mnt;
}

/* With an owner outside the map the kernel mounts it read-only and says nothing. */
static int check_writable(int mnt)
{
	struct statvfs st;

	if (fstatvfs(mnt, &st) < 0)
		return -errno;
	return st.f_flag & ST_RDONLY ? -EROFS : 0;
}

/* What a kernel says that takes no descriptors here: 6.5 to 6.12 do not know the words, before 6.5 overlays
 * take text only, and that is another error. */
static bool takes_names_only(int r)
{
	return r == -EINVAL || r == -EBADF || r == -ENOSYS || r == -EOPNOTSUPP;
}

static int make_overlay(const struct root_spec *s)
{
	_cleanup_close_ int upper = -1, work = -1;
	int mnt, r;

	/* the loop provider's areas are born with them */
	if ((mkdirat(s->area, "upper", 0755) < 0 && errno != EEXIST) ||
		(mkdirat(s->area, "work", 0700) < 0 && errno != EEXIST))
		return -errno;
	upper = root_open_in(s->area, "upper", O_DIRECTORY);
	work = root_open_in(s->area, "work", O_DIRECTORY);
	if (upper < 0 || work < 0)
		return upper < 0 ? upper : work;
	mnt = overlay_by_fd(s, upper, work);
	if (takes_names_only(mnt))
		mnt = overlay_by_name(s);
	if (mnt < 0)
		return mnt;
	r = check_writable(mnt);
	if (r < 0)
		close(mnt);
	return r < 0 ? r : mnt;
}

int root_overlay(const struct root_spec *s, struct fail *f)
{
	int r = root_set_attr(s->area, ROOT_SAFE, s->userns), mnt;

	for (uint32_t i = 0; i < s->nlowers && r == 0; i++)
		r = root_set_attr(s->lowers[i], ROOT_SAFE | MOUNT_ATTR_RDONLY, s->userns);
	if (r < 0)
		return fail_set(f, r, "map the ids of the layers");
	if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0)
		return fail_set(f, errno, "keep capabilities");
	act_as(s->uid);
	mnt = make_overlay(s);
	act_as(0);
	(void)prctl(PR_SET_SECUREBITS, 0, 0, 0, 0);
	return mnt < 0 ? fail_set(f, mnt, "mount the overlay") : mnt;
}
