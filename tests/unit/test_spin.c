/* SPDX-License-Identifier: MIT */
/* Looking before sleeping: when it begins, how long it lasts at most, when it ends. */
#include "common/sys/spin.h"
#include "tests/support/test.h"

#include <sched.h>
#include <time.h>

#define ENOUGH 1000000 /* waits, for one that nothing comes between */

static void wait_for(struct spin *s, long ms)
{
	const struct timespec t = { .tv_nsec = ms * 1000000 };

	spin_begin(s);
	while (ms && nanosleep(&t, NULL) < 0)
		;
	spin_end(s);
}

static bool learns(struct spin *s, int64_t window_us)
{
	for (int i = 0; i < ENOUGH && s->window_us < window_us; i++)
		wait_for(s, 0);
	return s->window_us >= window_us;
}

static void nobody_looks_who_has_not_waited_for_little(void **state)
{
	struct spin s = { 0 };

	(void)state;
	spin_begin(&s);
	assert_false(spin_goes_on(&s));
	wait_for(&s, 1);
	spin_begin(&s);
	assert_false(spin_goes_on(&s));
}

static void short_waits_make_it_longer_up_to_the_bound(void **state)
{
	struct spin s = { 0 };
	cpu_set_t set;

	(void)state;
	if (sched_getaffinity(0, sizeof(set), &set) < 0 || CPU_COUNT(&set) < 2) {
		wait_for(&s, 0);
		assert_int_equal(s.window_us, 0); /* on one processor nobody looks */
		return;
	}
	assert_true(learns(&s, 1));
	assert_true(learns(&s, SPIN_US));
	for (int i = 0; i < 1000; i++) {
		wait_for(&s, 0);
		assert_true(s.window_us <= SPIN_US);
	}
}

static void a_long_wait_ends_it(void **state)
{
	struct spin s = { .window_us = SPIN_US };

	(void)state;
	wait_for(&s, 2);
	assert_int_equal(s.window_us, 0);
}

static void nobody_looks_for_longer_than_the_window(void **state)
{
	struct spin s = { .window_us = SPIN_US };

	(void)state;
	spin_begin(&s);
	while (spin_goes_on(&s))
		assert_true(s.looked_us >= s.began_us);
	spin_begin(&s);
	s.looked_us = s.began_us + SPIN_US;
	assert_false(spin_goes_on(&s));
}

/* Longer each time, so that at last no pause of the test itself is as long. */
static void who_lost_the_processor_rests(void **state)
{
	struct spin s = { .window_us = SPIN_US };
	bool rests = false;

	(void)state;
	for (int i = 0; i < 10 && !rests; i++) {
		spin_begin(&s);
		s.looked_us -= 10000; /* somebody had it since */
		(void)spin_goes_on(&s);
		spin_begin(&s);
		rests = !spin_goes_on(&s);
	}
	assert_true(rests);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_looks_who_has_not_waited_for_little),
		cmocka_unit_test(short_waits_make_it_longer_up_to_the_bound),
		cmocka_unit_test(a_long_wait_ends_it),
		cmocka_unit_test(nobody_looks_for_longer_than_the_window),
		cmocka_unit_test(who_lost_the_processor_rests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
