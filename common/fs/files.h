/* SPDX-License-Identifier: MIT */
/* Files of a sandbox as frames: operations, flags, layouts. Two protocols share them: the one
 * between the front and a sandbox's file worker (sandboxd/proto/files.h), one request at a time,
 * and sbx-fs/1 (doc/sbx-fs.md), which a client speaks to the worker, many at a time. A request is a
 * frame, struct files_req, the path, the second path, data. An answer is a frame (op and tag
 * repeated; value >= 0, or a negative errno or -FILES_E_*), struct files_rep, then data. `len`
 * counts what follows the frame's head. Paths are cleaned absolute guest paths without a final NUL.
 * Numbers are little-endian. Both sides check every length. */
#ifndef COMMON_FS_FILES_H
#define COMMON_FS_FILES_H

#include <stdint.h>

#define FS_PROTOCOL      "sbx-fs/1"
#define FS_VERSION       1
#define FS_INFLIGHT_MAX  128u   /* unanswered requests of one connection */
#define FS_CONNS_MAX     16u    /* connections of one sandbox */
#define FS_WATCH_MAX     16384u /* watches of one sandbox, whatever the number of connections */
#define FS_PUSH_MAX      65536u /* data of one INVAL */
#define FS_LOCKS_MAX     16384u /* ranges locked in one sandbox */
#define FS_WAITS_MAX     1024u  /* waiting for a lock in one sandbox */
#define FS_LOCK_SECS     10     /* a client not heard from for so long loses its locks */
#define FS_SHARED_MAX    (64u * 1024 * 1024) /* memory of one SHARE */
#define FS_PROGRESS_SECS 30     /* a frame that does not move for so long ends its connection */

#define FILES_DATA_MAX           (4u * 1024 * 1024) /* data of one request or answer */
#define FILES_PATH_MAX           4096u              /* with room for a final NUL */
#define FS_PATH_MAX              8192u              /* of sbx-fs/1: a path that leads on from a path */
#define FILES_INLINE_MAX         65536u             /* data that an open may bring along */
#define FILES_LIST_MAX           10000u             /* entries of one page */
#define FILES_XATTR_MAX          65536u
#define FILES_EXPIRED_MAX        (2u * 1024 * 1024) /* data of one EXPIRED or ACTIVITY */
#define FILES_HANDLES_MAX        12288u /* one sandbox */
#define FILES_CLIENT_HANDLES_MAX 10240u /* one client */
#define FILES_CLIENTS_MAX        256u  /* clients that hold handles */
#define FILES_EXPIRE_SECS        60    /* a client not heard from for so long loses its handles */
#define FILES_EXPIRE_UNOWNED     10    /* times as long for a handle without a client */
#define FILES_CURSOR_GO_ON       UINT64_MAX /* list: go on where the handle stands */

enum files_op {
	FILES_STAT = 1, /* path → attr, link target as data */
	FILES_LIST,     /* path, or handle; offset: cursor → entries; rep.offset: next cursor;
			   rep.handle: to go on with, 0 when FILES_REP_END */
	FILES_OPEN,     /* path, mode, length: bytes wanted inline → handle, attr, data */
	FILES_READ,     /* handle, offset, length → data, value = its length */
	FILES_WRITE,    /* handle, offset, data → value = bytes, attr */
	FILES_SYNC,     /* handle */
	FILES_CLOSE,    /* handle → count of bytes read and written, path as data */
	FILES_RENAME,   /* path → path2 */
	FILES_REMOVE,   /* path: a file, link, or empty directory */
	FILES_UNLINK,
	FILES_RMDIR,
	FILES_MKDIR,      /* path, mode → attr */
	FILES_LINK,       /* path gets the further name path2 → attr */
	FILES_SYMLINK,    /* path is made, path2 is its text (any bytes but NUL) → attr */
	FILES_MKNOD,      /* path, mode: S_IFIFO | permissions → attr */
	FILES_SETATTR,    /* path or handle; FILES_SET_* → attr */
	FILES_FALLOCATE,  /* path or handle, offset, length, mode: FALLOC_FL_* */
	FILES_COPY,       /* path or handle at offset → path2 or handle2 at offset2, length;
			     value = bytes copied now, 0 at the end of the source */
	FILES_XATTR_GET,  /* path or handle, path2: name → data */
	FILES_XATTR_SET,  /* data: value; mode: 1 create, 2 replace */
	FILES_XATTR_LIST, /* → names, each with a final NUL */
	FILES_XATTR_REMOVE,
	FILES_STATFS,     /* path → struct files_statfs as data */
	FILES_SEEK,       /* handle, offset, mode: 0 next data, 1 next hole → value */
	FILES_PUT,        /* path, data: whole file at once → attr */
	FILES_PUT_BEGIN,  /* path → handle */
	FILES_PUT_DATA,   /* handle, data: appended */
	FILES_PUT_COMMIT, /* handle → attr */
	FILES_PUT_ABORT,  /* handle */
	FILES_EXPIRED,    /* → struct files_closed with paths: handles that ended by themselves */
	/* only on a connection of sbx-fs/1 */
	FILES_HELLO,   /* value: version → value: version, struct fs_hello as data */
	FILES_WATCH,   /* path; FILES_FOLLOW → value: the watch, attr as after it stands */
	FILES_UNWATCH, /* handle: the watch */
	FILES_INVAL,   /* pushed, tag 0: value struct fs_inval with names as data */
	/* only from the front */
	FILES_ADOPT,    /* client, with a descriptor: serve sbx-fs/1 on it. Answered at its end */
	FILES_ACTIVITY, /* → value: FILES_USE requests so far; data as of EXPIRED; rep.handle:
			   adopted connections; rep.offset: closed handles that got lost */
	/* everybody's again: numbers stay as they are */
	FILES_LOCK,   /* handle, offset and length (0: to the end of all), mode: enum files_lock,
			 offset2: owner, uid: a number told to who asks → value 0, attr. With TEST:
			 value 1 and struct files_locked as data when it could not be had. With WAIT,
			 gid: the wait's number: value 1 when a FILES_GRANT will tell */
	FILES_UNWAIT, /* stream only; handle: the wait's number */
	FILES_GRANT,  /* stream only, pushed, tag 0: rep.handle: the wait's number; value, attr */
	FILES_SHARE,  /* stream only; length, with a sealed memfd: for FILES_SHARED */
	FILES_OP_COUNT
};
enum files_flags {             /* struct files_req.flags */
	FILES_FOLLOW = 1 << 0, /* a link as last element is followed */
	FILES_O_READ = 1 << 1,
	FILES_O_WRITE = 1 << 2,
	FILES_O_APPEND = 1 << 3, /* also FILES_WRITE: at the end, whatever the offset */
	FILES_O_CREATE = 1 << 4,
	FILES_O_EXCL = 1 << 5,
	FILES_O_TRUNC = 1 << 6,
	FILES_O_DIR_OK = 1 << 7,     /* a directory may be opened (for listing and sync) */
	FILES_INLINE_CLOSE = 1 << 8, /* no handle when all of the file came inline */
	FILES_WRITE_SYNC = 1 << 9,
	FILES_DATA_ONLY = 1 << 10, /* sync: fdatasync */
	FILES_NOREPLACE = 1 << 11,
	FILES_EXCHANGE = 1 << 12,
	FILES_SET_MODE = 1 << 13,
	FILES_SET_UID = 1 << 14,
	FILES_SET_GID = 1 << 15,
	FILES_SET_SIZE = 1 << 16, /* offset is the new size */
	FILES_SET_ATIME = 1 << 17,
	FILES_SET_MTIME = 1 << 18,
	FILES_ATIME_NOW = 1 << 19,
	FILES_MTIME_NOW = 1 << 20,
	FILES_ORDERED = 1 << 21, /* after all earlier requests of its handles were answered */
	FILES_USE = 1 << 22,     /* counts as use of the sandbox */
	FILES_QUIET = 1 << 23, /* close, on a stream: is not answered, whatever becomes of it */
	FILES_SHARED = 1 << 24, /* read, write, on a stream: `length` bytes of data are, or go, at
				   offset2 in the memory of SHARE, and none is in the frames */
	FILES_FLAGS_ALL = (1 << 25) - 1,
};
/* Refusals that are no errno; sent negative. */
enum files_error {
	FILES_E_NOTREG = 1001, /* exists and is neither a regular file nor a directory */
	FILES_E_REFUSED,       /* procfs, sysfs, devpts, cgroup, mqueue … */
	FILES_E_RACED,         /* the path kept changing while it was resolved */
	FILES_E_HANDLE,        /* no such handle: closed, expired, or another client's */
};

struct fs_frame {
	uint32_t len; /* of what follows */
	uint16_t op, flags;
	uint64_t tag;
	int64_t value;
};
struct files_time {
	int64_t sec;
	uint32_t nsec, pad;
};

struct files_req {
	uint64_t client; /* owner of handles; 0: none, then a handle lives by its own use */
	uint64_t handle, handle2;
	uint64_t offset, offset2, length;
	uint32_t flags, mode, uid, gid;
	struct files_time atime, mtime;
	uint32_t path_len, path2_len, data_len, pad;
};
struct files_attr {
	uint32_t mode, uid, gid, nlink; /* mode with the type */
	uint64_t size, blocks, ino, dev;
	uint64_t gen;     /* tells two files apart that got the same inode number */
	uint64_t version; /* differs whenever content or size may differ */
	struct files_time atime, mtime, ctime;
};
enum files_rep_flags {
	FILES_REP_END = 1,     /* list: that was all */
	FILES_REP_EXPIRED = 2, /* FILES_EXPIRED has something to tell */
	FILES_REP_CREATED = 4, /* open: the file was made by this request; close, expired: this
				  handle made, emptied or resized its file */
	FILES_REP_REMOVED = 8, /* expired: no handle, a name that was removed */
	FILES_REP_LOCKED = 16, /* lock: this handle holds locks now */
};
struct files_rep {
	uint64_t handle, offset;
	uint64_t bytes_read, bytes_written;
	uint32_t flags, data_len;
	struct files_attr attr;
};
/* One entry of a page: this, the name, the link's target; no padding between entries. */
struct files_entry {
	struct files_attr attr;
	uint64_t cursor; /* to list what comes after this entry */
	uint32_t name_len, target_len;
};
struct files_closed {
	uint64_t bytes_read, bytes_written;
	uint32_t path_len, flags;
};
struct files_statfs {
	uint64_t bsize, blocks, bfree, bavail, files, ffree, namelen;
	uint64_t type; /* as in linux/magic.h: whose figures these are */
};

enum files_lock { /* struct files_req.mode of LOCK; neither READ nor WRITE: let go */
	FILES_LOCK_READ = 1,
	FILES_LOCK_WRITE = 2,
	FILES_LOCK_FLOCK = 4, /* as flock(2): the handle's, of the whole file */
	FILES_LOCK_TEST = 8,
	FILES_LOCK_WAIT = 16,
	FILES_LOCK_ALL = 31,
};
struct files_locked {
	uint64_t offset, length; /* length 0: to the end of all */
	uint32_t write, who;     /* who: the number of its owner; 0: not one of this client */
};

enum fs_watch_kind {
	FS_WATCH_NONE,    /* WATCH is answered -ENOSPC */
	FS_WATCH_INOTIFY, /* direct children of a directory by name, or the one file */
};
enum fs_features { /* bits of fs_hello.features */
	FS_FEATURE_WATCH = 1,
	FS_FEATURE_ORDERED = 2,
	FS_FEATURE_LOCKS = 4,
	FS_FEATURE_QUIET = 8,
	FS_FEATURE_SHARED = 16,
	FS_FEATURE_WATCH_FIRST = 32,
	FS_FEATURE_LONG_PATHS = 64, /* up to FS_PATH_MAX */
};
struct fs_hello {
	uint32_t data_max, inflight_max, handles_max; /* handles: this client's */
	uint32_t watch_max, watch_kind, reserved;
	uint64_t features;
};
enum fs_inval_what { /* bits */
	FS_INVAL_NAME = 1, /* an entry of that name came, went or was replaced */
	FS_INVAL_ATTR = 2, /* of the named entry; without a name of what is watched itself */
	FS_INVAL_DATA = 4, /* the same; size and times too */
	FS_INVAL_GONE = 8, /* the watch has ended: its object was removed, or unmounted */
	FS_INVAL_ALL = 16, /* watch 0: something was lost, nothing known before counts */
};
/* One change: this, then the name; no padding between changes. */
struct fs_inval {
	uint64_t watch;
	uint32_t what, name_len;
};

#endif
