/* SPDX-License-Identifier: MIT */
#include "tests/support/peer.h"

#include "common/sys/fd.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MOST 64

struct session {
	struct peer *p;
	pthread_t thread;
	int fd, nth;
};
struct peer {
	char dir[64], endpoint[128], url[64];
	int listen_fd, tcp_fd, stop[2];
	peer_serve serve;
	void *arg;
	pthread_t thread;
	pthread_mutex_t lock; /* guards the following */
	int n;
	struct session session[MOST];
};

static void *serve_one(void *arg)
{
	struct session *s = arg;

	s->p->serve(s->fd, s->nth, s->p->arg);
	shutdown(s->fd, SHUT_RDWR);
	return NULL;
}

static void *accept_all(void *arg)
{
	struct peer *p = arg;

	for (;;) {
		struct pollfd f[3] = { { p->listen_fd, POLLIN, 0 }, { p->stop[0], POLLIN, 0 },
			{ p->tcp_fd, POLLIN, 0 } };
		poll(f, 3, -1);
		if (f[1].revents)
			return NULL;
		int fd = accept4(f[0].revents ? p->listen_fd : p->tcp_fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			continue;
		pthread_mutex_lock(&p->lock);
		if (p->n == MOST)
			abort();
		struct session *s = &p->session[p->n];
		*s = (struct session){ .p = p, .fd = fd, .nth = p->n++ };
		pthread_create(&s->thread, NULL, serve_one, s);
		pthread_mutex_unlock(&p->lock);
	}
}

static void listen_tcp(struct peer *p)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);

	p->tcp_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(p->tcp_fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(p->tcp_fd, 64) < 0 ||
		getsockname(p->tcp_fd, (struct sockaddr *)&a, &len) < 0)
		abort();
	snprintf(p->url, sizeof(p->url), "http://127.0.0.1:%d", ntohs(a.sin_port));
}

const char *peer_url(const struct peer *p)
{
	return p->url;
}

struct peer *peer_start(peer_serve serve, void *arg)
{
	struct peer *p = calloc(1, sizeof(*p));
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	snprintf(p->dir, sizeof(p->dir), "/tmp/peer-XXXXXX");
	if (!mkdtemp(p->dir) || pipe(p->stop) < 0)
		abort();
	snprintf(a.sun_path, sizeof(a.sun_path), "%s/sock", p->dir);
	snprintf(p->endpoint, sizeof(p->endpoint), "unix://%s", a.sun_path);
	p->serve = serve;
	p->arg = arg;
	pthread_mutex_init(&p->lock, NULL);
	p->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(p->listen_fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
		listen(p->listen_fd, 64) < 0)
		abort();
	listen_tcp(p);
	pthread_create(&p->thread, NULL, accept_all, p);
	return p;
}

void peer_stop(struct peer *p)
{
	char path[80];

	(void)!write(p->stop[1], "x", 1);
	pthread_join(p->thread, NULL);
	for (int i = 0; i < p->n; i++) {
		shutdown(p->session[i].fd, SHUT_RDWR);
		pthread_join(p->session[i].thread, NULL);
		close(p->session[i].fd);
	}
	snprintf(path, sizeof(path), "%s/sock", p->dir);
	unlink(path);
	rmdir(p->dir);
	close(p->listen_fd);
	close(p->tcp_fd);
	close(p->stop[0]);
	close(p->stop[1]);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

const char *peer_endpoint(const struct peer *p)
{
	return p->endpoint;
}

int peer_connections(struct peer *p)
{
	pthread_mutex_lock(&p->lock);
	int n = p->n;
	pthread_mutex_unlock(&p->lock);
	return n;
}

static bool complete(const char *buf, size_t len)
{
	const char *end = strstr(buf, "\r\n\r\n"), *cl;

	if (!end)
		return false;
	end += 4;
	cl = strcasestr(buf, "\r\nContent-Length: ");
	if (cl && cl < end)
		return len - (size_t)(end - buf) >= strtoul(cl + 18, NULL, 10);
	cl = strcasestr(buf, "\r\nTransfer-Encoding: chunked");
	return !cl || cl > end || strstr(end, "0\r\n\r\n");
}

bool peer_request(int fd, char *buf, size_t size)
{
	size_t len = 0;

	while (len + 1 < size) {
		ssize_t n = recv(fd, buf + len, size - 1 - len, 0);
		if (n <= 0)
			return false;
		len += (size_t)n;
		buf[len] = '\0';
		if (complete(buf, len))
			return true;
	}
	return true;
}

void peer_say(int fd, const char *text)
{
	fd_send_full(fd, text, strlen(text), 20000);
}
