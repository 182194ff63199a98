/* SPDX-License-Identifier: MIT */
/* What the parts of the worker share. One struct worker; two threads serve connections, each with
 * one struct job at a time. Functions return values >= 0 or -errno (or -FILES_E_*), as on the wire.
 */
#ifndef SANDBOXD_WORKER_STATE_H
#define SANDBOXD_WORKER_STATE_H

#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/proto/files.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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
struct closed {
	char *path;
	uint64_t bytes_read, bytes_written;
	bool changed;
};
#define CLOSED_MAX 256

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
	struct closed closed[CLOSED_MAX];
	unsigned nclosed;
	int64_t swept_ms;
	unsigned nconns;
};

struct job {
	struct worker *w;
	struct proto_frame f;
	struct files_req q;
	char path[FILES_PATH_MAX], path2[FILES_PATH_MAX];
	const char *data; /* q.data_len bytes */
	struct files_rep rep;
	char *out; /* FILES_DATA_MAX bytes */
	size_t out_len;
};
typedef int64_t op_fn(struct job *j);

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
int64_t op_expired(struct job *j);

/* put.c */
void put_free(struct worker *w, struct put *p);
op_fn op_put, op_put_begin, op_put_data, op_put_commit, op_put_abort;

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
