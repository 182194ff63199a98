/* SPDX-License-Identifier: MIT */
/* Rows about rules that suites of other projects look at: which change moves which time of which file,
 * what numbers say, limits of a process, mappings and their file, what an open file that lost its name
 * still can do. */
#include "tests/mount/posix.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#define MTIME 2
#define CTIME 4

static int other_time(struct timespec a, struct timespec b)
{
	return a.tv_sec != b.tv_sec || a.tv_nsec != b.tv_nsec;
}

/* Which times of `path`, `then` after it, are others than before. */
static int moves(const char *path, const char *then, int (*fn)(void))
{
	struct stat a, b;

	tick();
	if (lstat(path, &a) < 0 || fn() < 0 || lstat(then, &b) < 0)
		return -1;
	return (other_time(a.st_mtim, b.st_mtim) ? MTIME : 0) | (other_time(a.st_ctim, b.st_ctim) ? CTIME : 0);
}

static int the_fd;
static char *the_map;
static int do_rename(void) { return rename("f", "g"); }
static int do_rename_over(void) { return rename("over", "a"); }
static int do_exchange(void) { return renameat2(AT_FDCWD, "x1", AT_FDCWD, "x2", 2); }
static int do_unlink(void) { return unlink("a"); }
static int do_chown_none(void) { return chown("g", (uid_t)-1, (gid_t)-1); }
static int do_chmod_same(void) { return chmod("g", 0644); }
static int do_fchmod(void) { return fchmod(the_fd, 0600); }
static int do_setxattr(void) { return setxattr("g", "user.a", "v", 1, 0); }
static int do_removexattr(void) { return removexattr("g", "user.a"); }
static int do_punch(void) { return fallocate(the_fd, 3, 0, 4096); }
static int do_read(void) { return (int)pread(the_fd, (char[4]){ 0 }, 4, 0); }
static int do_trunc_empty(void) { return opened("empty", O_WRONLY | O_TRUNC, 0); }
static int do_truncate_empty(void) { return truncate("empty", 0); }
static int do_ftruncate_grow(void) { return ftruncate(the_fd, 10000); }
static int do_chmod_none(void) { return chmod("nothing", 0600) < 0 ? 0 : -1; }
static int do_bad_truncate(void) { return truncate("g", -1) < 0 ? 0 : -1; }
static int do_bad_rename(void) { return rename("g", "d") < 0 ? 0 : -1; }
static int do_bad_link(void) { return link("g", "d") < 0 ? 0 : -1; }
#define OMIT { 0, UTIME_OMIT }
static int do_atime(void) { return utimensat(AT_FDCWD, "g", (struct timespec[2]){ { 5, 5 }, OMIT }, 0); }
static int do_omit(void) { return utimensat(AT_FDCWD, "g", (struct timespec[2]){ OMIT, OMIT }, 0); }
static int do_now(void) { return utimensat(AT_FDCWD, "g", NULL, 0); }
static int do_append(void) { return (int)write(the_fd, "x", 1); }
static int do_rename_dir(void) { return rename("d", "p/d"); }
static int do_mmap(void) { the_map[0]++; return msync(the_map, 4096, MS_SYNC); }
static int do_copy(void) { return (int)copy_file_range(open("src", O_RDONLY), NULL, the_fd, NULL, 4, 0); }

static void more_times(void)
{
	struct stat st;

	T(holds("f", "text"));
	T(holds("src", "text"));
	T(made("empty"));
	T(mkdir("d", 0755));
	T(mkdir("p", 0755));
	IS(moves("f", "g", do_rename));
	IS(moves("g", "g", do_chown_none));
	IS(moves("g", "g", do_chmod_same));
	the_fd = open("g", O_RDWR);
	IS(moves("g", "g", do_fchmod));
	IS(moves("g", "g", do_setxattr));
	IS(moves("g", "g", do_removexattr));
	IS(moves("g", "g", do_punch));
	IS(moves("g", "g", do_read));
	IS(moves("g", "g", do_ftruncate_grow));
	IS(moves("g", "g", do_copy));
	IS(moves("empty", "empty", do_trunc_empty));
	IS(moves("empty", "empty", do_truncate_empty));
	IS(moves("g", "g", do_chmod_none));
	IS(moves("g", "g", do_bad_truncate));
	IS(moves("g", "g", do_bad_rename));
	IS(moves("g", "g", do_bad_link));
	IS(moves("g", "g", do_atime));
	IS(moves("g", "g", do_omit));
	IS(moves("g", "g", do_now));
	the_map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, the_fd, 0);
	IS(moves("g", "g", do_mmap));
	the_fd = open("g", O_WRONLY | O_APPEND);
	IS(moves("g", "g", do_append));
	IS(moves("d", "p/d", do_rename_dir) & MTIME);
	T(made("a"));
	T(link("a", "b"));
	IS(moves("b", "b", do_unlink));
	T(link("b", "a"));
	T(made("over"));
	IS(moves("b", "b", do_rename_over));
	IS(links_of("b"));
	T(made("x1"));
	T(mkdir("x2", 0755));
	IS(moves("x1", "x2", do_exchange));
	T(mkdir("new", 0755));
	T(stat("new", &st));
	IS(!other_time(st.st_mtim, st.st_ctim));
	T(made("made"));
	T(stat("made", &st));
	IS(!other_time(st.st_mtim, st.st_ctim) && !other_time(st.st_atim, st.st_ctim));
}

static ino_t ino_of(const char *path)
{
	struct stat st;

	return lstat(path, &st) < 0 ? 0 : st.st_ino;
}

static void numbers(void)
{
	struct statx x;
	struct stat st;
	ino_t a;

	T(holds("a", "text"));
	T(holds("b", "text"));
	T(link("a", "c"));
	T(mkdir("d", 0755));
	a = ino_of("a");
	IS(a == ino_of("c"));
	IS(a != ino_of("b"));
	T(rename("a", "d/a"));
	IS(a == ino_of("d/a"));
	T(holds("b", "more"));
	T(rename("b", "d/a"));
	IS(a == ino_of("c"));
	IS(ino_of("d/a") != a);
	IS(ino_of("d/..") == ino_of("."));
	IS(ino_of("d/.") == ino_of("d"));
	T(statx(AT_FDCWD, "c", 0, STATX_ALL, &x));
	IS((x.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS);
	IS((x.stx_mask & STATX_BTIME) != 0);
	IS((long long)x.stx_size);
	T(stat("c", &st));
	IS(x.stx_ino == st.st_ino && makedev(x.stx_dev_major, x.stx_dev_minor) == st.st_dev);
	T(statx(AT_FDCWD, "c", AT_STATX_FORCE_SYNC, STATX_SIZE, &x));
	T(statx(AT_FDCWD, "c", AT_STATX_DONT_SYNC, STATX_SIZE, &x));
	T(statx(AT_FDCWD, "c", 0x100000, STATX_SIZE, &x));
	IS(fpathconf(open("c", O_RDONLY), _PC_LINK_MAX) >= 8);
	IS(pathconf(".", _PC_FILESIZEBITS));
	IS(pathconf(".", _PC_NO_TRUNC));
	IS(pathconf(".", _PC_CHOWN_RESTRICTED) >= 0);
	T(mkdir("g", 0755));
	T(chown("g", 0, 1005));
	T(made("g/f"));
	T(stat("g/f", &st));
	IS(st.st_gid);
	IS(st.st_uid);
}

static int limited(void)
{
	struct rlimit l = { 1000, 1000 };
	int fd = open("f", O_RDWR), n;

	if (setrlimit(RLIMIT_FSIZE, &l) < 0)
		return -1;
	if (pwrite(fd, "x", 1, 1000) >= 0 || errno != EFBIG)
		return 1;
	n = (int)pwrite(fd, "0123456789", 10, 995);
	if (n != 5)
		return 2;
	if (ftruncate(fd, 1001) >= 0 || errno != EFBIG)
		return 3;
	if (truncate("f", 2000) >= 0 || errno != EFBIG)
		return 4;
	if (fallocate(fd, 0, 0, 2000) >= 0 || errno != EFBIG)
		return 5;
	return ftruncate(fd, 1000);
}

/* Not known to the compiler, which would warn of them. */
static void *volatile nowhere = (void *)8;
static volatile int too_few = -1;

static void limits(void)
{
	char three[] = "end";
	int fd;

	T(made("f"));
	IS(elsewhere(limited));
	IS(size_of("f"));
	fd = open("f", O_RDWR);
	T(write(fd, nowhere, 10));
	T(read(fd, nowhere, 10));
	T(opened((const char *)nowhere, O_RDONLY, 0));
	T(pwritev(fd, &(struct iovec){ nowhere, 10 }, 1, 0));
	T(pwritev(fd, NULL, too_few, 0));
	IS(pwritev2(fd, &(struct iovec){ three, 3 }, 1, 0, RWF_APPEND));
	IS(size_of("f"));
	IS(pwritev2(fd, &(struct iovec){ three, 3 }, 1, 0, RWF_SYNC));
	T(preadv2(fd, &(struct iovec){ (char[4]){ 0 }, 4 }, 1, 0, 0x4000));
	T(lseek(fd, 1, SEEK_END));
	T(lseek(fd, INT64_MAX, SEEK_END));
	T(ftruncate(fd, INT64_MAX) == 0 || errno == EFBIG ? 0 : -1);
	T(ftruncate(fd, 10));
	T(ftruncate(open("f", O_PATH), 0));
	T(fchdir(fd));
	T(flock(open("f", O_PATH), LOCK_SH));
	T(fstat(open("f", O_PATH), &(struct stat){ .st_mode = 0 }));
}

static int beyond_the_end(void)
{
	int fd = open("m", O_RDWR);
	volatile char *m = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (m == MAP_FAILED)
		return -1;
	m[5000] = 1;
	if (ftruncate(fd, 100) < 0)
		return -1;
	return m[5000]; /* SIGBUS */
}

static int written_beyond(void)
{
	volatile char *m = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, open("m", O_RDWR), 0);

	if (m == MAP_FAILED)
		return -1;
	m[8000] = 1;
	return 0;
}

static int grown_again(void)
{
	int fd = open("m", O_RDWR);
	volatile char *m = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (m == MAP_FAILED || ftruncate(fd, 8192) < 0)
		return -1;
	return m[5000];
}

/* The bytes come from, or go to, a mapping of the same file. */
static void mapped_buffers(void)
{
	int fd = open("s", O_RDWR | O_CREAT, 0644), direct;
	char *m;

	T(ftruncate(fd, 1 << 20));
	m = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m == MAP_FAILED) {
		T(-1);
		return;
	}
	memset(m, 'm', 8192);
	IS(pwrite(fd, m, 8192, 65536));
	IS(m[65536 + 8191]);
	IS(pwrite(fd, m + 100, 8192, 0)); /* onto itself */
	IS(m[0]);
	madvise(m, 1 << 20, MADV_DONTNEED);
	IS(pread(fd, m + 200000, 8192, 65536));
	IS(m[200000 + 8191]);
	direct = open("s", O_RDWR | O_DIRECT);
	IS(direct >= 0);
	IS(pread(direct, m + 262144, 8192, 65536));
	IS(m[262144 + 8191]);
	IS(pwrite(direct, m, 8192, 393216));
	IS(m[393216]);
	T(msync(m, 1 << 20, MS_SYNC));
	T(munmap(m, 1 << 20));
	IS(size_of("s"));
}

static void mapped_ends(void)
{
	T(holds("m", "x"));
	T(truncate("m", 8192));
	T(elsewhere(beyond_the_end));
	IS(size_of("m"));
	T(elsewhere(written_beyond));
	IS(size_of("m"));
	IS(elsewhere(grown_again));
	mapped_buffers();
}

static char proc_path[64];
static const char *proc_of(int fd)
{
	(void)snprintf(proc_path, sizeof(proc_path), "/proc/self/fd/%d", fd);
	return proc_path;
}

static void without_a_name(void)
{
	char buf[16] = "";
	struct stat st;
	int fd, again;

	T(holds("f", "nameless"));
	fd = open("f", O_RDWR);
	again = open(proc_of(fd), O_RDONLY);
	IS(pread(again, buf, 16, 0));
	T(close(again));
	T(setxattr("f", "user.a", "v", 1, 0));
	T(unlink("f"));
	again = open(proc_of(fd), O_RDWR);
	IS(again >= 0 ? 0 : -1);
	IS(pread(again, buf, 16, 0));
	IS(pwrite(again, "N", 1, 0));
	IS(pread(fd, buf, 1, 0));
	IS(buf[0]);
	T(stat(proc_of(fd), &st));
	IS(st.st_size);
	T(chmod(proc_of(fd), 0640));
	T(fstat(fd, &st));
	IS(st.st_mode & 07777);
	T(fchown(fd, 7, 7));
	T(fstat(fd, &st));
	IS(st.st_uid == 7 && st.st_gid == 7);
	T(truncate(proc_of(fd), 3));
	IS(lseek(fd, 0, SEEK_END));
	IS(fgetxattr(fd, "user.a", buf, 16));
	T(fsetxattr(fd, "user.b", "v", 1, 0));
	IS(flistxattr(fd, buf, 16) > 0);
	T(fremovexattr(fd, "user.a"));
	T(flock(fd, LOCK_EX));
	T(linkat(AT_FDCWD, proc_of(fd), AT_FDCWD, "back", AT_SYMLINK_FOLLOW));
	T(utimensat(AT_FDCWD, proc_of(fd), NULL, 0));
	IS(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED);
	T(fdatasync(fd));
}

static void polled(void)
{
	struct pollfd p = { .events = POLLIN | POLLOUT };
	struct epoll_event ev = { .events = EPOLLIN };
	int e = epoll_create1(EPOLL_CLOEXEC);

	T(holds("f", "x"));
	p.fd = open("f", O_RDWR);
	IS(poll(&p, 1, 0));
	IS(p.revents);
	T(epoll_ctl(e, EPOLL_CTL_ADD, p.fd, &ev));
	T(epoll_ctl(e, EPOLL_CTL_ADD, open(".", O_RDONLY), &ev));
	T(fcntl(p.fd, F_SETFL, O_ASYNC) == 0 || errno == EINVAL ? 0 : -1);
	T(fcntl(p.fd, F_SETFL, O_DIRECT));
	T(fcntl(p.fd, F_GET_SEALS));
	T(fcntl(p.fd, F_SETLEASE, F_RDLCK));
	T(fcntl(open("f", O_RDONLY), F_NOTIFY, DN_MODIFY));
}

static int range(int fd, short type, off_t from, off_t len, short whence)
{
	struct flock l = { .l_type = type, .l_whence = whence, .l_start = from, .l_len = len };

	return fcntl(fd, F_SETLK, &l);
}
static off_t asked;
static int other_range(void) { return range(open("f", O_RDWR), F_WRLCK, asked, 1, SEEK_SET); }
static int holder(void)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = asked, .l_len = 1 };

	if (fcntl(open("f", O_RDWR), F_GETLK, &l) < 0)
		return -1;
	return l.l_type == F_UNLCK ? 0 : (l.l_pid == getppid()) + 2 * (l.l_type == F_WRLCK) + (int)l.l_start * 4 + 1;
}
static int at(off_t where)
{
	asked = where;
	return elsewhere(other_range);
}

static void lock_ranges(void)
{
	int fd;

	T(holds("f", "0123456789"));
	fd = open("f", O_RDWR);
	T(range(fd, F_WRLCK, 0, 10, SEEK_SET));
	T(range(fd, F_UNLCK, 3, 2, SEEK_SET));
	IS(at(2));
	IS(at(3));
	IS(at(4));
	IS(at(5));
	T(range(fd, F_RDLCK, 4, 3, SEEK_SET));
	IS(at(4));
	IS(at(9));
	asked = 9;
	IS(elsewhere(holder));
	asked = 4;
	IS(elsewhere(holder));
	T(range(fd, F_UNLCK, 0, 0, SEEK_SET));
	T(range(fd, F_WRLCK, -2, 2, SEEK_END));
	IS(at(7));
	IS(at(8));
	IS(at(10));
	T(range(fd, F_UNLCK, 0, 0, SEEK_SET));
	T(range(fd, F_WRLCK, 8, -4, SEEK_SET));
	IS(at(3));
	IS(at(4));
	IS(at(7));
	IS(at(8));
	T(range(fd, F_WRLCK, INT64_MAX, 2, SEEK_SET));
	T(range(fd, F_WRLCK, 0, 0, 7));
	T(range(fd, 77, 0, 1, SEEK_SET));
	T(range(open(".", O_RDONLY), F_RDLCK, 0, 1, SEEK_SET));
}

static int seen_of(const char *prefix, int n, int (*between)(int i))
{
	DIR *d = opendir(".");
	struct dirent *e;
	int seen = 0, i = 0;

	while (d && (e = readdir(d)) && i < 10 * n)
		if (!strncmp(e->d_name, prefix, strlen(prefix))) {
			seen++;
			if (between(i++) < 0)
				seen = -1000;
		}
	if (d)
		closedir(d);
	return seen;
}

static int make_another(int i)
{
	char name[16];

	(void)snprintf(name, sizeof(name), "other%d", i);
	return made(name);
}

static int rename_one(int i)
{
	char a[16], b[16];

	(void)snprintf(a, sizeof(a), "f%d", i);
	(void)snprintf(b, sizeof(b), "renamed%d", i);
	return rename(a, b);
}

static void changed_while_read(void)
{
	char name[16];
	DIR *d;

	for (int i = 0; i < 200; i++) {
		(void)snprintf(name, sizeof(name), "f%d", i);
		if (made(name) < 0)
			T(-1);
	}
	IS(seen_of("f", 200, make_another));
	d = opendir(".");
	IS(d && readdir(d));
	IS(seen_of("f", 200, rename_one) > 0);
	closedir(d);
	IS(kind_of("renamed0"));
	T(mkdir("e", 0755));
	d = opendir("e");
	T(made("e/late"));
	T(rmdir("e"));
	T(unlink("e/late"));
	T(rmdir("e"));
	rewinddir(d);
	IS(readdir(d) == NULL);
	T(fchmod(dirfd(d), 0700));
	T(fsync(dirfd(d)));
	T(openat(dirfd(d), "x", O_CREAT | O_WRONLY, 0644));
	T(mkdirat(dirfd(d), "x", 0755));
	T(openat(dirfd(d), ".", O_RDONLY));
	closedir(d);
}

static void more_opens(void)
{
	int fd;

	T(holds("f", "0123456789"));
	T(mkfifo("p", 0644));
	T(mkdir("d", 0755));
	T(symlink("d", "ld"));
	T(opened("f", O_RDONLY | O_NOATIME, 0));
	T(opened("f", O_RDWR | O_DIRECT, 0));
	T(opened("f", O_RDONLY | O_CREAT, 0));
	T(opened("f", O_WRONLY | O_APPEND | O_TRUNC, 0));
	IS(size_of("f"));
	T(opened("f", 3, 0));
	T(opened("ld", O_CREAT | O_RDONLY, 0644));
	T(opened("ld", O_WRONLY, 0));
	T(opened("ld", O_RDONLY | O_TRUNC, 0));
	T(opened("p", O_RDONLY | O_NONBLOCK | O_CREAT, 0644));
	T(opened("p", O_CREAT | O_EXCL | O_WRONLY | O_NONBLOCK, 0644));
	T(opened("p", O_RDWR | O_TRUNC | O_NONBLOCK, 0));
	T(opened("d/.", O_CREAT | O_WRONLY, 0644));
	T(opened("d/..", O_CREAT | O_WRONLY, 0644));
	T(opened("new/.", O_CREAT | O_WRONLY, 0644));
	fd = open("d", O_PATH);
	T(openat(fd, "x", O_CREAT | O_WRONLY, 0600));
	T(mkdirat(fd, "sub", 0755));
	T(renameat(fd, "x", fd, "y"));
	T(linkat(fd, "y", fd, "z", 0));
	T(symlinkat("y", fd, "s"));
	T(fchmodat(fd, "s", 0640, 0));
	IS(mode_of("d/y"));
	T(unlinkat(fd, "sub", 0));
	T(unlinkat(fd, "y", AT_REMOVEDIR));
	T(unlinkat(fd, "sub", AT_REMOVEDIR));
	T(fchdir(fd));
	IS(kind_of("z"));
	T(openat(open("z", O_RDONLY), "x", O_RDONLY));
	T(openat(-5, "x", O_RDONLY));
	fd = open("z", O_WRONLY | O_CREAT | O_EXCL, 0644);
	IS(fd);
	umask(0777);
	T(opened("shut", O_CREAT | O_RDWR, 0666));
	IS(mode_of("shut"));
	T(mkdir("shutd", 0777));
	IS(mode_of("shutd"));
}

static void more_space(void)
{
	struct stat st;
	char buf[64] = "";
	int fd = open("f", O_RDWR | O_CREAT, 0644), pipes[2];

	T(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 1 << 20));
	T(fstat(fd, &st));
	IS(st.st_size);
	IS(st.st_blocks >= 2048);
	T(ftruncate(fd, 0));
	IS(pwrite(fd, "abc", 3, 8192));
	T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8193, 100000));
	IS(size_of("f"));
	IS(pread(fd, buf, 3, 8192));
	IS(!memcmp(buf, "a\0\0", 3));
	T(fallocate(fd, FALLOC_FL_ZERO_RANGE, 8192, 1));
	IS(pread(fd, buf, 1, 8192));
	IS(buf[0]);
	T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1 << 30, 5));
	IS(size_of("f"));
	T(fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_PUNCH_HOLE, 0, 5));
	T(fallocate(fd, 0x40 /* unshare */, 0, 5) == 0 || errno == EOPNOTSUPP ? 0 : -1);
	T(posix_fallocate(fd, -1, 5));
	IS(posix_fallocate(fd, 0, 0));
	IS(posix_fallocate(open("f", O_RDONLY), 0, 5));
	T(pipe(pipes));
	IS(posix_fallocate(pipes[0], 0, 5));
	IS(splice(fd, &(loff_t){ 0 }, pipes[1], NULL, 64, 0));
	IS(read(pipes[0], buf, 64));
	IS(write(pipes[1], "spliced", 7));
	IS(splice(pipes[0], NULL, fd, &(loff_t){ 3 }, 7, 0));
	IS(pread(fd, buf, 7, 3));
	IS(!memcmp(buf, "spliced", 7));
	T(splice(fd, NULL, open("f", O_RDWR), NULL, 5, 0));
	T(copy_file_range(fd, NULL, pipes[1], NULL, 5, 0));
	T(setxattr("f", "user.a/b", "v", 1, 0));
	IS(getxattr("f", "user.a/b", buf, 64));
	T(setxattr("f", "user.a\n", "v", 1, 0));
}

const struct row rows_rules[] = { { "more_times", more_times }, { "numbers", numbers }, { "limits", limits },
	{ "mapped_ends", mapped_ends }, { "without_a_name", without_a_name }, { "polled", polled },
	{ "lock_ranges", lock_ranges }, { "changed_while_read", changed_while_read },
	{ "more_opens", more_opens }, { "more_space", more_space }, { NULL, NULL } };
