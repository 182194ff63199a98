/* SPDX-License-Identifier: MIT */
/* How sbx-shim is started. Who builds a sandbox (the broker, or the fake backend) forks init and the
 * file worker, then executes `sbx-shim` with no argument, an empty environment and these descriptors:
 *
 *   0, 1  /dev/null
 *   2     the log, or /dev/null
 *   3     SHIM_BOOT_FD: a pipe, memfd or socket from which exactly one struct shim_boot is read;
 *         the secret travels here and nowhere else. Closed after reading.
 *   n     the descriptors that the struct names (any numbers above 3, not close-on-exec)
 *
 * The caller has made a new session, and has entered the sandbox's network namespace (GUEST DIAL
 * connects to 127.0.0.1 of the namespace that the shim is in; the shim needs no other network) and
 * its cgroup. The shim then drops to uid/gid, gives up every capability, sets no_new_privs and
 * non-dumpable, ignores SIGPIPE and SIGCHLD, and serves until init's socket ends.
 *
 * Ends: when init's socket reports the end, every process is marked exited (137) in its spool and the
 * shim exits 0. When the shim dies in any way, init's and the worker's sockets end; both then exit,
 * init after having killed everything. So no part is left alone, whichever is killed. */
#ifndef SANDBOXD_SHIM_SHIM_H
#define SANDBOXD_SHIM_SHIM_H

#include "sandboxd/proto/proto.h"

#include <stdint.h>

#define SHIM_BOOT_FD 3
#define SHIM_BOOT_MAGIC 0x53424f54u
#define SHIM_BOOT_VERSION 1
#define SHIM_ID_KEEP 0xffffffffu /* keep the ids of the caller */

enum shim_boot_flags {
	SHIM_FAKE = 1, /* no pid namespace: init is a subreaper and kills what it started by mark */
};
struct shim_boot {
	uint32_t magic, version;
	uint32_t flags;              /* enum shim_boot_flags */
	uint32_t uid, gid;           /* the shim's own, or SHIM_ID_KEEP */
	uint32_t guest_uid, guest_gid; /* of guest processes, as init sees ids; SHIM_ID_KEEP: init's */
	uint32_t init_pid;           /* fake: init's pid, the other half of the marks; else 0 */
	uint64_t generation;
	uint8_t secret[PROTO_SECRET_LEN];
	int32_t listen_fd;           /* listening SOCK_STREAM unix socket <run>/sock */
	int32_t init_fd;             /* SOCK_SEQPACKET pair, the other end is init's INIT_FD */
	int32_t worker_fd;           /* SOCK_SEQPACKET pair, the other end is the file worker's */
	int32_t devpts_fd;           /* root of the sandbox's devpts, or -1: the host's /dev/ptmx */
	int32_t root_fd;             /* fake: O_PATH of the folder that is the guest's root; else -1 */
	/* A cgroup2 directory that uid/gid may write, in which a child p<num> is made for each process
	 * (`cgroup.kill` ends a tree), or -1: init ends trees by mark (init.h). Moving a process into
	 * a cgroup can cost milliseconds where the kernel must wait for RCU: measure before giving it. */
	int32_t cgroup_fd;
	/* memory.events (v2) or memory.oom_control (v1) of the sandbox, opened for reading, or -1. Its
	 * line "oom_kill N" tells whether a SIGKILL came from the memory limit. */
	int32_t oom_fd;
	int32_t pad2;
};

/* On worker_fd the shim sends one byte with one descriptor (SCM_RIGHTS) for each FILES connection,
 * after hello and hello_ok: the next bytes on it are proto/files.h's. See worker/worker.h. */

#endif
