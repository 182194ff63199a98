/* SPDX-License-Identifier: MIT */
/* Every row of the contract's table at once: token, media type, malformed bodies, missing
 * capabilities; then the rows that belong to the server itself. */
#include "common/api/api.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

#define TOKEN  "0123456789abcdef-token"
#define NOBODY "sbx_0000000000000000"

static const char *const method_words[] = { "GET", "POST", "PUT", "PATCH", "DELETE" };

static int setup(void **state)
{
	*state = rig_new(&(struct rig_conf){ .token = TOKEN });
	return 0;
}

static int teardown(void **state)
{
	rig_free(*state);
	return 0;
}

/* The pattern with its parameters filled in. */
static const char *fill(const struct route *route, const char *ref)
{
	static char out[512];
	size_t n = 0;

	for (const char *p = route->path; *p;) {
		if (*p != '{') {
			out[n++] = *p++;
			continue;
		}
		n += (size_t)snprintf(out + n, sizeof(out) - n, "%s",
			!strncmp(p, "{ref}", 5)      ? ref
			: !strncmp(p, "{stream}", 8) ? "stdout"
						     : "1");
		p = strchr(p, '}') + 1;
	}
	out[n] = '\0';
	return out;
}

static void every_route_but_health_wants_the_token(void **state)
{
	struct rig *r = *state;

	for (int i = 0; i < ROUTE_COUNT; i++) {
		_cleanup_close_ int fd = httpc_unix(r->sock);
		_cleanup_answer_ struct answer a = { 0 };

		httpc_send(fd, rig_path("%s %s HTTP/1.1\r\nHost: localhost\r\n\r\n",
				       method_words[routes[i].method], fill(&routes[i], NOBODY)));
		a = httpc_answer(fd);
		if (routes[i].flags & ROUTE_PUBLIC)
			assert_int_equal(a.status, 200);
		else
			assert_answer(&a, 401, "unauthorized");
	}
}

static void every_route_wants_its_media_type(void **state)
{
	for (int i = 0; i < ROUTE_COUNT; i++) {
		const char *wrong = routes[i].body == BODY_RAW ? "application/json"
							       : "application/octet-stream";
		_cleanup_answer_ struct answer a = rig_send(*state, method_words[routes[i].method],
			fill(&routes[i], NOBODY), NULL, wrong, "{}", 2);

		assert_answer(&a, 415, "invalid_request");
	}
}

#define B(s)                                                                                       \
	{                                                                                          \
		s, sizeof(s) - 1                                                                   \
	}
static void every_json_route_refuses_every_malformed_body(void **state)
{
	static const struct {
		const char *text;
		size_t len;
	} bodies[] = {
		B("{\"no_such_field_\":1}"),
		B("{\"no_such_field_\":null}"),
		B("[]"),
		B("null"),
		B("{"),
		B("{} {}"),
		B("{\"a\":1,\"a\":1}"),
		B("{\"\377\":1}"),
		B("\357\273\277{}"),
		B("{}\0"),
		B("{\"a\\u0000\":1}"),
	};
	const char *id = rig_sandbox(*state, NULL);

	for (int i = 0; i < ROUTE_COUNT; i++) {
		if (routes[i].body != BODY_JSON)
			continue;
		for (size_t k = 0; k < ARRAY_LEN(bodies); k++) {
			_cleanup_answer_ struct answer a = rig_send(*state,
				method_words[routes[i].method], fill(&routes[i], id), NULL, NULL,
				bodies[k].text, bodies[k].len);
			int want = routes[i].id == ROUTE_image_install ? 501 : 400;

			if (a.status != want)
				print_error("%s, body %zu\n", routes[i].name, k);
			assert_answer(&a, want, NULL);
		}
	}
}

static void every_route_of_a_sandbox_knows_no_unknown_one(void **state)
{
	for (int i = 0; i < ROUTE_COUNT; i++) {
		_cleanup_answer_ struct answer a = { 0 };

		if (!strstr(routes[i].path, "{ref}") || routes[i].body != BODY_NONE)
			continue;
		a = rig_send(*state, method_words[routes[i].method],
			rig_path("%s?path=/a&port=1", fill(&routes[i], NOBODY)),
			"Connection: Upgrade\r\nUpgrade: sbx-stream/1, sbx-fs/1\r\n", NULL, NULL, 0);
		if (a.status != 404 && a.status != 501)
			print_error("%s\n", routes[i].name);
		assert_true(a.status == 404 || a.status == 501);
	}
}

static void what_the_server_lacks_is_501(void **state)
{
	static const struct {
		const char *method, *path, *body;
	} rows[] = {
		{ "POST", "/v1/sandboxes/%s/suspend", NULL },
		{ "POST", "/v1/sandboxes/%s/resume", NULL },
		{ "POST", "/v1/sandboxes/%s/snapshots", NULL },
		{ "DELETE", "/v1/snapshots/snp_0000000000000000", NULL },
		{ "PUT", "/v1/sandboxes/%s/snapshot-schedule", "{\"every_secs\":1}" },
		{ "GET", "/v1/sandboxes/%s/metrics", NULL },
		{ "GET", "/v1/volumes", NULL },
		{ "POST", "/v1/volumes", "{\"name\":\"a\"}" },
		{ "DELETE", "/v1/volumes/a", NULL },
		{ "GET", "/v1/images", NULL },
		{ "POST", "/v1/images", "{\"image\":\"a\"}" },
		{ "DELETE", "/v1/images?image=a", NULL },
		{ "GET", "/v1/sandboxes/%s/tunnel?port=1", NULL },
	};
	const char *id = rig_sandbox(*state, NULL);
	json_t *v;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char path[256];

		snprintf(path, sizeof(path), rows[i].path, id);
		rig_refuses(*state, rows[i].method, path, rows[i].body, 501, "unsupported");
	}
	v = rig_json(*state, "GET", "/v1/snapshots", NULL, 200);
	assert_true(json_is_array(json_object_get(v, "snapshots")));
	json_decref(v);
}

/* --- the server itself --- */

static void capabilities_describe_the_server(void **state)
{
	json_t *v = rig_json(*state, "GET", "/v1/capabilities", NULL, 200);
	json_t *caps = json_object_get(v, "capabilities"), *limits = json_object_get(v, "limits");

	assert_string_equal(json_string_value(json_object_get(v, "api_version")), "v1");
	assert_string_equal(json_string_value(json_object_get(v, "backend")), "fake");
	for (int c = CAP_SNAPSHOT + 1; c < CAP_COUNT; c++)
		assert_true(json_is_boolean(json_object_get(caps, cap_word((enum cap)c))));
	assert_true(json_number_value(json_object_get(limits, "max_cpus")) > 0);
	assert_true(json_integer_value(json_object_get(limits, "max_memory_mb")) > 0);
	assert_true(json_integer_value(json_object_get(limits, "max_disk_mb")) > 0);
	json_decref(v);
}

static void cordon_refuses_new_sandboxes_until_undone(void **state)
{
	json_t *v = rig_json(*state, "POST", "/v1/node/cordon", "{\"cordoned\":true}", 200);

	assert_true(json_is_true(json_object_get(v, "cordoned")));
	json_decref(v);
	rig_refuses(*state, "POST", "/v1/sandboxes", "{}", 503, "unavailable");
	rig_refuses(*state, "POST", "/v1/node/cordon", "{}", 400, "invalid_request");
	v = rig_json(*state, "POST", "/v1/node/cordon", "{\"cordoned\":false}", 200);
	json_decref(v);
	rig_sandbox(*state, NULL);
}

static void a_restart_clears_the_cordon(void **state)
{
	json_t *v = rig_json(*state, "POST", "/v1/node/cordon", "{\"cordoned\":true}", 200);

	json_decref(v);
	rig_restart(*state);
	v = rig_json(*state, "GET", "/v1/node", NULL, 200);
	assert_true(json_is_false(json_object_get(v, "cordoned")));
	json_decref(v);
}

static void node_tells_capacity_and_what_runs(void **state)
{
	json_t *v;

	rig_sandbox(*state, NULL);
	v = rig_json(*state, "GET", "/v1/node", NULL, 200);
	assert_string_equal(json_string_value(json_object_get(v, "node")), "");
	assert_true(strlen(json_string_value(json_object_get(v, "version"))) > 0);
	assert_true(json_number_value(json_object_get(json_object_get(v, "capacity"), "cpus")) > 0);
	assert_int_equal(json_integer_value(json_object_get(v, "running")), 1);
	assert_true(json_is_object(json_object_get(v, "free")));
	assert_string_equal(json_string_value(json_object_get(
				    json_object_get(v, "capabilities"), "api_version")),
		"v1");
	json_decref(v);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(every_route_but_health_wants_the_token),
		T(every_route_wants_its_media_type),
		T(every_json_route_refuses_every_malformed_body),
		T(every_route_of_a_sandbox_knows_no_unknown_one),
		T(what_the_server_lacks_is_501),
		T(capabilities_describe_the_server),
		T(cordon_refuses_new_sandboxes_until_undone),
		T(a_restart_clears_the_cordon),
		T(node_tells_capacity_and_what_runs),
	};

	return run_table(tests);
}
