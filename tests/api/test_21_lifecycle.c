/* SPDX-License-Identifier: MIT */
/* Lives of sandboxes: races for a name, idleness, lifetime, endings, forgetting, following the list
 * and the events. */
#include "tests/support/rig.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static struct rig *rig;

static int start(void **state)
{
	(void)state;
	rig = rig_new(NULL);
	return rig ? 0 : -1;
}

static int stop(void **state)
{
	(void)state;
	rig_free(rig);
	return 0;
}

static const char *text(const json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key));
}

static void delete (const char *ref)
{
	json_decref(rig_json(rig, "DELETE", rig_path("/v1/sandboxes/%s", ref), NULL, 204));
}

static bool in_state(const char *id, const char *want)
{
	json_t *o = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s", id), NULL, 200);
	bool is = !strcmp(text(o, "state"), want);

	json_decref(o);
	return is;
}

static bool has_ended(void *id)
{
	return in_state(id, "terminated");
}

/* The last event's type and reason. */
static void assert_last_event(const char *id, const char *type, const char *reason)
{
	json_t *o = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/events", id), NULL, 200);
	json_t *l = json_object_get(o, "events"), *last = json_array_get(l, json_array_size(l) - 1);

	assert_string_equal(text(last, "type"), type);
	assert_string_equal(text(last, "reason"), reason);
	assert_string_equal(text(json_array_get(l, 0), "type"), "sandbox.created");
	json_decref(o);
}

#define RACERS 12
struct racer {
	const char *method, *path, *body;
	int status;
	pthread_t t;
};

static void *race_one(void *arg)
{
	struct racer *r = arg;
	struct answer a = rig_send(
		rig, r->method, r->path, NULL, NULL, r->body, r->body ? strlen(r->body) : 0);

	r->status = a.status;
	answer_free(&a);
	return NULL;
}

static int race(struct racer *r, size_t n, int want)
{
	int hits = 0;

	for (size_t i = 0; i < n; i++)
		assert_int_equal(pthread_create(&r[i].t, NULL, race_one, &r[i]), 0);
	for (size_t i = 0; i < n; i++) {
		pthread_join(r[i].t, NULL);
		hits += r[i].status == want;
	}
	return hits;
}

static void of_many_creates_with_one_name_one_wins(void **state)
{
	struct racer r[RACERS];

	(void)state;
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < RACERS; i++)
			r[i] = (struct racer){ "POST", "/v1/sandboxes", "{\"name\":\"only\"}", 0,
				0 };
		assert_int_equal(race(r, RACERS, 201), 1);
		for (size_t i = 0; i < RACERS; i++)
			assert_true(r[i].status == 201 || r[i].status == 409);
		for (size_t i = 0; i < RACERS; i++)
			r[i] = (struct racer){ "DELETE", "/v1/sandboxes/only", NULL, 0, 0 };
		assert_int_equal(race(r, RACERS, 204), RACERS);
	}
}

static void of_two_renames_to_one_name_one_wins(void **state)
{
	char *a = strdup(rig_sandbox(rig, NULL)), *b = strdup(rig_sandbox(rig, NULL));
	char pa[96], pb[96];
	struct racer r[2];

	(void)state;
	snprintf(pa, sizeof(pa), "/v1/sandboxes/%s", a);
	snprintf(pb, sizeof(pb), "/v1/sandboxes/%s", b);
	r[0] = (struct racer){ "PATCH", pa, "{\"name\":\"prize\"}", 0, 0 };
	r[1] = (struct racer){ "PATCH", pb, "{\"name\":\"prize\"}", 0, 0 };
	assert_int_equal(race(r, 2, 200), 1);
	assert_int_equal(r[0].status + r[1].status, 200 + 409);
	delete (a);
	delete (b);
	free(a);
	free(b);
}

static void after_a_cordon_has_answered_nothing_lands(void **state)
{
	struct racer r[RACERS];
	json_t *node;
	json_int_t running;

	(void)state;
	for (size_t i = 0; i < RACERS; i++) {
		r[i] = (struct racer){ "POST", "/v1/sandboxes", "{}", 0, 0 };
		assert_int_equal(pthread_create(&r[i].t, NULL, race_one, &r[i]), 0);
	}
	node = rig_json(rig, "POST", "/v1/node/cordon", "{\"cordoned\":true}", 200);
	running = json_integer_value(json_object_get(node, "running"));
	json_decref(node);
	for (size_t i = 0; i < RACERS; i++) {
		pthread_join(r[i].t, NULL);
		assert_true(r[i].status == 201 || r[i].status == 503);
	}
	node = rig_json(rig, "GET", "/v1/node", NULL, 200);
	assert_int_equal(json_integer_value(json_object_get(node, "running")), running);
	json_decref(node);
	json_decref(rig_json(rig, "POST", "/v1/node/cordon", "{\"cordoned\":false}", 200));
}

static void a_client_that_hangs_up_makes_one_or_none(void **state)
{
	(void)state;
	for (int i = 0; i < 10; i++) {
		int fd = rig_open(
			rig, "POST", "/v1/sandboxes", NULL, NULL, "{\"name\":\"probe\"}", 16);
		struct answer a;
		usleep((unsigned)(i * 700));
		close(fd);
		/* the delete cancels it or ends it; afterwards the name is free */
		a = rig_send(rig, "DELETE", "/v1/sandboxes/probe", NULL, NULL, NULL, 0);
		assert_true(a.status == 204 || a.status == 404);
		answer_free(&a);
	}
	/* the last hang-up may not have been read yet when the delete came */
	for (int i = 0; i < 200; i++) {
		struct answer a = rig_send(
			rig, "POST", "/v1/sandboxes", NULL, NULL, "{\"name\":\"probe\"}", 16);
		int status = a.status;
		answer_free(&a);
		a = rig_send(rig, "DELETE", "/v1/sandboxes/probe", NULL, NULL, NULL, 0);
		answer_free(&a);
		if (status == 201)
			return;
		assert_int_equal(status, 409);
	}
	fail_msg("the name never became free");
}

static size_t open_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void a_create_that_fails_leaves_nothing_and_frees_its_name(void **state)
{
	static const char *const bad[] = { "{\"name\":\"probe\",\"image\":\"no.such.host/none:1\"}",
		"{\"name\":\"probe\",\"cpus\":1000000}" };
	size_t before = 0;

	(void)state;
	for (int i = 0; i < 10; i++) {
		struct answer a;
		for (size_t k = 0; k < ARRAY_LEN(bad); k++) {
			a = rig_send(
				rig, "POST", "/v1/sandboxes", NULL, NULL, bad[k], strlen(bad[k]));
			assert_true(a.status == 404 || a.status == 400);
			answer_free(&a);
		}
		delete (rig_sandbox(rig, "{\"name\":\"probe\"}"));
		if (i == 3)
			before = open_descriptors();
	}
	/* connections that close are the server's for a moment longer */
	for (int i = 0; i < 3000 && open_descriptors() > before; i++)
		usleep(10000);
	assert_true(open_descriptors() <= before);
}

static void an_unused_sandbox_ends_and_being_looked_at_is_no_use(void **state)
{
	char *id = strdup(rig_sandbox(rig, "{\"idle_timeout_secs\":2}"));

	(void)state;
	rig_wait(has_ended, id, 30000); /* asks every few milliseconds */
	assert_last_event(id, "sandbox.terminated", "idle");
	free(id);
}

static void a_running_process_holds_its_sandbox(void **state)
{
	char *id = strdup(rig_sandbox(rig, "{\"idle_timeout_secs\":1}"));
	json_t *o = rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/processes", id),
		"{\"argv\":[\"sleep\",\"600\"]}", 201);

	(void)state;
	json_decref(o);
	for (int i = 0; i < 30; i++) {
		assert_false(has_ended(id));
		usleep(100000);
	}
	json_decref(rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/processes/1/signal", id),
		"{\"signal\":\"KILL\"}", 204));
	rig_wait(has_ended, id, 30000);
	assert_last_event(id, "sandbox.terminated", "idle");
	free(id);
}

static void a_background_request_is_no_use(void **state)
{
	char *id = strdup(rig_sandbox(rig, "{\"idle_timeout_secs\":2}"));

	(void)state;
	for (int i = 0; i < 100 && !has_ended(id); i++) {
		struct answer a =
			rig_send(rig, "GET", rig_path("/v1/sandboxes/%s/dirs?path=/tmp", id),
				"Sandbox-Background: 1\r\n", NULL, NULL, 0);
		answer_free(&a);
		usleep(80000);
	}
	assert_true(has_ended(id));
	free(id);
}

static double seconds(const char *when)
{
	struct tm tm = { 0 };
	const char *rest = strptime(when, "%Y-%m-%dT%H:%M:%S", &tm);

	assert_non_null(rest);
	return (double)timegm(&tm) + strtod(rest, NULL);
}

static void a_busy_sandbox_ends_at_its_lifetime(void **state)
{
	json_t *o = rig_json(rig, "POST", "/v1/sandboxes", "{\"lifetime_secs\":1000}", 201);
	char *id = strdup(text(o, "id"));
	const char *from = text(o, "created_at"), *to = text(o, "expires_at");

	(void)state;
	assert_true(seconds(to) - seconds(from) > 999.99 && seconds(to) - seconds(from) < 1000.01);
	assert_string_equal(strchr(from, '.'), strchr(to, '.'));
	json_decref(o);
	json_decref(rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/processes", id),
		"{\"argv\":[\"sleep\",\"600\"]}", 201));
	json_decref(rig_json(
		rig, "PATCH", rig_path("/v1/sandboxes/%s", id), "{\"lifetime_secs\":2}", 200));
	rig_wait(has_ended, id, 30000);
	assert_last_event(id, "sandbox.terminated", "lifetime");
	o = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/processes/1", id), NULL, 200);
	assert_string_equal(text(o, "state"), "exited");
	assert_int_equal(json_integer_value(json_object_get(o, "exit_code")), 137);
	json_decref(o);
	free(id);
}

static void a_lifetime_moves_both_ways_and_into_the_past(void **state)
{
	char *id = strdup(rig_sandbox(rig, "{\"lifetime_secs\":30}"));
	json_t *o;

	(void)state;
	json_decref(rig_json(
		rig, "PATCH", rig_path("/v1/sandboxes/%s", id), "{\"lifetime_secs\":1000}", 200));
	usleep(1100000);
	assert_true(in_state(id, "running"));
	o = rig_json(rig, "PATCH", rig_path("/v1/sandboxes/%s", id), "{\"lifetime_secs\":1}", 200);
	assert_string_equal(text(o, "state"), "terminated");
	json_decref(o);
	assert_last_event(id, "sandbox.terminated", "lifetime");
	free(id);
}

static void a_terminated_sandbox_refuses_work_and_keeps_its_records(void **state)
{
	char *id = strdup(rig_sandbox(rig, NULL)), *out = NULL;
	json_t *o;
	struct answer a;

	(void)state;
	assert_int_equal(rig_sh(rig, id, "echo kept", &out), 0);
	free(out);
	delete (id);
	rig_refuses(rig, "POST", rig_path("/v1/sandboxes/%s/run", id), "{\"argv\":[\"true\"]}", 409,
		"conflict");
	rig_refuses(
		rig, "GET", rig_path("/v1/sandboxes/%s/files?path=/x", id), NULL, 409, "conflict");
	o = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/processes", id), NULL, 200);
	assert_int_equal(json_array_size(json_object_get(o, "processes")), 1);
	json_decref(o);
	a = rig_send(rig, "GET", rig_path("/v1/sandboxes/%s/processes/1/output", id), NULL, NULL,
		NULL, 0);
	assert_int_equal(a.status, 200);
	assert_non_null(strstr(a.body, "a2VwdAo="));
	assert_non_null(strstr(a.body, "{\"exit_code\":0}"));
	answer_free(&a);
	free(id);
}

static void a_follower_gets_the_exit_when_the_sandbox_ends(void **state)
{
	char *id = strdup(rig_sandbox(rig, "{\"name\":\"again\"}")), *second;
	struct httpc_stream st = { 0 };
	struct answer head;
	json_t *line, *o;
	int fd;

	(void)state;
	json_decref(rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/processes", id),
		"{\"argv\":[\"sleep\",\"600\"]}", 201));
	fd = rig_open(rig, "GET", rig_path("/v1/sandboxes/%s/processes/1/output", id), NULL, NULL,
		NULL, 0);
	head = httpc_head(fd);
	assert_int_equal(head.status, 200);
	answer_free(&head);
	delete ("again");
	second = strdup(rig_sandbox(rig, "{\"name\":\"again\"}"));
	line = httpc_line(fd, &st);
	assert_non_null(line);
	assert_int_equal(json_integer_value(json_object_get(line, "exit_code")), 137);
	json_decref(line);
	close(fd);
	httpc_stream_free(&st);
	o = rig_json(rig, "GET", "/v1/sandboxes/again/processes", NULL, 200);
	assert_int_equal(json_array_size(json_object_get(o, "processes")), 0);
	json_decref(o);
	delete (second);
	free(second);
	free(id);
}

static void a_client_that_does_not_read_holds_no_end_up(void **state)
{
	char *id = strdup(rig_sandbox(rig, NULL));
	size_t len = 48 << 20;
	char *big = calloc(1, len);
	struct timespec t0, t1;
	struct answer a;
	int fd;

	(void)state;
	a = rig_send(rig, "PUT", rig_path("/v1/sandboxes/%s/files?path=/tmp/big", id), NULL,
		"application/octet-stream", big, len);
	assert_int_equal(a.status, 204);
	answer_free(&a);
	free(big);
	fd = rig_open(rig, "GET", rig_path("/v1/sandboxes/%s/files?path=/tmp/big", id), NULL, NULL,
		NULL, 0);
	a = httpc_head(fd); /* and not a byte more */
	assert_int_equal(a.status, 200);
	answer_free(&a);
	clock_gettime(CLOCK_MONOTONIC, &t0);
	delete (id);
	clock_gettime(CLOCK_MONOTONIC, &t1);
	assert_true(t1.tv_sec - t0.tv_sec < 3);
	close(fd);
	free(id);
}

/* The backend without isolation notes its processes in the run folder, the shim first. */
static pid_t shim_of(const char *id)
{
	char path[256];
	int pid = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/run/%s/pid", rig->state, id);
	f = fopen(path, "re");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%*u %d", &pid), 1);
	fclose(f);
	assert_true(pid > 1);
	return pid;
}

static void a_sandbox_whose_shim_dies_has_failed(void **state)
{
	char *id = strdup(rig_sandbox(rig, "{\"name\":\"orphan\"}"));

	(void)state;
	json_decref(rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/processes", id),
		"{\"argv\":[\"sleep\",\"600\"]}", 201));
	assert_int_equal(kill(shim_of(id), SIGKILL), 0);
	rig_wait(has_ended, id, 30000);
	assert_last_event(id, "sandbox.terminated", "failed");
	delete(id);
	delete(rig_sandbox(rig, "{\"name\":\"orphan\"}"));
	free(id);
}

static bool is_there(const char *id)
{
	_cleanup_answer_ struct answer a = rig_send(
		rig, "GET", rig_path("/v1/sandboxes/%s", id), NULL, NULL, NULL, 0);

	return a.status == 200;
}

static void the_hundred_newest_ended_ones_are_kept(void **state)
{
	struct rig *own = rig_new(NULL), *outer = rig;
	char *first, *second;

	(void)state;
	rig = own;
	first = strdup(rig_sandbox(rig, "{\"name\":\"the-first\"}"));
	delete (first);
	second = strdup(rig_sandbox(rig, NULL));
	delete (second);
	for (int i = 0; i < 99; i++)
		delete (rig_sandbox(rig, NULL));
	for (int i = 0; i < 3000 && is_there(first); i++)
		usleep(10000);
	rig_refuses(rig, "GET", rig_path("/v1/sandboxes/%s", first), NULL, 404, "not_found");
	rig_refuses(rig, "GET", "/v1/sandboxes/the-first", NULL, 404, "not_found");
	assert_true(in_state(second, "terminated"));
	assert_last_event(first, "sandbox.terminated", "request");
	rig_refuses(rig, "GET", "/v1/sandboxes/the-first/events", NULL, 404, "not_found");
	free(first);
	free(second);
	rig = outer;
	rig_free(own);
}

static json_t *next_op(int fd, struct httpc_stream *st, const char *op)
{
	for (int i = 0; i < 200; i++) {
		json_t *line = httpc_line(fd, st);
		if (!line)
			return NULL;
		if (!strcmp(text(line, "op"), op))
			return line;
		json_decref(line);
	}
	return NULL;
}

static void a_watch_tells_what_is_there_and_what_changes(void **state)
{
	char *old = strdup(rig_sandbox(rig, "{\"labels\":{\"w\":\"1\"}}")), *id;
	struct httpc_stream st = { 0 };
	struct answer head;
	json_t *line;
	int fd = rig_open(rig, "GET", "/v1/sandboxes?watch=1&label=w=1", NULL, NULL, NULL, 0);

	(void)state;
	head = httpc_head(fd);
	assert_int_equal(head.status, 200);
	answer_free(&head);
	line = next_op(fd, &st, "put");
	assert_string_equal(text(json_object_get(line, "sandbox"), "id"), old);
	json_decref(line);
	json_decref(next_op(fd, &st, "synced"));
	id = strdup(rig_sandbox(rig, "{\"labels\":{\"w\":\"1\"},\"name\":\"watched\"}"));
	do {
		line = next_op(fd, &st, "put");
		assert_non_null(line);
		assert_string_equal(text(json_object_get(line, "sandbox"), "id"), id);
		if (!strcmp(text(json_object_get(line, "sandbox"), "state"), "running"))
			break;
		json_decref(line);
	} while (true);
	json_decref(line);
	json_decref(
		rig_json(rig, "PATCH", rig_path("/v1/sandboxes/%s", id), "{\"labels\":{}}", 200));
	line = next_op(fd, &st, "gone");
	assert_string_equal(text(line, "id"), id);
	json_decref(line);
	delete (old);
	line = next_op(fd, &st, "put");
	assert_string_equal(text(json_object_get(line, "sandbox"), "state"), "terminated");
	json_decref(line);
	close(fd);
	httpc_stream_free(&st);
	delete (id);
	free(old);
	free(id);
}

static void events_are_followed_from_a_number(void **state)
{
	struct httpc_stream st = { 0 };
	struct answer all, head;
	char *last, *id;
	long long seq;
	json_t *line;
	int fd;

	(void)state;
	delete (rig_sandbox(rig, NULL));
	all = rig_send(rig, "GET", "/v1/events", NULL, NULL, NULL, 0);
	assert_int_equal(all.status, 200);
	last = strstr(all.body, "{\"seq\":");
	for (char *p = last; p; p = strstr(p + 1, "{\"seq\":"))
		last = p;
	assert_non_null(last);
	seq = strtoll(last + 7, NULL, 10);
	answer_free(&all);
	fd = rig_open(
		rig, "GET", rig_path("/v1/events?after=%lld&follow=1", seq), NULL, NULL, NULL, 0);
	head = httpc_head(fd);
	assert_int_equal(head.status, 200);
	answer_free(&head);
	id = strdup(rig_sandbox(rig, NULL));
	line = httpc_line(fd, &st);
	assert_true(json_integer_value(json_object_get(line, "seq")) > seq);
	assert_string_equal(text(json_object_get(line, "event"), "type"), "sandbox.created");
	assert_string_equal(text(json_object_get(line, "event"), "sandbox"), id);
	json_decref(line);
	close(fd);
	httpc_stream_free(&st);
	rig_refuses(rig, "GET", "/v1/events?after=x", NULL, 400, "invalid_request");
	delete (id);
	free(id);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_many_creates_with_one_name_one_wins),
		cmocka_unit_test(of_two_renames_to_one_name_one_wins),
		cmocka_unit_test(after_a_cordon_has_answered_nothing_lands),
		cmocka_unit_test(a_client_that_hangs_up_makes_one_or_none),
		cmocka_unit_test(a_create_that_fails_leaves_nothing_and_frees_its_name),
		cmocka_unit_test(an_unused_sandbox_ends_and_being_looked_at_is_no_use),
		cmocka_unit_test(a_running_process_holds_its_sandbox),
		cmocka_unit_test(a_background_request_is_no_use),
		cmocka_unit_test(a_busy_sandbox_ends_at_its_lifetime),
		cmocka_unit_test(a_lifetime_moves_both_ways_and_into_the_past),
		cmocka_unit_test(a_terminated_sandbox_refuses_work_and_keeps_its_records),
		cmocka_unit_test(a_follower_gets_the_exit_when_the_sandbox_ends),
		cmocka_unit_test(a_client_that_does_not_read_holds_no_end_up),
		cmocka_unit_test(a_sandbox_whose_shim_dies_has_failed),
		cmocka_unit_test(the_hundred_newest_ended_ones_are_kept),
		cmocka_unit_test(a_watch_tells_what_is_there_and_what_changes),
		cmocka_unit_test(events_are_followed_from_a_number),
	};
	cmocka_set_test_filter(getenv("T"));
	return cmocka_run_group_tests(tests, start, stop);
}
