/* SPDX-License-Identifier: MIT */
/* Start and loop. The process comes up without any right, in an empty root, with its descriptors in
 * place (proto/egress.h); it locks itself in before the first byte is read. Until the first policy
 * nothing gets through. */
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/egress/state.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#define TURN_EVENTS 32

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* --- sources --------------------------------------------------------------------------------- */

int source_add(struct egress *g, struct source *s, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = s };

	if (epoll_ctl(g->epoll, EPOLL_CTL_ADD, s->fd, &ev) < 0)
		return -errno;
	s->events = events;
	return 0;
}

void source_want(struct egress *g, struct source *s, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = s };

	if (s->fd < 0 || s->events == events)
		return;
	if (!events)
		(void)epoll_ctl(g->epoll, EPOLL_CTL_DEL, s->fd, NULL);
	else
		(void)epoll_ctl(g->epoll, s->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, s->fd, &ev);
	s->events = events;
}

void source_close(struct egress *g, struct source *s)
{
	if (s->fd < 0)
		return;
	source_want(g, s, 0);
	close(s->fd);
	s->fd = -1;
}

/* Freed after the turn: the batch of events may still name it. */
void source_free(struct egress *g, struct source *s)
{
	source_close(g, s);
	s->next_dead = g->dead;
	g->dead = s;
}

static void bury(struct egress *g)
{
	while (g->dead) {
		struct source *d = g->dead;
		g->dead = d->next_dead;
		free(d);
	}
}

void deadline_at(struct egress *g, int64_t when)
{
	if (!g->scan_at || when < g->scan_at)
		g->scan_at = when;
}

bool token_take(int64_t *tokens, int64_t *since, int64_t now, int per_s, int burst)
{
	int64_t more = (now - *since) * per_s / 1000;

	if (more > 0) {
		*tokens = *tokens + more > burst ? burst : *tokens + more;
		*since = now;
	}
	if (*tokens <= 0)
		return false;
	--*tokens;
	return true;
}

/* --- start ----------------------------------------------------------------------------------- */

static void shim_ended(struct egress *g, struct source *s, uint32_t events)
{
	(void)s;
	(void)events;
	g->over = true;
}

/* The claim: who we are, and where the front will find us. */
static void boot_ready(struct egress *g, struct source *s, uint32_t events)
{
	size_t n = 1;
	int fd = -1;
	ssize_t len = fd_recv_msg(s->fd, &g->id, sizeof(g->id), &fd, &n);

	(void)events;
	if (len == -EAGAIN || len == -EINTR)
		return;
	source_close(g, s);
	if (len != sizeof(g->id) || n != 1 || g->id.magic != EGRESS_BOOT_MAGIC ||
		g->id.version != PROTO_VERSION) {
		g->over = true; /* never claimed */
		return;
	}
	g->listen = (struct source){ .fd = fd, .ready = control_accept };
	if (source_add(g, &g->listen, EPOLLIN) < 0)
		g->over = true;
}

/* Two sockets and two pipes each. */
static unsigned conns_that_fit(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur < 256)
		return 16;
	return l.rlim_cur / 6 - 32 < CONNS_MAX ? (unsigned)(l.rlim_cur / 6 - 32) : CONNS_MAX;
}

static int set_up(struct egress *g)
{
	const struct {
		struct source *s;
		int fd;
		void (*ready)(struct egress *, struct source *, uint32_t);
	} all[] = {
		{ &g->boot, EGRESS_FD_BOOT, boot_ready },
		{ &g->shim, EGRESS_FD_SHIM, shim_ended },
		{ &g->tcp, EGRESS_FD_TCP, conn_accept },
		{ &g->dns_tcp, EGRESS_FD_DNS_TCP, dns_tcp_accept },
		{ &g->dns_udp, EGRESS_FD_DNS_UDP, dns_udp_ready },
	};

	g->conns_max = conns_that_fit();
	g->epoll = epoll_create1(EPOLL_CLOEXEC);
	g->netlink = route_open();
	if (g->epoll < 0 || g->netlink < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		*all[i].s = (struct source){ .fd = all[i].fd, .ready = all[i].ready };
		if (all[i].s != &g->shim && fcntl(all[i].fd, F_SETFL, O_NONBLOCK) < 0)
			return -1;
		if (source_add(g, all[i].s, EPOLLIN) < 0)
			return -1;
	}
	return 0;
}

static void scan(struct egress *g)
{
	const int64_t next[] = { conn_scan(g), query_scan(g), dns_scan(g) };

	g->scan_at = 0;
	for (size_t i = 0; i < ARRAY_LEN(next); i++)
		if (next[i])
			deadline_at(g, next[i]);
}

static void turn(struct egress *g)
{
	struct epoll_event ev[TURN_EVENTS];
	int wait = -1, n;

	if (g->scan_at)
		wait = g->scan_at <= g->now ? 0 : (int)(g->scan_at - g->now) + 1;
	n = epoll_wait(g->epoll, ev, TURN_EVENTS, wait);
	g->now = now_ms();
	for (int i = 0; i < n; i++) {
		struct source *s = ev[i].data.ptr;
		if (s->fd >= 0)
			s->ready(g, s, ev[i].events);
	}
	if (g->scan_at && g->now >= g->scan_at)
		scan(g);
	query_next(g);
	bury(g);
}

int main(void)
{
	static struct egress g = { .listen.fd = -1 };

	(void)signal(SIGPIPE, SIG_IGN);
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	g.now = now_ms();
	if (jail_limits() < 0 || set_up(&g) < 0 || jail_calls() < 0)
		return 1;
	while (!g.over)
		turn(&g);
	return 0;
}
