/* SPDX-License-Identifier: MIT */
#include "sandboxd/broker.h"

#include "common/sys/mem.h"
#include "sandboxd/priv/priv.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* In the child, single-threaded as the parent still is. Its own session: a terminal's ^C is for the
 * server, which then tells the broker by closing the socket. */
static void child(const char *program, char *const argv[], int sock, int state)
{
	char fault[80], *env[] = { (char *)(uintptr_t) "PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL,
		NULL };
	sigset_t none;
	int s = fcntl(sock, F_DUPFD_CLOEXEC, 10), d = fcntl(state, F_DUPFD_CLOEXEC, 10);

	if (getenv("SBX_FAULT") &&
		snprintf(fault, sizeof(fault), "SBX_FAULT=%s", getenv("SBX_FAULT")) <
			(int)sizeof(fault))
		env[1] = fault;
	setsid();
	umask(022);
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (dup2(s, PRIV_FD_FRONT) < 0 || dup2(d, PRIV_FD_STATE) < 0)
		_exit(126);
	close_range(PRIV_FD_STATE + 1, ~0u, 0);
	execve(program, argv, env);
	dprintf(STDERR_FILENO, "sandboxd: cannot start %s: %m\n", program);
	_exit(127);
}

int broker_start(const struct broker_conf *conf, int *ret_fd, pid_t *ret_pid, struct err *e)
{
	char program[4200], uid[16], gid[16];
	const char *argv[] = { "sbx-priv", conf->libexec_dir, conf->state_dir, uid, gid,
		conf->disk_provider ? conf->disk_provider : "-", NULL };
	int pair[2];
	pid_t pid;

	snprintf(program, sizeof(program), "%s/sbx-priv", conf->libexec_dir);
	snprintf(uid, sizeof(uid), "%u", conf->uid);
	snprintf(gid, sizeof(gid), "%u", conf->gid);
	if (access(program, X_OK) < 0)
		return err_sys(e, errno, "broker \"%s\" (see --libexec-dir)", program);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, errno, "socket pair");
	pid = fork();
	if (pid == 0)
		child(program, (char *const *)(uintptr_t)argv, pair[1], conf->state_dirfd);
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return err_sys(e, errno, "start the broker");
	}
	*ret_fd = pair[0];
	*ret_pid = pid;
	return 0;
}
