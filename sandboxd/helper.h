/* SPDX-License-Identifier: MIT */
/* How the server starts the programs beside it, sbx-priv and sbx-pull: before it gives up its rights and
 * while it still has one thread. */
#ifndef SANDBOXD_HELPER_H
#define SANDBOXD_HELPER_H

#include <sys/types.h>

#define HELPER_FD_FRONT 3 /* its end of the socket to the server */
#define HELPER_FD_STATE 4 /* the state directory */

struct helper {
	const char *program;     /* absolute */
	const char *const *argv; /* NULL-terminated */
	char *const *env;        /* all that it gets */
	int state_dirfd;
};
/* Forks and executes; *ret_sock is our end of a SOCK_SEQPACKET pair. The child has a session of its own (a
 * terminal's ^C is for the server, which tells it by closing the socket), no blocked signals, and only these
 * descriptors beside 0 to 2. The child's pid, or -errno. */
pid_t helper_start(const struct helper *h, int *ret_sock);

#endif
