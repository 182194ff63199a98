/* SPDX-License-Identifier: MIT */
/* Sleep and waking on real sandboxes (node contract 10.2, 10.3, 15; 27 row 35; 28 rows 7 and 8):
 * what the guest kept, who may wake it, races, and a server that dies meanwhile. Skipped when not
 * root. */
#include "tests/support/suite.h"

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct rig *rig;

/* --- small words ----------------------------------------------------------------------------- */

static json_t *get(const char *id)
{
	return rig_json(rig, "GET", rig_path("/v1/sandboxes/%s", id), NULL, 200);
}

static bool is_asleep(void *id)
{
	return rig_in_state(rig, id, "suspended");
}

static bool has_ended(void *id)
{
	return rig_in_state(rig, id, "terminated");
}

static void turn(const char *id, const char *verb, int want)
{
	_cleanup_answer_ struct answer a = rig_send(
		rig, "POST", rig_path("/v1/sandboxes/%s/%s", id, verb), NULL, NULL, NULL, 0);

	assert_answer(&a, want, want == 409 ? "conflict" : NULL);
	if (want == 200) {
		json_t *o = answer_json(&a);
		assert_string_equal(json_string_value(json_object_get(o, "state")),
			!strcmp(verb, "suspend") ? "suspended" : "running");
		assert_null(json_object_get(o, "idle_suspended"));
		json_decref(o);
	}
}

static void assert_says(const char *id, const char *script, const char *want)
{
	_cleanup_free_ char *out = NULL;

	rig_sh(rig, id, script, &out);
	assert_string_equal(out, want);
}

static unsigned start_process(const char *id, const char *body)
{
	json_t *o = rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/processes", id), body, 201);
	unsigned pid = (unsigned)json_integer_value(json_object_get(o, "pid"));

	json_decref(o);
	return pid;
}

/* Will sleep by its idle timeout. */
static const char *tired(void)
{
	const char *id = rig_sandbox(rig, "{\"idle_timeout_secs\":1,\"idle_action\":\"suspend\"}");

	assert_int_equal(rig_sh(rig, id, "echo kept > /sandbox/home/f", NULL), 0);
	return id;
}

static void change(const char *id, const char *body)
{
	json_decref(rig_json(rig, "PATCH", rig_path("/v1/sandboxes/%s", id), body, 200));
}

/* And once it is woken it stays awake, however long a busy machine takes for the rest. */
static const char *asleep(const char *id)
{
	json_t *o;

	rig_wait(is_asleep, (void *)(uintptr_t)id, 30000);
	change(id, "{\"idle_timeout_secs\":1000}");
	o = get(id);
	assert_true(json_is_true(json_object_get(o, "idle_suspended")));
	json_decref(o);
	return id;
}

static const char *sleeper(void)
{
	return asleep(tired());
}

/* A guest program that writes down the time ten times a second, and the longest gap it has seen. */
#define TICKER                                                                                     \
	"(while :; do cut -d' ' -f1 /proc/uptime >> /tmp/ticks; sleep 0.1; done) >/dev/null 2>&1 &"
#define GAP                                                                                        \
	"awk 'NR > 1 && $1 - p > g { g = $1 - p } { p = $1 } END { print (g > 1.2) }' /tmp/ticks"

static bool ticks(void *id)
{
	_cleanup_free_ char *out = NULL;

	rig_sh(rig, id, "grep -c . /tmp/ticks", &out);
	return out && atoi(out) > 3;
}

static void start_ticker(const char *id)
{
	assert_int_equal(rig_sh(rig, id, TICKER, NULL), 0);
	rig_wait(ticks, (void *)(uintptr_t)id, 30000);
}

/* --- by request ------------------------------------------------------------------------------ */

static void a_suspend_keeps_the_sandbox(void **state)
{
	const char *id = rig_sandbox(rig, NULL);
	unsigned pid;

	(void)state;
	assert_int_equal(rig_sh(rig, id, "echo before > /sandbox/home/f", NULL), 0);
	pid = start_process(id, "{\"argv\":[\"sleep\",\"30\"]}");
	turn(id, "suspend", 409);
	json_decref(rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/processes/%u/signal", id, pid),
		"{\"signal\":\"KILL\"}", 204));
	assert_int_equal(
		rig_status(rig, "GET", rig_path("/v1/sandboxes/%s/processes/%u/output", id, pid),
			NULL, NULL),
		200); /* to its end */
	turn(id, "suspend", 200);
	rig_refuses(rig, "POST", rig_path("/v1/sandboxes/%s/run", id), "{\"argv\":[\"true\"]}", 409,
		"conflict");
	turn(id, "suspend", 409);
	turn(id, "resume", 200);
	assert_says(id, "cat /sandbox/home/f; echo awake", "before\nawake\n");
	turn(id, "resume", 409);
	assert_int_equal(rig_events(rig, id, "sandbox.suspended", NULL), 1);
	assert_int_equal(rig_events(rig, id, "sandbox.resumed", NULL), 1);
	rig_end(rig, id);
	turn(id, "suspend", 409);
	turn(id, "resume", 409);
	rig_refuses(
		rig, "POST", "/v1/sandboxes/sbx_0000000000000000/suspend", NULL, 404, "not_found");
	rig_refuses(
		rig, "POST", "/v1/sandboxes/sbx_0000000000000000/resume", NULL, 404, "not_found");
}

/* The line with the exit code is followed at once, thirty times over. */
static void after_the_exit_line_a_suspend_is_possible(void **state)
{
	const char *id = rig_sandbox(rig, NULL);

	(void)state;
	for (int i = 0; i < 30; i++) {
		unsigned pid = start_process(id, "{\"argv\":[\"sleep\",\"30\"]}");
		struct httpc_stream st = { 0 };
		struct answer head;
		json_t *line;
		int fd = rig_open(rig, "GET",
			rig_path("/v1/sandboxes/%s/processes/%u/output", id, pid), NULL, NULL, NULL,
			0);
		head = httpc_head(fd);
		assert_int_equal(head.status, 200);
		answer_free(&head);
		json_decref(rig_json(rig, "POST",
			rig_path("/v1/sandboxes/%s/processes/%u/signal", id, pid),
			"{\"signal\":\"KILL\"}", 204));
		line = httpc_line(fd, &st);
		turn(id, "suspend", 200);
		assert_int_equal(json_integer_value(json_object_get(line, "exit_code")), 137);
		json_decref(line);
		httpc_stream_free(&st);
		close(fd);
		turn(id, "resume", 200);
	}
	rig_end(rig, id);
}

static void the_second_sleep_keeps_what_the_first_one_kept(void **state)
{
	const char *id = rig_sandbox(rig, NULL);
	char script[256], want[32] = "";

	(void)state;
	for (int i = 1; i <= 5; i++) {
		snprintf(script, sizeof(script),
			"echo %d > f%d; head -c 300000 /dev/urandom > b%d; sha256sum b%d >> sums",
			i, i, i, i);
		assert_int_equal(rig_sh(rig, id, script, NULL), 0);
		turn(id, "suspend", 200);
		turn(id, "resume", 200);
		snprintf(want, sizeof(want), "%d\n0\n", i);
		assert_says(id, "cat f* | wc -l; sha256sum -c sums | grep -vc OK", want);
	}
	rig_end(rig, id);
}

static void while_it_sleeps_nothing_in_it_runs(void **state)
{
	const char *id = rig_sandbox(rig, NULL);

	(void)state;
	start_ticker(id);
	assert_says(id, GAP, "0\n");
	turn(id, "suspend", 200);
	rig_pause(1600);
	turn(id, "resume", 200);
	assert_says(id, "sleep 0.3; " GAP, "1\n");
	/* the clock has gone on: a program on the host and one inside agree */
	{
		_cleanup_free_ char *out = NULL;
		rig_sh(rig, id, "date +%s", &out);
		assert_true(labs(atol(out) - (long)time(NULL)) <= 1);
	}
	rig_end(rig, id);
}

static void one_that_sleeps_by_request_is_not_woken(void **state)
{
	static const struct {
		const char *method, *path, *headers, *body;
		int want;
	} rows[] = {
		{ "POST", "/run", NULL, "{\"argv\":[\"true\"]}", 409 },
		{ "POST", "/processes", NULL, "{\"argv\":[\"true\"]}", 409 },
		{ "GET", "/files?path=/etc/hosts", NULL, NULL, 409 },
		{ "DELETE", "/files?path=/tmp/x", NULL, NULL, 409 },
		{ "GET", "/dirs?path=/", NULL, NULL, 409 },
		{ "GET", "/fs/stat?path=/", NULL, NULL, 409 },
		{ "GET", "/tunnel?port=80", "Connection: Upgrade\r\nUpgrade: sbx-tunnel/1\r\n",
			NULL, 409 },
		{ "POST", "/run", "Sandbox-Background: 1\r\n", "{\"argv\":[\"true\"]}", 409 },
		{ "GET", "", NULL, NULL, 200 },
		{ "GET", "/processes", NULL, NULL, 200 },
		{ "GET", "/processes/1", NULL, NULL, 200 },
		{ "GET", "/processes/1/output", NULL, NULL, 200 },
		{ "GET", "/processes/1/output/stdout", NULL, NULL, 200 },
		{ "POST", "/processes/1/signal", NULL, "{\"signal\":\"TERM\"}", 204 },
		{ "POST", "/processes/1/stdin", NULL, "", 409 },
		{ "GET", "/events", NULL, NULL, 200 },
		{ "PATCH", "", NULL, "{\"labels\":{\"a\":\"b\"},\"idle_timeout_secs\":5}", 200 },
	};
	const char *id = rig_sandbox(rig, NULL);

	(void)state;
	assert_int_equal(rig_sh(rig, id, "echo said", NULL), 0);
	turn(id, "suspend", 200);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int got = rig_status(rig, rows[i].method,
			rig_path("/v1/sandboxes/%s%s", id, rows[i].path), rows[i].headers,
			rows[i].body);
		if (got != rows[i].want)
			fail_msg("%s %s: %d, wanted %d", rows[i].method, rows[i].path, got,
				rows[i].want);
	}
	assert_true(rig_in_state(rig, id, "suspended"));
	assert_int_equal(rig_events(rig, id, "sandbox.resumed", "request"), 0);
	rig_end(rig, id);
	assert_true(rig_in_state(rig, id, "terminated"));
}

static void a_sleeping_one_is_counted_in_free_and_not_in_running(void **state)
{
	const char *id = rig_sandbox(rig, "{\"memory_mb\":64}");
	json_t *a = rig_json(rig, "GET", "/v1/node", NULL, 200), *b;

	(void)state;
	turn(id, "suspend", 200);
	b = rig_json(rig, "GET", "/v1/node", NULL, 200);
	assert_int_equal(json_integer_value(json_object_get(b, "running")),
		json_integer_value(json_object_get(a, "running")) - 1);
	assert_true(json_equal(json_object_get(a, "free"), json_object_get(b, "free")));
	json_decref(b);
	rig_end(rig, id);
	b = rig_json(rig, "GET", "/v1/node", NULL, 200);
	assert_int_equal(json_integer_value(json_object_get(b, "running")),
		json_integer_value(json_object_get(a, "running")) - 1);
	json_decref(a);
	json_decref(b);
}

/* --- by the idle timeout --------------------------------------------------------------------- */

static void asleep_by_idle_it_answers_from_its_records(void **state)
{
	static const char *const reads[] = { "", "/processes", "/processes/1",
		"/processes/1/output", "/processes/1/output/stdout", "/events", "/metrics" };
	const char *id = sleeper();
	json_t *o;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(reads); i++) {
		int got = rig_status(
			rig, "GET", rig_path("/v1/sandboxes/%s%s", id, reads[i]), NULL, NULL);
		if (got != 200 && (got != 501 || strcmp(reads[i], "/metrics")))
			fail_msg("GET %s: %d", reads[i], got);
	}
	json_decref(rig_json(rig, "GET", "/v1/sandboxes", NULL, 200));
	assert_true(rig_in_state(rig, id, "suspended"));
	o = rig_json(rig, "PATCH", rig_path("/v1/sandboxes/%s", id),
		"{\"labels\":{\"k\":\"v\"},\"name\":\"dreamer\",\"idle_timeout_secs\":60}", 200);
	assert_string_equal(json_string_value(json_object_get(o, "state")), "suspended");
	assert_true(json_is_true(json_object_get(o, "idle_suspended")));
	json_decref(o);
	assert_int_equal(rig_events(rig, id, "sandbox.resumed", "request"), 0);
	assert_true(rig_in_state(rig, "dreamer", "suspended"));
	rig_end(rig, id);
}

/* The last frame of an attach to an exited process; without waking the sandbox, whoever put it to
 * sleep. */
static void an_attach_to_the_past_wakes_nobody(void **state)
{
	const char *ids[2] = { tired(), rig_sandbox(rig, NULL) };

	(void)state;
	assert_int_equal(rig_sh(rig, ids[1], "echo kept", NULL), 0);
	turn(ids[1], "suspend", 200);
	asleep(ids[0]);
	for (int i = 0; i < 2; i++) {
		int fd = rig_open(rig, "GET",
			rig_path("/v1/sandboxes/%s/processes/1/attach", ids[i]),
			"Connection: Upgrade\r\nUpgrade: sbx-stream/1\r\n", NULL, NULL, 0);
		_cleanup_answer_ struct answer a = httpc_head(fd);
		unsigned char frames[64];
		ssize_t n;
		assert_int_equal(a.status, 101);
		httpc_send_bytes(fd, "i\0\0\0\1x", 6); /* ignored: nobody reads it */
		n = recv(fd, frames, sizeof(frames), MSG_WAITALL);
		assert_true(n >= 9);
		assert_memory_equal(frames + n - 9, "x\0\0\0\4\0\0\0\0", 9);
		close(fd);
		assert_true(rig_in_state(rig, ids[i], "suspended"));
		assert_int_equal(rig_events(rig, ids[i], "sandbox.resumed", "request"), 0);
		rig_end(rig, ids[i]);
	}
}

/* Whether it was awake when the stream was opened is seen afterwards, as nothing here wakes it: on a busy machine
 * it may have fallen asleep just before, and is woken for another try. */
static int open_output(const char *id, const char *headers)
{
	for (int tries = 0;; tries++) {
		int fd = rig_open(rig, "GET", rig_path("/v1/sandboxes/%s/processes/1/output", id), headers,
			NULL, NULL, 0);
		_cleanup_answer_ struct answer a = httpc_head(fd);
		assert_int_equal(a.status, 200);
		if (rig_in_state(rig, id, "running"))
			return fd;
		assert_true(tries < 20);
		close(fd);
		assert_int_equal(rig_sh(rig, id, "true", NULL), 0);
	}
}

/* A client that is in no hurry: the process is over, its output is not all sent. */
static void an_open_stream_keeps_it_awake(void **state)
{
	static const char *const headers[] = { NULL, "Sandbox-Background: 1\r\n" };
	const char *ids[2];
	int fds[2];

	(void)state;
	for (int i = 0; i < 2; i++) {
		ids[i] = rig_sandbox(rig, "{\"idle_timeout_secs\":3,\"idle_action\":\"suspend\"}");
		assert_int_equal(rig_sh(rig, ids[i], "yes | head -c 6000000", NULL), 0);
		fds[i] = open_output(ids[i], headers[i]);
	}
	asleep(ids[1]);
	rig_pause(1500);
	assert_true(rig_in_state(rig, ids[0], "running"));
	close(fds[0]);
	asleep(ids[0]);
	close(fds[1]);
	rig_end(rig, ids[0]);
	rig_end(rig, ids[1]);
}

static void a_change_is_recorded_with_what_it_named(void **state)
{
	static const struct {
		const char *body, *key;
	} rows[] = {
		{ "{\"idle_action\":\"suspend\"}", "idle_action" },
		{ "{\"idle_timeout_secs\":900}", "idle_timeout_secs" },
		{ "{\"lifetime_secs\":9000}", "lifetime_secs" },
		{ "{\"name\":\"called\"}", "name" },
		{ "{\"labels\":{\"k\":\"v\"}}", "labels" },
	};
	const char *id = rig_sandbox(rig, NULL);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		json_t *want = json_loads(rows[i].body, 0, NULL), *o, *last;
		json_decref(rig_json(
			rig, "PATCH", rig_path("/v1/sandboxes/%s", id), rows[i].body, 200));
		o = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/events", id), NULL, 200);
		last = json_object_get(o, "events");
		last = json_array_get(last, json_array_size(last) - 1);
		assert_string_equal(
			json_string_value(json_object_get(last, "type")), "sandbox.updated");
		assert_true(json_equal(
			json_object_get(last, rows[i].key), json_object_get(want, rows[i].key)));
		assert_int_equal(json_object_size(last), 4); /* time, type, sandbox */
		json_decref(o);
		json_decref(want);
	}
	rig_end(rig, id);
}

static void a_background_request_leaves_it_asleep(void **state)
{
	static const char *const gets[] = { "/files?path=/etc/hosts", "/dirs?path=/",
		"/fs/stat?path=/" };
	const char *id = sleeper();

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(gets); i++)
		assert_int_equal(rig_status(rig, "GET", rig_path("/v1/sandboxes/%s%s", id, gets[i]),
					 "Sandbox-Background: 1\r\n", NULL),
			409);
	assert_int_equal(rig_status(rig, "POST", rig_path("/v1/sandboxes/%s/run", id),
				 "Sandbox-Background: 1\r\n", "{\"argv\":[\"true\"]}"),
		409);
	change(id, "{\"idle_action\":\"terminate\",\"idle_timeout_secs\":1}");
	assert_true(rig_in_state(rig, id, "suspended"));
	assert_int_equal(rig_events(rig, id, "sandbox.resumed", "request"), 0);
	/* it keeps waking on use; the new action counts from the next time on */
	assert_says(id, "cat /sandbox/home/f", "kept\n");
	rig_wait(has_ended, (void *)(uintptr_t)id, 30000);
	assert_int_equal(rig_events(rig, id, "sandbox.terminated", "idle"), 1);
}

static const struct waking {
	const char *method, *path, *headers, *body;
	int want;
} wakings[] = {
	{ "POST", "/run", NULL, "{\"argv\":[\"cat\",\"/sandbox/home/f\"]}", 200 },
	{ "POST", "/processes", NULL, "{\"argv\":[\"true\"]}", 201 },
	{ "GET", "/files?path=/sandbox/home/f", NULL, NULL, 200 },
	{ "GET", "/dirs?path=/sandbox/home", NULL, NULL, 200 },
	{ "GET", "/fs/stat?path=/sandbox/home/f", NULL, NULL, 200 },
	{ "GET", "/tunnel?port=9", "Connection: Upgrade\r\nUpgrade: sbx-tunnel/1\r\n", NULL, 404 },
};

static void use_wakes_it(void **state)
{
	const char *ids[ARRAY_LEN(wakings)];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(wakings); i++)
		ids[i] = tired();
	for (size_t i = 0; i < ARRAY_LEN(wakings); i++) {
		const char *id = asleep(ids[i]);
		const struct waking *w = &wakings[i];
		int got = rig_status(rig, w->method, rig_path("/v1/sandboxes/%s%s", id, w->path),
			w->headers, w->body);
		if (got != w->want)
			fail_msg("%s %s: %d, wanted %d", w->method, w->path, got, w->want);
		assert_int_equal(rig_events(rig, id, "sandbox.suspended", "idle"), 1);
		assert_int_equal(rig_events(rig, id, "sandbox.resumed", "request"), 1);
		rig_end(rig, id);
	}
}

#define RACERS 10
struct racer {
	const char *method, *headers;
	char path[160];
	const char *body;
	int status;
	pthread_t t;
};

static void *race_one(void *arg)
{
	struct racer *r = arg;

	r->status = rig_status(rig, r->method, r->path, r->headers, r->body);
	return NULL;
}

static void race(struct racer *r, size_t n)
{
	for (size_t i = 0; i < n; i++)
		assert_int_equal(pthread_create(&r[i].t, NULL, race_one, &r[i]), 0);
	for (size_t i = 0; i < n; i++)
		pthread_join(r[i].t, NULL);
}

static void ten_wakings_at_once_are_one_resume(void **state)
{
	const char *ids[3] = { tired(), tired(), tired() };

	(void)state;
	for (int round = 0; round < 3; round++) {
		const char *id = asleep(ids[round]);
		struct racer r[RACERS];
		for (size_t i = 0; i < RACERS; i++) {
			r[i] = (struct racer){ .method = i % 2 ? "GET" : "POST",
				.body = i % 2 ? NULL : "{\"argv\":[\"cat\",\"/sandbox/home/f\"]}" };
			snprintf(r[i].path, sizeof(r[i].path), "/v1/sandboxes/%s/%s", id,
				i % 2 ? "files?path=/sandbox/home/f" : "run");
		}
		race(r, RACERS);
		for (size_t i = 0; i < RACERS; i++)
			assert_int_equal(r[i].status, 200);
		assert_int_equal(rig_events(rig, id, "sandbox.resumed", "request"), 1);
		rig_end(rig, id);
	}
}

/* It is woken for that, but not before everything about the request is right. */
static void a_change_of_the_network_wakes_it(void **state)
{
	static const struct {
		const char *headers, *body;
		int want;
	} rows[] = {
		{ "Sandbox-Background: 1\r\n", "{\"network\":{\"mode\":\"none\"}}", 409 },
		{ NULL, "{\"network\":{\"mode\":\"wide-open\"}}", 400 },
		{ NULL, "{\"network\":{\"mode\":\"none\"},\"name\":\"Not A Name\"}", 400 },
		{ NULL, "{\"network\":{\"mode\":\"allowlist\",\"allow\":[]}}", 403 },
	};
	json_t *o = rig_json(rig, "GET", "/v1/capabilities", NULL, 200);
	bool can = json_is_true(
		json_object_get(json_object_get(o, "capabilities"), "network_policy_update"));
	const char *id, *told;

	(void)state;
	json_decref(o);
	if (!can)
		skip();
	id = sleeper();
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int got = rig_status(rig, "PATCH", rig_path("/v1/sandboxes/%s", id),
			rows[i].headers, rows[i].body);
		if (got != rows[i].want)
			fail_msg("%s: %d, wanted %d", rows[i].body, got, rows[i].want);
		assert_true(rig_in_state(rig, id, "suspended"));
	}
	o = rig_json(rig, "PATCH", rig_path("/v1/sandboxes/%s", id),
		"{\"network\":{\"mode\":\"none\"}}", 200);
	assert_string_equal(json_string_value(json_object_get(o, "state")), "running");
	json_decref(o);
	assert_int_equal(rig_events(rig, id, "sandbox.resumed", "request"), 1);
	assert_int_equal(rig_events(rig, id, "sandbox.network_updated", NULL), 1);
	told = rig_sandbox(rig, NULL);
	turn(told, "suspend", 200);
	rig_refuses(rig, "PATCH", rig_path("/v1/sandboxes/%s", told),
		"{\"network\":{\"mode\":\"none\"}}", 409, "conflict");
	rig_end(rig, told);
	rig_end(rig, id);
}

static void told_to_sleep_it_is_not_woken_any_more(void **state)
{
	const char *id = sleeper();

	(void)state;
	turn(id, "suspend", 200); /* asserts that idle_suspended is gone */
	assert_int_equal(rig_events(rig, id, "sandbox.suspended", "idle"), 1);
	assert_int_equal(rig_events(rig, id, "sandbox.suspended", NULL), 1);
	rig_refuses(rig, "POST", rig_path("/v1/sandboxes/%s/run", id), "{\"argv\":[\"true\"]}", 409,
		"conflict");
	turn(id, "resume", 200);
	assert_int_equal(rig_events(rig, id, "sandbox.resumed", NULL), 1);
	assert_says(id, "cat /sandbox/home/f", "kept\n");
	rig_end(rig, id);
}

static void a_running_process_keeps_it_awake(void **state)
{
	const char *id = rig_sandbox(rig, "{\"idle_timeout_secs\":1,\"idle_action\":\"suspend\"}");

	(void)state;
	start_process(id, "{\"argv\":[\"sleep\",\"600\"]}");
	for (int i = 0; i < 30; i++) {
		assert_false(rig_in_state(rig, id, "suspended"));
		rig_pause(100);
	}
	json_decref(rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/processes/1/signal", id),
		"{\"signal\":\"KILL\"}", 204));
	rig_wait(is_asleep, (void *)(uintptr_t)id, 30000);
	rig_end(rig, id);
}

static void a_lifetime_ends_one_that_sleeps(void **state)
{
	const char *id = sleeper(), *told = rig_sandbox(rig, NULL);
	json_t *o;

	(void)state;
	turn(told, "suspend", 200);
	change(told, "{\"lifetime_secs\":2}");
	change(id, "{\"lifetime_secs\":5}");
	rig_wait(has_ended, (void *)(uintptr_t)told, 30000);
	rig_wait(has_ended, (void *)(uintptr_t)id, 30000);
	o = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s", id), NULL, 200);
	assert_null(json_object_get(o, "idle_suspended")); /* it sleeps no more */
	json_decref(o);
	assert_int_equal(rig_events(rig, id, "sandbox.terminated", "lifetime"), 1);
	assert_int_equal(rig_events(rig, told, "sandbox.terminated", "lifetime"), 1);
	assert_int_equal(rig_events(rig, id, "sandbox.resumed", "request"), 0);
}

/* --- races and trouble ----------------------------------------------------------------------- */

/* Everything at once: each answer is one that the contract knows, and what is left is consistent.
 */
static void racing_turns_runs_and_ends_agree_in_the_end(void **state)
{
	(void)state;
	for (int round = 0; round < 12; round++) {
		const char *id = rig_sandbox(rig, NULL);
		static const char *const verbs[] = { "suspend", "run", "resume", "suspend", "run",
			"resume", "run", "suspend" };
		struct racer r[ARRAY_LEN(verbs) + 1] = { { 0 } };
		size_t n = ARRAY_LEN(verbs);
		for (size_t i = 0; i < n; i++) {
			r[i] = (struct racer){ .method = "POST",
				.body = !strcmp(verbs[i], "run") ? "{\"argv\":[\"true\"]}" : NULL };
			snprintf(r[i].path, sizeof(r[i].path), "/v1/sandboxes/%s/%s", id, verbs[i]);
		}
		if (round % 2) {
			r[n] = (struct racer){ .method = "DELETE" };
			snprintf(r[n].path, sizeof(r[n].path), "/v1/sandboxes/%s", id);
			n++;
		}
		race(r, n);
		for (size_t i = 0; i < n; i++)
			if (r[i].status != 200 && r[i].status != 409 && r[i].status != 204)
				fail_msg("%s %s: %d", r[i].method, r[i].path, r[i].status);
		if (round % 2) {
			assert_true(rig_in_state(rig, id, "terminated"));
			continue;
		}
		assert_true(rig_in_state(rig, id, "running") || rig_in_state(rig, id, "suspended"));
		if (rig_in_state(rig, id, "suspended"))
			turn(id, "resume", 200);
		assert_says(id, "echo well", "well\n");
		rig_end(rig, id);
	}
}

static void drop_snapshots(void)
{
	json_t *o = rig_json(rig, "GET", "/v1/snapshots", NULL, 200), *s;
	size_t i;

	json_array_foreach (json_object_get(o, "snapshots"), i, s)
		json_decref(rig_json(rig, "DELETE",
			rig_path("/v1/snapshots/%s", json_string_value(json_object_get(s, "id"))),
			NULL, 204));
	json_decref(o);
}

/* Both make the guest stand still, and only one of them for good. */
static void a_snapshot_sets_no_suspended_one_going(void **state)
{
	static const char *const verbs[] = { "snapshots", "suspend", "snapshots", "run",
		"suspend" };
	json_t *o = rig_json(rig, "GET", "/v1/capabilities", NULL, 200);
	bool can =
		json_is_true(json_object_get(json_object_get(o, "capabilities"), "disk_snapshot"));
	const char *id;

	(void)state;
	json_decref(o);
	if (!can)
		skip();
	id = rig_sandbox(rig, NULL);
	start_ticker(id);
	for (int round = 0; round < 6; round++) {
		struct racer r[ARRAY_LEN(verbs)] = { { 0 } };
		assert_int_equal(rig_sh(rig, id, "rm /tmp/ticks; sleep 0.3", NULL), 0);
		for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
			r[i] = (struct racer){ .method = "POST",
				.body = !strcmp(verbs[i], "run") ? "{\"argv\":[\"true\"]}" : NULL };
			snprintf(r[i].path, sizeof(r[i].path), "/v1/sandboxes/%s/%s", id, verbs[i]);
		}
		race(r, ARRAY_LEN(verbs));
		for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
			if (r[i].status != 200 && r[i].status != 201 && r[i].status != 409)
				fail_msg("%s: %d", r[i].path, r[i].status);
		if (rig_in_state(rig, id, "suspended")) {
			rig_pause(1300);
			turn(id, "resume", 200);
			assert_says(id, "sleep 0.3; " GAP, "1\n");
		} else {
			assert_says(id, "sleep 1; tail -n 3 /tmp/ticks | grep -c .", "3\n");
		}
	}
	drop_snapshots();
	rig_end(rig, id);
}

static void a_fork_bomb_is_stopped_or_set_going_again(void **state)
{
	const char *id = rig_sandbox(rig, "{\"cpus\":0.2,\"memory_mb\":128}");
	int got;

	(void)state;
	assert_int_equal(
		rig_sh(rig, id,
			"bomb() { while :; do (bomb) & sleep 0.02; done; }; bomb >/dev/null 2>&1 &",
			NULL),
		0);
	rig_pause(700);
	got = rig_status(rig, "POST", rig_path("/v1/sandboxes/%s/suspend", id), NULL, NULL);
	assert_true(got == 200 || got == 503);
	assert_true(rig_in_state(rig, id, got == 200 ? "suspended" : "running"));
	if (got == 200)
		turn(id, "resume", 200);
	rig_end(rig, id);
	assert_true(rig_in_state(rig, id, "terminated"));
}

static void asleep_it_outlives_a_server_that_is_killed(void **state)
{
	char *told = strdup(rig_sandbox(rig, NULL)), *idle = strdup(sleeper()),
	     *awake = strdup(rig_sandbox(rig, NULL));

	(void)state;
	start_ticker(told);
	turn(told, "suspend", 200);
	rig_kill(rig);
	rig_pause(1500);
	rig_start(rig);
	assert_true(rig_in_state(rig, told, "suspended"));
	assert_true(rig_in_state(rig, idle, "suspended"));
	assert_true(rig_in_state(rig, awake, "running"));
	rig_refuses(rig, "POST", rig_path("/v1/sandboxes/%s/run", told), "{\"argv\":[\"true\"]}",
		409, "conflict");
	turn(told, "resume", 200);
	assert_says(told, "sleep 0.3; " GAP, "1\n");
	assert_says(idle, "cat /sandbox/home/f", "kept\n");
	assert_int_equal(rig_events(rig, idle, "sandbox.resumed", "request"), 1);
	rig_end(rig, told);
	rig_end(rig, idle);
	rig_end(rig, awake);
	free(told);
	free(idle);
	free(awake);
}

/* Killed between the freezer and the record, the next server makes the one agree with the other. */
static void killed_in_between_it_is_what_its_record_says(void **state)
{
	static const struct {
		const char *point, *verb, *then;
	} rows[] = {
		{ "sandbox-frozen", "suspend", "running" },
		{ "sandbox-thawed", "resume", "suspended" },
	};
	static const struct rig_conf conf = { .linux_backend = true };
	struct rig *outer = rig;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const char *id;
		setenv("SBX_FAULT", rows[i].point, 1);
		rig = rig_new(&conf);
		unsetenv("SBX_FAULT");
		id = rig_sandbox(rig, NULL);
		start_ticker(id);
		if (!strcmp(rows[i].verb, "resume"))
			turn(id, "suspend", 200);
		assert_int_equal(
			rig_status(rig, "POST", rig_path("/v1/sandboxes/%s/%s", id, rows[i].verb),
				NULL, NULL),
			0);
		rig_stop(rig);
		rig_start(rig);
		assert_true(rig_in_state(rig, id, rows[i].then));
		if (!strcmp(rows[i].then, "suspended")) {
			rig_pause(1500);
			turn(id, "resume", 200);
			assert_says(id, "sleep 0.3; " GAP, "1\n");
		} else {
			assert_says(id, "rm /tmp/ticks", "");
			rig_wait(ticks, (void *)(uintptr_t)id, 30000);
		}
		rig_free(rig);
	}
	rig = outer;
}

static void a_server_that_keeps_none_ends_those_asleep_too(void **state)
{
	static const char *const args[] = { "--no-keep-sandboxes", NULL };
	static const struct rig_conf conf = { .linux_backend = true, .args = args };
	struct rig *outer = rig;
	const char *id;

	(void)state;
	rig = rig_new(&conf);
	id = rig_sandbox(rig, NULL);
	turn(id, "suspend", 200);
	rig_stop(rig);
	rig_start(rig);
	assert_true(rig_in_state(rig, id, "terminated"));
	assert_int_equal(rig_events(rig, id, "sandbox.terminated", "restart"), 1);
	rig_free(rig);
	rig = outer;
}

int main(void)
{
	static const struct rig_conf conf = { .linux_backend = true };
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_suspend_keeps_the_sandbox),
		cmocka_unit_test(after_the_exit_line_a_suspend_is_possible),
		cmocka_unit_test(the_second_sleep_keeps_what_the_first_one_kept),
		cmocka_unit_test(while_it_sleeps_nothing_in_it_runs),
		cmocka_unit_test(one_that_sleeps_by_request_is_not_woken),
		cmocka_unit_test(a_sleeping_one_is_counted_in_free_and_not_in_running),
		cmocka_unit_test(asleep_by_idle_it_answers_from_its_records),
		cmocka_unit_test(an_attach_to_the_past_wakes_nobody),
		cmocka_unit_test(an_open_stream_keeps_it_awake),
		cmocka_unit_test(a_change_is_recorded_with_what_it_named),
		cmocka_unit_test(a_background_request_leaves_it_asleep),
		cmocka_unit_test(use_wakes_it),
		cmocka_unit_test(ten_wakings_at_once_are_one_resume),
		cmocka_unit_test(a_change_of_the_network_wakes_it),
		cmocka_unit_test(told_to_sleep_it_is_not_woken_any_more),
		cmocka_unit_test(a_running_process_keeps_it_awake),
		cmocka_unit_test(a_lifetime_ends_one_that_sleeps),
		cmocka_unit_test(racing_turns_runs_and_ends_agree_in_the_end),
		cmocka_unit_test(a_snapshot_sets_no_suspended_one_going),
		cmocka_unit_test(a_fork_bomb_is_stopped_or_set_going_again),
		cmocka_unit_test(asleep_it_outlives_a_server_that_is_killed),
		cmocka_unit_test(killed_in_between_it_is_what_its_record_says),
		cmocka_unit_test(a_server_that_keeps_none_ends_those_asleep_too),
	};

	return run_suite(tests, &conf, &rig, NULL);
}
