/* SPDX-License-Identifier: MIT */
/* Inside of sbx-fs/1: what fs1.c (which connection), fs1_open.c and fs1_hello.c (how it begins), fs1_conn.c
 * (requests on it), fs1_wait.c (who reads), fs1_park.c (what nobody waits for), fs1_recv.c (what comes) and
 * fs1_watch.c (what others change) share. */
#ifndef SBXFS_FS1_PRIV_H
#define SBXFS_FS1_PRIV_H

#include "sbxfs/fs1.h"
#include "sbxfs/fs1_frame.h"
#include "sbxfs/remote.h"

#include "common/sys/spin.h"

#define SLOTS FS_INFLIGHT_MAX
#define FS1_LOOK_MS 100 /* between two looks at interrupts and deadlines */
#define FS1_TIMEOUT_MS 10000
#define FS1_SEND_MS 10000 /* without a byte that goes */
#define FS1_STEP_MAX 5000 /* milliseconds between two attempts to open one */
#define FS1_PATIENCE 4 /* times the timeout, while the peer answers others */
#define FS1_PIECES 24 /* of CHUNK bytes, in the shared memory of a connection */
#define FS1_SHARES 4  /* connections of a mount that have some */
#define FS1_ROOM (64u * 1024) /* input buffer of a connection */

struct slot {
	struct fs1_call *call; /* NULL: nobody waits any more */
	uint64_t tag;          /* 0: free */
	enum files_op op;
	uint64_t arg;          /* WATCH: of fs1_watch.c */
	unsigned held;         /* shared memory that the peer may still use, of fs1_share.c */
	pthread_cond_t answered;
};
/* The frame that is being read. */
struct incoming {
	bool begun; /* f and r are there */
	struct fs_frame f;
	struct files_rep r;
	size_t got;            /* of its data */
	struct fs1_call *call; /* that waits for it, being filled; changed under the lock */
	uint64_t arg;
	char *push; /* its data, when it is one; owned */
};
struct fs1_conn {
	/* fixed */
	struct mount *m;
	char box[SBX_ID_MAX];
	int fd, ep; /* ep waits for fd */
	atomic_uint_fast64_t epoch; /* never 0, never twice; new when everything is in doubt */
	struct fs_hello hello;
	struct {
		int fd;
		char *base; /* NULL: nothing is shared */
		atomic_uint refs[FS1_PIECES];
		atomic_bool there[FS1_PIECES];
	} share;
	/* under the lock of struct fs1 */
	struct fs1_conn *next;
	bool listed;

	atomic_uint refs; /* taken under that lock, or by who has one */

	pthread_mutex_t send;

	pthread_mutex_t lock; /* all below, but what the reader has for itself */
	bool reading; /* somebody does */
	bool armed;   /* the connection's own thread does when something comes */
	bool broken;  /* nobody reads any more */
	unsigned waiters;
	atomic_uint parked; /* calls under way that nobody waits for; changed under the lock */
	pthread_cond_t room;
	struct slot slots[SLOTS];
	unsigned busy, limit;
	uint64_t serial;
	bool dead;
	bool retired; /* nobody new comes; it ends when the last answer is there */
	uint64_t used_ms;
	atomic_uint_fast64_t heard_ms; /* its last answer, or a part of one */
	atomic_uint_fast64_t pushes;
	atomic_uint_fast64_t deaf_until_ms; /* what it watches is not asked for, and not heard */
	bool unwatched; /* under the watches' lock: it has ended, and its watches with it */

	/* the reader's own */
	uint64_t doubt_ms;
	unsigned doubts; /* since then */
	struct spin spin;
	struct incoming cur;
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
	pthread_cond_t gone; /* a connection was freed, or an attempt to open one has ended */
	/* under lock */
	struct fs1_box *boxes;
	unsigned conns, opening;
	bool stopping;
	uint64_t epochs;
	atomic_uint shares;
	atomic_uint parked; /* of all connections, until they have ended */
	atomic_uint_fast64_t requests, plain, lost, pushes, changes, refused, unwatched, doubted;
	struct watches *watches;
};

/* fs1.c */
struct fs1_conn *fs1_get(struct req *q, const char *box); /* NULL: the plain way */
void fs1_put(struct fs1_conn *c);
/* The connection is of no use any more: it is not given out, and its receiver ends. */
void fs1_drop(struct fs1_conn *c);
/* The same, for a while: its peer does not answer. */
void fs1_shun(struct fs1_conn *c);
/* Lock of struct fs1 held. */
struct fs1_box *fs1_box_find(struct fs1 *f, const char *id);

/* fs1_open.c; lock of struct fs1 held: */
/* The box is marked as being opened, or this is a failure like others. */
void fs1_open_begin(struct fs1 *f, struct fs1_box *b);
/* For a moment until it is decided. What was found before may be gone afterwards. */
struct fs1_box *fs1_open_wait(struct req *q, struct fs1 *f, const char *box);

/* fs1_hello.c */
int fs1_say_hello(struct fs1_conn *c);

/* fs1_conn.c */
/* A path as long as this? c: NULL for the plain way. */
bool fs1_takes(const struct fs1_conn *c, const char *path);
/* Sends without a caller; `arg` comes back with the answer. 0; -EBUSY: not sent, no answer will come;
 * other -errno: the connection ends. */
int fs1_send_bare(struct fs1_conn *c, enum files_op op, const struct files_req *r, const char *path,
	uint64_t arg);
void fs1_fail_all(struct fs1_conn *c);
/* As fs1_begin; `reads`: the caller's thread will, if nobody does. */
int fs1_begin_for(struct req *q, const char *box, struct fs1_call *c, bool reads);

/* fs1_wait.c; lock held: */
bool fs1_start_reading(struct fs1_conn *c); /* false: somebody does, or it cannot be */
void fs1_abandon(struct fs1_conn *c, struct fs1_call *call);
bool fs1_expired(const struct fs1_conn *c, const struct fs1_call *call);
/* Not held; rc: what the last step gave. */
void fs1_stop_reading(struct fs1_conn *c, int rc);
void fs1_let_read(struct fs1_conn *c, struct fs1_call *call); /* if call does, it does no more */
/* The next frame, or part of it, as fs1_step gives it, after up to FS1_LOOK_MS. */
int fs1_next(struct fs1_conn *c);
int fs1_result(struct req *q, struct fs1_call *call); /* of one that is done */

/* fs1_park.c */
/* Lock held: it is done, or given up. True: whoever sees that calls fs1_park_end, without the lock. */
bool fs1_park_takes(struct fs1_conn *c, struct fs1_call *call);
void fs1_park_end(struct fs1_conn *c, struct fs1_call *call);
/* Reads, until nothing is under way that nobody waits for. Gives what the last step gave. */
int fs1_park_read(struct fs1_conn *c);

/* fs1_share.c: true: memory was made, and *ret_fd is to be sent; it is in use only when base stays. */
bool fs1_share_begin(struct fs1_conn *c, int *ret_fd);
void fs1_share_end(struct fs1_conn *c);
/* One more that uses it, which is shared memory, until it is let go by this number; 0: none. */
unsigned fs1_buf_hold(const struct fs1_buf *b);
void fs1_buf_let(struct fs1_conn *c, unsigned held);
uint64_t fs1_buf_place(const struct fs1_buf *b);
void fs1_share_tidy(struct fs1_conn *c); /* what nobody uses is given back */

/* fs1_recv.c: by the one that reads. */
/* At most one frame. 1: it was taken; 0: nothing came in time, or not all of it; -errno. */
int fs1_step(struct fs1_conn *c, int flags);
bool fs1_whole(const struct fs1_conn *c); /* is a whole frame in the buffer? */
void *fs1_receive(void *arg);             /* the connection's own thread */

/* fs1_watch.c */
int watches_new(struct mount *m, struct watches **ret);
void watches_free(struct watches *w);
/* From the receiver. -EPROTO: it breaks a rule. */
int watches_push(struct fs1_conn *c, const char *buf, size_t len);
int watches_answer(struct fs1_conn *c, uint64_t arg, int64_t value, const struct files_rep *rep);
/* The connection has ended: what it watched counts no more. */
void watches_end(struct fs1_conn *c);
void watches_doubt(struct fs1_conn *c);
unsigned watches_count(struct watches *w);
void watches_tidy(struct mount *m);

#endif
