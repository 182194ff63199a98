/* SPDX-License-Identifier: MIT */
/* HTTP/1.1 text, shared by the unix transport and by connections that are taken over. */
#ifndef CLIENT_LIB_WIRE_H
#define CLIENT_LIB_WIRE_H

#include "client/lib/internal.h"

#define WIRE_HEAD_MAX (2 * 1024 * 1024) /* of a request; paths may be long */
#define WIRE_IN       262144            /* bytes of a connection's input buffer; a header line must fit */

/* Connects to the handle's unix socket within its connect timeout; -errno (EINTR: cancelled). */
int wire_connect(const struct sbx *s, bool (*cancelled)(void *arg), void *arg);
/* Request line and header, blank line included; `upgrade`: a protocol to switch to, or NULL. */
bool wire_head(struct sbx *s, const struct sbx_request *q, const char *upgrade, struct sbx_buf *b);
/* The status of "HTTP/1.x NNN ...", 100..599; 0 when the line is none. */
int wire_status(const char *line);
bool wire_is_hex(char c);

#endif
