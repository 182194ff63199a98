/* SPDX-License-Identifier: MIT */
/* The front's side of a sandbox's egress process (sandboxd/egress): its policy, its counters, what
 * it refused. The process outlives the front and keeps the last policy; until the first one it lets
 * nothing through. When it dies nothing gets through either, until one thread here has had another
 * started. */
#ifndef SANDBOXD_CORE_EGRESS_H
#define SANDBOXD_CORE_EGRESS_H

#include "sandboxd/core/sandbox.h"
#include "sandboxd/proto/egress.h"

struct egress;
struct egress_counters {
	int64_t rx_bytes, tx_bytes;
}; /* as the guest sees them, since its start */

/* Connects to run/<id>/egress with the sandbox's secret. */
int egress_open(struct sandbox *s, struct egress **ret, struct err *e);
void egress_close(struct egress *g); /* NULL is fine; the process goes on */
/* Returns when the policy is in force and the connections that it forbids are cut. NET_NONE lets
 * nothing through. Never a moment between the two policies. */
int egress_policy(struct egress *g, const struct net_policy *p, struct err *e);
int egress_counters(struct egress *g, struct egress_counters *ret, struct err *e);

/* A new sandbox: connects and puts its policy in force. Nothing to do where its mode is none. */
int egress_begin(struct sandbox *s, struct err *e);
/* One of an earlier run: connects if there is such a process, and sends it the recorded policy.
 * What cannot be reached is started again later. */
void egress_resume(struct sandbox *s);
/* PATCH: makes *p the sandbox's policy, in its process and then in s->network, and takes it over.
 * The caller has pinned the sandbox; its lock is not held. On failure nothing has changed. */
int egress_change(struct sandbox *s, struct net_policy *p, struct err *e);

/* The thread that reads what the processes say. */
struct egress_watch;
int egress_watch_new(struct core *c, struct egress_watch **ret, struct err *e);
void egress_watch_free(struct egress_watch *w);

/* The operator's resolvers: `given` as ADDRESS[:PORT], or else those of resolv.conf. */
struct egress_resolvers {
	unsigned n;
	struct egress_server v[EGRESS_SERVERS_MAX];
};
int egress_resolvers_load(const struct strlist *given, struct egress_resolvers *ret, struct err *e);
/* For every sandbox, those that run included. */
void core_set_resolvers(struct core *c, const struct egress_resolvers *r);

#endif
