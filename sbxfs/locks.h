/* SPDX-License-Identifier: MIT */
/* Locks of guest files that hold inside and in other mounts, too: tree_lock.c asks for them, and
 * lock_wait.c has those who wait. */
#ifndef SBXFS_LOCKS_H
#define SBXFS_LOCKS_H

#include "sbxfs/fs1.h"
#include "sbxfs/treefs.h"

#define LOCK_PATIENCE_MS 10000 /* so long a connection may be away */

struct fs1_conn;
struct lock_waits;

/* A lock asked for, and what came of it. */
struct lock_ask {
	struct files_req r; /* but for the handle */
	int64_t value;      /* 1: not to be had (TEST), or will be told (WAIT) */
	struct files_locked other;
	struct tree_attr attr;
};

/* tree_lock.c */
/* The lock itself, on a connection; waits for one. -EAGAIN: others have it. */
int lock_ask(struct req *q, struct tree_file *f, struct lock_ask *a);
/* It was given. What others wrote while they had it shall be seen by who has it now. */
void lock_taken(struct req *q, struct tree_file *f, const struct tree_attr *a);
/* Gives back what nobody waits for any more. */
void lock_undo(struct req *q, struct tree_file *f, const struct files_req *r);

/* wire_fs1.c: FS1_PLAIN: there is no connection. */
int frame_lock(struct req *q, const char *box, const char *handle, struct lock_ask *a, bool *ret_locked);
void frame_attr(const struct mount *m, const struct files_attr *a, struct tree_attr *ret);

/* lock_wait.c */
int lock_waits_new(struct mount *m, struct lock_waits **ret);
void lock_waits_stop(struct lock_waits *w); /* nobody waits any longer */
void lock_waits_free(struct lock_waits *w);
/* Waits for the lock without a thread, and answers. */
void lock_wait(struct req *q, struct tree_file *f, const struct files_req *r);
/* From whoever reads a connection; do not wait. -EPROTO: it breaks a rule. */
int lock_granted(struct fs1_conn *c, const struct fs_frame *f, const struct files_rep *rep);
void lock_conn_end(struct mount *m, const char *box);

#endif
