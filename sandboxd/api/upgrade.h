/* SPDX-License-Identifier: MIT */
/* What the handlers that leave HTTP have in common. */
#ifndef SANDBOXD_API_UPGRADE_H
#define SANDBOXD_API_UPGRADE_H

#include "sandboxd/api/call.h"

/* Does the request ask for this protocol (any case) with `Connection: upgrade`? invalid_request. */
int upgrade_check(struct call *c, const char *protocol, struct err *e);
/* Bytes both ways until both have ended, or one is gone for good; `first` had come before. What a
 * client sent before it went still goes to the other end, for as long as that takes it and `core`
 * (NULL: none) does not stop. */
void upgrade_pump(struct core *core, int client, int other, const void *first, size_t first_len);
/* So long what is left of a client that has gone may stand still before it is thrown away. Only a
 * test sets it. */
extern _Atomic int upgrade_patience_ms;
bool upgrade_is_unix(int fd);

#endif
