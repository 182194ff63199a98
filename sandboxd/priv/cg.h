/* SPDX-License-Identifier: MIT */
/* Control groups in three modes. cgroup2, when it is mounted anywhere, tracks, freezes and kills;
 * the limits live there (v2) or in the v1 controllers (hybrid, v1).
 *
 *   cgroup2   sandboxd-<hash>/n<block>/{svc,guest/{init,p<n>}}
 *   v1        sandboxd-<hash>/n<block>        guest processes only; the shim is in sandboxd-<hash>/svc
 *   memory    sandboxd-<hash>/n<block>/guest  the same, and the file worker in n<block>
 *
 * What the file worker writes into a folder in memory (/tmp, /dev/shm) is charged to where the worker is. So memory
 * has two limits in either layout: guest's own, and n<block>'s, which is CG_BESIDE_MB more: what those beside the guest
 * need for themselves. Beyond it the kernel ends guest's processes first (build.c, first_to_go).
 *
 * The groups are named after the id block, not the sandbox, and are there before the first of its processes: on
 * cgroup2 each is born in its own. Moving a whole process into a group makes every fork of the machine wait, until
 * those that are in the middle of one have come out; beside a sandbox that forks all the time that is long.
 *
 * The base lies at the root of each hierarchy. The hash is of the path that the state directory had when it was new,
 * or the next one that no other server holds, and is kept in priv/groups: a broker that is started again, from
 * another shell or service, and after the directory was moved, finds what the last one left. */
#ifndef SANDBOXD_PRIV_CG_H
#define SANDBOXD_PRIV_CG_H

#include "sandboxd/priv/sys.h"

#include <stdbool.h>
#include <sys/types.h>

#define CG_PIDS_DEFAULT 1024
#define CG_BASE         "sandboxd-"
/* The worker's buffers; on cgroup2 also the relay's memory and the shim's. */
#define CG_BESIDE_MB 128

enum cg_mode { CG_NONE, CG_V2, CG_HYBRID, CG_V1 };
/* CG_CPUACCT only counts: it is used where it is mounted and there is no cgroup2. */
enum cg_ctrl { CG_MEMORY, CG_CPU, CG_PIDS, CG_FREEZER, CG_CPUACCT, CG_CTRLS };

struct cg {
	enum cg_mode mode;
	int base2;           /* cgroup2 base folder, -1 on pure v1 */
	int base1[CG_CTRLS]; /* v1 base folders, -1 where not used */
	char base[32];       /* their name */
	int held;            /* one of them, locked for as long as a process of this broker has it */
	bool cheap_moves;    /* cgroup2 is mounted with favordynmods */
};
#define CG_NULL                                                                                    \
	{                                                                                          \
		.mode = CG_NONE, .base2 = -1, .base1 = { -1, -1, -1, -1, -1 }, .held = -1              \
	}

/* Descriptors of one sandbox's groups. */
struct cg_box {
	int guest1[CG_CTRLS]; /* v1: `tasks` of the guest's groups, -1 where not used */
	int files1;    /* v1's memory group of the file worker, -1 on cgroup2, which has it in svc */
	int guest_dir; /* cgroup2 guest/ folder, owned by the shim */
	int init_dir;  /* cgroup2 guest/init: for cg_fork_into(); -1 on pure v1 */
	int oom;       /* memory.events or memory.oom_control, for reading */
};
#define CG_BOX_NULL                                                                                \
	{                                                                                          \
		{ -1, -1, -1, -1, -1 }, -1, -1, -1, -1                                             \
	}

extern const char *const cg_ctrl_name[CG_CTRLS];
/* Hands the controllers that limits need down to the children of a cgroup2 folder. */
int cg_enable_v2(int dir, struct fail *f);
/* Finds the mounts, makes the base folders, whose name is kept in priv; fails when a needed controller cannot be
 * written. */
int cg_open(struct cg *cg, int priv, const char *state_dir, struct fail *f);
/* Makes the first of the groups called `name`: svc, for the builder. Its folder, -1 on pure v1. */
int cg_make_svc(const struct cg *cg, const char *name, int *ret_dir, struct fail *f);
/* Makes the others, still without limits. */
int cg_make(
	const struct cg *cg, const char *name, uid_t shim_uid, struct cg_box *box, struct fail *f);
/* Write limits and read them back. Memory and processes: before the first guest process; processor time, in
 * thousandths of a processor: when it is known for whom. */
int cg_limit(const struct cg *cg, const char *name, int64_t memory_mb, struct fail *f);
int cg_limit_cpu(const struct cg *cg, const char *name, int64_t milli, struct fail *f);
/* fork(2) into the cgroup2 group of that folder, -1: into the caller's own. flags: of clone3(2), as CLONE_NEWPID;
 * with CLONE_PIDFD ret_pidfd gets the descriptor. The child may not use threads or what fork handlers prepare. */
pid_t cg_fork_into(int dir, uint64_t flags, int *ret_pidfd);
/* The caller, which has one thread, and v1: the guest's first process, and the file worker, whose memory is the
 * sandbox's. On v1 the broker's children are in svc from birth. */
int cg_join_guest(const struct cg_box *box);
int cg_join_files(const struct cg_box *box);
/* The caller, into svc of a sandbox that exists: as a whole, so that forks of others wait. */
int cg_join_svc_of(const struct cg *cg, uint32_t block);
/* Kills all of it, at once; does not wait. */
int cg_kill(const struct cg *cg, const char *name);
/* Asks the kernel to stop all of it, or to set it going; does not wait (cg_freeze.c). */
int cg_freeze(const struct cg *cg, const char *name, bool on);
/* 1: every process of it is stopped; 0: not; -errno. */
int cg_frozen(const struct cg *cg, const char *name);
/* What a sandbox uses, in the order of struct backend_meter; -1: cannot be read. -ENOENT:
 * there is no such group (cg_meter.c). */
#define CG_FIGURES 6
int cg_meter(const struct cg *cg, const char *name, int64_t ret[CG_FIGURES]);
/* Descriptor of cgroup.events (poll for POLLPRI); -ENOENT when the group is gone. */
int cg_events(const struct cg *cg, const char *name);
void cg_events_read(int fd); /* arms the next notice */
/* Of cgroup.kill, to write; -ENOENT as above, and where there is no cgroup2. */
int cg_killer(const struct cg *cg, const char *name);
/* 1 when a process is left in it, 0 when none or when there is no such group */
int cg_populated(const struct cg *cg, const char *name);
/* Removes the empty groups, retrying for a moment. */
int cg_remove(const struct cg *cg, const char *name);
/* Calls fn for every n<block> that is in any hierarchy, maybe more than once. */
void cg_each(const struct cg *cg, void (*fn)(void *arg, uint32_t block), void *arg);
/* Another server of this machine has a group of this name, and so the ids that go with it. */
bool cg_elsewhere(const struct cg *cg, const char *name);
/* The caller goes back to the root groups. */
void cg_leave(const struct cg *cg);
/* Leaves, and removes the base folders when nothing else is left in them. */
void cg_close(struct cg *cg);

#endif
