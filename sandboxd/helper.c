/* SPDX-License-Identifier: MIT */
#include "sandboxd/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static void child(const struct helper *h, int sock)
{
	sigset_t none;
	int s = fcntl(sock, F_DUPFD_CLOEXEC, 10), d = fcntl(h->state_dirfd, F_DUPFD_CLOEXEC, 10);

	setsid();
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (dup2(s, HELPER_FD_FRONT) < 0 || dup2(d, HELPER_FD_STATE) < 0)
		_exit(126);
	close_range(HELPER_FD_STATE + 1, ~0u, 0);
	execve(h->program, (char *const *)(uintptr_t)h->argv, h->env);
	dprintf(STDERR_FILENO, "sandboxd: cannot start %s: %m\n", h->program);
	_exit(127);
}

pid_t helper_start(const struct helper *h, int *ret_sock)
{
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		child(h, pair[1]);
	if (pid < 0) {
		pid = -errno;
		close(pair[0]);
	} else {
		*ret_sock = pair[0];
	}
	close(pair[1]);
	return pid;
}
