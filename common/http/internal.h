/* SPDX-License-Identifier: MIT */
/* Shared by the files of this folder: the server, its connections, one request.
 *
 * A connection has a deadline. While it waits for something the client owes (a header, a body, the
 * next request, that it takes an answer) the deadline is a moment; while our own code works for it
 * there is none. One sweeper thread shuts down the sockets whose moment has passed, so that a slow
 * client costs no more than its own thread, and for a bounded time.
 *
 * When all places are taken, strangers make room for who comes: first who has asked for nothing yet,
 * then who asks for nothing now, then who does not take an answer. The application says who is none
 * (http_trust). So those without a token cannot keep out those with one. */
#ifndef COMMON_HTTP_INTERNAL_H
#define COMMON_HTTP_INTERNAL_H

#include "common/http/http.h"

#include <gnutls/gnutls.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#define HTTP_POOL_BYTES        (128 * 1024) /* a connection's header and read buffer */
#define HTTP_STACK_BYTES       (512 * 1024)
#define HTTP_BLOCK_BYTES       (256 * 1024) /* piece of a streaming answer of known length */
#define HTTP_LINGER_BYTES      (64u << 20)  /* of a refused body, read and thrown away */
#define HTTP_LINGER_MS         3000
#define HTTP_EXTRA_HEADERS     16
#define HTTP_SPARE_CONNECTIONS 64 /* beyond max_connections: these get their 503 */

/* Whose turn it is, and so whether the connection may be given up. */
enum turn {
	TURN_OURS,    /* and the client's while it sends a body, if it is no stranger: kept */
	TURN_HEADER,  /* the client's: a header, the first or the next; a stranger's body */
	TURN_ANSWER,  /* the client's: to take an answer that lies ready */
	TURN_EVICTED, /* for good: its thread does nothing but end it */
};
struct conn {
	struct http_server *server;
	int fd;               /* closed by the library after its CLOSED notice */
	gnutls_session_t tls; /* NULL without TLS */
	bool over_limit, upgraded;
	_Atomic int64_t deadline_ms; /* CLOCK_MONOTONIC; 0: none */
	_Atomic int turn;
	_Atomic bool served;         /* it has got an answer */
	_Atomic bool trusted;        /* never evicted */
	_Atomic bool endless;        /* the answer has no end: cut when the server stops */
	pthread_t thread;            /* set with the first request line */
	_Atomic bool has_thread;
	struct conn *prev, *next; /* under server->lock */
};

struct http_server {
	struct MHD_Daemon *mhd;
	struct http_app app;
	struct http_conf conf;
	pthread_t sweeper;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* CLOCK_MONOTONIC */
	/* under lock */
	struct conn *conns;
	unsigned nconns, evicted, open, upgrades;
	bool quit, sweeper_sleeps;
	_Atomic bool stopping;
	int64_t full_told_ms; /* the thread's that lets in */
};

enum phase { PH_HEADER, PH_BODY, PH_END };

struct header {
	char *name, *value;
};
struct text {
	struct text *next;
	char data[];
};
struct upgrade;

struct http_req {
	struct http_server *server;
	struct conn *conn;
	struct MHD_Connection *mhd;
	const char *method;
	char *target;      /* as sent, cut up; owned */
	size_t target_len; /* as sent */
	const char *path;  /* raw, in target */
	const char *query; /* raw, behind the '?', in target; NULL: none */
	char *authority;   /* of a target in absolute form; owned, or NULL */
	enum phase phase;
	bool http10, begun, answered, queued, close_after, linger;
	int64_t content_length;
	uint64_t body_max, body_seen;
	void *ctx;
	struct header extra[HTTP_EXTRA_HEADERS];
	size_t nextra;
	struct text *texts;      /* decoded query values handed out */
	struct upgrade *upgrade; /* until its stream exists */
	bool streams;            /* left HTTP: the stream's owner says `gone`, not the library */
	_Atomic unsigned refs;   /* the library's, and the stream's */
};

int64_t http_now_ms(void);
bool conn_busy(struct conn *c); /* our turn: no deadline; false when it was evicted */
void conn_waits(struct conn *c, unsigned ms, enum turn turn);
/* Tells why the header's lines are not what other readers would see, NULL when they are. */
bool req_lines_known(void); /* can this version of the library be looked at so? Else it is told to be strict */
const char *req_lines_fault(const struct http_req *r, const char *url, const char *version);
/* Tells why the header's framing is unsafe, NULL when it is sound. */
const char *req_framing_fault(struct http_req *r);
bool req_has_body(const struct http_req *r);
struct http_req *req_new(
	struct http_server *s, struct conn *c, struct MHD_Connection *mhd, const char *uri);
void req_unref(struct http_req *r);
void req_gone(struct http_req *r, bool complete); /* tells the application, if it ever saw it */
/* Hands the response to the library, with the headers that were added; takes it. */
void req_queue(struct http_req *r, int status, const char *type, struct MHD_Response *resp);
/* Writes past the library; gives up when the client does not read. */
void conn_send(struct conn *c, const char *buf, size_t len);
/* The contract's error shape, for what is refused before the application has seen it. */
void req_refuse(struct http_req *r, int status, const char *word, const char *message);
/* The answer to what the library itself refuses, written past it. */
void conn_refuse(struct conn *c, unsigned status);
/* To one that has sent nothing yet, from another thread; does not wait. */
void conn_turn_away(struct conn *c);
/* Reads and drops what the client still sends, so that it reads our answer and not a reset. */
void conn_linger(struct conn *c);
/* The request is over: lets the upgrade's owner release its argument if it never ran. */
void upgrade_drop(struct upgrade *u);

#endif
