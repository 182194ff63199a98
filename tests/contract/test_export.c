/* SPDX-License-Identifier: MIT */
/* Pushes of real sandboxes to collectors of every manner (node contract, 20; 28, row 13). The
 * collectors are on loopback, which the server is told to allow; what is refused without that, and
 * names and TLS, are tests/linux/72_export.bats. Skipped when not root. */
#include "tests/support/collector.h"
#include "tests/support/suite.h"

#include <ftw.h>
#include <sys/stat.h>
#include <time.h>

#define X "zq7secret"

static struct rig *rig;

/* --- small words ----------------------------------------------------------------------------- */

static const char *sandbox(const struct collector *c, const char *more)
{
	return rig_sandbox(rig,
		rig_path(
			"{\"network\":{\"mode\":\"none\"},\"labels\":{\"team\":\"a\",\"gateway.owner\":\"b\"},\"metrics_export\":"
			"{\"endpoint\":\"http://127.0.0.1:%u/otlp\",\"interval_secs\":1%s}}",
			collector_port(c), more ? more : ""));
}

/* metrics_export of the object; NULL: none. Caller owns. */
static json_t *setting(const char *id)
{
	json_t *o = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s", id), NULL, 200);
	json_t *x = json_incref(json_object_get(o, "metrics_export"));

	json_decref(o);
	return x;
}

static bool has(const char *id, const char *key)
{
	json_t *x = setting(id);
	bool yes = json_object_get(x, key) != NULL;

	json_decref(x);
	return yes;
}

static bool has_succeeded(void *id)
{
	return has(id, "last_push_at");
}

static bool has_failed(void *id)
{
	return has(id, "last_error");
}

static bool has_recovered(void *id)
{
	return !has(id, "last_error");
}

static void await(bool (*fn)(void *), const char *id)
{
	rig_wait(fn, (void *)(uintptr_t)id, 25000);
}

struct awaited {
	struct collector *c;
	size_t n;
};

static bool has_got(void *arg)
{
	const struct awaited *a = arg;

	return collector_count(a->c) >= a->n;
}

static void await_pushes(struct collector *c, size_t n)
{
	struct awaited a = { c, n };

	rig_wait(has_got, &a, 25000);
}

static void patch(const char *id, const char *body)
{
	json_decref(rig_json(rig, "PATCH", rig_path("/v1/sandboxes/%s", id), body, 200));
}

static void pause_secs(int secs)
{
	struct timespec t = { .tv_sec = secs };

	nanosleep(&t, NULL);
}

static void end(const char *id)
{
	json_decref(rig_json(rig, "DELETE", rig_path("/v1/sandboxes/%s", id), NULL, 204));
}

/* --- a push ---------------------------------------------------------------------------------- */

static json_t *resource_value(const json_t *body, const char *key)
{
	json_t *r = json_object_get(
		json_array_get(json_object_get(body, "resourceMetrics"), 0), "resource");
	json_t *list = json_object_get(r, "attributes"), *v;
	size_t i;

	json_array_foreach (list, i, v)
		if (!strcmp(json_string_value(json_object_get(v, "key")), key))
			return json_object_get(json_object_get(v, "value"), "stringValue");
	return NULL;
}

static json_t *first_point(const json_t *body, const char *name)
{
	json_t *r = json_array_get(json_object_get(body, "resourceMetrics"), 0);
	json_t *scope = json_array_get(json_object_get(r, "scopeMetrics"), 0), *v;
	size_t i;

	json_array_foreach (json_object_get(scope, "metrics"), i, v)
		if (!strcmp(json_string_value(json_object_get(v, "name")), name)) {
			json_t *of = json_object_get(v, "sum");
			of = of ? of : json_object_get(v, "gauge");
			return json_array_get(json_object_get(of, "dataPoints"), 0);
		}
	return NULL;
}

static void assert_push(const struct collected *got, const char *id)
{
	assert_non_null(got->body);
	assert_int_equal(strncmp(got->head, "POST /otlp HTTP/1.1\r\n", 21), 0);
	assert_non_null(strcasestr(got->head, "\r\nContent-Type: application/json\r\n"));
	assert_non_null(strcasestr(got->head, "\r\nContent-Encoding: gzip\r\n"));
	assert_null(strcasestr(got->head, "\r\nExpect:"));
	assert_string_equal(json_string_value(resource_value(got->body, "sandbox.id")), id);
	assert_string_equal(
		json_string_value(resource_value(got->body, "service.name")), "sandbox");
	assert_string_equal(json_string_value(resource_value(got->body, "sandbox.image")), "base");
	assert_string_equal(
		json_string_value(resource_value(got->body, "sandbox.label.team")), "a");
	assert_null(resource_value(got->body, "sandbox.label.gateway.owner"));
	assert_null(resource_value(got->body, "sandbox.name"));
}

/* The figures are those of the sample that GET …/metrics shows for the same moment. */
static void assert_figures(const struct collected *got, const char *id)
{
	json_t *m = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/metrics", id), NULL, 200), *s;
	json_t *point = first_point(got->body, "sandbox.memory.usage");
	bool found = false;
	size_t i;

	assert_non_null(point);
	json_array_foreach (json_object_get(m, "samples"), i, s) {
		char want[32];
		snprintf(want, sizeof(want), "%lld",
			(long long)json_integer_value(json_object_get(s, "memory_bytes")));
		found |= !strcmp(json_string_value(json_object_get(point, "asInt")), want);
	}
	assert_true(found);
	point = first_point(got->body, "sandbox.cpu.utilization");
	assert_true(json_number_value(json_object_get(point, "asDouble")) >= 0);
	assert_true(json_number_value(json_object_get(point, "asDouble")) <= 1);
	json_decref(m);
}

static long long time_of(const struct collected *got)
{
	json_t *point = first_point(got->body, "sandbox.memory.usage");

	return atoll(json_string_value(json_object_get(point, "timeUnixNano")));
}

static void assert_no_sample_twice(struct collector *c)
{
	for (size_t i = 1; i < collector_count(c); i++)
		assert_true(time_of(collector_get(c, i)) > time_of(collector_get(c, i - 1)));
}

static void pushes_arrive_one_sample_each(void **state)
{
	struct collector *c = collector_new(ANSWER_OK);
	const char *id = sandbox(c, ",\"headers\":{\"X-Key\":\"" X "-h\",\"X-Empty\":\"\"}");
	json_t *x;

	(void)state;
	await_pushes(c, 3);
	for (size_t i = 0; i < 3; i++) {
		assert_push(collector_get(c, i), id);
		assert_non_null(strstr(collector_get(c, i)->head, "\r\nX-Key: " X "-h\r\n"));
		assert_non_null(strcasestr(collector_get(c, i)->head, "\r\nX-Empty:"));
	}
	assert_figures(collector_get(c, 0), id);
	/* The interval is a second, but there is a new sample every five only. */
	assert_no_sample_twice(c);
	x = setting(id);
	assert_non_null(json_object_get(x, "last_push_at"));
	assert_null(json_object_get(x, "last_error"));
	assert_null(json_object_get(x, "failing_since"));
	assert_int_equal(json_array_size(json_object_get(x, "header_names")), 2);
	json_decref(x);
	end(id);
	collector_free(c);
}

/* --- collectors of every manner, side by side ------------------------------------------------ */

static const struct manner_row {
	enum manner manner;
	const char *failure; /* part of last_error; NULL: it is a success */
} manners[] = {
	{ ANSWER_OK, NULL },
	{ ANSWER_NO_BODY, NULL },
	{ ANSWER_ENDLESS, NULL }, /* 4 KiB of it are read */
	{ ANSWER_503, "answered 503" },
	{ ANSWER_REDIRECT, "redirects are not followed" },
	{ ANSWER_NEVER, "within 10 seconds" },
	{ ANSWER_SLOW_HEAD, "within 10 seconds" },
	{ ANSWER_BIG_HEAD, "cannot be understood" },
	{ ANSWER_NONSENSE, "cannot be understood" },
	{ ANSWER_CLOSE, "without an answer" },
};
#define MANNERS ARRAY_LEN(manners)

static size_t samples(const char *id)
{
	json_t *m = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/metrics", id), NULL, 200);
	size_t n = json_array_size(json_object_get(m, "samples"));

	json_decref(m);
	return n;
}

static void assert_outcome(const struct manner_row *row, const char *id)
{
	json_t *x = setting(id);
	const char *error = json_string_value(json_object_get(x, "last_error"));

	if (!row->failure) {
		assert_null(error);
		assert_null(json_object_get(x, "failing_since"));
		assert_non_null(json_object_get(x, "last_push_at"));
	} else {
		if (!error || !strstr(error, row->failure))
			fail_msg("wanted \"%s\", got \"%s\"", row->failure, error ? error : "");
		assert_non_null(json_object_get(x, "failing_since"));
		assert_null(json_object_get(x, "last_push_at"));
	}
	json_decref(x);
}

static void every_manner_of_answer_and_none_delays_another(void **state)
{
	struct collector *c[MANNERS];
	const char *id[MANNERS];
	size_t measured;

	(void)state;
	for (size_t i = 0; i < MANNERS; i++) {
		c[i] = collector_new(manners[i].manner);
		id[i] = sandbox(c[i], NULL);
	}
	for (size_t i = 0; i < MANNERS; i++)
		await(manners[i].failure ? has_failed : has_succeeded, id[i]);
	for (size_t i = 0; i < MANNERS; i++)
		assert_outcome(&manners[i], id[i]);
	/* The well one was served all the while: one push a sample, but for the last, which may be
	 * on its way. */
	measured = samples(id[0]);
	assert_true(measured >= 3);
	assert_true(collector_count(c[0]) + 2 >= measured);
	/* The redirect's target was never asked for. */
	for (size_t i = 0; i < collector_count(c[4]); i++)
		assert_null(strstr(collector_get(c[4], i)->head, "/elsewhere"));
	assert_no_sample_twice(c[3]); /* what failed is not sent again */
	collector_set(c[3], ANSWER_OK);
	await(has_recovered, id[3]);
	assert_true(has(id[3], "last_push_at"));
	assert_false(has(id[3], "failing_since"));
	for (size_t i = 0; i < MANNERS; i++)
		end(id[i]);
	for (size_t i = 0; i < MANNERS; i++)
		collector_free(c[i]);
}

/* --- changes --------------------------------------------------------------------------------- */

static json_t *last_update(const char *id)
{
	json_t *o = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/events", id), NULL, 200), *ev;
	json_t *found = NULL;
	size_t i;

	json_array_foreach (json_object_get(o, "events"), i, ev)
		if (!strcmp(json_string_value(json_object_get(ev, "type")), "sandbox.updated"))
			found = json_object_get(ev, "metrics_export");
	json_incref(found);
	json_decref(o);
	return found;
}

static void assert_event(const char *id, const char *want)
{
	json_t *ev = last_update(id);
	_cleanup_free_ char *text = ev ? json_dumps(ev, JSON_COMPACT) : strdup("none");

	assert_string_equal(text, want);
	json_decref(ev);
}

static void an_update_replaces_it_whole(void **state)
{
	struct collector *a = collector_new(ANSWER_OK), *b = collector_new(ANSWER_OK);
	const char *id = sandbox(a, ",\"headers\":{\"X-Key\":\"" X "-h\"}");
	size_t before;

	(void)state;
	patch(id, rig_path("{\"metrics_export\":{\"endpoint\":\"http://127.0.0.1:%u/otlp\","
			   "\"interval_secs\":1}}",
			  collector_port(b)));
	assert_event(id, rig_path("{\"endpoint\":\"http://127.0.0.1:%u/otlp\",\"interval_secs\":1}",
				 collector_port(b)));
	await_pushes(b, 1);
	/* headers that were not sent again are dropped */
	assert_null(strcasestr(collector_get(b, 0)->head, "X-Key"));
	assert_false(has(id, "header_names"));
	/* one bad field and nothing changes */
	rig_refuses(rig, "PATCH", rig_path("/v1/sandboxes/%s", id),
		"{\"name\":\"other\",\"metrics_export\":{\"endpoint\":\"ftp://h\"}}", 400,
		"invalid_request");
	assert_true(has(id, "endpoint"));
	patch(id, "{\"metrics_export\":{\"endpoint\":\"\"}}");
	assert_event(id, "{\"endpoint\":\"\"}");
	assert_null(setting(id));
	before = collector_count(b);
	pause_secs(7);
	assert_int_equal(collector_count(b), before);
	end(id);
	collector_free(a);
	collector_free(b);
}

static void assert_running(const char *id)
{
	json_t *o = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s", id), NULL, 200);

	assert_string_equal(json_string_value(json_object_get(o, "state")), "running");
	json_decref(o);
}

/* Also through a kill -9: the setting and its header values are in the record. */
static void it_goes_on_after_a_restart(void **state)
{
	struct collector *c = collector_new(ANSWER_OK);
	const char *id = sandbox(c, ",\"headers\":{\"X-Key\":\"" X "-h\"}");

	(void)state;
	await_pushes(c, 1);
	rig_kill(rig);
	rig_start(rig);
	assert_running(id);
	await_pushes(c, 2);
	assert_non_null(strstr(collector_get(c, 1)->head, "\r\nX-Key: " X "-h\r\n"));
	end(id);
	collector_free(c);
}

static void asleep_it_pushes_nothing(void **state)
{
	struct collector *c = collector_new(ANSWER_OK);
	const char *id = sandbox(c, NULL);
	size_t before;

	(void)state;
	await_pushes(c, 1);
	json_decref(rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/suspend", id), NULL, 200));
	await(has_succeeded, id);
	before = collector_count(c);
	pause_secs(7);
	assert_int_equal(collector_count(c), before);
	json_decref(rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/resume", id), NULL, 200));
	await_pushes(c, before + 1);
	end(id);
	collector_free(c);
}

/* --- the end, and secrets -------------------------------------------------------------------- */

static char found[4096];
static const char *wanted;

static int look_in(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	_cleanup_free_ char *buf = NULL;
	FILE *f;
	size_t n;

	if (type == FTW_D && !strcmp(path + ftw->base, "priv"))
		return FTW_SKIP_SUBTREE; /* disks of sandboxes */
	if (type != FTW_F || !S_ISREG(st->st_mode) || st->st_size > 64 << 20)
		return FTW_CONTINUE;
	f = fopen(path, "re");
	buf = malloc((size_t)st->st_size + 1);
	n = f && buf ? fread(buf, 1, (size_t)st->st_size, f) : 0;
	if (f)
		fclose(f);
	if (n && memmem(buf, n, wanted, strlen(wanted)))
		snprintf(found + strlen(found), sizeof(found) - strlen(found), "%s ", path);
	return 0;
}

/* The files of the state directory that hold the text. */
static const char *files_with(const char *text)
{
	found[0] = '\0';
	wanted = text;
	nftw(rig->state, look_in, 16, FTW_PHYS | FTW_MOUNT | FTW_ACTIONRETVAL);
	return found;
}

static bool is_forgotten(void *arg)
{
	(void)arg;
	return !*files_with(X);
}

static void no_answer_has(const char *path)
{
	_cleanup_answer_ struct answer a = rig_send(rig, "GET", path, NULL, NULL, NULL, 0);

	assert_int_equal(a.status, 200);
	assert_null(strstr(a.body, X));
}

static void values_are_nowhere_and_go_with_the_sandbox(void **state)
{
	struct collector *c = collector_new(ANSWER_503);
	const char *id = sandbox(c, ",\"headers\":{\"Authorization\":\"Bearer " X "-h\"}");
	size_t before;

	(void)state;
	await(has_failed, id);
	patch(id, "{\"labels\":{\"a\":\"b\"}}");
	no_answer_has(rig_path("/v1/sandboxes/%s", id));
	no_answer_has(rig_path("/v1/sandboxes/%s/events", id));
	no_answer_has("/v1/sandboxes");
	assert_non_null(strstr(files_with(X), "records.db"));
	assert_null(strstr(found, "audit"));
	end(id);
	before = collector_count(c);
	rig_wait(is_forgotten, NULL, 10000);
	/* what is shown afterwards: names */
	assert_true(has(id, "header_names"));
	no_answer_has(rig_path("/v1/sandboxes/%s", id));
	pause_secs(7);
	assert_int_equal(collector_count(c), before);
	rig_restart(rig);
	assert_true(has(id, "header_names"));
	collector_free(c);
}

int main(void)
{
	static const char *const args[] = { "--metrics-export-allow-private", NULL };
	static const struct rig_conf conf = { .linux_backend = true,
		.policy = "{\"limits\":{\"min_metrics_export_secs\":1}}",
		.args = args };
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(pushes_arrive_one_sample_each),
		cmocka_unit_test(every_manner_of_answer_and_none_delays_another),
		cmocka_unit_test(an_update_replaces_it_whole),
		cmocka_unit_test(it_goes_on_after_a_restart),
		cmocka_unit_test(asleep_it_pushes_nothing),
		cmocka_unit_test(values_are_nowhere_and_go_with_the_sandbox),
	};

	return run_suite(tests, &conf, &rig, NULL);
}
