/* SPDX-License-Identifier: MIT */
/* A whole daemon for a test: temporary state directory, unix socket. With the fake backend it runs inside
 * the test program (the server's code is the product's; only main() is missing); with the linux one it is
 * the program itself, as it gives up its rights for good. */
#ifndef TESTS_SUPPORT_RIG_H
#define TESTS_SUPPORT_RIG_H

#include "tests/support/httpc.h"

#include <jansson.h>
#include <sys/types.h>

struct core;
struct rig_conf {
	const char *token;       /* NULL: none */
	const char *policy;      /* text of a policy file; NULL: built in */
	const char *const *args; /* further flags of sandboxd, NULL-terminated */
	bool linux_backend;      /* needs root: see rig_linux_missing */
};
struct rig {
	char dir[64];       /* temporary folder, removed by rig_free */
	char state[96];     /* state directory */
	char sock[96];      /* unix socket */
	char endpoint[112]; /* unix:///… */
	char token[80];     /* "" when there is none */
	struct rig_conf conf;
	struct rig_inside *in;
};

/* Both fail the test when the server does not start. conf may be NULL. */
struct rig *rig_new(const struct rig_conf *conf);
/* Ends all sandboxes, the server, and removes the folder. */
void rig_free(struct rig *r);
/* Stops the server and starts it on the same state; sandboxes live on unless conf.args say
 * otherwise. */
void rig_restart(struct rig *r);
void rig_stop(struct rig *r);
void rig_start(struct rig *r);
struct core *rig_core(struct rig *r); /* fake backend only */
/* Sentence why the linux backend cannot be tested here, or NULL. */
const char *rig_linux_missing(void);
void rig_kill(struct rig *r); /* linux backend only: kill -9 of the server; rig_start follows */
pid_t rig_pid(struct rig *r); /* the same */

/* One request on a connection of its own. body NULL: none. type NULL: application/json. Host and
 * token are added; `headers` are further lines, each with \r\n, or NULL. */
struct answer rig_send(struct rig *r, const char *method, const char *path, const char *headers,
	const char *type, const void *body, size_t len);
/* Sends only the request (for streams and half requests); the caller reads and closes the socket.
 */
int rig_open(struct rig *r, const char *method, const char *path, const char *headers,
	const char *type, const void *body, size_t len);
/* JSON text in, JSON out; asserts the status. NULL for an empty answer. Caller owns the value. */
json_t *rig_json(struct rig *r, const char *method, const char *path, const char *body, int status);
/* Asserts a refusal: status and code. */
void rig_refuses(struct rig *r, const char *method, const char *path, const char *body, int status,
	const char *code);
/* A running sandbox from a create body ("{}" when NULL); its id is borrowed until rig_free. */
const char *rig_sandbox(struct rig *r, const char *body);
/* Formats into one of eight rotating buffers: rig_path("/v1/sandboxes/%s/run", id). */
const char *rig_path(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Runs `sh -c text` in a sandbox; returns its exit code, *ret_out (caller frees) its stdout. */
int rig_sh(struct rig *r, const char *id, const char *text, char **ret_out);
/* Status alone; headers and body may be NULL. */
int rig_status(
	struct rig *r, const char *method, const char *path, const char *headers, const char *body);
bool rig_in_state(struct rig *r, const char *ref, const char *state);
void rig_end(struct rig *r, const char *ref); /* DELETE, which must be 204 */
/* How often an event of a type is in a sandbox's log with this reason; NULL: without one. */
int rig_events(struct rig *r, const char *ref, const char *type, const char *reason);
void rig_pause(int ms);
/* Calls fn until it is true; fails the test after ms. */
void rig_wait(bool (*fn)(void *arg), void *arg, int ms);

#endif
