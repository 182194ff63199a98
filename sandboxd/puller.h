/* SPDX-License-Identifier: MIT */
/* Starts sbx-pull, which may run a program where the server may not. Its contract is sandboxd/pull/pull.h. */
#ifndef SANDBOXD_PULLER_H
#define SANDBOXD_PULLER_H

#include "common/base/err.h"

#include <stdbool.h>
#include <sys/types.h>

struct puller_conf {
	const char *libexec_dir, *state_dir;
	int state_dirfd;
	uid_t uid;
	gid_t gid;
	bool allow_private;
	int stall_secs;
};
/* Before rights are dropped and before the first thread. *ret_fd: our end of its socket, or -1 where images
 * cannot be pulled; then the log says why. It ends when that is closed. */
void puller_start(const struct puller_conf *conf, int *ret_fd);

#endif
