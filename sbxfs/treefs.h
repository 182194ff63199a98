/* SPDX-License-Identifier: MIT */
/* The guest's files. Nothing here is resolved on this machine: every path is sent as bytes, every
 * answer is checked before it is believed. */
#ifndef SBXFS_TREEFS_H
#define SBXFS_TREEFS_H

#include "sbxfs/fs1.h"
#include "sbxfs/handle.h"
#include "sbxfs/ops.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#define TREE_INLINE 65536
#define TREE_ATTR_SECS 0.02  /* the kernel asks twice for one thing; this is the second time */
#define TREE_LISTED_SECS 0.3 /* attributes that came with a listing */
#define TREE_DIR_MS 100      /* directories on the way to something */

/* Which connection told something, and between which of its pushes (fs1.h); epoch 0: none did. */
struct tree_stamp {
	uint64_t epoch, asked, seen;
};
/* Attributes of one guest object, as shown. */
struct tree_attr {
	struct stat st;
	struct tree_id id;
	char version[80];
	char *target; /* of a link, as made in the guest; owned */
	struct tree_stamp stamp;
	uint64_t at_ms; /* when it was so, if not just now */
};
void tree_attr_fini(struct tree_attr *a);
#define _cleanup_attr_ __attribute__((cleanup(tree_attr_fini)))
/* -EPROTO when it is not fit to be believed. */
int tree_attr_of(struct req *q, const json_t *o, struct tree_attr *ret);

/* A late failure is told once by each of these. */
enum tell { TELL_WRITE = 1, TELL_SYNC = 2, TELL_CLOSE = 4 };
/* An open file. Fixed but for what is said. */
struct tree_file {
	struct handle *h;
	struct tree_file *next;  /* of the same inode; under its tree_lock */
	struct tree_file *dirty_next; /* under the flusher's lock */
	bool dirty_listed;
	unsigned refs;           /* under the inode's tree_lock */
	atomic_bool dirty;       /* buf_len > 0, or writes under way */
	bool reads, writes, append;
	atomic_bool locked;      /* the server's handle holds locks, which end with it */

	pthread_mutex_t lock;    /* all below */
	char handle[24];         /* the server's */
	char *inl;               /* first bytes, as they came with the open */
	size_t inl_len;
	bool inl_all;            /* they are the whole file */
	uint64_t inl_ms;
	unsigned inl_contents;   /* they are of these (inode.h) */
	struct ahead *ahead;     /* what was read before it was asked for; NULL: nothing */
	uint64_t seq_next;       /* where the next read would go on */
	unsigned seq;            /* so many went on */
	struct late *late;       /* writes under way, oldest first */
	unsigned nlate;
	struct fs1_buf buf;      /* collected writes */
	size_t buf_len;
	uint64_t buf_off;        /* where they begin (append: nowhere) */
	uint64_t next_off;       /* where a write would go on */
	bool wrote;              /* the first write is through */
	int error;               /* of a late write; it takes no more writes */
	unsigned told;           /* bits of enum tell: who has heard of it */
};

/* wire.c: requests, by frames where there is a connection (fs1.h), else the plain way. */
enum wire_make { WIRE_MKDIR, WIRE_FIFO, WIRE_SYMLINK };
struct wire_copy {
	const char *from, *to; /* handles */
	off_t from_off, to_off;
	size_t len;
};
struct wire_value {
	const void *p;
	size_t len;
	int flags; /* XATTR_CREATE, XATTR_REPLACE */
};
/* One entry of a listing; it may take the target. */
typedef int wire_entry(void *arg, const char *name, struct tree_attr *a);
/* An open that wants first bytes may have no handle ("0") for a file that came whole. */
#define WIRE_CLOSE O_TMPFILE /* no guest sees it */
#define W(name, params, args, acts) int wire_##name params;
#include "sbxfs/wire.def"
#undef W
void wire_close(struct req *q, const char *box, const char *handle);
int wire_statfs(struct req *q, const char *box, const char *path, struct statvfs *ret);

/* tree_attr.c */
bool tree_is(const struct inode *i);
bool tree_is_view(const struct inode *i); /* of a snapshot: cannot be written */
int tree_path(struct req *q, struct inode *i, const char *name, char out[FS_PATH_MAX]);
/* Fresh attributes of an inode: by an open handle when there is one, else by path. */
int tree_get(struct req *q, struct inode *i, struct tree_attr *ret);
/* A directory that was removed here, and that somebody still stands in: as it was. */
bool tree_gone(struct inode *i, struct tree_attr *ret);
/* The inode of a guest object under a name (dir, name), referenced, and its entry. */
int tree_inode(struct req *q, struct inode *dir, const char *name, struct tree_attr *a, double secs,
	struct inode **ret, struct fuse_entry_param *e);
/* Answers with the entry of a new or looked-up object. */
void tree_reply(struct req *q, struct inode *dir, const char *name, struct tree_attr *a);
/* Our own change: what the daemon knows about it is old. */
void tree_changed(struct req *q, struct inode *i);
unsigned tree_changes_of(struct inode *i);
/* A directory's attributes, as they came with its watch, which was asked for after so many changes of ours. */
void tree_watched(struct mount *m, struct inode *i, struct tree_attr *a, unsigned changes);
/* What the kernel gets to see of an inode. */
void tree_shown(struct req *q, struct inode *i, struct tree_attr *a);
/* It is open here, or was changed or looked at since the listing, maybe by another name. Then what that says is old:
 * the kernel would drop pages beyond that size, and take a rename from the new name to the old one for one between two
 * names of a file, which does nothing. */
struct listed_file;
bool tree_known_better(struct req *q, struct inode *dir, const struct listed_file *f, const struct listing *l);
void tree_lookup(struct req *q, struct inode *dir, const char *name);
void tree_getattr(struct req *q, struct inode *i);
void tree_setattr(struct req *q, struct inode *i, const struct stat *st, int set,
	struct fuse_file_info *fi);
/* Rights are the server's; but nobody may run what has no x bit. */
void tree_access(struct req *q, struct inode *i, int mask);
void tree_statfs(struct req *q, struct inode *i);

/* confine.c: the text of a link as the host may follow it. `depth`: directories between the guest's
 * root and the link. -EPERM when links are refused. */
int link_text(enum links_mode mode, int depth, const char *target, char *out, size_t size);
/* The text of a new link: who makes one to a path through this mount, of the same sandbox, means what is there,
 * and inside that has a name without the mount's; else `target`. */
const char *link_inside(struct mount *m, const char *box, const char *target);
void tree_readlink(struct req *q, struct inode *i);
/* Until who was told of a link that climbs has climbed. */
void link_settles(struct mount *m);

/* tree_io.c */
void tree_open(struct req *q, struct inode *i, struct fuse_file_info *fi);
void tree_create(struct req *q, struct inode *dir, const char *name, mode_t mode,
	struct fuse_file_info *fi);
void tree_file_close(struct req *q, struct handle *h);
/* Runs one request on an open file; when the server has forgotten the handle, opens it anew by path,
 * if the path still leads to the same object. */
int tree_with_handle(struct req *q, struct tree_file *f,
	int (*fn)(struct req *q, struct tree_file *f, void *arg), void *arg);
/* False: what came with the open was all, and the server keeps none. */
bool tree_has_handle(const struct tree_file *f);
/* What came with the open is not needed any more. */
void tree_inline_drop(struct mount *m, struct tree_file *f);
/* Gives up a reference; the last one frees. */
void tree_file_put(struct mount *m, struct tree_file *f);
/* The server's handle of any open file of the inode (writes: of one that may); false: there is none. */
bool tree_any_handle(struct inode *i, bool writes, char out[24]);

/* tree_read.c */
void tree_read(struct req *q, struct handle *h, size_t size, off_t off);

/* tree_write.c */
/* flags: as they are now; those of the open may have been others. */
void tree_write(struct req *q, struct handle *h, const char *buf, size_t size, off_t off, int flags);
void tree_flush(struct req *q, struct handle *h, uint64_t owner);
void tree_fsync(struct req *q, struct handle *h, bool data_only);
void tree_fallocate(struct req *q, struct handle *h, int mode, off_t off, off_t len);
void tree_copy(struct req *q, struct handle *in, off_t in_off, struct handle *out, off_t out_off,
	size_t len);
void tree_lseek(struct req *q, struct handle *h, off_t off, int whence);
/* Sends what the inode's open files have collected. Failures stay with their file. */
void tree_drain(struct req *q, struct inode *i);
/* f->lock held. keep: while the server is away the bytes stay, and nobody is told. They stay as well
 * when who asked does not want to wait any more: -EINTR. */
int tree_file_drain(struct req *q, struct tree_file *f, bool keep);
/* The lock of an open file may be held by somebody who waits for the server. -EINTR: without it. */
int tree_file_lock(struct req *q, struct tree_file *f);

/* tree_lock.c: locks that hold inside, too (-o locks=). */
void tree_setlk(struct req *q, struct handle *h, uint64_t owner, const struct flock *l, bool wait);
void tree_getlk(struct req *q, struct handle *h, uint64_t owner, struct flock *l);
void tree_flock(struct req *q, struct handle *h, int op);
/* A process has closed it, and with that lets go what it had locked by fcntl. */
void tree_closed(struct req *q, struct handle *h, uint64_t owner);

/* tree_again.c: opens that lost a race with a rename. */
struct agains;
int agains_new(struct agains **ret);
void agains_free(struct agains *g);
void agains_tidy(struct mount *m); /* now and then, from the flusher */
/* This thread's open of that file is going to be ESTALE. */
void again_mark(struct req *q, struct inode *i, int flags);
/* True: answered. */
bool again_lookup(struct req *q, struct inode *dir, const char *name);
/* True: it is open already. */
bool again_open(struct req *q, struct inode *i, int flags, char ret_handle[24], struct tree_attr *ret);

/* tree_walk.c: listings before they are asked for. */
struct walk;
int walk_new(struct walk **ret);
void walk_free(struct mount *m); /* no thread of the pool is left */
void walk_tidy(struct mount *m); /* now and then, from the flusher */
/* Somebody uses that listing of the directory. */
void walk_on(struct req *q, struct inode *dir, struct listing *l);

/* tree_ahead.c: reading before it is asked for. */
/* True: answered. */
bool ahead_read(struct req *q, struct tree_file *f, size_t size, off_t off);
/* Nobody else uses the file, or its lock is held. */
void ahead_drop(struct mount *m, struct tree_file *f);

/* tree_late.c: writes that are under way while their writer goes on; lock of the file held. */
/* Sends what is collected and does not wait; false: it cannot, and everything is as before. */
bool late_send(struct req *q, struct tree_file *f);
/* May writes of this file be late? Needs a connection, and an order that does not matter. */
bool late_may(struct req *q, struct tree_file *f);
/* Waits for one, or for all; 0 or the first failure. `again` does it once more when it got lost. What
 * nobody waited for to the end, -EINTR, and with `keep` what nobody took, -EHOSTDOWN, stays. */
typedef int late_again(struct req *q, struct tree_file *f, uint64_t off, const char *buf, size_t len);
int late_reap(struct req *q, struct tree_file *f, bool all, bool keep, late_again *again);

/* flusher.c: late writes do not stay for ever, handles do not die of silence. */
int flusher_new(struct mount *m, struct flusher **ret);
/* Sends what is there and ends the thread. */
void flusher_stop(struct flusher *f);
void flusher_free(struct flusher *f);
void flusher_add(struct mount *m, struct tree_file *f);
void flusher_remove(struct mount *m, struct tree_file *f);
/* Counts open handles of a sandbox, +1 or -1. */
void flusher_hold(struct mount *m, const char *box, int n);

/* tree_dir.c */
void tree_opendir(struct req *q, struct inode *i, struct fuse_file_info *fi);
void tree_readdir(struct req *q, struct inode *i, size_t size, off_t off, struct handle *h, bool plus);
void tree_fsyncdir(struct req *q, struct inode *i, bool data_only);

/* tree_change.c */
void tree_mkdir(struct req *q, struct inode *dir, const char *name, mode_t mode);
void tree_mknod(struct req *q, struct inode *dir, const char *name, mode_t mode);
void tree_symlink(struct req *q, struct inode *dir, const char *name, const char *target);
void tree_link(struct req *q, struct inode *i, struct inode *dir, const char *name);
void tree_drop(struct req *q, struct inode *dir, const char *name, bool is_dir);
void tree_rename(struct req *q, struct inode *dir, const char *name, struct inode *to,
	const char *to_name, unsigned flags);

/* tree_xattr.c */
void tree_getxattr(struct req *q, struct inode *i, const char *name, size_t size);
void tree_setxattr(struct req *q, struct inode *i, const char *name, const char *value, size_t size,
	int flags);
void tree_listxattr(struct req *q, struct inode *i, size_t size);
void tree_removexattr(struct req *q, struct inode *i, const char *name);
/* Answers a get or list of extended attributes from memory, by the kernel's rule about sizes. */
void reply_xattr(struct req *q, const char *value, size_t len, size_t size);

#endif
