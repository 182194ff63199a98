/* SPDX-License-Identifier: MIT */
/* The calls of the front, one handler a row. A handler answers at once, or leaves the connection busy
 * and whatever it waits for answers later. */
#include "common/sys/mem.h"
#include "sandboxd/init/init.h"
#include "sandboxd/shim/state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

struct dial {
	struct source src;
	struct conn *conn;
};

static void on_signal(struct shim *s, struct conn *c)
{
	const struct proc *p = proc_find(s, (uint32_t)c->in.frame.value);
	int r = 0;

	if (!p)
		r = -ESRCH;
	else if (!p->exited)
		r = init_signal(s, INIT_SIGNAL, p->num, c->in.frame.flags);
	conn_answer(s, c, r, 0, -1);
}

static void on_killtree(struct shim *s, struct conn *c)
{
	const struct proc *p = proc_find(s, (uint32_t)c->in.frame.value);
	int r = 0;

	if (!p)
		r = -ESRCH;
	else if (!p->exited && !cgroup_kill(s, p))
		r = init_signal(s, INIT_KILLTREE, p->num, 0);
	conn_answer(s, c, r, 0, -1);
}

static void on_stdin(struct shim *s, struct conn *c)
{
	struct proc *p = proc_find(s, (uint32_t)c->in.frame.value);
	struct conn **last;

	if (!p)
		return conn_answer(s, c, -ESRCH, 0, -1);
	if (p->exited || p->in.fd < 0 || !p->in_open)
		return conn_answer(s, c, -EPIPE, 0, -1);
	if (c->in.frame.flags & PROTO_STDIN_CLOSE) {
		if (p->tty)
			c->body[c->body_len++] = 0x04;
		else
			p->in_open = false; /* later writers are refused from now on */
	}
	for (last = &p->writers; *last; last = &(*last)->next_writer)
		;
	*last = c;
	c->next_writer = NULL;
	c->writing = p;
	c->written = 0;
	input_pump(s, p);
}

static void on_resize(struct shim *s, struct conn *c)
{
	const struct proc *p = proc_find(s, (uint32_t)c->in.frame.value);
	struct proto_size size;
	int r = 0;

	if (c->body_len != sizeof(size))
		return conn_answer(s, c, -EPROTO, 0, -1);
	memcpy(&size, c->body, sizeof(size));
	if (p && p->tty && p->out[0]) {
		struct winsize w = { .ws_row = size.rows, .ws_col = size.cols };
		r = ioctl(p->out[0]->src.fd, TIOCSWINSZ, &w) < 0 ? -errno : 0;
	}
	conn_answer(s, c, p ? r : -ESRCH, 0, -1);
}

static void on_forget(struct shim *s, struct conn *c)
{
	struct proc *p = proc_find(s, (uint32_t)c->in.frame.value);

	if (p && !p->exited)
		return conn_answer(s, c, -EBUSY, 0, -1);
	if (p)
		proc_free(s, p);
	conn_answer(s, c, 0, 0, -1);
}

static void dial_ready(struct shim *s, struct source *src)
{
	struct dial *d = (struct dial *)src;
	struct conn *c = d->conn;
	int error = EIO;
	socklen_t len = sizeof(error);

	(void)getsockopt(src->fd, SOL_SOCKET, SO_ERROR, &error, &len);
	source_unwatch(s, src);
	c->dial = NULL;
	conn_answer(s, c, -error, 0, error ? -1 : src->fd);
	source_free(s, src);
}

static void on_dial(struct shim *s, struct conn *c)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons((uint16_t)c->in.frame.value) };
	struct dial *d = calloc(1, sizeof(*d));

	if (!d)
		return conn_answer(s, c, -ENOMEM, 0, -1);
	d->src = (struct source){ .ready = dial_ready,
		.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) };
	d->conn = c;
	c->dial = d;
	if (d->src.fd >= 0 && connect(d->src.fd, (struct sockaddr *)&to, sizeof(to)) < 0 &&
	    errno == EINPROGRESS && source_watch(s, &d->src, EPOLLOUT) == 0)
		return;
	c->dial = NULL;
	int r = d->src.fd < 0 ? -errno : 0;
	if (r == 0) {
		/* Done or refused at once, as it is on a loopback. */
		struct sockaddr_in peer;
		socklen_t len = sizeof(peer);
		if (getpeername(d->src.fd, (struct sockaddr *)&peer, &len) < 0)
			r = -ECONNREFUSED;
	}
	conn_answer(s, c, r, 0, r ? -1 : d->src.fd);
	source_free(s, &d->src);
}

static void on_ping(struct shim *s, struct conn *c)
{
	conn_answer(s, c, 0, 0, -1);
}

static void (*const handlers[])(struct shim *, struct conn *) = {
	[PROTO_START] = start_call,
	[PROTO_SIGNAL] = on_signal,
	[PROTO_KILLTREE] = on_killtree,
	[PROTO_STDIN] = on_stdin,
	[PROTO_RESIZE] = on_resize,
	[PROTO_FORGET] = on_forget,
	[PROTO_DIAL] = on_dial,
	[PROTO_PING] = on_ping,
};

void call_dispatch(struct shim *s, struct conn *c)
{
	uint16_t op = c->in.frame.op;

	c->busy = true;
	if (op < ARRAY_LEN(handlers) && handlers[op])
		handlers[op](s, c);
	else
		conn_answer(s, c, -ENOSYS, 0, -1);
}

void call_drop(struct shim *s, struct conn *c)
{
	if (c->start) {
		c->start->starter = NULL;
		c->start->orphan = true; /* nobody will ever know of it: killed when it starts */
		c->start = NULL;
	}
	if (c->writing) {
		struct proc *p = c->writing;
		input_unqueue(c);
		if (c->in.frame.flags & PROTO_STDIN_CLOSE && !p->tty)
			p->in_open = true; /* its close did not happen */
		input_pump(s, p);
	}
	if (c->dial) {
		source_free(s, &c->dial->src);
		c->dial = NULL;
	}
}
