/* SPDX-License-Identifier: MIT */
/* Files of one sandbox as the front sees them: the client side of proto/files.h over a small pool
 * of connections to the file worker. Paths are cleaned guest paths (bytes); every one is resolved
 * by the worker inside the guest. Answers are untrusted: bounded and checked here. Thread-safe.
 * Errors: what the operation met, by the contract's table, with its errno; conflict when the
 * sandbox has ended; unavailable when the worker is gone or silent for 30 s; internal when its
 * answer makes no sense (that connection is then closed). */
#ifndef SANDBOXD_BACKEND_GUESTFS_H
#define SANDBOXD_BACKEND_GUESTFS_H

#include "sandboxd/backend/guest.h"
#include "sandboxd/proto/files.h"

#define GUESTFS_FILE_MAX (64u * 1024 * 1024) /* a whole file in one request of the contract */

struct guestfs;
int guestfs_new(struct guest *g, struct guestfs **ret, struct err *e); /* connects lazily */
/* The same over any source of connections; `arg` must outlive it. */
int guestfs_new_on(int (*dial)(void *arg, int *ret_fd, struct err *e), void *arg,
	struct guestfs **ret, struct err *e);
void guestfs_free(struct guestfs *fs); /* calls in other threads must have ended; NULL is fine */
void guestfs_shutdown(struct guestfs *fs); /* ends calls under way with conflict */

/* One operation. Members are those of struct files_req; zero means not given. */
struct guestfs_args {
	uint64_t client; /* owner of handles, 0: none */
	uint64_t handle, handle2;
	uint64_t offset, offset2, length;
	uint32_t flags, mode, uid, gid; /* flags: enum files_flags */
	struct files_time atime, mtime;
	const char *path, *path2;
	const void *data;
	size_t data_len;
};
struct guestfs_result {
	int64_t value;
	uint64_t handle, offset, bytes_read, bytes_written;
	uint32_t flags;         /* enum files_rep_flags */
	struct files_attr attr; /* checked; zero where the operation gives none */
	char *data;             /* owned: guestfs_result_free; has a NUL behind its end */
	size_t data_len;
};
int guestfs_call(struct guestfs *fs, enum files_op op, const struct guestfs_args *a,
	struct guestfs_result *ret, struct err *e);
void guestfs_result_free(struct guestfs_result *r);

/* Up to `max` (at most FILES_DATA_MAX) bytes into the caller's buffer; 0 at the end. */
int guestfs_read(struct guestfs *fs, uint64_t client, uint64_t handle, uint64_t offset, void *buf,
	size_t max, size_t *ret_len, struct err *e);
/* Closes; what it says is of no interest. Never fails the caller. */
void guestfs_drop(struct guestfs *fs, uint64_t client, uint64_t handle);

/* One page of a listing. Start with a path (and cursor 0), go on with the handle of the page before
 * until `end`; drop the handle when leaving early. Entries arrive in directory order, with names
 * that are not empty, ".", ".." and hold neither '/' nor NUL. `each` returns -1 to stop, which
 * fails the call with its *e. */
struct guestfs_entry {
	const char *name; /* name_len bytes and a NUL */
	size_t name_len;
	const char *target; /* links: target_len bytes and a NUL, else NULL */
	size_t target_len;
	uint64_t cursor;
	struct files_attr attr;
};
struct guestfs_page {
	uint64_t client, handle,
		cursor; /* in, out: to go on; cursor FILES_CURSOR_GO_ON with a handle */
	uint32_t limit; /* 0: as many as a page holds */
	bool end;       /* out; handle is then 0 */
};
int guestfs_list(struct guestfs *fs, const char *path, struct guestfs_page *page,
	int (*each)(void *arg, const struct guestfs_entry *en, struct err *e), void *arg,
	struct err *e);

/* What the event log has to hold of things that no call here did: handles that ended because their
 * client went silent, and what was done over streams. `flags`: FILES_REP_CREATED, _REMOVED. */
typedef void guestfs_done_fn(
	void *arg, const char *path, uint64_t read, uint64_t written, unsigned flags);
/* Calls `each` once for each of them. Cheap when there is none. */
void guestfs_expired(struct guestfs *fs, guestfs_done_fn *each, void *arg);

/* Streams (doc/sbx-fs.md): client connections that the worker serves itself. */
bool guestfs_stream_begin(struct guestfs *fs); /* false: there are FS_CONNS_MAX */
void guestfs_stream_end(struct guestfs *fs);
/* Gives the worker `fd`, a unix stream socket, and waits for its end there; the caller's copy stays
 * open. `client` as in args. About once a second, and at the end, one of the streams of a sandbox
 * calls `used` if there was a request that counts as use, and `each` as above. 0, or -1 when the
 * worker did not take it or is gone. */
struct guestfs_watch {
	void (*used)(void *arg);
	guestfs_done_fn *each;
	bool (*stop)(void *arg); /* asked once a second; true ends the connection; may be NULL */
	void *arg;
};
int guestfs_stream(struct guestfs *fs, uint64_t client, int fd, const struct guestfs_watch *w,
	struct err *e);

#endif
