/* SPDX-License-Identifier: MIT */
/* An sbx-egress that somebody has taken over. It lets nothing through. What it tells the front it reads
 * off the policy: the allowed name lie-NAME.test. Any other policy is answered as the real one does. */
#include "common/sys/fd.h"
#include "sandboxd/proto/egress.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNS 64

static struct egress_boot id;
static char lie[32];
static int64_t counted;
static struct {
	int fd;
	bool events;
} conns[CONNS];
static int nconns;

static bool is(const char *name)
{
	return !strcmp(lie, name);
}

static bool put(int fd, const void *p, size_t n)
{
	return send(fd, p, n, MSG_NOSIGNAL) == (ssize_t)n;
}

struct refusal {
	struct proto_frame f;
	struct egress_refused r;
	char name[16];
} __attribute__((packed));

static struct refusal refusal(void)
{
	return (struct refusal){ .f = { .op = EGRESS_REFUSED, .len = sizeof(struct egress_refused) + 16 },
		.r = { .why = WHY_NAME, .port = 443, .more = 0xffffffff },
		.name = { '\033', ']', '0', ';', 'x', '\a', '\n', '"', '<', '>' } };
}

/* n < 0: as long as somebody listens. */
static void flood(int fd, int n)
{
	struct refusal r = refusal();

	while (n-- && put(fd, &r, sizeof(r)))
		;
}

static void descriptors(int fd)
{
	union {
		char buf[CMSG_SPACE(100 * sizeof(int))];
		struct cmsghdr align;
	} ctl;
	struct refusal r = refusal();
	struct iovec v = { &r, sizeof(r) };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &ctl,
		.msg_controllen = sizeof(ctl) };
	int fds[100];

	for (int i = 0; i < 100; i++)
		fds[i] = EGRESS_FD_TCP;
	memset(&ctl, 0, sizeof(ctl));
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(c), fds, sizeof(fds));
	for (int i = 0; i < 50; i++)
		(void)sendmsg(fd, &m, MSG_NOSIGNAL);
}

static void nonsense(int fd)
{
	static const struct proto_frame bad[] = { { .op = 99 }, { .op = EGRESS_REFUSED, .len = 3 },
		{ .op = EGRESS_REFUSED, .len = 0xffffffff } };
	static int turn;

	put(fd, &bad[turn++ % 3], sizeof(bad[0]));
}

/* By itself, to whoever gets events. */
static void speak(int fd)
{
	if (is("flood"))
		flood(fd, 200);
	else if (is("descriptors"))
		descriptors(fd);
	else if (is("nonsense"))
		nonsense(fd);
}

static void answer(int fd, const struct proto_frame *q, const void *body, size_t len)
{
	struct proto_frame f = { .op = q->op, .tag = q->tag, .len = (uint32_t)len };

	if (is("answers"))
		f = (struct proto_frame){ .op = 9, .len = 0xfffffff0, .value = INT64_MIN };
	if (is("refusals"))
		flood(fd, -1);
	put(fd, &f, sizeof(f));
	if (len)
		put(fd, body, len);
	if (is("twice"))
		put(fd, &f, sizeof(f));
}

static void take_policy(const char *b, size_t len)
{
	const char *name = len > sizeof(struct egress_policy) ? b + sizeof(struct egress_policy) : "";
	size_t n = strcspn(name, ".");

	lie[0] = '\0';
	if (!strncmp(name, "lie-", 4) && n < sizeof(lie))
		snprintf(lie, sizeof(lie), "%.*s", (int)n - 4, name + 4);
}

static void trickle(int fd, const void *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		put(fd, (const char *)p + i, 1);
		(void)poll(NULL, 0, 500);
	}
}

static bool greet(int fd, bool *events)
{
	struct proto_hello h;
	struct proto_hello_ok ok = { .magic = PROTO_MAGIC, .version = PROTO_VERSION,
		.generation = id.generation };

	if (fd_recv_full(fd, &h, sizeof(h), 2000) < 0)
		return false;
	*events = h.kind == PROTO_EVENTS;
	if (is("stall"))
		(void)poll(NULL, 0, -1);
	if (is("trickle"))
		trickle(fd, &ok, sizeof(ok));
	else
		put(fd, &ok, sizeof(ok));
	return true;
}

static bool serve(int fd)
{
	static char body[1 << 21];
	struct proto_frame f;
	struct egress_counts n = { .rx_bytes = counted, .tx_bytes = counted };

	if (fd_recv_full(fd, &f, sizeof(f), 2000) < 0 || f.len > sizeof(body) ||
		fd_recv_full(fd, body, f.len, 2000) < 0)
		return false;
	counted = is("counts") ? (counted ? 0 : INT64_MAX) : 1000;
	answer(fd, &f, f.op == EGRESS_COUNTERS ? &n : NULL, f.op == EGRESS_COUNTERS ? sizeof(n) : 0);
	if (f.op == EGRESS_POLICY)
		take_policy(body, f.len);
	return true;
}

static void turn(int listener)
{
	struct pollfd p[CONNS + 2] = { { .fd = listener, .events = POLLIN },
		{ .fd = EGRESS_FD_SHIM, .events = POLLIN } };

	for (int i = 0; i < nconns; i++)
		p[i + 2] = (struct pollfd){ .fd = conns[i].fd, .events = POLLIN };
	(void)poll(p, (nfds_t)nconns + 2, 200);
	if (p[1].revents)
		_exit(0); /* the sandbox is over */
	for (int i = nconns - 1; i >= 0; i--) {
		if (conns[i].events)
			speak(conns[i].fd);
		if (!p[i + 2].revents || serve(conns[i].fd))
			continue;
		close(conns[i].fd);
		conns[i] = conns[--nconns];
	}
	if (!p[0].revents || nconns == CONNS)
		return;
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	bool events = false;
	if (fd >= 0 && greet(fd, &events)) {
		conns[nconns].fd = fd;
		conns[nconns++].events = events;
	} else if (fd >= 0) {
		close(fd);
	}
}

int main(void)
{
	size_t n = 1;
	int listener;

	(void)signal(SIGPIPE, SIG_IGN);
	if (fd_recv_msg(EGRESS_FD_BOOT, &id, sizeof(id), &listener, &n) != sizeof(id) || n != 1)
		return 0; /* never claimed */
	(void)fcntl(listener, F_SETFL, O_NONBLOCK);
	for (;;)
		turn(listener);
}
