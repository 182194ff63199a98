/* SPDX-License-Identifier: MIT */
/* What the first bytes of a connection say about where it goes: the server name of a TLS hello, the
 * host of each HTTP/1 request. Pure functions over hostile bytes. They are strict where two readers
 * could understand a message in two ways: what a server might take for another request than we do
 * is refused. */
#ifndef SANDBOXD_EGRESS_HEAD_H
#define SANDBOXD_EGRESS_HEAD_H

#include "sandboxd/proto/egress.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HELLO_MAX (5 + 16384)
#define HEAD_MAX  32768

enum sniff { SNIFF_MORE, SNIFF_TLS, SNIFF_HTTP, SNIFF_OTHER };
enum sniff sniff(const uint8_t *b, size_t n);

struct hello {
	char name[EGRESS_NAME_MAX + 1]; /* cleaned; "": none given */
	bool hidden; /* carries an encrypted hello: the real name may be another */
};
/* 1: read; 0: more bytes are needed; -EINVAL: not one whole, plain hello. */
int hello_parse(const uint8_t *b, size_t n, struct hello *ret);

enum http_phase { HTTP_HEAD, HTTP_BODY, HTTP_CHUNK, HTTP_CHUNK_DATA, HTTP_CHUNK_END, HTTP_TRAILER };
/* Where a request stream stands between two calls. */
struct http {
	enum http_phase phase;
	uint64_t left;     /* bytes of the body or of the chunk */
	unsigned requests; /* heads seen */
	size_t scanned;    /* of a head that is not whole yet: its end is not in there */
};
enum upgrade { UPGRADE_NONE, UPGRADE_WEBSOCKET, UPGRADE_OTHER };
struct http_head {
	bool seen;                      /* there was one */
	char name[EGRESS_NAME_MAX + 1]; /* cleaned; "": it names an address */
	uint16_t port;                  /* CONNECT's */
	bool connect;
	enum upgrade upgrade;
};
/* Looks at b: how many of its bytes belong to what is already known, 0: more are needed, -errno: to
 * be refused (-EMSGSIZE: too large; -EINVAL). When a head was among them *head is filled, and the
 * bytes end with it. stop_at_head: the next request is not looked at yet. */
int64_t http_feed(
	struct http *h, const uint8_t *b, size_t n, bool stop_at_head, struct http_head *head);
/* Bytes of a body that may pass unseen; http_skip takes so many of them. */
uint64_t http_body_left(const struct http *h);
void http_skip(struct http *h, uint64_t n);

#endif
