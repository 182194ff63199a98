/* SPDX-License-Identifier: MIT */
/* The corpus of HTTP answers, its beginnings and changed copies, through the client's parser. */
#include "tests/support/test.h"

#include "tests/fuzz/fuzz_answer.c"

#include "tests/unit/fuzz_replay.h"

static void answers_of_a_server(void **state)
{
	(void)state;
	replay("answer", fuzz_answer, 100);
}

int main(void)
{
	static const struct CMUnitTest tests[] = { cmocka_unit_test(answers_of_a_server) };

	return run_table(tests);
}
