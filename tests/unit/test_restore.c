/* SPDX-License-Identifier: MIT */
/* What a start, and the cleaning up after an end, make of what they cannot look at, on a backend that only counts. */
#include "tests/support/descriptors.h"
#include "tests/support/double.h"

#include "sandboxd/core/proc.h"

#include <unistd.h>

#define ROOM 64 /* more descriptors than a start needs */

static struct double_rig *const rig = &double_rig;

static bool stays(void *arg)
{
	(void)arg;
	return false;
}

static void run_true(struct sandbox *s)
{
	const char *const argv[] = { "true" };
	struct process_body body = { .argv = { (char **)(uintptr_t)argv, 1 } };
	struct proc_result r;
	struct err e = ERR_NULL;

	if (proc_run(s, &body, stays, NULL, &r, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(r.exit_code, 0);
	proc_result_fini(&r);
}

/* However few there are, and wherever it notices. */
static void a_start_without_descriptors_ends_nobody(void **state)
{
	struct sandbox *s = double_sandbox(rig, NULL), *ended = double_sandbox(rig, NULL);
	char id[SBX_ID_MAX], ended_id[SBX_ID_MAX];
	bool started = false;

	(void)state;
	run_true(s);
	run_true(ended);
	assert_int_equal(sandbox_terminate(ended, "request", NULL), 0);
	memcpy(id, s->id, sizeof(id));
	memcpy(ended_id, ended->id, sizeof(id));
	sandbox_unref(s);
	sandbox_unref(ended);
	double_stop(rig, true);
	for (rlim_t n = 0; n < ROOM && !started; n++) {
		struct rlimit usual = descriptors_leave(getpid(), n);

		started = double_try(rig);
		descriptors_restore(getpid(), &usual);
	}
	assert_true(started);
	assert_int_equal(sandbox_find(rig->core, id, &s, NULL), 0);
	assert_int_equal(s->state, SBX_RUNNING);
	assert_int_equal(s->next_num, 2);
	run_true(s);
	sandbox_unref(s);
	assert_int_equal(sandbox_find(rig->core, ended_id, &ended, NULL), 0);
	assert_int_equal(ended->next_num, 2);
	sandbox_unref(ended);
}

static void a_folder_that_cannot_be_opened_is_not_empty(void **state)
{
	struct sandbox *s = double_sandbox(rig, NULL);
	struct rlimit usual;
	bool kept;

	(void)state;
	run_true(s);
	usual = descriptors_leave(getpid(), 0);
	kept = sandbox_clean_run_dir(s, false);
	descriptors_restore(getpid(), &usual);
	assert_true(kept);
	assert_true(sandbox_clean_run_dir(s, false)); /* the spool */
	assert_false(sandbox_clean_run_dir(s, true));
	assert_false(sandbox_clean_run_dir(s, false)); /* there is none any more */
	sandbox_unref(s);
}

#define T(f) cmocka_unit_test_setup_teardown(f, double_setup, double_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(a_start_without_descriptors_ends_nobody),
		T(a_folder_that_cannot_be_opened_is_not_empty),
	};

	return run_table(tests);
}
