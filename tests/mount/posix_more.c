/* SPDX-License-Identifier: MIT */
/* Rows about the rest: locks, extended attributes, programs, notifications, what few file systems have. */
#include "tests/mount/posix.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static int lock(int fd, int cmd, short type, off_t from, off_t len)
{
	struct flock l = { .l_type = type, .l_whence = SEEK_SET, .l_start = from, .l_len = len };

	return fcntl(fd, cmd, &l);
}

static int other_locks(void) { return lock(open("f", O_RDWR), F_SETLK, F_WRLCK, 5, 1); }
static int other_locks_beside(void) { return lock(open("f", O_RDWR), F_SETLK, F_WRLCK, 100, 1); }
static int other_reads_lock(void) { return lock(open("f", O_RDONLY), F_SETLK, F_RDLCK, 5, 1); }
static int other_flocks(void) { return flock(open("f", O_RDONLY), LOCK_EX | LOCK_NB); }
static int other_flocks_shared(void) { return flock(open("f", O_RDONLY), LOCK_SH | LOCK_NB); }
static int other_asks(void)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 0 };

	return fcntl(open("f", O_RDWR), F_GETLK, &l) < 0 ? -1 : l.l_type == F_UNLCK ? 0 : 1;
}

static void locks(void)
{
	int fd, ro;

	T(holds("f", "0123456789"));
	fd = open("f", O_RDWR);
	ro = open("f", O_RDONLY);
	T(lock(fd, F_SETLK, F_WRLCK, 0, 10));
	IS(elsewhere(other_locks));
	IS(elsewhere(other_locks_beside));
	IS(elsewhere(other_reads_lock));
	IS(elsewhere(other_asks));
	T(lock(fd, F_SETLK, F_RDLCK, 0, 10));
	IS(elsewhere(other_reads_lock));
	IS(elsewhere(other_locks));
	T(lock(fd, F_SETLK, F_UNLCK, 0, 0));
	IS(elsewhere(other_locks));
	T(lock(ro, F_SETLK, F_WRLCK, 0, 1));
	T(lock(fd, F_SETLK, F_WRLCK, 0, 10));
	T(close(open("f", O_RDONLY))); /* any close gives them up */
	IS(elsewhere(other_locks));
	T(lock(fd, F_OFD_SETLK, F_WRLCK, 0, 10));
	IS(elsewhere(other_locks));
	T(lock(ro, F_OFD_SETLK, F_RDLCK, 0, 10));
	T(lock(fd, F_OFD_SETLK, F_UNLCK, 0, 0));
	T(flock(fd, LOCK_EX));
	IS(elsewhere(other_flocks));
	IS(elsewhere(other_flocks_shared));
	T(flock(fd, LOCK_SH));
	IS(elsewhere(other_flocks_shared));
	IS(elsewhere(other_flocks));
	T(flock(fd, LOCK_UN));
	IS(elsewhere(other_flocks));
	T(flock(fd, 77));
	T(lock(fd, F_SETLK, F_WRLCK, -1, 1));
}

static void xattrs(void)
{
	static char big[70000];
	char buf[64];

	memset(big, 'b', sizeof(big));
	T(made("f"));
	T(mkdir("d", 0755));
	T(symlink("f", "l"));
	T(mkfifo("p", 0644));
	T(getxattr("f", "user.a", buf, 64));
	T(setxattr("f", "user.a", "value", 5, 0));
	IS(getxattr("f", "user.a", buf, 64));
	IS(!memcmp(buf, "value", 5));
	IS(getxattr("f", "user.a", NULL, 0));
	T(getxattr("f", "user.a", buf, 3));
	T(setxattr("f", "user.a", "x", 1, XATTR_CREATE));
	T(setxattr("f", "user.b", "x", 1, XATTR_REPLACE));
	T(setxattr("f", "user.a", "xy", 2, XATTR_REPLACE));
	IS(getxattr("f", "user.a", buf, 64));
	T(setxattr("f", "user.empty", "", 0, XATTR_CREATE));
	IS(getxattr("f", "user.empty", buf, 64));
	T(setxattr("f", "user.nul", "a\0b", 3, 0));
	IS(getxattr("f", "user.nul", buf, 64));
	IS(!memcmp(buf, "a\0b", 3));
	IS(listxattr("f", buf, 64));
	T(listxattr("f", buf, 3));
	IS(listxattr("d", buf, 64));
	T(removexattr("f", "user.a"));
	T(removexattr("f", "user.a"));
	T(getxattr("f", "user.a", buf, 64));
	T(setxattr("d", "user.d", "dir", 3, 0));
	IS(getxattr("d", "user.d", buf, 64));
	T(setxattr("l", "user.via", "link", 4, 0));
	IS(getxattr("f", "user.via", buf, 64));
	T(lsetxattr("l", "user.link", "x", 1, 0));
	T(lgetxattr("l", "user.link", buf, 64));
	T(setxattr("p", "user.p", "x", 1, 0));
	T(setxattr("nothing", "user.a", "x", 1, 0));
	T(getxattr("f/x", "user.a", buf, 64));
	T(setxattr("f", "user.", "x", 1, 0));
	T(setxattr("f", "", "x", 1, 0));
	T(setxattr("f", "nonsense", "x", 1, 0));
	T(setxattr("f", "nonsense.a", "x", 1, 0));
	T(setxattr("f", "user.flags", "x", 1, 77));
	T(setxattr("f", "user.big", big, 65537, 0));
	T(setxattr("f", "user.kib", big, 1000, 0));
	IS(getxattr("f", "user.kib", NULL, 0));
	T(setxattr("f", "user.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
			"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
			"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
			"xxxxxxxxxxxxxxxxxxxxxx", "x", 1, 0));
	T(setxattr("f", "trusted.a", "x", 1, 0));
	T(getxattr("f", "trusted.a", buf, 64));
	T(getxattr("f", "security.selinux", buf, 64));
	T(getxattr("f", "security.capability", buf, 64));
	T(getxattr("f", "system.posix_acl_access", buf, 64));
}

static int runs(const char *path)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		execl(path, path, (char *)NULL);
		_exit(errno == EACCES ? 126 : errno == ENOEXEC ? 125 : 127);
	}
	return waitpid(pid, &status, 0) < 0 || !WIFEXITED(status) ? -1 : WEXITSTATUS(status);
}

static void programs(void)
{
	int fd;

	T(holds("s", "#!/bin/sh\nexit 7\n"));
	IS(runs("./s"));
	T(chmod("s", 0755));
	IS(runs("./s"));
	T(holds("bad", "text\n"));
	T(chmod("bad", 0755));
	IS(runs("./bad"));
	IS(runs("./nothing"));
	IS(runs("."));
	fd = open("s", O_RDWR);
	IS(runs("./s")); /* a script, opened for writing */
	T(close(fd));
	T(unlink("s"));
	IS(runs("./s"));
}

static void notifications(void)
{
	char buf[4096];
	int in = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

	IS(inotify_add_watch(in, ".", IN_CREATE | IN_DELETE | IN_MOVE | IN_MODIFY) > 0);
	T(made("f"));
	IS(read(in, buf, sizeof(buf)) > 0);
	T(holds("f", "x"));
	IS(read(in, buf, sizeof(buf)) > 0);
	T(rename("f", "g"));
	IS(read(in, buf, sizeof(buf)) > 0);
	T(unlink("g"));
	IS(read(in, buf, sizeof(buf)) > 0);
	IS(read(in, buf, sizeof(buf)));
}

static int bound(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "sock" };
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int rc = bind(s, (struct sockaddr *)&a, sizeof(a)), e = errno;

	close(s);
	errno = e;
	return rc;
}

static void rarities(void)
{
	struct {
		struct file_handle h;
		char room[128];
	} h = { .h.handle_bytes = 128 };
	int flags, fd, mount_id;

	T(holds("f", "text"));
	fd = open("f", O_RDWR);
	T(bound());
	T(ioctl(fd, FS_IOC_GETFLAGS, &flags));
	T(ioctl(fd, 0x5401, &flags));
	T(ioctl(fd, FIONREAD, &flags));
	T(ioctl(open("g", O_RDWR | O_CREAT, 0644), FICLONE, fd) == 0 || errno == EOPNOTSUPP ||
		errno == EXDEV ? 0 : -1);
	T(name_to_handle_at(AT_FDCWD, "f", &h.h, &mount_id, 0));
	T(fcntl(fd, F_SETLEASE, F_WRLCK));
	T(fcntl(fd, F_SETLEASE, F_UNLCK));
	T(fcntl(fd, F_NOTIFY, DN_CREATE));
	T(fcntl(fd, F_GETFL) < 0 ? -1 : 0);
	T(dup(fd) < 0 ? -1 : 0);
	T(renameat2(AT_FDCWD, "f", AT_FDCWD, "w", 4)); /* whiteout */
	T(linkat(AT_FDCWD, "/proc/self/fd/3", AT_FDCWD, "by-fd", AT_SYMLINK_FOLLOW) == 0 || errno == ENOENT ||
		errno == EXDEV ? 0 : -1);
}

static void names_are_bytes(void)
{
	T(made("a b"));
	T(made("new\nline"));
	T(made("\001\177"));
	T(made("\377\376"));
	T(made("\303\274"));
	T(made("A"));
	T(made("a"));
	T(made("..."));
	T(made("%2F"));
	T(made(" "));
	T(made("-"));
	T(rename("\377\376", "\376"));
	IS(kind_of("\376"));
	IS(kind_of("\377\376"));
	T(mkdir("\t", 0755));
	T(made("\t/\n"));
	T(unlink("\t/\n"));
	T(rmdir("\t"));
}

static void deep(void)
{
	char back[4096];
	int n;

	if (!getcwd(back, sizeof(back)))
		T(-1);
	for (n = 0; n < 60; n++)
		if (mkdir("a-directory-in-a-directory", 0755) < 0 || chdir("a-directory-in-a-directory") < 0)
			break;
	IS(n);
	T(holds("at-the-bottom", "deep"));
	IS(text_is("at-the-bottom", "deep"));
	T(chdir(back));
	T(rename("a-directory-in-a-directory", "moved"));
	T(chdir("moved/a-directory-in-a-directory"));
	T(chdir(back));
}

const struct row rows_more[] = { { "locks", locks }, { "xattrs", xattrs }, { "programs", programs },
	{ "notifications", notifications }, { "rarities", rarities },
	{ "names_are_bytes", names_are_bytes }, { "deep", deep }, { NULL, NULL } };
