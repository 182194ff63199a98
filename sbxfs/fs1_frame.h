/* SPDX-License-Identifier: MIT */
/* What a peer of sbx-fs/1 sends, checked: lengths, counts, names, sizes, errors. Nothing here talks,
 * waits or allocates, so that a fuzzer can have all of it. */
#ifndef SBXFS_FS1_FRAME_H
#define SBXFS_FS1_FRAME_H

#include "common/fs/files.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* Is it the beginning of an answer or of a push? */
bool fs1_head_ok(const struct fs_frame *f, const struct files_rep *r);
/* The answer's failure as a kernel takes it: -1..-511, never one that has a meaning of its own for a
 * whole mount. */
int fs1_errno(int64_t value);
bool fs1_hello_ok(const struct fs_frame *f, const struct files_rep *r, const struct fs_hello *h);
/* Fit to be shown? */
bool fs1_attr_ok(const struct files_attr *a);

/* Walks what a LIST or an INVAL brought. 1: one more; 0: the end; -1: it breaks a rule. The name is
 * copied with a NUL; "" when it is none that may be shown. */
struct fs1_entry {
	struct files_attr attr;
	char name[256];
	char target[FILES_PATH_MAX]; /* "": none, or none that can be shown */
};
int fs1_next_entry(const char *buf, size_t len, size_t *at, struct fs1_entry *ret);
struct fs1_change {
	struct fs_inval head;
	char name[256];
};
int fs1_next_change(const char *buf, size_t len, size_t *at, struct fs1_change *ret);

#endif
