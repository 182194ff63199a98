/* SPDX-License-Identifier: MIT */
/* A small stub resolver over the operator's servers: one socket with a port of its own and a random
 * id for each attempt, every server in turn, TCP for what was cut off, aliases followed. Nothing is
 * kept: each connection asks again, and dials exactly what it was told. */
#include "common/sys/mem.h"
#include "sandboxd/egress/state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

#define ROUNDS 2 /* each server is asked so often */
#define HOPS   8
#define ALL_MS 12000

struct query {
	struct source src;
	struct query *next;
	char name[EGRESS_NAME_MAX + 1]; /* of the alias that is being followed */
	uint16_t type, id;
	unsigned attempt, hops;
	bool tcp, v6, asking; /* asking: it is its turn */
	int64_t deadline, end;
	query_done *done;
	void *arg;    /* done NULL: nobody waits any more */
	uint8_t *buf; /* TCP: the reply as it comes */
	size_t got;
};

static void query_ready(struct egress *g, struct source *s, uint32_t events);

static void query_free(struct egress *g, struct query *q)
{
	struct query **p = &g->queries;

	while (*p != q)
		p = &(*p)->next;
	*p = q->next;
	g->nqueries--;
	g->nasking -= q->asking;
	free(steal(q->buf));
	source_free(g, &q->src);
}

static void finish(struct egress *g, struct query *q, const struct dns_addrs *a)
{
	query_done *done = q->done;
	void *arg = q->arg;

	query_free(g, q);
	if (done)
		done(g, arg, a);
}

static void fill_addr(const struct egress_server *s, struct sockaddr_storage *ss, socklen_t *len)
{
	memset(ss, 0, sizeof(*ss));
	if (s->family == AF_INET) {
		struct sockaddr_in *a = (struct sockaddr_in *)ss;
		a->sin_family = AF_INET;
		a->sin_port = htons(s->port);
		memcpy(&a->sin_addr, s->addr, 4);
		*len = sizeof(*a);
	} else {
		struct sockaddr_in6 *a = (struct sockaddr_in6 *)ss;
		a->sin6_family = AF_INET6;
		a->sin6_port = htons(s->port);
		a->sin6_scope_id = s->scope;
		memcpy(&a->sin6_addr, s->addr, 16);
		*len = sizeof(*a);
	}
}

static int connect_server(struct egress *g, struct query *q)
{
	const struct egress_server *s = &g->servers[q->attempt % g->nservers];
	struct sockaddr_storage ss;
	socklen_t len;
	int fd = socket(
		s->family, (q->tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	fill_addr(s, &ss, &len);
	q->src.fd = fd;
	if (connect(fd, (struct sockaddr *)&ss, len) < 0 && errno != EINPROGRESS)
		return -errno;
	return source_add(g, &q->src, q->tcp ? EPOLLOUT : EPOLLIN);
}

static int send_query(struct query *q)
{
	uint8_t b[2 + DNS_QUERY_MAX];
	size_t n = dns_query(q->id, q->name, q->type, b + 2);

	b[0] = (uint8_t)(n >> 8);
	b[1] = (uint8_t)n;
	if (q->tcp)
		return send(q->src.fd, b, n + 2, MSG_NOSIGNAL) == (ssize_t)n + 2 ? 0 : -EIO;
	return send(q->src.fd, b + 2, n, MSG_NOSIGNAL) == (ssize_t)n ? 0 : -EIO;
}

/* Sends the question, going on to the next server as long as that fails at once. False: given up.
 */
static bool try(struct egress *g, struct query *q)
{
	for (;; q->attempt++, q->tcp = false) {
		source_close(g, &q->src);
		q->got = 0;
		if (g->nservers == 0 || q->attempt >= g->nservers * ROUNDS || g->now >= q->end)
			return false;
		if (getrandom(&q->id, sizeof(q->id), 0) != sizeof(q->id))
			return false;
		if (connect_server(g, q) == 0 && (q->tcp || send_query(q) == 0))
			break;
	}
	q->deadline = g->now + QUERY_MS;
	deadline_at(g, q->deadline);
	return true;
}

static void retry(struct egress *g, struct query *q)
{
	const struct dns_addrs none = { .rcode = -1 };

	if (!q->done || !try(g, q))
		finish(g, q, &none);
}

static void next_server(struct egress *g, struct query *q)
{
	q->attempt++;
	q->tcp = false;
	retry(g, q);
}

static void take_reply(struct egress *g, struct query *q, const uint8_t *b, size_t n)
{
	char alias[EGRESS_NAME_MAX + 1];
	struct dns_addrs a;

	switch (dns_reply(b, n, q->id, q->name, q->type, &a, alias)) {
	case DNS_FOREIGN:
		if (q->tcp)
			next_server(g, q);
		return;
	case DNS_DONE:
		if (a.n == 0 && a.rcode == DNS_NOERROR && q->v6) {
			q->v6 = false;
			q->type = DNS_AAAA;
			retry(g, q);
			return;
		}
		finish(g, q, &a);
		return;
	case DNS_ALIAS:
		if (++q->hops > HOPS) {
			next_server(g, q);
			return;
		}
		memcpy(q->name, alias, sizeof(alias));
		retry(g, q);
		return;
	case DNS_CUT:
		if (q->tcp) {
			next_server(g, q);
			return;
		}
		q->tcp = true;
		retry(g, q);
		return;
	case DNS_BROKEN:
		next_server(g, q);
		return;
	}
}

static void udp_ready(struct egress *g, struct query *q)
{
	uint8_t b[DNS_REPLY_MAX];
	ssize_t n = recv(q->src.fd, b, sizeof(b), MSG_DONTWAIT);

	if (n >= 0)
		take_reply(g, q, b, (size_t)n);
	else if (errno != EAGAIN && errno != EINTR)
		next_server(g, q); /* nobody listens there */
}

static void tcp_ready(struct egress *g, struct query *q, uint32_t events)
{
	ssize_t n;

	if (events & EPOLLOUT) {
		source_want(g, &q->src, EPOLLIN);
		if (send_query(q) < 0)
			next_server(g, q);
		return;
	}
	if (!q->buf && !(q->buf = malloc(2 + DNS_REPLY_MAX)))
		return next_server(g, q);
	n = recv(q->src.fd, q->buf + q->got, 2 + DNS_REPLY_MAX - q->got, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		return next_server(g, q);
	q->got += (size_t)n;
	size_t want = q->got < 2 ? 2 : 2 + ((size_t)q->buf[0] << 8 | q->buf[1]);
	if (want > 2 + DNS_REPLY_MAX)
		next_server(g, q);
	else if (q->got > 2 && q->got >= want)
		take_reply(g, q, q->buf + 2, want - 2);
}

static void query_ready(struct egress *g, struct source *s, uint32_t events)
{
	struct query *q = (struct query *)s;

	if (q->tcp)
		tcp_ready(g, q, events);
	else
		udp_ready(g, q);
}

struct query *query_start(struct egress *g, const char *name, bool v6, query_done *done, void *arg)
{
	bool room = g->nservers && g->nqueries < CONNS_MAX + QUERIES_MAX;
	struct query *q = room ? calloc(1, sizeof(*q)) : NULL;
	size_t n = strlen(name) + 1;

	if (!q || n > sizeof(q->name)) {
		free(q);
		return NULL;
	}
	memcpy(q->name, name, n);
	q->src = (struct source){ .fd = -1, .ready = query_ready };
	q->type = DNS_A;
	q->v6 = v6;
	q->done = done;
	q->arg = arg;
	q->end = g->now + ALL_MS;
	q->deadline = q->end;
	q->next = g->queries;
	g->queries = q;
	g->nqueries++;
	deadline_at(g, q->end);
	if (g->nasking >= QUERIES_MAX)
		return q;
	q->asking = true;
	g->nasking++;
	if (try(g, q))
		return q;
	query_free(g, q);
	return NULL;
}

/* The list has the newest first. */
static struct query *oldest_waiting(struct egress *g)
{
	struct query *found = NULL;

	for (struct query *q = g->queries; q; q = q->next)
		if (!q->asking)
			found = q;
	return found;
}

void query_next(struct egress *g)
{
	while (g->nqueries > g->nasking && g->nasking < QUERIES_MAX) {
		struct query *q = oldest_waiting(g);
		q->asking = true;
		g->nasking++;
		retry(g, q);
	}
}

void query_cancel(struct egress *g, struct query *q)
{
	query_free(g, q);
}

int64_t query_scan(struct egress *g)
{
	int64_t next = 0;
	struct query *after;

	for (struct query *q = g->queries; q; q = after) {
		after = q->next;
		if (g->now < q->deadline)
			continue;
		if (q->asking)
			next_server(g, q);
		else
			finish(g, q, &(struct dns_addrs){ .rcode = -1 });
	}
	for (struct query *q = g->queries; q; q = q->next)
		if (!next || q->deadline < next)
			next = q->deadline;
	return next;
}
