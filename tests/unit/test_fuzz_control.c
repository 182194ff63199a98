/* SPDX-License-Identifier: MIT */
/* The corpus of the mount's texts, as test_fuzz_corpus does for the server's parsers. */
#include "tests/fuzz/fuzz_control.c"

#include "tests/unit/fuzz_replay.h"

static void texts_written_into_the_mount(void **state)
{
	(void)state;
	replay("control", fuzz_control, 300);
}

int main(void)
{
	static const struct CMUnitTest tests[] = { cmocka_unit_test(texts_written_into_the_mount) };

	return run_table(tests);
}
