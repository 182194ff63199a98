/* SPDX-License-Identifier: MIT */
/* One connection of the guest: what it is for, whether it may be, and the way to its server. The
 * address that was checked is the address that is dialled; nothing is asked a second time. */
#include "common/sys/mem.h"
#include "sandboxd/egress/state.h"

#include "common/base/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#ifndef SO_ORIGINAL_DST
#define SO_ORIGINAL_DST 80
#endif
#define PER_TURN 16
#define PAUSE_MS 500 /* no descriptor left */

static void dial_next(struct egress *g, struct conn *c);

void conn_half(struct egress *g, struct conn *c, bool half)
{
	if (c->half == half)
		return;
	c->half = half;
	g->nhalf += half ? 1u : -1u;
	if (half) {
		c->name_deadline = g->now + NAME_MS;
		deadline_at(g, c->name_deadline);
	}
}

static void hard_close(struct egress *g, struct source *s)
{
	const struct linger now = { .l_onoff = 1 };

	if (s->fd >= 0)
		(void)setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	source_close(g, s);
}

/* Both ends get a reset, unless everything was passed on and both have said goodbye. */
void conn_close(struct egress *g, struct conn *c)
{
	if (c->query)
		query_cancel(g, steal(c->query));
	if (!c->up.done || !c->down.done) {
		hard_close(g, &c->guest);
		hard_close(g, &c->far);
	}
	source_close(g, &c->far);
	relay_free(g, c);
	conn_half(g, c, false);
	*(c->prev ? &c->prev->next : &g->conns) = c->next;
	if (c->next)
		c->next->prev = c->prev;
	g->nconns--;
	free(steal(c->name));
	free(steal(c->said));
	source_free(g, &c->guest);
}

void conn_refuse(struct egress *g, struct conn *c, enum egress_why why, const char *name)
{
	refused(g, why, name ? name : c->name, c->addr, c->port);
	conn_close(g, c);
}

/* --- the way out ----------------------------------------------------------------------------- */

static socklen_t to_sockaddr(const struct dns_addr *a, uint16_t port, struct sockaddr_storage *ss)
{
	memset(ss, 0, sizeof(*ss));
	if (a->family == AF_INET) {
		struct sockaddr_in *s = (struct sockaddr_in *)ss;
		s->sin_family = AF_INET;
		s->sin_port = htons(port);
		memcpy(&s->sin_addr, a->a, 4);
		return sizeof(*s);
	}
	struct sockaddr_in6 *s = (struct sockaddr_in6 *)ss;
	s->sin6_family = AF_INET6;
	s->sin6_port = htons(port);
	memcpy(&s->sin6_addr, a->a, 16);
	return sizeof(*s);
}

/* A side that does not read holds back so much of what is for it, and no more. */
#define UNSENT_MAX (256 * 1024)

static void set_options(int fd)
{
	const int one = 1, unsent = UNSENT_MAX;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
}

static void connected(struct egress *g, struct conn *c)
{
	c->far_state = FAR_UP;
	c->far.ready = relay_far;
	c->active_ms = g->now;
	deadline_at(g, g->now + IDLE_MS);
	relay_run(g, c);
}

static void far_connecting(struct egress *g, struct source *s, uint32_t events)
{
	struct conn *c = (struct conn *)(void *)((char *)s - offsetof(struct conn, far));
	int err = 0;
	socklen_t n = sizeof(err);

	(void)events;
	if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &err, &n) < 0 || err) {
		source_close(g, s);
		dial_next(g, c);
		return;
	}
	connected(g, c);
}

/* 0: under way. */
static int dial_one(
	struct egress *g, struct conn *c, const struct sockaddr_storage *ss, socklen_t n)
{
	int fd = socket(ss->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	set_options(fd);
	c->far = (struct source){ .fd = fd, .ready = far_connecting };
	if ((connect(fd, (const struct sockaddr *)ss, n) < 0 && errno != EINPROGRESS) ||
		source_add(g, &c->far, EPOLLOUT) < 0) {
		source_close(g, &c->far);
		return -EIO;
	}
	c->far_state = FAR_CONNECTING;
	c->connect_deadline = g->now + CONNECT_MS;
	deadline_at(g, c->connect_deadline);
	return 0;
}

/* The next address that may be dialled and can be. */
static void dial_next(struct egress *g, struct conn *c)
{
	bool inner = false, tried = false;

	while (c->next_addr < c->addrs.n && g->now < c->dial_deadline) {
		struct sockaddr_storage ss;
		socklen_t n = to_sockaddr(&c->addrs.a[c->next_addr++], c->port, &ss);
		const struct sockaddr *sa = (const struct sockaddr *)&ss;
		if (!addr_public(sa) || route_is_own(g->netlink, sa)) {
			inner = true;
			continue;
		}
		tried = true;
		if (dial_one(g, c, &ss, n) == 0)
			return;
	}
	if (inner && !tried)
		conn_refuse(g, c, WHY_INNER, NULL);
	else
		conn_close(g, c);
}

static void dial_resolved(struct egress *g, void *arg, const struct dns_addrs *a)
{
	struct conn *c = arg;

	c->query = NULL;
	c->addrs = *a;
	if (!policy_permits(&g->policy, c->name))
		conn_refuse(g, c, WHY_NAME, NULL);
	else if (a->n == 0)
		conn_refuse(g, c, WHY_NO_ANSWER, NULL);
	else
		dial_next(g, c);
}

bool conn_dial(struct egress *g, struct conn *c)
{
	c->dial_deadline = g->now + DIAL_MS;
	deadline_at(g, c->dial_deadline);
	c->far_state = FAR_RESOLVING;
	if (c->name) {
		c->query = query_start(g, c->name, true, dial_resolved, c);
		if (!c->query)
			conn_refuse(g, c, WHY_NO_ANSWER, NULL);
		return c->query != NULL;
	}
	const uint32_t addr = htonl(c->addr);
	c->addrs = (struct dns_addrs){ .n = 1, .a[0].family = AF_INET };
	memcpy(c->addrs.a[0].a, &addr, 4);
	c->next_addr = 0;
	dial_next(g, c);
	return c->guest.fd >= 0;
}

/* --- the guest's side ------------------------------------------------------------------------ */

bool conn_begin(struct egress *g, struct conn *c)
{
	c->web = c->port == 80 || c->port == 443;
	c->way = WAY_SNIFF;
	if (!c->web)
		return conn_dial(g, c);
	if (g->nhalf >= HALF_MAX && !c->half) {
		conn_refuse(g, c, WHY_MANY, NULL);
		return false;
	}
	conn_half(g, c, false);
	conn_half(g, c, true);
	return true;
}

/* What the address says about the name. */
static bool admit(struct egress *g, struct conn *c)
{
	const struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(c->addr) };
	const char *name = names_find(&g->names, c->addr);

	if (name)
		c->name = strdup(name);
	if (g->nconns > g->conns_max || (name && !c->name))
		conn_refuse(g, c, WHY_MANY, NULL);
	else if (name ? !policy_permits(&g->policy, name) : g->policy.mode == EGRESS_NONE)
		conn_refuse(g, c, WHY_NAME, NULL);
	else if (!name && g->policy.mode != EGRESS_OPEN)
		conn_refuse(g, c, WHY_ADDRESS, NULL);
	else if (!name && (!addr_public((const struct sockaddr *)&sa) ||
				  route_is_own(g->netlink, (const struct sockaddr *)&sa)))
		conn_refuse(g, c, WHY_INNER, NULL);
	else
		return true;
	return false;
}

/* The accepted socket's own address is what was asked for; where the redirect caught it, connection
 * tracking knows. */
static int asked_for(int fd, struct sockaddr_in *sa)
{
	struct sockaddr_in was;
	socklen_t n = sizeof(*sa);

	if (getsockname(fd, (struct sockaddr *)sa, &n) < 0 || sa->sin_family != AF_INET)
		return -1;
	n = sizeof(was);
	if (ntohl(sa->sin_addr.s_addr) == EGRESS_DNS_ADDR &&
		getsockopt(fd, SOL_IP, SO_ORIGINAL_DST, &was, &n) == 0)
		*sa = was;
	return 0;
}

static void take(struct egress *g, int fd)
{
	struct sockaddr_in sa;
	struct conn *c = calloc(1, sizeof(*c));

	if (!c || asked_for(fd, &sa) < 0) {
		free(c);
		close(fd);
		return;
	}
	c->guest = (struct source){ .fd = fd, .ready = relay_guest };
	c->far.fd = -1;
	c->up.pipe[0] = c->up.pipe[1] = c->down.pipe[0] = c->down.pipe[1] = -1;
	c->addr = ntohl(sa.sin_addr.s_addr);
	c->port = ntohs(sa.sin_port);
	c->active_ms = g->now;
	c->next = g->conns;
	if (c->next)
		c->next->prev = c;
	g->conns = c;
	g->nconns++;
	if (!admit(g, c))
		return;
	set_options(fd);
	g->counts.connections++;
	if (conn_begin(g, c) && source_add(g, &c->guest, EPOLLIN) < 0)
		conn_close(g, c);
}

void conn_accept(struct egress *g, struct source *s, uint32_t events)
{
	(void)events;
	for (int i = 0; i < PER_TURN; i++) {
		int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0) {
			take(g, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			source_want(g, s, 0); /* conn_scan takes it up again */
			deadline_at(g, g->now + PAUSE_MS);
		}
		return;
	}
}

/* --- all of them ----------------------------------------------------------------------------- */

static bool forbidden(const struct policy *p, const struct conn *c)
{
	if (c->name ? !policy_permits(p, c->name) : p->mode != EGRESS_OPEN)
		return true;
	return (c->said && !policy_permits(p, c->said)) || (c->unchecked && policy_has_rules(p));
}

unsigned conn_cut(struct egress *g)
{
	struct conn *after;
	unsigned n = 0;

	for (struct conn *c = g->conns; c; c = after) {
		after = c->next;
		if (!forbidden(&g->policy, c))
			continue;
		conn_close(g, c);
		n++;
	}
	return n;
}

static int64_t sooner(int64_t a, int64_t b)
{
	return !a || b < a ? b : a;
}

/* When this one is to be looked at again; 0: it is gone. */
static int64_t scan_one(struct egress *g, struct conn *c)
{
	int64_t next = 0;

	if (c->half && g->now >= c->name_deadline && !look_late(g, c))
		return 0;
	if (c->half)
		next = c->name_deadline;
	if (c->far_state == FAR_UP) {
		if (g->now - c->active_ms >= IDLE_MS) {
			conn_close(g, c);
			return 0;
		}
		return sooner(next, c->active_ms + IDLE_MS);
	}
	if (c->far_state == FAR_NONE)
		return next;
	if (g->now >= c->dial_deadline) {
		conn_close(g, c);
		return 0;
	}
	if (c->far_state == FAR_CONNECTING && g->now >= c->connect_deadline) {
		source_close(g, &c->far);
		dial_next(g, c);
		return g->now + 1; /* whatever became of it */
	}
	next = sooner(next, c->dial_deadline);
	return c->far_state == FAR_CONNECTING ? sooner(next, c->connect_deadline) : next;
}

int64_t conn_scan(struct egress *g)
{
	struct conn *after;
	int64_t next = 0;

	for (struct conn *c = g->conns; c; c = after) {
		after = c->next;
		int64_t t = scan_one(g, c);
		if (t)
			next = sooner(next, t);
	}
	if (g->tcp.fd >= 0)
		source_want(g, &g->tcp, EPOLLIN);
	return next;
}
