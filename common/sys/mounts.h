/* SPDX-License-Identifier: MIT */
/* The mounts of a process that has a mount namespace of its own. Libc only. */
#ifndef COMMON_SYS_MOUNTS_H
#define COMMON_SYS_MOUNTS_H

#include <stdbool.h>

/* Takes the host's other file systems out of this process's own mount namespace, which must not be a peer
 * of another: what stays is the system's (MOUNTS_SYSTEM), and what leads to one of the `need`, absolute
 * paths without links, closed by NULL, or lies below. Without it a namespace that lives long holds each
 * disk and each mount of a file server or a FUSE daemon that was there when it began: unmounted on the
 * host, the disk would stay busy and the daemon would run on. What cannot be taken out stays, and holds
 * nothing up. One thread. */
void mounts_leave(const char *const *need);
/* Is the mount at `dir`, of file-system type `type`, one of these? */
bool mounts_needed(const char *dir, const char *type, const char *const *need);

#endif
