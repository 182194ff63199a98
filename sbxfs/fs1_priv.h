/* SPDX-License-Identifier: MIT */
/* Inside of sbx-fs/1: what fs1.c (which connection), fs1_conn.c (requests on it), fs1_recv.c (what
 * comes) and fs1_watch.c (what others change) share. */
#ifndef SBXFS_FS1_PRIV_H
#define SBXFS_FS1_PRIV_H

#include "sbxfs/fs1.h"
#include "sbxfs/fs1_frame.h"
#include "sbxfs/remote.h"

#define SLOTS FS_INFLIGHT_MAX
#define FS1_ROOM (64u * 1024) /* input buffer of a connection */

struct slot {
	struct fs1_call *call; /* NULL: nobody waits any more */
	uint64_t tag;          /* 0: free */
	enum files_op op;
	uint64_t arg;          /* WATCH: of fs1_watch.c */
	pthread_cond_t answered;
};
struct fs1_conn {
	/* fixed */
	struct mount *m;
	char box[SBX_ID_MAX];
	int fd;
	atomic_uint_fast64_t epoch; /* never 0, never twice; new when everything is in doubt */
	struct fs_hello hello;
	/* under the lock of struct fs1 */
	struct fs1_conn *next;
	unsigned refs;
	bool listed;

	pthread_mutex_t send;

	pthread_mutex_t lock; /* all below, but what the receiver has for itself */
	pthread_cond_t room;
	struct slot slots[SLOTS];
	unsigned busy, limit;
	uint64_t serial;
	bool dead;
	bool retired; /* nobody new comes; it ends when the last answer is there */
	uint64_t used_ms;
	atomic_uint_fast64_t heard_ms, pushes;

	/* the receiver's own */
	char in[FS1_ROOM];
	size_t in_at, in_len;
};

/* What is known about a sandbox's way. */
struct fs1_box {
	struct fs1_box *next;
	char id[SBX_ID_MAX];
	struct fs1_conn *conn;
	bool opening;
	uint64_t retry_ms, step_ms;
};
struct fs1 {
	struct mount *m;
	pthread_mutex_t lock;
	pthread_cond_t gone; /* a connection was freed */
	/* under lock */
	struct fs1_box *boxes;
	unsigned conns;
	bool stopping;
	uint64_t epochs;
	atomic_uint_fast64_t requests, plain, lost, pushes, changes, refused;
	struct watches *watches;
};

/* fs1.c */
struct fs1_conn *fs1_get(struct req *q, const char *box); /* NULL: the plain way */
void fs1_put(struct fs1_conn *c);
/* The connection is of no use any more: it is not given out, and its receiver ends. */
void fs1_drop(struct fs1_conn *c);

/* fs1_conn.c */
int fs1_say_hello(struct fs1_conn *c);
/* Sends without a caller; `arg` comes back with the answer. 0, or -errno. */
int fs1_send_bare(struct fs1_conn *c, enum files_op op, const struct files_req *r, const char *path,
	uint64_t arg);
void fs1_fail_all(struct fs1_conn *c);

/* fs1_recv.c: the thread. */
void *fs1_receive(void *arg);

/* fs1_watch.c */
int watches_new(struct mount *m, struct watches **ret);
void watches_free(struct watches *w);
/* From the receiver. -EPROTO: it breaks a rule. */
int watches_push(struct fs1_conn *c, const char *buf, size_t len);
void watches_answer(struct fs1_conn *c, uint64_t arg, int64_t value);
/* The connection has ended: what it watched counts no more. */
void watches_end(struct fs1_conn *c);
void watches_doubt(struct fs1_conn *c);
unsigned watches_count(struct watches *w);
void watches_tidy(struct mount *m);

#endif
