/* SPDX-License-Identifier: MIT */
/* A token cannot be found out by how long its comparison takes. Clocks would say so only roughly: here the
 * instructions are counted, one by one, that a child takes for it. */
#include "sandboxd/api/guard.h"
#include "tests/support/test.h"

#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define TOKEN "0123456789abcdef0123456789abcdef"

static volatile bool result;

static void child(const char *authorization)
{
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
		_exit(77);
	raise(SIGSTOP);
	result = guard_bearer_ok(authorization, TOKEN);
	raise(SIGSTOP);
	_exit(result);
}

static int await(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		assert_int_equal(errno, EINTR);
	return status;
}

#ifdef __SANITIZE_THREAD__
#define COUNTABLE false /* what watches for races takes steps of its own, never as many */
#else
#define COUNTABLE true
#endif
/* From one stop to the next. *ret: what was decided. */
static long steps_for(const char *authorization, bool *ret)
{
	pid_t pid = fork();
	long n = 0;
	int status;

	assert_true(pid >= 0);
	if (pid == 0)
		child(authorization);
	status = await(pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		return -1;
	assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	do {
		assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
		status = await(pid);
		assert_true(WIFSTOPPED(status) && ++n < 10000000);
	} while (WSTOPSIG(status) == SIGTRAP);
	assert_int_equal(ptrace(PTRACE_CONT, pid, NULL, NULL), 0);
	status = await(pid);
	assert_true(WIFEXITED(status));
	*ret = WEXITSTATUS(status);
	return n;
}

static const struct {
	const char *what, *authorization;
	bool right;
} rows[] = {
	{ "right", "Bearer " TOKEN, true },
	{ "wrong at the first byte", "Bearer x123456789abcdef0123456789abcdef", false },
	{ "wrong in the middle", "Bearer 0123456789abcdefx123456789abcdef", false },
	{ "wrong at the last byte", "Bearer 0123456789abcdef0123456789abcdex", false },
	{ "wrong everywhere", "Bearer xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", false },
};

static void every_token_of_one_length_takes_the_same_steps(void **state)
{
	bool right;
	long want = steps_for(rows[0].authorization, &right);

	(void)state;
	if (want < 0 || !COUNTABLE)
		skip();
	assert_true(want > 100);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		long n = steps_for(rows[i].authorization, &right);

		if (n != want || right != rows[i].right)
			fail_msg("%s: %ld steps instead of %ld", rows[i].what, n, want);
	}
}

/* What is longer or shorter takes as long as its own length says, whatever the token's is. */
static void the_tokens_length_does_not_show(void **state)
{
	static const char *const guesses[] = { "Bearer 0", "Bearer 0123456789abcdef",
		"Bearer 0123456789abcdef0123456789abcdef0123456789abcdef" };
	static const char *const others[] = { "Bearer x", "Bearer xxxxxxxxxxxxxxxx",
		"Bearer xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" };
	bool right;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(guesses); i++) {
		long a = steps_for(guesses[i], &right), b = steps_for(others[i], &right);

		if (a < 0 || !COUNTABLE)
			skip();
		assert_int_equal(a, b);
		assert_false(right);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_token_of_one_length_takes_the_same_steps),
		cmocka_unit_test(the_tokens_length_does_not_show),
	};

	return run_table(tests);
}
