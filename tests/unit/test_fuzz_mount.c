/* SPDX-License-Identifier: MIT */
/* The corpus of what the mount is sent, as test_fuzz_corpus does for the others. */
#include "tests/fuzz/fuzz_mount.c"


#include "common/base/log.h"
#include "tests/unit/fuzz_replay.h"

static void mount_corpus(void **state)
{
	(void)state;
	log_set_level(LOG_LVL_ERROR); /* each wrong answer is a warning */
	replay("mount", fuzz_mount, 300);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(mount_corpus) };

	return run_table(tests);
}
