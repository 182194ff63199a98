/* SPDX-License-Identifier: MIT */
/* struct proc and what the files of the process module share. Not for others. */
#ifndef SANDBOXD_CORE_PROC_INTERNAL_H
#define SANDBOXD_CORE_PROC_INTERNAL_H

/* Before anything that includes uthash: no memory for the table is an answer, not an exit(); keys
 * are small numbers in a row. */
#define HASH_NONFATAL_OOM             1
#define HASH_FUNCTION(key, len, hash) ((hash) = *(const uint32_t *)(key)*2654435761u)
#include "sandboxd/core/proc.h"
#include "sandboxd/proto/spool.h"

#define PROC_ARGV_MOST (16u << 20) /* bytes of the arguments of all that run in a sandbox */

enum proc_state { PROC_STARTING, PROC_RUNNING, PROC_EXITED };

struct proc {
	/* fixed once it is in the table */
	struct sandbox *sandbox; /* borrowed */
	uint32_t num;
	bool tty;
	char *name;         /* NULL: none */
	char **argv;        /* NULL-terminated */
	size_t argv_bytes;  /* that it takes */
	int64_t started_ns; /* CLOCK_REALTIME */

	/* under the sandbox's lock */
	unsigned refs; /* the table's included */
	bool listed;   /* in the table */
	enum proc_state state;
	int exit_code;
	int64_t ended_ns;
	bool timed_out; /* its exit code is then -1 */
	bool stdin_closed;
	bool output_lost;  /* dropped by the retention rule */
	bool start_logged; /* process.started comes before process.exited, whoever is first */
	bool exit_logged;
	uint64_t output_seq;   /* counts news of output */
	int spool_fd;          /* open while it runs or somebody holds a reference; else -1 */
	pthread_cond_t output; /* news of output, or exited */
	pthread_cond_t exited;
	UT_hash_handle hh; /* s->procs, in the order of numbers */
};

/* proc.c: with the lock held, except for proc_new and proc_note_exit */
struct proc *proc_new(struct sandbox *s);
bool proc_argv_fits(const struct proc *p);
bool proc_insert(struct proc *p); /* the table has a reference too; false: no memory */
void proc_remove(struct proc *p); /* caller still holds a reference of its own */
struct proc *proc_by_num(struct sandbox *s, uint32_t num);
struct proc *proc_by_name(struct sandbox *s, const char *name);
void proc_mark_exited(struct proc *p, int code, int64_t ended_ns);
void proc_tell_exited(struct proc *p);   /* wakes who waits; better without the lock */
void proc_count_down(struct sandbox *s); /* one process less keeps the sandbox busy */
/* Waits on a condition of the process, at most until then (clock_mono_ms); false: it has passed. */
bool proc_wait(struct proc *p, pthread_cond_t *cond, int64_t until_ms);
void proc_note_exit(struct sandbox *s, uint32_t num); /* lock not held: the spool says EXITED */

/* proc_spool.c: no lock needed. All use p->spool_fd, which is open as long as the caller holds a
 * reference and proc_spool() gave it. */
void spool_file_name(uint32_t num, char out[24]);
off_t spool_at(uint32_t num); /* where its spool begins in that file */
/* Gives the process its spool, with the record in it. */
int spool_create(const struct proc *p, const char *cwd, int *ret_fd, struct err *e);
void spool_clear(const struct proc *p); /* it was never a process */
void spool_free(const struct proc *p);  /* and gives the blocks back */
/* A consistent copy of the head, every number checked and cut to its bounds; -1: not a spool. */
int spool_head_read(const struct proc *p, struct spool_head *ret);
/* The order table's entry at `i`; false: cannot be read. */
bool spool_order_read(const struct proc *p, uint32_t i, uint32_t *ret, uint32_t n);
/* Up to `len` bytes of a stream that are known to be there; bytes a shim took back read as 0. */
void spool_data_read(const struct proc *p, int stream, uint64_t offset, void *buf, size_t len);
/* The record: JSON object and flags of struct spool_meta. */
int spool_meta_read(const struct proc *p, json_t **ret, uint32_t *ret_noted);
void spool_note(const struct proc *p, uint32_t noted);
/* Gives the output's blocks back, keeps head and record. */
void spool_drop_output(const struct proc *p);
/* The process's spool, opened again when need be; -1: it is gone. Valid while the caller holds a
 * reference. Takes the lock. */
int proc_spool(struct proc *p);

/* proc_audit.c: no lock needed */
void proc_log_started(struct proc *p, const struct process_body *body);
void proc_log_exited(struct proc *p);

/* proc_keep.c: no lock held */
bool proc_too_heavy(struct sandbox *s); /* exited ones have arguments beyond what is kept */

/* proc_start.c: proc_start with a choice of what happens to standard input behind body->stdin. */
int proc_launch(struct sandbox *s, const struct process_body *body, bool stdin_open,
	struct proc **ret, struct err *e);
/* proc_run.c: the result as it is now; takes the caller's reference. */
void proc_result_of(struct proc_result *r, struct proc *p);
/* proc_env.c. Names of a request: an illegal one is 400 and comes first, a reserved one 403. */
int proc_env_check(const struct strmap *env, struct err *e);
/* NULL-terminated "K=V" list, complete; one block, free() it. NULL: out of memory. */
char **proc_env_build(const struct sandbox *s, const struct strmap *env, bool tty);

#endif
