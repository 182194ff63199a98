/* SPDX-License-Identifier: MIT */
/* The corpus of the file worker's answers, as test_fuzz_corpus does for the others. */
#include "tests/fuzz/fuzz_files.c"

#include "common/base/log.h"
#include "tests/unit/fuzz_replay.h"

static void files_corpus(void **state)
{
	(void)state;
	log_set_level(LOG_LVL_ERROR); /* each wrong answer is a warning */
	replay("files", fuzz_files, 300);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(files_corpus) };

	return run_table(tests);
}
