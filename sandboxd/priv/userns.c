/* SPDX-License-Identifier: MIT */
/* A process has to be born in the namespace for it to exist. It shares our memory (which makes it
 * cheap), waits for a byte, and goes. */
#include "sandboxd/priv/userns.h"

#include "common/sys/mem.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
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
	static const char *const maps[] = { "uid_map", "gid_map" };

	for (size_t i = 0; i < ARRAY_LEN(maps) && r == 0; i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, maps[i]);
		r = file_write(AT_FDCWD, path, "0 %u 65536", first);
	}
	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	if (r == 0)
		*ns = open(path, O_RDONLY | O_CLOEXEC);
	return r == 0 && *ns < 0 ? -errno : r;
}

int userns_make(uid_t first, struct fail *f)
{
	_Alignas(16) char stack[8192];
	int p[2], ns = -1, r;
	pid_t pid;

	if (pipe2(p, O_CLOEXEC) < 0)
		return fail_set(f, errno, "make a pipe");
	pid = clone(wait_for_end, stack + sizeof(stack), CLONE_VM | CLONE_NEWUSER | SIGCHLD, p);
	r = pid < 0 ? -errno : write_maps(pid, first, &ns);
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
