/* SPDX-License-Identifier: MIT */
/* What the handlers that leave HTTP have in common. */
#ifndef SANDBOXD_API_UPGRADE_H
#define SANDBOXD_API_UPGRADE_H

#include "sandboxd/api/call.h"

/* Does the request ask for this protocol (any case) with `Connection: upgrade`? invalid_request. */
int upgrade_check(struct call *c, const char *protocol, struct err *e);
/* Bytes both ways until both have ended, or one is gone for good. */
void upgrade_pump(int client, int other);
bool upgrade_is_unix(int fd);

#endif
