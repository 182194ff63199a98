/* SPDX-License-Identifier: MIT */
/* The session with the kernel, beyond what libfuse offers of it. */
#ifndef SBXFS_SESSION_H
#define SBXFS_SESSION_H

#include <stdbool.h>

struct fuse_session;
/* Mounted, and before the first request is read. */
int session_begin(struct fuse_session *se);
/* By a thread that has a request. It is going to sleep: another one waits for the kernel, if none does. */
void session_sleeps(void);
/* It looks for something without sleeping: the same, when the kernel has another request. */
void session_looks(void);
/* It does nothing for so long, and holds up nobody by it. */
void session_rests(int ms);
struct mount;
/* No other request is under way: so nothing that would hold a directory in the kernel. */
bool session_is_calm(struct mount *m);

#endif
