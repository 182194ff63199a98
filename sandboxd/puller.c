/* SPDX-License-Identifier: MIT */
#include "sandboxd/puller.h"

#include "common/base/log.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/drop.h"
#include "sandboxd/helper.h"
#include "sandboxd/pull/pull.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_MS 10000

_Static_assert(HELPER_FD_FRONT == PULL_FD_FRONT && HELPER_FD_STATE == PULL_FD_STATE,
	"sbx-pull finds its descriptors");

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
	static char *const env[] = { (char *)(uintptr_t) "PATH=/usr/bin:/bin", NULL };
	char uid[16], gid[16], cells[16], stall[16];
	const char *argv[] = { "sbx-pull", uid, gid, cells, conf->state_dir, stall,
		conf->allow_private ? "p" : "-", NULL };
	const struct helper h = {
		.program = program, .argv = argv, .env = env, .state_dirfd = conf->state_dirfd
	};
	int sock, status;
	pid_t pid;

	snprintf(uid, sizeof(uid), "%u", conf->uid);
	snprintf(gid, sizeof(gid), "%u", conf->gid);
	snprintf(cells, sizeof(cells), "%u", DROP_CELLS_ID);
	snprintf(stall, sizeof(stall), "%d", conf->stall_secs);
	pid = helper_start(&h, &sock);
	if (pid < 0)
		return -1;
	/* goes on in a child of its own */
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (is_ready(sock))
		return sock;
	close(sock);
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
