/* SPDX-License-Identifier: MIT */
/* Waits that end by themselves: not before their time, and whatever the wall clock says. This program's wall clock
 * is one that was read before a step of an hour, either way: who made a deadline of it would wait for an hour,
 * or not at all. */
#include "common/sys/deadline.h"
#include "tests/support/test.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WAIT_US 30000
#define STUCK_S 60 /* the program's end, by a signal */

static int64_t step_s;

int clock_gettime(clockid_t clock, struct timespec *t)
{
	int rc = (int)syscall(SYS_clock_gettime, clock, t);

	if (clock == CLOCK_REALTIME)
		t->tv_sec += step_s;
	return rc;
}

static int64_t us_of(struct timespec t)
{
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int64_t now_us(void)
{
	return us_of(deadline_us(0));
}

static void a_moment_is_whole_seconds_and_less_than_one_more(void **state)
{
	static const struct {
		int64_t ms, s;
		long ns;
	} rows[] = { { 0, 0, 0 }, { -5, 0, 0 }, { 1, 0, 1000000 }, { 999, 0, 999000000 }, { 1000, 1, 0 },
		{ 61001, 61, 1000000 }, { INT64_MAX, INT64_MAX / 1000, INT64_MAX % 1000 * 1000000 } };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct timespec t = deadline_at_ms(rows[i].ms);

		assert_int_equal(t.tv_sec, rows[i].s);
		assert_int_equal(t.tv_nsec, rows[i].ns);
	}
}

static void a_deadline_is_so_long_from_now(void **state)
{
	static const int64_t rows[] = { 1, 999, 1000, 999999, 1000000, 1999999, 3600000000 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		for (int n = 0; n < 100; n++) { /* fractions of a second of all kinds */
			int64_t before = now_us();
			struct timespec t = deadline_us(rows[i]);

			assert_in_range(t.tv_nsec, 0, 999999999);
			assert_in_range(us_of(t), before + rows[i], now_us() + rows[i]);
		}
	assert_true(us_of(deadline_ms(-1000)) <= now_us());
	assert_true(deadline_ms(INT64_MAX).tv_sec > INT64_MAX / 1000000);
}

struct bell {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool locked, rung;
};

/* Holds the lock until the bell is rung. */
static void *hold(void *arg)
{
	struct bell *p = arg;

	pthread_mutex_lock(&p->lock);
	__atomic_store_n(&p->locked, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&p->rung, __ATOMIC_ACQUIRE))
		sched_yield();
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static void *ring(void *arg)
{
	struct bell *p = arg;

	pthread_mutex_lock(&p->lock);
	p->rung = true;
	pthread_cond_signal(&p->cond);
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static void a_wait_lasts_its_time(void **state)
{
	struct bell p = { .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };
	int64_t began = now_us();
	struct timespec until = deadline_us(WAIT_US);
	pthread_t t;

	(void)state;
	pthread_mutex_lock(&p.lock);
	while (cond_wait_until(&p.cond, &p.lock, &until))
		;
	assert_true(now_us() - began >= WAIT_US);
	assert_false(cond_wait_until(&p.cond, &p.lock, &until)); /* over is over */
	began = now_us();
	while (cond_wait_ms(&p.cond, &p.lock, WAIT_US / 1000))
		began = now_us();
	assert_true(now_us() - began >= WAIT_US);
	pthread_mutex_unlock(&p.lock);

#ifndef __SANITIZE_THREAD__ /* under it these go by the wall clock, deadline.h */
	assert_int_equal(pthread_create(&t, NULL, hold, &p), 0);
	while (!__atomic_load_n(&p.locked, __ATOMIC_ACQUIRE))
		sched_yield();
	began = now_us();
	assert_false(mutex_lock_ms(&p.lock, WAIT_US / 1000));
	assert_false(thread_join_ms(t, WAIT_US / 1000));
	assert_true(now_us() - began >= (int64_t)2 * WAIT_US);
	__atomic_store_n(&p.rung, true, __ATOMIC_RELEASE);
	assert_true(mutex_lock_ms(&p.lock, STUCK_S * 1000));
	pthread_mutex_unlock(&p.lock);
	assert_true(thread_join_ms(t, STUCK_S * 1000));
#else
	(void)t;
	(void)hold;
#endif
}

static void a_wait_ends_when_what_it_is_for_comes(void **state)
{
	struct bell p = { .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };
	struct timespec until = deadline_ms(STUCK_S * 1000);
	pthread_t t;

	(void)state;
	pthread_mutex_lock(&p.lock);
	assert_int_equal(pthread_create(&t, NULL, ring, &p), 0);
	while (!p.rung)
		assert_true(cond_wait_until(&p.cond, &p.lock, &until));
	pthread_mutex_unlock(&p.lock);
	assert_int_equal(pthread_join(t, NULL), 0);
}

static void a_wall_clock_that_steps_back_lengthens_none(void **state)
{
	step_s = 3600;
	a_wait_lasts_its_time(state);
	a_wait_ends_when_what_it_is_for_comes(state);
	step_s = 0;
}

static void a_wall_clock_that_steps_forwards_ends_none(void **state)
{
	step_s = -3600;
	a_wait_lasts_its_time(state);
	a_wait_ends_when_what_it_is_for_comes(state);
	step_s = 0;
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_moment_is_whole_seconds_and_less_than_one_more),
		cmocka_unit_test(a_deadline_is_so_long_from_now),
		cmocka_unit_test(a_wait_lasts_its_time),
		cmocka_unit_test(a_wait_ends_when_what_it_is_for_comes),
		cmocka_unit_test(a_wall_clock_that_steps_back_lengthens_none),
		cmocka_unit_test(a_wall_clock_that_steps_forwards_ends_none),
	};

	alarm(STUCK_S * 3);
	return run_table(tests);
}
