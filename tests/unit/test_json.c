/* SPDX-License-Identifier: MIT */
/* Strict parsing and field tables: one row a rule, the row's name is the behaviour. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/api/types.h"
#include "common/sys/mem.h"

#include <stdlib.h>
#include <string.h>

struct row {
	const char *name, *text;
	size_t len;        /* 0: strlen */
	const char *says;  /* NULL: accepted; else a part of the message */
};
static const struct row rows[] = {
	{ "empty text reads as an empty object", "", 0, NULL },
	{ "white space reads as an empty object", " \r\n\t", 0, NULL },
	{ "a surrogate pair is one character", "{\"labels\":{\"k\":\"\\ud83d\\ude00\"}}", 0, NULL },
	{ "null is absent", "{\"name\":null,\"labels\":null,\"cpus\":null}", 0, NULL },
	{ "an unknown field is named", "{\"nmae\":\"x\"}", 0, "nmae" },
	{ "an unknown field with null is refused", "{\"nmae\":null}", 0, "nmae" },
	{ "a nested unknown field is named by its path", "{\"network\":{\"x\":1}}", 0, "network.x" },
	{ "the field bind is unknown", "{\"bind\":\"/\"}", 0, "bind" },
	{ "a repeated key is refused", "{\"name\":\"a\",\"name\":\"b\"}", 0, "repeated" },
	{ "a second value is refused", "{} {}", 0, "malformed" },
	{ "text behind a NUL is refused", "{}\0{\"name\":\"z\"}", 14, "malformed" },
	{ "a byte order mark is refused", "\xef\xbb\xbf{}", 0, "malformed" },
	{ "a list at the top is refused", "[]", 0, "object" },
	{ "null at the top is refused", "null", 0, "malformed" },
	{ "a lone high surrogate is refused", "{\"labels\":{\"k\":\"\\ud800\"}}", 0, "malformed" },
	{ "swapped surrogates are refused", "{\"labels\":{\"k\":\"\\udc00\\ud800\"}}", 0, "malformed" },
	{ "invalid UTF-8 is refused", "{\"labels\":{\"k\":\"\377\376\"}}", 0, "malformed" },
	{ "overlong UTF-8 is refused", "{\"labels\":{\"k\":\"\300\257\"}}", 0, "malformed" },
	{ "an encoded surrogate is refused", "{\"labels\":{\"k\":\"\355\240\200\"}}", 0, "malformed" },
	{ "NUL in a string is refused", "{\"name\":\"a\\u0000b\"}", 0, "NUL" },
	{ "NUL in a key is refused", "{\"name\\u0000x\":\"a\"}", 0, "malformed" },
	{ "NUL in a map's value is refused", "{\"env\":{\"A\":\"x\\u0000y\"}}", 0, "env.A" },
	{ "a trailing comma is refused", "{\"name\":\"a\",}", 0, "malformed" },
	{ "single quotes are refused", "{'name':'a'}", 0, "malformed" },
	{ "a bare line break in a string is refused", "{\"name\":\"a\nb\"}", 0, "malformed" },
	{ "a fraction is no whole number", "{\"memory_mb\":1.0}", 0, "memory_mb" },
	{ "an exponent is no whole number", "{\"memory_mb\":1e3}", 0, "memory_mb" },
	{ "a number out of range is refused", "{\"memory_mb\":99999999999999999999}", 0, "malformed" },
	{ "a string is no number", "{\"cpus\":\"1\"}", 0, "cpus" },
	{ "a number is no string", "{\"name\":1}", 0, "name" },
	{ "a list entry of the wrong type is named", "{\"network\":{\"allow\":[\"a\",7]}}", 0, "allow[1]" },
	{ "null in a list is refused", "{\"network\":{\"allow\":[null]}}", 0, "allow[0]" },
	{ "an element of a list of objects is named", "{\"volumes\":[{\"name\":\"a\",\"nope\":1}]}", 0,
		"volumes[0].nope" },
};

static void check_row(void **state)
{
	const struct row *r = *state;
	_cleanup_json_ json_t *o = NULL;
	struct create_body body = { 0 };
	struct err e = ERR_NULL;
	int got = json_parse_object(r->text, r->len ? r->len : strlen(r->text), &o, &e);

	if (got == 0)
		got = schema_decode(create_fields, o, &body, &e);
	if (!r->says) {
		assert_int_equal(got, 0);
		schema_free(create_fields, &body);
		return;
	}
	assert_int_equal(got, -1);
	assert_int_equal(e.code, ERR_INVALID_REQUEST);
	if (!strstr(e.msg, r->says))
		fail_msg("message \"%s\" does not say \"%s\"", e.msg, r->says);
}

static void deep_text_is_refused_without_recursion(void **state)
{
	struct err e = ERR_NULL;
	json_t *o = NULL;
	size_t n = 1000000;
	_cleanup_free_ char *text = malloc(n);

	(void)state;
	memset(text, '[', n);
	assert_int_equal(json_parse_object(text, n, &o, &e), -1);
	assert_int_equal(e.code, ERR_INVALID_REQUEST);
	assert_true(strlen(e.msg) < 100);
	for (size_t i = 0; i + 5 <= n; i += 5)
		memcpy(text + i, "{\"a\":", 5);
	assert_int_equal(json_parse_object(text, n, &o, &e), -1);
}

static void sixty_four_levels_pass_and_one_more_does_not(void **state)
{
	char text[400];
	struct err e = ERR_NULL;

	(void)state;
	for (int depth = 64; depth <= 65; depth++) {
		json_t *v = NULL;
		memset(text, '[', (size_t)depth);
		memset(text + depth, ']', (size_t)depth);
		assert_int_equal(json_parse_any(text, (size_t)depth * 2, sizeof(text), &v, &e),
			depth == 64 ? 0 : -1);
		json_decref(v);
	}
}

static void a_body_over_one_mebibyte_is_refused(void **state)
{
	_cleanup_free_ char *text = malloc(JSON_BODY_MAX + 1);
	struct err e = ERR_NULL;
	json_t *o = NULL;

	(void)state;
	memset(text, ' ', JSON_BODY_MAX + 1);
	text[0] = '{';
	text[1] = '}';
	assert_int_equal(json_parse_object(text, JSON_BODY_MAX, &o, &e), 0);
	json_decref(o);
	assert_int_equal(json_parse_object(text, JSON_BODY_MAX + 1, &o, &e), -1);
}

static void base64_decodes_what_it_encodes_and_only_that(void **state)
{
	static const char *const broken[] = { "a", "ab", "abc", "a===", "ab=c", "a b=", "ab==cdef", "QR==", "QUJ=" };
	unsigned char bytes[300];

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(i * 7);
	for (size_t n = 0; n < sizeof(bytes); n++) {
		_cleanup_free_ char *text = base64_encode(bytes, n);
		_cleanup_free_ void *back = NULL;
		size_t len;
		assert_int_equal(base64_decode(text, strlen(text), &back, &len), 0);
		assert_int_equal(len, n);
		assert_memory_equal(back, bytes, n);
	}
	for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
		void *back = NULL;
		size_t len;
		assert_int_equal(base64_decode(broken[i], strlen(broken[i]), &back, &len), -1);
	}
}

/* Whoever reads the text in a terminal: no byte in it is a command. */
static void text_is_visible(void **state)
{
	json_t *v = json_string("a\033b\177c\302\233d\302\240\303\244");
	_cleanup_free_ char *text = json_text(v);
	json_t *back = json_loads(text, JSON_DECODE_ANY, NULL);

	(void)state;
	assert_string_equal(text, "\"a\\u001Bb\\u007fc\\u009bd\302\240\303\244\"");
	assert_true(json_equal(v, back));
	json_decref(v);
	json_decref(back);
}

static void a_fraction_comes_back_as_it_was_sent(void **state)
{
	static const char *const sent[] = { "0.1", "1.1", "3.3", "0.5", "12.345678901234" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(sent); i++) {
		json_t *v = json_loads(sent[i], JSON_DECODE_ANY, NULL);
		_cleanup_free_ char *text = json_text(v);
		assert_string_equal(text, sent[i]);
		json_decref(v);
	}
}

int main(void)
{
	struct CMUnitTest tests[ARRAY_LEN(rows) + 6];
	size_t n = 0;

	for (; n < ARRAY_LEN(rows); n++)
		tests[n] = (struct CMUnitTest){ .name = rows[n].name, .test_func = check_row,
			.initial_state = (void *)(uintptr_t)&rows[n] };
	tests[n++] = (struct CMUnitTest)cmocka_unit_test(deep_text_is_refused_without_recursion);
	tests[n++] = (struct CMUnitTest)cmocka_unit_test(sixty_four_levels_pass_and_one_more_does_not);
	tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_body_over_one_mebibyte_is_refused);
	tests[n++] = (struct CMUnitTest)cmocka_unit_test(text_is_visible);
	tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_fraction_comes_back_as_it_was_sent);
	tests[n++] = (struct CMUnitTest)cmocka_unit_test(base64_decodes_what_it_encodes_and_only_that);
	return _cmocka_run_group_tests("json", tests, n, NULL, NULL);
}
