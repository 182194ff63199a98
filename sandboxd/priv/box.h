/* SPDX-License-Identifier: MIT */
/* What the broker remembers of a sandbox between its own lives: priv/boxes/<id>, one struct. It is
 * written before anything is made, so that whatever exists has a name to be swept by. */
#ifndef SANDBOXD_PRIV_BOX_H
#define SANDBOXD_PRIV_BOX_H

#include "sandboxd/priv/priv.h"
#include "sandboxd/priv/sys.h"

#include <stdbool.h>

#define BOX_MAGIC 0x53425842u
/* 65,536 host ids a sandbox; the shims' own ids lie below all of them, one each. */
#define BOX_ID_BASE   1879048192u
#define BOX_ID_STEP   65536u
#define BOX_BLOCKS    36863u
#define BOX_SHIM_BASE (BOX_ID_BASE - 65536u)
#define BOX_EGRESS_BASE (BOX_SHIM_BASE - 65536u) /* and those of the egress processes */

struct record {
	uint32_t magic, block;
	uint64_t generation;
	int32_t shim_pid; /* 0 while it is being made */
	uint32_t volumes; /* some that it may write: flushed at its end */
	uint64_t shim_start;   /* its start time, so that a pid used again is not taken for it */
	char boot[40];
	int64_t disk_mb;
};

static inline uint32_t box_uid(uint32_t block)
{
	return BOX_ID_BASE + block * BOX_ID_STEP;
}
/* Name of the control groups, and of the disk area before the sandbox has an id. */
#define BOX_NAME_MAX 24
void box_group(char name[BOX_NAME_MAX], uint32_t block);
void box_pool(char name[BOX_NAME_MAX], uint32_t block);
static inline uint32_t box_shim_uid(uint32_t block)
{
	return BOX_SHIM_BASE + block;
}
static inline uint32_t box_egress_uid(uint32_t block)
{
	return BOX_EGRESS_BASE + block;
}
int record_read(int boxes, const char *id, struct record *ret);
/* Of what record_read said: there may be one, which cannot be read just now. */
static inline bool record_unread(int r)
{
	return r == -EMFILE || r == -ENFILE || r == -ENOMEM || r == -EIO;
}
int record_write(int boxes, const char *id, const struct record *b);
int record_drop(int boxes, const char *id); /* one that is not there is no error */
/* Beside the record: what its disk was charged, in bytes, when its last snapshot was taken; -ENOENT: none was. */
int64_t record_sealed(int boxes, const char *id);
int record_note_sealed(int boxes, const char *id, int64_t bytes);
/* The shim named in b still runs, in this boot. */
bool record_alive(const struct record *b, const char *boot);
int box_boot_id(char boot[40]);
int box_each(int boxes, void (*fn)(void *arg, const char *id), void *arg);

/* Blocks in use, one bit each. */
struct box_blocks {
	uint32_t next;
	uint8_t used[BOX_BLOCKS / 8 + 1];
};
int box_block_take(struct box_blocks *b, uint32_t *ret);
void box_block_mark(struct box_blocks *b, uint32_t n);
void box_block_free(struct box_blocks *b, uint32_t n);

#endif
