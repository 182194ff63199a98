/* SPDX-License-Identifier: MIT */
/* The shim's objects. One thread, one epoll: every object that waits embeds a struct source as its
 * first member. Freeing is put off to the end of a turn, so that events of the same turn never meet
 * freed memory. */
#ifndef SANDBOXD_SHIM_STATE_H
#define SANDBOXD_SHIM_STATE_H

#include "sandboxd/proto/proto.h"
#include "sandboxd/proto/spool.h"
#include "sandboxd/shim/shim.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PROC_BUCKETS 128
#define EXITED_MAX 4096 /* exited processes remembered for a front that does not forget them */
#define DRAINS_MAX 2048
#define CONNS_MAX 512
#define STARTING_MAX 1024 /* starts that init has not answered: it may never do it */
#define CHUNK (64 * 1024)

struct shim;
struct source {
	int fd;
	bool polled;
	void (*ready)(struct shim *s, struct source *src);
	struct source *next_dead;
};

struct proc;
struct conn {
	struct source src;
	struct conn *next, *prev;
	uint32_t kind; /* 0 until the hello */
	size_t got;    /* of hello or frame, then of the body */
	union {
		struct proto_hello hello;
		struct proto_frame frame;
	} in;
	bool in_body;
	char *body;
	size_t body_len;
	int fds[2];
	size_t nfds;
	/* A request under way: exactly one of these keeps the connection busy. */
	bool busy;
	struct proc *start;       /* awaits init's word */
	struct proc *writing;     /* in its queue of writers */
	struct conn *next_writer;
	size_t written;
	struct dial *dial;
};

/* The reading end of a pipe or a terminal. Without a process it is drained and thrown away, so that
 * what a command left in the background never meets a broken pipe. */
struct stream {
	struct source src;
	struct proc *proc;
	int index;
	struct stream *next, *prev; /* drains, oldest last */
};
struct proc {
	struct source in;       /* input, first: the block is found and freed by it */
	struct proc *next;      /* in its bucket */
	struct proc *next_news;
	uint32_t num;
	bool tty, started, exited, orphan; /* orphan: its START was given up */
	bool news, output_news, exit_news;
	bool in_cgroup;
	struct stream *out[2];
	int in_data;            /* file with the first input, or -1 */
	uint64_t in_pos;
	bool in_open;
	struct conn *writers;
	struct conn *starter;
	int spool;
	off_t spool_at; /* where it begins in its file */
	struct spool_head *head;
	int run_stream;         /* of the last run, -1: none or the order is full */
	uint32_t run_len;
};
/* A START that init's socket had no room for yet. */
struct start_job {
	struct start_job *next;
	uint32_t num;
	int fds[6];
	size_t nfds;
	size_t len;
	char msg[];
};

struct shim {
	struct shim_boot boot;
	int epoll;
	struct source listen, init, worker;
	struct source *dead;
	struct conn *conns, *events;
	unsigned nconns;
	bool events_full;       /* events waits for room */
	struct proc *procs[PROC_BUCKETS];
	unsigned nexited, nstarting;
	struct proc *news;
	struct stream *drains, *drains_last;
	unsigned ndrains;
	struct start_job *jobs, **jobs_last;
	uint32_t *cg_left;      /* numbers whose cgroup could not be removed yet */
	size_t ncg_left;
	long oom_kills;
	bool ended;
	char buf[CHUNK];
};

/* main.c */
int source_watch(struct shim *s, struct source *src, uint32_t events);
void source_unwatch(struct shim *s, struct source *src);
void source_close(struct shim *s, struct source *src);
/* Frees the object whose first member is `src` at the end of the turn. */
void source_free(struct shim *s, struct source *src);

/* conn.c */
void conn_accept(struct shim *s, struct source *src);
void conn_close(struct shim *s, struct conn *c);
/* Ends the request under way. fd: -1, or a descriptor to send along (stays the caller's). */
void conn_answer(struct shim *s, struct conn *c, int64_t value, uint16_t flags, int fd);
void events_flush(struct shim *s);

/* calls.c */
void call_dispatch(struct shim *s, struct conn *c);
/* The connection is going: nothing may point to it. */
void call_drop(struct shim *s, struct conn *c);

/* start.c */
void start_call(struct shim *s, struct conn *c);
void start_retry(struct shim *s);

/* initlink.c */
int init_send(struct shim *s, const void *msg, size_t len, const void *more, size_t more_len,
	const int *fds, size_t nfds);
int init_signal(struct shim *s, uint32_t op, uint32_t num, int sig);
void init_ready(struct shim *s, struct source *src);

/* proc.c */
struct proc *proc_find(struct shim *s, uint32_t num);
void proc_add(struct shim *s, struct proc *p);
void proc_free(struct shim *s, struct proc *p);
void proc_news(struct shim *s, struct proc *p, bool exited);
void proc_started(struct shim *s, struct proc *p);
void proc_exited(struct shim *s, struct proc *p, int status);
void proc_exited_all(struct shim *s);
void drain_evict(struct shim *s); /* closes the oldest, if any */
void output_ready(struct shim *s, struct source *src);

/* input.c */
void input_ready(struct shim *s, struct source *src);
void input_pump(struct shim *s, struct proc *p);
void input_close(struct shim *s, struct proc *p);
void input_unqueue(struct conn *c);

/* spool.c */
int spool_open(struct proc *p, int fd); /* takes fd */
void spool_append(struct proc *p, int stream, const char *buf, size_t len);
void spool_exit(struct proc *p, int code, uint32_t flags);
void spool_close(struct proc *p);

/* cgroup.c */
int cgroup_make(struct shim *s, struct proc *p, int *ret_procs_fd);
bool cgroup_kill(struct shim *s, const struct proc *p);
void cgroup_drop(struct shim *s, struct proc *p);
void cgroup_retry(struct shim *s);
long oom_count(const struct shim *s);

#endif
