/* SPDX-License-Identifier: MIT */
/* sbx-fs/1 (doc/sbx-fs.md): one connection to each sandbox in use, on which the requests of all threads
 * are under way at once. Whoever asks sends its frame itself, and reads while it waits; one thread a
 * connection reads while nobody does. When there is no connection, or it was lost under a request that may be repeated, the
 * caller is told FS1_PLAIN and asks the plain way. */
#ifndef SBXFS_FS1_H
#define SBXFS_FS1_H

#include "sbxfs/mount.h"

#include "common/fs/files.h"

#define FS1_PLAIN 1

struct fs1;
struct fs1_conn;

/* Memory for CHUNK bytes of a file, shared with the peer where that is possible (fs1_share.c). */
struct fs1_buf {
	char *p;
	struct fs1_conn *conn; /* referenced; NULL: not shared */
};
bool fs1_buf_take(struct req *q, const char *box, struct fs1_buf *ret);
void fs1_buf_free(struct fs1_buf *b);

/* One request and its answer; stays where it is from fs1_begin to fs1_wait. */
struct fs1_call {
	enum files_op op;
	struct files_req r; /* lengths are set here */
	const char *path, *path2; /* NULL: none */
	const void *data;
	size_t data_len;
	const struct fs1_buf *buf; /* of READ and WRITE: where `into`, or `data`, is; or NULL */
	int timeout_ms; /* 0: ten seconds; counts from when the peer was last heard */
	bool once;      /* must not be done twice */
	void *into;     /* where the answer's data goes; NULL: it is allocated */
	size_t max;     /* more data than this is a lie */

	int64_t value;
	struct files_rep rep;
	char *out; /* `into`, or owned by the caller: fs1_call_fini */
	size_t out_len;
	/* Which connection it was (never 0, never twice), and how many pushes had come before the
	 * request went out and before the answer. */
	uint64_t epoch, asked, seen;

	/* fs1_conn.c */
	struct fs1_conn *conn;
	unsigned slot;
	uint64_t tag, begun_ms;
	size_t cap;   /* of `out`, when that is allocated */
	bool shared; /* its data is in memory that the peer has, too */
	bool done, lost, filling;
	bool waiting; /* on the slot's condition */
	bool leads;   /* its thread is the one that reads */

	/* fs1_park.c: of one that nobody waits for. By whoever has read the answer, holding nothing; rc as of
	 * fs1_wait. */
	void (*ended)(struct fs1_call *c, int rc);
	struct req *q;         /* stays until then */
	bool sent;             /* whoever reads ends it; before, its own thread does */
	int gives_up;
	struct fs1_call *next; /* of those that end together */
};
void fs1_call_fini(struct fs1_call *c);

int fs1_new(struct mount *m, struct fs1 **ret);
/* Ends all connections and threads; nobody may be in a call. */
void fs1_free(struct fs1 *f);

/* 0: sent, and fs1_wait must follow; FS1_PLAIN; -errno (q->err filled). */
int fs1_begin(struct req *q, const char *box, struct fs1_call *c);
/* 0, -errno, FS1_PLAIN. */
int fs1_wait(struct req *q, struct fs1_call *c);
/* Waits until fs1_wait would not. -EINTR: the caller does not want to wait, and the request goes on. */
int fs1_ready(struct req *q, struct fs1_call *c);
/* Instead of fs1_wait: the answer is not wanted any more. */
void fs1_cancel(struct fs1_call *c);
/* Instead of both: nobody waits. 0: c->ended will be called, or was; else nothing is under way. The caller's
 * thread reads what comes for all, while nobody else does and until nothing is under way. */
int fs1_park(struct req *q, const char *box, struct fs1_call *c);
/* Ends what nobody waits for; no more of it comes. */
void fs1_park_stop(struct fs1 *f);
/* fs1_begin and fs1_wait. */
int fs1_call(struct req *q, const char *box, struct fs1_call *c);
/* Sends and forgets; false: not sent. No data comes with it. */
bool fs1_tell(struct req *q, const char *box, enum files_op op, uint64_t handle);
/* Is there a connection now? None is opened for the sake of the question. Its epoch, or 0. */
uint64_t fs1_epoch(struct mount *m, const char *box);
/* The sandbox was used the plain way and so is awake: the next request tries again. */
void fs1_awake(struct mount *m, const char *box);
/* Looks after connections that nobody uses; now and then, from the flusher. */
void fs1_tidy(struct mount *m);
/* Drops all connections (ctl drop-caches, reconnect). */
void fs1_reset(struct mount *m);
/* For stats. */
struct fs1_figures {
	unsigned connections, watches;
	uint64_t requests, plain, lost, pushes, changes, refused, unwatched, doubted;
	bool inotify; /* a connection has watches */
};
void fs1_figures(struct mount *m, struct fs1_figures *ret);

#endif
