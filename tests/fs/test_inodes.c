/* SPDX-License-Identifier: MIT */
/* The table of inodes: what a guest's object holds goes with it, once, and its memory goes back to the system. */
#include "sbxfs/inode.h"
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

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(several_names_in_one_directory_hold_it_once),
		cmocka_unit_test(a_text_is_made_again_after_a_change_that_was_heard_of),
		cmocka_unit_test(what_several_threads_met_goes_back_when_it_is_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
