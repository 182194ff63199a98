/* SPDX-License-Identifier: MIT */
#include "sandboxd/keeper.h"

#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/drop.h"
#include "sandboxd/secrets.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define KEEPER_FD 3
#define ANSWER_MS 5000

static void answer(const char *token_file, uint8_t no)
{
	struct kept k = { .no = no };
	struct err e = ERR_NULL;
	char *token = NULL;

	if (token_load(token_file, &token, &e) < 0)
		k.code = (int32_t)e.code;
	snprintf(k.text, sizeof(k.text), "%s", token ? token : e.msg);
	(void)!send(KEEPER_FD, &k, sizeof(k), MSG_NOSIGNAL);
	explicit_bzero(&k, sizeof(k));
	if (token)
		explicit_bzero(token, strlen(token));
	free(token);
}

static void child(int sock, const char *token_file)
{
	struct err e = ERR_NULL;
	uint8_t no;

	setsid(); /* a terminal's ^C is for the server */
	(void)prctl(PR_SET_NAME, "sbx-keeper", 0, 0, 0);
	if (dup2(sock, KEEPER_FD) < 0 || close_range(KEEPER_FD + 1, ~0u, 0) < 0)
		_exit(1);
	if (drop_capabilities(&e) < 0)
		_exit(1);
	while (recv(KEEPER_FD, &no, 1, 0) == 1)
		answer(token_file, no);
	_exit(0);
}

int keeper_start(const char *token_file, int *ret_fd, struct err *e)
{
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, errno, "socket pair");
	pid = fork();
	if (pid == 0)
		child(pair[1], token_file);
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return err_sys(e, errno, "start a process");
	}
	*ret_fd = pair[0];
	return 0;
}

/* The answer to this question; those to earlier ones, which nobody waited for, are passed over. */
static bool hear(int fd, uint8_t no, struct kept *ret)
{
	do
		if (!fd_wait(fd, POLLIN, ANSWER_MS) ||
			recv(fd, ret, sizeof(*ret), MSG_DONTWAIT) != (ssize_t)sizeof(*ret))
			return false;
	while (ret->no != no);
	return true;
}

int keeper_ask(int fd, char **ret, struct err *e)
{
	static uint8_t last; /* one thread asks */
	const uint8_t no = ++last;
	struct kept k;
	int rc = -1;

	if (send(fd, &no, 1, MSG_NOSIGNAL) != 1 || !hear(fd, no, &k))
		return err_set(e, ERR_INTERNAL, "the process that reads the token file has ended");
	k.text[sizeof(k.text) - 1] = '\0';
	if (k.code != ERR_NONE)
		return err_set(e, ERR_INVALID_REQUEST, "%s", k.text);
	*ret = strdup(k.text);
	rc = *ret ? 0 : err_sys(e, ENOMEM, "token");
	explicit_bzero(&k, sizeof(k));
	return rc;
}
