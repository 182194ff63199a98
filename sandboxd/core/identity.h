/* SPDX-License-Identifier: MIT */
/* A fork has the files of another sandbox, and with them what those files say about who it is. What is
 * meant to be one machine's alone is made anew or taken away before anybody can use the fork: the machine
 * id, seeds of random numbers, host keys. A file that the original did not have is not made. */
#ifndef SANDBOXD_CORE_IDENTITY_H
#define SANDBOXD_CORE_IDENTITY_H

#include "sandboxd/backend/guestfs.h"

int identity_renew(struct guestfs *fs, struct err *e);

#endif
