/* SPDX-License-Identifier: MIT */
/* Processes of a sandbox: start, wait, output, input, signals. Records live as long as the sandbox's
 * record; output is in the spool file <run dir>/p<num>. */
#ifndef SANDBOXD_CORE_PROC_H
#define SANDBOXD_CORE_PROC_H

#include "sandboxd/core/sandbox.h"

struct proc;

/* Checks 11.1 (argv, cwd syntax, env; run adds its own) and starts. *ret is referenced.
 * process.started is recorded. */
int proc_start(struct sandbox *s, const struct process_body *body, bool is_run, struct proc **ret,
	struct err *e);
/* By number ("7") or, with process_names, by name. Works on terminated sandboxes. Referenced. */
int proc_find(struct sandbox *s, const char *pid_or_name, struct proc **ret, struct err *e);
void proc_unref(struct proc *p);
json_t *proc_json(struct proc *p);
json_t *proc_list_json(struct sandbox *s);

/* 11.2. gone(arg): has the client left? Then the process is killed and -1 is returned. */
int proc_run(struct sandbox *s, const struct process_body *body, bool (*gone)(void *), void *arg,
	json_t **ret_result, struct err *e);
int proc_stdin(struct proc *p, const void *buf, size_t len, bool close_after, int watch_fd,
	struct err *e);
int proc_signal(struct proc *p, const char *name, struct err *e);
int proc_resize(struct proc *p, uint16_t rows, uint16_t cols, struct err *e);

/* A reader at its own pace. next: 1 a chunk (1..max bytes of one stream), 0 nothing for timeout_ms,
 * 2 ended (all output read, *ret_exit valid), -1 the record is gone. */
struct proc_reader {
	struct proc *proc; /* referenced */
	uint64_t pos[2];
	uint32_t run;      /* index in the order table */
	uint64_t in_run;
};
void proc_reader_init(struct proc_reader *r, struct proc *p);
void proc_reader_fini(struct proc_reader *r);
int proc_reader_next(struct proc_reader *r, int timeout_ms, int *ret_stream, char *buf, size_t max,
	size_t *ret_len, int *ret_exit);
/* Raw bytes of one stream (0 stdout, 1 stderr) at an offset: bytes now there (0: none), *ret_end:
 * the stream is complete. */
ssize_t proc_bytes(struct proc *p, int stream, uint64_t offset, char *buf, size_t max, bool *ret_end);

/* For the core: events of the hub, take back after a restart, drop all at the end. */
extern const struct guest_watch proc_watch;      /* arg: struct sandbox * */
int proc_restore(struct sandbox *s, struct err *e); /* reads records and spool heads */
void proc_sandbox_ended(struct sandbox *s);      /* lock held: everything running becomes 137 */
void proc_free_all(struct sandbox *s);           /* the record is being forgotten */

#endif
