/* SPDX-License-Identifier: MIT */
/* The two ways that wire.c chooses from: plain requests (wire_http*.c) and frames (wire_fs1.c), which
 * give FS1_PLAIN when there is no connection. What each does is told in wire.def and treefs.h. */
#ifndef SBXFS_WIRE_H
#define SBXFS_WIRE_H

#include "sbxfs/fs1.h"
#include "sbxfs/treefs.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#define RENAME_EXCHANGE 2
#endif

/* The bytes of `key`, or of `key`_b64 when it is there; the caller frees. NULL: neither, or a NUL. */
char *wire_bytes(const json_t *o, const char *key);
/* Who owns a file, as the guest counts. */
uint32_t wire_uid(const struct mount *m, uint32_t id);
uint32_t wire_gid(const struct mount *m, uint32_t id);
/* The other way. */
uint32_t wire_uid_shown(const struct mount *m, uint32_t id);
uint32_t wire_gid_shown(const struct mount *m, uint32_t id);

/* A guest has several file systems, and all of them are one here: their numbers must not meet, or find
 * takes one folder for another and tar one file for a link to another. */
ino_t wire_ino(uint64_t dev, uint64_t ino);

#define W(name, params, args, acts) \
	int http_##name params;     \
	int frame_##name params;
#include "sbxfs/wire.def"
#undef W

/* False: not by a frame. */
bool frame_close(struct req *q, const char *box, const char *handle);
void http_close(struct req *q, const char *box, const char *handle);
int http_statfs(struct req *q, const char *box, const char *path, struct statvfs *ret);

#endif
