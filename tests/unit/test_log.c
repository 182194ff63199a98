/* SPDX-License-Identifier: MIT */
/* The log: one line a message, whatever is in it. A registry's manifest, for one, is quoted in reasons. */
#include "tests/support/test.h"

#include "common/base/log.h"

#include <unistd.h>

static void a_message_is_one_line_of_plain_text(void **state)
{
	static const char *const hostile[] = { "type\n2026-01-01T00:00:00.000Z error forged",
		"\x1b[2J\x1b]0;title\a", "\r over it", "\xc2\x9b" "31m", "\x9b" "31m", "a\x7f" "b" };
	int saved = dup(STDERR_FILENO), pipes[2];
	char text[8192];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(hostile); i++) {
		assert_int_equal(pipe(pipes), 0);
		dup2(pipes[1], STDERR_FILENO);
		log_warn("an image could not be installed reason=\"%s\"", hostile[i]);
		dup2(saved, STDERR_FILENO);
		close(pipes[1]);
		ssize_t n = read(pipes[0], text, sizeof(text) - 1);
		close(pipes[0]);
		assert_true(n > 0);
		text[n] = '\0';
		assert_ptr_equal(strchr(text, '\n'), text + n - 1);
		for (ssize_t k = 0; k < n - 1; k++)
			assert_in_range(text[k], ' ', '~');
		assert_non_null(strstr(text, "\\x"));
	}
	close(saved);
}

static void a_long_message_is_cut_and_still_ends(void **state)
{
	char long_one[4096], text[8192];
	int saved = dup(STDERR_FILENO), pipes[2];

	(void)state;
	memset(long_one, '\x1b', sizeof(long_one) - 1);
	long_one[sizeof(long_one) - 1] = '\0';
	assert_int_equal(pipe(pipes), 0);
	dup2(pipes[1], STDERR_FILENO);
	log_warn("%s", long_one);
	dup2(saved, STDERR_FILENO);
	close(pipes[1]);
	ssize_t n = read(pipes[0], text, sizeof(text));
	close(pipes[0]);
	close(saved);
	assert_in_range(n, 1000, 2048);
	assert_int_equal(text[n - 1], '\n');
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_is_one_line_of_plain_text),
		cmocka_unit_test(a_long_message_is_cut_and_still_ends),
	};

	return run_table(tests);
}
