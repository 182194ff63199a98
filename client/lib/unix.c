/* SPDX-License-Identifier: MIT */
/* The transport over a unix socket: HTTP/1.1 by hand. It is there because the mount and short
 * commands pay for every microsecond of a call and every library of a start; the conversation is
 * with one known server, and the parser below accepts what that server says and little more. */
#include "client/lib/exchange.h"

#include "client/lib/wire.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define UPLOAD_PIECE 65536

/* The conversation's state beside the exchange. */
struct talk {
	struct exchange *x;
	struct conn *c;
	bool fresh;    /* this connection has served no call before */
	bool answered; /* a byte of the answer came */
	bool all_sent;
	bool chunked, close;
	int64_t length; /* of the body; -1: until the end of the connection */
};

/* Waits for events within the call's limits. CURLE_OK: some of them came. */
static CURLcode wait_io(struct talk *t, short events, short *ret)
{
	struct pollfd p = { .fd = t->c->fd, .events = events };

	for (;;) {
		int n = poll(&p, 1, exchange_slice_ms(t->x));
		CURLcode rc;
		if (n > 0) {
			*ret = p.revents;
			return CURLE_OK;
		}
		rc = exchange_watch(t->x);
		if (rc != CURLE_OK)
			return rc;
	}
}

/* Sends all of iov. An answer that comes meanwhile ends it early: the server has made up its mind.
 */
static CURLcode send_iov(struct talk *t, struct iovec *iov, int n, bool *ret_early)
{
	while (n > 0) {
		struct msghdr m = { .msg_iov = iov, .msg_iovlen = (size_t)n };
		ssize_t sent = sendmsg(t->c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
		short got = 0;
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && errno == EAGAIN) {
			CURLcode rc = wait_io(t, POLLOUT | POLLIN, &got);
			if (rc != CURLE_OK)
				return rc;
			if ((got & POLLIN) && !(got & POLLOUT)) {
				*ret_early = true;
				return CURLE_OK;
			}
			continue;
		}
		if (sent < 0)
			return CURLE_SEND_ERROR;
		t->x->sent = true;
		t->x->moved_ms = sbx_now_ms();
		for (; n > 0 && (size_t)sent >= iov->iov_len; iov++, n--)
			sent -= (ssize_t)iov->iov_len;
		if (n > 0) {
			iov->iov_base = (char *)iov->iov_base + sent;
			iov->iov_len -= (size_t)sent;
		}
	}
	return CURLE_OK;
}

static CURLcode send_stream(struct talk *t, bool *ret_early)
{
	bool chunked = !t->x->q->body_len;
	size_t left = t->x->q->body_len;
	_cleanup_free_ char *buf = malloc(UPLOAD_PIECE);
	CURLcode rc = buf ? CURLE_OK : CURLE_OUT_OF_MEMORY;

	while (rc == CURLE_OK && !*ret_early && (chunked || left > 0)) {
		char head[24], tail[] = "\r\n";
		ssize_t n = exchange_upload(
			t->x, buf, chunked || left > UPLOAD_PIECE ? UPLOAD_PIECE : left);
		if (n < 0)
			return CURLE_ABORTED_BY_CALLBACK;
		if (n == 0 && !chunked) { /* less than was announced */
			t->x->gave_up = true;
			return CURLE_ABORTED_BY_CALLBACK;
		}
		left -= chunked ? 0 : (size_t)n;
		/* The last chunk has a length of zero and the blank line behind it. */
		struct iovec iov[3] = { { head, (size_t)snprintf(
							head, sizeof(head), "%zx\r\n", (size_t)n) },
			{ buf, (size_t)n }, { tail, 2 } };
		rc = chunked ? send_iov(t, iov, 3, ret_early) : send_iov(t, iov + 1, 1, ret_early);
		if (n == 0)
			break;
	}
	return rc;
}

static CURLcode send_request(struct talk *t)
{
	const struct sbx_request *q = t->x->q;
	struct sbx_buf head = { .max = WIRE_HEAD_MAX };
	bool early = false;
	CURLcode rc;

	if (!wire_head(t->x->s, q, NULL, &head)) {
		free(head.data);
		return CURLE_OUT_OF_MEMORY;
	}
	struct iovec iov[2] = { { head.data, head.len },
		{ (void *)(uintptr_t)q->body, q->on_read ? 0 : q->body_len } };
	rc = send_iov(t, iov, iov[1].iov_len ? 2 : 1, &early);
	if (rc == CURLE_OK && !early && q->on_read)
		rc = send_stream(t, &early);
	t->all_sent = rc == CURLE_OK && !early;
	explicit_bzero(head.data, head.len);
	free(head.data);
	return rc;
}

/* Gets more bytes behind those in the connection's buffer. CURLE_GOT_NOTHING: the end. */
static CURLcode fill(struct talk *t)
{
	struct conn *c = t->c;

	if (c->at > 0) {
		memmove(c->in, c->in + c->at, c->len - c->at);
		c->len -= c->at;
		c->at = 0;
	}
	for (;;) {
		short got;
		ssize_t n;
		/* Before the first byte there is nothing to take yet; later there mostly is. */
		CURLcode rc = t->answered ? CURLE_OK : wait_io(t, POLLIN, &got);
		if (rc != CURLE_OK)
			return rc;
		if (c->len == WIRE_IN)
			return CURLE_WEIRD_SERVER_REPLY;
		n = recv(c->fd, c->in + c->len, WIRE_IN - c->len, MSG_DONTWAIT);
		if (n > 0) {
			c->len += (size_t)n;
			t->answered = true;
			return CURLE_OK;
		}
		if (n == 0)
			return CURLE_GOT_NOTHING;
		if (errno != EAGAIN && errno != EINTR)
			return CURLE_RECV_ERROR;
		rc = wait_io(t, POLLIN, &got);
		if (rc != CURLE_OK)
			return rc;
	}
}

/* One line, its end left out; borrowed until the next call. */
static CURLcode read_line(struct talk *t, char **ret, size_t *ret_len)
{
	struct conn *c = t->c;
	size_t seen = 0;

	for (;;) {
		char *from = c->in + c->at, *nl = memchr(from + seen, '\n', c->len - c->at - seen);
		if (nl) {
			*ret = from;
			*ret_len = (size_t)(nl - from);
			c->at += *ret_len + 1;
			if (*ret_len && nl[-1] == '\r')
				(*ret_len)--;
			from[*ret_len] = '\0';
			return CURLE_OK;
		}
		seen = c->len - c->at;
		CURLcode rc = fill(t);
		if (rc != CURLE_OK)
			return rc == CURLE_GOT_NOTHING && t->answered ? CURLE_RECV_ERROR : rc;
	}
}

/* What decides how the body ends. */
static bool take_framing(struct talk *t, const char *line)
{
	char *end;

	if (!strncasecmp(line, "transfer-encoding:", 18)) {
		t->chunked = !strcasecmp(line + 18 + strspn(line + 18, " \t"), "chunked");
		return t->chunked;
	}
	if (!strncasecmp(line, "content-length:", 15)) {
		const char *v = line + 15 + strspn(line + 15, " \t");
		int64_t n;
		errno = 0;
		n = strtoll(v, &end, 10);
		end += strspn(end, " \t");
		if (*v < '0' || *v > '9' || *end || errno || (t->length >= 0 && t->length != n))
			return false;
		t->length = n;
	}
	if (!strncasecmp(line, "connection:", 11) && strcasestr(line + 11, "close"))
		t->close = true;
	return true;
}

/* The header of one answer, interim or not. */
static CURLcode read_header(struct talk *t)
{
	char *line;
	size_t len;
	CURLcode rc = read_line(t, &line, &len);

	if (rc != CURLE_OK)
		return rc;
	t->x->status = wire_status(line);
	if (!t->x->status)
		return CURLE_WEIRD_SERVER_REPLY;
	t->chunked = false;
	t->length = -1;
	t->close = !strncmp(line, "HTTP/1.0", 8);
	do {
		/* Counts the line's end too. */
		if (!exchange_header(t->x, line, len + 2))
			return CURLE_WRITE_ERROR;
		rc = read_line(t, &line, &len);
		if (rc == CURLE_OK && len && !take_framing(t, line))
			rc = CURLE_WEIRD_SERVER_REPLY;
	} while (rc == CURLE_OK && len);
	if (rc == CURLE_OK && !exchange_header(t->x, "", 0))
		rc = CURLE_WRITE_ERROR;
	return rc;
}

/* Exactly n bytes of body, or with -1 all until the end. */
static CURLcode read_bytes(struct talk *t, int64_t n)
{
	struct conn *c = t->c;

	while (n != 0) {
		size_t have = c->len - c->at;
		if (have == 0) {
			CURLcode rc = fill(t);
			if (rc == CURLE_GOT_NOTHING && n < 0)
				return CURLE_OK;
			if (rc != CURLE_OK)
				return rc == CURLE_GOT_NOTHING ? CURLE_PARTIAL_FILE : rc;
			continue;
		}
		if (n > 0 && have > (uint64_t)n)
			have = (size_t)n;
		if (!exchange_body(t->x, c->in + c->at, have))
			return CURLE_WRITE_ERROR;
		c->at += have;
		n -= n > 0 ? (int64_t)have : 0;
		CURLcode rc = exchange_watch(
			t->x); /* a body that drips must not outlast the call's time */
		if (rc != CURLE_OK)
			return rc;
	}
	return CURLE_OK;
}

static CURLcode read_chunks(struct talk *t)
{
	for (;;) {
		char *line, *end;
		size_t len;
		unsigned long long n;
		CURLcode rc = read_line(t, &line, &len);
		if (rc != CURLE_OK)
			return rc;
		errno = 0;
		n = strtoull(line, &end, 16);
		if (!wire_is_hex(*line) || errno || n > INT64_MAX ||
			(*end && *end != ';' && *end != ' '))
			return CURLE_RECV_ERROR;
		if (n == 0)
			break;
		rc = read_bytes(t, (int64_t)n);
		if (rc == CURLE_OK)
			rc = read_line(t, &line, &len);
		if (rc != CURLE_OK)
			return rc;
		if (len)
			return CURLE_RECV_ERROR;
	}
	for (;;) { /* trailers count as header bytes */
		char *line;
		size_t len;
		CURLcode rc = read_line(t, &line, &len);
		if (rc != CURLE_OK || !len)
			return rc;
		t->x->header_bytes += len + 2;
		if (t->x->header_bytes > SBX_HEADERS_MAX)
			return CURLE_RECV_ERROR;
	}
}

static CURLcode read_answer(struct talk *t)
{
	CURLcode rc;
	int status;

	do {
		rc = read_header(t);
		if (rc == CURLE_OK && t->x->status < 200)
			rc = t->x->status == 101 ? CURLE_WEIRD_SERVER_REPLY : exchange_watch(t->x);
	} while (rc == CURLE_OK && t->x->status < 200);
	if (rc != CURLE_OK)
		return rc;
	status = t->x->status;
	if (status == 204 || status == 304 || !strcmp(t->x->q->method, "HEAD"))
		return CURLE_OK;
	if (t->chunked)
		return read_chunks(t);
	if (t->length < 0)
		t->close = true;
	return read_bytes(t, t->length);
}

CURLcode sbx_unix_answer(struct exchange *x, struct conn *c)
{
	struct talk t = { .x = x, .c = c };

	if (!c->in && !(c->in = malloc(WIRE_IN)))
		return CURLE_OUT_OF_MEMORY;
	return read_answer(&t);
}

/* A kept-alive connection on which something waits is not ours any more: the server has closed it,
 * or it speaks out of turn. */
static bool stale(const struct conn *c)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN | POLLRDHUP };

	return poll(&p, 1, 0) != 0;
}

static CURLcode ready(struct talk *t)
{
	struct conn *c = t->c;

	if (c->fd >= 0 && stale(c)) {
		close(c->fd);
		c->fd = -1;
	}
	t->fresh = c->fd < 0;
	if (!c->in && !(c->in = malloc(WIRE_IN)))
		return CURLE_OUT_OF_MEMORY;
	c->at = c->len = 0;
	if (t->fresh) {
		c->fd = wire_connect(t->x->s, t->x->q->cancelled, t->x->q->arg);
		if (c->fd < 0) {
			t->x->os_errno = -c->fd;
			c->fd = -1;
			return t->x->os_errno == EINTR       ? CURLE_ABORTED_BY_CALLBACK
			       : t->x->os_errno == ETIMEDOUT ? CURLE_OPERATION_TIMEDOUT
							     : CURLE_COULDNT_CONNECT;
		}
	}
	return CURLE_OK;
}

static CURLcode converse(struct talk *t)
{
	CURLcode rc = ready(t);

	if (rc == CURLE_OK)
		rc = send_request(t);
	/* A server that refuses early may have answered before it closed. */
	if (rc == CURLE_OK || rc == CURLE_SEND_ERROR) {
		CURLcode answer = read_answer(t);
		rc = rc == CURLE_OK || answer == CURLE_OK || t->x->broken || t->x->stopped ? answer
											   : rc;
	}
	return rc;
}

static bool died_unheard(const struct talk *t, CURLcode rc)
{
	return !t->answered &&
	       (rc == CURLE_GOT_NOTHING || rc == CURLE_RECV_ERROR || rc == CURLE_SEND_ERROR);
}

CURLcode sbx_unix_transport(struct exchange *x, struct conn *c, bool *ret_keep)
{
	struct talk t = { .x = x, .c = c };
	CURLcode rc = converse(&t);

	if (x->safe && !t.fresh && died_unheard(&t, rc)) {
		close(c->fd);
		c->fd = -1;
		t = (struct talk){ .x = x, .c = c };
		rc = converse(&t);
	}
	*ret_keep = rc == CURLE_OK && t.all_sent && !t.close && c->at == c->len;
	return rc;
}
