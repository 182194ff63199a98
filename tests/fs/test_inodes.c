/* SPDX-License-Identifier: MIT */
/* The table of inodes: what a guest's object holds goes with it, once, and its memory goes back to the system. */
#include "sbxfs/inode.h"
#include "sbxfs/inodes.h"
#include "sbxfs/memory.h"
#include "sbxfs/nodes.h"
#include "tests/support/test.h"

#include <unistd.h>

static struct inode *object(struct mount *m, uint64_t ino)
{
	struct tree_id id = { .dev = 1, .ino = ino };
	struct inode *i;

	assert_int_equal(inode_tree(m, node_by_id(N_FS_OBJECT), "sbx_0000000000000001", &id, &i), 0);
	return i;
}

/* The directory is held by nothing but the names of the file in it. */
static void several_names_in_one_directory_hold_it_once(void **state)
{
	static struct mount m;
	size_t before;

	(void)state;
	assert_int_equal(inodes_new(&m, &m.inodes), 0);
	before = inodes_count(m.inodes);
	for (uint64_t n = 1; n < 50; n++) {
		struct inode *dir = object(&m, 1000 + n), *file = object(&m, 2000 + n);

		assert_int_equal(link_add(&m, dir, "a", file), 0);
		assert_int_equal(link_add(&m, dir, "b", file), 0);
		assert_int_equal(link_add(&m, dir, "c", file), 0);
		inode_unref(&m, dir);
		assert_int_equal(inodes_count(m.inodes), before + 2);
		inode_unref(&m, file);
		assert_int_equal(inodes_count(m.inodes), before);
	}
	inodes_free(m.inodes);
}

/* What is heard of others' changes counts as what was changed here. */
static void a_text_is_made_again_after_a_change_that_was_heard_of(void **state)
{
	static struct mount m;
	atomic_uint_fast64_t *const counts[] = { &m.gen, &m.list_gen };
	const struct node *node = node_by_id(N_BOX_STATE);
	struct inode *i, *again;

	(void)state;
	assert_int_equal(inodes_new(&m, &m.inodes), 0);
	for (size_t n = 0; n < 2; n++) {
		/* As long as the clock lets a text stand it is the same one. */
		do {
			assert_int_equal(inode_render(&m, node, "sbx_0000000000000001", "", 0,
						 strdup("running\n"), 8, mount_news(&m), &i), 0);
			again = inode_rendering(&m, node, "sbx_0000000000000001", "", 0);
			inode_unref(&m, i);
		} while (!again);
		assert_ptr_equal(again, i);
		inode_unref(&m, again);
		atomic_fetch_add(counts[n], 1);
		assert_null(inode_rendering(&m, node, "sbx_0000000000000001", "", 0));
	}
	inodes_free(m.inodes);
}

#define WALKERS 8
#define WALKED  4000
#define PART    ((size_t)WALKERS * WALKED * sizeof(struct inode) / 4)

struct walker {
	struct mount *m;
	uint64_t first;
	struct inode *seen[WALKED + 1]; /* the last one stays */
	pthread_t thread;
};

static void *walk(void *arg)
{
	struct walker *w = arg;

	for (uint64_t n = 0; n <= WALKED; n++) {
		w->seen[n] = object(w->m, w->first + n);
		inode_looked(w->m, w->seen[n]);
		inode_unref(w->m, w->seen[n]);
	}
	return NULL;
}

static size_t resident(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%*u %lu", &pages), 1);
	fclose(f);
	return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void what_several_threads_met_goes_back_when_it_is_forgotten(void **state)
{
	static struct walker w[WALKERS];
	static struct mount m;
	size_t before, known, left;

	(void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	skip(); /* their malloc keeps it on purpose */
#endif
	assert_int_equal(inodes_new(&m, &m.inodes), 0);
	memory_tidy();
	before = resident();
	for (unsigned n = 0; n < WALKERS; n++) {
		w[n].m = &m;
		w[n].first = (n + 1) * 1000000;
		assert_int_equal(pthread_create(&w[n].thread, NULL, walk, &w[n]), 0);
	}
	for (unsigned n = 0; n < WALKERS; n++)
		assert_int_equal(pthread_join(w[n].thread, NULL), 0);
	known = resident();
	assert_true(known > before + 2 * PART);
	for (unsigned n = 0; n < WALKERS; n++)
		for (unsigned k = 0; k < WALKED; k++)
			inode_forget(&m, w[n].seen[k], 1);
	memory_tidy();
	left = resident();
	if (left > before + PART)
		fail_msg("%zu KiB, with what was known %zu, after that was forgotten %zu", before >> 10, known >> 10,
			left >> 10);
	for (unsigned n = 0; n < WALKERS; n++)
		inode_forget(&m, w[n].seen[WALKED], 1);
	inodes_free(m.inodes);
}

#define FNV 0x100000001b3ull

static uint16_t low_of(uint16_t h, const void *buf, size_t len)
{
	const unsigned char *p = buf;

	while (len--)
		h = (uint16_t)((h ^ *p++) * FNV);
	return h;
}

/* Numbers that a sum of bytes without a secret puts into one list: the last two bytes make up for the others. */
static bool of_one_list(uint64_t ino, struct tree_id *ret)
{
	uint16_t inverse = 1, h;

	for (int n = 0; n < 4; n++)
		inverse = (uint16_t)(inverse * (2 - FNV * inverse));
	*ret = (struct tree_id){ .dev = 1, .ino = ino };
	h = low_of(0x9ce4, ret, sizeof(*ret) - 2);
	for (uint16_t b = 0; b < 256; b++) {
		uint16_t a = (uint16_t)(b * inverse) ^ h;

		if (a >= 256)
			continue;
		ret->gen = (uint64_t)a << 48 | (uint64_t)b << 56;
		return true;
	}
	return false;
}

static size_t longest_list(const struct inodes *t)
{
	size_t most = 0;

	for (size_t b = 0; b < INODE_BUCKETS; b++) {
		size_t n = 0;

		for (const struct inode *i = t->buckets[b]; i; i = i->next)
			n++;
		most = n > most ? n : most;
	}
	return most;
}

static void whoever_chooses_numbers_does_not_choose_lists(void **state)
{
	static struct inode *all[4000];
	static struct mount m;
	struct tree_id id;
	size_t n = 0;

	(void)state;
	assert_int_equal(inodes_new(&m, &m.inodes), 0);
	for (uint64_t ino = 1; n < 4000; ino++)
		if (of_one_list(ino, &id))
			assert_int_equal(inode_tree(&m, node_by_id(N_FS_OBJECT), "sbx_0000000000000001", &id, &all[n++]), 0);
	assert_in_range(longest_list(m.inodes), 1, 40);
	while (n)
		inode_unref(&m, all[--n]);
	inodes_free(m.inodes);
}

/* fs/ with a, a/b, a/b/c below it; what is made in them the kernel has looked up. */
static struct mount tall;
static struct inode *level[4];

static int begin_tall(void **state)
{
	static const char *const names[] = { "a", "b", "c" };

	(void)state;
	memset(&tall, 0, sizeof(tall));
	assert_int_equal(inodes_new(&tall, &tall.inodes), 0);
	assert_int_equal(inode_virtual(&tall, node_by_id(N_FS), "sbx_0000000000000001", "", 0, &level[0]), 0);
	for (uint64_t n = 1; n < 4; n++) {
		level[n] = object(&tall, n);
		level[n]->known.st_mode = S_IFDIR | 0755;
		assert_int_equal(link_add(&tall, level[n - 1], names[n - 1], level[n]), 0);
		inode_looked(&tall, level[n]);
	}
	return 0;
}

static int end_tall(void **state)
{
	(void)state;
	for (int n = 3; n >= 0; n--) {
		inode_forget(&tall, level[n], 1);
		inode_unref(&tall, level[n]);
	}
	inodes_free(tall.inodes);
	return 0;
}

static struct inode *seen(mode_t mode, struct inode *dir, const char *name)
{
	struct inode *i = object(&tall, 100);

	i->known.st_mode = mode;
	assert_int_equal(link_add(&tall, dir, name, i), 0);
	inode_looked(&tall, i);
	return i;
}

static void unseen(struct inode *i)
{
	inode_forget(&tall, i, 1);
	inode_unref(&tall, i);
}

/* How far a link may climb, 100 where that is not certain: then the kernel may have it further up. */
static int may_climb(struct inode *i)
{
	struct climb c = link_climb(&tall, i);

	return c.until_ms ? 100 : c.depth;
}

static void told(struct inode *dir, const char *name, struct inode *i, pid_t pid)
{
	struct req q = { .m = &tall, .pid = pid };

	link_told(&q, dir, name, i);
}

static void settled(struct inode *i, int depth)
{
	assert_true(i->astray_ms != LINK_ASTRAY);
	while (may_climb(i) == 100)
		usleep(10000);
	assert_int_equal(may_climb(i), depth);
}

/* A shell stands in it; a name further down that the kernel was not told of moves nobody. */
static void a_directory_that_was_moved_away_is_where_it_was_until_the_kernel_looks_it_up(void **state)
{
	struct inode *dir = seen(S_IFDIR | 0755, level[0], "d");
	struct inode *l = object(&tall, 200);

	(void)state;
	assert_int_equal(link_add(&tall, dir, "l", l), 0);
	assert_int_equal(may_climb(l), 1);
	link_remove(&tall, level[0], "d");
	assert_int_equal(link_add(&tall, level[3], "d", dir), 1);
	assert_int_equal(may_climb(l), 100);
	assert_int_equal(link_climb(&tall, l).least, 1);
	told(level[3], "d", dir, 1);
	settled(dir, 3);
	assert_int_equal(may_climb(l), 4);
	inode_unref(&tall, l);
	unseen(dir);
}

static void a_directory_that_was_moved_as_deep_as_it_was_is_no_deeper(void **state)
{
	struct inode *dir = seen(S_IFDIR | 0755, level[1], "d");

	(void)state;
	link_remove(&tall, level[1], "d");
	(void)link_add(&tall, level[1], "e", dir);
	assert_int_equal(may_climb(dir), 1);
	unseen(dir);
}

/* Nobody has asked for the old name since. */
static void a_directory_has_the_name_alone_that_the_kernel_was_told_last(void **state)
{
	struct inode *dir = seen(S_IFDIR | 0755, level[0], "d");

	(void)state;
	assert_int_equal(link_add(&tall, level[3], "e", dir), 0);
	assert_int_equal(may_climb(dir), 0);
	told(level[3], "e", dir, 1);
	assert_null(link_find(&tall, level[0], "d"));
	settled(dir, 3);
	unseen(dir);
}

/* Then the kernel may be unable to move it; who has looked it up hears of that, and looks once more. */
static void a_directory_of_which_the_kernel_is_told_beside_another_request_may_be_where_it_was(void **state)
{
	struct inode *dir = seen(S_IFDIR | 0755, level[0], "d");

	(void)state;
	assert_int_equal(link_add(&tall, level[3], "e", dir), 0);
	tall.changes = 1;
	told(level[3], "e", dir, 1);
	assert_true(dir->astray_ms == LINK_ASTRAY);
	tall.changes = 0;
	told(level[3], "e", dir, 1);
	assert_true(dir->astray_ms != LINK_ASTRAY);
	dir->astray_ms = now_ms() + 60000;
	tall.changes = 1;
	told(level[3], "e", dir, 2);
	assert_true(dir->astray_ms != LINK_ASTRAY);
	told(level[3], "e", dir, 1);
	assert_true(dir->astray_ms == LINK_ASTRAY);
	inode_forget(&tall, dir, 1);
	assert_int_equal(may_climb(dir), 3);
	inode_unref(&tall, dir);
}

/* Who was told of a link in it is still to climb from there. */
static void a_directory_that_is_found_further_up_is_one_that_the_kernel_will_move_up(void **state)
{
	struct inode *dir = seen(S_IFDIR | 0755, level[2], "d"), *file = object(&tall, 300);

	(void)state;
	assert_int_equal(link_add(&tall, level[2], "d", dir), 0);
	assert_int_equal(link_add(&tall, level[3], "e", dir), 0);
	assert_int_equal(link_add(&tall, level[1], "f", dir), 1);
	dir->up_ms = now_ms() + 60000; /* what was fetched ahead has found it, and now the kernel hears of it */
	assert_int_equal(link_add(&tall, level[1], "f", dir), 1);
	dir->up_ms = 0;
	assert_int_equal(link_add(&tall, level[1], "g", dir), 0);
	assert_int_equal(link_add(&tall, level[0], "f", file), 0);
	inode_unref(&tall, file);
	unseen(dir);
}

static void a_directory_that_the_kernel_moves_itself_is_there_in_a_moment(void **state)
{
	struct inode *dir = seen(S_IFDIR | 0755, level[0], "d");

	(void)state;
	assert_false(link_rename(&tall, level[0], "d", level[2], "e", false));
	assert_true(dir->astray_ms > 0);
	settled(dir, 2);
	assert_false(link_rename(&tall, level[2], "e", level[2], "f", false));
	assert_true(link_rename(&tall, level[2], "f", level[1], "f", false));
	unseen(dir);
}

/* Names of one link; the one that is given up is the one that the kernel follows right now. */
static void a_link_with_more_names_than_are_remembered_climbs_by_none_that_is_further_down(void **state)
{
	struct inode *l = seen(S_IFLNK | 0777, level[0], "l");

	(void)state;
	for (int n = 0; n < 8; n++) {
		char name[] = { 'a' + (char)n, '\0' };

		assert_int_equal(may_climb(l), 0);
		assert_int_equal(link_add(&tall, level[3], name, l), 0);
	}
	assert_int_equal(may_climb(l), 100);
	unseen(l);
}

static void a_link_that_lost_a_name_where_it_has_another_climbs_as_before(void **state)
{
	struct inode *l = seen(S_IFLNK | 0777, level[2], "l");

	(void)state;
	assert_int_equal(link_add(&tall, level[2], "k", l), 0);
	link_remove(&tall, level[2], "l");
	assert_int_equal(may_climb(l), 2);
	unseen(l);
}

#define TALL(test) cmocka_unit_test_setup_teardown(test, begin_tall, end_tall)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(several_names_in_one_directory_hold_it_once),
		cmocka_unit_test(a_text_is_made_again_after_a_change_that_was_heard_of),
		cmocka_unit_test(what_several_threads_met_goes_back_when_it_is_forgotten),
		cmocka_unit_test(whoever_chooses_numbers_does_not_choose_lists),
		TALL(a_directory_that_was_moved_away_is_where_it_was_until_the_kernel_looks_it_up),
		TALL(a_directory_that_is_found_further_up_is_one_that_the_kernel_will_move_up),
		TALL(a_directory_that_was_moved_as_deep_as_it_was_is_no_deeper),
		TALL(a_directory_has_the_name_alone_that_the_kernel_was_told_last),
		TALL(a_directory_of_which_the_kernel_is_told_beside_another_request_may_be_where_it_was),
		TALL(a_directory_that_the_kernel_moves_itself_is_there_in_a_moment),
		TALL(a_link_with_more_names_than_are_remembered_climbs_by_none_that_is_further_down),
		TALL(a_link_that_lost_a_name_where_it_has_another_climbs_as_before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
