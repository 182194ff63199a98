/* SPDX-License-Identifier: MIT */
/* The sandbox's network namespace, which the caller is already in: loopback and two switches. */
#ifndef SANDBOXD_PRIV_NET_H
#define SANDBOXD_PRIV_NET_H

#include "sandboxd/priv/sys.h"

#include <sys/types.h>

/* Needs the host's /proc. gid: first host id of the block; its 65,536 groups may send pings. */
int net_setup(gid_t gid, struct fail *f);

#endif
