/* SPDX-License-Identifier: MIT */
/* A cell's network namespace has no way out; the tool's connections end here, at listeners that
 * were made in there, and are dialled from out here. A name is looked up once, every address is
 * judged by the one table (common/base/addr.h), and the very address that passed is dialled: there
 * is no second look-up that could say something else. */
#include "sandboxd/pull/parts.h"

#include "common/base/addr.h"
#include "common/sys/mem.h"
#include "common/sys/thread.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define LISTENERS_MAX (PULL_CELLS * (1 + PULL_FORWARDS))
#define CONNS_MAX     128
#define HEAD_MAX      4096
#define HEAD_MS       15000
#define DIAL_MS       15000
#define CHUNK         65536

struct listener {
	int fd;
	bool forward;
	struct sockaddr_in to;
};
static struct {
	bool allow_private;
	int stall_ms;
	int wake;  /* eventfd */
	int conns; /* atomic */
	pthread_mutex_t lock;
	struct listener all[LISTENERS_MAX]; /* under lock; they stay */
	size_t n;
} proxy = { .lock = PTHREAD_MUTEX_INITIALIZER };

struct conn {
	int fd;
	struct listener from;
};

/* --- moving bytes ---------------------------------------------------------------------------- */

static bool wait_for(int fd, short events, int ms)
{
	struct pollfd p = { .fd = fd, .events = events };
	int r;

	do
		r = poll(&p, 1, ms);
	while (r < 0 && errno == EINTR);
	return r > 0;
}

static bool send_all(int fd, const char *buf, size_t len)
{
	while (len > 0) {
		ssize_t n = send(fd, buf, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n > 0) {
			buf += n;
			len -= (size_t)n;
		} else if (n < 0 && errno != EAGAIN && errno != EINTR) {
			return false;
		} else if (!wait_for(fd, POLLOUT, proxy.stall_ms)) {
			return false;
		}
	}
	return true;
}

/* Passes on what is there; false when this direction is over. */
static bool pump(int from, int to, char *buf)
{
	ssize_t n = recv(from, buf, CHUNK, MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n == 0) {
		(void)shutdown(to, SHUT_WR);
		return false;
	}
	return send_all(to, buf, (size_t)n);
}

static void relay(int a, int b)
{
	_cleanup_free_ char *buf = malloc(CHUNK);
	struct pollfd p[2] = { { .fd = a, .events = POLLIN }, { .fd = b, .events = POLLIN } };
	int open = 2;

	while (buf && open > 0) {
		int r = poll(p, 2, proxy.stall_ms);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return;
		for (int i = 0; i < 2; i++)
			if (p[i].fd >= 0 && p[i].revents && !pump(p[i].fd, i == 0 ? b : a, buf)) {
				p[i].fd = -1;
				open--;
			}
	}
}

/* --- dialling -------------------------------------------------------------------------------- */

static int dial(const struct sockaddr *to, socklen_t len)
{
	int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int err = 0, one = 1;
	socklen_t size = sizeof(err);

	if (fd < 0)
		return -1;
	if (connect(fd, to, len) < 0 && errno != EINPROGRESS)
		err = errno;
	else if (!wait_for(fd, POLLOUT, DIAL_MS))
		err = ETIMEDOUT;
	else
		(void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &size);
	if (err) {
		close(fd);
		return -1;
	}
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static bool may_dial(const struct sockaddr *to)
{
	return proxy.allow_private || addr_dialable(to);
}

/* A socket, or -1 with the words for the tool. */
static int dial_name(const char *host, const char *port, const char **why)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG };
	struct addrinfo *all;
	bool refused = false;
	int fd = -1;

	*why = "502 sbx-name-unknown";
	if (getaddrinfo(host, port, &hints, &all) != 0)
		return -1;
	for (struct addrinfo *i = all; i && fd < 0; i = i->ai_next) {
		if (may_dial(i->ai_addr))
			fd = dial(i->ai_addr, i->ai_addrlen);
		else
			refused = true;
	}
	freeaddrinfo(all);
	*why = refused ? "403 sbx-address-refused" : "502 sbx-unreachable";
	return fd;
}

/* --- CONNECT --------------------------------------------------------------------------------- */

/* Up to the empty line and not a byte further; false: not a request of the tool's. */
static bool read_head(int fd, char *buf)
{
	size_t n = 0;

	while (n < HEAD_MAX - 1) {
		if (!wait_for(fd, POLLIN, HEAD_MS) || recv(fd, buf + n, 1, 0) != 1)
			return false;
		n++;
		buf[n] = '\0';
		if (n >= 4 && memcmp(buf + n - 4, "\r\n\r\n", 4) == 0)
			return true;
	}
	return false;
}

/* "CONNECT host:port HTTP/1.1" or "[v6]:port" */
static bool parse_target(const char *head, char host[256], char port[8])
{
	char target[300];
	char *colon;
	size_t n;

	if (sscanf(head, "CONNECT %299s HTTP/1.", target) != 1)
		return false;
	colon = strrchr(target, ':');
	if (!colon || strlen(colon + 1) > 5 || !colon[1] ||
		strspn(colon + 1, "0123456789") != strlen(colon + 1))
		return false;
	snprintf(port, 8, "%.5s", colon + 1);
	*colon = '\0';
	n = strlen(target);
	if (n > 2 && target[0] == '[' && target[n - 1] == ']') {
		target[n - 1] = '\0';
		snprintf(host, 256, "%.255s", target + 1);
	} else {
		snprintf(host, 256, "%.255s", target);
	}
	return n > 0 && n < 256;
}

static void say(int fd, const char *status)
{
	char text[128];
	int n = snprintf(text, sizeof(text), "HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n", status);

	(void)send_all(fd, text, (size_t)n);
}

static int open_way(struct conn *c)
{
	char head[HEAD_MAX], host[256], port[8];
	const char *why;
	int fd;

	if (c->from.forward)
		return dial((const struct sockaddr *)&c->from.to, sizeof(c->from.to));
	if (!read_head(c->fd, head))
		return -1;
	if (!parse_target(head, host, port)) {
		say(c->fd, "403 sbx-address-refused"); /* plain http is for loopback only */
		return -1;
	}
	fd = dial_name(host, port, &why);
	if (fd < 0)
		say(c->fd, why);
	else if (!send_all(c->fd, "HTTP/1.1 200 OK\r\n\r\n", 19)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static void *serve(void *arg)
{
	struct conn *c = arg;
	int to = open_way(c);

	if (to >= 0)
		relay(c->fd, to);
	close_p(&to);
	close(c->fd);
	free(c);
	__atomic_sub_fetch(&proxy.conns, 1, __ATOMIC_RELAXED);
	return NULL;
}

/* --- listeners ------------------------------------------------------------------------------- */

static void take_one(const struct listener *l)
{
	struct conn *c = malloc(sizeof(*c));
	int r = -1;

	if (!c)
		return;
	c->from = *l;
	c->fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);
	if (c->fd >= 0 && __atomic_add_fetch(&proxy.conns, 1, __ATOMIC_RELAXED) <= CONNS_MAX)
		r = thread_detached(serve, c, 256 * 1024);
	if (r == 0)
		return;
	if (c->fd >= 0) {
		__atomic_sub_fetch(&proxy.conns, 1, __ATOMIC_RELAXED);
		close(c->fd);
	}
	free(c);
}

static void *listen_all(void *arg)
{
	struct listener mine[LISTENERS_MAX];
	struct pollfd p[LISTENERS_MAX + 1];
	uint64_t seen;
	size_t n;

	(void)arg;
	for (;;) {
		pthread_mutex_lock(&proxy.lock);
		n = proxy.n;
		memcpy(mine, proxy.all, n * sizeof(mine[0]));
		pthread_mutex_unlock(&proxy.lock);
		for (size_t i = 0; i < n; i++)
			p[i] = (struct pollfd){ .fd = mine[i].fd, .events = POLLIN };
		p[n] = (struct pollfd){ .fd = proxy.wake, .events = POLLIN };
		if (poll(p, n + 1, -1) < 0)
			continue;
		if (p[n].revents && read(proxy.wake, &seen, sizeof(seen)) < 0)
			continue;
		for (size_t i = 0; i < n; i++)
			if (p[i].revents)
				take_one(&mine[i]);
	}
	return NULL;
}

int proxy_start(const struct pull_conf *conf)
{
	pthread_t thread;
	int r;

	proxy.allow_private = conf->allow_private;
	/* later than jobs.c, which can say what has happened */
	proxy.stall_ms = (conf->stall_secs + 30) * 1000;
	proxy.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (proxy.wake < 0)
		return -errno;
	r = pthread_create(&thread, NULL, listen_all, NULL);
	return r ? -r : 0;
}

static int add(const struct listener *l)
{
	uint64_t one = 1;
	int r = 0;

	pthread_mutex_lock(&proxy.lock);
	if (proxy.n == LISTENERS_MAX)
		r = -EMFILE;
	else
		proxy.all[proxy.n++] = *l;
	pthread_mutex_unlock(&proxy.lock);
	if (r < 0)
		close(l->fd);
	else if (write(proxy.wake, &one, sizeof(one)) < 0)
		r = -errno;
	return r;
}

int proxy_add(int listener)
{
	const struct listener l = { .fd = listener };

	return add(&l);
}

int proxy_forward(int listener, const struct sockaddr_in *to)
{
	const struct listener l = { .fd = listener, .forward = true, .to = *to };

	return add(&l);
}
