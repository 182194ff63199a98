/* SPDX-License-Identifier: MIT */
/* Tunnels, node contract section 14: bytes between the client and a port of the guest's loopback.
 * The end of one direction is passed on as a half-close; the tunnel is over when both have ended,
 * or when the sandbox ends or is put to sleep. */
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/api/call.h"
#include "sandboxd/api/upgrade.h"
#include "sandboxd/core/audit.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define PROTOCOL "sbx-tunnel/1"
#define PIECE    (128 << 10)
#define TURNS    16

/* One direction: at most one piece is on its way, so a slow end slows the other. */
struct lane {
	int from, to;
	char *buf;
	size_t at, len;
	bool eof, over; /* over: its end has been passed on */
};

struct tunnel {
	struct sandbox *s; /* referenced and entered: an open tunnel is use */
	bool use;
	struct sandbox_tunnel ends;
};

static bool broken(ssize_t n)
{
	return n < 0 && errno != EAGAIN && errno != EINTR;
}

/* One turn; false when an end is gone for good. *moved: the next one may well move more. */
static bool lane_turn(struct lane *l, bool *moved)
{
	ssize_t n;

	*moved = false;
	if (!l->eof && l->at == l->len) {
		n = recv(l->from, l->buf, PIECE, MSG_DONTWAIT);
		if (broken(n))
			return false;
		l->eof = n == 0;
		l->at = 0;
		l->len = n > 0 ? (size_t)n : 0;
	}
	if (l->at < l->len) {
		n = send(l->to, l->buf + l->at, l->len - l->at, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (broken(n))
			return false;
		l->at += n > 0 ? (size_t)n : 0;
		*moved = l->at == l->len;
	}
	if (l->eof && l->at == l->len && !l->over) {
		l->over = true;
		(void)shutdown(l->to, SHUT_WR); /* the peer may have closed already */
	}
	return true;
}

/* What flows without a stop is not asked after each time; the other direction has its turn, too. */
static bool lane_step(struct lane *l, const struct pollfd *from, const struct pollfd *to)
{
	bool moved = from->revents || to->revents;

	for (int i = 0; moved && !l->over && i < TURNS; i++)
		if (!lane_turn(l, &moved))
			return false;
	return true;
}

/* A client that has gone for good, rather than only ended its sending, reads nothing any more. A
 * unix socket says so; over TCP the kernel asks now and then, and the answer is an error of the
 * socket. */
static bool left(const struct lane *up, const struct pollfd *client)
{
	return up->over && (client->revents & (POLLHUP | POLLERR));
}

static void watch_for_the_lost(int fd)
{
	static const struct {
		int level, name, value;
	} options[] = {
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, 60 },
		{ IPPROTO_TCP, TCP_KEEPINTVL, 15 },
		{ IPPROTO_TCP, TCP_KEEPCNT, 4 },
	};

	for (size_t i = 0; i < ARRAY_LEN(options); i++)
		(void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
			sizeof(options[i].value)); /* a unix socket has none of these */
}

/* A lane waits to read when it is empty, to write when it is not. */
static void lane_poll(const struct lane *l, struct pollfd *from, struct pollfd *to)
{
	if (l->over)
		return;
	if (l->at < l->len)
		to->events |= POLLOUT;
	else if (!l->eof)
		from->events |= POLLIN;
}

static void pump(int a, int b, char *buf)
{
	struct lane up = { .from = a, .to = b, .buf = buf },
		    down = { .from = b, .to = a, .buf = buf + PIECE };

	while (!up.over || !down.over) {
		struct pollfd p[2] = { { .fd = a }, { .fd = b } };
		lane_poll(&up, &p[0], &p[1]);
		lane_poll(&down, &p[1], &p[0]);
		/* An end that wants nothing is not watched: its hang-up would not let poll sleep.
		 * But for the client's, which is waited for. */
		for (int i = 0; i < 2; i++)
			if (!p[i].events && !(i == 0 && up.over))
				p[i].fd = -1;
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return;
		if (left(&up, &p[0]) || !lane_step(&up, &p[0], &p[1]) ||
			!lane_step(&down, &p[1], &p[0]))
			return;
	}
}

void upgrade_pump(int client, int other)
{
	_cleanup_free_ char *buf = malloc(2 * PIECE);

	watch_for_the_lost(client);
	if (buf)
		pump(client, other, buf);
}

static void tunnel_run(void *arg, int fd, const void *extra, size_t extra_len)
{
	struct tunnel *t = arg;

	t->ends.client_fd = fd;
	sandbox_tunnel_open(t->s, &t->ends);
	if (fd >= 0 && fd_send_full(t->ends.guest_fd, extra, extra_len, -1) == 0)
		upgrade_pump(fd, t->ends.guest_fd);
	sandbox_tunnel_close(t->s, &t->ends);
	close_p(&t->ends.guest_fd);
	sandbox_leave(t->s, t->use);
	sandbox_unref(t->s);
	free(t);
}

static int parse_port(struct call *c, uint16_t *ret, struct err *e)
{
	const char *text;
	size_t len;
	long n = 0;

	if (call_query(c, "port", &text, &len, e) < 0)
		return -1;
	for (size_t i = 0; text && i < len && n >= 0 && n <= 65535; i++)
		n = text[i] >= '0' && text[i] <= '9' ? n * 10 + (text[i] - '0') : -1;
	if (n < 1 || n > 65535)
		return err_set(e, ERR_INVALID_REQUEST, "port must be a number from 1 to 65535");
	*ret = (uint16_t)n;
	return 0;
}

int handle_tunnel_open(struct call *c, struct err *e)
{
	_cleanup_(sandbox_unref_p) struct sandbox *s = NULL;
	struct tunnel *t;
	uint16_t port = 0;
	int fd;

	if (upgrade_check(c, PROTOCOL, e) < 0 || parse_port(c, &port, e) < 0 ||
		call_sandbox(c, &s, e) < 0 || sandbox_enter(s, call_use(c), e) < 0)
		return -1;
	t = malloc(sizeof(*t));
	if (!t || guest_dial(s->guest, port, &fd, e) < 0) {
		sandbox_leave(s, call_use(c));
		if (!t)
			err_oom(e);
		free(t);
		return -1;
	}
	audit_event(
		core_audit(c->core), "tunnel.opened", s->id, json_pack("{s:i}", "port", (int)port));
	*t = (struct tunnel){ .use = call_use(c), .ends.guest_fd = fd, .s = steal(s) };
	http_upgrade(c->req, PROTOCOL, tunnel_run, t);
	return 0;
}
