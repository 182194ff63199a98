/* SPDX-License-Identifier: MIT */
/* Requests about guest files as frames: binary both ways, attributes straight into what the kernel is
 * shown. Each gives FS1_PLAIN when it has to go the plain way. */
#include "sbxfs/fs1_frame.h"
#include "sbxfs/locks.h"
#include "sbxfs/remote.h"
#include "sbxfs/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#define DATA_MS 30000
#define LISTING_MS 120000
#define ENTRIES_MAX 4000000 /* of one listing, bad names counted: directories may be without end */

static struct tree_stamp stamp_of(const struct fs1_call *c)
{
	return (struct tree_stamp){ c->epoch, c->asked, c->seen };
}

static struct timespec time_of(const struct files_time *t)
{
	return (struct timespec){ .tv_sec = t->sec, .tv_nsec = t->nsec };
}

static void attr_shown(const struct mount *m, const struct files_attr *a, struct tree_attr *ret)
{
	struct stat *st = &ret->st;

	memset(ret, 0, sizeof(*ret));
	/* Set-id bits of a guest mean nothing here. */
	st->st_mode = (a->mode & S_IFMT) | (a->mode & 01777);
	st->st_uid = wire_uid_shown(m, a->uid);
	st->st_gid = wire_gid_shown(m, a->gid);
	st->st_nlink = S_ISDIR(st->st_mode) ? 1 : a->nlink;
	st->st_size = (off_t)a->size;
	st->st_blocks = (blkcnt_t)a->blocks;
	st->st_blksize = 65536;
	st->st_ino = wire_ino(a->dev, a->ino);
	st->st_atim = time_of(&a->atime);
	st->st_mtim = time_of(&a->mtime);
	st->st_ctim = time_of(&a->ctime);
	ret->id = (struct tree_id){ .dev = a->dev, .ino = a->ino, .gen = a->gen };
	(void)snprintf(ret->version, sizeof(ret->version), "%016llx", (unsigned long long)a->version);
}

static int lies(struct req *q)
{
	return refuse(q, EPROTO, "the sandbox's answer about a file cannot be believed");
}

static int attr_of(struct req *q, const struct fs1_call *c, struct tree_attr *ret)
{
	if (!fs1_attr_ok(&c->rep.attr))
		return lies(q);
	attr_shown(q->m, &c->rep.attr, ret);
	ret->stamp = stamp_of(c);
	return 0;
}

static char *target_of(const char *p, size_t len)
{
	return !len || len >= GUEST_PATH_MAX || memchr(p, '\0', len) ? NULL : strndup(p, len);
}

/* A call that tells attributes and nothing more. */
static int call_attr(struct req *q, const char *box, struct fs1_call *c, struct tree_attr *ret)
{
	int rc = fs1_call(q, box, c);

	return rc ? rc : attr_of(q, c, ret);
}

static uint64_t handle_of(const char *text)
{
	return strtoull(text, NULL, 10);
}

/* Initializers of a call about a file: by an open handle when there is one, else by its path. */
#define OBJECT(by_path, by_handle) \
	.path = (by_handle) ? NULL : (by_path), .r.handle = (by_handle) ? handle_of(by_handle) : 0

int frame_stat(struct req *q, const char *box, const char *path, struct tree_attr *ret)
{
	struct fs1_call c = { .op = FILES_STAT, .path = path, .max = GUEST_PATH_MAX };
	int rc = call_attr(q, box, &c, ret);

	if (rc < 0) {
		memset(ret, 0, sizeof(*ret));
		ret->stamp = stamp_of(&c); /* that there is nothing may be believed, too */
	}
	if (rc == 0 && S_ISLNK(ret->st.st_mode))
		ret->target = target_of(c.out, c.out_len);
	fs1_call_fini(&c);
	return rc;
}

/* Setting nothing tells the attributes. */
int frame_fstat(struct req *q, const char *box, const char *handle, struct tree_attr *ret)
{
	struct fs1_call c = { .op = FILES_SETATTR, .r.handle = handle_of(handle) };

	return call_attr(q, box, &c, ret);
}

struct paging {
	struct req *q;
	wire_entry *each;
	void *arg;
	uint64_t total;
};

static int list_page(struct paging *l, const struct fs1_call *c, struct fs1_entry *e)
{
	int64_t n = 0;
	size_t at = 0;
	int more, rc = 0;

	while (rc == 0 && (more = fs1_next_entry(c->out, c->out_len, &at, e)) > 0) {
		_cleanup_attr_ struct tree_attr a = { .target = NULL };

		n++;
		if (!e->name[0]) { /* one bad name would fail the whole directory */
			atomic_fetch_add(&l->q->m->stats.bad_names, 1);
			continue;
		}
		attr_shown(l->q->m, &e->attr, &a);
		if (S_ISLNK(a.st.st_mode) && e->target[0])
			a.target = strdup(e->target);
		rc = l->each(l->arg, e->name, &a);
	}
	l->total += (uint64_t)n;
	if (rc == 0 && (more < 0 || n != c->value || l->total > ENTRIES_MAX))
		rc = lies(l->q);
	/* An empty page that is not the last one would go on for ever. */
	return rc == 0 && !n && !(c->rep.flags & FILES_REP_END) ? lies(l->q) : rc;
}

/* Between two pages: a directory may grow faster than it is read. */
static int goes_on(struct req *q, uint64_t start)
{
	if (remote_interrupted(q))
		return refuse(q, EINTR, "interrupted");
	return now_ms() - start > (uint64_t)mount_patience(q->m, LISTING_MS) ?
		refuse(q, ETIMEDOUT, "this directory does not end") : 0;
}

int frame_list(struct req *q, const char *box, const char *path, wire_entry *each, void *arg,
	struct tree_stamp *ret_stamp)
{
	struct paging l = { .q = q, .each = each, .arg = arg };
	struct fs1_entry *e = malloc(sizeof(*e));
	struct fs1_call c = { .op = FILES_LIST, .path = path, .r.flags = FILES_FOLLOW,
		.max = FILES_DATA_MAX, .timeout_ms = DATA_MS };
	uint64_t start = now_ms();
	bool first = true, end;
	int rc = e ? 0 : -ENOMEM;

	do {
		if (rc == 0)
			rc = fs1_call(q, box, &c);
		if (rc)
			break;
		if (first && ret_stamp)
			*ret_stamp = stamp_of(&c);
		first = false;
		rc = list_page(&l, &c, e);
		fs1_call_fini(&c);
		end = !c.rep.handle || (c.rep.flags & FILES_REP_END);
		if (rc == 0 && end && !(c.rep.flags & FILES_REP_END))
			rc = lies(q);
		if (rc == 0 && !end)
			rc = goes_on(q, start);
		if (rc && c.rep.handle)
			(void)fs1_tell(q, box, FILES_CLOSE, c.rep.handle);
		c.path = NULL;
		c.r.handle = c.rep.handle;
		c.r.offset = FILES_CURSOR_GO_ON;
	} while (rc == 0 && !end);
	free(e);
	/* Some entries are told already: they cannot be told again. */
	return rc == FS1_PLAIN && !first ? refuse(q, EIO, "the listing was cut short") : rc;
}

static unsigned open_flags(int flags, size_t want)
{
	int how = flags & O_ACCMODE;
	unsigned f = 0;

	/* The host's kernel has followed links where they are to be followed: no FILES_FOLLOW. */
	if (how != O_WRONLY)
		f |= FILES_O_READ;
	if (how != O_RDONLY)
		/* Each write says whether it appends: fcntl(2) may change that. */
		f |= FILES_O_WRITE | (flags & O_TRUNC ? FILES_O_TRUNC : 0);
	if (flags & O_CREAT)
		f |= FILES_O_CREATE | (flags & O_EXCL ? FILES_O_EXCL : 0);
	if (want && (flags & WIRE_CLOSE) == WIRE_CLOSE)
		f |= FILES_INLINE_CLOSE;
	return f | FILES_O_DIR_OK;
}

int frame_open(struct req *q, const char *box, const char *path, int flags, mode_t mode, size_t want,
	char ret_handle[24], struct tree_attr *ret, char **ret_data, size_t *ret_len)
{
	struct fs1_call c = { .op = FILES_OPEN, .path = path, .max = want,
		.once = (flags & O_ACCMODE) != O_RDONLY,
		.r = { .mode = mode & 07777, .length = want, .flags = open_flags(flags, want) } };
	int rc = fs1_call(q, box, &c);

	if (rc)
		return rc;
	rc = attr_of(q, &c, ret);
	if (rc == 0 && !c.rep.handle && !(c.r.flags & FILES_INLINE_CLOSE && (off_t)c.out_len >= ret->st.st_size))
		rc = lies(q);
	(void)snprintf(ret_handle, 24, "%llu", (unsigned long long)c.rep.handle);
	if (rc == 0 && ret_data && S_ISREG(ret->st.st_mode)) {
		*ret_data = c.out ? c.out : want ? calloc(1, 1) : NULL;
		*ret_len = c.out_len;
		c.out = NULL;
	}
	fs1_call_fini(&c);
	return rc;
}

int frame_read(struct req *q, const char *box, const char *handle, uint64_t off, size_t len, char *buf,
	size_t *ret)
{
	struct fs1_call c = { .op = FILES_READ, .into = buf, .max = len, .timeout_ms = DATA_MS,
		.r = { .handle = handle_of(handle), .offset = off, .length = len } };
	int rc = fs1_call(q, box, &c);

	if (rc == 0)
		*ret = c.out_len;
	return rc;
}

int frame_write(struct req *q, const char *box, const char *handle, uint64_t off, bool append,
	const void *buf, size_t len, uint64_t *ret_written)
{
	struct fs1_call c = { .op = FILES_WRITE, .data = buf, .data_len = len, .timeout_ms = DATA_MS,
		.once = append,
		.r = { .handle = handle_of(handle), .offset = off, .flags = append ? FILES_O_APPEND : 0 } };
	int rc = fs1_call(q, box, &c);

	if (rc == 0)
		*ret_written = (uint64_t)c.value < len ? (uint64_t)c.value : len;
	return rc;
}

int frame_sync(struct req *q, const char *box, const char *handle, bool data_only)
{
	struct fs1_call c = { .op = FILES_SYNC, .timeout_ms = DATA_MS,
		.r = { .handle = handle_of(handle), .flags = data_only ? FILES_DATA_ONLY : 0 } };

	return fs1_call(q, box, &c);
}

bool frame_close(struct req *q, const char *box, const char *handle)
{
	return fs1_tell(q, box, FILES_CLOSE, handle_of(handle));
}

int frame_make(struct req *q, const char *box, enum wire_make what, const char *path, mode_t mode,
	const char *target, struct tree_attr *ret)
{
	static const enum files_op ops[] = { FILES_MKDIR, FILES_MKNOD, FILES_SYMLINK };
	struct fs1_call c = { .op = ops[what], .path = path, .path2 = target, .once = true,
		.r.mode = (what == WIRE_FIFO ? S_IFIFO : 0) | (mode & 07777) };

	return call_attr(q, box, &c, ret);
}

int frame_link(struct req *q, const char *box, const char *from, const char *to, struct tree_attr *ret)
{
	struct fs1_call c = { .op = FILES_LINK, .path = from, .path2 = to, .once = true };

	return call_attr(q, box, &c, ret);
}

int frame_drop(struct req *q, const char *box, const char *path, bool is_dir)
{
	struct fs1_call c = { .op = is_dir ? FILES_RMDIR : FILES_UNLINK, .path = path, .once = true };

	return fs1_call(q, box, &c);
}

int frame_rename(struct req *q, const char *box, const char *from, const char *to, unsigned flags)
{
	struct fs1_call c = { .op = FILES_RENAME, .path = from, .path2 = to, .once = true };

	c.r.flags = (flags & RENAME_NOREPLACE ? FILES_NOREPLACE : 0) |
		(flags & RENAME_EXCHANGE ? FILES_EXCHANGE : 0);
	return fs1_call(q, box, &c);
}

static const struct {
	int set;
	unsigned flag;
} set_flags[] = {
	{ FUSE_SET_ATTR_SIZE, FILES_SET_SIZE },
	{ FUSE_SET_ATTR_UID, FILES_SET_UID },
	{ FUSE_SET_ATTR_GID, FILES_SET_GID },
	{ FUSE_SET_ATTR_MODE, FILES_SET_MODE },
	{ FUSE_SET_ATTR_ATIME, FILES_SET_ATIME },
	{ FUSE_SET_ATTR_MTIME, FILES_SET_MTIME },
	{ FUSE_SET_ATTR_ATIME_NOW, FILES_ATIME_NOW },
	{ FUSE_SET_ATTR_MTIME_NOW, FILES_MTIME_NOW },
};

int frame_setattr(struct req *q, const char *box, const char *path, const char *handle,
	const struct stat *st, int set, struct tree_attr *ret)
{
	struct fs1_call c = { .op = FILES_SETATTR, OBJECT(path, handle),
		.r.mode = st->st_mode & 07777, .r.uid = wire_uid(q->m, st->st_uid),
		.r.gid = wire_gid(q->m, st->st_gid) };

	for (size_t n = 0; n < sizeof(set_flags) / sizeof(set_flags[0]); n++)
		if (set & set_flags[n].set)
			c.r.flags |= set_flags[n].flag;
	if (!c.r.flags) { /* chown to -1 and -1 changes the time of the change alone */
		c.r.flags = FILES_SET_UID;
		c.r.uid = UINT32_MAX;
	}
	if (set & FUSE_SET_ATTR_SIZE)
		c.r.offset = (uint64_t)st->st_size;
	if (set & FUSE_SET_ATTR_ATIME)
		c.r.atime = (struct files_time){ st->st_atim.tv_sec, (uint32_t)st->st_atim.tv_nsec, 0 };
	if (set & FUSE_SET_ATTR_MTIME)
		c.r.mtime = (struct files_time){ st->st_mtim.tv_sec, (uint32_t)st->st_mtim.tv_nsec, 0 };
	return call_attr(q, box, &c, ret);
}

int frame_fallocate(struct req *q, const char *box, const char *handle, int mode, off_t off, off_t len)
{
	struct fs1_call c = { .op = FILES_FALLOCATE, .once = true, .timeout_ms = DATA_MS,
		.r = { .handle = handle_of(handle), .offset = (uint64_t)off, .length = (uint64_t)len,
			.mode = (uint32_t)mode } };

	return fs1_call(q, box, &c);
}

int frame_copy(struct req *q, const char *box, const struct wire_copy *w, uint64_t *ret)
{
	struct fs1_call c = { .op = FILES_COPY, .timeout_ms = DATA_MS, .r = { .handle = handle_of(w->from),
		.handle2 = handle_of(w->to), .offset = (uint64_t)w->from_off, .offset2 = (uint64_t)w->to_off,
		.length = w->len > INT32_MAX ? INT32_MAX : w->len } };
	int rc = fs1_call(q, box, &c);

	if (rc == 0)
		*ret = (uint64_t)c.value < w->len ? (uint64_t)c.value : w->len;
	return rc;
}

int frame_seek(struct req *q, const char *box, const char *handle, off_t off, int whence, off_t *ret)
{
	struct fs1_call c = { .op = FILES_SEEK, .r = { .handle = handle_of(handle),
		.offset = (uint64_t)off, .mode = whence == SEEK_HOLE } };
	int rc = fs1_call(q, box, &c);

	*ret = c.value;
	return rc;
}

int frame_xattr_get(struct req *q, const char *box, const char *path, const char *handle,
	const char *name, char **ret, size_t *ret_len)
{
	struct fs1_call c = { .op = FILES_XATTR_GET, OBJECT(path, handle), .path2 = name, .max = FILES_XATTR_MAX };
	int rc = fs1_call(q, box, &c);

	*ret = c.out;
	*ret_len = c.out_len;
	return rc;
}

int frame_xattr_set(struct req *q, const char *box, const char *path, const char *handle,
	const char *name, const struct wire_value *v)
{
	struct fs1_call c = { .op = FILES_XATTR_SET, OBJECT(path, handle), .path2 = name, .data = v->p,
		.data_len = v->len, .once = v->flags != 0,
		.r.mode = v->flags & XATTR_CREATE ? 1 : v->flags & XATTR_REPLACE ? 2 : 0 };

	return fs1_call(q, box, &c);
}

/* Names each with a final NUL; the last one's is ours if it is missing. */
int frame_xattr_list(struct req *q, const char *box, const char *path, const char *handle, char **ret,
	size_t *ret_len)
{
	struct fs1_call c = { .op = FILES_XATTR_LIST, OBJECT(path, handle), .max = FILES_XATTR_MAX };
	int rc = fs1_call(q, box, &c);

	*ret = c.out;
	*ret_len = c.out_len;
	if (rc == 0 && c.out_len && c.out[c.out_len - 1])
		++*ret_len;
	return rc;
}

int frame_xattr_remove(struct req *q, const char *box, const char *path, const char *handle,
	const char *name)
{
	struct fs1_call c = { .op = FILES_XATTR_REMOVE, OBJECT(path, handle), .path2 = name, .once = true };

	return fs1_call(q, box, &c);
}

void frame_attr(const struct mount *m, const struct files_attr *a, struct tree_attr *ret)
{
	attr_shown(m, a, ret);
}

int frame_lock(struct req *q, const char *box, const char *handle, struct lock_ask *a, bool *ret_locked)
{
	struct fs1_call c = { .op = FILES_LOCK, .max = sizeof(a->other), .into = &a->other, .r = a->r };
	int rc;

	c.r.handle = handle_of(handle);
	rc = fs1_call(q, box, &c);
	if (rc != 0 && rc != -EAGAIN)
		return rc;
	*ret_locked = c.rep.flags & FILES_REP_LOCKED;
	a->value = c.value;
	if (rc < 0 || c.value)
		return rc == 0 && (a->r.mode & FILES_LOCK_TEST) && c.out_len != sizeof(a->other) ? lies(q) : rc;
	return attr_of(q, &c, &a->attr);
}
