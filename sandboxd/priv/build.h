/* SPDX-License-Identifier: MIT */
/* One builder process makes one sandbox and becomes its shim.
 *
 *   broker ── fork ──> builder ── clone(NEWPID) ──> first   (will be sbx-init)
 *                         └── fork ───────> worker  (sbx-worker, at once)
 *
 * It needs only the shape (layers, sizes) and a free id block, and ends as a running shim that waits
 * for the struct on its boot pipe, with init and the worker waiting too. The broker keeps a few of
 * these. Claiming one (claim.c) gives it an id, limits, a host name and a socket, and costs well
 * under a millisecond. When the broker dies the pipe ends, and the unclaimed shim with all its own
 * ends too; nothing of it has a name in the host but n<block> groups and the area pool-<block>. */
#ifndef SANDBOXD_PRIV_BUILD_H
#define SANDBOXD_PRIV_BUILD_H

#include "sandboxd/priv/area.h"
#include "sandboxd/priv/box.h"
#include "sandboxd/priv/cg.h"
#include "sandboxd/priv/filter.h"
#include "sandboxd/priv/priv.h"
#include "sandboxd/shim/shim.h"

enum program { PROG_SHIM, PROG_INIT, PROG_WORKER, PROG_EGRESS, PROG_COUNT };
enum jail_ns { JAIL_MNT, JAIL_IPC, JAIL_UTS, JAIL_COUNT };

/* Made once at start, read by every builder. */
struct build_env {
	int state, priv, layers, boxes;
	struct area_store areas;
	struct cg cg;
	struct filter filter, apart, jail_filter; /* filter.h */
	int program[PROG_COUNT]; /* sealed memfds: nothing in a sandbox leads to a file of the host
				  */
	uid_t front_uid;
	gid_t front_gid;
	int uts; /* the host's own name */
	int net; /* the host's network */
	int jail[JAIL_COUNT]; /* namespaces with nothing in them, for egress processes */
	char boot[40];
};
#define BUILD_PROBE_LAYER ".probe"
#define BUILD_PROBE 0x80000000u /* looks whether it works, too */
struct build_shape {
	uint32_t nchain, chain[PRIV_CHAIN_MAX]; /* top first; none: the probe's own layer */
	uint32_t flags; /* enum priv_flags, BUILD_PROBE */
	uint32_t nvolumes;
	int64_t memory_mb, disk_mb;
	struct priv_volume volumes[PRIV_VOLS_MAX];
};
static inline bool build_shape_known(const struct build_shape *s)
{
	return s->nchain > 0;
}
/* builder → broker, then the end of the socket when the shim is being executed. With `ready` come
 * three descriptors, or four. */
enum build_state { BUILD_READY = 1, BUILD_FAILED };
/* EGRESS only with the flag; a probe where the host cannot do it goes on without. */
enum build_fd { BUILD_FD_BOOT, BUILD_FD_LISTEN, BUILD_FD_UTS, BUILD_FD_EGRESS, BUILD_FDS };
struct build_report {
	int32_t state; /* enum build_state */
	struct fail fail; /* READY: why there is no egress process */
	struct shim_boot boot; /* all but secret and generation */
};

/* Tells the broker, at the other end of sock, why there is no sandbox. */
int build_refuse(int sock, const struct fail *f);
/* In a process of the group svc (cg_make_svc). Never returns: it becomes the shim, or exits. */
void build_run(const struct build_env *env, const struct build_shape *shape, uint32_t block,
	int sock) __attribute__((noreturn));
#endif
