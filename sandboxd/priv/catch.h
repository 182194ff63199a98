/* SPDX-License-Identifier: MIT */
/* Catching what the guest sends away, inside its own network namespace: every address of the world
 * is made one of the loopback's own, for TCP and for name queries, and the sockets that those end
 * at are opened here. They keep the namespace they were born in, whoever reads them. Anything else
 * that is sent away has no route. */
#ifndef SANDBOXD_PRIV_CATCH_H
#define SANDBOXD_PRIV_CATCH_H

#include "sandboxd/priv/sys.h"

struct catcher {
	int tcp, dns_tcp, dns_udp;
	int link; /* keeps the socket lookup program in place; -1: the redirect does the work */
};
#define CATCHER_NULL                                                                               \
	{                                                                                          \
		-1, -1, -1, -1                                                                     \
	}
/* The caller is in the namespace, as host root. -EADDRINUSE: another catcher is still there. */
int catch_open(struct catcher *c, struct fail *f);
/* Connects to the other side of the world, and sees it arrive here. */
int catch_test(const struct catcher *c, struct fail *f);
void catch_close(struct catcher *c);
/* The fallback's rules (catch_redirect.c), towards the listener's port: 0 or -errno. */
int catch_redirect(uint16_t port);

#endif
