/* SPDX-License-Identifier: MIT */
/* The corpus of the worker's frames, as test_fuzz_corpus does for the others. A program of its own:
 * the worker's functions have the names of the server's. */
#include "tests/fuzz/fuzz_stream.c"

#include "tests/unit/fuzz_replay.h"

static void frames_to_the_worker(void **state)
{
	(void)state;
	replay("stream", fuzz_stream, 100);
}

int main(void)
{
	static const struct CMUnitTest tests[] = { cmocka_unit_test(frames_to_the_worker) };

	return run_table(tests);
}
