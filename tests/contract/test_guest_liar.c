/* SPDX-License-Identifier: MIT */
/* A shim that lies, stops or dies: each call ends with an error of that sandbox, nothing else. */
#include "sandboxd/backend/guest.h"

#include "common/sys/fd.h"
#include "tests/support/patience.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* Of a number that is nobody's: a moment later it could have been somebody's. */
static _Atomic unsigned closed_twice;

int close(int fd)
{
	int r = (int)syscall(SYS_close, fd);

	closed_twice += r < 0 && errno == EBADF;
	return r;
}

struct liar {
	char dir[64];
	int dirfd, listen;
	const struct proto_hello_ok *ok; /* sent as it is */
	size_t ok_len;
	const void *answer;              /* to the first call */
	size_t answer_len;
	bool gives; /* a descriptor with it */
	const void *events;
	size_t events_len;
	pthread_t thread;
	struct guest_hub *hub;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool gone;
	unsigned seen;
};

static const struct proto_hello_ok good = { .magic = PROTO_MAGIC, .version = PROTO_VERSION,
	.generation = 1 };

static void serve_one(struct liar *l, int fd)
{
	struct proto_hello h;
	char buf[65536];

	if (recv(fd, &h, sizeof(h), MSG_WAITALL) != sizeof(h) ||
	    send(fd, l->ok, l->ok_len, MSG_NOSIGNAL) < 0)
		return;
	if (h.kind == PROTO_EVENTS) {
		if (l->events_len)
			(void)send(fd, l->events, l->events_len, MSG_NOSIGNAL);
		return;
	}
	if (recv(fd, buf, sizeof(buf), 0) > 0)
		(void)fd_send_msg(fd, l->answer, l->answer_len, &fd, l->gives);
}

/* Events stay open while calls are served; a call's connection is closed after its answer. */
static void *serve(void *arg)
{
	struct liar *l = arg;
	int fd, events = -1;

	while ((fd = accept4(l->listen, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		serve_one(l, fd);
		if (events < 0)
			events = fd;
		else
			close(fd);
	}
	if (events >= 0)
		close(events);
	return NULL;
}

static void on_news(void *arg, uint32_t num)
{
	struct liar *l = arg;

	pthread_mutex_lock(&l->lock);
	l->seen += num == 5;
	pthread_mutex_unlock(&l->lock);
}

static void on_gone(void *arg)
{
	struct liar *l = arg;

	pthread_mutex_lock(&l->lock);
	l->gone = true;
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->lock);
}

static const struct guest_watch watch = { on_news, on_news, on_gone };

static void liar_open(struct liar *l)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct err e = ERR_NULL;

	strcpy(l->dir, "/tmp/sbx-liar-XXXXXX");
	assert_non_null(mkdtemp(l->dir));
	l->dirfd = open(l->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(a.sun_path, sizeof(a.sun_path), "%.50s/sock", l->dir);
	l->listen = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(l->listen, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(l->listen, 8), 0);
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->changed, NULL);
	assert_int_equal(guest_hub_new(&l->hub, &e), 0);
	assert_int_equal(pthread_create(&l->thread, NULL, serve, l), 0);
}

static void liar_close(struct liar *l)
{
	(void)shutdown(l->listen, SHUT_RDWR);
	pthread_join(l->thread, NULL);
	guest_hub_free(l->hub);
	close(l->listen);
	(void)unlinkat(l->dirfd, "sock", 0);
	close(l->dirfd);
	(void)rmdir(l->dir);
	pthread_mutex_destroy(&l->lock);
	pthread_cond_destroy(&l->changed);
}

static const uint8_t secret[PROTO_SECRET_LEN];

static void a_wrong_greeting_is_refused(void **state)
{
	static const struct proto_hello_ok bad[] = {
		{ .magic = 1, .version = PROTO_VERSION, .generation = 1 },
		{ .magic = PROTO_MAGIC, .version = PROTO_VERSION + 1, .generation = 1 },
		{ .magic = PROTO_MAGIC, .version = PROTO_VERSION, .generation = 2 },
		{ .magic = PROTO_MAGIC, .version = PROTO_VERSION, .generation = 1, .error = -EACCES },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct liar l = { .ok = &bad[i], .ok_len = sizeof(bad[i]) };
		struct guest *g = NULL;
		struct err e = ERR_NULL;
		liar_open(&l);
		assert_int_equal(guest_connect(l.hub, l.dirfd, secret, 1, &watch, &l, &g, &e), -1);
		assert_int_equal(e.code, ERR_UNAVAILABLE);
		assert_null(g);
		liar_close(&l);
	}
}

static void wrong_answers_end_the_call(void **state)
{
	static const struct proto_frame bad[] = {
		{ .op = PROTO_PING, .value = 0 },                 /* of another call */
		{ .op = PROTO_SIGNAL, .tag = 77 },                /* another tag */
		{ .op = PROTO_SIGNAL, .len = 100 },               /* says that more follows */
		{ .op = PROTO_SIGNAL, .value = INT64_MIN },       /* no errno */
	};

	(void)state;
	for (size_t i = 0; i <= ARRAY_LEN(bad); i++) {
		struct liar l = { .ok = &good, .ok_len = sizeof(good), .answer = &bad[i % 4],
			.answer_len = i < 4 ? sizeof(bad[i]) : 5 };
		struct guest *g = NULL;
		struct err e = ERR_NULL;
		liar_open(&l);
		assert_int_equal(guest_connect(l.hub, l.dirfd, secret, 1, &watch, &l, &g, &e), 0);
		assert_int_equal(guest_signal(g, 1, 15, false, &e), -1);
		assert_int_equal(e.code, ERR_CONFLICT);
		guest_free(g);
		liar_close(&l);
	}
}

/* Other threads of the server open something all the time. */
static void what_comes_with_a_wrong_answer_is_closed_once(void **state)
{
	static const struct proto_frame bad[] = { { .op = PROTO_DIAL, .tag = 77 }, { .op = PROTO_DIAL, .len = 100 },
		{ .op = PROTO_START }, { .op = PROTO_DIAL, .value = -ECONNREFUSED } };

	(void)state;
	for (size_t i = 0; i <= ARRAY_LEN(bad); i++) {
		struct liar l = { .ok = &good, .ok_len = sizeof(good), .answer = &bad[i % 4],
			.answer_len = i < 4 ? sizeof(bad[i]) : 5, .gives = true };
		struct guest *g = NULL;
		struct err e = ERR_NULL;
		int got = -1;
		liar_open(&l);
		assert_int_equal(guest_connect(l.hub, l.dirfd, secret, 1, &watch, &l, &g, &e), 0);
		closed_twice = 0;
		assert_int_equal(guest_dial(g, 80, &got, &e), -1);
		assert_int_equal(got, -1);
		assert_int_equal(closed_twice, 0);
		guest_free(g);
		liar_close(&l);
	}
}

static void wrong_events_end_the_guest(void **state)
{
	struct proto_frame ev[3] = { { .op = PROTO_OUTPUT, .value = 5 },
		{ .op = PROTO_EXITED, .value = 5 }, { .op = PROTO_EXITED, .value = -3 } };
	struct liar l = { .ok = &good, .ok_len = sizeof(good), .events = ev, .events_len = sizeof(ev) };
	struct guest *g = NULL;
	struct err e = ERR_NULL;

	(void)state;
	liar_open(&l);
	assert_int_equal(guest_connect(l.hub, l.dirfd, secret, 1, &watch, &l, &g, &e), 0);
	pthread_mutex_lock(&l.lock);
	while (!l.gone)
		pthread_cond_wait(&l.changed, &l.lock);
	assert_int_equal(l.seen, 2);
	pthread_mutex_unlock(&l.lock);
	guest_free(g);
	liar_close(&l);
}

static void nobody_there_is_an_error(void **state)
{
	struct liar l = { .ok = &good, .ok_len = sizeof(good) };
	struct guest *g = NULL;
	struct err e = ERR_NULL;

	(void)state;
	liar_open(&l);
	(void)unlinkat(l.dirfd, "sock", 0);
	assert_int_equal(guest_connect(l.hub, l.dirfd, secret, 1, &watch, &l, &g, &e), -1);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	liar_close(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wrong_greeting_is_refused),
		cmocka_unit_test(wrong_answers_end_the_call),
		cmocka_unit_test(what_comes_with_a_wrong_answer_is_closed_once),
		cmocka_unit_test(wrong_events_end_the_guest),
		cmocka_unit_test(nobody_there_is_an_error),
	};

	alarm((unsigned)patience_ms(60000) / 1000);
	return run_table(tests);
}
