/* SPDX-License-Identifier: MIT */
/* With arguments that would work, unlike those of tests/linux/attack: so that it is the right that
 * is missing, and not a file. */
#include "tests/attack/inside/inside.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define HERE "/tmp/mnt"

static const struct {
	const char *name, *source, *target, *type;
	unsigned long flags;
} tries[] = {
	{ "mount-cgroup", "none", HERE, "cgroup", 0 },
	{ "mount-cgroup2", "none", HERE, "cgroup2", 0 },
	{ "mount-proc", "none", HERE, "proc", 0 },
	{ "mount-sysfs", "none", HERE, "sysfs", 0 },
	{ "mount-tmpfs", "none", HERE, "tmpfs", 0 },
	{ "mount-debugfs", "none", HERE, "debugfs", 0 },
	{ "mount-overlay", "none", HERE, "overlay", 0 },
	{ "bind-proc", "/proc/sys", HERE, NULL, MS_BIND },
	{ "remount-root", NULL, "/", NULL, MS_REMOUNT | MS_BIND },
	{ "remount-sysctls", NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND },
	{ "remount-sys", NULL, "/sys", NULL, MS_REMOUNT | MS_BIND },
	{ "share-root", NULL, "/", NULL, MS_SHARED | MS_REC },
};

/* --- device nodes ----------------------------------------------------------------------------- */

static char found[256];

static bool is_known(dev_t d)
{
	static const unsigned short known[][2] = { { 1, 3 }, { 1, 5 }, { 1, 7 }, { 1, 8 }, { 1, 9 },
		{ 5, 0 }, { 5, 2 } };

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (d == makedev(known[i][0], known[i][1]))
			return true;
	return major(d) >= 136 && major(d) <= 143; /* terminals of this sandbox */
}

static int look(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	size_t n = strlen(found);

	(void)at;
	if (kind != FTW_F ||
		!(S_ISBLK(st->st_mode) || (S_ISCHR(st->st_mode) && !is_known(st->st_rdev))))
		return 0;
	if (n < sizeof(found) - 2)
		snprintf(found + n, sizeof(found) - n, "%s%s", n ? "," : "", path);
	return 0;
}

/* --- rights of files ----------------------------------------------------------------------------
 */

static long copy_self(const char *to)
{
	char b[16384];
	int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
	ssize_t n;

	if (in < 0 || out < 0)
		return -1;
	while ((n = read(in, b, sizeof(b))) > 0)
		if (write(out, b, (size_t)n) != n)
			return -1;
	close(in);
	return close(out);
}

/* Runs it as the sandbox user; the exit status is its first character. */
static void run_as_user(const char *name, const char *file)
{
	char b[64] = "";
	int p[2];

	if (pipe(p) < 0)
		return;
	pid_t pid = fork();
	if (pid == 0) {
		dup2(p[1], 1);
		if (getuid() == 0 && (setgid(1001) < 0 || setuid(1001) < 0))
			_exit(1);
		execl(file, file, "gained", (char *)NULL);
		_exit(1);
	}
	close(p[1]);
	ssize_t n = read(p[0], b, sizeof(b) - 1);
	close(p[0]);
	waitpid(pid, NULL, 0);
	b[n > 0 ? strcspn(b, "\n") : 0] = 0;
	say(name, b[0] ? b : "nothing");
}

static void set_id_file(void)
{
	const char *file = "/sandbox/home/set-id";

	if (copy_self(file) < 0 || chown(file, 0, 0) < 0 || chmod(file, 06755) < 0)
		result("set-id-file", -1);
	else
		run_as_user("set-id-file", file);
	(void)unlink(file);
}

/* --- the way out by chroot -------------------------------------------------------------------- */

static void chroot_dance(void)
{
	struct stat own, now = { 0 };
	pid_t pid;
	int status;

	(void)stat("/", &own);
	(void)mkdir("/tmp/jail", 0755);
	pid = fork();
	if (pid == 0) {
		if (chroot("/tmp/jail") < 0)
			_exit(errno == EPERM ? 1 : 2);
		for (int i = 0; i < 64; i++)
			if (chdir("..") < 0)
				_exit(2);
		if (chroot(".") < 0 || stat("/", &now) < 0)
			_exit(2);
		_exit(now.st_ino == own.st_ino && now.st_dev == own.st_dev ? 3 : 4);
	}
	waitpid(pid, &status, 0);
	static const char *const said[] = { "?", "EPERM", "error", "own-root", "outside" };
	say("chroot-dance",
		WIFEXITED(status) && WEXITSTATUS(status) < 5 ? said[WEXITSTATUS(status)] : "?");
	(void)rmdir("/tmp/jail");
}

void try_mounts(void)
{
	(void)mkdir(HERE, 0755);
	for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++)
		result(tries[i].name, syscall(SYS_mount, tries[i].source, tries[i].target,
					      tries[i].type, tries[i].flags, NULL));
	result("unmask", syscall(SYS_umount2, "/proc/interrupts", MNT_DETACH));
	result("unmount-sysctls", syscall(SYS_umount2, "/proc/sys", MNT_DETACH));
	result("clone-root", syscall(SYS_open_tree, AT_FDCWD, "/", 1u));
	result("swap-root", syscall(SYS_pivot_root, HERE, HERE));
	found[0] = 0;
	(void)nftw("/", look, 32, FTW_PHYS);
	say("device-nodes", found[0] ? found : "none");
	result("node-in-home", mknod("/sandbox/home/disk", S_IFBLK | 0666, makedev(8, 0)));
	result("whiteout",
		mknod("/sandbox/home/white", S_IFCHR | 0666, makedev(0, 0)) == 0 ? 0 : -1);
	(void)unlink("/sandbox/home/white");
	set_id_file();
	result("trusted-attribute", setxattr("/sandbox/home", "trusted.overlay.opaque", "y", 1, 0));
	result("security-attribute", setxattr("/sandbox/home", "security.evil", "y", 1, 0));
	chroot_dance();
	(void)rmdir(HERE);
}
