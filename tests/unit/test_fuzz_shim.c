/* SPDX-License-Identifier: MIT */
/* The corpus of the shim's target, as test_fuzz_corpus does for the others. A program of its own:
 * the shim's functions have the names of the server's. */
#include "tests/fuzz/fuzz_shim.c"

#include "tests/unit/fuzz_replay.h"

static void requests_to_the_shim(void **state)
{
	(void)state;
	replay("shim", fuzz_shim, 200);
}

int main(void)
{
	static const struct CMUnitTest tests[] = { cmocka_unit_test(requests_to_the_shim) };

	return run_table(tests);
}
