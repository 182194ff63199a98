/* SPDX-License-Identifier: MIT */
/* The file protocol between the front (guestfs.c) and a sandbox's file worker. After the hello of
 * proto.h a FILES connection carries one request, one answer, one request … in order; the front
 * keeps several connections. Operations and layouts are those of common/fs. By FILES_ADOPT the
 * front gives the worker a client's connection, on which it then speaks sbx-fs/1. */
#ifndef SANDBOXD_PROTO_FILES_H
#define SANDBOXD_PROTO_FILES_H

#include "common/fs/files.h"
#include "sandboxd/proto/proto.h"

#include <stddef.h>

_Static_assert(sizeof(struct fs_frame) == sizeof(struct proto_frame) &&
		       offsetof(struct fs_frame, len) == offsetof(struct proto_frame, len) &&
		       offsetof(struct fs_frame, op) == offsetof(struct proto_frame, op) &&
		       offsetof(struct fs_frame, flags) == offsetof(struct proto_frame, flags) &&
		       offsetof(struct fs_frame, tag) == offsetof(struct proto_frame, tag) &&
		       offsetof(struct fs_frame, value) == offsetof(struct proto_frame, value),
	"a frame of sbx-fs/1 is a frame of the shim protocol");

#endif
