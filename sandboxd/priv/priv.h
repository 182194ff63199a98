/* SPDX-License-Identifier: MIT */
/* What sandboxd and the broker sbx-priv say to each other: one fixed-size request, one fixed-size
 * answer, in any order, matched by tag.
 *
 * sbx-priv is started as root by sandboxd before it gives up its rights:
 *   sbx-priv LIBEXEC_DIR STATE_DIR FRONT_UID FRONT_GID DISK_PROVIDER
 *     fd 3  SOCK_SEQPACKET socketpair to the front; the broker ends when the other side closes
 *     fd 4  the state directory, opened O_PATH or O_RDONLY
 *   LIBEXEC_DIR holds sbx-shim, sbx-init, sbx-worker, sbx-egress (absolute); STATE_DIR is for messages and for
 *   the name of the cgroups; DISK_PROVIDER is btrfs, xfs, ext4, loop, tmpfs, or "-" for the first
 * that works. It logs to stderr. Without root, or where a self-test fails, it exits with a sentence
 * there.
 *
 * Nothing else comes from the front: no path of the host, no string longer than a volume's place. */
#ifndef SANDBOXD_PRIV_PRIV_H
#define SANDBOXD_PRIV_PRIV_H

#include <stdint.h>

#define PRIV_MAGIC     0x50524931u
#define PRIV_FD_FRONT  3
#define PRIV_FD_STATE  4
#define PRIV_ID_MAX    64
#define PRIV_HOST_MAX  65
#define PRIV_CHAIN_MAX 200 /* backend.h */
#define PRIV_VOLS_MAX  8
#define PRIV_PATH_MAX  256

enum priv_op {
	PRIV_NONE,
#define OP(name, phase, fds, fn) PRIV_##name,
#include "sandboxd/priv/ops.def"
#undef OP
	PRIV_OP_COUNT
};

struct priv_volume {
	uint32_t num, read_only;
	char path[PRIV_PATH_MAX];
};
enum priv_flags { PRIV_EGRESS = 1 };
struct priv_req {
	uint32_t magic, op; /* enum priv_op */
	uint64_t tag;
	char id[PRIV_ID_MAX];       /* sbx_…, NUL-padded */
	char hostname[PRIV_HOST_MAX];
	char pad[7];
	uint8_t secret[16];
	uint64_t generation;
	int64_t cpu_milli; /* thousandths of a processor */
	int64_t memory_mb, disk_mb;
	uint32_t num;  /* LAYER_*, VOLUME_*, SNAPSHOT: number of the layer or volume; POOL: of the pool */
	uint32_t kind; /* LAYER_IMPORT: enum backend_layer_kind; FREEZE: 1 on, 0 off; POOL: how many */
	uint32_t flags; /* CREATE: enum priv_flags */
	uint32_t nchain, chain[PRIV_CHAIN_MAX]; /* CREATE: top first; KEEP_*: the numbers */
	uint32_t nvolumes;
	struct priv_volume volumes[PRIV_VOLS_MAX];
};

/* HELLO answers with these in n[0] */
#define PRIV_CAN_CREATE 1
#define PRIV_CAN_LIMIT  2
#define PRIV_CAN_DISK   4
#define PRIV_CAN_FREEZE 8
#define PRIV_CAN_METER  16
#define PRIV_CAN_EGRESS 32
#define PRIV_CAN_REOPEN 64 /* snapshots and volumes */

/* With the answers to CREATE and ALIVE come two descriptors, unless the host has no cgroup2: the guest's
 * cgroup.kill (to write) and cgroup.events (to read). They end that guest and say so, nothing else. */
enum priv_grip { PRIV_FD_KILL, PRIV_FD_EVENTS, PRIV_GRIP_FDS };
struct priv_ans {
	uint32_t magic, op;
	uint64_t tag;
	int32_t error; /* 0 or an errno */
	uint32_t pad;
	int64_t n[8];               /* HELLO: flags; CREATE: pid of the shim, 1 if it was ready; DISK_FREE: MiB;
				     * LAYER_IMPORT, SNAPSHOT: bytes; USAGE: used, size; METER: as in backend_meter;
				     * POOL: how many are ready, being made */
	char text[208];             /* on error: what failed, for people */
};

#endif
