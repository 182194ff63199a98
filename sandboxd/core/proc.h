/* SPDX-License-Identifier: MIT */
/* Processes of a sandbox: start, wait, output, input, signals. Records live as long as the
 * sandbox's record; record and output are in a spool (proto/spool.h) of the run folder, which
 * whoever removes the run folder removes with it. A reference to a process does not hold its
 * sandbox: the caller keeps its reference of the sandbox for as long. Every function takes the
 * sandbox's lock itself unless it says otherwise, and may be called from any thread. */
#ifndef SANDBOXD_CORE_PROC_H
#define SANDBOXD_CORE_PROC_H

#include "sandboxd/core/sandbox.h"

#define PROC_EXIT_KILLED 137  /* ended with its sandbox */
#define PROC_EXIT_LOST   (-1) /* ended unseen, or by its time limit */

struct proc;

/* Checks 11.1 in its order (argv, cwd syntax, env) and starts. The caller has entered the sandbox
 * (sandbox_enter), so body, 404 and 409 are settled. *ret is referenced. process.started is
 * recorded. A start that fails leaves nothing behind. */
int proc_start(
	struct sandbox *s, const struct process_body *body, struct proc **ret, struct err *e);
/* By number ("7") or, with process_names, by name; not_found. Works on terminated sandboxes.
 * Referenced. */
int proc_find(struct sandbox *s, const char *pid_or_name, struct proc **ret, struct err *e);
struct proc *proc_ref(struct proc *p);
void proc_unref(struct proc *p); /* NULL is fine */
uint32_t proc_num(const struct proc *p);
bool proc_is_tty(const struct proc *p);
bool proc_exited(struct proc *p, int *ret_code_or_null);
json_t *proc_json(struct proc *p);         /* NULL: out of memory */
json_t *proc_list_json(struct sandbox *s); /* {"processes": [...]}, ascending */

/* What a run answers, as JSON text made while it is sent: the outputs stay in the spool until then.
 */
struct proc_result {
	struct proc *proc; /* referenced */
	int exit_code;
	bool truncated, timed_out;
	uint64_t kept[2];
	char head[128], tail[64];
	uint64_t text_len; /* bytes of the whole text */
};
/* 11.2: checks timeout_secs and tty, starts, waits. The caller has entered the sandbox. gone(arg):
 * has the client left? Then the process is killed and -1 is returned. */
int proc_run(struct sandbox *s, const struct process_body *body, bool (*gone)(void *), void *arg,
	struct proc_result *ret, struct err *e);
/* 1..max bytes of the text at `pos`; 0 at its end. */
size_t proc_result_read(const struct proc_result *r, uint64_t pos, char *buf, size_t max);
void proc_result_fini(struct proc_result *r);

/* The caller has entered the sandbox. conflict: exited, or its input is closed. watch_fd: gives up
 * with sys ECANCELED when the peer closes it; -1: none. */
int proc_stdin(
	struct proc *p, const void *buf, size_t len, bool close_after, int watch_fd, struct err *e);
/* Would proc_stdin refuse at once? */
int proc_stdin_ok(struct proc *p, struct err *e);
/* The caller has entered the sandbox. Without a terminal nothing happens. */
int proc_resize(struct proc *p, uint16_t rows, uint16_t cols, struct err *e);
/* The number of an allowed signal word (INT, TERM, KILL, HUP); invalid_request. */
int proc_signal_number(const char *word, int *ret, struct err *e);
/* To the group; enters the sandbox itself, as an exited process is a success everywhere. */
int proc_signal(struct proc *p, int sig, bool use, struct err *e);

/* A reader at its own pace; one thread uses it, except for kick. */
struct proc_reader {
	struct proc *proc; /* referenced */
	uint64_t pos[2];   /* bytes read of each stream */
	uint32_t run;      /* index in the order table */
	uint64_t in_run;   /* bytes read of that entry */
	bool stop;         /* under the sandbox's lock */
};
void proc_reader_init(struct proc_reader *r, struct proc *p);
void proc_reader_fini(struct proc_reader *r);
/* PROC_READ_DATA: 1..max bytes of one stream, in the order they came. QUIET: nothing for
 * timeout_ms, or kicked. END: all is read and the process has exited, *ret_exit is its code. */
enum proc_read { PROC_READ_QUIET, PROC_READ_DATA, PROC_READ_END };
enum proc_read proc_reader_next(struct proc_reader *r, int timeout_ms, int *ret_stream, char *buf,
	size_t max, size_t *ret_len, int *ret_exit);
/* Skips bytes of the merged order; false when there are not that many (yet). */
bool proc_reader_skip(struct proc_reader *r, uint64_t bytes);
void proc_reader_kick(struct proc_reader *r); /* from another thread: ends a wait, now and later */
bool proc_reader_stopped(struct proc_reader *r); /* was it kicked? */

/* Before anything is read, so that no descriptor left is not taken for no output; unavailable. Holds for as
 * long as the caller's reference. */
int proc_output_open(struct proc *p, struct err *e);
/* Bytes there now of one stream (0, 1) or both (2); *ret_end: there will be no more. */
uint64_t proc_output_size(struct proc *p, int stream, bool *ret_end);
/* Raw bytes of one stream (0 stdout, 1 stderr) at an offset: what is there now (0: none), *ret_end:
 * offset + the answer is the stream's end. */
ssize_t proc_bytes(
	struct proc *p, int stream, uint64_t offset, char *buf, size_t max, bool *ret_end);
/* Waits until the stream is longer than `offset` or complete, at most timeout_ms. */
bool proc_bytes_wait(struct proc *p, int stream, uint64_t offset, int timeout_ms);

/* For the core. */
extern const struct guest_watch proc_watch; /* arg: struct sandbox * */
/* Reads records and spool heads from the run folder; once, before anyone else sees the sandbox.
 * alive: its processes may still run (else those without an exit get PROC_EXIT_LOST). Call it after
 * guest_connect, so that no exit falls between. Fails when the folder or a record cannot be read. */
int proc_restore(struct sandbox *s, bool alive, struct err *e);
void proc_sandbox_ended(struct sandbox *s); /* lock held: everything running becomes 137 */
/* Of too many exited ones the oldest lose output, then record. No lock held. */
void proc_retire(struct sandbox *s);
/* Drops the table; files stay. For a record that is forgotten, and at the end of the server. */
void proc_free_all(struct sandbox *s);

#endif
