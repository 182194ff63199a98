/* SPDX-License-Identifier: MIT */
/* One call while it is under way. A transport moves the bytes; what an answer may be, how large,
 * and whether anyone still waits for it is decided here, so that it is the same for every
 * transport. */
#ifndef CLIENT_LIB_EXCHANGE_H
#define CLIENT_LIB_EXCHANGE_H

#include "client/lib/internal.h"

struct exchange {
	struct sbx *s;
	const struct sbx_request *q;
	struct sbx_response *r;
	bool has_body;
	bool safe; /* GET, HEAD: may be sent again */
	/* what happened so far */
	bool sent;          /* the request went out, at least in part */
	bool stopped;       /* on_data said enough */
	bool gave_up;       /* on_read said -1 */
	bool header_done;   /* the blank line came: a cut header is not an answer */
	bool raw;           /* the body is a file's bytes */
	const char *broken; /* the answer breaks a limit: which */
	int os_errno;       /* of a connection that could not be made */
	int status;
	size_t header_bytes;
	struct sbx_buf body;
	int64_t moved_ms; /* when a byte moved last */
	int64_t start_ms;
};

int64_t sbx_now_ms(void);
void exchange_begin(struct exchange *x);
/* A line of the header, with or without its line end; false: the header is over its limit. Lines
 * before the status is known, or of an interim answer, only count. */
bool exchange_header(struct exchange *x, const char *line, size_t len);
/* A piece of the body; false: enough (stopped) or too much (broken). */
bool exchange_body(struct exchange *x, const void *buf, size_t len);
/* As sbx_request.on_read; -1 sets gave_up. */
ssize_t exchange_upload(struct exchange *x, void *buf, size_t max);
/* Is the call still wanted, and does the server still speak? CURLE_OK: go on. */
CURLcode exchange_watch(struct exchange *x);
/* How long a transport may wait before it must ask exchange_watch again. */
int exchange_slice_ms(const struct exchange *x);
int exchange_timeout_ms(const struct exchange *x); /* -1: none */

/* A transport: one request on c's connection, made when there is none. The result uses the transfer
 * library's codes. *ret_keep: the connection may serve another call. */
typedef CURLcode transport(struct exchange *x, struct conn *c, bool *ret_keep);
transport sbx_curl_transport, sbx_unix_transport;
/* The parsing half of the unix transport: one answer from the connected c->fd. */
CURLcode sbx_unix_answer(struct exchange *x, struct conn *c);

#endif
