/* SPDX-License-Identifier: MIT */
/* A folder per mount in the runtime directory. It holds a lock file that is locked as long as the mount
 * lives: what a killed one left behind is told by that, and removed by the next mount. */
#include "sbxfs/port_dir.h"

#include "common/sys/mem.h"
#include "common/sys/runtime.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define PREFIX "sbxfs-"
#define LOCK_NAME "lock"
#define BACKLOG 64

/* A socket's whole path has 107 bytes. */
static bool can_hold(const char *dir)
{
	return runtime_dir_ok(dir) && strlen(dir) < 40 && access(dir, W_OK) == 0;
}

/* Short, private to this boot, and ours to write. */
static const char *base_dir(void)
{
	const char *run = getenv("XDG_RUNTIME_DIR"), *tmp = getenv("TMPDIR");

	if (can_hold(run))
		return run;
	if (geteuid() == 0 && can_hold("/run"))
		return "/run";
	return can_hold(tmp) ? tmp : "/tmp";
}

static void empty_dir(int dir)
{
	int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			unlinkat(dir, e->d_name, 0);
	if (d)
		closedir(d);
	else if (copy >= 0)
		close(copy);
}

/* Ours, and its mount is dead: nobody holds the lock. Without a lock file it is being made just now. */
static void drop_dead(int base, const char *name)
{
	_cleanup_close_ int dir = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_close_ int lock = -1;
	struct stat st;

	if (dir < 0 || fstat(dir, &st) < 0 || st.st_uid != geteuid())
		return;
	lock = openat(dir, LOCK_NAME, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0)
		return;
	empty_dir(dir);
	unlinkat(base, name, AT_REMOVEDIR);
}

static void drop_all_dead(const char *base)
{
	DIR *d = opendir(base);
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (!strncmp(e->d_name, PREFIX, strlen(PREFIX)))
			drop_dead(dirfd(d), e->d_name);
	if (d)
		closedir(d);
}

int port_dir_open(struct port_dir *d, const struct options *o)
{
	char path[sizeof(d->path)], lock[sizeof(path) + 8];

	if (d->path[0])
		return 0;
	drop_all_dead(base_dir());
	if ((size_t)snprintf(path, sizeof(path), "%s/" PREFIX "XXXXXX", base_dir()) >= sizeof(path))
		return -ENAMETOOLONG;
	if (!mkdtemp(path))
		return -errno;
	(void)snprintf(lock, sizeof(lock), "%s/" LOCK_NAME, path);
	d->lock_fd = open(lock, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (d->lock_fd < 0 || flock(d->lock_fd, LOCK_EX | LOCK_NB) < 0 ||
		(o->has_gid && (chown(path, (uid_t)-1, o->gid) < 0 || chmod(path, 0710) < 0))) {
		int sys = errno;

		if (d->lock_fd >= 0)
			close(d->lock_fd);
		d->lock_fd = -1;
		unlink(lock);
		rmdir(path);
		return -sys;
	}
	memcpy(d->path, path, sizeof(path));
	return 0;
}

void port_dir_close(struct port_dir *d)
{
	int dir = d->path[0] ? open(d->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;

	if (dir >= 0) {
		empty_dir(dir);
		close(dir);
		rmdir(d->path);
	}
	if (d->lock_fd >= 0)
		close(d->lock_fd);
	*d = (struct port_dir)PORT_DIR_NULL;
}

int port_dir_listen(const struct options *o, const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	mode_t mode = o->has_gid ? 0660 : 0600;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), sys;

	if (fd < 0)
		return -errno;
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	/* The file gets the descriptor's mode, so that at no moment it is open to more. */
	if (fchmod(fd, mode) == 0 && bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 &&
		chmod(path, mode) == 0 && (!o->has_gid || chown(path, (uid_t)-1, o->gid) == 0) &&
		listen(fd, BACKLOG) == 0)
		return fd;
	sys = errno;
	unlink(path);
	close(fd);
	return -sys;
}
