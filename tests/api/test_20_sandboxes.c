/* SPDX-License-Identifier: MIT */
/* Sandboxes over a real socket: what a create takes and refuses, in which order, what a listing and
 * an update do, and that no value of the environment ever comes out. */
#include "tests/support/rig.h"
#include "tests/support/test.h"

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

struct refusal {
	const char *body;
	int status;
	const char *code;
};
static const struct refusal refusals[] = {
	/* body */
	{ "{\"bind\":1}", 400, "invalid_request" },
	{ "{\"network\":{\"x\":1}}", 400, "invalid_request" },
	{ "{\"bind\":null}", 400, "invalid_request" },
	{ "{\"cpus\":\"1\"}", 400, "invalid_request" },
	{ "{\"memory_mb\":1.5}", 400, "invalid_request" },
	{ "{\"labels\":{\"a\":1}}", 400, "invalid_request" },
	{ "[]", 400, "invalid_request" },
	{ "null", 400, "invalid_request" },
	{ "{} {}", 400, "invalid_request" },
	/* snapshot_id comes before every field */
	{ "{\"snapshot_id\":\"snp_0000000000000000\"}", 501, "unsupported" },
	{ "{\"snapshot_id\":\"nonsense\",\"name\":\"Upper\"}", 501, "unsupported" },
	/* name, labels, volumes, image */
	{ "{\"name\":\"Upper\"}", 400, "invalid_request" },
	{ "{\"name\":\"has space\"}", 400, "invalid_request" },
	{ "{\"name\":\"sbx_lookslikeanid\"}", 400, "invalid_request" },
	{ "{\"name\":\"-lead\"}", 400, "invalid_request" },
	{ "{\"name\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}", 400,
		"invalid_request" },
	{ "{\"labels\":{\"Upper\":\"x\"}}", 400, "invalid_request" },
	{ "{\"labels\":{\"-lead\":\"x\"}}", 400, "invalid_request" },
	{ "{\"labels\":{\"a\":\"\\u001b\"}}", 400, "invalid_request" },
	{ "{\"labels\":{\"a\":\"\\u0085\"}}", 400, "invalid_request" },
	{ "{\"volumes\":[{\"name\":\"Bad_Name\",\"path\":\"/data\"}]}", 400, "invalid_request" },
	{ "{\"volumes\":[{\"name\":\"v\",\"path\":\"/usr/local\"}]}", 400, "invalid_request" },
	{ "{\"volumes\":[{\"name\":\"v\",\"path\":\"/tmp/cache\"}]}", 400, "invalid_request" },
	{ "{\"volumes\":[{\"name\":\"v\",\"path\":\"/proc/x\"}]}", 400, "invalid_request" },
	{ "{\"volumes\":[{\"name\":\"v\",\"path\":\"/etc\"}]}", 400, "invalid_request" },
	{ "{\"volumes\":[{\"name\":\"v\",\"path\":\"data\"}]}", 400, "invalid_request" },
	{ "{\"volumes\":[{\"name\":\"v\",\"path\":\"/data/../etc\"}]}", 400, "invalid_request" },
	{ "{\"volumes\":[{\"name\":\"v\",\"path\":\"/\"}]}", 400, "invalid_request" },
	{ "{\"volumes\":[{\"name\":\"v\",\"path\":\"/data/\"}]}", 400, "invalid_request" },
	{ "{\"volumes\":[{\"name\":\"v\",\"path\":\"/data\"},{\"name\":\"w\",\"path\":\"/data/inner\"}]}",
		400, "invalid_request" },
	{ "{\"volumes\":[{\"name\":\"v\",\"path\":\"/a\"},{\"name\":\"v\",\"path\":\"/b\"}]}", 400,
		"invalid_request" },
	{ "{\"volumes\":[{\"name\":\"v\",\"path\":\"/data\"}]}", 501, "unsupported" },
	{ "{\"image\":\"-x\"}", 400, "invalid_request" },
	{ "{\"image\":\"Not An Image!\"}", 400, "invalid_request" },
	/* resources and times */
	{ "{\"cpus\":-1}", 400, "invalid_request" },
	{ "{\"cpus\":8.5}", 400, "invalid_request" },
	{ "{\"memory_mb\":-1}", 400, "invalid_request" },
	{ "{\"memory_mb\":16385}", 400, "invalid_request" },
	{ "{\"disk_mb\":102401}", 400, "invalid_request" },
	{ "{\"idle_timeout_secs\":-1}", 400, "invalid_request" },
	{ "{\"idle_timeout_secs\":604801}", 400, "invalid_request" },
	{ "{\"lifetime_secs\":-1}", 400, "invalid_request" },
	{ "{\"snapshot_every_secs\":-1}", 400, "invalid_request" },
	{ "{\"snapshot_every_secs\":300}", 501, "unsupported" },
	{ "{\"snapshot_every_secs\":1}", 501, "unsupported" },
	{ "{\"snapshot_keep\":1}", 501, "unsupported" },
	/* environment: an illegal name before a reserved one */
	{ "{\"env\":{\"1A\":\"x\",\"LD_PRELOAD\":\"x\"}}", 400, "invalid_request" },
	{ "{\"env\":{\"LD_PRELOAD\":\"x\"}}", 403, "refused" },
	{ "{\"env\":{\"SANDBOX_UMASK\":\"x\"}}", 403, "refused" },
	{ "{\"env\":{\"A\":\"x\\u0000y\"}}", 400, "invalid_request" },
	/* network: this host filters nothing, so the ceiling is none */
	{ "{\"network\":{\"mode\":\"open\"}}", 403, "refused" },
	{ "{\"network\":{\"mode\":\"allowlist\"}}", 403, "refused" },
	{ "{\"network\":{\"mode\":\"wide-open\"}}", 400, "invalid_request" },
	{ "{\"network\":{\"mode\":\"none\",\"allow\":[\"github.com\"]}}", 400, "invalid_request" },
	{ "{\"network\":{\"groups\":[\"web\"]}}", 400, "invalid_request" },
	/* features that this build lacks: shape first */
	{ "{\"metrics_export\":{\"endpoint\":\"\"}}", 400, "invalid_request" },
	{ "{\"metrics_export\":{\"endpoint\":\"http://a.dev/\"}}", 400, "invalid_request" },
	{ "{\"metrics_export\":{\"endpoint\":\"https://u:p@a.dev/\"}}", 400, "invalid_request" },
	{ "{\"metrics_export\":{\"endpoint\":\"https://a.dev/?q\"}}", 400, "invalid_request" },
	{ "{\"metrics_export\":{\"endpoint\":\"https://a.dev\",\"interval_secs\":9}}", 400,
		"invalid_request" },
	{ "{\"metrics_export\":{\"endpoint\":\"https://a.dev\",\"headers\":{\"Host\":\"x\"}}}", 400,
		"invalid_request" },
	{ "{\"metrics_export\":{\"endpoint\":\"https://a.dev\",\"headers\":{\"A\":\"x\\ny\"}}}",
		400, "invalid_request" },
	{ "{\"metrics_export\":{\"endpoint\":\"https://a.dev\",\"header_secrets\":{}}}", 400,
		"invalid_request" },
	{ "{\"metrics_export\":{\"endpoint\":\"https://a.dev\"}}", 501, "unsupported" },
	{ "{\"registry_login\":{\"registry\":\"bad host\",\"username\":\"u\",\"password\":\"p\"}}",
		400, "invalid_request" },
	{ "{\"registry_login\":{\"registry\":\"r.dev:0\",\"username\":\"u\",\"password\":\"p\"}}", 400,
		"invalid_request" },
	{ "{\"registry_login\":{\"registry\":\"r.dev:65536\",\"username\":\"u\",\"password\":\"p\"}}",
		400, "invalid_request" },
	{ "{\"registry_login\":{\"registry\":\"r.dev\",\"username\":\"u:v\",\"password\":\"p\"}}",
		400, "invalid_request" },
	{ "{\"registry_login\":{\"registry\":\"r.dev\",\"username\":\"u\",\"password\":\"p\\nq\"}}",
		400, "invalid_request" },
	{ "{\"registry_login\":{\"registry\":\"r.dev:5000\",\"username\":\"u\",\"password\":\"p\"}}",
		501, "unsupported" },
	{ "{\"gpus\":-1}", 400, "invalid_request" },
	{ "{\"gpus\":1}", 501, "unsupported" },
	{ "{\"idle_action\":\"sleep\"}", 400, "invalid_request" },
	{ "{\"idle_action\":\"suspend\"}", 501, "unsupported" },
	/* the earlier check wins */
	{ "{\"name\":\"Upper\",\"gpus\":1}", 400, "invalid_request" },
	{ "{\"env\":{\"LD_PRELOAD\":\"x\"},\"network\":{\"mode\":\"all\"}}", 403, "refused" },
	{ "{\"image\":\"no.such.host/none:1\",\"gpus\":1}", 501, "unsupported" },
	{ "{\"image\":\"no.such.host/none:1\"}", 404, "not_found" },
};

static size_t listed(void)
{
	json_t *o = rig_json(rig, "GET", "/v1/sandboxes", NULL, 200);
	size_t n = json_array_size(json_object_get(o, "sandboxes"));

	json_decref(o);
	return n;
}

static void a_create_that_is_refused_leaves_nothing(void **state)
{
	size_t before = listed();

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(refusals); i++) {
		print_message("%s\n", refusals[i].body);
		rig_refuses(rig, "POST", "/v1/sandboxes", refusals[i].body, refusals[i].status,
			refusals[i].code);
	}
	assert_int_equal(listed(), before);
}

static void a_create_answers_with_a_running_sandbox(void **state)
{
	json_t *o = rig_json(rig, "POST", "/v1/sandboxes", "{\"name\":\"first\"}", 201), *got;
	char *id = strdup(text(o, "id"));

	(void)state;
	assert_string_equal(text(o, "state"), "running");
	assert_int_equal(strncmp(id, "sbx_", 4), 0);
	assert_string_equal(text(o, "image"), "base");
	assert_true(json_is_integer(json_object_get(o, "memory_mb")));
	assert_true(json_is_null(json_object_get(json_object_get(o, "network"), "allow")));
	assert_string_equal(text(json_object_get(o, "network"), "mode"), "none");
	assert_int_equal(json_integer_value(json_object_get(o, "idle_timeout_secs")), 1800);
	assert_null(json_object_get(o, "idle_action"));
	assert_null(json_object_get(o, "lifetime_secs"));
	assert_null(json_object_get(o, "labels"));
	json_decref(o);
	for (int i = 0; i < 2; i++) {
		got = rig_json(
			rig, "GET", rig_path("/v1/sandboxes/%s", i ? id : "first"), NULL, 200);
		assert_string_equal(text(got, "id"), id);
		json_decref(got);
	}
	delete (id);
	delete (id);
	delete ("first");
	got = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s", id), NULL, 200);
	assert_string_equal(text(got, "state"), "terminated");
	json_decref(got);
	free(id);
}

static void names_are_unique_among_the_live(void **state)
{
	char *a = strdup(rig_sandbox(rig, "{\"name\":\"twin\"}")), *b;
	json_t *o;

	(void)state;
	rig_refuses(rig, "POST", "/v1/sandboxes", "{\"name\":\"twin\"}", 409, "conflict");
	delete (a);
	b = strdup(rig_sandbox(rig, "{\"name\":\"twin\"}"));
	assert_string_not_equal(a, b);
	o = rig_json(rig, "GET", "/v1/sandboxes/twin", NULL, 200);
	assert_string_equal(text(o, "id"), b);
	json_decref(o);
	delete (b);
	free(a);
	free(b);
}

static void an_unknown_sandbox_is_not_found(void **state)
{
	(void)state;
	rig_refuses(rig, "GET", "/v1/sandboxes/never-made", NULL, 404, "not_found");
	rig_refuses(rig, "DELETE", "/v1/sandboxes/never-made", NULL, 404, "not_found");
	rig_refuses(rig, "GET", "/v1/sandboxes/sbx_0000000000000000", NULL, 404, "not_found");
	rig_refuses(rig, "PATCH", "/v1/sandboxes/never-made", "{\"name\":\"x\"}", 404, "not_found");
	rig_refuses(rig, "PATCH", "/v1/sandboxes/never-made", "{}", 400, "invalid_request");
	rig_refuses(
		rig, "GET", "/v1/sandboxes/sbx_0000000000000000/events", NULL, 404, "not_found");
}

static void values_of_the_environment_never_come_out(void **state)
{
	json_t *o = rig_json(rig, "POST", "/v1/sandboxes",
		"{\"env\":{\"Z\":\"zq7secret-1\",\"API_TOKEN\":\"zq7secret-2\"}}", 201);
	char *id = strdup(text(o, "id")), *seen = json_dumps(o, 0), *out = NULL;
	json_t *names = json_object_get(o, "env_names");
	struct answer a;

	(void)state;
	assert_null(strstr(seen, "zq7secret"));
	assert_int_equal(json_array_size(names), 2);
	assert_string_equal(json_string_value(json_array_get(names, 0)), "API_TOKEN");
	json_decref(o);
	free(seen);
	assert_int_equal(rig_sh(rig, id, "printenv API_TOKEN", &out), 0);
	assert_string_equal(out, "zq7secret-2\n");
	free(out);
	a = rig_send(rig, "GET", rig_path("/v1/sandboxes/%s/events", id), NULL, NULL, NULL, 0);
	assert_int_equal(a.status, 200);
	assert_null(strstr(a.body, "zq7secret"));
	assert_non_null(strstr(a.body, "API_TOKEN"));
	answer_free(&a);
	delete (id);
	free(id);
}

static void labels_filter_the_listing(void **state)
{
	char *a = strdup(rig_sandbox(rig, "{\"labels\":{\"suite.mark\":\"m=1\",\"b\":\"\"}}"));
	char *b = strdup(rig_sandbox(rig, "{\"labels\":{\"suite.mark\":\"m=1-other\"}}"));
	static const struct {
		const char *query;
		size_t n;
	} rows[] = {
		{ "label=suite.mark=m=1", 1 },
		{ "label=suite.mark%3Dm%3D1", 1 },
		{ "label=suite.mark=m=1&label=b=", 1 },
		{ "label=b=", 1 },
		{ "label=suite.mark=m=1&label=suite.mark=m=1-other", 0 },
		{ "label=none=x", 0 },
		{ "other=1&label=suite.mark=m=1-other", 1 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		json_t *o = rig_json(
			rig, "GET", rig_path("/v1/sandboxes?%s", rows[i].query), NULL, 200);
		assert_int_equal(json_array_size(json_object_get(o, "sandboxes")), rows[i].n);
		json_decref(o);
	}
	rig_refuses(rig, "GET", "/v1/sandboxes?label=nokey", NULL, 400, "invalid_request");
	rig_refuses(rig, "GET", "/v1/sandboxes?label==v", NULL, 400, "invalid_request");
	rig_refuses(rig, "GET", "/v1/sandboxes?label=a=%zz", NULL, 400, "invalid_request");
	delete (a);
	delete (b);
	free(a);
	free(b);
}

static json_t *patch(const char *ref, const char *body)
{
	return rig_json(rig, "PATCH", rig_path("/v1/sandboxes/%s", ref), body, 200);
}

static void one_bad_field_and_nothing_changes(void **state)
{
	static const struct refusal rows[] = {
		{ "{\"name\":\"Upper Case\",\"labels\":{\"a\":\"b\"}}", 400, "invalid_request" },
		{ "{\"name\":\"good-name\",\"labels\":{\"a\":\"\\u001b\"}}", 400,
			"invalid_request" },
		{ "{\"name\":\"good-name\",\"idle_timeout_secs\":-1}", 400, "invalid_request" },
		{ "{\"idle_timeout_secs\":0}", 400, "invalid_request" },
		{ "{\"idle_timeout_secs\":604801}", 400, "invalid_request" },
		{ "{\"lifetime_secs\":0}", 400, "invalid_request" },
		{ "{}", 400, "invalid_request" },
		{ "{\"name\":null}", 400, "invalid_request" },
		{ "{\"network\":{}}", 400, "invalid_request" },
		{ "{\"network\":{\"mode\":\"\",\"allow\":null}}", 400, "invalid_request" },
		{ "{\"name\":\"good-name\",\"network\":{\"deny\":[\"x.test\"]}}", 501,
			"unsupported" },
		{ "{\"name\":\"taken\",\"network\":{\"mode\":\"none\"}}", 409, "conflict" },
		{ "{\"name\":\"good-name\",\"network\":{\"mode\":\"none\"}}", 501, "unsupported" },
		{ "{\"name\":\"good-name\",\"idle_action\":\"suspend\"}", 501, "unsupported" },
		{ "{\"name\":\"good-name\",\"idle_action\":\"nap\"}", 400, "invalid_request" },
		{ "{\"metrics_export\":{\"endpoint\":\"\"}}", 501, "unsupported" },
		{ "{\"cpus\":2}", 400, "invalid_request" },
		{ "{\"name\":\"taken\"}", 409, "conflict" },
	};
	char *other = strdup(rig_sandbox(rig, "{\"name\":\"taken\"}"));
	char *id = strdup(rig_sandbox(rig, "{\"name\":\"steady\",\"labels\":{\"k\":\"v\"}}"));

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		json_t *o;
		print_message("%s\n", rows[i].body);
		rig_refuses(rig, "PATCH", rig_path("/v1/sandboxes/%s", id), rows[i].body,
			rows[i].status, rows[i].code);
		o = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s", id), NULL, 200);
		assert_string_equal(text(o, "name"), "steady");
		assert_string_equal(text(json_object_get(o, "labels"), "k"), "v");
		assert_int_equal(json_integer_value(json_object_get(o, "idle_timeout_secs")), 1800);
		json_decref(o);
	}
	rig_refuses(rig, "GET", "/v1/sandboxes/good-name", NULL, 404, "not_found");
	delete (other);
	delete (id);
	rig_refuses(
		rig, "PATCH", rig_path("/v1/sandboxes/%s", id), "{\"labels\":{}}", 409, "conflict");
	free(other);
	free(id);
}

static void a_live_sandbox_can_be_renamed_relabelled_and_retimed(void **state)
{
	char *id = strdup(
		rig_sandbox(rig, "{\"name\":\"old-name\",\"labels\":{\"a\":\"1\",\"b\":\"2\"}}"));
	json_t *o;

	(void)state;
	o = patch(id, "{\"name\":\"new-name\",\"labels\":{\"c\":\"3\"}}");
	assert_string_equal(text(o, "name"), "new-name");
	assert_int_equal(json_object_size(json_object_get(o, "labels")), 1);
	json_decref(o);
	o = rig_json(rig, "GET", "/v1/sandboxes/new-name", NULL, 200);
	assert_string_equal(text(o, "id"), id);
	json_decref(o);
	rig_refuses(rig, "GET", "/v1/sandboxes/old-name", NULL, 404, "not_found");
	o = patch(id, "{\"idle_timeout_secs\":120,\"lifetime_secs\":3600}");
	assert_int_equal(json_integer_value(json_object_get(o, "idle_timeout_secs")), 120);
	assert_int_equal(json_integer_value(json_object_get(o, "lifetime_secs")), 3600);
	assert_non_null(text(o, "expires_at"));
	json_decref(o);
	/* a policy without a word is none */
	o = patch(id, "{\"labels\":{\"d\":\"4\"},\"network\":{}}");
	assert_string_equal(text(json_object_get(o, "labels"), "d"), "4");
	json_decref(o);
	o = patch(id, "{\"name\":\"\",\"labels\":{}}");
	assert_null(json_object_get(o, "name"));
	assert_null(json_object_get(o, "labels"));
	json_decref(o);
	delete (id);
	free(id);
}

static void the_listing_is_newest_first(void **state)
{
	char *a = strdup(rig_sandbox(rig, NULL)), *b = strdup(rig_sandbox(rig, NULL));
	json_t *o = rig_json(rig, "GET", "/v1/sandboxes", NULL, 200),
	       *l = json_object_get(o, "sandboxes");
	const char *last = "~";

	(void)state;
	assert_string_equal(text(json_array_get(l, 0), "id"), b);
	assert_string_equal(text(json_array_get(l, 1), "id"), a);
	for (size_t i = 0; i < json_array_size(l); i++) {
		assert_true(strcmp(text(json_array_get(l, i), "created_at"), last) <= 0);
		last = text(json_array_get(l, i), "created_at");
	}
	json_decref(o);
	delete (a);
	delete (b);
	free(a);
	free(b);
}

static void node_and_cordon_count_what_is_given_away(void **state)
{
	json_t *n0 = rig_json(rig, "GET", "/v1/node", NULL, 200), *n1, *n2;
	char *id = strdup(rig_sandbox(rig, "{\"memory_mb\":10,\"cpus\":0.5}"));

	(void)state;
	n1 = rig_json(rig, "GET", "/v1/node", NULL, 200);
	assert_int_equal(json_integer_value(json_object_get(n1, "running")),
		json_integer_value(json_object_get(n0, "running")) + 1);
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(n1, "free"), "memory_mb")),
		json_integer_value(json_object_get(json_object_get(n0, "free"), "memory_mb")) - 10);
	assert_true(json_is_false(json_object_get(n1, "cordoned")));
	assert_non_null(json_object_get(json_object_get(n1, "capabilities"), "instance"));
	n2 = rig_json(rig, "POST", "/v1/node/cordon", "{\"cordoned\":true}", 200);
	assert_true(json_is_true(json_object_get(n2, "cordoned")));
	rig_refuses(rig, "POST", "/v1/sandboxes", "{}", 503, "unavailable");
	json_decref(rig_json(rig, "POST", "/v1/node/cordon", "{\"cordoned\":false}", 200));
	delete (id);
	json_decref(n0);
	json_decref(n1);
	json_decref(n2);
	free(id);
}

static void an_image_that_is_not_on_the_list_is_refused(void **state)
{
	const struct rig_conf conf = { .policy = "{\"images\":[\"base\"]}" };
	struct rig *own = rig_new(&conf);

	(void)state;
	rig_refuses(own, "POST", "/v1/sandboxes", "{\"image\":\"other\"}", 403, "refused");
	json_decref(rig_json(own, "POST", "/v1/sandboxes", "{\"image\":\"base\"}", 201));
	rig_free(own);
}

static void a_server_with_a_longest_life_gives_every_sandbox_one(void **state)
{
	const struct rig_conf conf = { .policy = "{\"limits\":{\"max_lifetime_secs\":7200}}" };
	struct rig *own = rig_new(&conf);
	json_t *o;

	(void)state;
	rig_refuses(
		own, "POST", "/v1/sandboxes", "{\"lifetime_secs\":7201}", 400, "invalid_request");
	o = rig_json(own, "POST", "/v1/sandboxes", NULL, 201);
	assert_int_equal(json_integer_value(json_object_get(o, "lifetime_secs")), 7200);
	json_decref(o);
	rig_free(own);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_create_that_is_refused_leaves_nothing),
		cmocka_unit_test(a_create_answers_with_a_running_sandbox),
		cmocka_unit_test(names_are_unique_among_the_live),
		cmocka_unit_test(an_unknown_sandbox_is_not_found),
		cmocka_unit_test(values_of_the_environment_never_come_out),
		cmocka_unit_test(labels_filter_the_listing),
		cmocka_unit_test(one_bad_field_and_nothing_changes),
		cmocka_unit_test(a_live_sandbox_can_be_renamed_relabelled_and_retimed),
		cmocka_unit_test(the_listing_is_newest_first),
		cmocka_unit_test(node_and_cordon_count_what_is_given_away),
		cmocka_unit_test(an_image_that_is_not_on_the_list_is_refused),
		cmocka_unit_test(a_server_with_a_longest_life_gives_every_sandbox_one),
	};
	cmocka_set_test_filter(getenv("T"));
	return cmocka_run_group_tests(tests, start, stop);
}
