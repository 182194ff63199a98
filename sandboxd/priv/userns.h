/* SPDX-License-Identifier: MIT */
/* A user namespace that maps 0..65535 to a block of host ids, as a descriptor without a process. */
#ifndef SANDBOXD_PRIV_USERNS_H
#define SANDBOXD_PRIV_USERNS_H

#include "sandboxd/priv/sys.h"

#include <sys/types.h>

int userns_make(uid_t first, struct fail *f); /* the descriptor */

#endif
