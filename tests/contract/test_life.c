/* SPDX-License-Identifier: MIT */
/* Lives of real sandboxes (node contract 8.7, 10, 25; 27 rows 30 to 33; 28 rows 6, 8 and 15; cases
 * LIF-1 to LIF-4): what a failed create leaves, races for a name, what is use and what is not, ends
 * and what outlives them. Skipped when not root. */
#include "tests/support/suite.h"

#include <dirent.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

static struct rig *rig;

static bool has_ended(void *id)
{
	return rig_in_state(rig, id, "terminated");
}

static const char *text(const json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key));
}

static json_t *json_of(const char *method, const char *path, const char *body, int status)
{
	return rig_json(rig, method, path, body, status);
}

/* --- races ----------------------------------------------------------------------------------- */

#define RACERS 20
struct racer {
	const char *method, *body;
	char path[96];
	int status;
	pthread_t t;
};

static void *race_main(void *arg)
{
	struct racer *r = arg;

	r->status = rig_status(rig, r->method, r->path, NULL, r->body);
	return NULL;
}

static void enter(struct racer *r, const char *method, const char *path, const char *body)
{
	*r = (struct racer){ .method = method, .body = body };
	snprintf(r->path, sizeof(r->path), "%s", path);
	assert_int_equal(pthread_create(&r->t, NULL, race_main, r), 0);
}

/* How many got `want`; each of the others must have got `other`, or `also`. */
static int finish(struct racer *r, int n, int want, int other, int also)
{
	int hits = 0;

	for (int i = 0; i < n; i++)
		pthread_join(r[i].t, NULL);
	for (int i = 0; i < n; i++) {
		hits += r[i].status == want;
		if (r[i].status != want && r[i].status != other && r[i].status != also)
			fail_msg("%s %s: %d", r[i].method, r[i].path, r[i].status);
	}
	return hits;
}

static void of_many_for_one_name_one_wins(void **state)
{
	struct racer r[RACERS];

	(void)state;
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < RACERS; i++)
			enter(&r[i], "POST", "/v1/sandboxes", "{\"name\":\"only\"}");
		assert_int_equal(finish(r, RACERS, 201, 409, 409), 1);
		for (int i = 0; i < RACERS; i++)
			enter(&r[i], "DELETE", "/v1/sandboxes/only", NULL);
		assert_true(finish(r, RACERS, 204, 404, 404) >= 1);
		assert_true(rig_in_state(rig, "only", "terminated"));
	}
}

static void of_two_renames_to_one_name_one_wins(void **state)
{
	const char *ids[2] = { rig_sandbox(rig, NULL), rig_sandbox(rig, NULL) };

	(void)state;
	for (int round = 0; round < 4; round++) {
		struct racer r[2];
		for (int i = 0; i < 2; i++)
			enter(&r[i], "PATCH", rig_path("/v1/sandboxes/%s", ids[i]),
				"{\"name\":\"prize\"}");
		assert_int_equal(finish(r, 2, 200, 409, 409), 1);
		for (int i = 0; i < 2; i++)
			json_decref(json_of("PATCH", rig_path("/v1/sandboxes/%s", ids[i]),
				"{\"name\":\"\"}", 200));
	}
	rig_end(rig, ids[0]);
	rig_end(rig, ids[1]);
}

static json_int_t running(void)
{
	json_t *o = json_of("GET", "/v1/node", NULL, 200);
	json_int_t n = json_integer_value(json_object_get(o, "running"));

	json_decref(o);
	return n;
}

static void after_a_cordon_has_answered_nothing_lands(void **state)
{
	struct racer r[12];
	json_t *node, *list, *s;
	json_int_t then;
	size_t i;

	(void)state;
	for (size_t k = 0; k < ARRAY_LEN(r); k++)
		enter(&r[k], "POST", "/v1/sandboxes", "{}");
	rig_pause(30);
	node = json_of("POST", "/v1/node/cordon", "{\"cordoned\":true}", 200);
	then = json_integer_value(json_object_get(node, "running"));
	json_decref(node);
	finish(r, ARRAY_LEN(r), 201, 503, 503);
	assert_int_equal(running(), then);
	json_decref(json_of("POST", "/v1/node/cordon", "{\"cordoned\":false}", 200));
	list = json_of("GET", "/v1/sandboxes", NULL, 200);
	json_array_foreach (json_object_get(list, "sandboxes"), i, s)
		if (!strcmp(text(s, "state"), "running"))
			rig_end(rig, text(s, "id"));
	json_decref(list);
}

/* --- a create that fails --------------------------------------------------------------------- */

static unsigned entries(const char *path)
{
	DIR *d = opendir(path);
	const struct dirent *de;
	unsigned n = 0;

	while (d && (de = readdir(d)))
		n += de->d_name[0] != '.';
	if (d)
		closedir(d);
	return n;
}

struct left { /* what a create may leave behind */
	unsigned run, boxes, fds, live;
};

static struct left look(void)
{
	char path[300];
	struct left l;
	json_t *o;

	snprintf(path, sizeof(path), "%s/run", rig->state);
	l.run = entries(path);
	snprintf(path, sizeof(path), "%s/priv/boxes", rig->state);
	l.boxes = entries(path);
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)rig_pid(rig));
	l.fds = entries(path);
	o = json_of("GET", "/v1/sandboxes", NULL, 200);
	l.live = 0;
	for (size_t i = 0; i < json_array_size(json_object_get(o, "sandboxes")); i++)
		l.live += strcmp(text(json_array_get(json_object_get(o, "sandboxes"), i), "state"),
				  "terminated") != 0;
	json_decref(o);
	return l;
}

static bool no_more_than(void *arg)
{
	const struct left *before = arg;
	struct left now = look();

	return now.run <= before->run && now.boxes <= before->boxes && now.fds <= before->fds + 1 &&
	       now.live <= before->live; /* our own connection */
}

static void hang_up(int ms)
{
	int fd = rig_open(rig, "POST", "/v1/sandboxes", NULL, NULL, "{\"name\":\"probe\"}", 16);

	usleep((unsigned)ms * 1000);
	close(fd);
}

/* The name is free again as soon as whoever held it is found to have left. */
static bool make_probe(void *arg)
{
	(void)arg;
	return rig_status(rig, "POST", "/v1/sandboxes", NULL, "{\"name\":\"probe\"}") == 201;
}

static void a_create_that_fails_leaves_nothing(void **state)
{
	static const char *const bad[] = { "{\"name\":\"probe\",\"cpus\":1000000}",
		"{\"name\":\"probe\",\"image\":\"no-such-image-here\"}",
		"{\"name\":\"probe\",\"volumes\":[{\"name\":\"none\",\"path\":\"/data\"}]}" };
	struct left before = { 0 };

	(void)state;
	for (int i = 0; i < 12; i++) {
		for (size_t k = 0; k < (i < 2 ? ARRAY_LEN(bad) : 1); k++) {
			int got = rig_status(rig, "POST", "/v1/sandboxes", NULL, bad[k]);
			if (got < 400 || got == 500)
				fail_msg("%s: %d", bad[k], got);
		}
		hang_up(i * 4);
		(void)rig_status(rig, "DELETE", "/v1/sandboxes/probe", NULL, NULL);
		rig_wait(make_probe, NULL, 10000);
		rig_end(rig, "probe");
		if (i == 3)
			before = look();
	}
	rig_wait(no_more_than, &before, 15000);
}

/* --- use ------------------------------------------------------------------------------------- */

#define IDLE "{\"idle_timeout_secs\":3}"

struct watched { /* a sandbox, and what is asked of it four times a second */
	const char *id, *path, *headers;
	bool lives;
};

static void what_is_use_and_what_is_not(void **state)
{
	struct watched w[] = {
		{ NULL, "", NULL, false },
		{ NULL, "/processes", NULL, false },
		{ NULL, "/processes/1", NULL, false },
		{ NULL, "/events", NULL, false },
		{ NULL, "/metrics", NULL, false },
		{ NULL, "/files?path=/etc/hosts", "Sandbox-Background: 1\r\n", false },
		{ NULL, "/files?path=/etc/hosts", NULL, true },
		{ NULL, "/processes/1/output", NULL, true },
	};
	const char *busy = rig_sandbox(rig, IDLE);
	int64_t end;

	(void)state;
	json_decref(json_of("POST", rig_path("/v1/sandboxes/%s/processes", busy),
		"{\"argv\":[\"sleep\",\"9\"]}", 201));
	for (size_t i = 0; i < ARRAY_LEN(w); i++) {
		w[i].id = rig_sandbox(rig, IDLE);
		assert_int_equal(rig_sh(rig, w[i].id, "true", NULL), 0);
	}
	end = time(NULL) + 7;
	while (time(NULL) < end) {
		for (size_t i = 0; i < ARRAY_LEN(w); i++)
			(void)rig_status(rig, "GET",
				rig_path("/v1/sandboxes/%s%s", w[i].id, w[i].path), w[i].headers,
				NULL);
		json_decref(json_of("GET", "/v1/sandboxes", NULL, 200));
		rig_pause(150);
	}
	for (size_t i = 0; i < ARRAY_LEN(w); i++) {
		if (has_ended((void *)(uintptr_t)w[i].id) == w[i].lives)
			fail_msg("GET %s: the sandbox %s", w[i].path,
				w[i].lives ? "ended" : "lives");
		if (w[i].lives)
			rig_end(rig, w[i].id);
		else
			assert_int_equal(rig_events(rig, w[i].id, "sandbox.terminated", "idle"), 1);
	}
	assert_true(rig_in_state(rig, busy, "running")); /* it works */
	rig_wait(has_ended, (void *)(uintptr_t)busy, 15000);
	assert_int_equal(rig_events(rig, busy, "sandbox.terminated", "idle"), 1);
}

/* --- ends ------------------------------------------------------------------------------------ */

/* Nanoseconds since the epoch of a time as the server writes it. */
static int64_t moment(const char *when)
{
	struct tm tm = { 0 };
	const char *rest = strptime(when, "%Y-%m-%dT%H:%M:%S", &tm);
	int64_t ns = 0, unit = 100000000;

	assert_non_null(rest);
	for (rest += *rest == '.'; *rest >= '0' && *rest <= '9'; rest++, unit /= 10)
		ns += (*rest - '0') * unit;
	assert_string_equal(rest, "Z");
	return (int64_t)timegm(&tm) * 1000000000 + ns;
}

static void a_busy_sandbox_ends_at_its_lifetime(void **state)
{
	json_t *o = json_of("POST", "/v1/sandboxes", "{\"lifetime_secs\":3}", 201);
	char *id = strdup(text(o, "id"));

	(void)state;
	assert_int_equal(json_integer_value(json_object_get(o, "lifetime_secs")), 3);
	assert_true(moment(text(o, "expires_at")) - moment(text(o, "created_at")) == 3000000000);
	json_decref(o);
	json_decref(json_of("POST", rig_path("/v1/sandboxes/%s/processes", id),
		"{\"argv\":[\"sleep\",\"600\"]}", 201));
	rig_wait(has_ended, id, 10000);
	assert_int_equal(rig_events(rig, id, "sandbox.terminated", "lifetime"), 1);
	o = json_of("GET", rig_path("/v1/sandboxes/%s/processes/1", id), NULL, 200);
	assert_int_equal(json_integer_value(json_object_get(o, "exit_code")), 137);
	json_decref(o);
	free(id);
}

static void a_lifetime_moves_both_ways_and_into_the_past(void **state)
{
	const char *id = rig_sandbox(rig, "{\"lifetime_secs\":2}");
	json_t *o;

	(void)state;
	o = json_of("PATCH", rig_path("/v1/sandboxes/%s", id), "{\"lifetime_secs\":1000}", 200);
	assert_true(moment(text(o, "expires_at")) - moment(text(o, "created_at")) == 1000000000000);
	json_decref(o);
	rig_pause(2500);
	assert_true(rig_in_state(rig, id, "running"));
	o = json_of("PATCH", rig_path("/v1/sandboxes/%s", id), "{\"lifetime_secs\":1}", 200);
	assert_string_equal(text(o, "state"), "terminated");
	json_decref(o);
	assert_int_equal(rig_events(rig, id, "sandbox.terminated", "lifetime"), 1);
}

/* What belonged to the old one is not the new one's, and what followed the old one has ended. */
static void the_same_name_a_moment_later(void **state)
{
	char *old = strdup(rig_sandbox(rig, "{\"name\":\"again\"}"));
	struct httpc_stream st = { 0 };
	json_t *o, *line = NULL, *next;
	int fd;

	(void)state;
	json_decref(json_of("POST", "/v1/sandboxes/again/processes",
		"{\"argv\":[\"sh\",\"-c\",\"while :; do date; sleep 0.2; done\"]}", 201));
	assert_int_equal(rig_sh(rig, "again", "echo old > f", NULL), 0);
	fd = rig_open(rig, "GET", "/v1/sandboxes/again/processes/1/output", NULL, NULL, NULL, 0);
	{
		_cleanup_answer_ struct answer head = httpc_head(fd);
		assert_int_equal(head.status, 200);
	}
	rig_end(rig, "again");
	rig_sandbox(rig, "{\"name\":\"again\"}");
	o = json_of("GET", "/v1/sandboxes/again/processes", NULL, 200);
	assert_int_equal(json_array_size(json_object_get(o, "processes")), 0);
	json_decref(o);
	rig_refuses(rig, "GET", "/v1/sandboxes/again/files?path=/sandbox/home/f", NULL, 404,
		"not_found");
	while ((next = httpc_line(fd, &st))) {
		json_decref(line);
		line = next;
	}
	assert_non_null(line);
	assert_int_equal(json_integer_value(json_object_get(line, "exit_code")), 137);
	json_decref(line);
	httpc_stream_free(&st);
	close(fd);
	assert_true(rig_in_state(rig, old, "terminated"));
	rig_refuses(rig, "GET", rig_path("/v1/sandboxes/%s/files?path=/sandbox/home/f", old), NULL,
		409, "conflict");
	rig_end(rig, "again");
	free(old);
}

int main(void)
{
	static const struct rig_conf conf = { .linux_backend = true };
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_many_for_one_name_one_wins),
		cmocka_unit_test(of_two_renames_to_one_name_one_wins),
		cmocka_unit_test(after_a_cordon_has_answered_nothing_lands),
		cmocka_unit_test(a_create_that_fails_leaves_nothing),
		cmocka_unit_test(what_is_use_and_what_is_not),
		cmocka_unit_test(a_busy_sandbox_ends_at_its_lifetime),
		cmocka_unit_test(a_lifetime_moves_both_ways_and_into_the_past),
		cmocka_unit_test(the_same_name_a_moment_later),
	};

	return run_suite(tests, &conf, &rig, NULL);
}
