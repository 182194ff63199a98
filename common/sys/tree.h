/* SPDX-License-Identifier: MIT */
/* Folders of our own, with all that is in them. Libc only. */
#ifndef COMMON_SYS_TREE_H
#define COMMON_SYS_TREE_H

#include <stdint.h>

/* Removes a file or a folder below `parent`, also what its owner has closed to himself; no link is followed, no other
 * file system entered. What is not there is fine. 0 or -errno of the first that could not be removed. However deep it
 * is, it holds 64 descriptors at a time. */
int tree_remove(int parent, const char *name);
/* Sum of the sizes of the regular files in it; INT64_MAX: there are more than `most` entries, folders in more than 64
 * others, or some that we may not look into. */
int64_t tree_size(int parent, const char *name, int most);

#endif
