/* SPDX-License-Identifier: MIT */
/* What the files of libsbx share: the handle, its pool of connections and the filling of errors.
 * Nothing here is exported. */
#ifndef CLIENT_LIB_INTERNAL_H
#define CLIENT_LIB_INTERNAL_H

#include "client/include/sbx.h"
#include "common/json/json.h"

#include <curl/curl.h>
#include <pthread.h>

#define SBX_IDLE_SECS      60 /* then a kept-alive connection is closed */
#define SBX_POOL_IDLE      16 /* kept-alive connections, most */
#define SBX_TOKEN_MAX      4096
#define SBX_HEADERS_MAX    (64 * 1024) /* of one answer, interim ones included */
#define SBX_ERROR_BODY_MAX (64 * 1024)
#define SBX_JSON_MAX       (16 * 1024 * 1024) /* a buffered answer that is not a file */
#define SBX_RAW_MAX        (64 * 1024 * 1024) /* a buffered file */

/* One connection, of the transport that the endpoint asks for. */
struct conn {
	/* TCP and TLS: the easy handle holds at most one socket, the multi handle drives it, so
	 * that a waiting call can be asked every 100 ms whether it is still wanted. NULL until
	 * used. */
	CURLM *multi;
	CURL *easy;
	/* unix socket: in[at..len) came and was not used yet */
	int fd;
	char *in;
	size_t at, len;
	int64_t idle_since_ms;
	struct conn *next;
};

struct sbx {
	/* fixed after sbx_open */
	char *endpoint;    /* as shown to people */
	char *base;        /* "http://localhost", "https://host:port" */
	char *socket_path; /* unix endpoints, else NULL */
	char *ca_file, *token_file;
	bool tls;
	int connect_timeout_ms, timeout_ms;
	/* under lock */
	pthread_mutex_t lock;
	char *token; /* NULL: none */
	struct conn *idle;
	unsigned n_idle;
};

/* options.c */
int sbx_resolve(const struct sbx_options *opt, struct sbx *s, struct sbx_error *e);
/* Reads the token file, or SBX_TOKEN when there is none. *ret is owned, NULL without a token. */
int sbx_read_token(const char *token_file, char **ret, struct sbx_error *e);

/* pool.c */
struct conn *sbx_conn_take(struct sbx *s);
/* `keep`: the connection is in a known state and may serve another call. */
void sbx_conn_give(struct sbx *s, struct conn *c, bool keep);
void sbx_conn_free(struct conn *c);
/* Sets what every easy handle of this endpoint needs. */
void sbx_easy_setup(const struct sbx *s, CURL *easy);
/* path.c: an absolute path without spaces, control bytes and fragment, fit for a request line. */
bool sbx_path_ok(const char *path);

/* error.c: all return -1; `e` may be NULL. */
int sbx_fail(struct sbx_error *e, const char *code, int sys, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* From a non-2xx answer. */
int sbx_fail_answer(struct sbx_error *e, int status, const char *body, size_t len);
/* From a transfer that gave no usable answer. `sent`: the request went out, at least in part. */
int sbx_fail_curl(struct sbx_error *e, const struct sbx *s, CURLcode rc, long os_errno, bool sent);
/* An answer that is not what the API promises. */
int sbx_fail_shape(struct sbx_error *e, const char *what);
/* Copies text for a terminal: control bytes become \xNN, broken UTF-8 "?". Always terminated. */
void sbx_printable(const char *in, size_t len, char *out, size_t size);

/* A growing buffer with a most; used for bodies. */
struct sbx_buf {
	char *data;
	size_t len, room, max;
};
/* false: over its most, or out of memory. Keeps a NUL behind the data. */
bool sbx_buf_add(struct sbx_buf *b, const void *p, size_t n);

#endif
