/* SPDX-License-Identifier: MIT */
/* Assembling the guest's root. No guest code exists yet, so nobody can swap a target while it is
 * being mounted on; still every target is opened without following a link, and every mask is put
 * onto a descriptor whose file system was looked at. */
#include "sandboxd/priv/root.h"

#include "common/sys/mem.h"

#include <linux/magic.h>
#include <linux/mount.h>
#include <linux/securebits.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#define RUN_MAX_MB 32 /* of /run */

int root_open_in(int root, const char *path, int flags)
{
	return sys_openat2(root, path, (uint64_t)flags | O_PATH, 0,
		RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
}

int root_move_onto(int mnt, int target)
{
	if (move_mount(mnt, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return -errno;
	return 0;
}

static int attach(int mnt, int root, const char *path, struct fail *f)
{
	_cleanup_close_ int target = root_open_in(root, path, O_DIRECTORY);
	int r = target < 0 ? target : root_move_onto(mnt, target);

	return r < 0 ? fail_set(f, r, "mount /%s", path) : 0;
}

int root_set_attr(int mnt, uint64_t set, int userns)
{
	struct mount_attr a = { .attr_set = set | (userns >= 0 ? MOUNT_ATTR_IDMAP : 0),
		.userns_fd = (uint64_t)(userns >= 0 ? userns : 0) };

	return mount_setattr(mnt, "", AT_EMPTY_PATH, &a, sizeof(a)) < 0 ? -errno : 0;
}

int root_clone_of(int dir, const char *path)
{
	int fd = open_tree(dir, path,
		OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW |
			(*path ? 0 : AT_EMPTY_PATH));

	return fd < 0 ? -errno : fd;
}

int root_alone(int dir, const char *path)
{
	_cleanup_close_ int mnt = root_clone_of(dir, path);

	return mnt < 0 ? mnt : sys_openat2(mnt, ".", O_RDONLY | O_DIRECTORY, 0, 0);
}

/* A new file system of `type` with options "k=v", NULL-terminated. */
int root_make_fs(const char *type, const char *const *opts, uint64_t attr, struct fail *f)
{
	_cleanup_close_ int fs = fsopen(type, FSOPEN_CLOEXEC);
	int mnt;

	if (fs < 0)
		return fail_set(f, errno, "open the file system %s", type);
	for (; opts && *opts; opts++) {
		char key[64];
		const char *eq = strchr(*opts, '=');
		snprintf(key, sizeof(key), "%.*s", (int)(eq - *opts), *opts);
		if (fsconfig(fs, FSCONFIG_SET_STRING, key, eq + 1, 0) < 0)
			return fail_set(f, errno, "%s option %s", type, *opts);
	}
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return fail_set(f, errno, "make a %s", type);
	mnt = fsmount(fs, FSMOUNT_CLOEXEC, (unsigned int)attr);
	return mnt < 0 ? fail_set(f, errno, "mount a %s", type) : mnt;
}

static int mount_fs(int root, const char *path, const char *type, const char *const *opts,
	uint64_t attr, struct fail *f)
{
	int mnt = root_make_fs(type, opts, attr, f), r;

	if (mnt < 0)
		return mnt;
	r = attach(mnt, root, path, f);
	if (r < 0)
		close(mnt);
	return r < 0 ? r : mnt;
}

/* --- what all sandboxes share, read-only ----------------------------------------------------- */

static int copy_file(const char *from, int dir, const char *to)
{
	char buf[256] = "";

	(void)file_read(AT_FDCWD, from, buf, sizeof(buf));
	_cleanup_close_ int fd = openat(dir, to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	if (fd < 0)
		return -errno;
	return dprintf(fd, "%s\n", buf) < 0 ? -errno : 0;
}

static const char *const sys_dirs[] = { "sys", "sys/devices", "sys/devices/system",
	"sys/devices/system/cpu", "sys/fs", "sys/fs/cgroup", "sys/kernel", "sys/kernel/mm",
	"sys/kernel/mm/transparent_hugepage", "empty.d" };
static const char *const sys_files[] = { "sys/devices/system/cpu/online",
	"sys/devices/system/cpu/possible", "sys/devices/system/cpu/present",
	"sys/kernel/mm/transparent_hugepage/enabled" };

static int fill_statics(int dir, struct fail *f)
{
	char from[128];

	for (size_t i = 0; i < ARRAY_LEN(sys_dirs); i++)
		if (mkdirat(dir, sys_dirs[i], 0755) < 0)
			return fail_set(f, errno, "make %s", sys_dirs[i]);
	for (size_t i = 0; i < ARRAY_LEN(sys_files); i++) {
		snprintf(from, sizeof(from), "/%s", sys_files[i]);
		int r = copy_file(from, dir, sys_files[i]);
		if (r < 0)
			return fail_set(f, r, "make %s", sys_files[i]);
	}
	if (fchmodat(dir, "empty.d", 0555, 0) < 0 || mknodat(dir, "empty", S_IFREG | 0444, 0) < 0)
		return fail_set(f, errno, "make the masks");
	return 0;
}

int root_statics(int priv, struct fail *f)
{
	static const char *const opts[] = { "size=256k", "mode=0755", NULL };
	_cleanup_close_ int dir = dir_make(priv, "static", 0700);
	_cleanup_close_ int mnt = -1;
	int r;

	if (dir < 0)
		return fail_set(f, dir, "make priv/static");
	mnt = root_make_fs("tmpfs", opts, ROOT_SAFE | MOUNT_ATTR_NOEXEC, f);
	if (mnt < 0)
		return mnt;
	mode_t mask = umask(0); /* everybody inside reads these */
	r = fill_statics(mnt, f);
	umask(mask);
	if (r == 0 && (r = root_set_attr(mnt, MOUNT_ATTR_RDONLY, -1)) < 0)
		fail_set(f, r, "make the masks read-only");
	if (r == 0 && (r = root_move_onto(mnt, dir)) < 0)
		fail_set(f, r, "mount priv/static");
	return r;
}

/* --- proc ------------------------------------------------------------------------------------ */

enum mask_how { MASK_HIDE, MASK_READ_ONLY };
static const struct mask {
	const char *name;
	enum mask_how how;
} masks[] = {
	{ "kcore", MASK_HIDE },
	{ "keys", MASK_HIDE },
	{ "key-users", MASK_HIDE },
	{ "kmsg", MASK_HIDE },
	{ "kallsyms", MASK_HIDE },
	{ "timer_list", MASK_HIDE },
	{ "sched_debug", MASK_HIDE },
	{ "latency_stats", MASK_HIDE },
	{ "acpi", MASK_HIDE },
	{ "scsi", MASK_HIDE },
	{ "interrupts", MASK_HIDE },
	{ "pressure", MASK_HIDE }, /* the host's, and a reader may have the kernel watch it */
	{ "kpagecount", MASK_HIDE },
	{ "kpageflags", MASK_HIDE },
	{ "kpagecgroup", MASK_HIDE },
	{ "vmallocinfo", MASK_HIDE },
	{ "slabinfo", MASK_HIDE },
	{ "sysrq-trigger", MASK_READ_ONLY },
	{ "sys", MASK_READ_ONLY },
	{ "irq", MASK_READ_ONLY },
	{ "bus", MASK_READ_ONLY },
	{ "fs", MASK_READ_ONLY },
};

static int mask_mount(const struct mask *m, int target, int statics)
{
	struct stat st;
	int mnt, r;

	if (fstat(target, &st) < 0)
		return -errno;
	if (m->how == MASK_HIDE)
		mnt = root_clone_of(statics, S_ISDIR(st.st_mode) ? "empty.d" : "empty");
	else
		mnt = root_clone_of(target, "");
	if (mnt < 0)
		return mnt;
	r = root_set_attr(mnt, MOUNT_ATTR_RDONLY | ROOT_SAFE | MOUNT_ATTR_NOEXEC, -1);
	if (r == 0)
		r = root_move_onto(mnt, target);
	close(mnt);
	return r;
}

static int mask_one(const struct mask *m, int proc, int statics, struct fail *f)
{
	_cleanup_close_ int target = sys_openat2(proc, m->name, O_PATH | O_NOFOLLOW, 0,
		RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
	struct statfs st;
	int r;

	if (target == -ENOENT)
		return 0; /* this kernel has no such file */
	if (target < 0)
		return fail_set(f, target, "open /proc/%s", m->name);
	if (fstatfs(target, &st) < 0 || st.f_type != PROC_SUPER_MAGIC)
		return fail_set(f, EPERM, "/proc/%s is not on procfs", m->name);
	r = mask_mount(m, target, statics);
	return r < 0 ? fail_set(f, r, "mask /proc/%s", m->name) : 0;
}

static int make_proc(int root, int statics, int *clean, struct fail *f)
{
	_cleanup_close_ int proc =
		mount_fs(root, "proc", "proc", NULL, ROOT_SAFE | MOUNT_ATTR_NOEXEC, f);
	int r = 0;

	if (proc < 0)
		return proc;
	*clean = root_clone_of(proc, "");
	if (*clean < 0)
		return fail_set(f, *clean, "clone proc");
	for (size_t i = 0; i < ARRAY_LEN(masks) && r == 0; i++)
		r = mask_one(&masks[i], proc, statics, f);
	return r;
}

/* --- dev ------------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	unsigned int minor, major;
} nodes[] = { { "null", 3, 1 }, { "zero", 5, 1 }, { "full", 7, 1 }, { "random", 8, 1 },
	{ "urandom", 9, 1 }, { "tty", 0, 5 } };
static const char *const links[][2] = { { "pts/ptmx", "ptmx" }, { "/proc/self/fd", "fd" },
	{ "/proc/self/fd/0", "stdin" }, { "/proc/self/fd/1", "stdout" },
	{ "/proc/self/fd/2", "stderr" } };

static int fill_dev(int dev, struct fail *f)
{
	static const char *const dirs[] = { "pts", "shm", "mqueue" };

	for (size_t i = 0; i < ARRAY_LEN(nodes); i++)
		if (mknodat(dev, nodes[i].name, S_IFCHR | 0666,
			    makedev(nodes[i].major, nodes[i].minor)))
			return fail_set(f, errno, "make /dev/%s", nodes[i].name);
	for (size_t i = 0; i < ARRAY_LEN(links); i++)
		if (symlinkat(links[i][0], dev, links[i][1]) < 0)
			return fail_set(f, errno, "make /dev/%s", links[i][1]);
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		if (mkdirat(dev, dirs[i], 0755) < 0)
			return fail_set(f, errno, "make /dev/%s", dirs[i]);
	return 0;
}

/* Terminals are opened by the shim and belong to the sandbox user, group tty. Kernels whose devpts has the old
 * interface of mounts (6.1: fs/devpts/inode.c, match_int) take a number for a long and refuse what is no int, an id
 * from 2^31 on: there it is written as the long that has its bits. Others refuse that. */
static int mount_pts(int root, const struct root_spec *s, struct fail *f)
{
	char uid[32], gid[32];
	/* the host has some thousand terminals for all of them */
	const char *const opts[] = { "mode=0620", "ptmxmode=0666", uid, gid, "max=128", NULL };
	const uint64_t attr = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;
	int p;

	snprintf(uid, sizeof(uid), "uid=%u", s->uid + 1001);
	snprintf(gid, sizeof(gid), "gid=%u", s->uid + 5);
	p = mount_fs(root, "dev/pts", "devpts", opts, attr, NULL);
	if (p != -EINVAL)
		return p < 0 ? fail_set(f, p, "mount /dev/pts") : p;
	snprintf(uid, sizeof(uid), "uid=%llu", (unsigned long long)(int)(s->uid + 1001));
	snprintf(gid, sizeof(gid), "gid=%llu", (unsigned long long)(int)(s->uid + 5));
	return mount_fs(root, "dev/pts", "devpts", opts, attr, f);
}

/* Owned by host root, which is nobody inside: the guest adds, removes and changes nothing here. */
static int make_dev(int root, const struct root_spec *s, struct fail *f)
{
	static const char *const opts[] = { "size=64k", "mode=0755", NULL };
	_cleanup_close_ int dev =
		mount_fs(root, "dev", "tmpfs", opts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, f);
	_cleanup_close_ int p = -1, q = -1;
	int r = dev < 0 ? dev : fill_dev(dev, f);

	if (r < 0)
		return r;
	p = mount_pts(root, s, f);
	if (p < 0)
		return p;
	q = mount_fs(root, "dev/mqueue", "mqueue", NULL, ROOT_SAFE | MOUNT_ATTR_NOEXEC, f);
	return q < 0 ? q : 0;
}

/* --- the rest -------------------------------------------------------------------------------- */

static int make_tmpfs(int root, const struct root_spec *s, const char *path, const char *mode,
	int64_t mb, struct fail *f)
{
	char size[32], inodes[40], uid[32], gid[32];
	const char *const opts[] = { size, inodes, uid, gid, mode, NULL };

	snprintf(size, sizeof(size), "size=%lldm", (long long)(mb > 0 ? mb : 1));
	snprintf(inodes, sizeof(inodes), "nr_inodes=%lld", (long long)(mb > 4 ? mb * 256 : 1024));
	snprintf(uid, sizeof(uid), "uid=%u", s->uid);
	snprintf(gid, sizeof(gid), "gid=%u", s->uid);
	_cleanup_close_ int mnt = mount_fs(root, path, "tmpfs", opts, ROOT_SAFE, f);
	return mnt < 0 ? mnt : 0;
}

/* All of them full are little more than the sandbox's memory: their files alone, which no process's end gives back,
 * never take what sbx-init and the worker need (CG_BESIDE_MB). */
static int make_memory_mounts(int root, const struct root_spec *s, struct fail *f)
{
	int64_t run = s->memory_mb / 8 < RUN_MAX_MB ? s->memory_mb / 8 : RUN_MAX_MB;
	int r = make_tmpfs(root, s, "tmp", "mode=1777", s->memory_mb / 2, f);

	if (r == 0)
		r = make_tmpfs(root, s, "run", "mode=0755", run, f);
	if (r == 0)
		r = make_tmpfs(root, s, "dev/shm", "mode=1777", s->memory_mb / 2, f);
	return r;
}

static int make_sys(int root, int statics, struct fail *f)
{
	_cleanup_close_ int mnt = root_clone_of(statics, "sys");

	if (mnt < 0)
		return fail_set(f, mnt, "clone the sys tree");
	return attach(mnt, root, "sys", f);
}

static int enter(int root, struct fail *f)
{
	if (fchdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
		return fail_set(f, errno, "change the root");
	if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return fail_set(f, errno, "leave the old root");
	return 0;
}

int root_build(const struct root_spec *s, int *proc, struct fail *f)
{
	_cleanup_close_ int statics = open("static", O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int root = -1;
	int r = 0;

	if (statics < 0)
		return fail_set(f, errno, "open priv/static");
	umask(0);
	root = root_overlay(s, f);
	if (root < 0)
		return root;
	if (move_mount(root, "", AT_FDCWD, ".", MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return fail_set(f, errno, "attach the root");
	r = make_proc(root, statics, proc, f);
	if (r == 0)
		r = make_dev(root, s, f);
	if (r == 0)
		r = make_memory_mounts(root, s, f);
	if (r == 0)
		r = make_sys(root, statics, f);
	if (r == 0)
		r = root_volumes(s, root, f);
	return r == 0 ? enter(root, f) : r;
}
