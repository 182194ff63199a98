/* SPDX-License-Identifier: MIT */
#include "tests/support/collector.h"

#include "tests/support/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#define KEPT_MOST    64
#define REQUEST_MOST (256 * 1024)
#define SERVERS      64
#define REDIRECT     "HTTP/1.1 307 There\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"

struct collector {
	int fd;
	unsigned short port;
	pthread_t acceptor, servers[SERVERS];
	size_t nservers;
	pthread_mutex_t lock;
	/* under lock */
	enum manner manner;
	bool stop;
	size_t connections, n;
	struct collected kept[KEPT_MOST];
};
struct visit {
	struct collector *c;
	int fd;
};

static bool stopped(struct collector *c, enum manner *ret)
{
	bool stop;

	pthread_mutex_lock(&c->lock);
	stop = c->stop;
	if (ret)
		*ret = c->manner;
	pthread_mutex_unlock(&c->lock);
	return stop;
}

static json_t *unpack(const char *data, size_t len)
{
	static const size_t room = 256 * 1024;
	_cleanup_free_ char *out = malloc(room);
	z_stream z = { 0 };
	json_t *v = NULL;

	if (!out || inflateInit2(&z, 15 + 16) != Z_OK)
		return NULL;
	z.next_in = (Bytef *)(uintptr_t)data;
	z.avail_in = (uInt)len;
	z.next_out = (Bytef *)out;
	z.avail_out = (uInt)room;
	if (inflate(&z, Z_FINISH) == Z_STREAM_END)
		v = json_loadb(out, z.total_out, 0, NULL);
	inflateEnd(&z);
	return v;
}

static void keep(struct collector *c, char *request, size_t head_len, size_t len)
{
	pthread_mutex_lock(&c->lock);
	if (c->n < KEPT_MOST)
		c->kept[c->n++] = (struct collected){ .head = strndup(request, head_len),
			.body = unpack(request + head_len, len - head_len) };
	pthread_mutex_unlock(&c->lock);
}

/* A whole request; its length, 0: it never came whole. */
static size_t receive(struct collector *c, int fd, char *buf, size_t *ret_head)
{
	size_t len = 0, want = 0;

	while (len + 1 < REQUEST_MOST && (!want || len < want)) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		const char *end, *at;
		ssize_t n;
		if (poll(&p, 1, 100) == 0) {
			if (stopped(c, NULL))
				return 0;
			continue;
		}
		n = recv(fd, buf + len, REQUEST_MOST - 1 - len, 0);
		if (n <= 0)
			return 0;
		len += (size_t)n;
		buf[len] = '\0';
		end = want ? NULL : strstr(buf, "\r\n\r\n");
		if (!end)
			continue;
		at = strcasestr(buf, "\r\nContent-Length:");
		*ret_head = (size_t)(end - buf) + 4;
		want = *ret_head + (at && at < end ? strtoul(at + 17, NULL, 10) : 0);
	}
	return len;
}

static void put(int fd, const char *text)
{
	(void)!send(fd, text, strlen(text), MSG_NOSIGNAL);
}

/* Until the other side has enough. */
static void put_forever(struct collector *c, int fd, const char *text, int pause_ms)
{
	struct timespec pause = { .tv_nsec = pause_ms * 1000000L };

	while (!stopped(c, NULL)) {
		if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
			return;
		if (pause_ms)
			nanosleep(&pause, NULL);
	}
}

static void answer(struct collector *c, int fd, enum manner m)
{
	static const char *const plain[] = {
		[ANSWER_OK] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
		[ANSWER_NO_BODY] = "HTTP/1.1 204 No Content\r\n\r\n",
		[ANSWER_503] = "HTTP/1.1 503 Later\r\nContent-Length: 3\r\n\r\nno\n",
		[ANSWER_REDIRECT] = REDIRECT,
		[ANSWER_ENDLESS] = "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n",
		[ANSWER_SLOW_HEAD] = "HTTP/1.1 200 OK\r\n",
		[ANSWER_BIG_HEAD] = "HTTP/1.1 200 OK\r\n",
		[ANSWER_NONSENSE] = "good morning\r\n\r\n",
		[ANSWER_CLOSE] = "",
		[ANSWER_NEVER] = "",
	};

	put(fd, plain[m]);
	if (m == ANSWER_ENDLESS)
		put_forever(c, fd, "all is well and will be so for a long time to come\n", 0);
	else if (m == ANSWER_SLOW_HEAD)
		put_forever(c, fd, "X-More: yes\r\n", 100);
	else if (m == ANSWER_BIG_HEAD)
		put_forever(c, fd, "X-More: and more and more and more\r\n", 0);
}

static void *serve(void *arg)
{
	struct visit v = *(struct visit *)arg;
	_cleanup_free_ char *buf = malloc(REQUEST_MOST);
	struct timespec pause = { .tv_nsec = 50000000 };
	size_t head = 0, len;
	enum manner m;

	free(arg);
	while (buf && (len = receive(v.c, v.fd, buf, &head)) > 0) {
		keep(v.c, buf, head, len);
		stopped(v.c, &m);
		answer(v.c, v.fd, m);
		while (m == ANSWER_NEVER && !stopped(v.c, NULL))
			nanosleep(&pause, NULL);
		if (m != ANSWER_OK)
			break;
	}
	close(v.fd);
	return NULL;
}

static void *accept_all(void *arg)
{
	struct collector *c = arg;

	while (!stopped(c, NULL) && c->nservers < SERVERS) {
		struct pollfd p = { .fd = c->fd, .events = POLLIN };
		struct visit *v;
		if (poll(&p, 1, 50) <= 0)
			continue;
		v = malloc(sizeof(*v));
		if (!v)
			break;
		*v = (struct visit){ c, accept4(c->fd, NULL, NULL, SOCK_CLOEXEC) };
		pthread_mutex_lock(&c->lock);
		c->connections++;
		pthread_mutex_unlock(&c->lock);
		if (v->fd >= 0 && pthread_create(&c->servers[c->nservers], NULL, serve, v) == 0)
			c->nservers++;
		else
			free(v);
	}
	return NULL;
}

struct collector *collector_new(enum manner m)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct collector *c = calloc(1, sizeof(*c));
	socklen_t len = sizeof(a);

	assert_non_null(c);
	c->manner = m;
	pthread_mutex_init(&c->lock, NULL);
	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_return_code(bind(c->fd, (struct sockaddr *)&a, sizeof(a)), errno);
	assert_return_code(listen(c->fd, 64), errno);
	assert_return_code(getsockname(c->fd, (struct sockaddr *)&a, &len), errno);
	c->port = ntohs(a.sin_port);
	assert_int_equal(pthread_create(&c->acceptor, NULL, accept_all, c), 0);
	return c;
}

void collector_free(struct collector *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->stop = true;
	pthread_mutex_unlock(&c->lock);
	pthread_join(c->acceptor, NULL);
	for (size_t i = 0; i < c->nservers; i++)
		pthread_join(c->servers[i], NULL);
	close(c->fd);
	for (size_t i = 0; i < c->n; i++) {
		free(c->kept[i].head);
		json_decref(c->kept[i].body);
	}
	pthread_mutex_destroy(&c->lock);
	free(c);
}

void collector_set(struct collector *c, enum manner m)
{
	pthread_mutex_lock(&c->lock);
	c->manner = m;
	pthread_mutex_unlock(&c->lock);
}

unsigned short collector_port(const struct collector *c)
{
	return c->port;
}

static size_t locked(struct collector *c, const size_t *what)
{
	size_t n;

	pthread_mutex_lock(&c->lock);
	n = *what;
	pthread_mutex_unlock(&c->lock);
	return n;
}

size_t collector_connections(struct collector *c)
{
	return locked(c, &c->connections);
}

size_t collector_count(struct collector *c)
{
	return locked(c, &c->n);
}

const struct collected *collector_get(struct collector *c, size_t i)
{
	assert_true(i < collector_count(c));
	return &c->kept[i];
}
