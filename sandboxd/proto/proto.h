/* SPDX-License-Identifier: MIT */
/* The shim protocol: fixed little structs over a unix stream socket, the seam for every backend.
 * The front connects to <run dir>/sock, sends struct hello, gets struct hello_ok; the connection is
 * then one of three kinds. Numbers are host order: both ends are on one machine (a vsock backend has
 * the same byte order too). Every frame is struct frame followed by `len` bytes. */
#ifndef SANDBOXD_PROTO_PROTO_H
#define SANDBOXD_PROTO_PROTO_H

#include <stdint.h>

#define PROTO_MAGIC 0x53425831u /* "SBX1" */
#define PROTO_VERSION 1
#define PROTO_SECRET_LEN 16
#define PROTO_FRAME_MAX (1024 * 1024 + 4096)

enum proto_kind {
	PROTO_CALLS = 1,  /* request, answer, request, answer … in order; a pool of these */
	PROTO_EVENTS = 2, /* shim → front only; a newer one replaces the older */
	PROTO_FILES = 3,  /* handed to the file worker; see proto/files.h */
};
struct proto_hello {
	uint32_t magic, version, kind, pad;
	uint8_t secret[PROTO_SECRET_LEN];
	uint64_t generation;
};
struct proto_hello_ok {
	uint32_t magic, version;
	int32_t error; /* 0 or -errno; on error the shim closes */
	uint32_t pad;
	uint64_t generation;
};
struct proto_frame {
	uint32_t len;  /* of what follows; at most PROTO_FRAME_MAX */
	uint16_t op;   /* the answer repeats it */
	uint16_t flags;
	uint64_t tag;  /* the answer repeats it */
	int64_t value; /* request: argument; answer: >= 0 or -errno */
};


/* CALLS. `value` is the process's number unless said otherwise; answers carry no payload. A call is
 * dropped when its connection is closed before the answer. */
enum proto_op {
	/* payload: struct proto_start, strings; descriptors: the spool, then (PROTO_START_STDIN) a
	 * file whose bytes are the input. Answer: 1, or -errno with flags = enum proto_stage. */
	PROTO_START = 1,
	PROTO_SIGNAL, /* flags = signal number, to the process group */
	PROTO_KILLTREE,
	PROTO_STDIN,  /* payload: the bytes; flags: PROTO_STDIN_CLOSE. Answered when all are taken */
	PROTO_RESIZE, /* flags unused; payload: struct proto_size */
	PROTO_FORGET,
	PROTO_DIAL,   /* value: port; the answer carries the connected socket */
	PROTO_PING,
	/* EVENTS, shim → front; no payload. Repeated for all known processes at connect. */
	PROTO_OUTPUT = 64,
	PROTO_EXITED,
};
/* What failed in a START; the numbers are init's (init/init.h). */
enum proto_stage {
	PROTO_AT_SHIM = 0,
	PROTO_AT_SPAWN,
	PROTO_AT_IDS,
	PROTO_AT_TTY,
	PROTO_AT_CWD,
	PROTO_AT_EXEC,
};
#define PROTO_START_MAX (1024 * 1024) /* bytes of strings in a START */
enum proto_start_flags {
	PROTO_START_TTY = 1,
	PROTO_START_OPEN = 2,  /* input stays open after the given bytes */
	PROTO_START_STDIN = 4, /* a second descriptor holds input */
};
/* Strings: cwd, argv[0..argc), env[0..envc), each ended by NUL; `len` bytes in all. */
struct proto_start {
	uint32_t flags;
	uint16_t rows, cols;
	uint32_t argc, envc, len;
};
#define PROTO_STDIN_CLOSE 1
struct proto_size {
	uint16_t rows, cols;
};

#endif
