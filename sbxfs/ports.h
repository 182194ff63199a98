/* SPDX-License-Identifier: MIT */
/* Ports of sandboxes as sockets of this host: ports/N/socket, and on request a loopback port. Each
 * connection is a tunnel of its own. They belong to this mount and end with rmdir, with their sandbox
 * and with the mount. */
#ifndef SBXFS_PORTS_H
#define SBXFS_PORTS_H

#include "sbxfs/mount.h"

int ports_new(struct mount *m, struct ports **ret);
/* Closes everything and waits until no thread is left; may be called twice. */
void ports_stop(struct ports *p);
void ports_free(struct ports *p); /* NULL is fine */

/* "8080" -> 8080; 0 for anything that is not a plain port. */
int port_of_word(const char *word);
/* -EEXIST, or the words why it cannot be made here. Costs nothing in the sandbox. */
int port_make(struct req *q, const char *box, int number);
int port_remove(struct mount *m, const char *box, int number); /* -ENOENT */
/* The n-th port of a sandbox; 0: no more. */
int port_nth(struct mount *m, const char *box, size_t n);
void ports_forget_box(struct mount *m, const char *box);

/* Listens on 127.0.0.1 as well; want 0: any free port. */
int port_tcp(struct req *q, const char *box, int number, int want);

struct port_view {
	char path[108]; /* of the socket */
	int tcp;        /* loopback port; 0: none */
	unsigned open;
	uint64_t connections;
	char error[200]; /* why the last connection failed; "" when it did not */
};
int port_view(struct mount *m, const char *box, int number, struct port_view *ret); /* -ENOENT */

#endif
