/* SPDX-License-Identifier: MIT */
#include "sandboxd/puller.h"

#include "common/base/log.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/pull/pull.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_MS 10000

static void child(const char *program, char *const argv[], int sock, int state)
{
	static char *const env[] = { (char *)(uintptr_t) "PATH=/usr/bin:/bin", NULL };
	sigset_t none;
	int s = fcntl(sock, F_DUPFD_CLOEXEC, 10), d = fcntl(state, F_DUPFD_CLOEXEC, 10);

	setsid();
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (dup2(s, PULL_FD_FRONT) < 0 || dup2(d, PULL_FD_STATE) < 0)
		_exit(126);
	close_range(PULL_FD_STATE + 1, ~0u, 0);
	execve(program, argv, env);
	dprintf(STDERR_FILENO, "sandboxd: cannot start %s: %m\n", program);
	_exit(127);
}

/* It says so when its small world stands. */
static bool is_ready(int fd)
{
	struct pull_ans a;

	return fd_wait(fd, POLLIN, READY_MS) &&
	       fd_recv_msg(fd, &a, sizeof(a), NULL, NULL) == sizeof(a) && a.magic == PULL_MAGIC &&
	       a.result == PULL_OK;
}

static int start(const struct puller_conf *conf, const char *program)
{
	char uid[16], gid[16], stall[16];
	const char *argv[] = { "sbx-pull", uid, gid, conf->state_dir, stall,
		conf->allow_private ? "p" : "-", NULL };
	int pair[2], status;
	pid_t pid;

	snprintf(uid, sizeof(uid), "%u", conf->uid);
	snprintf(gid, sizeof(gid), "%u", conf->gid);
	snprintf(stall, sizeof(stall), "%d", conf->stall_secs);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	pid = fork();
	if (pid == 0)
		child(program, (char *const *)(uintptr_t)argv, pair[1], conf->state_dirfd);
	close(pair[1]);
	if (pid > 0) /* goes on in a child of its own */
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	if (pid > 0 && is_ready(pair[0]))
		return pair[0];
	close(pair[0]);
	return -1;
}

void puller_start(const struct puller_conf *conf, int *ret_fd)
{
	char program[4200];

	*ret_fd = -1;
	snprintf(program, sizeof(program), "%s/sbx-pull", conf->libexec_dir);
	if (access(PULL_TOOL, X_OK) < 0) {
		log_info("images are not pulled from registries: there is no " PULL_TOOL
			 " (package skopeo)");
		return;
	}
	if (access(program, X_OK) == 0)
		*ret_fd = start(conf, program);
	if (*ret_fd < 0)
		log_warn("images are not pulled from registries: %s did not start", program);
}
