/* SPDX-License-Identifier: MIT */
/* Where the server is reached: parsing and opening of addresses. Node contract, 1.1. */
#ifndef SANDBOXD_LISTEN_H
#define SANDBOXD_LISTEN_H

#include "common/base/err.h"

#include <stdbool.h>

#define UNIX_PATH_MAX_LEN 104 /* of the shortest socket address among systems, with its NUL */

struct listen_addr {
	bool is_unix, is_loopback;
	char path[UNIX_PATH_MAX_LEN]; /* unix */
	char host[256], port[8];      /* TCP; an empty host is every address */
};

/* text NULL: $XDG_RUNTIME_DIR/sandboxd.sock, else ~/.config/sandbox/sandboxd.sock. */
int listen_parse(const char *text, struct listen_addr *ret, struct err *e);
/* Bound and listening, close-on-exec. A unix socket is 0600 from its first moment; missing folders
 * above it are made 0700; a stale socket is replaced, anything else at its path is refused. */
int listen_open(const struct listen_addr *a, int *ret_fd, struct err *e);
/* The port that a TCP listener got; 0 for unix. */
unsigned short listen_port(int fd);

#endif
