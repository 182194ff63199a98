/* SPDX-License-Identifier: MIT */
/* A cell's network namespace has no way out; the tool's connections end here, at listeners that
 * were made in there, and are dialled from out here. A name is looked up once, every address is
 * judged by the one table (common/base/addr.h), and the very address that passed is dialled: there
 * is no second look-up that could say something else. */
#include "sandboxd/pull/parts.h"

#include "common/base/addr.h"
#include "common/sys/deadline.h"
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
#define CONNS_MAX     64 /* of one cell */
#define ADDRS_MAX     8  /* of one name are tried */
#define HEAD_MAX      4096
#define HEAD_MS       15000
#define DIAL_MS       15000
#define CLEAR_MS      200
#define CHUNK         65536

struct listener {
	int fd, num; /* num: the cell's */
	bool forward, over;
	struct sockaddr_in to;
};
struct conn {
	struct conn *next; /* under lock */
	int fd, to;        /* set and closed under lock; to -1: not yet */
	bool over;         /* under lock */
	struct listener from;
};
static struct {
	bool allow_private;
	int stall_ms;
	int wake; /* eventfd */
	pthread_mutex_t lock;
	pthread_cond_t cleared;
	/* under lock */
	struct listener all[LISTENERS_MAX];
	size_t n;
	struct conn *conns;
	int count[PULL_CELLS];
	bool clearing[PULL_CELLS]; /* nobody is let in: who waits at the door came from the run before */
} proxy = { .lock = PTHREAD_MUTEX_INITIALIZER, .cleared = PTHREAD_COND_INITIALIZER };

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

static bool is_over(const struct conn *c)
{
	bool over;

	pthread_mutex_lock(&proxy.lock);
	over = c->over;
	pthread_mutex_unlock(&proxy.lock);
	return over;
}

/* A socket, or -1 with the words for the tool. */
static int dial_name(const struct conn *c, const char *host, const char *port, const char **why)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG };
	struct addrinfo *all;
	bool refused = false;
	int fd = -1, left = ADDRS_MAX;

	*why = "502 sbx-name-unknown";
	if (getaddrinfo(host, port, &hints, &all) != 0)
		return -1;
	for (struct addrinfo *i = all; i && fd < 0 && left > 0 && !is_over(c); i = i->ai_next, left--) {
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

/* -1, or what the connection goes to. */
static int open_way(const struct conn *c)
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
	fd = dial_name(c, host, port, &why);
	if (fd < 0)
		say(c->fd, why);
	else if (!send_all(c->fd, "HTTP/1.1 200 OK\r\n\r\n", 19)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* False: it is over, or not begun because its cell has enough of them. */
static bool enter(struct conn *c)
{
	bool ok;

	pthread_mutex_lock(&proxy.lock);
	ok = !proxy.clearing[c->from.num] && proxy.count[c->from.num] < CONNS_MAX;
	if (ok) {
		proxy.count[c->from.num]++;
		c->next = proxy.conns;
		proxy.conns = c;
	}
	pthread_mutex_unlock(&proxy.lock);
	return ok;
}

/* It has been entered. */
static void end(struct conn *c)
{
	struct conn **at = &proxy.conns;

	pthread_mutex_lock(&proxy.lock);
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	proxy.count[c->from.num]--;
	close(c->fd);
	close_p(&c->to);
	pthread_cond_broadcast(&proxy.cleared);
	pthread_mutex_unlock(&proxy.lock);
	free(c);
}

static void *serve(void *arg)
{
	struct conn *c = arg;
	int to = open_way(c);
	bool over;

	pthread_mutex_lock(&proxy.lock);
	c->to = to;
	over = c->over;
	pthread_mutex_unlock(&proxy.lock);
	if (to >= 0 && !over)
		relay(c->fd, to);
	end(c);
	return NULL;
}

/* --- listeners ------------------------------------------------------------------------------- */

/* False: nobody waits there. */
static bool take_one(const struct listener *l)
{
	int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);
	struct conn *c = fd < 0 ? NULL : malloc(sizeof(*c));

	if (!c) {
		close_p(&fd);
		return false;
	}
	*c = (struct conn){ .fd = fd, .to = -1, .from = *l };
	if (!enter(c)) {
		close(fd);
		free(c);
	} else if (thread_detached(serve, c, 256 * 1024) != 0) {
		end(c);
	}
	return true;
}

/* Only this thread closes a listener, so that none is one of another number when it is asked. */
static size_t look_around(struct listener mine[LISTENERS_MAX])
{
	size_t n = 0;

	pthread_mutex_lock(&proxy.lock);
	for (size_t i = 0; i < proxy.n; i++)
		if (proxy.all[i].over)
			close(proxy.all[i].fd);
		else
			proxy.all[n++] = proxy.all[i];
	proxy.n = n;
	memcpy(mine, proxy.all, n * sizeof(mine[0]));
	pthread_mutex_unlock(&proxy.lock);
	return n;
}

/* Those that are being cleared: whoever waits there is sent away. */
static void empty_doors(const struct listener *mine, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		bool clearing;
		pthread_mutex_lock(&proxy.lock);
		clearing = proxy.clearing[mine[i].num];
		pthread_mutex_unlock(&proxy.lock);
		while (clearing && take_one(&mine[i]))
			;
		if (!clearing)
			continue;
		pthread_mutex_lock(&proxy.lock);
		proxy.clearing[mine[i].num] = false;
		pthread_cond_broadcast(&proxy.cleared);
		pthread_mutex_unlock(&proxy.lock);
	}
}

static void *listen_all(void *arg)
{
	struct listener mine[LISTENERS_MAX];
	struct pollfd p[LISTENERS_MAX + 1];
	uint64_t seen;
	size_t n;

	(void)arg;
	for (;;) {
		n = look_around(mine);
		empty_doors(mine, n);
		for (size_t i = 0; i < n; i++)
			p[i] = (struct pollfd){ .fd = mine[i].fd, .events = POLLIN };
		p[n] = (struct pollfd){ .fd = proxy.wake, .events = POLLIN };
		if (poll(p, n + 1, -1) < 0)
			continue;
		if (p[n].revents && read(proxy.wake, &seen, sizeof(seen)) < 0)
			continue;
		for (size_t i = 0; i < n; i++)
			if (p[i].revents)
				(void)take_one(&mine[i]);
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

static void wake(void)
{
	uint64_t one = 1;

	(void)!write(proxy.wake, &one, sizeof(one));
}

static int add(const struct listener *l)
{
	int r = 0;

	pthread_mutex_lock(&proxy.lock);
	if (proxy.n == LISTENERS_MAX)
		r = -EMFILE;
	else
		proxy.all[proxy.n++] = *l;
	pthread_mutex_unlock(&proxy.lock);
	if (r < 0)
		close(l->fd);
	wake();
	return r;
}

int proxy_add(int num, int listener)
{
	const struct listener l = { .fd = listener, .num = num };

	return add(&l);
}

int proxy_forward(int num, int listener, const struct sockaddr_in *to)
{
	const struct listener l = { .fd = listener, .num = num, .forward = true, .to = *to };

	return add(&l);
}

/* Lock held. */
static void cut(int num)
{
	for (size_t i = 0; i < proxy.n; i++)
		proxy.all[i].over |= proxy.all[i].num == num && proxy.all[i].forward;
	for (struct conn *c = proxy.conns; c; c = c->next)
		if (c->from.num == num) {
			c->over = true;
			(void)shutdown(c->fd, SHUT_RDWR);
			if (c->to >= 0)
				(void)shutdown(c->to, SHUT_RDWR);
		}
}

static bool is_clear(int num)
{
	for (size_t i = 0; i < proxy.n; i++)
		if (proxy.all[i].num == num && proxy.all[i].over)
			return false;
	return !proxy.clearing[num] && proxy.count[num] == 0;
}

void proxy_clear(int num)
{
	pthread_mutex_lock(&proxy.lock);
	proxy.clearing[num] = true;
	wake();
	for (cut(num); !is_clear(num); cut(num)) /* again: one may have been on its way in */
		(void)cond_wait_ms(&proxy.cleared, &proxy.lock, CLEAR_MS);
	pthread_mutex_unlock(&proxy.lock);
}
