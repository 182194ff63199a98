/* SPDX-License-Identifier: MIT */
/* Inside of guestfs only: what its files share. */
#ifndef SANDBOXD_BACKEND_GUESTFS_CHECK_H
#define SANDBOXD_BACKEND_GUESTFS_CHECK_H

#include "sandboxd/backend/guestfs.h"

#include <pthread.h>

/* Logs that an answer made no sense (`what` of it) and sets internal. -1. */
int guestfs_nonsense(const char *what, struct err *e);
/* Are these attributes that a kernel could have given? */
bool guestfs_attr_ok(const struct files_attr *t);
/* Has the worker said that handles expired, since this was last asked? */
bool guestfs_take_expired(struct guestfs *fs);
/* Calls `each` for what an EXPIRED or ACTIVITY has told, at most GUESTFS_CLOSED_MAX, as far as there is room; their
 * number. */
#define GUESTFS_CLOSED_MAX 8192 /* a worker keeps no more */
unsigned guestfs_tell_done(
	struct guestfs *fs, const struct guestfs_result *r, guestfs_done_fn *each, void *arg);
/* Room for events that a worker tells of, in bytes: the log is everybody's, and each costs the front its time. */
#define GUESTFS_TELL_BURST (8 << 20)
#define GUESTFS_TELL_A_SEC (512 << 10)
#define GUESTFS_TELL_ONE   128 /* beside its path */
bool guestfs_may_tell(struct guestfs *fs, size_t path_len);

/* Connections. Taken for a request; given back `good` when its answer was sound. */
struct guestfs_conn;
int guestfs_take(struct guestfs *fs, struct guestfs_conn **ret, int *ret_fd, uint64_t *ret_tag,
	struct err *e);
void guestfs_give(struct guestfs *fs, struct guestfs_conn *c, bool good);
/* The head of an answer that carries at most `max` data. 0, 1: sound, but a refusal; -1 with *e. */
int guestfs_head(struct guestfs *fs, int fd, enum files_op op, uint64_t tag, size_t max,
	struct proto_frame *f, struct files_rep *rep, struct err *e);
int guestfs_refused(int64_t value, enum files_op op, const struct guestfs_args *a, struct err *e);
/* What streams share, under a lock of its own. */
struct guestfs_streams {
	pthread_mutex_t lock;
	unsigned n;
	int64_t asked_ms;
	uint64_t uses, lost;
	int64_t told, told_ms; /* bytes that are taken of the burst, and when that was so */
};
struct guestfs_streams *guestfs_streams_of(struct guestfs *fs);

#endif
