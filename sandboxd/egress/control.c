/* SPDX-License-Identifier: MIT */
/* The front's side: hello with the sandbox's secret, then requests, each answered when it is in
 * force. Refusals go out as events, a few a second; who does not read them loses them. */
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/egress/state.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define REFUSED_PER_S 5
#define REFUSED_BURST 20

static void control_ready(struct egress *g, struct source *s, uint32_t events);

void control_accept(struct egress *g, struct source *s, uint32_t events)
{
	int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct control *c;

	(void)events;
	if (fd < 0)
		return;
	c = g->ncontrols < CONTROLS_MAX ? calloc(1, sizeof(*c)) : NULL;
	if (!c) {
		close(fd);
		return;
	}
	c->src = (struct source){ .fd = fd, .ready = control_ready };
	c->next = g->controls;
	g->controls = c;
	g->ncontrols++;
	(void)source_add(g, &c->src, EPOLLIN);
}

static void control_close(struct egress *g, struct control *c)
{
	struct control **p = &g->controls;

	while (*p != c)
		p = &(*p)->next;
	*p = c->next;
	g->ncontrols--;
	free(steal(c->body));
	source_free(g, &c->src);
}

static bool same_secret(const uint8_t *a, const uint8_t *b)
{
	volatile uint8_t diff = 0;

	for (size_t i = 0; i < PROTO_SECRET_LEN; i++)
		diff = diff | (a[i] ^ b[i]);
	return diff == 0;
}

static int check_hello(const struct egress *g, const struct proto_hello *h)
{
	if (h->magic != PROTO_MAGIC || h->version != PROTO_VERSION)
		return -EPROTO;
	if (!same_secret(h->secret, g->id.secret))
		return -EACCES;
	if (h->generation != g->id.generation)
		return -ESTALE;
	return h->kind == PROTO_CALLS || h->kind == PROTO_EVENTS ? 0 : -EPROTO;
}

static int greet(struct egress *g, struct control *c)
{
	struct proto_hello_ok ok = { .magic = PROTO_MAGIC,
		.version = PROTO_VERSION,
		.error = check_hello(g, &c->in.hello),
		.generation = g->id.generation };

	c->greeted = true;
	c->events = c->in.hello.kind == PROTO_EVENTS;
	c->got = 0;
	return fd_send_msg(c->src.fd, &ok, sizeof(ok), NULL, 0) < 0 || ok.error ? -1 : 0;
}

/* --- requests -------------------------------------------------------------------------------- */

static bool still_named(const void *arg, const char *name)
{
	const struct policy *p = arg;

	return policy_permits(p, name);
}

/* One assignment; from here on nothing is decided by the old one. */
static int64_t set_policy(struct egress *g, const uint8_t *body, size_t len)
{
	struct egress_policy head;
	struct policy p;
	int r;

	if (len < sizeof(head))
		return -EINVAL;
	memcpy(&head, body, sizeof(head));
	if (head.len != len - sizeof(head))
		return -EINVAL;
	r = policy_parse(&head, (const char *)body + sizeof(head), &p);
	if (r < 0)
		return r;
	policy_free(&g->policy);
	g->policy = p;
	names_filter(&g->names, still_named, &g->policy);
	return conn_cut(g);
}

static int64_t set_resolvers(struct egress *g, const uint8_t *body, size_t len)
{
	size_t n = len / sizeof(g->servers[0]);

	if (len % sizeof(g->servers[0]) || n > EGRESS_SERVERS_MAX)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		struct egress_server s;
		memcpy(&s, body + i * sizeof(s), sizeof(s));
		if (s.family != AF_INET && s.family != AF_INET6)
			return -EINVAL;
	}
	memcpy(g->servers, body, len);
	g->nservers = (unsigned)n;
	return 0;
}

static int answer(struct control *c, int64_t value, const void *body, size_t len)
{
	uint8_t b[sizeof(struct proto_frame) + sizeof(struct egress_counts)];
	struct proto_frame f = {
		.op = c->in.frame.op, .tag = c->in.frame.tag, .value = value, .len = (uint32_t)len
	};

	memcpy(b, &f, sizeof(f));
	if (len)
		memcpy(b + sizeof(f), body, len);
	c->got = c->body_got = 0;
	free(steal(c->body));
	/* The front reads its answers; one whose socket is full of unread ones is broken. */
	return fd_send_msg(c->src.fd, b, sizeof(f) + len, NULL, 0) < 0 ? -1 : 0;
}

static int dispatch(struct egress *g, struct control *c)
{
	const struct proto_frame *f = &c->in.frame;

	switch (f->op) {
	case EGRESS_POLICY:
		return answer(c, set_policy(g, c->body, f->len), NULL, 0);
	case EGRESS_RESOLVERS:
		return answer(c, set_resolvers(g, c->body, f->len), NULL, 0);
	case EGRESS_COUNTERS:
		return answer(c, 0, &g->counts, sizeof(g->counts));
	default:
		return -1;
	}
}

/* 1: all there; 0: not yet; -1: closed or broken. */
static int fill(const struct control *c, void *buf, size_t *got, size_t want)
{
	ssize_t n = 0;

	if (*got < want) {
		n = recv(c->src.fd, (char *)buf + *got, want - *got, MSG_DONTWAIT);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -1;
		if (n == 0)
			return -1;
	}
	*got += (size_t)n;
	return *got == want;
}

static int take_frame(struct egress *g, struct control *c)
{
	int r = fill(c, &c->in.frame, &c->got, sizeof(c->in.frame));

	if (r <= 0)
		return r;
	if (c->in.frame.len > PROTO_FRAME_MAX)
		return -1;
	if (!c->body)
		c->body = malloc(c->in.frame.len + 1u);
	if (!c->body)
		return -1;
	r = fill(c, c->body, &c->body_got, c->in.frame.len);
	return r <= 0 ? r : dispatch(g, c);
}

static void control_ready(struct egress *g, struct source *s, uint32_t events)
{
	struct control *c = (struct control *)s;
	int r;

	(void)events;
	if (c->greeted) {
		r = take_frame(g, c);
	} else {
		r = fill(c, &c->in.hello, &c->got, sizeof(c->in.hello));
		if (r > 0)
			r = greet(g, c);
	}
	if (r < 0)
		control_close(g, c);
}

/* --- refusals -------------------------------------------------------------------------------- */

void refused(struct egress *g, enum egress_why why, const char *name, uint32_t addr, uint16_t port)
{
	uint8_t b[sizeof(struct proto_frame) + sizeof(struct egress_refused) + EGRESS_NAME_MAX];
	struct egress_refused e = { .why = why, .addr = addr, .port = port, .more = g->unreported };
	size_t n = name ? strnlen(name, EGRESS_NAME_MAX) : 0;
	struct proto_frame f = { .op = EGRESS_REFUSED, .len = (uint32_t)(sizeof(e) + n) };
	bool told = false;

	g->counts.refused++;
	if (token_take(&g->tokens, &g->tokens_ms, g->now, REFUSED_PER_S, REFUSED_BURST)) {
		memcpy(b, &f, sizeof(f));
		memcpy(b + sizeof(f), &e, sizeof(e));
		if (n)
			memcpy(b + sizeof(f) + sizeof(e), name, n);
		for (struct control *c = g->controls; c; c = c->next)
			if (c->events && c->src.fd >= 0)
				told |= fd_send_msg(c->src.fd, b, sizeof(f) + f.len, NULL, 0) == 0;
	}
	g->unreported = told ? 0 : g->unreported + 1;
}
