/* SPDX-License-Identifier: MIT */
/* Two stream sockets, joined. One thread serves both directions: each holds at most one piece, so
 * that a slow end slows the other down and nothing grows. */
#include "client/lib/internal.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#define PIECE (128 * 1024)

struct lane {
	int from, to;
	char *buf;
	size_t at, len;
	bool ended, over; /* over: the end has been passed on */
};

static bool is_broken(ssize_t n)
{
	return n < 0 && errno != EAGAIN && errno != EINTR;
}

/* False when one of the ends is gone. */
static bool move(struct lane *l)
{
	ssize_t n;

	if (!l->ended && l->at == l->len) {
		n = recv(l->from, l->buf, PIECE, MSG_DONTWAIT);
		if (is_broken(n))
			return false;
		l->ended = n == 0;
		l->at = 0;
		l->len = n > 0 ? (size_t)n : 0;
	}
	if (l->at < l->len) {
		n = send(l->to, l->buf + l->at, l->len - l->at, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (is_broken(n))
			return false;
		l->at += n > 0 ? (size_t)n : 0;
	}
	if (l->ended && l->at == l->len && !l->over) {
		l->over = true;
		shutdown(l->to, SHUT_WR);
	}
	return true;
}

/* An empty lane waits to read, one that holds something to write. */
static void want(const struct lane *l, struct pollfd *from, struct pollfd *to)
{
	if (l->at < l->len)
		to->events |= POLLOUT;
	else if (!l->ended)
		from->events |= POLLIN;
}

void sbx_join(int a, int b)
{
	_cleanup_free_ char *buf = malloc((size_t)2 * PIECE);
	struct lane there = { .from = a, .to = b, .buf = buf };
	struct lane back = { .from = b, .to = a, .buf = buf ? buf + PIECE : NULL };

	while (buf && !(there.over && back.over)) {
		struct pollfd f[2] = { { .fd = a }, { .fd = b } };
		if (!move(&there) || !move(&back))
			break;
		want(&there, &f[0], &f[1]);
		want(&back, &f[1], &f[0]);
		if (!f[0].events && !f[1].events)
			continue;
		/* An end that is waited for in no way may have hung up, which would not let poll
		 * sleep. */
		for (int i = 0; i < 2; i++)
			if (!f[i].events)
				f[i].fd = -1;
		if (poll(f, 2, -1) < 0 && errno != EINTR)
			break;
	}
	/* Whoever still holds the other side of a broken one learns of it. */
	shutdown(a, SHUT_RDWR);
	shutdown(b, SHUT_RDWR);
}
