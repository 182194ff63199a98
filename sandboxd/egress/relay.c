/* SPDX-License-Identifier: MIT */
/* Moves bytes. What has been looked at goes from pipe to pipe inside the kernel; a direction
 * borrows a pipe only while it has something in it. A side that does not take its bytes stops the
 * other from being read: nothing is kept here beyond one pipe and one head. */
#include "common/sys/mem.h"
#include "sandboxd/egress/state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define PIECE      65536
#define PER_TURN   8
#define FIRST_ROOM 2048

/* --- pipes ----------------------------------------------------------------------------------- */

static int borrow_pipe(struct egress *g, struct dir *d)
{
	if (d->pipe[0] >= 0)
		return 0;
	if (g->npipes) {
		g->npipes--;
		memcpy(d->pipe, g->pipes[g->npipes], sizeof(d->pipe));
		return 0;
	}
	if (pipe2(d->pipe, O_CLOEXEC | O_NONBLOCK) == 0)
		return 0;
	d->pipe[0] = d->pipe[1] = -1;
	return -errno;
}

static void return_pipe(struct egress *g, struct dir *d)
{
	if (d->pipe[0] < 0)
		return;
	if (d->piped == 0 && g->npipes < ARRAY_LEN(g->pipes)) {
		memcpy(g->pipes[g->npipes++], d->pipe, sizeof(d->pipe));
	} else {
		close(d->pipe[0]);
		close(d->pipe[1]);
	}
	d->pipe[0] = d->pipe[1] = -1;
}

void relay_free(struct egress *g, struct conn *c)
{
	return_pipe(g, &c->up);
	return_pipe(g, &c->down);
	free(steal(c->buf));
	c->len = c->cleared = c->room = 0;
}

/* --- one direction --------------------------------------------------------------------------- */

/* Into the pipe: > 0, 0 at the end, -EAGAIN, or what broke. */
static ssize_t draw(struct egress *g, struct dir *d, int from, size_t most)
{
	ssize_t n;
	int r = borrow_pipe(g, d);

	if (r < 0)
		return r;
	n = splice(from, NULL, d->pipe[1], NULL, most, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	if (n < 0)
		return errno == EINTR ? -EAGAIN : -errno;
	d->piped += (size_t)n;
	return n;
}

/* 1: empty; 0: the other side is full; -errno. */
static int pour(struct dir *d, int to)
{
	while (d->piped) {
		ssize_t n = splice(
			d->pipe[0], NULL, to, NULL, d->piped, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		if (n == 0)
			return -EPIPE;
		d->piped -= (size_t)n;
	}
	return 1;
}

static int pass_end(struct dir *d, int to)
{
	if (!d->eof || d->done || d->piped)
		return 0;
	d->done = true;
	return shutdown(to, SHUT_WR) < 0 ? -errno : 0;
}

/* --- from the server ------------------------------------------------------------------------- */

/* 1: go on; 0: wait; -1: refused */
static int await_upgrade(struct egress *g, struct conn *c)
{
	const int want = 12, any = 1;
	uint8_t b[12];
	ssize_t n = recv(c->far.fd, b, sizeof(b), MSG_PEEK | MSG_DONTWAIT);
	int r;

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : 1;
	r = look_at_answer(g, c, b, (size_t)n);
	if (r == 0 && (n == 0 || c->far_end)) {
		c->upgrade = UPGRADE_NONE; /* it ends before it has answered */
		r = look(g, c) ? 1 : -1;
	}
	if (r >= 0)
		(void)setsockopt(c->far.fd, SOL_SOCKET, SO_RCVLOWAT, r ? &any : &want, sizeof(any));
	return r;
}

static int down(struct egress *g, struct conn *c)
{
	struct dir *d = &c->down;
	int r = pour(d, c->guest.fd); /* what was said before an answer is awaited, too */

	if (r <= 0)
		return r;
	if (c->upgrade && (r = await_upgrade(g, c)) <= 0)
		return r < 0 ? 1 : 0;
	for (int i = 0; i < PER_TURN; i++) {
		r = pour(d, c->guest.fd);
		if (r <= 0)
			return r;
		if (d->eof)
			break;
		ssize_t n = draw(g, d, c->far.fd, PIECE);
		if (n == -EAGAIN)
			break;
		if (n < 0)
			return (int)n;
		d->eof = n == 0;
		g->counts.rx_bytes += n;
		c->active_ms = g->now;
	}
	r = pour(d, c->guest.fd);
	return r < 0 ? r : pass_end(d, c->guest.fd);
}

/* --- from the guest -------------------------------------------------------------------------- */

static int make_room(struct conn *c)
{
	size_t room = c->room ? c->room * 2 : FIRST_ROOM;
	uint8_t *b;

	if (c->len < c->room)
		return 0;
	if (room > HEAD_MAX)
		return -EMSGSIZE;
	b = realloc(c->buf, room);
	if (!b)
		return -ENOMEM;
	c->buf = b;
	c->room = room;
	return 0;
}

/* Bytes to be looked at. 1: some came; 0: none now, or the end; -errno. */
static int take_in(struct egress *g, struct conn *c)
{
	ssize_t n;
	int r = make_room(c);

	if (r < 0)
		return r;
	n = recv(c->guest.fd, c->buf + c->len, c->room - c->len, MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0) {
		c->up.eof = true;
		return 0;
	}
	c->len += (size_t)n;
	c->active_ms = g->now;
	return 1;
}

/* 1: nothing cleared is left; 0: the server is full or not there yet; -errno. */
static int send_cleared(struct egress *g, struct conn *c)
{
	ssize_t n;

	if (!c->cleared)
		return 1;
	if (c->far_state != FAR_UP)
		return 0;
	n = send(c->far.fd, c->buf, c->cleared, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	g->counts.tx_bytes += n;
	c->cleared -= (size_t)n;
	c->len -= (size_t)n;
	memmove(c->buf, c->buf + n, c->len);
	if (c->len == 0) {
		free(steal(c->buf));
		c->room = 0;
	}
	return c->cleared ? 0 : 1;
}

/* How many bytes may now pass unseen. */
static size_t unseen(const struct conn *c)
{
	uint64_t left;

	if (c->far_state != FAR_UP || c->len)
		return 0;
	if (c->way == WAY_RAW)
		return PIECE;
	left = c->way == WAY_HTTP ? http_body_left(&c->http) : 0;
	return left < PIECE ? (size_t)left : PIECE;
}

/* 1: moved some; 0: stop here; -errno. */
static int up_unseen(struct egress *g, struct conn *c, size_t most)
{
	ssize_t n = draw(g, &c->up, c->guest.fd, most);

	if (n == -EAGAIN)
		return 0;
	if (n < 0)
		return (int)n;
	if (n == 0) {
		c->up.eof = true;
		return 0;
	}
	if (c->way == WAY_HTTP)
		http_skip(&c->http, (uint64_t)n);
	g->counts.tx_bytes += n;
	c->active_ms = g->now;
	return pour(&c->up, c->far.fd);
}

static bool waits(const struct conn *c)
{
	return c->upgrade && c->http.phase == HTTP_HEAD;
}

/* 1: there may be more; 0: stop here; -errno; *gone: c has been refused. */
static int up_once(struct egress *g, struct conn *c, bool *gone)
{
	size_t most;
	int r = pour(&c->up, c->far.fd);

	if (r <= 0)
		return r;
	r = send_cleared(g, c);
	if (r <= 0 || c->up.eof || waits(c))
		return r < 0 ? r : 0;
	most = unseen(c);
	if (most)
		return up_unseen(g, c, most);
	if (c->way == WAY_RAW)
		return 0;
	r = take_in(g, c);
	if (r == -EMSGSIZE) {
		conn_refuse(g, c, WHY_UNCLEAR, NULL);
		*gone = true;
		return 0;
	}
	if (r <= 0)
		return r;
	*gone = !look(g, c);
	return !*gone;
}

/* The guest has ended its side: what it said before a name could be told is worth nothing on the
 * web's ports, and goes through elsewhere. */
static int up_end(struct egress *g, struct conn *c, bool *gone)
{
	int r;

	if (!c->up.eof || c->up.done)
		return 0;
	if (c->far_state == FAR_NONE) {
		*gone = true;
		conn_close(g, c);
		return 0;
	}
	if (c->half) {
		conn_half(g, c, false);
		if (!c->web && c->way == WAY_SNIFF && sniff(c->buf, c->len) == SNIFF_MORE)
			c->cleared = c->len;
	}
	r = send_cleared(g, c);
	if (r <= 0 || c->far_state != FAR_UP)
		return r < 0 ? r : 0;
	return pass_end(&c->up, c->far.fd);
}

/* The guest is not read while an answer is awaited, but an end with nothing before it is passed on. */
static void see_end(struct conn *c)
{
	char b;

	if (c->guest_end && waits(c) && c->cleared == c->len &&
		recv(c->guest.fd, &b, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
		c->up.eof = true;
}

static int up(struct egress *g, struct conn *c, bool *gone)
{
	int r = 1;

	see_end(c);
	for (int i = 0; i < PER_TURN && r > 0; i++)
		r = up_once(g, c, gone);
	if (r < 0 || *gone)
		return r;
	return up_end(g, c, gone);
}

/* --- both ------------------------------------------------------------------------------------ */

static bool reads_guest(const struct conn *c)
{
	if (c->up.eof || c->up.piped || c->cleared || waits(c))
		return false;
	return c->way != WAY_RAW || c->far_state == FAR_UP;
}

static uint32_t quiet(bool hup)
{
	return hup ? 0 : EPOLLHUP; /* which always comes, again and again */
}

/* An end is asked for once: it, too, comes again and again, and so does EPOLLIN with it, however little is there. */
static void set_interest(struct egress *g, struct conn *c)
{
	uint32_t guest = (reads_guest(c) ? EPOLLIN : 0u) | (c->down.piped ? EPOLLOUT : 0u) |
			 (waits(c) && !c->guest_end ? EPOLLRDHUP : 0u);
	uint32_t far = (c->down.eof || c->down.piped ? 0u : EPOLLIN) |
		       (c->up.piped || c->cleared ? EPOLLOUT : 0u) |
		       (c->upgrade && !c->far_end ? EPOLLRDHUP : 0u);

	source_want(g, &c->guest, guest ? guest : quiet(c->guest_hup));
	if (c->far_state == FAR_UP)
		source_want(g, &c->far, far ? far : quiet(c->far_hup));
}

void relay_run(struct egress *g, struct conn *c)
{
	bool gone = false;
	int r = up(g, c, &gone);

	if (gone)
		return;
	if (r >= 0 && c->far_state == FAR_UP)
		r = down(g, c);
	if (c->guest.fd < 0)
		return; /* refused on the way */
	if (r < 0 || (c->up.done && c->down.done)) {
		conn_close(g, c);
		return;
	}
	if (!c->up.piped)
		return_pipe(g, &c->up);
	if (!c->down.piped)
		return_pipe(g, &c->down);
	set_interest(g, c);
}

void relay_guest(struct egress *g, struct source *s, uint32_t events)
{
	struct conn *c = (struct conn *)s;

	if (events & EPOLLERR) {
		conn_close(g, c);
		return;
	}
	c->guest_hup |= (events & EPOLLHUP) != 0;
	c->guest_end |= (events & (EPOLLHUP | EPOLLRDHUP)) != 0;
	relay_run(g, c);
}

void relay_far(struct egress *g, struct source *s, uint32_t events)
{
	struct conn *c = (struct conn *)(void *)((char *)s - offsetof(struct conn, far));

	if (events & EPOLLERR) {
		conn_close(g, c);
		return;
	}
	c->far_hup |= (events & EPOLLHUP) != 0;
	c->far_end |= (events & (EPOLLHUP | EPOLLRDHUP)) != 0;
	relay_run(g, c);
}
