/* SPDX-License-Identifier: MIT */
/* Questions to the broker: many at once, answered in any order, by a broker that may be slow, lie
 * or die. Needs no root: the broker is a thread of this test. */
#include "sandboxd/backend/linux/ask.h"

#include "common/sys/fd.h"
#include "tests/support/test.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#define ASKERS 16

struct peer {
	struct ask *ask;
	int fd;
};

static void setup_peer(struct peer *p)
{
	struct err e = ERR_NULL;
	int sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
	if (ask_new(sv[0], &p->ask, &e) < 0)
		fail_msg("%s", e.msg);
	p->fd = sv[1];
}

static void end_peer(struct peer *p)
{
	ask_free(p->ask);
	if (p->fd >= 0)
		close(p->fd);
}

static bool get(const struct peer *p, struct priv_req *q)
{
	return fd_recv_msg(p->fd, q, sizeof(*q), NULL, NULL) == sizeof(*q);
}

static void put_fds(const struct peer *p, const struct priv_req *q, int error, const char *text,
	const int *fds, size_t nfds)
{
	struct priv_ans a = { .magic = PRIV_MAGIC,
		.op = q->op,
		.tag = q->tag,
		.error = error,
		.n = { q->memory_mb } };

	snprintf(a.text, sizeof(a.text), "%s", text);
	assert_int_equal(fd_send_msg(p->fd, &a, sizeof(a), fds, nfds), 0);
}

static void put(const struct peer *p, const struct priv_req *q, int error, const char *text)
{
	put_fds(p, q, error, text, NULL, 0);
}

/* --- order ----------------------------------------------------------------------------------- */

struct asker {
	struct peer *p;
	int64_t number, got;
};

static void *ask_number(void *arg)
{
	struct asker *k = arg;
	struct priv_req q = { .op = PRIV_ALIVE, .memory_mb = k->number };
	struct priv_ans a;
	struct err e = ERR_NULL;

	k->got = ask_call(k->p->ask, &q, -1, 10000, &a, &e) < 0 ? -1 : a.n[0];
	return NULL;
}

static void the_asker_works_while_the_broker_does(void **state)
{
	struct priv_req q = { .op = PRIV_ALIVE, .memory_mb = 7 }, seen;
	struct err e = ERR_NULL;
	struct ask_call c;
	struct priv_ans a;
	struct peer p;

	(void)state;
	setup_peer(&p);
	ask_begin(p.ask, &q, -1, &c);
	/* on this thread, which therefore did not wait */
	assert_true(get(&p, &seen));
	put(&p, &seen, 0, "");
	assert_int_equal(ask_end(p.ask, &c, 10000, &a, &e), 0);
	assert_int_equal(a.n[0], 7);
	end_peer(&p);
}

static void answers_in_any_order_reach_their_askers(void **state)
{
	struct priv_req q[ASKERS];
	struct asker k[ASKERS];
	pthread_t t[ASKERS];
	struct peer p;

	(void)state;
	setup_peer(&p);
	for (int i = 0; i < ASKERS; i++) {
		k[i] = (struct asker){ &p, 100 + i, 0 };
		assert_int_equal(pthread_create(&t[i], NULL, ask_number, &k[i]), 0);
	}
	for (int i = 0; i < ASKERS; i++)
		assert_true(get(&p, &q[i]));
	for (int i = ASKERS - 1; i >= 0; i--)
		put(&p, &q[i], 0, "");
	for (int i = 0; i < ASKERS; i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(k[i].got, 100 + i);
	}
	end_peer(&p);
}

/* --- errors ---------------------------------------------------------------------------------- */

static void *refuse_one(void *arg)
{
	static const int errors[] = { EEXIST, ENOSPC, EAGAIN, EMFILE, EINVAL };
	struct peer *p = arg;
	struct priv_req q;

	for (size_t i = 0; i < ARRAY_LEN(errors) && get(p, &q); i++)
		put(p, &q, errors[i], "because");
	return NULL;
}

static void a_refusal_says_why(void **state)
{
	static const enum err_code want[] = { ERR_CONFLICT, ERR_UNAVAILABLE, ERR_UNAVAILABLE,
		ERR_UNAVAILABLE, ERR_INTERNAL };
	struct peer p;
	pthread_t t;

	(void)state;
	setup_peer(&p);
	assert_int_equal(pthread_create(&t, NULL, refuse_one, &p), 0);
	for (size_t i = 0; i < ARRAY_LEN(want); i++) {
		struct priv_req q = { .op = PRIV_CREATE };
		struct err e = ERR_NULL;
		assert_int_equal(ask_call(p.ask, &q, -1, 10000, NULL, &e), -1);
		assert_int_equal(e.code, want[i]);
		assert_non_null(strstr(e.msg, "because"));
	}
	pthread_join(t, NULL);
	end_peer(&p);
}

static void a_silent_broker_is_unavailable_at_the_deadline(void **state)
{
	struct priv_req q = { .op = PRIV_CREATE };
	struct err e = ERR_NULL;
	struct peer p;

	(void)state;
	setup_peer(&p);
	assert_int_equal(ask_call(p.ask, &q, -1, 20, NULL, &e), -1);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_true(get(&p, &q));
	put(&p, &q, 0, ""); /* too late: nobody is there, nothing happens */
	end_peer(&p);
}

static void *die_after_one(void *arg)
{
	struct peer *p = arg;
	struct priv_req q;

	if (get(p, &q))
		close(p->fd);
	p->fd = -1;
	return NULL;
}

static void a_broker_that_dies_ends_every_question(void **state)
{
	struct err e = ERR_NULL;
	struct peer p;
	pthread_t t;

	(void)state;
	setup_peer(&p);
	assert_int_equal(pthread_create(&t, NULL, die_after_one, &p), 0);
	for (int i = 0; i < 2; i++) {
		struct priv_req q = { .op = PRIV_CREATE };
		e = (struct err)ERR_NULL;
		assert_int_equal(ask_call(p.ask, &q, -1, 10000, NULL, &e), -1);
		assert_int_equal(e.code, ERR_UNAVAILABLE);
	}
	pthread_join(t, NULL);
	end_peer(&p);
}

static void answers_nobody_asked_for_are_ignored(void **state)
{
	struct priv_req q = { .op = PRIV_ALIVE, .tag = 4711 };
	struct asker k;
	struct peer p;
	pthread_t t;

	(void)state;
	setup_peer(&p);
	put(&p, &q, 0, "");
	assert_int_equal(fd_send_msg(p.fd, "short", 5, NULL, 0), 0);
	k = (struct asker){ &p, 5, 0 };
	assert_int_equal(pthread_create(&t, NULL, ask_number, &k), 0);
	assert_true(get(&p, &q));
	put(&p, &q, 0, "");
	pthread_join(t, NULL);
	assert_int_equal(k.got, 5);
	end_peer(&p);
}

/* --- descriptors ----------------------------------------------------------------------------- */

/* True when nobody holds the other end of this pipe any more. */
static bool is_closed(int writer)
{
	struct pollfd p = { .fd = writer };

	return poll(&p, 1, 30000) == 1 && (p.revents & POLLERR);
}

/* An answer with the reading ends of two pipes; what becomes of them? */
static void descriptors_reach_who_takes_them_and_are_closed_else(void **state)
{
	enum { TAKEN, NOT_TAKEN, REFUSED, UNASKED, TOO_MANY, WAYS };
	struct peer p;

	(void)state;
	setup_peer(&p);
	for (int way = TAKEN; way < WAYS; way++) {
		struct priv_req q = { .op = PRIV_CREATE };
		int a[2], b[2], got[ASK_FDS] = { -1, -1 };
		struct err e = ERR_NULL;
		struct ask_call c;
		assert_int_equal(pipe(a), 0);
		assert_int_equal(pipe(b), 0);
		int sent[] = { a[0], b[0], a[0] };
		ask_begin(p.ask, &q, -1, &c);
		assert_true(get(&p, &q));
		if (way == UNASKED) {
			q.tag += 1000;
			put_fds(&p, &q, 0, "", sent, 2);
			q.tag -= 1000;
			put(&p, &q, 0, "");
		} else {
			put_fds(&p, &q, way == REFUSED ? EEXIST : 0, "", sent,
				way == TOO_MANY ? 3 : 2);
		}
		close(a[0]);
		close(b[0]);
		if (way == TAKEN || way == TOO_MANY)
			assert_int_equal(ask_end_fds(p.ask, &c, 10000, NULL, got, &e), 0);
		else
			assert_int_equal(ask_end(p.ask, &c, 10000, NULL, &e),
				way == REFUSED ? -1 : 0);
		if (way == TAKEN || way == TOO_MANY) {
			assert_int_equal(write(a[1], "a", 1), 1);
			assert_int_equal(write(b[1], "b", 1), 1);
			for (int i = 0; i < ASK_FDS; i++) {
				char byte;
				assert_int_equal(read(got[i], &byte, 1), 1);
				assert_int_equal(byte, "ab"[i]);
				close(got[i]);
			}
		}
		assert_true(is_closed(a[1]));
		assert_true(is_closed(b[1]));
		close(a[1]);
		close(b[1]);
	}
	end_peer(&p);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(answers_in_any_order_reach_their_askers),
	cmocka_unit_test(the_asker_works_while_the_broker_does),
	cmocka_unit_test(a_refusal_says_why),
	cmocka_unit_test(a_silent_broker_is_unavailable_at_the_deadline),
	cmocka_unit_test(a_broker_that_dies_ends_every_question),
	cmocka_unit_test(answers_nobody_asked_for_are_ignored),
	cmocka_unit_test(descriptors_reach_who_takes_them_and_are_closed_else),
};

int main(void)
{
	return run_table(tests);
}
