/* SPDX-License-Identifier: MIT */
/* The fuzz targets without a fuzzer: each file of the corpus, its beginnings, and copies of it with
 * changed bytes go through the target. The changes are the same in each run. */
#include "tests/support/test.h"

#include "tests/fuzz/fuzz_agent.c"
#include "tests/fuzz/fuzz_egress.c"
#include "tests/fuzz/fuzz_frames.c"
#include "tests/fuzz/fuzz_images.c"
#include "tests/fuzz/fuzz_json.c"
#include "tests/fuzz/fuzz_names.c"
#include "tests/fuzz/fuzz_paths.c"
#include "tests/fuzz/fuzz_spool.c"

#include "tests/unit/fuzz_replay.h"

static void json_bodies(void **state)
{
	(void)state;
	replay("json", fuzz_json, 300);
}
static void manifests_of_images(void **state)
{
	(void)state;
	replay("images", fuzz_images, 500);
}
static void attach_frames(void **state)
{
	(void)state;
	replay("frames", fuzz_frames, 300);
}
static void paths(void **state)
{
	(void)state;
	replay("paths", fuzz_paths, 300);
}
static void names(void **state)
{
	(void)state;
	replay("names", fuzz_names, 300);
}
static void spool_files(void **state)
{
	(void)state;
	replay("spool", fuzz_spool, 40);
}
static void answers_of_the_shim(void **state)
{
	(void)state;
	replay("agent", fuzz_agent, 40);
}

static void what_an_egress_process_reads(void **state)
{
	(void)state;
	replay("egress", fuzz_egress, 2000);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(json_bodies),
		cmocka_unit_test(manifests_of_images),
		cmocka_unit_test(attach_frames),
		cmocka_unit_test(paths),
		cmocka_unit_test(names),
		cmocka_unit_test(spool_files),
		cmocka_unit_test(answers_of_the_shim),
		cmocka_unit_test(what_an_egress_process_reads),
	};

	return run_table(tests);
}
