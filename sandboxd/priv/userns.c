/* SPDX-License-Identifier: MIT */
/* A process has to be born in the namespace for it to exist. It shares our memory (which makes it
 * cheap), waits for a byte, and goes. */
#include "sandboxd/priv/userns.h"

#include "common/sys/mem.h"

#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static int wait_for_end(void *arg)
{
	const int *p = arg;
	char c;

	close(p[1]); /* its only other end is the parent's: a parent that dies ends us too */
	while (read(p[0], &c, 1) < 0 && errno == EINTR)
		;
	_exit(0);
}

static int write_maps(pid_t pid, uid_t first, int *ns)
{
	char path[48];
	int r = 0;
	/* The last is not used, but whoever is inside could write it once. */
	static const char *const maps[] = { "uid_map", "gid_map", "projid_map" };

	for (size_t i = 0; i < ARRAY_LEN(maps) && r == 0; i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, maps[i]);
		r = file_write(AT_FDCWD, path, "0 %u 65536", first);
	}
	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	if (r == 0)
		*ns = open(path, O_RDONLY | O_CLOEXEC);
	return r == 0 && *ns < 0 ? -errno : r;
}

/* What the kernel counts by user (inotify, pending signals, message queues) it charges to the owner
 * of the user's namespace as well. One owner for all would be the host's root, and the first
 * sandbox to use much would use up everybody's; so each has its own, an id that no process of the
 * host has. */
static pid_t start_owned(uid_t owner, void *stack_end, int *p)
{
	int dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
	pid_t pid = -1;

	if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0)
		return -errno;
	if (syscall(SYS_setresuid, -1, owner, -1) == 0)
		pid = clone(wait_for_end, stack_end, CLONE_VM | CLONE_NEWUSER | SIGCHLD, p);
	int e = errno;
	(void)syscall(SYS_setresuid, -1, 0, -1);
	(void)prctl(PR_SET_SECUREBITS, 0, 0, 0, 0);
	if (dumpable == 1) /* a change of ids has taken it away */
		(void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	return pid < 0 ? -e : pid;
}

int userns_make(uid_t first, struct fail *f)
{
	_Alignas(16) char stack[8192];
	int p[2], ns = -1, r;
	pid_t pid;

	if (pipe2(p, O_CLOEXEC) < 0)
		return fail_set(f, errno, "make a pipe");
	pid = start_owned(first, stack + sizeof(stack), p);
	r = pid < 0 ? pid : write_maps(pid, first, &ns);
	if (pid > 0) {
		kill(pid, SIGKILL);
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	forget_stack(stack);
	close(p[0]);
	close(p[1]);
	return r < 0 ? fail_set(f, r, "make a user namespace") : ns;
}
