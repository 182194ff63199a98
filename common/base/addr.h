/* SPDX-License-Identifier: MIT */
/* Which addresses the server may be sent to by somebody else's word: names that a sandbox asks for, a
 * registry, a collector of metrics. One table for all of them; loaded by nothing but libc, so that the
 * static programs can use it. */
#ifndef COMMON_BASE_ADDR_H
#define COMMON_BASE_ADDR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

enum addr_kind {
	ADDR_PUBLIC,
	ADDR_LOOPBACK, /* 127/8, ::1, and 127/8 mapped into IPv6 */
	ADDR_INNER,    /* everything else that is not the public internet */
};
/* Pure. Looks through the forms of IPv6 that stand for an IPv4 address (mapped, 6to4, Teredo, NAT64). A
 * family that is neither is ADDR_INNER. */
enum addr_kind addr_kind_of(const struct sockaddr *sa);
bool addr_public(const struct sockaddr *sa);

/* The host's own addresses, public ones too: reaching them is reaching the host. */
struct addr_own;
/* As they are now; 0 or -errno. Caller frees. */
int addr_own_load(struct addr_own **ret);
void addr_own_free(struct addr_own *own);
bool addr_own_has(const struct addr_own *own, const struct sockaddr *sa);

/* Both questions at once, with the addresses of this moment: false when they cannot be read. */
bool addr_dialable(const struct sockaddr *sa);

#endif
