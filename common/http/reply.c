/* SPDX-License-Identifier: MIT */
/* Answering one request, whole or as a stream.
 *
 * The library takes an answer before the first byte of a body and after the last, not between. An
 * answer in between is therefore written to the socket by hand, and the connection ends. */
#include "common/base/log.h"
#include "common/http/internal.h"
#include "common/sys/mem.h"

#include <errno.h>
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

void req_queue(struct http_req *r, int status, const char *type, struct MHD_Response *resp)
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

void conn_send(struct conn *c, const char *buf, size_t len)
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

	conn_send(c, head, (size_t)n);
	if (!head_only)
		conn_send(c, body, len);
	if (c->tls)
		gnutls_bye(c->tls, GNUTLS_SHUT_WR);
}

/* In the middle of a body: the answer by hand. */
static void reply_raw(
	struct http_req *r, int status, const char *type, const void *body, size_t len)
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

void conn_turn_away(struct conn *c)
{
	static const char body[] =
		"{\"error\":{\"code\":\"unavailable\",\"message\":\"too many connections\"}}";
	char answer[256];
	int n = snprintf(answer, sizeof(answer),
		"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"
		"Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
		sizeof(body) - 1, body);

	if (!c->tls) /* its session is another thread's */
		(void)send(c->fd, answer, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* A whole answer is taken within the time of a body, and a second for each 64 KiB. */
static void await_reader(struct http_req *r, size_t len)
{
	conn_waits(r->conn, r->server->conf.body_timeout_ms + (unsigned)(len / 64),
		TURN_ANSWER);
}

void http_reply(struct http_req *r, int status, const char *type, const void *body, size_t len)
{
	if (r->answered)
		return;
	if (r->phase == PH_BODY) {
		reply_raw(r, status, type, body, len);
		return;
	}
	req_queue(r, status, type,
		MHD_create_response_from_buffer(
			len, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY));
	if (r->queued)
		await_reader(r, len);
}

void req_refuse(struct http_req *r, int status, const char *word, const char *message)
{
	char body[256];
	int n = snprintf(body, sizeof(body), "{\"error\":{\"code\":\"%s\",\"message\":\"%s\"}}",
		word, message);

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
	struct http_source *copy =
		r->answered || r->phase == PH_BODY ? NULL : malloc(sizeof(*copy));
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
	else if (length < 0 && !strcmp(r->method, "HEAD"))
		/* Else the library ends the chunks that it has not sent, where the next answer
		 * would begin. */
		MHD_set_response_options(resp, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
	req_queue(r, status, type, resp);
}
