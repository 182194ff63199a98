/* SPDX-License-Identifier: MIT */
/* The few things that concern this machine and not the server. */
#ifndef SBXFS_HOST_H
#define SBXFS_HOST_H

/* Takes away a mount of ours whose program died. */
void host_detach_dead(const char *mountpoint);
/* Lets the kernel read far ahead: at a distance of milliseconds its default is far too little. Needs
 * root; without it reads are right and slower. */
void host_read_ahead(const char *mountpoint);

#endif
