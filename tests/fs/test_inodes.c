/* SPDX-License-Identifier: MIT */
/* The table of inodes: what a guest's object holds goes with it, once. */
#include "sbxfs/inode.h"
#include "sbxfs/nodes.h"
#include "tests/support/test.h"

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

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(several_names_in_one_directory_hold_it_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
