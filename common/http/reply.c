/* SPDX-License-Identifier: MIT */
/* Answering one request: whole, as a stream, or by leaving HTTP.
 *
 * The library takes an answer before the first byte of a body and after the last, not between. An
 * answer in between is therefore written to the socket by hand, and the connection ends. */
#include "common/http/internal.h"
#include "common/base/log.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

void http_add_header(struct http_req *r, const char *name, const char *value)
{
	struct header *h = &r->extra[r->nextra];

	if (r->nextra == HTTP_EXTRA_HEADERS)
		return;
	h->name = strdup(name);
	h->value = strdup(value);
	r->nextra++;
}

void http_close_after(struct http_req *r)
{
	r->close_after = true;
}

bool http_answered(const struct http_req *r)
{
	return r->answered;
}

static void queue(struct http_req *r, int status, const char *type, struct MHD_Response *resp)
{
	bool unread = r->phase == PH_HEADER && req_has_body(r);

	r->answered = true;
	if (!resp)
		return;
	if (type)
		MHD_add_response_header(resp, "Content-Type", type);
	for (size_t i = 0; i < r->nextra; i++)
		if (r->extra[i].name && r->extra[i].value)
			MHD_add_response_header(resp, r->extra[i].name, r->extra[i].value);
	if (unread)
		r->linger = true;
	if (unread || r->close_after || r->server->stopping) {
		r->close_after = true;
		MHD_add_response_header(resp, "Connection", "close");
	}
	r->queued = MHD_queue_response(r->mhd, (unsigned)status, resp) == MHD_YES;
	MHD_destroy_response(resp);
}

static void send_all(struct conn *c, const char *buf, size_t len)
{
	while (len > 0) {
		ssize_t n = c->tls ? gnutls_record_send(c->tls, buf, len)
				   : send(c->fd, buf, len, MSG_NOSIGNAL);

		if (n <= 0) {
			struct pollfd p = { .fd = c->fd, .events = POLLOUT };
			bool again = c->tls ? n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED
					    : errno == EAGAIN || errno == EINTR;

			if (!again || poll(&p, 1, 1000) <= 0)
				return;
			continue;
		}
		buf += n;
		len -= (size_t)n;
	}
}

static void send_answer(struct conn *c, unsigned status, const char *type, const void *body,
	size_t len, bool head_only)
{
	char head[512];
	int n = snprintf(head, sizeof(head),
		"HTTP/1.1 %u %s\r\nConnection: close\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n",
		status, MHD_get_reason_phrase_for(status), type, len);

	send_all(c, head, (size_t)n);
	if (!head_only)
		send_all(c, body, len);
	if (c->tls)
		gnutls_bye(c->tls, GNUTLS_SHUT_WR);
}

/* In the middle of a body: the answer by hand. */
static void reply_raw(struct http_req *r, int status, const char *type, const void *body, size_t len)
{
	r->answered = true;
	r->linger = true;
	send_answer(r->conn, (unsigned)status, type ? type : "application/octet-stream", body, len,
		!strcmp(r->method, "HEAD"));
}

void conn_refuse(struct conn *c, unsigned status)
{
	static const char body[] =
		"{\"error\":{\"code\":\"invalid_request\",\"message\":\"malformed HTTP request\"}}";

	send_answer(c, status, "application/json", body, sizeof(body) - 1, false);
}

void http_reply(struct http_req *r, int status, const char *type, const void *body, size_t len)
{
	if (r->answered)
		return;
	if (r->phase == PH_BODY) {
		reply_raw(r, status, type, body, len);
		return;
	}
	queue(r, status, type, MHD_create_response_from_buffer(len, (void *)(uintptr_t)body,
		MHD_RESPMEM_MUST_COPY));
}

void req_refuse(struct http_req *r, int status, const char *word, const char *message)
{
	char body[256];
	int n = snprintf(body, sizeof(body), "{\"error\":{\"code\":\"%s\",\"message\":\"%s\"}}", word,
		message);

	r->close_after = true;
	r->linger = true;
	http_reply(r, status, "application/json", body, (size_t)n);
}

static ssize_t source_read(void *cls, uint64_t pos, char *buf, size_t max)
{
	const struct http_source *src = cls;
	ssize_t n = src->read(src->arg, pos, buf, max);

	if (n > 0)
		return n;
	return n == 0 ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
}

static void source_free(void *cls)
{
	struct http_source *src = cls;

	if (src->done)
		src->done(src->arg);
	free(src);
}

void http_reply_stream(struct http_req *r, int status, const char *type, int64_t length,
	const struct http_source *src)
{
	struct http_source *copy = r->answered || r->phase == PH_BODY ? NULL : malloc(sizeof(*copy));
	struct MHD_Response *resp;

	if (!copy) {
		if (src->done)
			src->done(src->arg);
		return;
	}
	*copy = *src;
	resp = MHD_create_response_from_callback(length < 0 ? MHD_SIZE_UNKNOWN : (uint64_t)length,
		HTTP_BLOCK_BYTES, source_read, copy, source_free);
	if (!resp)
		source_free(copy);
	queue(r, status, type, resp);
}

struct upgrade {
	void (*run)(void *arg, int fd, const void *extra, size_t extra_len);
	void *arg;
	struct http_server *server;
	struct MHD_UpgradeResponseHandle *handle;
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

static void *upgrade_main(void *arg)
{
	struct upgrade *u = arg;
	struct http_server *s = u->server;

	u->run(u->arg, u->fd, u->extra, u->extra_len);
	shutdown(u->fd, SHUT_RDWR);
	MHD_upgrade_action(u->handle, MHD_UPGRADE_ACTION_CLOSE);
	free(u->extra);
	free(u);
	pthread_mutex_lock(&s->lock);
	s->upgrades--;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static int upgrade_thread(struct upgrade *u)
{
	pthread_attr_t attr;
	pthread_t t;
	int rc;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, HTTP_STACK_BYTES);
	rc = pthread_create(&t, &attr, upgrade_main, u);
	pthread_attr_destroy(&attr);
	return rc;
}

/* With TLS the library pumps bytes in the connection's own thread from here on, so the stream's
 * owner always runs in another one. */
static void on_upgrade(void *cls, struct MHD_Connection *connection, void *con_cls, const char *extra,
	size_t extra_len, MHD_socket sock, struct MHD_UpgradeResponseHandle *urh)
{
	struct http_req *r = con_cls;
	struct upgrade *u = steal(r->upgrade);
	int flags = fcntl(sock, F_GETFL);

	(void)cls;
	(void)connection;
	if (flags >= 0)
		fcntl(sock, F_SETFL, flags & ~O_NONBLOCK);
	r->conn->upgraded = true;
	u->fd = sock;
	u->handle = urh;
	u->extra = extra_len ? malloc(extra_len) : NULL;
	if (u->extra)
		memcpy(u->extra, extra, u->extra_len = extra_len);
	pthread_mutex_lock(&u->server->lock);
	u->server->upgrades++;
	pthread_mutex_unlock(&u->server->lock);
	if ((extra_len && !u->extra) || upgrade_thread(u) != 0) {
		log_error("no memory for an upgraded connection");
		pthread_mutex_lock(&u->server->lock);
		u->server->upgrades--;
		pthread_mutex_unlock(&u->server->lock);
		free(u->extra);
		upgrade_drop(u);
		MHD_upgrade_action(urh, MHD_UPGRADE_ACTION_CLOSE);
	}
}

void http_upgrade(struct http_req *r, const char *protocol,
	void (*run)(void *arg, int fd, const void *extra, size_t extra_len), void *arg)
{
	struct upgrade *u = r->answered ? NULL : calloc(1, sizeof(*u));
	struct MHD_Response *resp;

	if (!u) {
		run(arg, -1, NULL, 0);
		return;
	}
	*u = (struct upgrade){ .run = run, .arg = arg, .server = r->server, .fd = -1 };
	r->upgrade = u;
	resp = MHD_create_response_for_upgrade(on_upgrade, NULL);
	if (resp)
		MHD_add_response_header(resp, "Upgrade", protocol);
	queue(r, MHD_HTTP_SWITCHING_PROTOCOLS, NULL, resp);
}
