/* SPDX-License-Identifier: MIT */
/* Starts the broker sbx-priv: the part that stays root. Its contract is sandboxd/priv/priv.h. */
#ifndef SANDBOXD_BROKER_H
#define SANDBOXD_BROKER_H

#include "common/base/err.h"

#include <sys/types.h>

struct broker_conf {
	const char *libexec_dir, *state_dir,
		*disk_provider; /* provider NULL: the first that works */
	int state_dirfd;
	uid_t uid;
	gid_t gid;
};
/* *ret_fd: our end of its socket. It ends when that is closed. */
int broker_start(const struct broker_conf *conf, int *ret_fd, pid_t *ret_pid, struct err *e);

#endif
