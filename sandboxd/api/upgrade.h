/* SPDX-License-Identifier: MIT */
/* What the handlers that leave HTTP have in common. */
#ifndef SANDBOXD_API_UPGRADE_H
#define SANDBOXD_API_UPGRADE_H

#include "sandboxd/api/call.h"

/* Does the request ask for this protocol (any case) with `Connection: upgrade`? invalid_request. */
int upgrade_check(struct call *c, const char *protocol, struct err *e);

#endif
