/* SPDX-License-Identifier: MIT */
/* What sandboxd and sbx-pull say to each other: one fixed-size request, one fixed-size answer, in any
 * order, matched by tag.
 *
 * sbx-pull is started as root by sandboxd before it gives up its rights:
 *   sbx-pull UID GID CELLS_UID STATE_DIR STALL_SECS FLAGS
 *     fd 3  SOCK_SEQPACKET socketpair to the front; sbx-pull ends when the other side closes
 *     fd 4  the state directory
 *   FLAGS: "p" when registries may have private addresses, else "-"
 * It becomes UID, and each of its PULL_CELLS cells a user from CELLS_UID on; then it sends an answer with tag 0 to say
 * that it is ready, and reads the first request.
 *
 * The work of one tag happens in STATE_DIR/pull/<tag>, which the front makes and removes. There it puts
 * auth.json when there is a login, and source.tar when an archive is to be read. sbx-pull leaves `manifest`
 * (MANIFEST), or the folder `image` with manifest.json and one file a blob, named by its digest (COPY). */
#ifndef SANDBOXD_PULL_PULL_H
#define SANDBOXD_PULL_PULL_H

#include <stdint.h>

#define PULL_MAGIC    0x50554c31u
#define PULL_CELLS    4 /* runs of the tool at a time */
#define PULL_FD_FRONT 3
#define PULL_FD_STATE 4
#define PULL_REF_MAX  512
#define PULL_TEXT_MAX 256
#define PULL_MANIFEST_MAX (4 * 1024 * 1024)
#define PULL_STALL_MAX 3600 /* seconds */
#define PULL_FILES_MAX 2000 /* in one work's folder, with what is unpacked of an archive for a while */
#define PULL_TOOL     "/usr/bin/skopeo"

enum pull_op { PULL_MANIFEST = 1, PULL_COPY, PULL_CANCEL };
enum pull_source {
	PULL_REGISTRY,   /* ref: registry/name:tag or registry/name@sha256:… */
	PULL_OCI_TAR,    /* source.tar; ref "" */
	PULL_DOCKER_TAR, /* the same */
	PULL_SOURCES
};
struct pull_req {
	uint32_t magic, op, tag, source;
	char ref[PULL_REF_MAX];
};
enum pull_result {
	PULL_OK,
	PULL_NOT_FOUND,   /* the registry does not know it, or does not show it without a login */
	PULL_DENIED,      /* the login was refused */
	PULL_REFUSED,     /* an address that is not public */
	PULL_UNREACHABLE, /* no such host, or it does not answer */
	PULL_STALLED,
	PULL_CANCELLED,
	PULL_DAMAGED,     /* what came is not what the digest says, or is no image */
	PULL_FULL,        /* the disk */
	PULL_MORE,        /* more files or bytes than an image has */
	PULL_FAILED,
};
struct pull_ans {
	uint32_t magic, tag;
	int32_t result; /* enum pull_result */
	uint32_t pad;
	char text[PULL_TEXT_MAX]; /* for people: the tool's last line, without what it was asked */
};

#endif
