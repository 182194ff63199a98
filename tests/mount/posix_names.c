/* SPDX-License-Identifier: MIT */
/* Rows about names: what may be opened, made, linked, moved and removed, and with which error not. */
#include "tests/mount/posix.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#define RENAME_EXCHANGE 2
#endif

/* f a file, d a directory with d/in, l a link to f, ld to d, dangling, loop. */
static void garden(void)
{
	T(holds("f", "text"));
	T(mkdir("d", 0755));
	T(made("d/in"));
	T(symlink("f", "l"));
	T(symlink("d", "ld"));
	T(symlink("nothing", "dangling"));
	T(symlink("loop", "loop"));
}

static void open_errors(void)
{
	garden();
	T(opened("nothing", O_RDONLY, 0));
	T(opened("", O_RDONLY, 0));
	T(opened("nothing/x", O_CREAT | O_WRONLY, 0644));
	T(opened("f/x", O_RDONLY, 0));
	T(opened("f/x", O_CREAT | O_WRONLY, 0644));
	T(opened("f/", O_RDONLY, 0));
	T(opened("new/", O_CREAT | O_WRONLY, 0644));
	T(opened("d", O_WRONLY, 0));
	T(opened("d", O_RDWR, 0));
	T(opened("d", O_CREAT | O_RDONLY, 0644));
	T(opened("d", O_CREAT | O_EXCL | O_RDONLY, 0644));
	T(opened("d", O_RDONLY | O_TRUNC, 0));
	T(opened("d", O_RDONLY, 0));
	T(opened("d/", O_RDONLY | O_DIRECTORY, 0));
	T(opened("f", O_RDONLY | O_DIRECTORY, 0));
	T(opened("f", O_CREAT | O_EXCL | O_WRONLY, 0644));
	T(opened("l", O_CREAT | O_EXCL | O_WRONLY, 0644));
	T(opened("dangling", O_CREAT | O_EXCL | O_WRONLY, 0644));
	T(opened("dangling", O_RDONLY, 0));
	T(opened("dangling", O_CREAT | O_WRONLY, 0644));
	T(size_of("nothing"));
	T(opened("l", O_RDONLY | O_NOFOLLOW, 0));
	T(opened("l", O_PATH | O_NOFOLLOW, 0));
	T(opened("ld", O_RDONLY | O_NOFOLLOW | O_DIRECTORY, 0));
	T(opened("ld/in", O_RDONLY | O_NOFOLLOW, 0));
	T(opened("ld/", O_RDONLY, 0));
	T(opened("loop", O_RDONLY, 0));
	T(opened("loop/x", O_CREAT | O_WRONLY, 0644));
	T(opened(name_of(255), O_CREAT | O_WRONLY, 0644));
	T(opened(name_of(255), O_RDONLY, 0));
	T(opened(name_of(256), O_CREAT | O_WRONLY, 0644));
	T(opened(name_of(256), O_RDONLY, 0));
	T(opened(name_of(4095), O_RDONLY, 0));
	T(opened(name_of(4096), O_RDONLY, 0));
	T(opened("d", O_RDWR | O_TMPFILE, 0644));
	T(opened("f", O_RDWR | O_TMPFILE, 0644));
	T(opened(".", O_RDONLY, 0));
	T(opened("..", O_WRONLY, 0));
	T(opened(".", O_CREAT | O_WRONLY, 0644));
}

static void open_flags(void)
{
	int fd;

	T(holds("f", "0123456789"));
	T(opened("f", O_WRONLY, 0));
	IS(size_of("f"));
	T(opened("f", O_WRONLY | O_CREAT, 0));
	IS(size_of("f"));
	fd = open("f", O_RDWR | O_APPEND);
	IS(write(fd, "ab", 2));
	IS(lseek(fd, 0, SEEK_CUR));
	IS(pwrite(fd, "cd", 2, 0)); /* Linux appends all the same */
	IS(text_is("f", "0123456789abcd"));
	IS(fcntl(fd, F_SETFL, 0));
	IS(pwrite(fd, "X", 1, 0));
	IS(text_is("f", "X123456789abcd"));
	IS(fcntl(fd, F_SETFL, O_APPEND));
	IS(write(fd, "e", 1));
	IS(text_is("f", "X123456789abcde"));
	T(close(fd));
	fd = open("f", O_RDWR | O_APPEND | O_TRUNC);
	IS(size_of("f"));
	IS(write(fd, "a", 1));
	IS(write(fd, "b", 1));
	IS(text_is("f", "ab"));
	T(ftruncate(fd, 0));
	IS(write(fd, "c", 1));
	IS(text_is("f", "c"));
	T(close(fd));
	T(opened("f", O_WRONLY | O_TRUNC | O_CREAT, 0600));
	IS(size_of("f"));
	IS(mode_of("f"));
	T(opened("g", O_CREAT | O_RDONLY, 0604));
	IS(mode_of("g"));
	umask(077);
	T(opened("h", O_CREAT | O_RDONLY, 0777));
	IS(mode_of("h"));
	umask(022);
	fd = open("zero", O_CREAT | O_RDWR | O_EXCL, 0000);
	IS(write(fd, "x", 1));
	IS(pread(fd, (char[1]){ 0 }, 1, 0));
	IS(mode_of("zero"));
	fd = open("f", O_RDONLY | O_TRUNC);
	IS(fd >= 0);
	fd = open("f", O_WRONLY | O_SYNC);
	IS(write(fd, "sync", 4));
	IS(text_is("f", "sync"));
	fd = open("f", O_WRONLY | O_DSYNC | O_NONBLOCK);
	IS(write(fd, "S", 1));
	IS(text_is("f", "Sync"));
	fd = open("f", O_PATH);
	T(read(fd, (char[1]){ 0 }, 1));
	T(fchmod(fd, 0600));
	T(fstat(fd, &(struct stat){ .st_mode = 0 }));
}

static void open_special(void)
{
	int fd;

	T(mkfifo("fifo", 0644));
	IS(kind_of("fifo"));
	T(opened("fifo", O_WRONLY | O_NONBLOCK, 0));
	T(opened("fifo", O_RDONLY | O_NONBLOCK, 0));
	T(opened("fifo", O_RDONLY | O_NONBLOCK | O_DIRECTORY, 0));
	fd = open("fifo", O_RDWR | O_NONBLOCK);
	IS(write(fd, "abc", 3));
	IS(read(fd, (char[3]){ 0 }, 3));
	T(truncate("fifo", 0));
	T(mkfifo("fifo", 0644));
	T(mkfifo("none/fifo", 0644));
	T(mkfifo("sticky", 01640));
	IS(mode_of("sticky"));
	T(mknod("reg", S_IFREG | 0640, 0));
	IS(kind_of("reg"));
	IS(mode_of("reg"));
	T(mknod("reg", S_IFREG | 0640, 0));
	T(mknod("null", S_IFCHR | 0600, 1 << 8 | 3));
	T(mknod("block", S_IFBLK | 0600, 7 << 8));
	T(mknod("sock", S_IFSOCK | 0600, 0));
	T(mknod("dir", S_IFDIR | 0755, 0));
	T(unlink("fifo"));
}

static void mkdirs(void)
{
	garden();
	T(mkdir("f", 0755));
	T(mkdir("d", 0755));
	T(mkdir("d/", 0755));
	T(mkdir("l", 0755));
	T(mkdir("dangling", 0755));
	T(mkdir("loop", 0755));
	T(mkdir("loop/x", 0755));
	T(mkdir("nothing/x", 0755));
	T(mkdir("f/x", 0755));
	T(mkdir("", 0755));
	T(mkdir(".", 0755));
	T(mkdir("..", 0755));
	T(mkdir(name_of(255), 0755));
	T(mkdir(name_of(256), 0755));
	T(mkdir("slash/", 0755));
	IS(kind_of("slash"));
	T(mkdir("m", 01777));
	IS(mode_of("m"));
	T(mkdir("p", 0700));
	IS(mode_of("p"));
	T(mkdir("ld/through", 0755));
	IS(kind_of("d/through"));
}

static void rmdirs(void)
{
	garden();
	T(rmdir("f"));
	T(rmdir("d"));
	T(rmdir("l"));
	T(rmdir("ld"));
	T(rmdir("ld/"));
	T(rmdir("nothing"));
	T(rmdir("nothing/x"));
	T(rmdir("f/x"));
	T(rmdir("."));
	T(rmdir(".."));
	T(rmdir("d/.."));
	T(rmdir(""));
	T(rmdir("loop"));
	T(rmdir("loop/x"));
	T(rmdir(name_of(256)));
	T(unlink("d/in"));
	T(rmdir("d/"));
	IS(kind_of("d"));
	T(mkdir("e", 0755));
	T(mkdir("e/sub", 0755));
	T(rmdir("e"));
	T(rmdir("e/sub"));
	T(rmdir("e"));
}

static void unlinks(void)
{
	garden();
	T(unlink("d"));
	T(unlink("d/"));
	T(unlink("nothing"));
	T(unlink("nothing/x"));
	T(unlink("f/x"));
	T(unlink("f/"));
	T(unlink("."));
	T(unlink(".."));
	T(unlink(""));
	T(unlink("loop/x"));
	T(unlink("loop"));
	T(unlink("dangling"));
	T(unlink("l"));
	IS(kind_of("f"));
	T(unlink("ld/in"));
	T(unlink("ld"));
	T(unlink(name_of(256)));
	T(unlink("f"));
	T(unlink("f"));
	T(unlinkat(AT_FDCWD, "d", 0));
	T(unlinkat(AT_FDCWD, "d", AT_REMOVEDIR));
	T(unlinkat(AT_FDCWD, "x", 12345));
}

static void links(void)
{
	garden();
	T(link("f", "g"));
	IS(links_of("f"));
	IS(links_of("g"));
	T(holds("g", "other"));
	IS(text_is("f", "other"));
	T(link("f", "g"));
	T(link("f", "f"));
	T(link("nothing", "x"));
	T(link("f", "nothing/x"));
	T(link("f/x", "x"));
	T(link("f", "f/x"));
	T(link("d", "x"));
	T(link("f", "d"));
	T(link("f", "dangling"));
	T(link("f", name_of(255)));
	T(link("f", name_of(256)));
	T(link(name_of(256), "x"));
	T(link("f", ""));
	T(link("", "x"));
	T(link("loop/x", "x"));
	T(link("f", "loop/x"));
	T(link("l", "hard-of-link"));
	IS(kind_of("hard-of-link"));
	IS(links_of("l"));
	T(linkat(AT_FDCWD, "l", AT_FDCWD, "followed", AT_SYMLINK_FOLLOW));
	IS(kind_of("followed"));
	IS(links_of("f"));
	T(unlink("f"));
	IS(links_of("g"));
	T(link("g", "/proc/x"));
}

static void symlinks(void)
{
	char buf[5000];
	struct stat st;

	garden();
	T(symlink("a", "f"));
	T(symlink("a", "d"));
	T(symlink("a", "l"));
	T(symlink("a", "nothing/x"));
	T(symlink("a", "f/x"));
	T(symlink("", "x"));
	T(symlink("a", ""));
	T(symlink(name_of(4095), "long"));
	IS(size_of("long"));
	IS(readlink("long", buf, sizeof(buf)));
	T(symlink(name_of(4096), "longer"));
	T(symlink("a", name_of(255)));
	T(symlink("a", name_of(256)));
	T(symlink("a", "loop/x"));
	IS(readlink("l", buf, sizeof(buf)));
	IS(readlink("ld", buf, 0));
	T(symlink("0123456789", "ten"));
	IS(readlink("ten", buf, 4));
	IS(size_of("ten"));
	T(readlink("f", buf, sizeof(buf)));
	T(readlink("d", buf, sizeof(buf)));
	T(readlink("nothing", buf, sizeof(buf)));
	T(readlink("f/x", buf, sizeof(buf)));
	IS(lstat("l", &st) == 0 && (st.st_mode & 0777) == 0777);
	T(stat("loop", &st));
	T(stat("dangling", &st));
	T(lstat("dangling", &st));
	T(lstat("l/", &st));
	T(lstat("ld/", &st));
	IS((st.st_mode & S_IFMT) == S_IFDIR);
	T(lstat("f/", &st));
	T(chdir("f"));
	T(chdir("loop"));
	/* The kernel follows forty, on every file system. */
	T(symlink("f", "c0"));
	for (int n = 1; n <= 41; n++) {
		char from[16], to[16];

		snprintf(from, sizeof(from), "c%d", n - 1);
		snprintf(to, sizeof(to), "c%d", n);
		if (symlink(from, to) < 0)
			T(-1);
	}
	T(stat("c39", &st));
	T(stat("c40", &st));
}

static void renames(void)
{
	garden();
	T(made("g"));
	T(rename("f", "g"));
	IS(text_is("g", "text"));
	T(rename("g", "f"));
	T(rename("f", "f"));
	T(rename("nothing", "x"));
	T(rename("nothing", "f"));
	T(rename("f", "nothing/x"));
	T(rename("f/x", "x"));
	T(rename("f", "f/x"));
	T(rename("f", "d"));
	T(rename("d", "f"));
	T(rename("d", "d/x"));
	T(rename("d", "d/in"));
	T(mkdir("e", 0755));
	T(rename("e", "d"));
	T(rename("d", "e"));
	IS(kind_of("e/in"));
	T(rename("e", "d"));
	T(mkdir("e", 0755));
	T(rename("e", "d"));
	T(rename("d/in", "d"));
	T(rename("e", "f"));
	T(rename("f", "e"));
	T(rename("f", ""));
	T(rename("", "f"));
	T(rename(".", "x"));
	T(rename("d", "."));
	T(rename("d", ".."));
	T(rename("d/..", "x"));
	T(rename("f", name_of(256)));
	T(rename(name_of(256), "f"));
	T(rename("f", "loop/x"));
	T(rename("loop/x", "f"));
	T(rename("l", "l2"));
	IS(kind_of("l2"));
	T(rename("l2", "dangling"));
	IS(kind_of("dangling"));
	T(rename("f", "dangling"));
	IS(kind_of("dangling"));
	T(rename("dangling", "f"));
	T(rename("f", "g/"));
	T(rename("f/", "g"));
	T(rename("e/", "e2/"));
	IS(kind_of("e2"));
	T(rename("e2", "d/sub"));
	T(rename("d", "d/sub"));
	T(rename("d", "d/sub/deep"));
	T(rename("f", "/proc/x"));
}

static void rename_links(void)
{
	T(holds("a", "a"));
	T(link("a", "b"));
	T(rename("a", "b")); /* two names of one file: nothing happens */
	IS(links_of("a"));
	IS(links_of("b"));
	T(mkdir("d", 0755));
	T(rename("a", "d/a"));
	IS(links_of("b"));
	T(unlink("b"));
	IS(links_of("d/a"));
	IS(text_is("d/a", "a"));
}

static void rename_flags(void)
{
	T(holds("a", "a"));
	T(holds("b", "b"));
	T(mkdir("d", 0755));
	T(made("d/in"));
	T(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_NOREPLACE));
	T(renameat2(AT_FDCWD, "a", AT_FDCWD, "d", RENAME_NOREPLACE));
	T(renameat2(AT_FDCWD, "a", AT_FDCWD, "c", RENAME_NOREPLACE));
	IS(text_is("c", "a"));
	T(renameat2(AT_FDCWD, "c", AT_FDCWD, "b", RENAME_EXCHANGE));
	IS(text_is("c", "b"));
	IS(text_is("b", "a"));
	T(renameat2(AT_FDCWD, "c", AT_FDCWD, "d", RENAME_EXCHANGE));
	IS(kind_of("c"));
	IS(kind_of("c/in"));
	IS(text_is("d", "b"));
	T(renameat2(AT_FDCWD, "c", AT_FDCWD, "nothing", RENAME_EXCHANGE));
	T(renameat2(AT_FDCWD, "c", AT_FDCWD, "c/in", RENAME_EXCHANGE));
	T(renameat2(AT_FDCWD, "c/in", AT_FDCWD, "c", RENAME_EXCHANGE));
	T(renameat2(AT_FDCWD, "b", AT_FDCWD, "c", RENAME_NOREPLACE | RENAME_EXCHANGE));
	T(renameat2(AT_FDCWD, "b", AT_FDCWD, "c", 1u << 20));
	T(renameat2(AT_FDCWD, "nothing", AT_FDCWD, "x", RENAME_NOREPLACE));
}

static void rename_open(void)
{
	char buf[8] = "";
	int a, b;

	T(holds("a", "from a"));
	T(holds("b", "from b"));
	a = open("a", O_RDWR);
	b = open("b", O_RDWR);
	T(rename("a", "b"));
	IS(pread(a, buf, 6, 0));
	IS(!memcmp(buf, "from a", 6));
	IS(pread(b, buf, 6, 0));
	IS(!memcmp(buf, "from b", 6));
	IS(pwrite(b, "still", 5, 0));
	IS(text_is("b", "from a"));
	IS(pwrite(a, "FROM", 4, 0));
	IS(text_is("b", "FROM a"));
	IS(pread(b, buf, 6, 0));
	IS(!memcmp(buf, "stillb", 6));
	T(mkdir("d", 0755));
	T(holds("d/f", "in"));
	a = open("d/f", O_RDWR);
	T(rename("d", "e"));
	IS(pwrite(a, "IN", 2, 0));
	IS(text_is("e/f", "IN"));
	T(chdir("e"));
	T(rename("../e", "../e3"));
	IS(text_is("f", "IN"));
	T(made("new"));
	T(chdir(".."));
	IS(kind_of("e3/new"));
}

static int entries(DIR *d, unsigned *seen, int most)
{
	struct dirent *e;
	int n = 0;

	while (n < most && (e = readdir(d)))
		if (sscanf(e->d_name, "f%d", &(int){ 0 }) == 1) {
			seen[atoi(e->d_name + 1) % 400]++;
			n++;
		}
	return n;
}

static void make_many(int n)
{
	char name[16];

	for (int i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		if (made(name) < 0)
			T(-1);
	}
}

static int count_of(const unsigned *seen, unsigned times)
{
	int n = 0;

	for (int i = 0; i < 400; i++)
		n += seen[i] == times;
	return n;
}

static void readdirs(void)
{
	unsigned seen[400] = { 0 }, again[400] = { 0 };
	struct dirent *e;
	char name[32] = "";
	DIR *d;
	long at;

	make_many(300);
	d = opendir(".");
	IS(entries(d, seen, 1000));
	IS(count_of(seen, 1));
	rewinddir(d);
	IS(entries(d, again, 1000));
	IS(count_of(again, 1));
	rewinddir(d);
	IS(entries(d, again, 150));
	at = telldir(d);
	e = readdir(d);
	if (e)
		snprintf(name, sizeof(name), "%.31s", e->d_name);
	(void)entries(d, seen, 100);
	seekdir(d, at);
	e = readdir(d);
	IS(e && !strcmp(e->d_name, name));
	closedir(d);
	/* Removing what was read neither hides nor repeats what was not. */
	d = opendir(".");
	memset(seen, 0, sizeof(seen));
	while ((e = readdir(d)))
		if (e->d_name[0] == 'f') {
			seen[atoi(e->d_name + 1) % 400]++;
			if (unlink(e->d_name) < 0)
				T(-1);
		}
	IS(count_of(seen, 1));
	rewinddir(d);
	IS(entries(d, seen, 1000));
	T(made("f7"));
	rewinddir(d);
	IS(entries(d, seen, 1000));
	closedir(d);
}

static int types_right(void)
{
	static const struct {
		const char *name;
		int type;
	} want[] = { { "f", DT_REG }, { "d", DT_DIR }, { "l", DT_LNK }, { "p", DT_FIFO }, { ".", DT_DIR },
		{ "..", DT_DIR } };
	DIR *d = opendir(".");
	struct dirent *e;
	struct stat st;
	int right = 0;

	while (d && (e = readdir(d)))
		for (size_t n = 0; n < 6; n++)
			if (!strcmp(e->d_name, want[n].name) && e->d_type == want[n].type)
				right += n > 3 || (lstat(e->d_name, &st) == 0 && st.st_ino == e->d_ino);
	if (d)
		closedir(d);
	return right;
}

static void readdir_types(void)
{
	T(made("f"));
	T(mkdir("d", 0755));
	T(symlink("f", "l"));
	T(mkfifo("p", 0644));
	IS(types_right());
}

static void removed_directory(void)
{
	char buf[4096];
	DIR *dir;
	int fd;

	T(mkdir("d", 0755));
	fd = open("d", O_RDONLY | O_DIRECTORY);
	dir = opendir("d");
	T(chdir("d"));
	T(rmdir("../d"));
	T(opened("x", O_CREAT | O_WRONLY, 0644));
	T(mkdir("x", 0755));
	T(opened("x", O_RDONLY, 0));
	IS(getcwd(buf, sizeof(buf)) ? 1 : -1);
	IS(links_of(".") == 0 || links_of(".") == 1 ? 1 : links_of("."));
	T(fsync(fd));
	IS(readdir(dir) == NULL || readdir(dir) != NULL);
	T(chdir(".."));
	T(closedir(dir));
	T(mkdir("d", 0755));
	T(made("d/new"));
	T(openat(fd, "new", O_RDONLY));
}

const struct row rows_names[] = { { "open_errors", open_errors }, { "open_flags", open_flags },
	{ "open_special", open_special }, { "mkdirs", mkdirs }, { "rmdirs", rmdirs }, { "unlinks", unlinks },
	{ "links", links }, { "symlinks", symlinks }, { "renames", renames },
	{ "rename_links", rename_links }, { "rename_flags", rename_flags }, { "rename_open", rename_open },
	{ "readdirs", readdirs }, { "readdir_types", readdir_types },
	{ "removed_directory", removed_directory }, { NULL, NULL } };
