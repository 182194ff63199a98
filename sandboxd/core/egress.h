/* SPDX-License-Identifier: MIT */
/* The front's side of a sandbox's egress process (sandboxd/egress): its policy, its counters, what it
 * refused. The process outlives the front and keeps the last policy; until the first one it lets nothing
 * through. */
#ifndef SANDBOXD_CORE_EGRESS_H
#define SANDBOXD_CORE_EGRESS_H

#include "sandboxd/core/sandbox.h"

struct egress;
struct egress_counters { int64_t rx_bytes, tx_bytes; }; /* as the guest sees them, since its start */

/* Connects to run/<id>/egress with the sandbox's secret. */
int egress_open(struct sandbox *s, struct egress **ret, struct err *e);
void egress_close(struct egress *g); /* NULL is fine; the process goes on */
/* Returns when the policy is in force and the connections that it forbids are cut. NET_NONE lets nothing
 * through. Never a moment between the two policies. */
int egress_policy(struct egress *g, const struct net_policy *p, struct err *e);
int egress_counters(struct egress *g, struct egress_counters *ret, struct err *e);

#endif
