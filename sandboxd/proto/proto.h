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

#endif
