/* SPDX-License-Identifier: MIT */
/* libsbx: the Sandbox API v1 from C. Functions return 0, or -1 with *e filled. A `struct sbx` may be
 * used by many threads at once; each call takes a kept-alive connection from its pool. */
#ifndef SBX_H
#define SBX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SBX_API __attribute__((visibility("default")))

/* What went wrong. */
struct sbx_error {
	int status;       /* HTTP status of the answer; 0: there was no answer */
	int sys;          /* errno: the server's error.errno, else by the table of sbxfs(1); EHOSTDOWN,
	                     ETIMEDOUT, EINTR, EPROTO when there was no usable answer */
	bool sent;        /* no answer, and the request may have been carried out */
	char code[32];    /* "conflict"; "unreachable", "timeout", "interrupted", "protocol" here */
	char message[400];/* printable: control bytes are escaped */
};

/* Where the server is. Zero members are taken from SBX_ENDPOINT, SBX_TOKEN or SBX_TOKEN_FILE, SBX_CA,
 * then from the server's defaults. Strings are copied. */
struct sbx_options {
	const char *endpoint;   /* unix:///path, https://host:port, http://127.0.0.1:port */
	const char *token_file; /* must not be readable by group or other */
	const char *ca_file;
	int connect_timeout_ms; /* 0: 5000 */
	int timeout_ms;         /* whole call without a body stream; 0: 30000; -1: none */
};
struct sbx;
SBX_API int sbx_open(const struct sbx_options *opt, struct sbx **ret, struct sbx_error *e);
SBX_API void sbx_close(struct sbx *s);
SBX_API const char *sbx_endpoint(const struct sbx *s);
SBX_API int sbx_reload_token(struct sbx *s, struct sbx_error *e); /* SIGHUP */

/* One request. `path` is raw (already encoded, with its query); sbx_path() builds one. */
struct sbx_request {
	const char *method, *path;
	const void *body;
	size_t body_len;
	const char *body_type;      /* NULL: application/json when there is a body */
	bool background;            /* sends Sandbox-Background: 1 */
	int timeout_ms;             /* 0: the handle's, -1: none */
	const char *const *headers; /* "Name: value", NULL-terminated, may be NULL */
	/* Asked about every 100 ms while it waits; true ends the call with EINTR. May be NULL. */
	bool (*cancelled)(void *arg);
	/* When given, a 2xx body goes here in pieces instead of into the response; false stops the
	 * call (which then succeeds). The timeout is then one of silence. */
	bool (*on_data)(void *arg, const void *buf, size_t len);
	void *arg;
	/* When given, the body is read from here instead: bytes, 0 at the end, -1 to give up. */
	ssize_t (*on_read)(void *arg, void *buf, size_t max);
};
struct sbx_response {
	int status;
	char *body;                 /* NUL-terminated; sbx_response_free */
	size_t len;
	char etag[80], attr[1024];  /* ETag, Sbx-Attr */
	char instance[40];
	int64_t first_offset;       /* Sbx-First-Offset, -1: absent */
};
/* A non-2xx answer is an error. Safe requests (GET, HEAD) that meet a dead kept-alive connection are
 * sent once more; nothing else ever is. */
SBX_API int sbx_call(struct sbx *s, const struct sbx_request *q, struct sbx_response *ret,
	struct sbx_error *e);
SBX_API void sbx_response_free(struct sbx_response *r);

/* "/v1/sandboxes/" + ref + "/files?path=" + path …: each %s argument is percent-encoded as one
 * segment or query value, %S (a query path) keeps slashes, %d and %lld are numbers. Caller frees; NULL: out of memory. */
SBX_API char *sbx_path(const char *fmt, ...);

/* sbx-stream/1 and sbx-tunnel/1: *ret_fd is a blocking stream; over TLS a thread of the library
 * copies. Caller closes. */
SBX_API int sbx_upgrade(struct sbx *s, const char *path, const char *protocol, bool background,
	int *ret_fd, struct sbx_error *e);
#define SBX_FRAME_MAX 1048576
/* Frames of sbx-stream/1. read: 1 a frame (payload in buf, at least SBX_FRAME_MAX bytes), 0 the end,
 * -1 broken. */
SBX_API int sbx_frame_read(int fd, char *ret_type, void *buf, size_t *ret_len);
SBX_API int sbx_frame_write(int fd, char type, const void *buf, size_t len);

#ifdef __cplusplus
}
#endif
#endif
