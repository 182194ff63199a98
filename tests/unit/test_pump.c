/* SPDX-License-Identifier: MIT */
/* The two ways of a tunnel: no byte is lost, changed or kept back, whether it is copied or moved,
 * and each end is passed on. */
#include "tests/support/patience.h"
#include "tests/support/test.h"

#include "common/sys/deadline.h"
#include "common/sys/mem.h"
#include "sandboxd/api/upgrade.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 30000
#define MUCH    (8u << 20)

static void unix_pair(int p[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p), 0);
}

static void tcp_pair(int p[2])
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(l, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(l, 1), 0);
	assert_int_equal(getsockname(l, (struct sockaddr *)&a, &len), 0);
	p[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(p[0], (struct sockaddr *)&a, sizeof(a)), 0);
	p[1] = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	assert_true(p[1] >= 0);
	close(l);
}

/* What stands between: client[1] and guest[1] are the pump's. */
struct line {
	int client[2], guest[2];
	pthread_t thread;
};

static void *run(void *arg)
{
	struct line *l = arg;

	upgrade_pump(NULL, l->client[1], l->guest[1], NULL, 0);
	close(l->client[1]);
	close(l->guest[1]);
	return NULL;
}

static void line_open(struct line *l, bool unix_client)
{
	(unix_client ? unix_pair : tcp_pair)(l->client);
	tcp_pair(l->guest);
	assert_int_equal(pthread_create(&l->thread, NULL, run, l), 0);
}

static void join(struct line *l)
{
	assert_true(thread_join_ms(l->thread, WAIT_MS));
}

/* The byte at a place of a stream, which no two pages have in common. */
static char byte_at(size_t at, unsigned seed)
{
	uint64_t x = (at / 8 + seed) * 0x9e3779b97f4a7c15u;

	return (char)(x >> (at % 8 * 8));
}

struct end {
	int fd;
	unsigned seed;
	size_t piece; /* of a send, and of a receive; 0: any */
	bool slow;    /* rests now and then */
	size_t bad;   /* the first wrong place, SIZE_MAX: none */
	pthread_t thread;
};

static size_t size_of(const struct end *e, unsigned *state, size_t left)
{
	size_t n = e->piece ? e->piece : (size_t)1 << (unsigned)rand_r(state) % 19;

	return n < left ? n : left;
}

static void *say(void *arg)
{
	struct end *e = arg;
	char *buf = malloc(MUCH);
	unsigned state = e->seed;

	for (size_t at = 0; buf && at < MUCH;) {
		size_t n = size_of(e, &state, MUCH - at);
		ssize_t sent;
		for (size_t i = 0; i < n; i++)
			buf[i] = byte_at(at + i, e->seed);
		sent = send(e->fd, buf, n, MSG_NOSIGNAL);
		if (sent < 0)
			break;
		at += (size_t)sent;
	}
	free(buf);
	shutdown(e->fd, SHUT_WR);
	return NULL;
}

static void *hear(void *arg)
{
	struct end *e = arg;
	char *buf = malloc(MUCH);
	unsigned state = e->seed + 1;
	size_t at = 0, turns = 0;
	ssize_t n;

	e->bad = SIZE_MAX;
	while (buf && (n = recv(e->fd, buf, size_of(e, &state, MUCH), 0)) > 0) {
		for (ssize_t i = 0; i < n; i++, at++)
			if (buf[i] != byte_at(at, e->seed) && e->bad == SIZE_MAX)
				e->bad = at;
		if (e->slow && ++turns % 16 == 0)
			usleep(2000);
	}
	if (at != MUCH && e->bad == SIZE_MAX)
		e->bad = at;
	free(buf);
	return NULL;
}

static void both_ways(bool unix_client, size_t piece, bool slow)
{
	struct line l;
	struct end ends[4];

	line_open(&l, unix_client);
	for (unsigned i = 0; i < 4; i++) {
		ends[i] = (struct end){ .fd = i == 0 || i == 3 ? l.client[0] : l.guest[0],
			.seed = i < 2 ? 1000 : 77777777,
			.piece = piece,
			.slow = slow };
		assert_int_equal(
			pthread_create(&ends[i].thread, NULL, i % 2 ? hear : say, &ends[i]), 0);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(ends[i].thread, NULL);
	for (int i = 1; i < 4; i += 2)
		if (ends[i].bad != SIZE_MAX)
			fail_msg("pieces of %zu: wrong at %zu", piece, ends[i].bad);
	join(&l); /* both ends have been passed on */
	close(l.client[0]);
	close(l.guest[0]);
}

static const size_t pieces[] = { 0, 1000, 16383, 65536, 1 << 20 };

static void every_byte_arrives_both_ways(void **state)
{
	(void)state;
	for (int way = 0; way < 2; way++)
		for (size_t i = 0; i < ARRAY_LEN(pieces); i++)
			both_ways(way == 0, pieces[i], i % 2 == 0);
}

/* Where no descriptor is to be had there is no pipe. */
static void without_descriptors_it_copies(void **state)
{
	struct rlimit old, few;
	struct line l;
	struct end to = { .seed = 5 }, from = { .seed = 5 };
	int held[256], n = 0;

	(void)state;
	line_open(&l, true);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	few = (struct rlimit){ ARRAY_LEN(held), old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	while ((held[n] = dup(l.client[0])) >= 0)
		n++;
	to.fd = l.client[0];
	from.fd = l.guest[0];
	assert_int_equal(pthread_create(&to.thread, NULL, say, &to), 0);
	assert_int_equal(pthread_create(&from.thread, NULL, hear, &from), 0);
	pthread_join(to.thread, NULL);
	pthread_join(from.thread, NULL);
	while (n)
		close(held[--n]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_true(from.bad == SIZE_MAX);
	shutdown(l.guest[0], SHUT_WR);
	join(&l);
	close(l.client[0]);
	close(l.guest[0]);
}

static void pass(int from, int to, size_t n)
{
	char *buf = calloc(1, n), *got = malloc(n);

	assert_true(buf && got);
	memset(buf, (int)(n % 251), n);
	for (size_t sent = 0, have = 0; have < n;) {
		struct pollfd p[2] = { { to, POLLIN, 0 }, { from, sent < n ? POLLOUT : 0, 0 } };
		ssize_t k;
		assert_true(poll(p, 2, WAIT_MS) > 0);
		k = sent < n ? send(from, buf + sent, n - sent, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
		sent += k > 0 ? (size_t)k : 0;
		k = recv(to, got + have, n - have, MSG_DONTWAIT);
		have += k > 0 ? (size_t)k : 0;
	}
	assert_memory_equal(buf, got, n);
	free(buf);
	free(got);
}

/* Nothing stays in the pipe because more might come. */
static void few_bytes_behind_many_come_at_once(void **state)
{
	static const size_t sizes[] = { 1, 4 << 20, 1, 17, 65536, 1, 65537, 300000, 16384, 1,
		1 << 20, 2 };

	(void)state;
	for (int way = 0; way < 2; way++) {
		struct line l;

		line_open(&l, way == 0);
		for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
			pass(l.client[0], l.guest[0], sizes[i]);
			pass(l.guest[0], l.client[0], sizes[i]);
		}
		shutdown(l.client[0], SHUT_WR);
		shutdown(l.guest[0], SHUT_WR);
		join(&l);
		close(l.client[0]);
		close(l.guest[0]);
	}
}

/* In the middle of a flood that nobody takes. */
static void who_leaves_ends_it(void **state)
{
	(void)state;
	for (int side = 0; side < 2; side++) {
		static char flood[1 << 20];
		struct line l;
		struct pollfd p;
		size_t sent = 0;
		int from, away;
		ssize_t n;

		line_open(&l, true);
		from = side ? l.client[0] : l.guest[0];
		away = side ? l.guest[0] : l.client[0];
		p = (struct pollfd){ from, POLLOUT, 0 };
		while (poll(&p, 1, 500) == 1 &&
			(n = send(from, flood, sizeof(flood), MSG_DONTWAIT)) > 0)
			sent += (size_t)n;
		assert_true(
			sent <
			128u << 20); /* who sends waits: most lies in the sockets' own buffers */
		close(away);
		join(&l);
		close(from);
	}
}

/* Until the one between takes no more, or much; how much. Byte n of the stream is byte_at(n, 1). */
static size_t flood(int fd)
{
	struct pollfd p = { fd, POLLOUT, 0 };
	char buf[4096];
	size_t sent = 0;
	ssize_t n = 1;

	while (n > 0 && sent < MUCH && poll(&p, 1, 500) == 1) {
		for (size_t i = 0; i < sizeof(buf); i++)
			buf[i] = byte_at(sent + i, 1);
		n = send(fd, buf, sizeof(buf), MSG_DONTWAIT | MSG_NOSIGNAL);
		sent += n > 0 ? (size_t)n : 0;
	}
	return sent;
}

/* Also where the guest talks before it reads, and nobody listens; over TCP a client's kernel then takes back what has
 * not arrived. */
static void what_was_sent_before_a_close_is_taken_later(void **state)
{
	(void)state;
	for (int way = 0; way < 3; way++) {
		struct line l;
		size_t sent, got = 0;
		char buf[4096];
		ssize_t n;

		line_open(&l, way % 2 == 0);
		sent = flood(l.client[0]);
		close(l.client[0]);
		if (way >= 2) {
			assert_true(flood(l.guest[0]) > 0);
			usleep(300000);
		}
		while ((n = recv(l.guest[0], buf, sizeof(buf), 0)) > 0)
			for (ssize_t i = 0; i < n; i++, got++)
				assert_int_equal(buf[i], byte_at(got, 1));
		close(l.guest[0]);
		join(&l);
		if (got != sent)
			fail_msg("way %d: %zu of %zu bytes", way, got, sent);
	}
}

/* A guest that never reads keeps a place for so long, whatever it says meanwhile. */
static void nobody_waits_for_ever_for_one_who_does_not_read(void **state)
{
	static const struct linger reset = { .l_onoff = 1 };
	int before = upgrade_patience_ms;

	(void)state;
	upgrade_patience_ms = 1500;
	for (int way = 0; way < 4; way++) {
		struct line l;
		bool ended = false;

		line_open(&l, way % 2 == 0);
		flood(l.client[0]);
		setsockopt(l.client[0], SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
		close(l.client[0]);
		for (int i = 0; !ended && i < patience_ms(WAIT_MS) / 50; i++) {
			if (way >= 2)
				(void)!send(l.guest[0], "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
			ended = thread_join_ms(l.thread, 50);
		}
		assert_true(ended);
		close(l.guest[0]);
	}
	upgrade_patience_ms = before;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_byte_arrives_both_ways),
		cmocka_unit_test(without_descriptors_it_copies),
		cmocka_unit_test(few_bytes_behind_many_come_at_once),
		cmocka_unit_test(who_leaves_ends_it),
		cmocka_unit_test(what_was_sent_before_a_close_is_taken_later),
		cmocka_unit_test(nobody_waits_for_ever_for_one_who_does_not_read),
	};

	signal(SIGPIPE, SIG_IGN); /* as in the server */
	cmocka_set_test_filter(getenv("T"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
