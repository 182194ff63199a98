/* SPDX-License-Identifier: MIT */
/* FNV-1a by Fowler, Noll and Vo (draft-eastlake-fnv): small, and good enough to tell names apart that nobody gains by
 * making alike. A hash goes on from an earlier one, so that several parts make one. */
#ifndef COMMON_SYS_FNV_H
#define COMMON_SYS_FNV_H

#include <stddef.h>
#include <stdint.h>

#define FNV64 14695981039346656037u /* of nothing */

static inline uint64_t fnv64(uint64_t h, const void *p, size_t n)
{
	for (const unsigned char *b = p; n > 0; b++, n--)
		h = (h ^ *b) * 1099511628211u;
	return h;
}

#endif
