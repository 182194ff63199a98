/* SPDX-License-Identifier: MIT */
/* The byte ranges of one file that one owner of locks holds: sorted, apart, neighbours of one kind
 * joined. Pure; both ends of a range count to it. */
#ifndef COMMON_FS_RANGES_H
#define COMMON_FS_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct range {
	uint64_t from, to;
	bool write;
};
struct ranges {
	struct range *v; /* owned */
	size_t n;
};

enum range_kind { RANGE_NONE, RANGE_READ, RANGE_WRITE };
/* What `r` would be with from..to of that kind: into *ret, which is new. 0 or -ENOMEM. */
int ranges_with(const struct ranges *r, uint64_t from, uint64_t to, enum range_kind kind,
	struct ranges *ret);
/* The first one that touches from..to, or NULL; `write`: only one for writing. */
const struct range *ranges_find(const struct ranges *r, uint64_t from, uint64_t to, bool write);
void ranges_free(struct ranges *r);

#endif
