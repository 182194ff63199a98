/* SPDX-License-Identifier: MIT */
/* The parts of sbx-pull:
 *   main.c   sets up where it works, starts the cells, then gives up all rights
 *   jobs.c   requests from the front; each is one thread that has one cell for one run of the tool
 *   proxy.c  the only way out of the cells' networks, and the rule for addresses
 *   cell.c   a process that starts the tool, one run at a time
 *   root.c   all that a cell sees of the file system
 *   user.c   the user that a cell has for itself
 *   filter.c the system calls of a run
 *   tool.c   the tool's command line, environment and last words
 * The tool (skopeo) talks to strangers, so a run may have come to belong to one. What it can reach is its cell:
 * process ids, mounts, IPC and network of its own, programs and libraries that nobody can change, and the folder of
 * its own work. What it leaves behind, processes and files, is gone before the next run begins there. */
#ifndef SANDBOXD_PULL_PARTS_H
#define SANDBOXD_PULL_PARTS_H

#include "sandboxd/pull/pull.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PULL_FORWARDS 2        /* ports on the host's loopback that one run may reach */
#define PULL_ROOT  "/tmp/pull" /* main and jobs: STATE_DIR/pull; in a cell: what of it is lent to the cell */
#define PULL_CONF  "/tmp/conf" /* in a cell: policy.json, registries.conf, empty folders; root's */
#define PULL_NEW   "/tmp/root" /* where a cell's root is put together */
#define PULL_LENT  ".cell-%d"  /* in pull/: a work's folder lies here while a cell has it */

struct pull_conf {
	bool allow_private;
	int stall_secs;
	int dirfd; /* pull/ */
};

/* --- cell.c, and root.c and user.c for it ----------------------------------------------------- */

struct cell_user {
	uid_t uid;
	gid_t gid;
	bool own; /* nobody else has the uid */
};

struct tool_run {
	enum pull_op op;
	enum pull_source source;
	uint32_t tag;
	bool verify_tls;
	char ref[PULL_REF_MAX];
};
struct cell {
	int num, sock;
	int dirfd; /* pull/.cell-NUM, where the run has no right to write */
};
/* As root, in a process of one thread; the cell becomes the user without rights, whose group is not its caller's. lent:
 * what cell_lent gave, which stays the caller's. *ret_listener: in the cell's network; connections to it say CONNECT first,
 * and it does not block. It ends with its socket, and with the caller's process namespace. 0, or -1 with errno. */
int cell_start(int num, const struct cell_user *u, int lent, struct cell *ret, int *ret_listener);
/* The rest is for whoever has the cell to himself. -errno; -EPIPE: the cell has ended. */
int cell_listen(const struct cell *c, const struct sockaddr_in *at); /* a listener in its network */
int cell_run(const struct cell *c, const struct tool_run *r, int err, int out); /* out -1: none */
int cell_stop(const struct cell *c); /* the run ends soon, by SIGKILL */
/* When its socket is readable: no process of the run is there any more. *ret: its wait status. */
int cell_ended(const struct cell *c, int *ret);

/* In namespaces of its own: the root as it stays, with `lent` at PULL_ROOT. 0, or -1 with the name of what failed and
 * errno. */
int cell_root(int lent, const char **failed);
/* As root: the folder as a mount that is nowhere yet, in which the user has what `front` (and its group) have on the disk. Where the file
 * system cannot shift ids the user becomes the front's instead, and is not its own. The descriptor, or -1 with errno. */
int cell_lent(const char *path, uid_t front, gid_t group, struct cell_user *u);

/* --- filter.c: on the calling process. 0, or -1 with errno ----------------------------------- */

int tool_filter(void);

/* --- main.c ---------------------------------------------------------------------------------- */

/* Rights that nobody gets back; before the first thread. 0, or -1 with errno. */
int pull_prepare_drop(void);
int pull_drop(uid_t uid, gid_t gid); /* libc does this for every thread */

/* --- proxy.c: all descriptors are taken over, and do not block; of cell NUM ------------------- */

int proxy_start(const struct pull_conf *conf);
/* Connections to this listener say CONNECT first. */
int proxy_add(int num, int listener);
/* Connections to this one go to `to` on the host, until proxy_clear. */
int proxy_forward(int num, int listener, const struct sockaddr_in *to);
/* When nobody is in the cell: all that its run had of connections and forwards has ended, half a minute later at the
 * worst. */
void proxy_clear(int num);

/* --- jobs.c: returns when the front has gone -------------------------------------------------- */

void jobs_serve(const struct pull_conf *conf, const struct cell cells[PULL_CELLS]);

/* --- tool.c ---------------------------------------------------------------------------------- */

struct tool {
	char args[24][640];
	const char *argv[25];
	char env_text[12][128];
	const char *env[13];
};
void tool_command(int proxy_port, const struct tool_run *r, struct tool *ret);
/* What the tool's standard error means; text for people. */
enum pull_result tool_verdict(const char *stderr_text, bool had_login, char text[PULL_TEXT_MAX]);
/* Is the registry of this reference a loopback address, and which? Port 0: none was named. */
bool tool_loopback(const char *ref, struct sockaddr_in *ret);

#endif
