/* SPDX-License-Identifier: MIT */
#include "sandboxd/priv/child.h"

#include "common/sys/mem.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

int child_place_null(struct fail *f)
{
	_cleanup_close_ int null = open("/dev/null", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;

	if (null < 0 || fstat(null, &st) < 0 || st.st_rdev != makedev(1, 3))
		return fail_set(f, null < 0 ? errno : EPERM, "open /dev/null");
	for (int i = 0; i < 3; i++)
		if (dup2(null, i) < 0)
			return fail_set(f, errno, "place /dev/null");
	return 0;
}

/* /dev/null is the guest's own. */
int child_place_fds(const int *fds, int n, struct fail *f)
{
	int high[8], r;

	for (int i = 0; i < n; i++) {
		high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 32);
		if (high[i] < 0)
			return fail_set(f, errno, "duplicate a descriptor");
	}
	r = child_place_null(f);
	if (r < 0)
		return r;
	for (int i = 0; i < n; i++)
		if (dup2(high[i], 3 + i) < 0)
			return fail_set(f, errno, "place a descriptor");
	return 0;
}

int child_exec(
	int fd, const char *name, const char *a, const char *b, const char *c, struct fail *f)
{
	const char *argv[] = { name, a, b, c, NULL };
	char *env[] = { NULL };

	syscall(SYS_execveat, fd, "", argv, env, AT_EMPTY_PATH);
	return fail_set(f, errno, "execute %s", name);
}

void child_bind(pid_t broker)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != broker)
		_exit(1);
}

int child_watch(int pid)
{
	return pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

void child_kill(int pidfd)
{
	if (pidfd >= 0)
		(void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}
