/* SPDX-License-Identifier: MIT */
/* Asking the process that reads the token file, played here: an answer counts for its own question only. */
#include "tests/support/test.h"

#include "sandboxd/keeper.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

static int pair[2];

static void say(uint8_t no, int32_t code, const char *text)
{
	struct kept k = { .code = code, .no = no };

	snprintf(k.text, sizeof(k.text), "%s", text);
	assert_int_equal(send(pair[1], &k, sizeof(k), MSG_NOSIGNAL), sizeof(k));
}

static void *answer_one(void *arg)
{
	uint8_t no;

	if (recv(pair[1], &no, 1, 0) == 1)
		say(no, ERR_NONE, arg);
	return NULL;
}

static void ask(const char *want)
{
	struct err e = ERR_NULL;
	char *token = NULL;
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, answer_one, (void *)(uintptr_t)want), 0);
	assert_int_equal(keeper_ask(pair[0], &token, &e), 0);
	pthread_join(t, NULL);
	assert_string_equal(token, want);
	free(token);
}

/* A token that was taken away must not come back with the next reading, because its own came too late. */
static void an_answer_that_came_too_late_is_nobodys(void **state)
{
	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	ask("the-token-of-monday");
	say(1, ERR_NONE, "the-token-of-monday");
	say(1, ERR_INVALID_REQUEST, "no such file");
	ask("the-token-of-tuesday");
	ask("the-token-of-wednesday");
	close(pair[0]);
	close(pair[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_that_came_too_late_is_nobodys),
	};

	return run_table(tests);
}
