/* SPDX-License-Identifier: MIT */
/* What the model of a file and its actors agree on: requests, answers, the bytes of a write, and what
 * each actor does when all of them work at once. Data of writes is never sent: both sides make it from a
 * number, so that the pipes carry only what was read. */
#ifndef TESTS_MOUNT_MODEL_H
#define TESTS_MOUNT_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FILE_MAX  (8u << 20)
#define ZONE_SIZE 70001u /* odd: zones share pages */
#define ZONES_MAX 8u
#define RECORD    64u /* bytes of a line in the log that all append to */

/* name, how often, does it change the file */
#define OPS(X)                                                                                     \
	X(read, 16, false)                                                                         \
	X(mread, 8, false)                                                                         \
	X(seqread, 3, false)                                                                       \
	X(write, 14, true)                                                                         \
	X(append, 8, true)                                                                         \
	X(mwrite, 10, true)                                                                        \
	X(seqwrite, 3, true)                                                                       \
	X(truncate, 5, true)                                                                       \
	X(pathtrunc, 3, true)                                                                      \
	X(empty, 1, true)                                                                          \
	X(alloc, 2, true)                                                                          \
	X(keep, 1, true)                                                                           \
	X(punch, 4, true)                                                                          \
	X(zero, 3, true)                                                                           \
	X(copy, 4, true)                                                                           \
	X(size, 4, false)                                                                          \
	X(stat, 4, false)                                                                          \
	X(data, 3, false)                                                                          \
	X(hole, 2, false)                                                                          \
	X(sync, 2, false)                                                                          \
	X(rename, 2, true)                                                                         \
	X(replace, 1, true)                                                                        \
	X(storm, 0, false)                                                                         \
	X(open, 0, false)                                                                          \
	X(close, 0, false)
enum op {
#define X(name, often, changes) OP_##name,
	OPS(X)
#undef X
		OP_COUNT
};

enum flags {
	BY_READER = 1, /* read: through a descriptor that only reads */
	UNMAP = 2,     /* mread, mwrite, open, close: the mapping ends */
	GROWING = 4,   /* storm: the file begins empty */
};
/* name: 0 or 1, the file's present one of two names; 2: what all write to at once. */
struct ask {
	uint32_t op, flags, name, zone;
	uint64_t off, off2, len, tag;
};
struct told { /* value: a result or -errno; then len bytes of data, or of words about what is wrong */
	int64_t value;
	uint64_t len;
};

static inline uint64_t next_random(uint64_t *x)
{
	uint64_t z = (*x += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* Never 0: that is what holes are. */
static inline void fill(unsigned char *p, size_t len, uint64_t tag)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (unsigned char)(1 + (tag * 31 + i * 7 + (i >> 8) * 13 + (i >> 16)) % 255);
}

/* One step of an actor in its zone while the others are in theirs. */
struct step {
	enum op op; /* read, write or mwrite */
	uint64_t off, len, tag;
};
static inline struct step storm_step(uint64_t *x, uint32_t zone)
{
	uint64_t r = next_random(x), first = (uint64_t)zone * ZONE_SIZE;
	struct step s = { .op = r % 4 == 0 ? OP_read : r % 4 == 1 ? OP_mwrite : OP_write };

	s.tag = next_random(x) | 1;
	s.off = next_random(x) % ZONE_SIZE;
	s.len = 1 + next_random(x) % (next_random(x) % 8 ? 6000 : ZONE_SIZE);
	if (s.len > ZONE_SIZE - s.off)
		s.len = ZONE_SIZE - s.off;
	s.off += first;
	/* A mapping writes whole pages: none that a neighbour writes to. */
	if (s.op == OP_mwrite) {
		uint64_t lo = (first + 4095) & ~4095ull, hi = (first + ZONE_SIZE) & ~4095ull;

		s.off = s.off < lo ? lo : s.off;
		s.len = s.off >= hi ? 0 : s.off + s.len > hi ? hi - s.off : s.len;
	}
	return s;
}

int actor_main(const char *dir);

#endif
