/* SPDX-License-Identifier: MIT */
/* The front's side of an egress process against one that a test plays: what is sent is what the
 * process understands, and one that lies or dies costs an error or another start, nothing else. */
#include "tests/support/patience.h"
#include "tests/support/test.h"

#include "common/sys/deadline.h"
#include "common/sys/fd.h"
#include "sandboxd/core/core_internal.h"
#include "sandboxd/core/egress.h"
#include "sandboxd/core/egress_internal.h"
#include "sandboxd/core/strs.h"
#include "sandboxd/egress/policy.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

enum lie { HONEST, WRONG_MAGIC, NO_ENTRY, HANG_UP, HANG_UP_ONCE, SAYS_NO, LONG_ANSWER };
static struct {
	char dir[64];
	int listen;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* under lock */
	enum lie lie;
	unsigned connections, adds;
	int events;           /* the last connection that gets events */
	struct policy policy; /* as last sent */
	struct egress_server server;
} peer = { .lock = PTHREAD_MUTEX_INITIALIZER,
	.cond = PTHREAD_COND_INITIALIZER,
	.listen = -1,
	.events = -1 };
static struct core *core;
static struct sandbox *box;
static struct backend_ops ops;

static int answer(int fd, uint16_t op, int64_t value, uint32_t len)
{
	struct proto_frame f = { .op = op, .value = value, .len = len };

	return fd_send_full(fd, &f, sizeof(f), 1000);
}

static void take(uint16_t op, const uint8_t *b, size_t n)
{
	struct egress_policy head;

	if (op == EGRESS_RESOLVERS && n >= sizeof(peer.server))
		memcpy(&peer.server, b, sizeof(peer.server));
	if (op != EGRESS_POLICY)
		return;
	memcpy(&head, b, sizeof(head));
	policy_free(&peer.policy);
	if (policy_parse(&head, (const char *)b + sizeof(head), &peer.policy) < 0)
		abort();
}

/* One connection, until the front has no more to ask. */
static void serve(int fd, enum lie lie)
{
	struct proto_hello_ok ok = { .magic = PROTO_MAGIC + (lie == WRONG_MAGIC),
		.version = PROTO_VERSION,
		.error = lie == NO_ENTRY ? -EACCES : 0 };
	struct egress_counts counts = { .rx_bytes = 7, .tx_bytes = 8 };
	struct proto_hello hello;
	struct proto_frame f;
	static uint8_t body[1 << 20];

	if (lie == HANG_UP || lie == HANG_UP_ONCE || fd_recv_full(fd, &hello, sizeof(hello), 1000) < 0 ||
		fd_send_full(fd, &ok, sizeof(ok), 1000) < 0)
		return;
	pthread_mutex_lock(&peer.lock);
	if (hello.kind == PROTO_EVENTS)
		peer.events = fd;
	pthread_mutex_unlock(&peer.lock);
	while (fd_recv_full(fd, &f, sizeof(f), 300) == 0 && f.len <= sizeof(body) &&
		fd_recv_full(fd, body, f.len, 1000) == 0) {
		pthread_mutex_lock(&peer.lock);
		take(f.op, body, f.len);
		pthread_mutex_unlock(&peer.lock);
		if (f.op == EGRESS_COUNTERS) {
			answer(fd, f.op, 0, sizeof(counts));
			fd_send_full(fd, &counts, sizeof(counts), 1000);
		} else {
			answer(fd, f.op, lie == SAYS_NO ? -EINVAL : 0,
				lie == LONG_ANSWER ? 1 << 20 : 0);
		}
		if (f.op == EGRESS_POLICY)
			break;
	}
}

static void *run(void *arg)
{
	int at = (int)(intptr_t)arg, fd;

	while ((fd = accept4(at, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		enum lie lie;
		bool keep;
		pthread_mutex_lock(&peer.lock);
		lie = peer.lie;
		if (lie == HANG_UP_ONCE)
			peer.lie = HONEST;
		pthread_mutex_unlock(&peer.lock);
		serve(fd, lie);
		pthread_mutex_lock(&peer.lock);
		peer.connections++;
		keep = peer.events == fd;
		pthread_cond_broadcast(&peer.cond);
		pthread_mutex_unlock(&peer.lock);
		if (!keep)
			close(fd);
	}
	return NULL;
}

static void listen_here(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/egress", peer.dir);
	unlink(a.sun_path);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 8), 0);
	pthread_mutex_lock(&peer.lock);
	peer.listen = fd;
	pthread_create(&peer.thread, NULL, run, (void *)(intptr_t)fd);
	pthread_mutex_unlock(&peer.lock);
}

static void stop_listening(void)
{
	pthread_t thread;
	int fd;

	pthread_mutex_lock(&peer.lock);
	fd = peer.listen;
	thread = peer.thread;
	peer.listen = -1;
	pthread_mutex_unlock(&peer.lock);
	if (fd < 0)
		return;
	shutdown(fd, SHUT_RDWR);
	pthread_join(thread, NULL);
	close(fd);
}

static int add(struct backend *b, const char *id, const uint8_t secret[PROTO_SECRET_LEN],
	uint64_t generation, struct err *e)
{
	(void)b;
	(void)e;
	assert_string_equal(id, box->id);
	assert_memory_equal(secret, box->secret, PROTO_SECRET_LEN);
	assert_int_equal(generation, box->generation);
	listen_here();
	pthread_mutex_lock(&peer.lock);
	peer.adds++;
	pthread_mutex_unlock(&peer.lock);
	return 0;
}

static int start(void **state)
{
	struct err e = ERR_NULL;

	(void)state;
	snprintf(peer.dir, sizeof(peer.dir), "/tmp/sbx-egress-XXXXXX");
	assert_non_null(mkdtemp(peer.dir));
	core = calloc(1, sizeof(*core));
	ops = (struct backend_ops){ .egress_add = add };
	core->ops = &ops;
	registry_init(&core->reg);
	assert_int_equal(egress_watch_new(core, &core->egress, &e), 0);
	box = sandbox_new(core, "sbx_00000000000000aa");
	box->run_dirfd = open(peer.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	box->generation = 3;
	memcpy(box->secret, "0123456789abcdef", PROTO_SECRET_LEN);
	box->state = SBX_RUNNING;
	box->network.mode = NET_ALLOWLIST;
	strs_add(&box->network.allow, "*.a.test");
	strs_add(&box->network.allow, "b.test");
	strs_add(&box->network.deny, "x.a.test");
	peer.lie = HONEST;
	peer.connections = peer.adds = 0;
	listen_here();
	return 0;
}

static int stop(void **state)
{
	char path[80];

	(void)state;
	egress_close(box->egress);
	box->egress = NULL;
	egress_watch_free(core->egress);
	sandbox_unref(box);
	registry_fini(&core->reg);
	free(core);
	stop_listening();
	if (peer.events >= 0)
		close(peer.events);
	peer.events = -1;
	policy_free(&peer.policy);
	snprintf(path, sizeof(path), "%s/egress", peer.dir);
	unlink(path);
	rmdir(peer.dir);
	return 0;
}

static bool reaches(const unsigned *what, unsigned n)
{
	struct timespec until = deadline_ms(20000);

	pthread_mutex_lock(&peer.lock);
	while (*what < n && cond_wait_until(&peer.cond, &peer.lock, &until))
		;
	bool enough = *what >= n;
	pthread_mutex_unlock(&peer.lock);
	return enough;
}

static void wait_for(const unsigned *what, unsigned n)
{
	assert_true(reaches(what, n));
}

static void the_policy_arrives_as_it_is(void **state)
{
	struct net_policy next = { .mode = NET_OPEN };
	struct egress_resolvers r = { .n = 1, .v[0] = { .family = AF_INET, .port = 5353 } };
	struct egress_counters n;
	struct err e = ERR_NULL;

	(void)state;
	core_set_resolvers(core, &r);
	assert_int_equal(egress_begin(box, &e), 0);
	assert_int_equal(peer.server.port, 5353);
	assert_true(policy_permits(&peer.policy, "y.a.test"));
	assert_true(policy_permits(&peer.policy, "b.test"));
	assert_false(policy_permits(&peer.policy, "x.a.test"));
	assert_false(policy_permits(&peer.policy, "c.test"));
	strs_add(&next.deny, "c.test");
	assert_int_equal(egress_change(box, &next, &e), 0);
	assert_int_equal(box->network.mode, NET_OPEN);
	assert_int_equal(peer.policy.mode, EGRESS_OPEN);
	assert_false(policy_permits(&peer.policy, "c.test"));
	assert_int_equal(egress_counters(box->egress, &n, &e), 0);
	assert_int_equal(n.rx_bytes, 7);
	assert_int_equal(n.tx_bytes, 8);
}

static void a_process_that_lies_is_an_error(void **state)
{
	static const enum lie lies[] = { WRONG_MAGIC, NO_ENTRY, SAYS_NO, LONG_ANSWER };

	(void)state;
	ops.egress_add = NULL;
	for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
		struct err e = ERR_NULL;
		pthread_mutex_lock(&peer.lock);
		peer.lie = lies[i];
		pthread_mutex_unlock(&peer.lock);
		assert_int_equal(egress_begin(box, &e), -1);
		assert_int_equal(e.code, ERR_UNAVAILABLE);
		assert_null(box->egress);
	}
}

/* A change that fails leaves the policy as it was. */
static void a_change_that_fails_changes_nothing(void **state)
{
	struct net_policy next = { .mode = NET_OPEN };
	struct err e = ERR_NULL;

	(void)state;
	assert_int_equal(egress_begin(box, &e), 0);
	pthread_mutex_lock(&peer.lock);
	peer.lie = SAYS_NO;
	pthread_mutex_unlock(&peer.lock);
	assert_int_equal(egress_change(box, &next, &e), -1);
	assert_int_equal(box->network.mode, NET_ALLOWLIST);
}

/* Waits for the policy that the process has. */
static bool has_mode(uint32_t mode)
{
	struct timespec until = deadline_ms(20000);
	bool has;

	pthread_mutex_lock(&peer.lock);
	while (peer.policy.mode != mode && cond_wait_until(&peer.cond, &peer.lock, &until))
		;
	has = peer.policy.mode == mode;
	pthread_mutex_unlock(&peer.lock);
	return has;
}

/* The process has heard of the change and its refusal is all that came back: it gets the old one again. */
static void what_a_failed_change_left_in_force_is_taken_back(void **state)
{
	static const enum net_mode before[] = { NET_ALLOWLIST, NET_NONE };
	static const uint32_t back[] = { EGRESS_ALLOWLIST, EGRESS_NONE };

	(void)state;
	assert_int_equal(egress_begin(box, &(struct err)ERR_NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(before); i++) {
		struct net_policy next = { .mode = NET_OPEN };
		struct err e = ERR_NULL;

		pthread_mutex_lock(&box->lock);
		box->network.mode = before[i];
		pthread_mutex_unlock(&box->lock);
		pthread_mutex_lock(&peer.lock);
		peer.lie = SAYS_NO;
		unsigned served = peer.connections;
		pthread_mutex_unlock(&peer.lock);
		assert_int_equal(egress_change(box, &next, &e), -1);
		wait_for(&peer.connections, served + 1); /* it has the new one, at least for a moment */
		pthread_mutex_lock(&peer.lock);
		peer.lie = HONEST;
		pthread_mutex_unlock(&peer.lock);
		assert_true(has_mode(back[i]));
		assert_int_equal(box->network.mode, before[i]);
	}
}

/* The front before has died after it opened the network, and before that was kept. */
static void one_that_cannot_be_reached_at_first_is_told_later(void **state)
{
	(void)state;
	pthread_mutex_lock(&peer.lock);
	peer.policy.mode = EGRESS_OPEN;
	peer.lie = HANG_UP_ONCE;
	pthread_mutex_unlock(&peer.lock);
	box->network.mode = NET_NONE;
	egress_resume(box);
	assert_true(has_mode(EGRESS_NONE));
}

static void one_that_dies_is_started_again(void **state)
{
	struct err e = ERR_NULL;

	(void)state;
	assert_int_equal(egress_begin(box, &e), 0);
	stop_listening();
	pthread_mutex_lock(&peer.lock);
	peer.connections = 0;
	policy_free(&peer.policy);
	shutdown(peer.events, SHUT_RDWR);
	close(peer.events);
	peer.events = -1;
	pthread_mutex_unlock(&peer.lock);
	wait_for(&peer.connections, 1);
	assert_int_equal(peer.adds, 1);
	assert_true(policy_permits(&peer.policy, "b.test"));
}

/* A change may wait ten seconds for an answer. */
static void one_that_is_asked_for_long_holds_up_no_other(void **state)
{
	struct sandbox *other = sandbox_new(core, "sbx_00000000000000bb");
	struct err e = ERR_NULL;

	(void)state;
	other->run_dirfd = open(peer.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	other->state = SBX_RUNNING;
	other->network.mode = NET_OPEN;
	assert_int_equal(egress_begin(box, &e), 0);
	assert_int_equal(egress_begin(other, &e), 0);
	wait_for(&peer.connections, 2);
	pthread_mutex_lock(&box->egress->turn);
	egress_watch_fd(box->egress, -1);
	egress_watch_fd(other->egress, -1);
	bool came = reaches(&peer.connections, 3);
	pthread_mutex_unlock(&box->egress->turn);
	wait_for(&peer.connections, 4); /* and is asked again itself */
	egress_close(other->egress);
	sandbox_unref(other);
	assert_true(came);
}

static void an_ended_sandbox_gets_no_other(void **state)
{
	const struct timespec moment = { .tv_nsec = 900000000 };
	struct err e = ERR_NULL;

	(void)state;
	assert_int_equal(egress_begin(box, &e), 0);
	stop_listening();
	pthread_mutex_lock(&box->lock);
	box->state = SBX_TERMINATED;
	pthread_mutex_unlock(&box->lock);
	shutdown(peer.events, SHUT_RDWR);
	nanosleep(&moment, NULL); /* three times what the first try waits */
	assert_int_equal(peer.adds, 0);
}

static void say(const void *p, size_t n)
{
	pthread_mutex_lock(&peer.lock);
	assert_int_equal(fd_send_full(peer.events, p, n, 1000), 0);
	pthread_mutex_unlock(&peer.lock);
}

struct event {
	struct proto_frame f;
	struct egress_refused r;
	char name[16];
};

/* What is well formed is taken; the first thing that is not ends the connection, and a new one with
 * the policy follows. */
static void nonsense_ends_the_connection_and_no_more(void **state)
{
	static const struct event rows[] = {
		{ { .op = 99, .len = sizeof(struct egress_refused) }, { 0 }, "" },
		{ { .op = EGRESS_REFUSED, .len = 3 }, { 0 }, "" },
		{ { .op = EGRESS_REFUSED, .len = 0xffffffff }, { 0 }, "" },
		{ { .op = EGRESS_REFUSED, .len = sizeof(struct egress_refused) },
			{ .why = WHY_COUNT }, "" },
		{ { .op = EGRESS_REFUSED, .len = sizeof(struct egress_refused) }, { .port = 65536 },
			"" },
	};
	struct event good = { { .op = EGRESS_REFUSED, .len = sizeof(struct egress_refused) + 16 },
		{ .why = WHY_NAME, .port = 443 }, "evil\n\033[31m.test" };
	struct err e = ERR_NULL;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		egress_close(box->egress);
		box->egress = NULL;
		pthread_mutex_lock(&peer.lock);
		peer.connections = 0;
		pthread_mutex_unlock(&peer.lock);
		assert_int_equal(egress_begin(box, &e), 0);
		wait_for(&peer.connections, 1);
		for (size_t k = 0; k < sizeof(good); k += 13) /* in pieces */
			say((const char *)&good + k, sizeof(good) - k < 13 ? sizeof(good) - k : 13);
		pthread_mutex_lock(&peer.lock);
		peer.connections = 0;
		pthread_mutex_unlock(&peer.lock);
		say(&rows[i], sizeof(rows[i].f) + sizeof(rows[i].r));
		wait_for(&peer.connections, 1);
	}
	assert_int_equal(peer.adds, 0);
}

/* A log that holds one line, and the watch's thread until somebody reads it. */
static int hold_log(int end[2])
{
	int was = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);

	assert_true(was >= 0);
	assert_int_equal(pipe2(end, O_CLOEXEC | O_DIRECT), 0); /* a write is a page of its own */
	assert_int_equal(fcntl(end[1], F_SETPIPE_SZ, 4096), 4096);
	assert_int_equal(dup2(end[1], STDERR_FILENO), STDERR_FILENO);
	return was;
}

static void free_log(const int end[2], int was)
{
	dup2(was, STDERR_FILENO); /* a line under way still goes into the pipe */
	close(was);
	close(end[1]);
	char line[4096];
	while (read(end[0], line, sizeof(line)) > 0)
		;
	close(end[0]);
}

static unsigned changed; /* under peer.lock */
static void *change(void *arg)
{
	struct net_policy next = { .mode = NET_OPEN };
	struct err e = ERR_NULL;

	(void)arg;
	assert_int_equal(egress_change(box, &next, &e), -1);
	pthread_mutex_lock(&peer.lock);
	changed = 1;
	pthread_cond_broadcast(&peer.cond);
	pthread_mutex_unlock(&peer.lock);
	return NULL;
}

/* The second of two refusals is being written to the log, which is slow, when a change of the policy fails. The
 * connection is given up then, but not from under the thread that goes on with what it has read. */
static void a_failed_change_waits_for_an_event_under_way(void **state)
{
	struct event two[2];
	struct err e = ERR_NULL;
	struct timespec until;
	pthread_t thread;
	int log[2];

	(void)state;
	changed = 0;
	for (size_t i = 0; i < ARRAY_LEN(two); i++)
		two[i] = (struct event){ { .op = EGRESS_REFUSED, .len = sizeof(struct egress_refused) + 16 },
			{ .why = WHY_NAME, .port = 443 }, "evil.test" };
	assert_int_equal(egress_begin(box, &e), 0);
	wait_for(&peer.connections, 1);
	int was = hold_log(log);
	struct pollfd first = { .fd = log[0], .events = POLLIN };
	say(two, sizeof(two));
	bool written = poll(&first, 1, patience_ms(20000)) == 1;
	pthread_mutex_lock(&peer.lock);
	peer.lie = SAYS_NO;
	pthread_mutex_unlock(&peer.lock);
	pthread_create(&thread, NULL, change, NULL);
	bool asked = reaches(&peer.connections, 2);
	until = deadline_ms(patience_ms(500)); /* if it does not wait, it is soon through */
	pthread_mutex_lock(&peer.lock);
	while (!changed && cond_wait_until(&peer.cond, &peer.lock, &until))
		;
	bool early = changed;
	peer.lie = HONEST;
	pthread_mutex_unlock(&peer.lock);
	free_log(log, was);
	pthread_join(thread, NULL);
	assert_true(written);
	assert_true(asked);
	assert_false(early);
	wait_for(&peer.connections, 3); /* and events come again */
}

int main(void)
{
#define ROW(f) cmocka_unit_test_setup_teardown(f, start, stop)
	static const struct CMUnitTest tests[] = {
		ROW(the_policy_arrives_as_it_is),
		ROW(a_process_that_lies_is_an_error),
		ROW(a_change_that_fails_changes_nothing),
		ROW(what_a_failed_change_left_in_force_is_taken_back),
		ROW(one_that_cannot_be_reached_at_first_is_told_later),
		ROW(one_that_dies_is_started_again),
		ROW(one_that_is_asked_for_long_holds_up_no_other),
		ROW(an_ended_sandbox_gets_no_other),
		ROW(nonsense_ends_the_connection_and_no_more),
		ROW(a_failed_change_waits_for_an_event_under_way),
	};

	return run_table(tests);
}
