/* SPDX-License-Identifier: MIT */
/* A cell sees what it takes to start the tool and to know a registry by its certificate; nothing of the host's
 * state, users, sockets or temporary files. All of it is read-only but the folder of its work. */
#include "sandboxd/pull/parts.h"

#include "common/sys/fd.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KEPT (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID)

/* The host's, where it has them (hier(7)): programs and libraries, certificates, devices without a memory. */
static const struct {
	const char *path;
	uint64_t attr;
} shown[] = {
	{ "/usr", KEPT | MOUNT_ATTR_NODEV },
	{ "/bin", KEPT | MOUNT_ATTR_NODEV },
	{ "/sbin", KEPT | MOUNT_ATTR_NODEV },
	{ "/lib", KEPT | MOUNT_ATTR_NODEV },
	{ "/lib32", KEPT | MOUNT_ATTR_NODEV },
	{ "/lib64", KEPT | MOUNT_ATTR_NODEV },
	{ "/libx32", KEPT | MOUNT_ATTR_NODEV },
	{ "/gnu/store", KEPT | MOUNT_ATTR_NODEV },
	{ "/nix/store", KEPT | MOUNT_ATTR_NODEV }, /* beside it lies the socket of a service that builds what it is told */
	{ "/etc/ld.so.cache", KEPT | MOUNT_ATTR_NODEV },
	{ "/etc/ssl", KEPT | MOUNT_ATTR_NODEV },
	{ "/etc/pki", KEPT | MOUNT_ATTR_NODEV },
	{ "/etc/ca-certificates", KEPT | MOUNT_ATTR_NODEV },
	{ "/etc/crypto-policies", KEPT | MOUNT_ATTR_NODEV },
	{ "/dev/null", KEPT },
	{ "/dev/zero", KEPT },
	{ "/dev/full", KEPT },
	{ "/dev/random", KEPT },
	{ "/dev/urandom", KEPT },
};
static const char *const folders[] = { "dev", "etc", "proc", "tmp", "tmp/pull", "tmp/conf",
	"tmp/conf/registries.d", "tmp/conf/certs" };
/* No search list: a name without a registry is made complete before it comes here. */
static const struct {
	const char *path, *text;
} files[] = {
	{ "etc/hosts", "127.0.0.1 localhost\n" },
	{ "etc/nsswitch.conf", "hosts: files\n" },
	{ "tmp/conf/policy.json", "{\"default\":[{\"type\":\"insecureAcceptAnything\"}]}\n" },
	{ "tmp/conf/registries.conf", "unqualified-search-registries = []\n"
				      "short-name-mode = \"enforcing\"\n" },
};

static int attach(const char *from, const char *to, uint64_t attr)
{
	_cleanup_close_ int fd = open_tree(
		AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW | AT_RECURSIVE);
	struct mount_attr a = { .attr_set = attr };

	if (fd < 0 || mount_setattr(fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &a, sizeof(a)) < 0)
		return -1;
	return move_mount(fd, "", AT_FDCWD, to, MOVE_MOUNT_F_EMPTY_PATH);
}

static int link_like(const char *path, const char *to)
{
	char target[4096];
	ssize_t n = readlink(path, target, sizeof(target) - 1);

	if (n < 0)
		return -1;
	target[n] = '\0';
	return symlink(target, to);
}

static int file(const char *path, const char *text)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	return fd < 0 ? -1 : fd_write_full(fd, text, strlen(text));
}

/* The folder that a path of two parts lies in. */
static int make_parent(const char *path)
{
	_cleanup_free_ char *dir = strdup(path);
	char *slash = dir ? strrchr(dir, '/') : NULL;

	if (!slash || slash == dir)
		return dir ? 0 : -1;
	*slash = '\0';
	return mkdir(dir + 1, 0755) < 0 && errno != EEXIST ? -1 : 0;
}

/* The current directory is the new root. */
static int show(const char *path, uint64_t attr)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -1;
	if (make_parent(path) < 0)
		return -1;
	if (S_ISLNK(st.st_mode))
		return link_like(path, path + 1);
	if (S_ISDIR(st.st_mode) ? mkdir(path + 1, 0755) < 0 : file(path + 1, "") < 0)
		return -1;
	return attach(path, path + 1, attr);
}

static int fill(int lent, const char **failed)
{
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
		if (mkdir(*failed = folders[i], 0755) < 0)
			return -1;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (file(*failed = files[i].path, files[i].text) < 0)
			return -1;
	for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++)
		if (show(*failed = shown[i].path, shown[i].attr) < 0)
			return -1;
	*failed = "proc";
	if (mount("none", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return -1;
	*failed = "what the cell is lent";
	return move_mount(lent, "", AT_FDCWD, "tmp/pull", MOVE_MOUNT_F_EMPTY_PATH);
}

int cell_root(int lent, const char **failed)
{
	struct mount_attr a = { .attr_set = KEPT | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC };

	*failed = "the root of a cell";
	if (mount("none", PULL_NEW, "tmpfs", MS_NOSUID | MS_NODEV, "size=256k,mode=0755") < 0 ||
		chdir(PULL_NEW) < 0 || fill(lent, failed) < 0)
		return -1;
	*failed = "change the root";
	if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return -1;
	return mount_setattr(AT_FDCWD, "/", 0, &a, sizeof(a));
}
