/* SPDX-License-Identifier: MIT */
/* The superblock is the one thing that btrfs writes in place. A disk of 512-byte sectors may have a part of it when
 * the power goes, and the kernel looks at no other; copies, written with each whole commit, lie further behind. What
 * was synced since the last commit is in a log, of which the first superblock alone knows: an fsync writes no copy,
 * and changes nothing behind the first sector. That one is whole: of before the commit that was cut, or of that
 * commit, whose trees were on the disk before. So it is kept, and the rest is found for it. btrfs-rescue(8) knows file
 * systems of its own age only. (Layout: struct btrfs_super_block in linux/btrfs_tree.h, offsets of the copies and the
 * order of the writes in the kernel's fs/btrfs/disk-io.h and disk-io.c.) */
#include "sandboxd/priv/btrfs.h"

#include "common/sys/mem.h"

#include <endian.h>
#include <string.h>

#define SIZE   4096
#define SECTOR 512
#define FIRST  ((off_t)64 << 10)
#define MAGIC  "_BHRfS_M"

struct super {
	uint8_t sum[32], fsid[16];
	uint64_t at, flags;
	char magic[8];
	uint64_t generation;
	uint8_t roots[64];
	uint8_t sizes[20]; /* of sectors, nodes, leaves, stripes, and of the list of chunks, which lies behind sector 0 */
	uint8_t more[32];
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

static void seal(struct super *b)
{
	uint32_t sum = sum_of(b);

	memset(b->sum, 0, sizeof(b->sum));
	memcpy(b->sum, &sum, sizeof(sum));
}

/* Each sector behind the first is of one or of the other: the sum in sector 0 says which. */
static bool complete(const struct super *torn, const struct super *other, struct super *ret)
{
	for (unsigned from_other = 0; from_other < 1u << (SIZE / SECTOR - 1); from_other++) {
		*ret = *torn;
		for (size_t i = 1; i < SIZE / SECTOR; i++)
			if (from_other & 1u << (i - 1))
				memcpy((uint8_t *)ret + i * SECTOR, (const uint8_t *)other + i * SECTOR, SECTOR);
		if (is_sound(ret, FIRST))
			return true;
	}
	return false;
}

/* Its first sector is of the commit after the copy's. What lies behind it changes with a commit, too, but for the list
 * of chunks only in what the kernel can do without: older roots, how far its index of subvolumes goes. */
static bool is_next(const struct super *torn, const struct super *copy)
{
	return memcmp(torn->magic, MAGIC, sizeof(torn->magic)) == 0 && torn->sum_type == 0 &&
	       le64toh(torn->at) == (uint64_t)FIRST &&
	       memcmp(torn->fsid, copy->fsid, sizeof(torn->fsid)) == 0 &&
	       memcmp(torn->sizes, copy->sizes, sizeof(torn->sizes)) == 0 &&
	       le64toh(torn->generation) == le64toh(copy->generation) + 1;
}

/* False: there is nothing to make one of. */
static bool find(int fd, const struct super *torn, struct super *ret)
{
	struct super one, best = { .generation = 0 };

	for (size_t i = 0; i < ARRAY_LEN(copies); i++) {
		if (pread(fd, &one, SIZE, copies[i]) != SIZE)
			continue;
		if (complete(torn, &one, ret))
			return true;
		if (is_sound(&one, copies[i]) && le64toh(one.generation) > le64toh(best.generation))
			best = one;
	}
	*ret = best;
	if (is_next(torn, &best))
		memcpy(ret, torn, SECTOR);
	ret->at = htole64((uint64_t)FIRST);
	seal(ret);
	return best.generation != 0;
}

int btrfs_mend_super(int fd)
{
	struct super torn, whole;

	if (pread(fd, &torn, SIZE, FIRST) != SIZE || is_sound(&torn, FIRST) || !find(fd, &torn, &whole))
		return 0;
	return pwrite(fd, &whole, SIZE, FIRST) == SIZE && fsync(fd) == 0 ? 1 : -errno;
}
