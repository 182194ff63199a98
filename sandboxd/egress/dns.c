/* SPDX-License-Identifier: MIT */
/* The guest's name server, over UDP and TCP. In mode allowlist every answer is made here and no
 * question leaves the machine; in mode open a name's addresses come from the operator's resolver,
 * and what is not public is left out. Only addresses (type A) exist. */
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/egress/state.h"

#include "common/base/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define TTL       30
#define QUERY_BUF 1024
#define PER_TURN  32
#define PER_S     500
#define BURST     2000

struct dns_peer {
	struct source src;
	struct dns_peer *next;
	int64_t deadline;
	struct asked *asked; /* an answer is awaited */
	size_t got;
	uint8_t buf[2 + QUERY_BUF];
};
/* A question of the guest that waits for the resolver. */
struct asked {
	struct dns_peer *peer; /* NULL: UDP, or the peer has left */
	bool tcp;
	struct sockaddr_in from;
	struct in_addr to;
	struct dns_question q;
	uint8_t msg[DNS_UDP_MAX];
};
struct reply_to {
	struct dns_peer *peer;
	struct sockaddr_in from;
	struct in_addr to;
};

static void peer_close(struct egress *g, struct dns_peer *p)
{
	struct dns_peer **at = &g->dns_peers;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	g->ndns_peers--;
	if (p->asked)
		p->asked->peer = NULL;
	source_free(g, &p->src);
}

/* From the very address that was asked: every one is this server. */
static void send_udp(struct egress *g, const struct reply_to *to, uint8_t *b, size_t n)
{
	union {
		char buf[CMSG_SPACE(sizeof(struct in_pktinfo))];
		struct cmsghdr align;
	} ctl = { { 0 } };
	struct sockaddr_in from = to->from;
	struct iovec iov = { .iov_base = b, .iov_len = n };
	struct msghdr m = { .msg_name = &from,
		.msg_namelen = sizeof(from),
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = ctl.buf,
		.msg_controllen = sizeof(ctl.buf) };
	struct in_pktinfo info = { .ipi_spec_dst = to->to };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = IPPROTO_IP;
	c->cmsg_type = IP_PKTINFO;
	c->cmsg_len = CMSG_LEN(sizeof(info));
	memcpy(CMSG_DATA(c), &info, sizeof(info));
	(void)sendmsg(g->dns_udp.fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void send_answer(struct egress *g, const struct reply_to *to, const uint8_t *msg,
	const struct dns_question *q, int rcode, const uint32_t *addrs, size_t n, uint32_t ttl)
{
	uint8_t b[2 + DNS_UDP_MAX];
	size_t len = dns_answer(msg, q, rcode, addrs, n, ttl, b + 2);

	if (!to->peer) {
		send_udp(g, to, b + 2, len);
		return;
	}
	b[0] = (uint8_t)(len >> 8);
	b[1] = (uint8_t)len;
	to->peer->deadline = g->now + DNS_TCP_MS;
	/* A guest that does not read its answers loses them. */
	(void)send(to->peer->src.fd, b, len + 2, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void peer_more(struct egress *g, struct dns_peer *p);

/* --- open: with the resolver's help ---------------------------------------------------------- */

static size_t public_only(
	struct egress *g, const struct asked *a, const struct dns_addrs *in, uint32_t *out)
{
	size_t n = 0;

	for (unsigned i = 0; i < in->n; i++) {
		struct sockaddr_in sa = { .sin_family = AF_INET };
		memcpy(&sa.sin_addr, in->a[i].a, 4);
		if (in->a[i].family == AF_INET && addr_public((struct sockaddr *)&sa))
			out[n++] = ntohl(sa.sin_addr.s_addr);
	}
	if (in->n && !n)
		refused(g, WHY_INNER, a->q.name, 0, 53);
	return n;
}

static void resolved(struct egress *g, void *arg, const struct dns_addrs *in)
{
	struct asked *a = arg;
	struct reply_to to = { a->peer, a->from, a->to };
	uint32_t addrs[DNS_ADDRS_MAX];
	size_t n = public_only(g, a, in, addrs);
	int rcode = in->rcode < 0 ? DNS_SERVFAIL : in->rcode;

	g->nasked--;
	if (a->peer)
		a->peer->asked = NULL;
	if (!policy_permits(&g->policy, a->q.name)) /* it may have changed */
		n = 0, rcode = DNS_NXDOMAIN;
	if (a->peer || !a->tcp)
		send_answer(g, &to, a->msg, &a->q, rcode, addrs, n, in->ttl < TTL ? in->ttl : TTL);
	if (a->peer)
		peer_more(g, a->peer);
	free(a);
}

/* False: it cannot be asked now. */
static bool ask(struct egress *g, const struct reply_to *to, const uint8_t *msg,
	const struct dns_question *q)
{
	struct asked *a = g->nasked < QUERIES_MAX ? calloc(1, sizeof(*a)) : NULL;

	if (!a)
		return false;
	*a = (struct asked){
		.peer = to->peer, .tcp = to->peer != NULL, .from = to->from, .to = to->to, .q = *q
	};
	memcpy(a->msg, msg, q->end);
	if (!query_start(g, q->name, false, resolved, a)) {
		free(a);
		return false;
	}
	g->nasked++;
	if (to->peer)
		to->peer->asked = a;
	return true;
}

/* --- every question -------------------------------------------------------------------------- */

static void question(struct egress *g, const struct reply_to *to, const uint8_t *msg, size_t len)
{
	struct dns_question q;
	int rcode = dns_question_parse(msg, len, &q);
	uint32_t addr = 0;

	if (rcode < 0 || !token_take(&g->dns_tokens, &g->dns_tokens_ms, g->now, PER_S, BURST))
		return;
	if (rcode == DNS_NOERROR && (!q.name[0] || !policy_permits(&g->policy, q.name))) {
		rcode = DNS_NXDOMAIN;
		if (q.name[0])
			refused(g, WHY_NAME, q.name, 0, 53);
	}
	if (rcode == DNS_NOERROR && q.type == DNS_A) {
		if (g->policy.mode == EGRESS_OPEN) {
			if (ask(g, to, msg, &q))
				return;
			rcode = DNS_SERVFAIL;
		} else if (!(addr = names_give(&g->names, q.name))) {
			rcode = DNS_SERVFAIL;
		}
	}
	send_answer(g, to, msg, &q, rcode, &addr, addr ? 1 : 0, TTL);
}

static bool receive_udp(struct egress *g, int fd)
{
	union {
		char buf[CMSG_SPACE(sizeof(struct in_pktinfo))];
		struct cmsghdr align;
	} ctl;
	uint8_t b[QUERY_BUF];
	struct iovec iov = { .iov_base = b, .iov_len = sizeof(b) };
	struct reply_to to = { NULL, { 0 }, { htonl(EGRESS_DNS_ADDR) } };
	struct msghdr m = { .msg_name = &to.from,
		.msg_namelen = sizeof(to.from),
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = ctl.buf,
		.msg_controllen = sizeof(ctl.buf) };
	ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT);

	if (n < 0)
		return false;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
			struct in_pktinfo info;
			memcpy(&info, CMSG_DATA(c), sizeof(info));
			to.to = info.ipi_addr;
		}
	if (!(m.msg_flags & MSG_TRUNC) && m.msg_namelen == sizeof(to.from))
		question(g, &to, b, (size_t)n);
	return true;
}

void dns_udp_ready(struct egress *g, struct source *s, uint32_t events)
{
	(void)events;
	for (int i = 0; i < PER_TURN && receive_udp(g, s->fd); i++)
		;
}

/* --- TCP ------------------------------------------------------------------------------------- */

/* Answers what has come, one question after the other; nothing is read while an answer is awaited.
 */
static void peer_more(struct egress *g, struct dns_peer *p)
{
	while (p->got >= 2 && !p->asked) {
		size_t want = 2 + ((size_t)p->buf[0] << 8 | p->buf[1]);
		if (want > sizeof(p->buf)) {
			peer_close(g, p);
			return;
		}
		if (p->got < want)
			break;
		struct reply_to to = { p, { 0 }, { 0 } };
		question(g, &to, p->buf + 2, want - 2);
		p->got -= want;
		memmove(p->buf, p->buf + want, p->got);
	}
	source_want(g, &p->src, p->asked ? 0 : EPOLLIN);
}

static void peer_ready(struct egress *g, struct source *s, uint32_t events)
{
	struct dns_peer *p = (struct dns_peer *)s;
	ssize_t n = recv(s->fd, p->buf + p->got, sizeof(p->buf) - p->got, MSG_DONTWAIT);

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		peer_close(g, p);
		return;
	}
	p->got += (size_t)n;
	peer_more(g, p);
}

void dns_tcp_accept(struct egress *g, struct source *s, uint32_t events)
{
	int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct dns_peer *p;

	(void)events;
	if (fd < 0)
		return;
	p = g->ndns_peers < DNS_TCP_MAX ? calloc(1, sizeof(*p)) : NULL;
	if (!p) {
		close(fd);
		return;
	}
	p->src = (struct source){ .fd = fd, .ready = peer_ready };
	p->deadline = g->now + DNS_TCP_MS;
	p->next = g->dns_peers;
	g->dns_peers = p;
	g->ndns_peers++;
	(void)source_add(g, &p->src, EPOLLIN);
	deadline_at(g, p->deadline);
}

int64_t dns_scan(struct egress *g)
{
	int64_t next = 0;
	struct dns_peer *after;

	for (struct dns_peer *p = g->dns_peers; p; p = after) {
		after = p->next;
		if (g->now >= p->deadline)
			peer_close(g, p);
		else if (!next || p->deadline < next)
			next = p->deadline;
	}
	return next;
}
