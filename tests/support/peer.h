/* SPDX-License-Identifier: MIT */
/* A server that misbehaves on purpose: a unix socket whose connections a test answers byte by byte.
 */
#ifndef TESTS_SUPPORT_PEER_H
#define TESTS_SUPPORT_PEER_H

#include <stdbool.h>
#include <stddef.h>

struct peer;
/* Runs in a thread for each connection; nth counts them from 0. The peer closes fd afterwards. */
typedef void (*peer_serve)(int fd, int nth, void *arg);
struct peer *peer_start(peer_serve serve, void *arg);
void peer_stop(struct peer *p);                  /* cuts what is open and joins all threads */
const char *peer_endpoint(const struct peer *p); /* unix:///... */
const char *peer_url(const struct peer *p);      /* the same server on TCP: http://127.0.0.1:... */
int peer_connections(struct peer *p);            /* accepted so far */

/* Reads one request, its Content-Length or chunked body included; the text is in buf,
 * NUL-terminated. False: the client closed. */
bool peer_request(int fd, char *buf, size_t size);
void peer_say(int fd, const char *text);
#endif
