/* SPDX-License-Identifier: MIT */
/* A thin face of the HTTP server library, so that nothing above names it. A thread a connection;
 * handlers block and read top to bottom. */
#ifndef COMMON_HTTP_HTTP_H
#define COMMON_HTTP_HTTP_H

#include "common/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct http_server;
struct http_req; /* one request; valid until its handler's answer has been sent */

/* What the layer above gives. `begin` runs when the header is complete, before any "100 Continue"
 * and before the body: it may answer (then the body is skipped or the connection closed) or set the
 * most bytes a body may have and return. `data` gets the body in pieces, in order. `end` runs when
 * the whole body has arrived and must answer. `gone` runs once for each request that `begin` saw,
 * after the answer (after the end of the stream that followed a 101) or when the client left early
 * (complete == false: what was begun must be undone). All of one request run on one thread, but for
 * the `gone` of a stream. */
struct http_app {
	void *arg;
	void (*begin)(void *arg, struct http_req *r);
	void (*data)(void *arg, struct http_req *r, const void *buf, size_t len);
	void (*end)(void *arg, struct http_req *r);
	void (*gone)(void *arg, struct http_req *r, bool complete);
};
struct http_conf {
	int listen_fd; /* bound and listening; the server takes it */
	const char *tls_cert_pem, *tls_key_pem, *client_ca_pem; /* contents; NULL: no TLS */
	unsigned max_connections;   /* beyond: idle strangers are closed, else 503 and close */
	unsigned header_timeout_ms; /* whole header, from the first moment of the connection */
	unsigned idle_timeout_ms;   /* kept-alive connection without a request */
	unsigned body_timeout_ms;   /* a body that does not move */
	unsigned gone_timeout_ms;   /* TLS, after a 101: what a client that has gone had sent does not move */
};
int http_server_start(const struct http_conf *conf, const struct http_app *app,
	struct http_server **ret, struct err *e);
/* Stops accepting, waits up to grace_ms for open requests, then cuts them; returns when all threads
 * are gone. */
void http_server_stop(struct http_server *s, unsigned grace_ms);

/* The request. Strings are borrowed until the answer is sent. */
const char *http_method(const struct http_req *r);
const char *http_path(const struct http_req *r); /* raw: neither decoded nor with the query */
/* n-th (from 0) value of a query key, percent-decoded once ("+" stays a plus); NULL when absent.
 * *ret_len counts bytes, a value may hold NUL. *ret_bad: an escape is broken. */
const char *http_query(
	struct http_req *r, const char *key, size_t n, size_t *ret_len, bool *ret_bad);
const char *http_header(const struct http_req *r, const char *name); /* first value or NULL */
size_t http_header_count(const struct http_req *r, const char *name);
int64_t http_content_length(const struct http_req *r); /* -1: chunked; 0: none */
void http_set_body_max(struct http_req *r, uint64_t max);
void *http_ctx(const struct http_req *r); /* the app's own pointer for this request */
void http_set_ctx(struct http_req *r, void *ctx);
/* True when the client has closed or reset the connection (half-close counts). Never blocks. */
bool http_client_gone(const struct http_req *r);
int http_client_fd(const struct http_req *r); /* for poll(POLLRDHUP) only */

/* The answer: exactly one of these for each request. Header lines first. */
bool http_answered(const struct http_req *r);
void http_add_header(struct http_req *r, const char *name, const char *value);
void http_close_after(struct http_req *r); /* Connection: close */
/* The client has shown who it is: its connection is not given up for another's. */
void http_trust(struct http_req *r);
/* This answer has no end of its own: a stop of the server cuts it at once. After the reply. */
void http_cut_at_stop(struct http_req *r);
void http_reply(struct http_req *r, int status, const char *type, const void *body, size_t len);
/* Streaming answer; length -1: chunked. `read` blocks until it has 1..max bytes, 0 ends the body
 * well, -1 cuts the connection. `done` always runs once, on the same thread. */
struct http_source {
	void *arg;
	ssize_t (*read)(void *arg, uint64_t pos, char *buf, size_t max);
	void (*done)(void *arg);
};
void http_reply_stream(struct http_req *r, int status, const char *type, int64_t length,
	const struct http_source *src);
/* 101 with `Connection: Upgrade` and the protocol. `run` is called exactly once, on a thread of its
 * own; it owns the stream until it returns, then the connection is closed. `extra` are bytes the
 * client sent behind its header (over TLS a client has to wait for the 101 before it sends). fd -1:
 * the client left first; only `arg` is to be released. The stream is blocking; once the server
 * stops, reads on it give 0. */
void http_upgrade(struct http_req *r, const char *protocol,
	void (*run)(void *arg, int fd, const void *extra, size_t extra_len), void *arg);

#endif
