/* SPDX-License-Identifier: MIT */
/* A collector of metrics on 127.0.0.1, plain HTTP, that answers well, badly, or not at all, and keeps what
 * was sent to it. */
#ifndef TESTS_SUPPORT_COLLECTOR_H
#define TESTS_SUPPORT_COLLECTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum manner {
	ANSWER_OK,        /* 200 */
	ANSWER_NO_BODY,   /* 204 */
	ANSWER_503,
	ANSWER_REDIRECT,  /* 307 to /elsewhere of the same server */
	ANSWER_NEVER,     /* takes the request and says nothing */
	ANSWER_ENDLESS,   /* 200, and a body without an end */
	ANSWER_SLOW_HEAD, /* a header line every tenth of a second, without an end */
	ANSWER_BIG_HEAD,  /* header lines as fast as they go */
	ANSWER_NONSENSE,  /* no HTTP */
	ANSWER_CLOSE,     /* closes after the request */
};
struct collector;
struct collected {
	char *head;   /* request line and header lines */
	json_t *body; /* inflated and parsed; NULL when that failed */
};

struct collector *collector_new(enum manner m);
void collector_free(struct collector *c);
void collector_set(struct collector *c, enum manner m);
unsigned short collector_port(const struct collector *c);
size_t collector_connections(struct collector *c); /* ever */
size_t collector_count(struct collector *c);       /* requests that came whole */
/* The i-th request; borrowed until collector_free. */
const struct collected *collector_get(struct collector *c, size_t i);

#endif
