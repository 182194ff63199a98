/* SPDX-License-Identifier: MIT */
/* The session with the kernel, beyond what libfuse offers of it. */
#ifndef SBXFS_SESSION_H
#define SBXFS_SESSION_H

struct fuse_session;
/* Mounted, and before the first request is read. */
int session_begin(struct fuse_session *se);

#endif
