/* SPDX-License-Identifier: MIT */
/* Small answers about the tree as a whole: its space, holes, and who is in the mount's group. */
#include "sbxfs/ops.h"
#include "sbxfs/remote.h"

#include <errno.h>
#include <grp.h>
#include <stdlib.h>
#include <unistd.h>

#define MIB_BLOCKS 256 /* of 4 KiB */

/* Space of the node; something that is not nothing when it cannot be asked, or df hides us. */
void virtual_statfs(struct req *q)
{
	struct statvfs s = { .f_bsize = 4096, .f_frsize = 4096, .f_namemax = 255, .f_blocks = 1 };
	json_t *o;

	if (remote_json(q, "GET", sbx_path("/v1/node"), NULL, &o) == 0) {
		json_int_t all = json_integer_value(json_object_get(json_object_get(o, "capacity"), "disk_mb"));
		json_int_t left = json_integer_value(json_object_get(json_object_get(o, "free"), "disk_mb"));

		if (all > 0)
			s.f_blocks = (fsblkcnt_t)all * MIB_BLOCKS;
		if (left > 0)
			s.f_bfree = s.f_bavail = (fsblkcnt_t)left * MIB_BLOCKS;
		json_decref(o);
	}
	s.f_files = inodes_count(q->m->inodes);
	fuse_reply_statfs(q->fr, &s);
}

void virtual_lseek(struct req *q, const struct inode *i, off_t off, int whence)
{
	bool complete;
	uint64_t size = i->size;

	if (i->node->kind == KIND_LOG && log_size(q, i, &size, &complete) < 0)
		size = 0;
	if (off < 0 || (uint64_t)off >= size)
		req_fail(q, -ENXIO);
	else
		fuse_reply_lseek(q->fr, whence == SEEK_HOLE ? (off_t)size : off);
}

bool caller_in_group(fuse_req_t fr, gid_t gid)
{
	gid_t list[256];
	int n = fuse_req_getgroups(fr, 256, list);

	for (int i = 0; i < n && i < 256; i++)
		if (list[i] == gid)
			return true;
	return false;
}
