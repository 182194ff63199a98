/* SPDX-License-Identifier: MIT */
/* A first superblock of which the power left a part, beside its copy: made-up blocks with the fields that matter, by
 * the numbers of the format. */
#include "tests/support/test.h"

#include "sandboxd/priv/btrfs.h"

#include <endian.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE    4096
#define SECTOR  512
#define SECTORS (SIZE / SECTOR)
#define FIRST   ((off_t)64 << 10)
#define COPY    ((off_t)64 << 20)

enum { AT = 48, MAGIC = 64, GENERATION = 72, ROOT = 80, LOG_ROOT = 96, ARRAY_SIZE = 160, UUID_GENERATION = 563,
	ARRAY = 811, OLD_ROOTS = 2859 };

struct block {
	uint8_t b[SIZE];
};

static void put(struct block *s, size_t at, uint64_t value, size_t len)
{
	value = htole64(value);
	memcpy(s->b + at, &value, len);
}

static uint32_t crc32c(const uint8_t *p, size_t n)
{
	uint32_t c = ~0u;

	while (n--) {
		c ^= *p++;
		for (int i = 0; i < 8; i++)
			c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0);
	}
	return ~c;
}

static void sum(struct block *s)
{
	memset(s->b, 0, 32);
	put(s, 0, crc32c(s->b + 32, SIZE - 32), 4);
}

static bool is_sound(const struct block *s)
{
	struct block t = *s;

	sum(&t);
	return memcmp(&t, s, SIZE) == 0;
}

/* As a commit of that number writes it. */
static struct block super(off_t at, uint64_t generation, uint64_t log_root)
{
	struct block s = { { 0 } };

	memset(s.b + 32, 0xf5, 16);
	put(&s, AT, (uint64_t)at, 8);
	memcpy(s.b + MAGIC, "_BHRfS_M", 8);
	put(&s, GENERATION, generation, 8);
	put(&s, ROOT, 0x1000000 + generation * 0x4000, 8);
	put(&s, LOG_ROOT, log_root, 8);
	put(&s, ARRAY_SIZE, 97, 4);
	put(&s, UUID_GENERATION, generation, 8);
	memset(s.b + ARRAY, 0xc4, 97);
	for (uint64_t i = 0; i < 4; i++) /* each commit overwrites one, number 9 that of two sectors */
		memset(s.b + OLD_ROOTS + i * 168, (int)(generation - (generation - i) % 4), 168);
	sum(&s);
	return s;
}

/* Sectors of `from` over those of `to`: a bit for each. */
static struct block torn(const struct block *to, const struct block *from, unsigned sectors)
{
	struct block s = *to;

	for (size_t i = 0; i < SECTORS; i++)
		if (sectors & 1u << i)
			memcpy(s.b + i * SECTOR, from->b + i * SECTOR, SECTOR);
	return s;
}

static int mend(const struct block *first, const struct block *copy, struct block *ret)
{
	int fd = memfd_create("disk", MFD_CLOEXEC), r;

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, first, SIZE, FIRST), SIZE);
	assert_int_equal(pwrite(fd, copy, SIZE, COPY), SIZE);
	r = btrfs_mend_super(fd);
	assert_int_equal(pread(fd, ret, SIZE, FIRST), SIZE);
	close(fd);
	return r;
}

/* Some of each kind: one sector, several, with and without those that a commit changes (0, 1, 5, 6). */
static const unsigned parts[] = { 0x02, 0x20, 0x40, 0x62, 0x7e, 0xfe, 0xf0, 0x22, 0x0e };

static void a_whole_one_stays(void **state)
{
	struct block first = super(FIRST, 8, 0x5000), copy = super(COPY, 8, 0), got;

	(void)state;
	assert_int_equal(mend(&first, &copy, &got), 0);
	assert_memory_equal(&got, &first, SIZE);
}

static void what_was_synced_before_the_commit_that_was_cut_stays(void **state)
{
	struct block before = super(FIRST, 8, 0x5000), after = super(FIRST, 9, 0), copy = super(COPY, 8, 0), got;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		struct block first = torn(&before, &after, parts[i]);
		assert_int_equal(mend(&first, &copy, &got), 1);
		assert_memory_equal(&got, &before, SIZE);
	}
	/* of a disk that has lost sectors instead */
	struct block none = { { 0 } }, first = torn(&before, &none, 0x06);
	assert_int_equal(mend(&first, &copy, &got), 1);
	assert_memory_equal(&got, &before, SIZE);
}

static void a_commit_whose_first_sector_is_there_counts(void **state)
{
	struct block before = super(FIRST, 8, 0x5000), after = super(FIRST, 9, 0), got;
	struct block copy = super(COPY, 8, 0), later = super(COPY, 9, 0);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		struct block first = torn(&after, &before, parts[i]);
		assert_int_equal(mend(&first, &copy, &got), 1);
		assert_true(is_sound(&got));
		assert_memory_equal(got.b + 32, after.b + 32, SECTOR - 32);
		assert_memory_equal(got.b + ARRAY, copy.b + ARRAY, 97);
		/* the copy has been written as well */
		assert_int_equal(mend(&first, &later, &got), 1);
		assert_memory_equal(&got, &after, SIZE);
	}
}

static void a_copy_that_is_newer_is_taken_whole(void **state)
{
	struct block before = super(FIRST, 8, 0x5000), after = super(FIRST, 9, 0), copy = super(COPY, 9, 0), got;
	struct block first = torn(&before, &after, 0x20);

	(void)state;
	assert_int_equal(mend(&first, &copy, &got), 1);
	assert_memory_equal(&got, &after, SIZE);
}

/* Two halves make a whole; of what neither has, nothing is made up. */
static void a_copy_that_is_torn_helps_where_it_can(void **state)
{
	struct block before = super(FIRST, 8, 0x5000), after = super(FIRST, 9, 0), got;
	struct block old = super(COPY, 8, 0), new = super(COPY, 9, 0);
	struct block first = torn(&before, &after, 0x02), copy = torn(&old, &new, 0x41);

	(void)state;
	assert_int_equal(mend(&first, &copy, &got), 1);
	assert_memory_equal(&got, &before, SIZE);
	copy = torn(&old, &new, 0x43);
	assert_int_equal(mend(&first, &copy, &got), 0);
	assert_memory_equal(&got, &first, SIZE);
}

static void a_first_sector_that_cannot_be_believed_gives_way_to_the_copy(void **state)
{
	static const struct {
		size_t at;
		uint64_t value;
		size_t len;
	} rows[] = {
		{ MAGIC, 0, 8 }, { 32, 1, 8 }, { AT, (uint64_t)COPY, 8 }, { GENERATION, 10, 8 }, { GENERATION, 7, 8 },
		{ ARRAY_SIZE, 194, 4 }, { 148, 65536, 4 }, { 196, 1, 2 },
	};
	struct block copy = super(COPY, 8, 0), want = super(FIRST, 8, 0), got;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct block first = super(FIRST, 9, 0);
		put(&first, rows[i].at, rows[i].value, rows[i].len);
		assert_int_equal(mend(&first, &copy, &got), 1);
		assert_memory_equal(&got, &want, SIZE);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_whole_one_stays),
		cmocka_unit_test(what_was_synced_before_the_commit_that_was_cut_stays),
		cmocka_unit_test(a_commit_whose_first_sector_is_there_counts),
		cmocka_unit_test(a_copy_that_is_newer_is_taken_whole),
		cmocka_unit_test(a_copy_that_is_torn_helps_where_it_can),
		cmocka_unit_test(a_first_sector_that_cannot_be_believed_gives_way_to_the_copy),
	};

	return run_table(tests);
}
