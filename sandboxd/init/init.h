/* SPDX-License-Identifier: MIT */
/* sbx-init: how it is started, and its messages with the shim.
 *
 * Started as `sbx-init` with no argument, an empty environment, cwd "/", and
 *   0, 1, 2  /dev/null
 *   3        INIT_FD: its end of a SOCK_SEQPACKET pair with the shim
 * It closes everything above 3, resets signals, makes itself non-dumpable and waits for INIT_HELLO.
 *
 * linux: it is pid 1 of the sandbox's pid namespace, guest root, in the final mount namespace, with
 * no_new_privs and seccomp already set, and keeps CAP_SETUID, CAP_SETGID and CAP_KILL. The child of a
 * START becomes INIT_HELLO's uid and gid, with no groups and no capability, before chdir and exec.
 * fake: INIT_HELLO says INIT_FAKE; it becomes a child subreaper instead.
 *
 * Ids: SHIM_ID_KEEP in the hello, or an init that lacks the right (effective uid not 0), starts
 * processes as itself; the switch is never tried half. An init with uid 0 for which the switch fails
 * refuses the START (stage INIT_AT_IDS): a process never runs with more rights than asked.
 *
 * Trees. Every process is started with RLIMIT_RTTIME's soft limit set to a mark made of init's pid
 * and the process's number (common/sys/mark.h); the limit is inherited, means nothing for ordinary
 * scheduling, and is shown by /proc/PID/limits. Without cgroups a tree is killed by it, setsid and
 * double fork included. With a cgroup descriptor the child writes itself into it before anything
 * else, and the shim kills by cgroup.kill.
 *
 * End: at the end of file of INIT_FD everything is killed and init exits. */
#ifndef SANDBOXD_INIT_INIT_H
#define SANDBOXD_INIT_INIT_H

#include <stdint.h>

#define INIT_FD 3
#define INIT_INLINE_MAX 4096           /* longer START payloads come in a memfd */
#define INIT_PAYLOAD_MAX (1024 * 1024 + 4096)

enum init_op {
	/* shim → init */
	INIT_HELLO = 1,  /* struct init_hello; fake: with the guest root's descriptor */
	INIT_START,      /* struct init_start + payload; descriptors as its flags say */
	INIT_SIGNAL,     /* struct init_signal: to the process group of num */
	INIT_KILLTREE,   /* struct init_signal: KILL to everything that num has started */
	/* init → shim: struct init_event, never with a descriptor */
	INIT_STARTED = 16, /* pid > 0, or 0 and stage, error */
	INIT_EXITED,       /* status as from waitpid */
};
enum init_stage { INIT_AT_SPAWN = 1, INIT_AT_IDS, INIT_AT_TTY, INIT_AT_CWD, INIT_AT_EXEC };
enum init_flags {
	INIT_FAKE = 1,
	INIT_TTY = 2,    /* START: one descriptor, the terminal; else three: stdin, stdout, stderr */
	INIT_CGROUP = 4, /* START: then cgroup.procs, open for writing */
	INIT_MEMFD = 8,  /* START: then a memfd with the payload */
};
struct init_hello {
	uint32_t op, flags, uid, gid;
};
/* Payload: cwd, argv[0..argc), env[0..envc), each ended by NUL, `len` bytes in all. */
struct init_start {
	uint32_t op, num, flags, argc, envc, len;
};
struct init_signal {
	uint32_t op, num, signal, pad;
};
struct init_event {
	uint32_t op, num;
	int32_t pid, stage, error, status;
};

#endif
