/* SPDX-License-Identifier: MIT */
/* The superblock is the one thing that btrfs writes in place. A disk of 512-byte sectors may have a part of it when
 * the power goes, and the kernel looks at no other; copies, written with each whole commit, lie further behind.
 * btrfs-rescue(8) knows file systems of its own age only. (Layout: struct btrfs_super_block in linux/btrfs_tree.h,
 * offsets of the copies in the kernel's fs/btrfs/disk-io.h.) */
#include "sandboxd/priv/btrfs.h"

#include "common/sys/mem.h"

#include <endian.h>
#include <string.h>

#define SIZE  4096
#define FIRST ((off_t)64 << 10)
#define MAGIC "_BHRfS_M"

struct super {
	uint8_t sum[32], fsid[16];
	uint64_t at, flags;
	char magic[8];
	uint64_t generation;
	uint8_t more[116];
	uint16_t sum_type; /* 0: crc32c */
	uint8_t rest[SIZE - 198];
} __attribute__((packed));
_Static_assert(sizeof(struct super) == SIZE, "as on the disk");

static const off_t copies[] = { (off_t)64 << 20, (off_t)256 << 30 };

static uint32_t sum_of(const struct super *b)
{
	const uint8_t *p = (const uint8_t *)b;
	uint32_t c = ~0u;

	for (size_t i = sizeof(b->sum); i < SIZE; i++) {
		c ^= p[i];
		for (int bit = 0; bit < 8; bit++)
			c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0); /* Castagnoli's polynomial, as the bits come */
	}
	return htole32(~c);
}

static bool is_sound(const struct super *b, off_t at)
{
	uint32_t sum = sum_of(b);

	return memcmp(b->magic, MAGIC, sizeof(b->magic)) == 0 && b->sum_type == 0 &&
	       le64toh(b->at) == (uint64_t)at && memcmp(b->sum, &sum, sizeof(sum)) == 0;
}

static bool read_super(int fd, off_t at, struct super *ret)
{
	return pread(fd, ret, SIZE, at) == SIZE && is_sound(ret, at);
}

int btrfs_mend_super(int fd)
{
	struct super one, best = { .generation = 0 };
	uint32_t sum;

	if (read_super(fd, FIRST, &one))
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(copies); i++)
		if (read_super(fd, copies[i], &one) && le64toh(one.generation) > le64toh(best.generation))
			best = one;
	if (!best.generation)
		return 0;
	best.at = htole64((uint64_t)FIRST);
	sum = sum_of(&best);
	memset(best.sum, 0, sizeof(best.sum));
	memcpy(best.sum, &sum, sizeof(sum));
	return pwrite(fd, &best, SIZE, FIRST) == SIZE && fsync(fd) == 0 ? 1 : -errno;
}
