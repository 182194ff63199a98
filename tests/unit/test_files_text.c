/* SPDX-License-Identifier: MIT */
/* Names that are not text, and attributes, as JSON. */
#include "sandboxd/api/files.h"
#include "tests/support/test.h"

#include <sys/stat.h>

#define BAD "\xef\xbf\xbd" /* U+FFFD */
static const struct row {
	const char *title, *name, *want; /* want: what text_name writes for the key "name" */
} rows[] = {
	{ "plain name stays", "a b", "\"name\":\"a b\"" },
	{ "quotes and control characters are escaped", "q\"\\\n\t\x01\x7f",
		"\"name\":\"q\\\"\\\\\\n\\t\\u0001\\u007f\"" },
	{ "so are those of two bytes, and their neighbours stay",
		"c\xc2\x9b\xc2\x80\xc2\x9f\xc2\xa0",
		"\"name\":\"c\\u009b\\u0080\\u009f\xc2\xa0\"" },
	{ "UTF-8 stays", "h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
		"\"name\":\"h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"" },
	{ "bad byte is shown with its digits",
		"bad\xff"
		"one",
		"\"name\":\"bad" BAD "FFone\",\"name_b64\":\"YmFk/29uZQ==\"" },
	{ "another bad byte is shown differently",
		"bad\xfe"
		"one",
		"\"name\":\"bad" BAD "FEone\",\"name_b64\":\"YmFk/m9uZQ==\"" },
	{ "genuine U+FFFD cannot be taken for a bad byte", "bad" BAD "FFone",
		"\"name\":\"bad" BAD "EF" BAD "BF" BAD
		"BDFFone\",\"name_b64\":\"YmFk77+9RkZvbmU=\"" },
	{ "half a character is bad", "x\xe2\x82",
		"\"name\":\"x" BAD "E2" BAD "82\",\"name_b64\":\"eOKC\"" },
	{ "surrogate is bad", "\xed\xa0\x80",
		"\"name\":\"" BAD "ED" BAD "A0" BAD "80\",\"name_b64\":\"7aCA\"" },
	{ "overlong form is bad", "\xc0\xaf",
		"\"name\":\"" BAD "C0" BAD "AF\",\"name_b64\":\"wK8=\"" },
};

static void check_row(void **state)
{
	const struct row *row = *state;
	struct text t = TEXT_NULL;
	json_t *o = NULL;

	text_name(&t, "name", row->name, strlen(row->name));
	assert_false(t.failed);
	assert_string_equal(t.buf, row->want);
	t.len = 0;
	text_add(&t, "{", 1);
	text_name(&t, "name", row->name, strlen(row->name));
	text_add(&t, "}", 1);
	assert_int_equal(json_parse_object(t.buf, t.len, &o, NULL), 0);
	json_decref(o);
	text_free(&t);
}

static void attributes_are_json(void **state)
{
	struct files_attr a = { .mode = S_IFLNK | 0777,
		.uid = 1001,
		.gid = 1001,
		.nlink = 1,
		.size = 3,
		.mtime = { .sec = 981173106, .nsec = 5 },
		.atime = { .sec = -2, .nsec = 500000000 },
		.version = 0xabc,
		.ino = UINT64_MAX };
	struct text t = TEXT_NULL;
	json_t *o = NULL;

	(void)state;
	text_add(&t, "{", 1);
	text_attr(&t, &a, "x\xff", 2);
	text_add(&t, "}", 1);
	assert_int_equal(json_parse_object(t.buf, t.len, &o, NULL), 0);
	assert_string_equal(json_string_value(json_object_get(o, "type")), "link");
	assert_string_equal(json_string_value(json_object_get(o, "mtime")), "981173106.000000005");
	assert_string_equal(json_string_value(json_object_get(o, "atime")), "-1.500000000");
	assert_string_equal(json_string_value(json_object_get(o, "version")), "0000000000000abc");
	assert_string_equal(json_string_value(json_object_get(o, "target_b64")), "eP8=");
	assert_int_equal(json_integer_value(json_object_get(o, "ino")), INT64_MAX);
	json_decref(o);
	text_free(&t);
}

static void text_keeps_its_limit(void **state)
{
	struct text t = { .max = 100 };

	(void)state;
	for (int i = 0; i < 20; i++)
		text_str(&t, "0123456789");
	assert_true(t.failed);
	assert_true(t.len <= 100);
	text_free(&t);
}

int main(void)
{
	struct CMUnitTest tests[ARRAY_LEN(rows) + 2];
	size_t n = ARRAY_LEN(rows);

	for (size_t i = 0; i < n; i++)
		tests[i] = (struct CMUnitTest){ .name = rows[i].title,
			.test_func = check_row,
			.initial_state = (void *)(uintptr_t)&rows[i] };
	tests[n] = (struct CMUnitTest){ .name = "attributes are JSON",
		.test_func = attributes_are_json };
	tests[n + 1] = (struct CMUnitTest){ .name = "text keeps its limit",
		.test_func = text_keeps_its_limit };
	return run_table(tests);
}
