/* SPDX-License-Identifier: MIT */
/* One builder process makes one sandbox and becomes its shim.
 *
 *   broker ── fork ──> builder ── clone(NEWPID) ──> first   (will be sbx-init)
 *                         └────── fork ───────────> worker  (sbx-worker, at once)
 *
 * It works in two halves. The first needs only the shape (image, sizes) and ends with everything
 * mounted and waiting; the broker keeps a few builders there. The second, the claim, gives it an id,
 * limits, a name and a socket. A builder whose broker has gone ends, and all that it holds with it:
 * nothing has a name in the host before the claim but an area called pool-<n>. */
#ifndef SANDBOXD_PRIV_BUILD_H
#define SANDBOXD_PRIV_BUILD_H

#include "sandboxd/priv/area.h"
#include "sandboxd/priv/box.h"
#include "sandboxd/priv/cg.h"
#include "sandboxd/priv/filter.h"
#include "sandboxd/priv/priv.h"

enum program { PROG_SHIM, PROG_INIT, PROG_WORKER, PROG_COUNT };

/* Made once at start, read by every builder. */
struct build_env {
	int state, priv, layers, boxes;
	struct area_store areas;
	struct cg cg;
	struct filter filter;
	int program[PROG_COUNT]; /* sealed memfds: nothing in a sandbox leads to a file of the host */
	uid_t front_uid;
	gid_t front_gid;
	char boot[40];
};
struct build_shape {
	char layer[PRIV_LAYER_MAX];
	int64_t memory_mb, disk_mb;
};
/* broker → builder */
struct build_claim {
	char id[PRIV_ID_MAX], hostname[PRIV_HOST_MAX];
	uint8_t secret[16];
	uint64_t generation;
	int64_t cpu_milli, memory_mb;
};
/* builder → broker; after `made` the end of the socket means that the shim has been executed */
enum build_state { BUILD_READY = 1, BUILD_MADE, BUILD_FAILED };
struct build_report {
	int32_t state; /* enum build_state */
	struct fail fail;
};

/* Never returns: the process becomes the shim, or exits. */
void build_run(const struct build_env *env, const struct build_shape *shape, uint32_t block, int sock)
	__attribute__((noreturn));
/* The area of a builder that has not been claimed. */
void build_pool_name(char *buf, size_t size, uint32_t block);

#endif
