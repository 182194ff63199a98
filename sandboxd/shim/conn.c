/* SPDX-License-Identifier: MIT */
/* Connections of the front: hello, frames in and out, events. The newest events connection makes its
 * front the only one: whatever an older front had open is closed. */
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/shim/state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

static void conn_ready(struct shim *s, struct source *src);

void conn_accept(struct shim *s, struct source *src)
{
	int fd = accept4(src->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0) {
		/* Out of descriptors: give up a pipe that only a background child still writes to. */
		if (errno == EMFILE || errno == ENFILE)
			drain_evict(s);
		return;
	}
	struct conn *c = s->nconns < CONNS_MAX ? calloc(1, sizeof(*c)) : NULL;
	if (!c) {
		close(fd);
		return;
	}
	c->src = (struct source){ .fd = fd, .ready = conn_ready };
	c->fds[0] = c->fds[1] = -1;
	c->next = s->conns;
	if (c->next)
		c->next->prev = c;
	s->conns = c;
	s->nconns++;
	if (source_watch(s, &c->src, EPOLLIN) < 0)
		conn_close(s, c);
}

static void reset(struct conn *c)
{
	c->got = c->body_len = c->nfds = 0;
	c->in_body = c->busy = false;
	free(steal(c->body));
	for (int i = 0; i < 2; i++) {
		close_p(&c->fds[i]);
		c->fds[i] = -1;
	}
}

void conn_close(struct shim *s, struct conn *c)
{
	call_drop(s, c);
	reset(c);
	if (c->next)
		c->next->prev = c->prev;
	if (c->prev)
		c->prev->next = c->next;
	else
		s->conns = c->next;
	s->nconns--;
	if (s->events == c) {
		s->events = NULL;
		s->events_full = false;
	}
	source_free(s, &c->src);
}

void conn_answer(struct shim *s, struct conn *c, int64_t value, uint16_t flags, int fd)
{
	struct proto_frame f = { .op = c->in.frame.op, .flags = flags, .tag = c->in.frame.tag,
		.value = value };

	reset(c);
	/* The front reads its answers; one whose socket is full of unread ones is broken. */
	if (fd_send_msg(c->src.fd, &f, sizeof(f), &fd, fd >= 0 ? 1 : 0) < 0)
		conn_close(s, c);
}

static bool same_secret(const uint8_t *a, const uint8_t *b)
{
	volatile uint8_t diff = 0;

	for (size_t i = 0; i < PROTO_SECRET_LEN; i++)
		diff = diff | (a[i] ^ b[i]);
	return diff == 0;
}

static int check_hello(const struct shim *s, const struct proto_hello *h)
{
	if (h->magic != PROTO_MAGIC || h->version != PROTO_VERSION)
		return -EPROTO;
	if (!same_secret(h->secret, s->boot.secret))
		return -EACCES;
	if (h->generation != s->boot.generation)
		return -ESTALE;
	return h->kind >= PROTO_CALLS && h->kind <= PROTO_FILES ? 0 : -EPROTO;
}

static void take_over(struct shim *s, struct conn *events)
{
	struct conn *next;

	for (struct conn *c = s->conns; c; c = next) {
		next = c->next;
		if (c != events && c->kind)
			conn_close(s, c);
	}
	s->events = events;
	for (int i = 0; i < PROC_BUCKETS; i++)
		for (struct proc *p = s->procs[i]; p; p = p->next)
			if (p->started)
				proc_news(s, p, p->exited);
}

static void greet(struct shim *s, struct conn *c)
{
	struct proto_hello_ok ok = { .magic = PROTO_MAGIC, .version = PROTO_VERSION,
		.error = check_hello(s, &c->in.hello), .generation = s->boot.generation };
	const char go = 1;

	if (fd_send_msg(c->src.fd, &ok, sizeof(ok), NULL, 0) < 0 || ok.error)
		return conn_close(s, c);
	c->kind = c->in.hello.kind;
	c->got = 0;
	if (c->kind == PROTO_EVENTS)
		take_over(s, c);
	if (c->kind != PROTO_FILES)
		return;
	source_unwatch(s, &c->src);
	/* The worker takes a blocking descriptor; the flag is shared with our copy, which goes. */
	(void)fcntl(c->src.fd, F_SETFL, 0);
	(void)fd_send_msg(s->boot.worker_fd, &go, 1, &c->src.fd, 1);
	conn_close(s, c);
}

/* 1: `want` bytes are there, 0: not yet, -1: closed or broken. */
static int fill(struct conn *c, void *buf, size_t want)
{
	size_t room = 2 - c->nfds;
	ssize_t n = fd_recv_msg(c->src.fd, (char *)buf + c->got, want - c->got, c->fds + c->nfds, &room);

	c->nfds += room;
	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		return -1;
	c->got += (size_t)n;
	return c->got == want;
}

static int fill_body(struct conn *c)
{
	if (!c->in_body) {
		c->body_len = c->in.frame.len;
		c->body = malloc(c->body_len + 1); /* room for the ^D of a terminal */
		c->in_body = true;
		c->got = 0;
	}
	if (!c->body)
		return -1;
	return c->body_len ? fill(c, c->body, c->body_len) : 1;
}

/* Nothing may come while a request is under way, so readiness means that the front has left. */
static void check_left(struct shim *s, struct conn *c)
{
	char byte;

	if (recv(c->src.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN) {
		if (c == s->events && s->events_full) {
			s->events_full = false;
			(void)source_watch(s, &c->src, EPOLLIN);
		}
		return;
	}
	conn_close(s, c);
}

static void conn_ready(struct shim *s, struct source *src)
{
	struct conn *c = (struct conn *)src;
	int r;

	if (c->busy || c->kind == PROTO_EVENTS)
		return check_left(s, c);
	if (c->kind == 0) {
		r = fill(c, &c->in.hello, sizeof(c->in.hello));
		if (r < 0)
			conn_close(s, c);
		else if (r > 0)
			greet(s, c);
		return;
	}
	r = c->in_body ? 1 : fill(c, &c->in.frame, sizeof(c->in.frame));
	if (r > 0 && c->in.frame.len > PROTO_FRAME_MAX)
		r = -1;
	if (r > 0)
		r = fill_body(c);
	if (r < 0)
		conn_close(s, c);
	else if (r > 0)
		call_dispatch(s, c);
}

static bool send_event(struct shim *s, const struct proc *p, uint16_t op)
{
	struct proto_frame f = { .op = op, .value = p->num };
	ssize_t n = send(s->events->src.fd, &f, sizeof(f), MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n == (ssize_t)sizeof(f))
		return true;
	if (n < 0 && errno == EAGAIN) {
		s->events_full = true;
		(void)source_watch(s, &s->events->src, EPOLLIN | EPOLLOUT);
	} else {
		conn_close(s, s->events);
	}
	return false;
}

/* At most one OUTPUT a process and turn; a front that is slow gets the newest state only. */
void events_flush(struct shim *s)
{
	if (s->events_full)
		return;
	while (s->news) {
		struct proc *p = s->news;
		if (s->events && p->output_news && !send_event(s, p, PROTO_OUTPUT))
			return;
		p->output_news = false;
		if (s->events && p->exit_news && !send_event(s, p, PROTO_EXITED))
			return;
		p->exit_news = p->news = false;
		s->news = p->next_news;
	}
}
