/* SPDX-License-Identifier: MIT */
/* The spool: what a process has written and how it ended, made by the front, written by the shim
 * through a passed descriptor, read by the front. Neither output nor result is lost when either of
 * the two is killed. The reader checks every number: it trusts none.
 *
 * A spool is SPOOL_SIZE bytes of a sparse file, from the passed descriptor's position on. The front
 * keeps SPOOL_SLOTS of them in one file, as a new file can cost a file system milliseconds (ext4
 * searches for an inode that was not freed lately) and a place in an old one microseconds:
 * process N is slot N % SPOOL_SLOTS of run/<id>/spool<N / SPOOL_SLOTS>.
 *
 *   0 .. 1 KiB        struct spool_head
 *   SPOOL_META        struct spool_meta, then JSON: the process's record (argv, cwd, tty, name,
 *                     start). Written by the front before the start; the shim never touches it. A
 *                     restarted front rebuilds its list from here. JSON that is longer than
 *                     SPOOL_META_NEAR lies at SPOOL_META_FAR instead.
 *   SPOOL_OUT         up to 8 MiB of stdout (all output on a tty)
 *   SPOOL_ERR         up to 8 MiB of stderr
 *   SPOOL_ORDER       uint32 runs: bit 31 = stderr, rest = bytes; at most SPOOL_RUNS_MAX, then
 *                     the order is no longer told: rest of stdout, then rest of stderr
 *
 * The front writes the whole first page (zeros where the head is), so that its room on the disk is
 * taken and the shim may map it: a store into a hole of a full disk would be a SIGBUS, and the
 * fault on a hole of a large sparse file costs milliseconds on ext4. */
#ifndef SANDBOXD_PROTO_SPOOL_H
#define SANDBOXD_PROTO_SPOOL_H

#include <stdint.h>

#define SPOOL_MAGIC     0x53504c31u
#define SPOOL_CAP       (8u * 1024 * 1024) /* node contract, 11.5: kept per stream and process */
#define SPOOL_OUT       4096u
#define SPOOL_ERR       (SPOOL_OUT + SPOOL_CAP)
#define SPOOL_ORDER     (SPOOL_ERR + SPOOL_CAP)
#define SPOOL_RUNS_MAX  (1024u * 1024)
#define SPOOL_META      1024u
#define SPOOL_META_NEAR (SPOOL_OUT - SPOOL_META - (unsigned)sizeof(struct spool_meta))
#define SPOOL_META_FAR  (SPOOL_ORDER + 4u * SPOOL_RUNS_MAX)
#define SPOOL_META_MAX  (4u * 1024 * 1024) /* most bytes of JSON: a body, escaped, fits well */
#define SPOOL_SIZE      (32u * 1024 * 1024)
#define SPOOL_SLOTS     64u

enum spool_state { SPOOL_NEW = 0, SPOOL_RUNNING = 1, SPOOL_EXITED = 2 };

struct spool_meta {
	uint32_t len;   /* of the JSON, at most SPOOL_META_MAX */
	uint32_t noted; /* 1: its exit is in the event log, 2: it was ended by its time limit */
};

/* Written with release, read with acquire order; data first, then the counts. */
struct spool_head {
	uint32_t magic;
	uint32_t state;      /* enum spool_state; EXITED is stored last of all */
	uint64_t kept[2];    /* bytes in each region, at most SPOOL_CAP */
	uint64_t dropped[2]; /* bytes read past the cap and thrown away */
	uint32_t runs;       /* entries of the order table; the last one may still grow */
	int32_t exit_code;   /* own code, 128 + n for a signal; valid when EXITED */
	uint32_t flags;      /* 1: killed by the memory limit */
	uint32_t stdin_closed;
	uint64_t started_ns, ended_ns; /* CLOCK_REALTIME */
};

#endif
