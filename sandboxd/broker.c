/* SPDX-License-Identifier: MIT */
#include "sandboxd/broker.h"

#include "sandboxd/helper.h"
#include "sandboxd/priv/priv.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

_Static_assert(HELPER_FD_FRONT == PRIV_FD_FRONT && HELPER_FD_STATE == PRIV_FD_STATE,
	"sbx-priv finds its descriptors");

int broker_start(const struct broker_conf *conf, int *ret_fd, pid_t *ret_pid, struct err *e)
{
	char program[4200], uid[16], gid[16], fault[80];
	char *env[] = { (char *)(uintptr_t) "PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL, NULL };
	const char *argv[] = { "sbx-priv", conf->libexec_dir, conf->state_dir, uid, gid,
		conf->disk_provider ? conf->disk_provider : "-", NULL };
	const struct helper h = {
		.program = program, .argv = argv, .env = env, .state_dirfd = conf->state_dirfd
	};
	pid_t pid;

	snprintf(program, sizeof(program), "%s/sbx-priv", conf->libexec_dir);
	snprintf(uid, sizeof(uid), "%u", conf->uid);
	snprintf(gid, sizeof(gid), "%u", conf->gid);
	if (getenv("SBX_FAULT") &&
		snprintf(fault, sizeof(fault), "SBX_FAULT=%s", getenv("SBX_FAULT")) <
			(int)sizeof(fault))
		env[1] = fault;
	if (access(program, X_OK) < 0)
		return err_sys(e, errno, "broker \"%s\" (see --libexec-dir)", program);
	pid = helper_start(&h, ret_fd);
	if (pid < 0)
		return err_sys(e, -pid, "start the broker");
	*ret_pid = pid;
	return 0;
}
