/* SPDX-License-Identifier: MIT */
/* What the front and a sandbox's egress process say to each other, and how the broker starts one.
 * The framing is proto.h's: hello with kind PROTO_CALLS (requests only) or PROTO_EVENTS (refusals
 * are sent too), hello_ok, then frames. */
#ifndef SANDBOXD_PROTO_EGRESS_H
#define SANDBOXD_PROTO_EGRESS_H

#include "sandboxd/proto/proto.h"

#include <stdint.h>

/* Descriptors at exec; 0, 1, 2 are /dev/null. The sockets were born in the guest's network
 * namespace, the process itself stands in the host's. */
enum egress_fd {
	EGRESS_FD_BOOT = 3, /* SOCK_SEQPACKET: one struct egress_boot with the listening socket that
			     * becomes run/<id>/egress; its end without one: never claimed */
	EGRESS_FD_SHIM,     /* pidfd of the shim: readable when the sandbox is over */
	EGRESS_FD_TCP,      /* listener that all foreign TCP of the guest arrives at */
	EGRESS_FD_DNS_TCP,
	EGRESS_FD_DNS_UDP,
	EGRESS_FD_LINK, /* keeps the socket lookup program attached, where there is one */
	EGRESS_FD_END
};
#define EGRESS_BOOT_MAGIC 0x45475242u
struct egress_boot {
	uint32_t magic, version; /* PROTO_VERSION */
	uint64_t generation;
	uint8_t secret[PROTO_SECRET_LEN];
};

/* Guest's side addresses. */
#define EGRESS_DNS_ADDR  0x7f000035u /* 127.0.0.53 */
#define EGRESS_SELF_ADDR 0xc0000202u /* 192.0.2.2, the guest's own on lo */
#define EGRESS_FAKE_NET  0xc6120000u /* 198.18.0.0/15: placeholders */
#define EGRESS_FAKE_MASK 0xfffe0000u

enum egress_op {
	EGRESS_POLICY =
		1, /* payload: struct egress_policy, names. Answer: connections that were cut */
	EGRESS_RESOLVERS,    /* payload: up to EGRESS_SERVERS_MAX struct egress_server */
	EGRESS_COUNTERS,     /* answer's payload: struct egress_counts */
	EGRESS_REFUSED = 64, /* event; payload: struct egress_refused, name without NUL */
};
enum egress_mode { EGRESS_NONE, EGRESS_ALLOWLIST, EGRESS_OPEN };
/* Names cleaned (node contract, 9.2), each ended by NUL: first those allowed, then those denied. */
struct egress_policy {
	uint32_t mode, nallow, ndeny, len;
};
#define EGRESS_SERVERS_MAX 8
struct egress_server {
	uint16_t family, port; /* AF_INET, AF_INET6; host order */
	uint32_t scope;
	uint8_t addr[16];
};
struct egress_counts {
	int64_t rx_bytes, tx_bytes, connections, refused;
};
enum egress_why {
	WHY_NAME,      /* not allowed, or denied */
	WHY_ADDRESS,   /* an address that no name led to */
	WHY_INNER,     /* leads to an address that is not public, or to the host itself */
	WHY_MISMATCH,  /* names another one than was asked for */
	WHY_UNNAMED,   /* says no name where one is needed, in time */
	WHY_UNCLEAR,   /* cannot be understood, or hides its name */
	WHY_NO_ANSWER, /* the resolver has no address */
	WHY_MANY,      /* too many connections */
	WHY_COUNT
};
#define EGRESS_NAME_MAX 253
struct egress_refused {
	uint32_t why, addr;  /* v4, host order, as the guest asked; 0: a query */
	uint32_t port, more; /* more: how many before this one went unreported */
};

#endif
