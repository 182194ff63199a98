/* SPDX-License-Identifier: MIT */
/* What may be believed of an answer, by when it was asked for and what was pushed meanwhile; and that the
 * kernel is told of every name that it was let believe, whatever became of it here. */
#include "sbxfs/inode.h"
#include "sbxfs/listing.h"
#include "sbxfs/nodes.h"
#include "sbxfs/trust.h"
#include "tests/support/test.h"

#define EPOCH 7
#define SINCE 5

static struct mount m;
static struct req q = { .m = &m };
static struct inode *dir, *file;

static struct inode *object(uint64_t ino)
{
	struct tree_id id = { .dev = 1, .ino = ino };
	struct inode *i;

	assert_int_equal(inode_tree(&m, node_by_id(N_FS_OBJECT), "sbx_0000000000000001", &id, &i), 0);
	return i;
}

static int begin(void **state)
{
	(void)state;
	memset(&m, 0, sizeof(m));
	m.opt.proto = PROTO_AUTO;
	assert_int_equal(inodes_new(&m, &m.inodes), 0);
	dir = object(1);
	file = object(2);
	assert_int_equal(link_add(&m, dir, "a", file), 0);
	return 0;
}

static int end(void **state)
{
	(void)state;
	inode_unref(&m, file);
	inode_unref(&m, dir);
	inodes_free(m.inodes);
	return 0;
}

/* Of a file with two names, so that only the name is believed. */
static double answer(const char *name, uint64_t epoch, uint64_t asked, uint64_t seen)
{
	struct tree_attr a = { .st = { .st_mode = S_IFREG, .st_nlink = 2 }, .stamp = { epoch, asked, seen } };
	struct fuse_entry_param e = { .entry_timeout = 0 };

	trust_entry(&q, dir, name, file, &a, &e);
	return e.entry_timeout;
}

static uint64_t told(void)
{
	return atomic_load(&m.stats.told);
}

static const struct {
	const char *name;
	uint64_t epoch, watch_asked, change_before, asked, seen, change_after;
	double secs;
	bool goes_on; /* later answers are given from it */
} answers[] = {
	{ "asked when the watch stood", EPOCH, 0, 0, 5, 5, 0, TRUST_SECS, true },
	{ "asked before it stood", EPOCH, 0, 0, 4, 5, 0, 0, false },
	{ "asked behind it", EPOCH, 3, 0, 3, 5, 0, TRUST_SECS, true },
	{ "asked just before it", EPOCH, 3, 0, 2, 5, 0, 0, false },
	{ "asked of another connection", EPOCH + 1, 0, 0, 5, 5, 0, 0, false },
	{ "a change before the question", EPOCH, 0, 6, 6, 6, 0, TRUST_SECS, true },
	{ "a change while it was under way", EPOCH, 0, 6, 5, 6, 0, BRIEF_SECS, false },
	{ "a change that the answer has not seen", EPOCH, 0, 7, 5, 6, 0, 0, false },
	{ "a change after it", EPOCH, 0, 0, 5, 5, 6, TRUST_SECS, false },
};

static void an_answer_is_worth(void **state)
{
	for (size_t n = 0; n < sizeof(answers) / sizeof(answers[0]); n++) {
		const typeof(answers[0]) *t = &answers[n];

		print_message("%s\n", t->name);
		begin(state);
		if (t->watch_asked)
			trust_asked(&m, dir, EPOCH, t->watch_asked);
		trust_begin(&m, dir, EPOCH, SINCE);
		if (t->change_before)
			trust_change(&m, dir, "a", FS_INVAL_NAME, t->change_before);
		assert_true(answer("a", t->epoch, t->asked, t->seen) == t->secs);
		if (t->change_after)
			trust_change(&m, dir, "a", FS_INVAL_NAME, t->change_after);
		assert_int_equal(trust_name(&q, dir, "a", file), t->goes_on);
		end(state);
	}
}

static void the_kernel_is_told_once_of_what_it_believes(void **state)
{
	(void)state;
	trust_begin(&m, dir, EPOCH, SINCE);
	trust_change(&m, dir, "a", FS_INVAL_NAME, 6);
	assert_int_equal(told(), 0);
	assert_true(answer("a", EPOCH, 6, 6) == TRUST_SECS);
	trust_change(&m, dir, "a", FS_INVAL_NAME, 7);
	trust_change(&m, dir, "a", FS_INVAL_NAME, 8);
	assert_int_equal(told(), 1);
}

static void a_name_is_moved_with_the_belief_in_it(void **state)
{
	(void)state;
	trust_begin(&m, dir, EPOCH, SINCE);
	assert_true(answer("a", EPOCH, 5, 5) == TRUST_SECS);
	assert_false(link_rename(&m, dir, "a", dir, "b", false));
	trust_change(&m, dir, "b", FS_INVAL_NAME, 6);
	assert_int_equal(told(), 1);
}

/* More names of one file than are remembered: what is given up is told. */
static void a_name_that_is_given_up_is_told(void **state)
{
	static const char names[] = "abcdefghi";

	(void)state;
	trust_begin(&m, dir, EPOCH, SINCE);
	for (const char *p = names; *p; p++) {
		char name[2] = { *p };

		assert_int_equal(link_add(&m, dir, name, file), 0);
		assert_true(answer(name, EPOCH, 5, 5) == TRUST_SECS);
	}
	assert_int_equal(told(), 1);
}

static void only_the_name_that_we_change_ourselves_is_not_told(void **state)
{
	char name[16];

	(void)state;
	trust_begin(&m, dir, EPOCH, SINCE);
	for (int n = 0; n < 600; n++) {
		(void)snprintf(name, sizeof(name), "n%d", n);
		assert_int_equal(link_add(&m, dir, name, object(100 + (uint64_t)n)), 0);
	}
	trust_own(&q, dir, "a", true);
	assert_true(answer("a", EPOCH, 5, 5) == TRUST_SECS);
	trust_change(&m, dir, "a", FS_INVAL_NAME, 6);
	assert_int_equal(told(), 0);
	for (int n = 0; n < 600; n++) {
		struct tree_attr a = { .st = { .st_mode = S_IFREG, .st_nlink = 2 }, .stamp = { EPOCH, 6, 6 } };
		struct fuse_entry_param e = { .entry_timeout = 0 };
		struct inode *i;

		(void)snprintf(name, sizeof(name), "n%d", n);
		i = link_find(&m, dir, name);
		trust_entry(&q, dir, name, i, &a, &e);
		inode_unref(&m, i);
	}
	for (int n = 0; n < 600; n++) {
		(void)snprintf(name, sizeof(name), "n%d", n);
		trust_change(&m, dir, name, FS_INVAL_NAME, 7);
	}
	assert_int_equal(told(), 600);
	trust_own(&q, dir, "a", false);
	assert_true(answer("a", EPOCH, 7, 7) == TRUST_SECS);
	trust_change(&m, dir, "a", FS_INVAL_NAME, 8);
	assert_int_equal(told(), 601);
}

static void too_many_changes_of_ours_at_once_are_only_told_needlessly(void **state)
{
	char name[16];

	(void)state;
	trust_begin(&m, dir, EPOCH, SINCE);
	for (int n = 0; n < OWN_MAX + 10; n++) {
		(void)snprintf(name, sizeof(name), "n%d", n);
		trust_own(&q, dir, name, true);
	}
	trust_own(&q, dir, "a", true);
	assert_true(answer("a", EPOCH, 5, 5) == TRUST_SECS);
	trust_change(&m, dir, "a", FS_INVAL_NAME, 6);
	assert_int_equal(told(), 1);
	trust_own(&q, dir, "a", false);
	for (int n = 0; n < OWN_MAX + 10; n++) {
		(void)snprintf(name, sizeof(name), "n%d", n);
		trust_own(&q, dir, name, false);
	}
	assert_int_equal(m.own.n, 0);
}

/* The word of what we do ourselves may come after its answer. */
static void a_listing_from_before_a_change_of_ours_answers_nothing(void **state)
{
	struct listing *l = calloc(1, sizeof(*l)), *got;

	(void)state;
	assert_non_null(l);
	*l = (struct listing){ .refs = 1, .m = &m, .stamp = { EPOCH, 5, 5 }, .of_dir = tree_changes_of(dir) };
	trust_begin(&m, dir, EPOCH, SINCE);
	listing_keep(dir, l);
	got = listing_watched(&q, dir);
	assert_ptr_equal(got, l);
	listing_unref(got);
	tree_changed(&q, dir);
	assert_null(listing_watched(&q, dir));
	listing_unref(l);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_is_worth),
#define ROW(f) cmocka_unit_test_setup_teardown(f, begin, end)
		ROW(the_kernel_is_told_once_of_what_it_believes),
		ROW(a_name_is_moved_with_the_belief_in_it),
		ROW(a_name_that_is_given_up_is_told),
		ROW(only_the_name_that_we_change_ourselves_is_not_told),
		ROW(too_many_changes_of_ours_at_once_are_only_told_needlessly),
		ROW(a_listing_from_before_a_change_of_ours_answers_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
