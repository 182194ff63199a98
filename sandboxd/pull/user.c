/* SPDX-License-Identifier: MIT */
/* Each cell has a user of its own: the kernel counts much by user (processes, watches, pages in
 * pipes), and who has the front's could use that up for it. In the folder that a cell is lent, what
 * is the front's on the disk is the cell's: the mount shows it so (mount_setattr(2),
 * MOUNT_ATTR_IDMAP). */
#include "sandboxd/pull/parts.h"

#include "common/sys/fd.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LENT_ATTR (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

static int put_map(pid_t pid, const char *map, const char *lines)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, map);
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd < 0 ? -1 : fd_write_full(fd, lines, strlen(lines));
}

/* On the disk, as seen, how many. What has an owner or a group without a line cannot be written to,
 * and none such be made: so the front's group is there, which a run has not, and the run's. */
static int put_maps(pid_t pid, uid_t front, gid_t group, const struct cell_user *u)
{
	char lines[96];

	snprintf(lines, sizeof(lines), "%u %u 1", front, u->uid);
	if (put_map(pid, "uid_map", lines) < 0)
		return -1;
	snprintf(lines, sizeof(lines), "%u %u 1\n%u %u 1", group, group, u->gid, u->gid);
	return put_map(pid, "gid_map", lines);
}

/* A namespace is born with a process; its descriptor keeps it. */
static int shift(uid_t front, gid_t group, const struct cell_user *u)
{
	const struct clone_args args = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
	long pid = syscall(SYS_clone3, &args, sizeof(args));
	char path[48];
	int fd = -1;

	if (pid == 0)
		for (;;)
			pause();
	if (pid < 0)
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	if (put_maps((pid_t)pid, front, group, u) == 0)
		fd = open(path, O_RDONLY | O_CLOEXEC);
	(void)kill((pid_t)pid, SIGKILL);
	while (waitpid((pid_t)pid, NULL, 0) < 0 && errno == EINTR)
		;
	return fd;
}

int cell_lent(const char *path, uid_t front, gid_t group, struct cell_user *u)
{
	_cleanup_close_ int ns = shift(front, group, u);
	int fd = open_tree(
		AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);
	struct mount_attr a = { .attr_set = LENT_ATTR };

	if (fd < 0 || mount_setattr(fd, "", AT_EMPTY_PATH, &a, sizeof(a)) < 0) {
		close_p(&fd);
		return -1;
	}
	a = (struct mount_attr){ .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)ns };
	u->own = ns >= 0 && mount_setattr(fd, "", AT_EMPTY_PATH, &a, sizeof(a)) == 0;
	if (!u->own)
		u->uid = front;
	return fd;
}
