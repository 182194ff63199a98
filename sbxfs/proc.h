/* SPDX-License-Identifier: MIT */
/* Processes as directories: drafts and names that this mount keeps, and the server's numbers. */
#ifndef SBXFS_PROC_H
#define SBXFS_PROC_H

#include "sbxfs/mount.h"

/* A directory made by mkdir. Copied out and in; pid 0: not started. */
struct draft_proc {
	char box[SBX_ID_MAX], name[64];
	int64_t pid;
	bool starting;
	char *cmd, *cwd, *argv; /* argv: argv_len bytes, words ended by NUL */
	size_t argv_len;
	json_t *env;            /* object, NULL when none */
	bool tty;
};

int procs_new(struct procs **ret);
void procs_free(struct procs *p);

int process_make(struct req *q, const char *box, const char *name);
/* Number behind a directory's name; 0: a draft. -ENOENT when this mount knows no such name. */
int process_pid(struct req *q, const char *box, const char *name, int64_t *ret_pid);
/* Name that this mount gave to a number; false: none. */
bool process_alias(struct req *q, const char *box, int64_t pid, char *ret_name, size_t size);
bool process_is_hidden(struct req *q, const char *box, int64_t pid);
/* n-th local name of a sandbox; false: no more. */
bool process_nth(struct req *q, const char *box, size_t n, char *ret_name, size_t size, int64_t *ret_pid);
/* rmdir: kills it while it runs and drops the name (of a number: hides it here). */
int process_remove(struct req *q, const char *box, const char *name);
int process_rename(struct req *q, const char *box, const char *name, const char *to);
/* Forgets everything about a sandbox that ended. */
void process_forget_box(struct mount *m, const char *box);

/* Changes a draft under the lock; -EBUSY once it was started. */
int process_edit(struct req *q, const char *box, const char *name,
	int (*edit)(struct req *q, struct draft_proc *d, const char *value, size_t len),
	const char *value, size_t len);
/* Reads a draft under the lock. */
int process_view(struct req *q, const char *box, const char *name,
	void (*view)(const struct draft_proc *d, void *arg), void *arg);
int process_start_draft(struct req *q, const char *box, const char *name);

/* The server's object of a process. */
int process_object(struct req *q, const char *box, int64_t pid, json_t **ret);
int process_signal(struct req *q, const char *box, int64_t pid, const char *signal);
/* POST .../processes; body is taken. */
int process_start(struct req *q, const char *box, json_t *body, int64_t *ret_pid);
/* Waits for the end; q->patient decides about interrupts. */
int process_wait(struct req *q, const char *box, int64_t pid, int *ret_exit);

/* last: number of the last `run` of a user in a sandbox, 0: none. */
int64_t process_last(struct mount *m, const char *box, uid_t uid);
void process_set_last(struct mount *m, const char *box, uid_t uid, int64_t pid);

/* "17" -> 17; 0 for anything that is not a plain number from 1 on. */
int64_t pid_of_word(const char *word);

#endif
