/* SPDX-License-Identifier: MIT */
/* One running sandbox as the front sees it: the client side of the shim protocol. The same for every
 * backend. What comes back is checked and bounded; a shim that lies, stalls or dies gives an error
 * or `gone`, nothing else. All functions are thread-safe unless said otherwise. */
#ifndef SANDBOXD_BACKEND_GUEST_H
#define SANDBOXD_BACKEND_GUEST_H

#include "common/base/err.h"
#include "sandboxd/proto/proto.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One thread for all sandboxes reads the events and calls these; they must not block. */
struct guest_watch {
	void (*output)(void *arg, uint32_t num); /* more in the spool */
	void (*exited)(void *arg, uint32_t num); /* spool says EXITED, all output before it */
	void (*gone)(void *arg);                 /* the shim is dead; last call for this guest */
};
struct guest_hub;
int guest_hub_new(struct guest_hub **ret, struct err *e);
void guest_hub_free(struct guest_hub *h);

struct guest;
/* Connects to <run_dirfd>/sock. `arg` is handed to the callbacks. */
int guest_connect(struct guest_hub *h, int run_dirfd, const uint8_t secret[PROTO_SECRET_LEN],
	uint64_t generation, const struct guest_watch *watch, void *arg, struct guest **ret,
	struct err *e);
/* After this no callback runs any more (waits for one under way). Calls in other threads must have
 * ended. */
void guest_free(struct guest *g);
/* Ends every call under way with conflict ("sandbox has ended") and refuses new ones. */
void guest_shutdown(struct guest *g);
/* From here on its end is no news. Never waits; any thread, any lock. */
void guest_mute(struct guest *g);

struct guest_start {
	uint32_t num;             /* the server's number of the process */
	const char *const *argv;  /* NULL-terminated; argv[0] is looked up in the process's own PATH */
	const char *const *env;   /* NULL-terminated "K=V", complete */
	const char *cwd;
	bool tty;
	uint16_t rows, cols;      /* 0: 24 x 80 */
	int spool_fd;             /* made by the caller, empty; passed on, stays the caller's */
	const void *stdin_data;   /* written by the shim as the process reads */
	size_t stdin_len;
	bool stdin_open;          /* false: closed after stdin_data */
};
/* Returns when the process has been executed. invalid_request with a message that says which thing
 * was wrong: `command "x": not found`, `… not executable`, `cwd "/no": no such directory`. */
int guest_start(struct guest *g, const struct guest_start *s, struct err *e);
/* To the process group; `tree`: KILL to everything the process has started, setsid or not. An exited
 * process: success without effect. */
int guest_signal(struct guest *g, uint32_t num, int sig, bool tree, struct err *e);
/* Blocks until the process's pipe took all bytes. Gives up with ERR_CONFLICT + sys ECANCELED when
 * watch_fd (a client's socket, or -1) is closed by its peer. conflict when stdin is closed or the
 * process has exited. close: end of input afterwards (^D on a tty). */
int guest_stdin(struct guest *g, uint32_t num, const void *buf, size_t len, bool close_after,
	int watch_fd, struct err *e);
int guest_resize(struct guest *g, uint32_t num, uint16_t rows, uint16_t cols, struct err *e);
/* The shim forgets an exited process (closes its spool). */
int guest_forget(struct guest *g, uint32_t num, struct err *e);
/* Connected socket to 127.0.0.1:port inside; not_found when nobody listens. For tunnels. */
int guest_dial(struct guest *g, uint16_t port, int *ret_fd, struct err *e);
/* A connection that the file worker serves (proto/files.h); pooled by guestfs.c. Caller closes. */
int guest_files_connect(struct guest *g, int *ret_fd, struct err *e);

#endif
