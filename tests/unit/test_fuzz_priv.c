/* SPDX-License-Identifier: MIT */
/* The corpus of the broker's target, as test_fuzz_corpus does for the others. A program of its own: it
 * is linked with the broker's files, and with doubles of what acts. */
#include "tests/fuzz/fuzz_priv.c"

#include "tests/unit/fuzz_replay.h"

static void requests_to_the_broker(void **state)
{
	(void)state;
	replay("priv", fuzz_priv, 80);
}

int main(void)
{
	static const struct CMUnitTest tests[] = { cmocka_unit_test(requests_to_the_broker) };

	return run_table(tests);
}
