/* SPDX-License-Identifier: MIT */
/* Rows about attributes: modes, owners, times, sizes, links, and which operation changes which time. */
#include "tests/mount/posix.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#define MTIME 2
#define CTIME 4

static void modes(void)
{
	int fd;

	T(made("f"));
	T(mkdir("d", 0755));
	T(symlink("f", "l"));
	T(chmod("f", 0));
	IS(mode_of("f"));
	T(chmod("f", 0777));
	IS(mode_of("f"));
	T(chmod("l", 0640));
	IS(mode_of("f"));
	T(chmod("d", 01700));
	IS(mode_of("d"));
	T(chmod("nothing", 0644));
	T(chmod("f/x", 0644));
	T(chmod("", 0644));
	T(chmod(name_of(256), 0644));
	T(fchmodat(AT_FDCWD, "l", 0600, AT_SYMLINK_NOFOLLOW));
	fd = open("f", O_RDONLY);
	T(fchmod(fd, 0604));
	IS(mode_of("f"));
	T(chmod("f", 04755));
	IS(mode_of("f"));
	T(chmod("f", 02755));
	IS(mode_of("f"));
	T(chmod("f", 01644));
	IS(mode_of("f"));
	T(chmod("d", 02775));
	IS(mode_of("d"));
	fd = open("f", O_RDWR);
	T(chmod("f", 0));
	IS(write(fd, "open before", 11));
	T(chmod("f", 0444));
	T(opened("f", O_WRONLY, 0)); /* root may */
}

static int owner_is(const char *path, uid_t uid, gid_t gid)
{
	struct stat st;

	return lstat(path, &st) < 0 ? -1 : st.st_uid == uid && st.st_gid == gid;
}

static void owners(void)
{
	int fd;

	T(made("f"));
	T(symlink("f", "l"));
	T(mkdir("d", 0755));
	T(chown("f", 1001, 1001));
	IS(owner_is("f", 1001, 1001));
	T(chown("f", (uid_t)-1, 1002));
	IS(owner_is("f", 1001, 1002));
	T(chown("f", 1002, (gid_t)-1));
	IS(owner_is("f", 1002, 1002));
	T(chown("f", (uid_t)-1, (gid_t)-1));
	IS(owner_is("f", 1002, 1002));
	T(lchown("l", 1003, 1003));
	IS(owner_is("l", 1003, 1003));
	IS(owner_is("f", 1002, 1002));
	T(chown("l", 1004, 1004));
	IS(owner_is("f", 1004, 1004));
	fd = open("f", O_RDONLY);
	T(fchown(fd, 1005, 1005));
	IS(owner_is("f", 1005, 1005));
	T(chown("nothing", 1, 1));
	T(chown("f/x", 1, 1));
	T(chown(name_of(256), 1, 1));
	T(chown("f", 65535, 65535));
	T(chown("f", 65536, 65536));
	T(chown("f", 1001, 1001));
	T(chown("d", 1006, 1007));
	IS(owner_is("d", 1006, 1007));
	T(chmod("f", 06755));
	T(chown("f", 1001, 1001));
	IS(mode_of("f"));
}

static void truncates(void)
{
	char buf[16];
	int fd;

	T(holds("f", "0123456789"));
	T(mkdir("d", 0755));
	T(symlink("f", "l"));
	T(symlink("loop", "loop"));
	T(truncate("f", 4));
	IS(text_is("f", "0123"));
	T(truncate("f", 8));
	fd = open("f", O_RDWR);
	IS(pread(fd, buf, 16, 0));
	IS(!memcmp(buf, "0123\0\0\0\0", 8));
	T(ftruncate(fd, 2));
	IS(size_of("f"));
	T(ftruncate(fd, -1));
	T(truncate("f", -1));
	T(truncate("l", 1));
	IS(size_of("f"));
	T(truncate("d", 0));
	T(truncate("nothing", 0));
	T(truncate("f/x", 0));
	T(truncate("loop", 0));
	T(truncate("", 0));
	T(truncate(name_of(256), 0));
	IS(truncate("f", INT64_MAX) == 0 || errno == EFBIG);
	T(truncate("f", 1ll << 41));
	IS(size_of("f"));
	T(truncate("f", 3));
	IS(size_of("f"));
	fd = open("f", O_RDONLY);
	T(ftruncate(fd, 0));
	fd = open("f", O_WRONLY | O_APPEND);
	T(ftruncate(fd, 1));
	IS(size_of("f"));
	T(chmod("f", 0444));
	T(truncate("f", 0));
	fd = open("d", O_RDONLY);
	T(ftruncate(fd, 0));
}

static int times_are(const char *path, struct timespec a, struct timespec m)
{
	struct stat st;

	return lstat(path, &st) < 0 ? -1 :
		st.st_atim.tv_sec == a.tv_sec && st.st_atim.tv_nsec == a.tv_nsec &&
			st.st_mtim.tv_sec == m.tv_sec && st.st_mtim.tv_nsec == m.tv_nsec;
}

static int set_times(const char *path, struct timespec a, struct timespec m, int flags)
{
	return utimensat(AT_FDCWD, path, (struct timespec[2]){ a, m }, flags);
}

#define AT(s, n) ((struct timespec){ (s), (n) })
#define OMIT AT(0, UTIME_OMIT)
#define NOW AT(0, UTIME_NOW)

static void set_time(void)
{
	int fd;

	T(made("f"));
	T(mkdir("d", 0755));
	T(symlink("f", "l"));
	T(set_times("f", AT(1, 2), AT(3, 999999999), 0));
	IS(times_are("f", AT(1, 2), AT(3, 999999999)));
	T(set_times("f", OMIT, AT(1000000000, 5), 0));
	IS(times_are("f", AT(1, 2), AT(1000000000, 5)));
	T(set_times("f", AT(7, 0), OMIT, 0));
	IS(times_are("f", AT(7, 0), AT(1000000000, 5)));
	T(set_times("f", OMIT, OMIT, 0));
	IS(times_are("f", AT(7, 0), AT(1000000000, 5)));
	T(set_times("l", AT(11, 1), AT(12, 1), AT_SYMLINK_NOFOLLOW));
	IS(times_are("l", AT(11, 1), AT(12, 1)));
	IS(times_are("f", AT(7, 0), AT(1000000000, 5)));
	T(set_times("l", AT(21, 1), AT(22, 1), 0));
	IS(times_are("f", AT(21, 1), AT(22, 1)));
	T(set_times("d", AT(31, 1), AT(32, 1), 0));
	IS(times_are("d", AT(31, 1), AT(32, 1)));
	T(set_times("f", AT(-5, 500000000), AT(-1, 0), 0));
	IS(times_are("f", AT(-5, 500000000), AT(-1, 0)));
	T(set_times("f", AT(4000000000, 0), AT(4294967297, 0), 0));
	IS(times_are("f", AT(4000000000, 0), AT(4294967297, 0)));
	T(set_times("f", AT(1, 1000000000), AT(1, 0), 0));
	T(set_times("f", AT(1, -1), AT(1, 0), 0));
	T(set_times("nothing", AT(1, 0), AT(1, 0), 0));
	T(set_times("f/x", AT(1, 0), AT(1, 0), 0));
	T(set_times("", AT(1, 0), AT(1, 0), 0));
	T(set_times(name_of(256), AT(1, 0), AT(1, 0), 0));
	fd = open("f", O_RDONLY);
	T(futimens(fd, (struct timespec[2]){ AT(5, 5), AT(6, 6) }));
	IS(times_are("f", AT(5, 5), AT(6, 6)));
	fd = open("f", O_WRONLY);
	IS(write(fd, "late", 4));
	T(futimens(fd, (struct timespec[2]){ AT(8, 8), AT(9, 9) }));
	T(close(fd));
	IS(times_are("f", AT(8, 8), AT(9, 9)));
	T(set_times("f", NOW, NOW, 0));
	IS(times_are("f", AT(8, 8), AT(9, 9)));
}

/* Which times of `path` are others after fn than before it. */
static int moves(const char *path, int (*fn)(void))
{
	struct stat a, b;

	tick();
	if (lstat(path, &a) < 0 || fn() < 0 || lstat(path, &b) < 0)
		return -1;
	return (a.st_mtim.tv_sec != b.st_mtim.tv_sec || a.st_mtim.tv_nsec != b.st_mtim.tv_nsec ? MTIME : 0) |
		(a.st_ctim.tv_sec != b.st_ctim.tv_sec || a.st_ctim.tv_nsec != b.st_ctim.tv_nsec ? CTIME : 0);
}

static int the_fd;
static int do_chmod(void) { return chmod("f", 0600); }
static int do_chown(void) { return chown("f", 1001, 1001); }
static int do_link(void) { return link("f", "d/l"); }
static int do_unlink(void) { return unlink("d/l"); }
static int do_rename(void) { return rename("f", "g"); }
static int do_rename_back(void) { return rename("g", "f"); }
static int do_create(void) { return made("d/new"); }
static int do_rm(void) { return unlink("d/new"); }
static int do_mkdir(void) { return mkdir("d/sub", 0755); }
static int do_rmdir(void) { return rmdir("d/sub"); }
static int do_symlink(void) { return symlink("x", "d/s"); }
static int do_fifo(void) { return mkfifo("d/p", 0644); }
static int do_in(void) { return rename("f", "d/f"); }
static int do_out(void) { return rename("d/f", "f"); }
static int do_write(void) { return (int)pwrite(the_fd, "x", 1, 0); }
static int do_write_none(void) { return (int)pwrite(the_fd, "x", 0, 0); }
static int do_grow(void) { return truncate("f", 100); }
static int do_shrink(void) { return truncate("f", 10); }
static int do_same_size(void) { return truncate("f", 10); }
static int do_fsame_size(void) { return ftruncate(the_fd, 10); }
static int do_o_trunc(void) { return opened("f", O_WRONLY | O_TRUNC, 0); }
static int do_open(void) { return opened("f", O_RDWR, 0); }
static int do_open_create(void) { return opened("f", O_RDWR | O_CREAT, 0644); }
static int do_utimes(void) { return set_times("f", AT(1, 1), AT(1, 1), 0); }
static int do_stat(void) { return (int)size_of("f") < 0; }
static int do_setxattr(void) { return setxattr("f", "user.t", "v", 1, 0); }
static int do_failing(void) { return rmdir("d/none") < 0 ? 0 : -1; }
static int do_failing_create(void) { return made("d/kept") < 0 ? 0 : -1; }
static int do_fallocate(void) { return posix_fallocate(the_fd, 0, 5000); }

static void time_changes(void)
{
	T(holds("f", "text"));
	T(mkdir("d", 0755));
	T(made("d/kept"));
	the_fd = open("f", O_RDWR);
	IS(moves("f", do_chmod));
	IS(moves("f", do_chown));
	IS(moves("f", do_link));
	IS(moves("f", do_unlink));
	IS(moves("d", do_link));
	IS(moves("d", do_unlink));
	IS(moves(".", do_rename));
	IS(moves(".", do_rename_back));
	IS(moves("d", do_create));
	IS(moves("d", do_rm));
	IS(moves("d", do_mkdir));
	IS(moves("d", do_rmdir));
	IS(moves("d", do_symlink));
	IS(moves("d", do_fifo));
	IS(moves("d", do_in));
	IS(moves("d", do_out));
	IS(moves(".", do_in));
	IS(moves(".", do_out));
	IS(moves("d", do_failing));
	IS(moves("d", do_failing_create));
	IS(moves("f", do_write));
	IS(moves("f", do_write_none));
	IS(moves("f", do_grow));
	IS(moves("f", do_shrink));
	IS(moves("f", do_same_size));
	IS(moves("f", do_fsame_size));
	IS(moves("f", do_o_trunc));
	IS(moves("f", do_open));
	IS(moves("f", do_open_create));
	IS(moves("f", do_utimes) & CTIME);
	IS(moves("f", do_stat));
	IS(moves("f", do_fallocate) & MTIME ? 1 : 0);
	IS(moves("f", do_setxattr) & MTIME);
}

static void sizes_and_blocks(void)
{
	struct stat st;
	int fd;

	T(made("empty"));
	T(stat("empty", &st));
	IS(st.st_blocks);
	fd = open("sparse", O_CREAT | O_RDWR, 0644);
	IS(pwrite(fd, "x", 1, 50 << 20));
	T(fsync(fd));
	T(fstat(fd, &st));
	IS(st.st_size);
	IS(st.st_blocks > 0 && st.st_blocks < 20000);
	fd = open("full", O_CREAT | O_RDWR, 0644);
	for (int n = 0; n < 100; n++)
		if (write(fd, name_of(4096), 4096) != 4096)
			T(-1);
	IS(size_of("full"));
	T(fsync(fd));
	T(fstat(fd, &st));
	IS(st.st_blocks >= 800);
	IS(st.st_blksize >= 512);
	IS(st.st_dev != 0 && st.st_ino != 0);
}

static void link_counts(void)
{
	struct stat st;
	int fd;

	T(made("f"));
	IS(links_of("f"));
	T(link("f", "g"));
	T(link("f", "h"));
	IS(links_of("f"));
	T(unlink("g"));
	IS(links_of("h"));
	fd = open("f", O_RDWR);
	T(unlink("f"));
	T(unlink("h"));
	T(fstat(fd, &st));
	IS((long long)st.st_nlink);
	T(made("a"));
	T(made("b"));
	fd = open("b", O_RDONLY);
	T(rename("a", "b"));
	T(fstat(fd, &st));
	IS((long long)st.st_nlink);
	IS(links_of("b"));
	T(mkdir("d", 0755));
	IS(links_of("d"));
	T(mkdir("d/sub", 0755));
	IS(links_of("d"));
}

static void statfs_rows(void)
{
	struct statvfs v;
	int fd;

	T(made("f"));
	T(statvfs(".", &v));
	IS(v.f_namemax);
	IS(v.f_blocks > 0 && v.f_bfree <= v.f_blocks && v.f_bavail <= v.f_bfree && v.f_frsize >= 512);
	T(statvfs("f", &v));
	T(statvfs("nothing", &v));
	T(statvfs("f/x", &v));
	T(statvfs(name_of(256), &v));
	fd = open("f", O_RDONLY);
	T(fstatvfs(fd, &v));
	IS(v.f_namemax);
	IS(pathconf(".", _PC_NAME_MAX));
	IS(pathconf(".", _PC_PATH_MAX));
}

static void accesses(void)
{
	T(made("f"));
	T(mkdir("d", 0755));
	T(symlink("loop", "loop"));
	T(symlink("nothing", "dangling"));
	T(access("f", F_OK));
	T(access("f", R_OK | W_OK));
	T(access("f", X_OK));
	T(access("d", X_OK));
	T(access("nothing", F_OK));
	T(access("f/x", F_OK));
	T(access("loop", F_OK));
	T(access("dangling", F_OK));
	T(access("", F_OK));
	T(access(name_of(256), F_OK));
	T(faccessat(AT_FDCWD, "dangling", F_OK, AT_SYMLINK_NOFOLLOW));
	T(chmod("f", 0100));
	T(access("f", X_OK));
	T(access("f", R_OK)); /* root may */
	T(chmod("d", 0));
	T(access("d/x", F_OK));
	T(access("d", X_OK));
}

/* Somebody who is neither the owner nor root. */
static int be_nobody(void)
{
	return setgid(65534) < 0 || setuid(65534) < 0 ? -1 : 0;
}
static int nobody_reads(void) { return be_nobody() < 0 ? -1 : opened("secret", O_RDONLY, 0); }
static int nobody_writes(void) { return be_nobody() < 0 ? -1 : opened("public", O_WRONLY, 0); }
static int nobody_looks(void) { return be_nobody() < 0 ? -1 : opened("public", O_RDONLY, 0); }
static int nobody_makes(void) { return be_nobody() < 0 ? -1 : made("new"); }
static int nobody_removes(void) { return be_nobody() < 0 ? -1 : unlink("sticky/f"); }
static int nobody_chmods(void) { return be_nobody() < 0 ? -1 : chmod("public", 0777); }

static void other_callers(void)
{
	T(holds("secret", "s"));
	T(chmod("secret", 0600));
	T(holds("public", "p"));
	T(mkdir("sticky", 0777));
	T(chmod("sticky", 01777));
	T(made("sticky/f"));
	T(elsewhere(nobody_reads));
	T(elsewhere(nobody_writes));
	T(elsewhere(nobody_looks));
	T(elsewhere(nobody_makes));
	T(elsewhere(nobody_removes));
	T(elsewhere(nobody_chmods));
}

const struct row rows_attrs[] = { { "modes", modes }, { "owners", owners }, { "truncates", truncates },
	{ "set_time", set_time }, { "time_changes", time_changes },
	{ "sizes_and_blocks", sizes_and_blocks }, { "link_counts", link_counts },
	{ "statfs", statfs_rows }, { "accesses", accesses }, { "other_callers", other_callers },
	{ NULL, NULL } };
