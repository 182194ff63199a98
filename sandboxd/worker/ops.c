/* SPDX-License-Identifier: MIT */
/* The table of operations and what each needs: a request that lacks it is refused here. */
#include "sandboxd/worker/state.h"

#include <errno.h>
#include <string.h>

enum need {
	PATH = 1,
	PATH2 = 2,
	PATH_OR_HANDLE = 4,
	PATH2_OR_HANDLE2 = 8,
	HANDLE = 16,
	NAME2 = 32,
	FRONT = 64,  /* only from the front */
	STREAM = 128 /* only on a stream */
};

static const struct op {
	op_fn *fn;
	unsigned need;
} ops[FILES_OP_COUNT] = {
	[FILES_STAT] = { op_stat, PATH },
	[FILES_LIST] = { op_list, PATH_OR_HANDLE },
	[FILES_OPEN] = { op_open, PATH },
	[FILES_READ] = { op_read, HANDLE },
	[FILES_WRITE] = { op_write, HANDLE },
	[FILES_SYNC] = { op_sync, HANDLE },
	[FILES_CLOSE] = { op_close, HANDLE },
	[FILES_RENAME] = { op_rename, PATH | PATH2 },
	[FILES_REMOVE] = { op_remove, PATH },
	[FILES_UNLINK] = { op_unlink, PATH },
	[FILES_RMDIR] = { op_rmdir, PATH },
	[FILES_MKDIR] = { op_mkdir, PATH },
	[FILES_LINK] = { op_link, PATH | PATH2 },
	[FILES_SYMLINK] = { op_symlink, PATH | NAME2 },
	[FILES_MKNOD] = { op_mknod, PATH },
	[FILES_SETATTR] = { op_setattr, PATH_OR_HANDLE },
	[FILES_FALLOCATE] = { op_fallocate, PATH_OR_HANDLE },
	[FILES_COPY] = { op_copy, PATH_OR_HANDLE | PATH2_OR_HANDLE2 },
	[FILES_XATTR_GET] = { op_xattr_get, PATH_OR_HANDLE | NAME2 },
	[FILES_XATTR_SET] = { op_xattr_set, PATH_OR_HANDLE | NAME2 },
	[FILES_XATTR_LIST] = { op_xattr_list, PATH_OR_HANDLE },
	[FILES_XATTR_REMOVE] = { op_xattr_remove, PATH_OR_HANDLE | NAME2 },
	[FILES_STATFS] = { op_statfs, PATH },
	[FILES_SEEK] = { op_seek, HANDLE },
	[FILES_PUT] = { op_put, PATH | FRONT },
	[FILES_PUT_BEGIN] = { op_put_begin, PATH | FRONT },
	[FILES_PUT_DATA] = { op_put_data, HANDLE | FRONT },
	[FILES_PUT_COMMIT] = { op_put_commit, HANDLE | FRONT },
	[FILES_PUT_ABORT] = { op_put_abort, HANDLE | FRONT },
	[FILES_EXPIRED] = { op_expired, FRONT },
	[FILES_ACTIVITY] = { op_activity, FRONT },
	[FILES_LOCK] = { op_lock, HANDLE },
	[FILES_UNWAIT] = { op_unwait, HANDLE | STREAM },
	[FILES_HELLO] = { op_hello, STREAM },
	[FILES_SHARE] = { op_share, STREAM },
	[FILES_WATCH] = { op_watch, PATH | STREAM },
	[FILES_UNWATCH] = { op_unwatch, HANDLE | STREAM },
};

static bool has(const struct job *j, unsigned need)
{
	const struct files_req *q = &j->q;

	if ((need & PATH) && j->path[0] != '/')
		return false;
	if ((need & PATH2) && j->path2[0] != '/')
		return false;
	if ((need & NAME2) && !j->path2[0])
		return false;
	if ((need & HANDLE) && !q->handle)
		return false;
	if ((need & PATH_OR_HANDLE) && !q->handle && j->path[0] != '/')
		return false;
	return !(need & PATH2_OR_HANDLE2) || q->handle2 || j->path2[0] == '/';
}

/* The front cleans the paths that it sends; a client's are looked at here. */
static bool clean(const char *p)
{
	for (; *p == '/'; p += strcspn(p, "/")) {
		size_t n = strcspn(++p, "/");
		if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
			return false;
	}
	return true;
}

static int64_t stream_check(const struct job *j, const struct op *op)
{
	if (op->need & FRONT)
		return -ENOSYS;
	if (j->q.flags & ~(unsigned)FILES_FLAGS_ALL)
		return -EINVAL;
	if ((strcmp(j->path, "/") && !clean(j->path)) ||
		(!(op->need & NAME2) && strcmp(j->path2, "/") && !clean(j->path2)))
		return -EINVAL;
	return 0;
}

int64_t job_run(struct job *j)
{
	const struct op *op;
	int64_t r = 0;

	if (j->f.op == 0 || j->f.op >= FILES_OP_COUNT || !ops[j->f.op].fn)
		return -ENOSYS;
	op = &ops[j->f.op];
	if (j->stream)
		r = stream_check(j, op);
	else if (op->need & STREAM)
		r = -ENOSYS;
	if (r < 0)
		return r;
	if (!has(j, op->need))
		return -EINVAL;
	handle_heard(j->w, j->q.client);
	r = op->fn(j);
	if (j->stream && r >= 0)
		closed_record(j, r);
	return r;
}
