/* SPDX-License-Identifier: MIT */
/* Files of one sandbox as the front sees them: the client side of proto/files.h over a small pool of
 * connections to the file worker. Paths are cleaned guest paths (bytes); every one is resolved by the
 * worker inside the guest. Answers are untrusted: bounded and checked here. Thread-safe. */
#ifndef SANDBOXD_BACKEND_GUESTFS_H
#define SANDBOXD_BACKEND_GUESTFS_H

#include "sandboxd/backend/guest.h"

struct guestfs;
int guestfs_new(struct guest *g, struct guestfs **ret, struct err *e); /* connects lazily */
void guestfs_free(struct guestfs *fs);     /* calls in other threads must have ended */
void guestfs_shutdown(struct guestfs *fs); /* ends calls under way with conflict */

/* The operations themselves are declared below by the file module. */

#endif
