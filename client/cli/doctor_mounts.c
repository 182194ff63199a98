/* SPDX-License-Identifier: MIT */
/* The larger trials of `sbx doctor`: an overlay whose lower layer has shifted ids, and the cgroup
 * tree. */
#include "client/cli/doctor.h"

#include "common/sys/fd.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef CGROUP2_SUPER_MAGIC
#define CGROUP2_SUPER_MAGIC 0x63677270
#endif

/* A user namespace with ids shifted by 100000, as a descriptor; -errno. */
static int shifted_userns(void)
{
	int ready[2], hold[2], fd = -1;
	char path[64], byte;
	pid_t pid;

	if (pipe2(ready, O_CLOEXEC) < 0 || pipe2(hold, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		close(hold[1]);
		byte = unshare(CLONE_NEWUSER) < 0 ? (char)errno : 0;
		(void)!write(ready[1], &byte, 1);
		(void)!read(hold[0], &byte, 1);
		_exit(0);
	}
	close(hold[0]);
	if (pid > 0 && read(ready[0], &byte, 1) == 1 && byte == 0) {
		static const char map[] = "0 100000 65536";
		for (const char *const *m = (const char *const[]){ "uid_map", "gid_map", NULL }; *m;
			m++) {
			snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, *m);
			_cleanup_close_ int w = open(path, O_WRONLY | O_CLOEXEC);
			(void)!write(w, map, sizeof(map) - 1);
		}
		snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
		fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	int sys = errno;
	close(hold[1]);
	close(ready[0]);
	close(ready[1]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return fd < 0 ? -(sys ? sys : EPERM) : fd;
}

/* Runs in a child with a mount namespace of its own; all folders are on a private tmpfs. */
static int overlay_trial(void)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP };
	_cleanup_close_ int tree = -1;
	int userns = shifted_userns();

	if (userns < 0)
		return -userns;
	if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("tmpfs", "/tmp", "tmpfs", 0, NULL) < 0 || mkdir("/tmp/src", 0755) < 0 ||
		mkdir("/tmp/lower", 0755) < 0 || mkdir("/tmp/upper", 0755) < 0 ||
		mkdir("/tmp/work", 0755) < 0 || mkdir("/tmp/merged", 0755) < 0)
		return errno;
	tree = (int)syscall(
		SYS_open_tree, AT_FDCWD, "/tmp/src", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (tree < 0)
		return errno;
	attr.userns_fd = (uint64_t)userns;
	if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ||
		syscall(SYS_move_mount, tree, "", AT_FDCWD, "/tmp/lower", MOVE_MOUNT_F_EMPTY_PATH) <
			0)
		return errno;
	return mount("overlay", "/tmp/merged", "overlay", 0,
		       "lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/work") < 0
		       ? errno
		       : 0;
}

void try_overlay_idmap(struct finding *f)
{
	int status, sys;
	pid_t pid;

	if (geteuid() != 0) {
		say(f, false, "not tried: it takes root");
		mend(f, "run sbx doctor (and sandboxd) as root");
		f->optional = true;
		return;
	}
	pid = fork();
	if (pid == 0)
		_exit(overlay_trial());
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return say(f, false, "%s", strerrordesc_np(errno));
	sys = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
	say(f, sys == 0, "%s", sys ? strerrordesc_np(sys) : "works");
	mend(f, "a kernel from 6.1 on with overlayfs (modprobe overlay) and the right to mount is needed");
}

static const char *cgroup_mode(char *root, size_t size)
{
	struct statfs st;

	if (statfs("/sys/fs/cgroup", &st) < 0)
		return NULL;
	snprintf(root, size, "/sys/fs/cgroup");
	if (st.f_type == CGROUP2_SUPER_MAGIC)
		return "v2";
	if (statfs("/sys/fs/cgroup/unified", &st) == 0 && st.f_type == CGROUP2_SUPER_MAGIC)
		return "hybrid";
	return "v1";
}

/* Which of the controllers we use could be written; their names, "" when none. */
static size_t writable(const char *mode, const char *root, char *out, size_t size)
{
	static const char *const names[] = { "cpu", "memory", "pids", "freezer" };
	char path[128], all[512] = "";
	size_t n = 0, len = 0;
	bool v2 = !strcmp(mode, "v2");

	snprintf(path, sizeof(path), "%s/cgroup.controllers", root);
	_cleanup_close_ int fd = v2 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd >= 0 && read(fd, all, sizeof(all) - 1) < 0)
		all[0] = '\0';
	out[0] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", root, v2 ? "" : names[i]);
		/* v2 has the freezer in every group, without a controller of that name. */
		if (access(path, W_OK) < 0 ||
			(v2 && strcmp(names[i], "freezer") != 0 && !strstr(all, names[i])))
			continue;
		len += (size_t)snprintf(out + len, size - len, "%s%s", n++ ? " " : "", names[i]);
	}
	return n;
}

void try_cgroup(struct finding *f)
{
	char root[64], names[64];
	const char *mode = cgroup_mode(root, sizeof(root));
	size_t n;

	if (!mode) {
		say(f, false, "/sys/fs/cgroup is not there");
		mend(f, "mount -t cgroup2 none /sys/fs/cgroup");
		return;
	}
	n = writable(mode, root, names, sizeof(names));
	say(f, n == 4, "%s, writable: %s", mode, n ? names : "none");
	f->optional = n > 0 || geteuid() != 0;
	mend(f, geteuid()
			? "run as root, or in a session that systemd delegates controllers to"
			: "mount the missing controllers writable; limits that need them are not enforced");
}
