/* SPDX-License-Identifier: MIT */
/* An HTTP client for tests that hides nothing: bytes out, one answer in. Every wait has a deadline
 * of 20 s; what fails, fails the test. */
#ifndef TESTS_SUPPORT_HTTPC_H
#define TESTS_SUPPORT_HTTPC_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct answer {
	int status; /* 0: the server closed without an answer */
	char *head; /* status line and header lines, NUL-terminated */
	char *body; /* NUL-terminated for convenience */
	size_t len;
};

int httpc_unix(const char *path);   /* connected socket */
int httpc_tcp(unsigned short port); /* 127.0.0.1 */
void httpc_send(int fd, const char *text);
void httpc_send_bytes(int fd, const void *buf, size_t len); /* stops early when the peer closes */
/* One whole answer: by Content-Length, chunks or end of stream. 100 and 101 have no body. */
struct answer httpc_answer(int fd);
/* As above for a HEAD request: no body follows. */
struct answer httpc_answer_head(int fd);
/* Only status line and headers; what follows is read with httpc_line or recv. */
struct answer httpc_head(int fd);
/* One line of a chunked NDJSON stream, parsed; NULL at its end. Caller owns. Use on one stream with
 * one `state`, zeroed before the first call, and httpc_stream_free at the end. */
struct httpc_stream {
	char *buf;
	size_t len, size;
	bool ended;
};
json_t *httpc_line(int fd, struct httpc_stream *st);
void httpc_stream_free(struct httpc_stream *st);
/* True when the peer closes (or resets) within ms without sending anything more. */
bool httpc_closed(int fd, int ms);
/* True when nothing arrives and nothing closes for ms. */
bool httpc_silent(int fd, int ms);
/* Value of a header line, copied into buf; NULL when absent. */
const char *answer_header(const struct answer *a, const char *name, char *buf, size_t size);
json_t *answer_json(const struct answer *a); /* caller owns; fails the test when it is not JSON */
void answer_free(struct answer *a);
#define _cleanup_answer_ __attribute__((cleanup(answer_free)))

/* Asserts status and error.code (code NULL: status only). */
#define assert_answer(a, want_status, want_code)                                                   \
	answer_check((a), (want_status), (want_code), __FILE__, __LINE__)
void answer_check(const struct answer *a, int status, const char *code, const char *file, int line);

#endif
