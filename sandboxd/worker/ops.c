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
	NAME2 = 32
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
	[FILES_PUT] = { op_put, PATH },
	[FILES_PUT_BEGIN] = { op_put_begin, PATH },
	[FILES_PUT_DATA] = { op_put_data, HANDLE },
	[FILES_PUT_COMMIT] = { op_put_commit, HANDLE },
	[FILES_PUT_ABORT] = { op_put_abort, HANDLE },
	[FILES_EXPIRED] = { op_expired, 0 },
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

int64_t job_run(struct job *j)
{
	const struct op *op;

	if (j->f.op == 0 || j->f.op >= FILES_OP_COUNT)
		return -ENOSYS;
	op = &ops[j->f.op];
	if (!op->fn || !has(j, op->need))
		return -EINVAL;
	handle_heard(j->w, j->q.client);
	return op->fn(j);
}
