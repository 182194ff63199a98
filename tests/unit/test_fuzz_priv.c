/* SPDX-License-Identifier: MIT */
/* The corpus of the broker's target, as test_fuzz_corpus does for the others. A program of its own: it
 * is linked with the broker's files, and with doubles of what acts. */
#include "tests/fuzz/fuzz_priv.c"

#include "common/sys/tree.h"
#include "tests/unit/fuzz_replay.h"

static void requests_to_the_broker(void **state)
{
	(void)state;
	replay("priv", fuzz_priv, 80);
}

/* As a guest may leave it: deeper than there are descriptors. */
static int deep_tree(char top[64], unsigned levels)
{
	int dir, at;

	strcpy(top, "/tmp/sbx-deep-XXXXXX");
	assert_non_null(mkdtemp(top));
	dir = at = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (unsigned i = 0; i < levels; i++) {
		assert_int_equal(mkdirat(at, i ? "d" : "tree", 0700), 0);
		int next = openat(at, i ? "d" : "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		close(openat(next, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
		if (at != dir)
			close(at);
		at = next;
	}
	close(at);
	return dir;
}

static void a_tree_of_any_depth_is_removed(void **state)
{
	char top[64];
	int dir = deep_tree(top, 5000);

	(void)state;
	assert_int_equal(tree_remove(dir, "tree"), 0);
	assert_int_equal(rmdir(top), 0); /* nothing is left beside it either */
	close(dir);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests_to_the_broker),
		cmocka_unit_test(a_tree_of_any_depth_is_removed),
	};

	return run_table(tests);
}
