/* SPDX-License-Identifier: MIT */
/* Waits that end by themselves, all by CLOCK_MONOTONIC: a step of the wall clock neither lengthens one nor cuts it
 * short. The clock is named at the wait, so any condition variable will do, however it was made.
 * Times are counts of the unit in the name; a negative one is over at once. No function here fails: a wait ends
 * when its time is over or, true, before; a condition variable also for nothing, so who waits looks again. To be
 * called by any thread, with the lock held where there is one. Kept in a header since the guest's C library has
 * none of these calls. */
#ifndef COMMON_SYS_DEADLINE_H
#define COMMON_SYS_DEADLINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* A moment of CLOCK_MONOTONIC, in milliseconds since its beginning. */
static inline struct timespec deadline_at_ms(int64_t ms)
{
	if (ms < 0)
		ms = 0;
	return (struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
}

static inline struct timespec deadline_of(clockid_t clock, int64_t us)
{
	struct timespec t;

	clock_gettime(clock, &t);
	if (us <= 0)
		return t;
	t.tv_sec += us / 1000000;
	t.tv_nsec += us % 1000000 * 1000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

/* From now on. */
static inline struct timespec deadline_us(int64_t us)
{
	return deadline_of(CLOCK_MONOTONIC, us);
}

static inline struct timespec deadline_ms(int64_t ms)
{
	return deadline_us(ms > INT64_MAX / 1000 ? INT64_MAX : ms * 1000);
}

static inline bool cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, const struct timespec *until)
{
	return pthread_cond_clockwait(c, lock, CLOCK_MONOTONIC, until) == 0;
}

/* One wait; in a loop its time begins anew. */
static inline bool cond_wait_ms(pthread_cond_t *c, pthread_mutex_t *lock, int64_t ms)
{
	struct timespec until = deadline_ms(ms);

	return cond_wait_until(c, lock, &until);
}

/* True: it is locked. */
static inline bool mutex_lock_ms(pthread_mutex_t *lock, int64_t ms)
{
#ifdef __SANITIZE_THREAD__ /* it knows only this one */
	struct timespec until = deadline_of(CLOCK_REALTIME, ms * 1000);

	return pthread_mutex_timedlock(lock, &until) == 0;
#else
	struct timespec until = deadline_ms(ms);

	return pthread_mutex_clocklock(lock, CLOCK_MONOTONIC, &until) == 0;
#endif
}

/* True: it has ended and is joined. */
static inline bool thread_join_ms(pthread_t thread, int64_t ms)
{
#ifdef __SANITIZE_THREAD__
	struct timespec until = deadline_of(CLOCK_REALTIME, ms * 1000);

	return pthread_timedjoin_np(thread, NULL, &until) == 0;
#else
	struct timespec until = deadline_ms(ms);

	return pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &until) == 0;
#endif
}

#endif
