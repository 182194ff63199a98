/* SPDX-License-Identifier: MIT */
/* Giving a ready shim its identity. Done by the broker itself: a few small system calls. */
#ifndef SANDBOXD_PRIV_CLAIM_H
#define SANDBOXD_PRIV_CLAIM_H

#include "sandboxd/priv/build.h"

struct claim {
	char id[PRIV_ID_MAX], hostname[PRIV_HOST_MAX];
	uint8_t secret[16];
	uint64_t generation;
	int64_t cpu_milli, disk_mb;
	bool volumes; /* some that it may write */
};
struct claim_from {
	uint32_t block;
	int shim_pid;
	uint64_t shim_start; /* of that process, from when it reported */
	struct shim_boot boot; /* as reported; secret and generation are added */
	int fds[BUILD_FDS];    /* stay the caller's */
	int grip[PRIV_GRIP_FDS]; /* for the answer; -1 without cgroup2 */
};
/* On failure the record may exist already: the caller ends the sandbox like any other. */
int claim(const struct build_env *env, const struct claim *c, const struct claim_from *from,
	struct fail *f);

/* Binds and listens at run/<id>/<name>, as the front's user. */
int claim_listen(const struct build_env *env, const char *id, const char *name, int sock,
	struct fail *f);

#endif
