/* SPDX-License-Identifier: MIT */
/* Inside of guestfs only: what its two files share. */
#ifndef SANDBOXD_BACKEND_GUESTFS_CHECK_H
#define SANDBOXD_BACKEND_GUESTFS_CHECK_H

#include "sandboxd/backend/guestfs.h"

/* Logs that an answer made no sense (`what` of it) and sets internal. -1. */
int guestfs_nonsense(const char *what, struct err *e);
/* Are these attributes that a kernel could have given? */
bool guestfs_attr_ok(const struct files_attr *t);
/* Has the worker said that handles expired, since this was last asked? */
bool guestfs_take_expired(struct guestfs *fs);

#endif
