/* SPDX-License-Identifier: MIT */
#include "common/fs/ranges.h"

#include <errno.h>
#include <stdlib.h>

static void put(struct ranges *r, uint64_t from, uint64_t to, bool write)
{
	struct range *last = r->n ? &r->v[r->n - 1] : NULL;

	if (last && last->write == write && last->to + 1 == from)
		last->to = to;
	else
		r->v[r->n++] = (struct range){ from, to, write };
}

/* The parts of old ones outside of from..to stay; the new one goes in where it belongs. */
int ranges_with(const struct ranges *r, uint64_t from, uint64_t to, enum range_kind kind,
	struct ranges *ret)
{
	bool placed = kind == RANGE_NONE;

	ret->n = 0;
	ret->v = malloc((r->n + 2) * sizeof(*ret->v));
	if (!ret->v)
		return -ENOMEM;
	for (size_t i = 0; i < r->n; i++) {
		const struct range *old = &r->v[i];

		if (old->from < from)
			put(ret, old->from, old->to < from ? old->to : from - 1, old->write);
		if (!placed && old->to >= from) {
			put(ret, from, to, kind == RANGE_WRITE);
			placed = true;
		}
		if (old->to > to)
			put(ret, old->from > to ? old->from : to + 1, old->to, old->write);
	}
	if (!placed)
		put(ret, from, to, kind == RANGE_WRITE);
	return 0;
}

const struct range *ranges_find(const struct ranges *r, uint64_t from, uint64_t to, bool write)
{
	for (size_t i = 0; i < r->n && r->v[i].from <= to; i++)
		if (r->v[i].to >= from && (!write || r->v[i].write))
			return &r->v[i];
	return NULL;
}

void ranges_free(struct ranges *r)
{
	free(r->v);
	*r = (struct ranges){ .v = NULL };
}
