/* SPDX-License-Identifier: MIT */
/* The folder of this host that holds the sockets of ports/. */
#ifndef SBXFS_PORT_DIR_H
#define SBXFS_PORT_DIR_H

#include "sbxfs/mount.h"

struct port_dir {
	char path[64]; /* "": not made yet */
	int lock_fd;   /* held while we live */
};
#define PORT_DIR_NULL { .lock_fd = -1 }

/* Makes it when it is not there, and removes those of mounts that died. 0 or -errno. */
int port_dir_open(struct port_dir *d, const struct options *o);
void port_dir_close(struct port_dir *d);
/* A listening socket, which only the mount's owner (and its group, with gid=) may use. */
int port_dir_listen(const struct options *o, const char *path);

#endif
