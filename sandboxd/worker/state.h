/* SPDX-License-Identifier: MIT */
/* What the parts of the worker share. One struct worker; two threads (more while there are connections
 * of sbx-fs/1) serve connections, each with one struct job at a time. Functions return values >= 0
 * or -errno (or -FILES_E_*), as on the wire. */
#ifndef SANDBOXD_WORKER_STATE_H
#define SANDBOXD_WORKER_STATE_H

#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "common/sys/spin.h"
#include "sandboxd/proto/files.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct put;
struct handle {
	uint64_t id, client;
	int fd;
	bool readable, writable, append, dir;
	bool changed;         /* made, emptied or resized by this handle */
	char *path;           /* as opened, for the audit */
	struct put *put;      /* an upload under way; fd is then -1 */
	pthread_mutex_t lock; /* directory position, upload, o_append and writing */
	bool o_append;        /* the descriptor's own flag at present */
	/* under worker.locks.lock */
	bool flocked;
	unsigned locked; /* its flock, and owners of locks that go by its descriptor; atomic */
	/* under worker.lock */
	unsigned refs;
	bool closed;
	int64_t used_ms;
	/* atomic */
	uint64_t bytes_read, bytes_written;
};
struct client {
	uint64_t id;
	int64_t heard_ms;
	unsigned handles;
};
/* Something that the front will put into the event log. */
struct closed {
	char *path;
	uint64_t bytes_read, bytes_written;
	uint32_t flags; /* FILES_REP_CREATED, _REMOVED */
};
#define CLOSED_MAX   8192
#define THREADS_BASE 2
#define THREADS_MAX  8
#define STREAM_BUSY  4 /* threads inside one stream: half of all */
#define STREAMS_BUSY 6 /* inside all streams: the front's requests keep two */

/* A connection of sbx-fs/1; stream.c and serve.c have the rules. */
struct stream {
	/* fixed */
	unsigned slot;
	uint32_t gen;
	int fd, ctl;             /* the client's connection; the one that ADOPT came on */
	uint64_t client;
	struct proto_frame adopt; /* to answer at the end */
	char *shared; /* memory of SHARE; fixed once it is there */
	size_t shared_len;
	pthread_mutex_t send;    /* writing to fd, reading ino, the two below */
	int ino;                 /* inotify; -1 before the first WATCH; atomic */
	bool greeted;            /* of the thread that reads, and the two below */
	bool holds;              /* it tells of changes itself */
	int64_t slow_until_ms;   /* reads had to wait for a disk */
	struct spin spin;        /* of the thread that reads */
	int last_wd;
	/* under worker.streams_lock */
	pthread_cond_t done; /* a request was answered */
	unsigned inside;     /* threads that read, work or send for it */
	unsigned queued;     /* of these: ordered ones that wait for their turn */
	unsigned watches;
	bool parked; /* not read on, for want of room */
	bool untold; /* the same for changes */
	bool telling; /* somebody sends a push from elsewhere */
	bool over, ctl_gone;
	uint64_t serial;
	struct turn {
		uint64_t serial, handle, handle2; /* serial 0: free */
	} turns[STREAM_BUSY];
};

/* Locks of files (lock.c) and who waits for one (wait.c). */
struct lock_owner;
struct lock_wait;
#define LOCK_BUCKETS 256
struct locks {
	pthread_mutex_t lock; /* before streams_lock and worker.lock */
	struct lock_owner *owners[LOCK_BUCKETS];
	size_t nranges;
	struct lock_wait *waits; /* oldest first */
	/* atomic */
	unsigned nwaits;
	int timer_fd; /* -1 before the first wait */
	int64_t rests_ms; /* until then they are not tried again: trying costs */
};

struct worker {
	/* fixed after the start */
	int root_fd, control_fd, epoll_fd;
	uid_t uid;
	gid_t gid;
	bool fake;
	bool by_fsid; /* new files get uid:gid from the kernel */
	int64_t expire_ms;
	/* atomic */
	uint64_t counter;        /* temporary names, unsettled versions */
	int no_fd_link;          /* this kernel does not link an O_TMPFILE by descriptor for us */
	pthread_mutex_t inplace; /* one upload at a time writes into an existing file */
	pthread_mutex_t lock;    /* everything below */
	struct handle *slots[FILES_HANDLES_MAX];
	struct client clients[FILES_CLIENTS_MAX];
	unsigned nclients, nhandles;
	uint64_t serial;
	unsigned next_slot;
	struct closed *closed;
	unsigned nclosed, closed_room;
	uint64_t closed_lost;
	int64_t swept_ms;
	unsigned nconns;
	/* atomic */
	unsigned idle;    /* threads that wait for work */
	unsigned watches; /* of all streams */
	uint64_t uses;    /* FILES_USE requests */
	pthread_mutex_t cwd;
	pthread_mutex_t streams_lock; /* the four below; never held over a blocking call */
	struct stream *streams[FS_CONNS_MAX];
	unsigned nstreams, nthreads, inside;
	uint32_t stream_gen;
	struct locks locks;
};

struct job {
	struct worker *w;
	struct stream *stream; /* NULL: the front's own request */
	bool holds_send;       /* of stream: its answer must be the next thing sent */
	bool starts;           /* of stream: HELLO went well */
	int fd;                /* of stream: what came along, not ours to keep; -1: nothing */
	int held;              /* of stream: closed after the answer, for its end may take long; -1 */
	struct proto_frame f;
	struct files_req q;
	char path[FS_PATH_MAX], path2[FS_PATH_MAX];
	const char *data; /* q.data_len bytes */
	struct files_rep rep;
	char *out; /* FILES_DATA_MAX bytes */
	size_t out_len;
};
struct buffers {
	char *in, *out;
	bool large; /* much of them is in use: given back when there is nothing to do */
};
#define PUSH_PIECE 8192
/* Changes that are told with one frame, or none. Never longer than the events they come from. */
struct push {
	struct proto_frame f;
	struct files_rep rep;
	char data[PUSH_PIECE];
	size_t last; /* where the newest change begins */
};
#define PUSH_PARTS 3
typedef int64_t op_fn(struct job *j);

/* main.c */
enum event_kind { EVENT_FD, EVENT_STREAM, EVENT_CHANGES, EVENT_CONTROL }; /* EVENT_FD: the front's */
int wait_for(struct worker *w, int op, int fd, enum event_kind kind, const struct stream *s);
void thread_wanted(struct worker *w); /* starts another one, if none is idle */
void end_connection(struct worker *w, int fd);

/* narrow.c: gives up, for good, what this program never needs. 0 or -errno. */
int narrow(void);

/* wire.c: requests and answers. Nothing moving for FS_PROGRESS_SECS is an end. s: NULL
 * for the front's. Before wire_read a job has its worker and stream. */
/* 1, 0: clean end before a request, -1: of no use any more. *ret_fd: what came along, or -1. */
int wire_read(int fd, struct job *j, char *in, int *ret_fd);
/* `before`: changes that go out with the answer, ahead of it; NULL: none. */
bool wire_answer(int fd, struct job *j, int64_t value, struct push *before);
size_t wire_push(struct push *p, struct iovec v[PUSH_PARTS]); /* its parts; 0: nothing to tell */
bool wire_send(struct worker *w, const struct stream *s, int fd, struct iovec *v, size_t n); /* changes v */

/* stream.c */
int stream_adopt(struct worker *w, struct job *j, int fd, int ctl); /* both are taken, but on error */
void streams_heard(struct worker *w);
bool streams_starve(struct worker *w); /* does one wait that has no thread at all? */
/* A push that comes from elsewhere. 1: stream_push must follow; 0: not now; -1: the stream is over. */
int stream_push_begin(struct worker *w, unsigned slot, uint32_t gen, struct stream **ret);
void stream_push(struct worker *w, struct stream *s, struct proto_frame *f, struct files_rep *rep);
op_fn op_hello, op_activity;
/* For serve.c. With the lock: */
struct stream *stream_find(struct worker *w, uint64_t data);
void stream_end(struct stream *s, bool cut);
void stream_read_on(struct worker *w, struct stream *s);
/* Without it: the stream, with this thread inside; NULL: nothing to do, or no room now. */
struct stream *stream_enter(struct worker *w, uint64_t data);
void stream_leave(struct worker *w, struct stream *s);

/* serve.c */
void stream_event(struct worker *w, uint64_t data, struct buffers *b);

/* watch.c; `send` held: */
bool watch_drain(struct worker *w, struct stream *s); /* false: the connection is of no use */
/* The same, but what is read last is left to the caller to send. */
bool watch_take(struct worker *w, struct stream *s, struct push *ret);
void watch_close(struct worker *w, struct stream *s);
op_fn op_watch, op_unwatch;

/* ops.c */
int64_t job_run(struct job *j);

/* path.c: lookups never leave the root */
#define RESOLVE_TRIES 64
int path_open(const struct worker *w, const char *path, int flags, mode_t mode);
int path_parent(const struct worker *w, const char *path, const char **ret_last);
int path_check_type(int fd, bool dir_ok); /* 0 regular (or directory), else why not */
int path_check_fs(int fd);                /* 0, or -FILES_E_REFUSED */
/* A real descriptor for data: regular files only (directories with dir_ok, read only). */
int path_open_data(const struct worker *w, const char *path, int flags, bool follow, bool dir_ok);
int path_own_new(const struct worker *w, int dirfd, const char *name, int fd);
int path_mkdirs(const struct worker *w, const char *dir);

/* attr.c */
int attr_get(struct worker *w, int fd, const char *name, bool follow, struct files_attr *ret);
bool attr_is_mount_root(int fd);
int attr_drop_setid(struct worker *w, int fd, struct files_attr *a);
ssize_t attr_target(int dirfd, const char *name, char *buf, size_t size);
int attr_chmod(const struct worker *w, int pathfd, int dirfd, const char *name, mode_t mode);

/* handle.c */
int64_t now_ms(void);
struct handle *handle_new(struct worker *w, uint64_t client, const char *path, int *ret_err);
int handle_room(struct worker *w, uint64_t client); /* 0: another one may be made */
struct handle *handle_get(struct worker *w, uint64_t client, uint64_t id);
void handle_put(struct worker *w, struct handle *h); /* drops a reference of get or new */
void handle_close(struct worker *w, struct handle *h, bool tell);
void handle_sweep(struct worker *w);
void handle_heard(struct worker *w, uint64_t client);
void handle_close_all(struct worker *w);
bool handle_is_open(struct worker *w, const struct handle *h);

/* lock.c */
op_fn op_lock;
/* locks.lock held; as the operation, but never waits. */
int64_t lock_ask(struct worker *w, uint64_t client, const struct files_req *q, struct files_rep *rep,
	struct files_locked *ret);
/* Of a handle that was closed: what went by its descriptor. */
void lock_handle_gone(struct worker *w, struct handle *h);

/* wait.c */
op_fn op_unwait;
int64_t wait_begin(struct job *j); /* takes `send` of the stream */
void wait_end(struct worker *w, const struct stream *s); /* all of the stream's */
void wait_tick(struct worker *w);
void wait_poke(struct worker *w); /* a lock was let go; takes no lock */

/* closed.c */
/* Takes `path`, which may be NULL. */
void closed_add(struct worker *w, char *path, uint64_t read, uint64_t written, uint32_t flags);
void closed_record(struct job *j, int64_t value); /* what a stream's request has done */
int64_t op_expired(struct job *j);

/* put.c */
void put_free(struct worker *w, struct put *p);
op_fn op_put, op_put_begin, op_put_data, op_put_commit, op_put_abort;

/* share.c */
op_fn op_share;
/* Where the job's data is, or goes, in its stream's memory; NULL: not inside of it. */
char *share_at(const struct job *j, size_t len);
void share_end(struct stream *s);

/* data.c */
op_fn op_open, op_read, op_write, op_sync, op_close, op_fallocate, op_copy, op_seek;
int copy_bytes(int in, off_t *in_off, int out, off_t *out_off, size_t len, char *buf, size_t size);
/* names.c */
op_fn op_rename, op_remove, op_unlink, op_rmdir, op_mkdir, op_link, op_symlink, op_mknod;
/* meta.c */
op_fn op_stat, op_setattr, op_statfs, op_xattr_get, op_xattr_set, op_xattr_list, op_xattr_remove;
/* list.c */
op_fn op_list;

#endif
