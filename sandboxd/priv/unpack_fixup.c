/* SPDX-License-Identifier: MIT */
/* After unpacking: the folders that are mounted on, the sandbox user and its home, names of the
 * loopback. Done once for an image, so that a sandbox costs nothing for it: in the tree itself, or
 * in a small layer on top of what the image's layers show together. Runs in the jail; a link in the
 * image where a folder must be makes the image unusable, and that is said. */
#include "sandboxd/priv/unpack.h"

#include "common/sys/fd.h"
#include "common/sys/mem.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SANDBOX_ID 1001
#define TABLE_MAX  (1024 * 1024)

static const struct {
	const char *path;
	mode_t mode;
	uid_t owner;
	bool force; /* set mode and owner on what exists too */
} dirs[] = {
	{ "proc", 0555, 0, false },
	{ "sys", 0555, 0, false },
	{ "dev", 0755, 0, false },
	{ "run", 0755, 0, false },
	{ "tmp", 01777, 0, true },
	{ "etc", 0755, 0, false },
	{ "sandbox", 0755, 0, true },
	{ "sandbox/home", 0755, SANDBOX_ID, true },
};

static int open_plain(int root, const char *path, uint64_t flags, uint64_t mode)
{
	return sys_openat2(root, path, flags, mode, RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);
}

struct trees {
	int view, out; /* what is there; where changes go */
	struct fail *f;
};

/* The folder in `out`, as it is in the view or as the table wants it. */
static int put_dir(const struct trees *t, size_t i, const struct stat *seen)
{
	bool keep = seen && !dirs[i].force;
	uid_t uid = keep ? seen->st_uid : dirs[i].owner;
	gid_t gid = keep ? seen->st_gid : dirs[i].owner;
	mode_t mode = keep ? seen->st_mode & 07777 : dirs[i].mode;

	if (mkdirat(t->out, dirs[i].path, 0755) < 0 && errno != EEXIST)
		return fail_set(t->f, errno, "make /%s", dirs[i].path);
	_cleanup_close_ int fd = open_plain(t->out, dirs[i].path, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0 || fchown(fd, uid, gid) < 0 || fchmod(fd, mode) < 0)
		return fail_set(t->f, fd < 0 ? fd : errno, "prepare /%s", dirs[i].path);
	return 0;
}

static int make_dirs(const struct trees *t)
{
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		_cleanup_close_ int fd =
			open_plain(t->view, dirs[i].path, O_RDONLY | O_DIRECTORY, 0);
		struct stat st;
		if ((fd < 0 && fd != -ENOENT) || (fd >= 0 && fstat(fd, &st) < 0))
			return fail_set(t->f, fd < 0 ? fd : errno,
				"the image's /%s must be a folder", dirs[i].path);
		if (put_dir(t, i, fd < 0 ? NULL : &st) < 0)
			return -1;
	}
	return 0;
}

/* Reads all of a small table; an absent one is empty. Caller frees. */
static char *read_table(int root, const char *path)
{
	_cleanup_close_ int fd = open_plain(root, path, O_RDONLY | O_NONBLOCK, 0);
	char *buf = calloc(1, TABLE_MAX);
	ssize_t n;

	if (fd >= 0 && buf && (n = read(fd, buf, TABLE_MAX - 2)) >= 0)
		buf[n] = 0;
	return buf;
}

/* Replaces whatever has that name, a link too. */
static int write_table(int root, const char *path, const char *text)
{
	int r;

	if (unlinkat(root, path, 0) < 0 && errno != ENOENT)
		return -errno;
	_cleanup_close_ int fd = open_plain(root, path, O_WRONLY | O_CREAT | O_EXCL, 0644);
	if (fd < 0)
		return fd;
	r = fd_write_full(fd, text, strlen(text));
	return r;
}

/* Does a line of the table have this name, or this number, as the user or group it is about? */
static bool line_is_sandbox(const char *line)
{
	char name[64], number[32];

	if (sscanf(line, "%63[^:\n]:%*[^:\n]:%31[^:\n]", name, number) == 2)
		return strcmp(name, "sandbox") == 0 || atol(number) == SANDBOX_ID;
	return strncmp(line, "sandbox:", 8) == 0;
}

static int put_line(const struct trees *t, const char *path, const char *line)
{
	_cleanup_free_ char *old = read_table(t->view, path);
	_cleanup_free_ char *text = calloc(1, TABLE_MAX + 256);
	size_t n = 0;

	if (!old || !text)
		return -ENOMEM;
	for (char *p = old; *p;) {
		size_t len = strcspn(p, "\n");
		if (len > 0 && !line_is_sandbox(p))
			n += (size_t)sprintf(text + n, "%.*s\n", (int)len, p);
		p += len + (p[len] == '\n');
	}
	sprintf(text + n, "%s\n", line);
	return write_table(t->out, path, text);
}

static bool has_localhost(int root)
{
	_cleanup_free_ char *hosts = read_table(root, "etc/hosts");

	return hosts && strstr(hosts, "127.0.0.1") && strstr(hosts, "localhost");
}

int unpack_fixup(int view, int out, struct fail *f)
{
	const struct trees t = { view, out, f };
	int r = make_dirs(&t);

	if (r == 0)
		r = put_line(&t, "etc/passwd", "sandbox:x:1001:1001:sandbox:/sandbox/home:/bin/sh");
	if (r == 0)
		r = put_line(&t, "etc/group", "sandbox:x:1001:");
	if (r == 0)
		r = write_table(out, "etc/resolv.conf", "nameserver 127.0.0.53\n");
	if (r == 0 && !has_localhost(view))
		r = write_table(out, "etc/hosts", "127.0.0.1 localhost\n::1 localhost\n");
	return r < 0 ? fail_set(f, r, "prepare the image's tables") : 0;
}
