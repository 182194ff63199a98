/* SPDX-License-Identifier: MIT */
/* The few things that concern this machine and not the server. */
#ifndef SBXFS_HOST_H
#define SBXFS_HOST_H

#include <stdbool.h>
#include <sys/types.h>

/* Takes away a mount of ours whose program died. */
void host_detach_dead(const char *mountpoint);
/* 0 when a mount can be made there; -ENOTDIR, since root could cover a file; -EBUSY where an sbxfs is. */
int host_mountpoint(const char *path);
/* Lets the kernel read far ahead: at a distance of milliseconds its default is far too little. Needs
 * root; without it reads are right and slower. */
void host_read_ahead(const char *mountpoint);

/* Nobody follows links on this mount from now on. 0, or -errno. */
int host_no_symfollow(const char *mountpoint, bool read_only);

/* Does a signal wait for that thread which is meant to stop it? The kernel tells us of any signal,
 * also of an ended child or a changed window. True when it cannot be known. */
bool host_is_signalled(pid_t thread);

#endif
