/* SPDX-License-Identifier: MIT */
/* Leaving HTTP: 101 and then a stream of bytes.
 *
 * Without TLS the library hands over the socket. With TLS it would copy bytes itself, and never
 * tell our side that the client has gone or has ended its half; so there the connection's own
 * thread does the copying, between the TLS session and a socket pair. */
#include "common/base/log.h"
#include "common/http/internal.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define PIECE   16384
#define TICK_MS 200

struct upgrade {
	void (*run)(void *arg, int fd, const void *extra, size_t extra_len);
	void *arg;
	struct http_server *server;
	struct MHD_UpgradeResponseHandle *handle; /* NULL with TLS */
	struct http_req *req;                     /* referenced, with the handle */
	int fd;
	void *extra;
	size_t extra_len;
};

void upgrade_drop(struct upgrade *u)
{
	if (!u)
		return;
	u->run(u->arg, -1, NULL, 0);
	free(u);
}

static void count(struct http_server *s, int change)
{
	pthread_mutex_lock(&s->lock);
	s->upgrades += (unsigned)change;
	if (change < 0)
		pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

static void *upgrade_main(void *arg)
{
	struct upgrade *u = arg;
	struct http_server *s = u->server;
	bool plain = u->handle != NULL;

	u->run(u->arg, u->fd, u->extra, u->extra_len);
	shutdown(u->fd, SHUT_RDWR);
	if (plain) {
		req_gone(u->req, true); /* while its connection is still there */
		req_unref(u->req);
		MHD_upgrade_action(u->handle, MHD_UPGRADE_ACTION_CLOSE);
	} else {
		close(u->fd);
	}
	free(u->extra);
	free(u);
	if (plain)
		count(s, -1);
	return NULL;
}

static int upgrade_thread(struct upgrade *u, bool detached, pthread_t *ret)
{
	pthread_attr_t attr;
	int rc;

	pthread_attr_init(&attr);
	if (detached)
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, HTTP_STACK_BYTES);
	rc = pthread_create(ret, &attr, upgrade_main, u);
	pthread_attr_destroy(&attr);
	return rc;
}

/* --- without TLS --- */

static void on_upgrade(void *cls, struct MHD_Connection *connection, void *con_cls,
	const char *extra, size_t extra_len, MHD_socket sock, struct MHD_UpgradeResponseHandle *urh)
{
	struct http_req *r = con_cls;
	struct upgrade *u = steal(r->upgrade);
	struct http_server *s = u->server;
	int flags = fcntl(sock, F_GETFL);
	pthread_t t;

	(void)cls;
	(void)connection;
	if (flags >= 0)
		fcntl(sock, F_SETFL, flags & ~O_NONBLOCK);
	r->conn->upgraded = true;
	r->streams = true;
	r->refs++;
	u->req = r;
	u->fd = sock;
	u->handle = urh;
	u->extra = extra_len ? malloc(extra_len) : NULL;
	if (u->extra)
		memcpy(u->extra, extra, u->extra_len = extra_len);
	count(s, 1);
	if ((!extra_len || u->extra) && upgrade_thread(u, true, &t) == 0)
		return;
	log_error("no memory for an upgraded connection");
	count(s, -1);
	r->streams = false;
	req_unref(r);
	free(u->extra);
	upgrade_drop(u);
	MHD_upgrade_action(urh, MHD_UPGRADE_ACTION_CLOSE);
}

static void upgrade_plain(struct http_req *r, const char *protocol, struct upgrade *u)
{
	struct MHD_Response *resp = MHD_create_response_for_upgrade(on_upgrade, NULL);

	r->upgrade = u;
	if (resp)
		MHD_add_response_header(resp, "Upgrade", protocol);
	req_queue(r, MHD_HTTP_SWITCHING_PROTOCOLS, NULL, resp);
}

/* --- with TLS --- */

/* One direction: at most one piece is on its way, so a slow end slows the other. */
struct lane {
	size_t at, len;
	bool eof, over; /* over: its end has been passed on */
	char buf[PIECE];
};
struct pump {
	struct conn *c;
	int app;             /* our end of the pair */
	struct lane in, out; /* from the client, to the client */
	bool gone;           /* the client, for good; what it has sent still goes to the owner */
};

static void client_gone(struct pump *p)
{
	p->gone = true;
	p->out.len = 0;
	p->out.eof = p->out.over = true;
	shutdown(p->c->fd, SHUT_RDWR);
}

static void fill_in(struct pump *p)
{
	ssize_t n;

	if (p->in.eof || p->in.len)
		return;
	n = gnutls_record_recv(p->c->tls, p->in.buf, PIECE);
	if (n > 0) {
		p->in.len = (size_t)n;
	} else if (n == 0 || n == GNUTLS_E_PREMATURE_TERMINATION) {
		p->in.eof = true;
	} else if (n != GNUTLS_E_AGAIN && n != GNUTLS_E_INTERRUPTED &&
		   gnutls_error_is_fatal((int)n)) {
		p->in.eof = true;
		client_gone(p);
	}
}

static void drain_in(struct pump *p)
{
	ssize_t n;

	if (p->in.len) {
		n = send(p->app, p->in.buf + p->in.at, p->in.len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n > 0) {
			p->in.at += (size_t)n;
			p->in.len -= (size_t)n;
		} else if (n < 0 && errno != EAGAIN && errno != EINTR) {
			p->in.len = 0; /* the owner has closed: nobody wants the rest */
			p->in.eof = p->in.over = true;
		}
	}
	if (!p->in.len)
		p->in.at = 0;
	if (p->in.eof && !p->in.len && !p->in.over) {
		shutdown(p->app, SHUT_WR);
		p->in.over = true;
	}
}

static void fill_out(struct pump *p)
{
	ssize_t n;

	if (p->out.eof || p->out.len)
		return;
	n = recv(p->app, p->out.buf, PIECE, MSG_DONTWAIT);
	if (n > 0)
		p->out.len = (size_t)n;
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		p->out.eof = true;
}

static void drain_out(struct pump *p)
{
	ssize_t n;

	if (p->out.len) {
		n = gnutls_record_send(p->c->tls, p->out.buf + p->out.at, p->out.len);
		if (n > 0) {
			p->out.at += (size_t)n;
			p->out.len -= (size_t)n;
		} else if (n != GNUTLS_E_AGAIN && n != GNUTLS_E_INTERRUPTED) {
			client_gone(p);
		}
	}
	if (!p->out.len)
		p->out.at = 0;
	if (p->out.eof && !p->out.len && !p->out.over) {
		gnutls_bye(p->c->tls, GNUTLS_SHUT_WR);
		p->out.over = true;
	}
}

/* A client that is there is waited for as long as it likes. */
static bool wait_for(const struct pump *p, struct pollfd f[2])
{
	int64_t until = http_now_ms() + p->c->server->conf.gone_timeout_ms;
	int n;

	do
		n = poll(f, 2, p->gone ? TICK_MS : -1);
	while ((n == 0 && !p->c->server->stopping && http_now_ms() < until) ||
		(n < 0 && errno == EINTR));
	return n != 0;
}

/* Waits until a step can do something; false when the owner has closed and all is delivered, or
 * does not take what is left of a client that has gone. */
static bool pump_wait(struct pump *p)
{
	struct pollfd f[2] = { { .fd = p->c->fd }, { .fd = p->app } };

	if (!p->in.eof && !p->in.len)
		f[0].events |= POLLIN;
	if (p->out.len)
		f[0].events |= POLLOUT;
	if (!p->out.eof && !p->out.len)
		f[1].events |= POLLIN;
	if (p->in.len)
		f[1].events |= POLLOUT;
	if (!f[0].events && p->gone)
		f[0].fd = -1; /* else it is watched for its hang-up: of an end of its sending alone
				 there is none */
	if (!f[1].events && p->out.len)
		f[1].fd = -1; /* a hang-up there changes nothing before the client has taken the
				 rest */
	if (f[0].events & POLLIN && gnutls_record_check_pending(p->c->tls) > 0)
		return true;
	if (!wait_for(p, f))
		return false;
	if (!p->gone && f[0].revents & (POLLHUP | POLLERR))
		client_gone(p);
	return !(p->out.over && f[1].revents & (POLLHUP | POLLERR));
}

static void pump_run(struct pump *p)
{
	do {
		fill_in(p);
		drain_in(p);
		fill_out(p);
		drain_out(p);
	} while (!(p->in.over && p->out.over) && pump_wait(p));
}

static void send_switch(struct conn *c, const char *protocol)
{
	char head[256];
	int n = snprintf(head, sizeof(head),
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n",
		protocol);

	conn_send(c, head, (size_t)n);
}

/* Returns when the stream is over; the library then finds an answered request and closes. */
static void upgrade_tls(struct http_req *r, const char *protocol, struct upgrade *u)
{
	struct pump *p = calloc(1, sizeof(*p));
	struct http_server *s = r->server;
	int pair[2] = { -1, -1 };
	pthread_t t;

	r->answered = true;
	if (!p || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
		upgrade_drop(u);
		free(p);
		return;
	}
	p->c = r->conn;
	p->app = pair[0];
	u->fd = pair[1];
	r->conn->upgraded = true;
	count(s, 1);
	send_switch(r->conn, protocol);
	if (upgrade_thread(u, false, &t) == 0) {
		pump_run(p);
		shutdown(p->app, SHUT_RDWR);
		pthread_join(t, NULL);
	} else {
		close(pair[1]);
		upgrade_drop(u);
	}
	close(pair[0]);
	free(p);
	count(s, -1);
}

void http_upgrade(struct http_req *r, const char *protocol,
	void (*run)(void *arg, int fd, const void *extra, size_t extra_len), void *arg)
{
	struct upgrade *u = r->answered ? NULL : calloc(1, sizeof(*u));

	if (!u) {
		run(arg, -1, NULL, 0);
		return;
	}
	*u = (struct upgrade){ .run = run, .arg = arg, .server = r->server, .fd = -1 };
	if (r->conn->tls)
		upgrade_tls(r, protocol, u);
	else
		upgrade_plain(r, protocol, u);
}
