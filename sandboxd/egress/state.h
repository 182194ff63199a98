/* SPDX-License-Identifier: MIT */
/* sbx-egress: the only way from a sandbox to the network, one process each. One thread, one epoll
 * set; every descriptor in it is a `source` with a function. Nothing is done for a sandbox that
 * does nothing: no timer runs while there is no connection and no query. */
#ifndef SANDBOXD_EGRESS_STATE_H
#define SANDBOXD_EGRESS_STATE_H

#include "sandboxd/egress/dnswire.h"
#include "sandboxd/egress/head.h"
#include "sandboxd/egress/names.h"
#include "sandboxd/egress/policy.h"
#include "sandboxd/proto/egress.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONNS_MAX    1024 /* of the guest */
#define HALF_MAX     128  /* of which so many may not have said a name yet */
#define QUERIES_MAX  64   /* to resolvers at a time; the others wait for their turn */
#define CONTROLS_MAX 8
#define DNS_TCP_MAX  16
#define ADDRS_MAX    8

#define NAME_MS      15000
#define CONNECT_MS   10000
#define DIAL_MS      30000
#define IDLE_MS      3600000
#define QUERY_MS     2000
#define DNS_TCP_MS   10000

struct egress;
struct source {
	int fd;
	uint32_t events; /* as in the epoll set; 0: not in it */
	void (*ready)(struct egress *g, struct source *s, uint32_t events);
	struct source *next_dead;
};
struct query;
typedef void query_done(struct egress *g, void *arg, const struct dns_addrs *a);

enum far_state { FAR_NONE, FAR_RESOLVING, FAR_CONNECTING, FAR_UP };
enum way { WAY_SNIFF, WAY_HTTP, WAY_RAW };
struct dir {         /* one direction of the relay */
	int pipe[2]; /* -1: none borrowed */
	size_t piped;
	bool eof, done; /* read to the end; the end passed on */
};
struct conn {
	struct source guest, far;
	struct conn *next, *prev;
	int64_t name_deadline, connect_deadline, dial_deadline, active_ms;
	enum far_state far_state;
	enum way way;
	enum upgrade upgrade; /* asked for; the server has not said yet whether it does */
	bool half;            /* has not said a name yet: counted, and bounded in time */
	bool web;             /* port 80 or 443: nobody is dialled before a name is known */
	bool tunnel;          /* after a CONNECT */
	bool unchecked;       /* open, without any name rule in force: cut when one appears */
	bool guest_hup, far_hup;
	bool guest_end, far_end; /* sends no more; there may be something unread. Known for Upgrades only */
	uint16_t port;
	uint32_t addr; /* as the guest asked */
	char *name;    /* what it is for; NULL: open mode, and only an address is known */
	char *said;    /* name in the hello or the last request; NULL: none yet */
	struct query *query;
	struct dns_addrs addrs;
	unsigned next_addr;
	struct http http;
	uint8_t *buf; /* from the guest: [0, cleared) may go out, the rest is to be looked at */
	size_t len, cleared, room;
	struct dir up, down;
};

struct control {
	struct source src;
	struct control *next;
	bool greeted, events;
	size_t got;
	union {
		struct proto_hello hello;
		struct proto_frame frame;
	} in;
	uint8_t *body;
	size_t body_got;
};
struct egress {
	int epoll, netlink;
	struct source boot, shim, listen, tcp, dns_tcp, dns_udp;
	struct egress_boot id;
	struct source *dead;
	struct policy policy;
	struct names names;
	struct egress_counts counts;
	struct conn *conns;
	unsigned nconns, nhalf, conns_max;
	struct control *controls;
	unsigned ncontrols;
	struct query *queries;
	unsigned nqueries, nasking;
	struct dns_peer *dns_peers; /* DNS over TCP */
	unsigned ndns_peers, nasked;
	struct egress_server servers[EGRESS_SERVERS_MAX];
	unsigned nservers;
	int64_t now, scan_at;              /* scan_at 0: no deadline */
	int64_t tokens, tokens_ms;         /* refusals that may be reported */
	int64_t dns_tokens, dns_tokens_ms; /* queries that may be answered */
	uint32_t unreported;
	int pipes[8][2];
	unsigned npipes;
	bool over;
};

/* main.c */
int source_add(struct egress *g, struct source *s, uint32_t events);
void source_want(struct egress *g, struct source *s, uint32_t events); /* 0: takes it out */
void source_close(struct egress *g, struct source *s);
void source_free(struct egress *g, struct source *s); /* first member of what is freed */
void deadline_at(struct egress *g, int64_t when);     /* a scan is needed then */
/* One of `per_s` a second, `burst` at most at once. */
bool token_take(int64_t *tokens, int64_t *since, int64_t now, int per_s, int burst);

/* jail.c */
int jail_limits(void);
int jail_calls(void);

/* control.c */
void control_accept(struct egress *g, struct source *s, uint32_t events);
void refused(struct egress *g, enum egress_why why, const char *name, uint32_t addr, uint16_t port);

/* dns.c */
void dns_udp_ready(struct egress *g, struct source *s, uint32_t events);
void dns_tcp_accept(struct egress *g, struct source *s, uint32_t events);
int64_t dns_scan(struct egress *g); /* next deadline or 0 */

/* resolve.c */
/* v6: where there is no IPv4 address. NULL: cannot be asked; done is not called. */
struct query *query_start(struct egress *g, const char *name, bool v6, query_done *done, void *arg);
void query_cancel(struct egress *g, struct query *q);
int64_t query_scan(struct egress *g);
void query_next(struct egress *g); /* once a turn: those that waited */

/* route.c: does the host itself answer at this address, or is there no way to it? */
int route_open(void);
bool route_is_own(int netlink, const struct sockaddr *sa);

/* conn.c */
void conn_accept(struct egress *g, struct source *s, uint32_t events);
void conn_close(struct egress *g, struct conn *c); /* with a reset */
void conn_refuse(struct egress *g, struct conn *c, enum egress_why why, const char *name);
/* Towards c->name, else towards c->addr. False: c has been refused. */
bool conn_dial(struct egress *g, struct conn *c);
/* Starts over as a connection to c->name: after a CONNECT. False: refused. */
bool conn_begin(struct egress *g, struct conn *c);
void conn_half(struct egress *g, struct conn *c, bool half);
/* Every connection that today's policy forbids; how many. */
unsigned conn_cut(struct egress *g);
int64_t conn_scan(struct egress *g);

/* look.c: bytes of the guest that no server has seen yet. False: c has been refused. */
bool look(struct egress *g, struct conn *c);
/* The server's first bytes after an Upgrade: 1: known; 0: more are needed; -1: refused */
int look_at_answer(struct egress *g, struct conn *c, const uint8_t *b, size_t n);
bool look_late(struct egress *g, struct conn *c); /* the time for a name is over */

/* relay.c */
void relay_guest(struct egress *g, struct source *s, uint32_t events);
void relay_far(struct egress *g, struct source *s, uint32_t events);
void relay_run(struct egress *g, struct conn *c);
void relay_free(struct egress *g, struct conn *c);

#endif
