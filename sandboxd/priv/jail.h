/* SPDX-License-Identifier: MIT */
/* Jails: children that read what a guest or a stranger wrote, as the host's root (it owns what they make) with a few
 * capabilities. A uid alone may do much to others that have it: kill them, trace those that have no more rights,
 * lower their limits; and the kernel counts for it as a whole what each user may have so and so much of. So a jail is alone in a
 * process namespace and a session, and its filter starts, signals and traces nobody, and has nothing that is counted. */
#ifndef SANDBOXD_PRIV_JAIL_H
#define SANDBOXD_PRIV_JAIL_H

#include "sandboxd/priv/drop.h"
#include "sandboxd/priv/filter.h"

#include <sys/resource.h>
#include <sys/types.h>

/* What the copier of snapshots keeps: owners and modes, and SYS_ADMIN for the overlay's own attributes. Its filter
 * refuses every other use of that. */
#define JAIL_COPIER                                                                                                  \
	(CAP(CHOWN) | CAP(DAC_OVERRIDE) | CAP(DAC_READ_SEARCH) | CAP(FOWNER) | CAP(FSETID) | CAP(SYS_ADMIN) | CAP(SETFCAP))

struct jail_limit {
	int what;
	rlim_t max;
};

/* What holds whatever the jail does, which counts for itself as well: after `secs` it is ended, and when the disk behind
 * `dir` has less left than JAIL_ROOM, or a sixteenth of it where that is less; of its inodes likewise. */
#define JAIL_ROOM  ((uint64_t)128 << 20) /* bytes */
#define JAIL_NAMES 8192
struct jail_bounds {
	int dir;
	int secs;
};

/* In a process of its own, which can make one jail only: run(arg, out) in the jail. That writes `size` bytes, which a
 * pipe holds, to `out`, which begin with how it failed, and ends with 0, or with something else where they tell of a
 * failure; f says which, or how it ended without an answer. `who` is its name in that text. */
int jail_run(void (*run)(const void *arg, int out), const void *arg, const struct jail_bounds *b, struct fail *ret,
	size_t size, const char *who, struct fail *f);
/* In the jail, when all is opened that it will need. */
int jail_drop(uint64_t caps, const struct jail_limit *most, size_t n, const struct filter *flt, struct fail *f);
/* A file without a name, of zeros, for a jail to write to: nothing limits its memory but that it stays of that size. */
int jail_memory(off_t size);

#endif
