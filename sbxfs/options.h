/* SPDX-License-Identifier: MIT */
/* The command line and -o options, also in the order that mount(8) gives a helper. */
#ifndef SBXFS_OPTIONS_H
#define SBXFS_OPTIONS_H

#include "sbxfs/mount.h"

#include <fuse_opt.h>

/* Fills *o and leaves what is for the mount itself in *args. 0, or -1 after a message. */
int fsopt_parse(struct fuse_args *args, struct options *o);
void fsopt_fini(struct options *o);
void fsopt_usage(const char *program);

#endif
