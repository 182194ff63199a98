/* SPDX-License-Identifier: MIT */
/* Rows about paths that lead nowhere, or too far: each call with each of them. What a file system is asked
 * and what the kernel answers by itself differ from call to call, so no pair is left out. */
#include "tests/mount/posix.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

static char long_name[260], long_in[300], too_long[4200];
static const char *const bad[] = { "", "nothing", "nothing/x", "f/x", "f/", "f/.", "d/", "d/.", "d/..", ".", "..",
	"loop", "loop/", "loop/x", "dangling", "dangling/", "dangling/x", "l/", "l/x", "ld", "ld/", "ld/.",
	"ld/nothing", "ld/in/x", long_name, long_in, too_long };

static int c_stat(const char *p) { return stat(p, &(struct stat){ .st_mode = 0 }); }
static int c_lstat(const char *p) { return lstat(p, &(struct stat){ .st_mode = 0 }); }
static int c_access(const char *p) { return access(p, F_OK); }
static int c_chmod(const char *p) { return chmod(p, 0755); }
static int c_chown(const char *p) { return chown(p, 0, 0); }
static int c_lchown(const char *p) { return lchown(p, 0, 0); }
static int c_truncate(const char *p) { return truncate(p, 4); }
static int c_utimens(const char *p) { return utimensat(AT_FDCWD, p, NULL, 0); }
static int c_lutimens(const char *p) { return utimensat(AT_FDCWD, p, NULL, AT_SYMLINK_NOFOLLOW); }
static int c_open(const char *p) { return opened(p, O_RDONLY, 0); }
static int c_open_w(const char *p) { return opened(p, O_WRONLY, 0); }
static int c_open_dir(const char *p) { return opened(p, O_RDONLY | O_DIRECTORY, 0); }
static int c_open_nofollow(const char *p) { return opened(p, O_RDONLY | O_NOFOLLOW, 0); }
static int c_open_path(const char *p) { return opened(p, O_PATH | O_NOFOLLOW, 0); }
static int c_open_excl(const char *p) { return opened(p, O_RDONLY | O_EXCL, 0); }
static int c_statvfs(const char *p) { return statvfs(p, &(struct statvfs){ .f_bsize = 0 }); }
static int c_readlink(const char *p) { return (int)readlink(p, (char[16]){ 0 }, 16); }
static int c_listxattr(const char *p) { return (int)listxattr(p, NULL, 0) < 0 ? -1 : 0; }
static int c_getxattr(const char *p) { return (int)getxattr(p, "user.none", NULL, 0); }
static int c_setxattr(const char *p) { return setxattr(p, "user.a", "v", 1, 0); }
static int c_removexattr(const char *p) { return removexattr(p, "user.none"); }
static int c_link(const char *p) { return link(p, "made"); }
static int c_rename(const char *p) { return rename(p, "made"); }
static int c_unlink(const char *p) { return unlink(p); }
static int c_rmdir(const char *p) { return rmdir(p); }
static int c_create(const char *p) { return opened(p, O_CREAT | O_WRONLY, 0644); }
static int c_create_excl(const char *p) { return opened(p, O_CREAT | O_EXCL | O_WRONLY, 0644); }
static int c_mkdir(const char *p) { return mkdir(p, 0755); }
static int c_mkfifo(const char *p) { return mkfifo(p, 0644); }
static int c_mknod(const char *p) { return mknod(p, S_IFREG | 0644, 0); }
static int c_symlink(const char *p) { return symlink("text", p); }
static int c_link_to(const char *p) { return link("f", p); }
static int c_rename_to(const char *p) { return rename("f", p); }
static int c_rename_dir_to(const char *p) { return rename("d", p); }

static const struct call {
	const char *name;
	int (*fn)(const char *path);
	bool makes; /* or takes away: another garden after it */
} calls[] = {
	{ "stat", c_stat, false }, { "lstat", c_lstat, false }, { "access", c_access, false },
	{ "chmod", c_chmod, false }, { "chown", c_chown, false }, { "lchown", c_lchown, false },
	{ "truncate", c_truncate, false }, { "utimens", c_utimens, false },
	{ "lutimens", c_lutimens, false }, { "open", c_open, false },
	{ "open for writing", c_open_w, false }, { "open a directory", c_open_dir, false },
	{ "open, no link", c_open_nofollow, false }, { "open a path", c_open_path, false },
	{ "open, exclusive", c_open_excl, false }, { "statvfs", c_statvfs, false },
	{ "readlink", c_readlink, false }, { "listxattr", c_listxattr, false },
	{ "getxattr", c_getxattr, false }, { "setxattr", c_setxattr, false },
	{ "removexattr", c_removexattr, false }, { "link", c_link, true },
	{ "rename", c_rename, true }, { "unlink", c_unlink, true }, { "rmdir", c_rmdir, true },
	{ "create", c_create, true }, { "create, exclusive", c_create_excl, true },
	{ "mkdir", c_mkdir, true }, { "mkfifo", c_mkfifo, true }, { "mknod", c_mknod, true },
	{ "symlink", c_symlink, true }, { "link to", c_link_to, true },
	{ "rename to", c_rename_to, true }, { "rename a directory to", c_rename_dir_to, true }
};

/* The same things before each call, two directories below. */
static void garden(unsigned n)
{
	char dir[32];

	(void)snprintf(dir, sizeof(dir), "%u", n);
	if (mkdir(dir, 0755) < 0 || chdir(dir) < 0 || mkdir("garden", 0755) < 0 || chdir("garden") < 0 ||
		holds("f", "text") < 0 || mkdir("d", 0755) < 0 || made("d/in") < 0 || symlink("f", "l") < 0 ||
		symlink("d", "ld") < 0 || symlink("nothing", "dangling") < 0 || symlink("loop", "loop") < 0)
		T(-1);
}

static int call_with(const struct call *c, const char *path)
{
	char what[80];
	int rc = c->fn(path), e = errno;

	(void)snprintf(what, sizeof(what), "%s '%.40s'", c->name, path);
	errno = e;
	note(strdup(what), rc, false);
	return rc;
}

static void bad_paths(void)
{
	unsigned n = 0;

	memset(long_name, 'n', 256);
	(void)snprintf(long_in, sizeof(long_in), "d/%s", long_name);
	memset(too_long, '/', 4096);
	garden(n++);
	for (size_t c = 0; c < sizeof(calls) / sizeof(calls[0]); c++)
		for (size_t p = 0; p < sizeof(bad) / sizeof(bad[0]); p++)
			if (call_with(&calls[c], bad[p]) >= 0 && calls[c].makes) {
				if (chdir("../..") < 0)
					abort();
				garden(n++);
			}
}

/* A path of as many bytes as one call takes, from here. */
static const char *far_path(char *buf, size_t len, bool make)
{
	size_t at = 0;

	while (len - at > 200) {
		memset(buf + at, 'p', 127);
		buf[at + 127] = '\0';
		if (make && mkdir(buf, 0755) < 0)
			T(-1);
		buf[at + 127] = '/';
		at += 128;
	}
	memset(buf + at, 'e', len - at);
	buf[len] = '\0';
	return buf;
}

static void long_paths(void)
{
	static char far[5000], other[5000], beyond[5000];
	struct stat st;

	far_path(far, 4095, true);
	far_path(beyond, 4096, false);
	far_path(other, 4095, false);
	other[4094] = 'o';
	T(holds(far, "far"));
	T(holds(beyond, "far"));
	IS(text_is(far, "far"));
	T(stat(far, &st));
	T(stat(beyond, &st));
	T(chmod(far, 0600));
	IS(mode_of(far));
	T(chown(far, 0, 0));
	T(truncate(far, 2));
	IS(size_of(far));
	T(utimensat(AT_FDCWD, far, NULL, 0));
	T(setxattr(far, "user.a", "v", 1, 0));
	T(rename(far, other));
	T(link(other, far));
	IS(links_of(far));
	T(link(other, beyond));
	T(unlink(other));
	T(symlink("text", other));
	IS(readlink(other, (char[16]){ 0 }, 16));
	T(unlink(other));
	T(mkfifo(other, 0644));
	T(unlink(other));
	T(mkdir(other, 0755));
	T(mkdir(beyond, 0755));
	T(rmdir(other));
	T(unlink(far));
	T(rename("pppp", "x"));
}

/* Deeper than a path can say, one step at a time. */
static void deeper(void)
{
	char name[200];
	int n, up;

	memset(name, 'x', 199);
	name[199] = '\0';
	for (n = 0; n < 30; n++)
		if (mkdir(name, 0755) < 0 || chdir(name) < 0)
			break;
	IS(n);
	T(holds("bottom", "deep"));
	IS(text_is("bottom", "deep"));
	T(rename("bottom", "b"));
	T(unlink("b"));
	for (up = 0; up < n; up++)
		if (chdir("..") < 0 || rmdir(name) < 0)
			break;
	IS(up);
}

const struct row rows_paths[] = { { "bad_paths", bad_paths }, { "long_paths", long_paths }, { "deeper", deeper },
	{ NULL, NULL } };
