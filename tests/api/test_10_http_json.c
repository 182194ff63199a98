/* SPDX-License-Identifier: MIT */
/* Bodies: what is malformed is refused whole, and nothing is made. Node contract, section 3. */
#include "tests/support/rig.h"
#include "tests/support/test.h"

static int setup(void **state)
{
	*state = rig_new(NULL);
	return 0;
}

static int teardown(void **state)
{
	rig_free(*state);
	return 0;
}

static size_t sandboxes(struct rig *r)
{
	json_t *v = rig_json(r, "GET", "/v1/sandboxes", NULL, 200);
	size_t n = json_array_size(json_object_get(v, "sandboxes"));

	json_decref(v);
	return n;
}

static void post_refused(struct rig *r, const void *body, size_t len)
{
	_cleanup_answer_ struct answer a =
		rig_send(r, "POST", "/v1/sandboxes", NULL, NULL, body, len);

	if (a.status != 400)
		print_error("body: %.60s\n", (const char *)body);
	assert_answer(&a, 400, "invalid_request");
	assert_true(a.len < 600); /* it does not repeat the body */
}

static void repeat_refused(
	struct rig *r, const char *head, const char *unit, size_t n, const char *tail)
{
	size_t ulen = strlen(unit), hlen = strlen(head);
	_cleanup_free_ char *buf = malloc(hlen + ulen * n + strlen(tail) + 1);

	assert_non_null(buf);
	memcpy(buf, head, hlen);
	for (size_t i = 0; i < n; i++)
		memcpy(buf + hlen + i * ulen, unit, ulen);
	memcpy(buf + hlen + n * ulen, tail, strlen(tail) + 1);
	post_refused(r, buf, strlen(buf));
}

static void deep_nesting_is_refused(void **state)
{
	repeat_refused(*state, "", "[", 1000000, "");
	repeat_refused(*state, "", "{\"a\":", 170000, "");
	repeat_refused(*state, "{\"labels\":", "[", 100000, "}");
	repeat_refused(*state, "{\"x\":", "[", 30, "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}");
	assert_int_equal(sandboxes(*state), 0);
}

#define B(s)                                                                                       \
	{                                                                                          \
		s, sizeof(s) - 1                                                                   \
	}
static const struct body {
	const char *text;
	size_t len;
} malformed[] = {
	/* zero bytes, half pairs, bad UTF-8 */
	B("{\"name\":\"a\\u0000b\"}"),
	B("{\"name\\u0000x\":\"a\"}"),
	B("{\"name\":\"x\\uX000\"}"),
	B("{\"labels\":{\"k\":\"\\ud800\"}}"),
	B("{\"labels\":{\"k\":\"\\udc00\\ud800\"}}"),
	B("{\"labels\":{\"k\":\"\377\376\"}}"),
	B("{\"labels\":{\"k\":\"\300\257\"}}"),
	B("{\"labels\":{\"k\":\"\355\240\200\"}}"),
	B("{\"env\":{\"A\":\"x\\u0000y\"}}"),
	B("{\"env\":{\"A\\u003dB\":\"x\"}}"),
	B("{}\0{\"name\":\"z\"}"),
	/* not one JSON object */
	B("{} x"),
	B("{}{}"),
	B("{\"name\":\"a\nb\"}"),
	B("{\"name\":\"a\",}"),
	B("{'name':'a'}"),
	B("\357\273\277{}"),
	B("[]"),
	B("null"),
	B("\"x\""),
	B("1"),
	B("{\"name\""),
	B("{"),
	/* keys */
	B("{\"name\":\"a\",\"name\":\"b\"}"),
	B("{\"labels\":{\"a\":\"1\",\"a\":\"2\"}}"),
	B("{\"Name\":\"a\"}"),
	B("{\"bind\":\"0.0.0.0\"}"),
	B("{\"nope\":null}"),
	B("{\"network\":{\"nope\":1}}"),
	/* types and ranges */
	B("{\"cpus\":\"1\"}"),
	B("{\"cpus\":-1}"),
	B("{\"memory_mb\":1.5}"),
	B("{\"memory_mb\":1e99}"),
	B("{\"memory_mb\":99999999999999999999}"),
	B("{\"memory_mb\":-1}"),
	B("{\"labels\":[]}"),
	B("{\"labels\":{\"a\":null}}"),
	B("{\"env\":{\"A\":1}}"),
	B("{\"name\":true}"),
	B("{\"network\":\"none\"}"),
};

static void malformed_bodies_make_nothing(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(malformed); i++)
		post_refused(*state, malformed[i].text, malformed[i].len);
	assert_int_equal(sandboxes(*state), 0);
}

static void messages_name_the_field_and_not_the_value(void **state)
{
	static const char body[] = "{\"env\":{\"A\":\"zq7secret\"},\"nonsense\":\"zq7secret\"}";
	_cleanup_answer_ struct answer a =
		rig_send(*state, "POST", "/v1/sandboxes", NULL, NULL, body, sizeof(body) - 1);

	assert_answer(&a, 400, "invalid_request");
	assert_non_null(strstr(a.body, "nonsense"));
	assert_null(strstr(a.body, "zq7secret"));
}

static void surrogate_pairs_come_back_as_one_character(void **state)
{
	json_t *v = rig_json(
		*state, "POST", "/v1/sandboxes", "{\"labels\":{\"k\":\"\\ud83d\\ude00\"}}", 201);

	assert_string_equal(json_string_value(json_object_get(json_object_get(v, "labels"), "k")),
		"\xf0\x9f\x98\x80");
	json_decref(v);
}

static void an_empty_body_is_an_empty_object(void **state)
{
	_cleanup_answer_ struct answer a =
		rig_send(*state, "POST", "/v1/sandboxes", NULL, NULL, " \n\t", 3);
	_cleanup_answer_ struct answer b =
		rig_send(*state, "POST", "/v1/sandboxes", NULL, NULL, NULL, 0);

	assert_int_equal(a.status, 201);
	assert_int_equal(b.status, 201);
}

static void null_is_absent_for_known_keys(void **state)
{
	json_t *v = rig_json(*state, "POST", "/v1/sandboxes",
		"{\"name\":null,\"labels\":null,\"cpus\":null,\"network\":null}", 201);

	assert_null(json_object_get(v, "name"));
	json_decref(v);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(deep_nesting_is_refused),
		T(malformed_bodies_make_nothing),
		T(messages_name_the_field_and_not_the_value),
		T(surrogate_pairs_come_back_as_one_character),
		T(an_empty_body_is_an_empty_object),
		T(null_is_absent_for_known_keys),
	};

	return run_table(tests);
}
