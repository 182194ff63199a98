/* SPDX-License-Identifier: MIT */
/* The server as an object: everything but signals and the command line. Two of them in one process
 * must work; the tests do that. Its life in two steps, so that the second runs without rights:
 *   daemon_prepare  checks every reason not to start, opens files, lock, listener   (maybe as root)
 *   daemon_start    backend, records, HTTP                                          (never as root
 *                                                                                    with linux) */
#ifndef SANDBOXD_DAEMON_H
#define SANDBOXD_DAEMON_H

#include "common/base/err.h"
#include "sandboxd/options.h"

#include <sys/types.h>

struct daemon;
struct core;

/* Options must outlive the daemon. Errors are one sentence for the operator. */
int daemon_prepare(const struct options *o, struct daemon **ret, struct err *e);
/* Root with the linux backend: starts the broker and becomes the server's user. Else nothing. */
int daemon_drop(struct daemon *d, struct err *e);
int daemon_start(struct daemon *d, struct err *e);
/* Stops accepting, gives open requests grace_ms, leaves or ends the sandboxes as the options say;
 * frees. NULL is fine, and so is one that was only prepared. */
void daemon_stop(struct daemon *d, unsigned grace_ms);

int daemon_reload_token(struct daemon *d, struct err *e);
/* resolv.conf may have changed. */
int daemon_reload_resolvers(struct daemon *d, struct err *e);
pid_t daemon_broker(const struct daemon *d); /* 0: none */
struct core *daemon_core(struct daemon *d);
const char *daemon_address(const struct daemon *d); /* "unix:///…" or "127.0.0.1:4711" */

#endif
