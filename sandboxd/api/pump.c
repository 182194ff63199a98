/* SPDX-License-Identifier: MIT */
/* Bytes between two sockets, both ways. The end of one direction is passed on as a half-close. Few
 * bytes are copied; of many the pages are moved through a pipe, so that a byte is copied by its
 * sender and its receiver only, as over plain loopback. A client that has gone leaves what it sent
 * to the guest, which has to take it. */
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/api/upgrade.h"
#include "sandboxd/core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE (64 << 10)  /* when so many bytes came at once, the next are moved */
#define ROOM  (256 << 10) /* of a pipe, and so of a piece that is moved */
#define SEND_ROOM                                                                                  \
	(512 << 10) /* to the client: while it is away for a moment, the guest goes on             \
		     */
#define TURNS   16
#define TICK_MS 200

_Atomic int upgrade_patience_ms = 10 * 60 * 1000;

/* One direction: at most one piece is on its way, so a slow end slows the other. */
struct lane {
	int from, to; /* to -1: what comes is thrown away */
	char *buf;
	size_t at, len; /* of the piece: how much has gone on, how much there is, in buf or in the
			   pipe */
	int pipe[2];    /* -1: none yet */
	bool many;      /* the next piece is moved */
	bool moved;     /* this one is in the pipe */
	bool copies; /* never moves: no pipe is to be had, or the kernel cannot with these sockets
		      */
	bool eof, over; /* over: its end has been passed on */
	bool of_client;
	bool refused;   /* who takes has gone */
	uint64_t given; /* in all */
};

bool upgrade_is_unix(int fd)
{
	int domain = 0;
	socklen_t len = sizeof(domain);

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX;
}

static bool broken(ssize_t n)
{
	return n < 0 && errno != EAGAIN && errno != EINTR;
}

/* A pipe that is had keeps its place until the end. */
static bool can_move(struct lane *l)
{
	if (!l->many || l->copies || l->pipe[0] >= 0)
		return l->many && !l->copies;
	if (pipe2(l->pipe, O_CLOEXEC | O_NONBLOCK) < 0) {
		l->pipe[0] = l->pipe[1] = -1;
		l->copies = true;
	} else {
		(void)fcntl(l->pipe[1], F_SETPIPE_SZ, ROOM); /* who has many gets no larger ones */
	}
	return !l->copies;
}

static ssize_t lane_take(struct lane *l)
{
	ssize_t n;

	l->moved = can_move(l);
	if (l->moved) {
		n = splice(
			l->from, NULL, l->pipe[1], NULL, ROOM, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
		if (n >= 0 || errno != EINVAL)
			return n;
		l->copies = true;
		l->moved = false;
	}
	return recv(l->from, l->buf, PIECE, MSG_DONTWAIT);
}

static ssize_t lane_give(const struct lane *l)
{
	if (l->to < 0)
		return (ssize_t)(l->len - l->at);
	if (l->moved)
		return splice(l->pipe[0], NULL, l->to, NULL, l->len - l->at,
			SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	return send(l->to, l->buf + l->at, l->len - l->at, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* One turn; false when an end is gone for good. *again: the next one may well move more. */
static bool lane_turn(struct lane *l, bool *again)
{
	ssize_t n;

	*again = false;
	if (!l->eof && l->at == l->len) {
		n = lane_take(l);
		if (broken(n)) {
			if (!l->of_client)
				return false;
			n = 0; /* a reset ends it, and what came before is on its way */
		}
		l->eof = n == 0;
		l->at = 0;
		l->len = n > 0 ? (size_t)n : 0;
		if (n > 0)
			l->many = n >= PIECE;
	}
	if (l->at < l->len) {
		n = lane_give(l);
		l->refused = broken(n);
		if (l->refused)
			return false;
		l->at += n > 0 ? (size_t)n : 0;
		l->given += n > 0 ? (size_t)n : 0;
		*again = l->at == l->len;
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
	bool again = from->revents || to->revents;

	for (int i = 0; again && !l->over && i < TURNS; i++)
		if (!lane_turn(l, &again))
			return false;
	return true;
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

static void lane_end(struct lane *l)
{
	close_p(&l->pipe[0]);
	close_p(&l->pipe[1]);
}

/* So that a guest which says much before it goes on reading does go on. */
static void lane_to_nowhere(struct lane *l)
{
	lane_end(l);
	l->copies = true;
	l->at = l->len;
	l->to = -1;
}

/* What a client that has gone had sent is on its way. */
struct rest {
	bool is;
	uint64_t moved;
	int64_t until_ms;
};

/* Bytes that the guest's kernel has not taken yet. They would be lost with a socket that is closed
 * while it has unread bytes, or gets some after. What is in a unix socket has arrived. */
static uint64_t unsent(const struct lane *l)
{
	int n = 0;

	return !upgrade_is_unix(l->to) && ioctl(l->to, SIOCOUTQ, &n) == 0 && n > 0 ? (uint64_t)n
										   : 0;
}

static bool rest_moves(struct rest *r, struct core *core, const struct lane *up)
{
	uint64_t moved = up->given - unsent(up);
	int64_t now = clock_mono_ms();

	if (!r->is || r->moved != moved)
		r->until_ms = now + upgrade_patience_ms;
	r->is = true;
	r->moved = moved;
	return now < r->until_ms && !(core && core_stopping(core));
}

/* One that has gone for good, rather than only ended its sending, reads nothing any more. A unix
 * socket says so; over TCP the kernel asks now and then, and the answer is an error of the socket.
 */
static bool hung_up(const struct pollfd *p)
{
	return p->revents & (POLLHUP | POLLERR);
}

static void pump(struct core *core, struct lane *up, struct lane *down)
{
	struct rest rest = { .is = false };

	while (!up->over || (rest.is ? unsent(up) > 0 : !down->over)) {
		struct pollfd p[2] = { { .fd = up->from }, { .fd = down->from } };
		lane_poll(up, &p[0], &p[1]);
		lane_poll(down, &p[1], &p[0]);
		/* An end that wants nothing is not watched: its hang-up would not let poll sleep.
		 * But for the client's, which is waited for, and then the guest's. */
		for (int i = 0; i < 2; i++)
			if (!p[i].events && (i == 0) == rest.is)
				p[i].fd = -1;
		if (poll(p, 2, rest.is ? TICK_MS : -1) < 0 && errno != EINTR)
			return;
		if (rest.is && up->over && hung_up(&p[1]))
			return;
		if (!lane_step(up, &p[0], &p[1]) ||
			(!lane_step(down, &p[1], &p[0]) && !down->refused))
			return;
		if (hung_up(&p[0]) || down->refused)
			lane_to_nowhere(down);
		if (down->to < 0 && !rest_moves(&rest, core, up))
			return;
	}
}

/* Moving pages waits for a socket that is not told otherwise, whatever it is asked in the call. */
static bool never_waits(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

void upgrade_pump(struct core *core, int client, int other, const void *first, size_t first_len)
{
	size_t room = first_len > PIECE ? first_len : PIECE;
	_cleanup_free_ char *buf = malloc(PIECE + room);
	bool copies = !never_waits(client) || !never_waits(other);
	struct lane up = { .of_client = true,
		.from = client,
		.to = other,
		.pipe = { -1, -1 },
		.copies = copies },
		    down = { .from = other, .to = client, .pipe = { -1, -1 }, .copies = copies };
	static const int send_room = SEND_ROOM;

	if (upgrade_is_unix(client)) /* over TCP the kernel finds the size by itself */
		(void)setsockopt(client, SOL_SOCKET, SO_SNDBUF, &send_room, sizeof(send_room));
	if (buf) {
		down.buf = buf;
		up.buf = buf + PIECE;
		if (first_len)
			memcpy(up.buf, first, first_len);
		up.len = first_len;
		pump(core, &up, &down);
	}
	lane_end(&up);
	lane_end(&down);
}
