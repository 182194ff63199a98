/* SPDX-License-Identifier: MIT */
/* Texts in and out: values that people write, words that we show, the table of nodes, refusals. */
#include "sbxfs/errlog.h"
#include "sbxfs/nodes.h"
#include "sbxfs/proc.h"
#include "sbxfs/value.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void whole_numbers_only(void **state)
{
	static const struct {
		const char *in;
		int64_t want; /* -1: refused */
	} rows[] = { { "0\n", 0 }, { "17", 17 }, { "17\n\n", -1 }, { " 1", -1 }, { "1 ", -1 }, { "", -1 },
		{ "0x10", -1 }, { "1e3", -1 }, { "-1", -1 }, { "+1", -1 }, { "99", 99 }, { "100", -1 },
		{ "99999999999999999999", -1 } };
	struct mount m;
	struct req q = { .m = &m };

	(void)state;
	for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
		int64_t got = -1;
		int rc = value_int(&q, "x", rows[n].in, strlen(rows[n].in), 0, 99, &got);

		assert_int_equal(rc, rows[n].want < 0 ? -EINVAL : 0);
		if (rc == 0)
			assert_int_equal(got, rows[n].want);
		else
			assert_non_null(strstr(q.err.message, "0 to 99"));
	}
}

static void one_newline_is_taken_off(void **state)
{
	char *s = value_line("a b \n\n", 6);

	(void)state;
	assert_string_equal(s, "a b \n");
	free(s);
	assert_null(value_line("a\0b", 3));
}

static void lines_and_environment(void **state)
{
	static const char env[] = "A=1\nB=x=y\n\nC=";
	struct req q = { .m = NULL };
	json_t *list, *o = json_object();

	(void)state;
	assert_int_equal(value_lines(&q, "a\n\nb", 4, &list), 0);
	assert_int_equal(json_array_size(list), 2);
	json_decref(list);
	assert_int_equal(value_lines(&q, "a\0b", 3, &list), -EINVAL);
	assert_int_equal(value_lines(&q, "\xff\n", 2, &list), -EINVAL);
	assert_int_equal(value_env(&q, env, sizeof(env) - 1, o), 0);
	assert_string_equal(json_string_value(json_object_get(o, "B")), "x=y");
	assert_string_equal(json_string_value(json_object_get(o, "C")), "");
	assert_int_equal(value_env(&q, "=x\n", 3, o), -EINVAL);
	assert_int_equal(value_env(&q, "novalue\n", 8, o), -EINVAL);
	json_decref(o);
}

static void shown_text_is_safe_for_a_terminal(void **state)
{
	struct text t = TEXT_NULL;
	json_t *o = json_pack("{s:s}", "k", "\x1b[31m\x7f\xc2\x9b ok \xc3\xbc");

	(void)state;
	txt_safe(&t, "\x1b]0;x\x07\xc2\x9b\x7f \xc3\xbc", 100);
	assert_string_equal(t.p, "\\x1b]0;x\\x07\\xc2\\x9b\\x7f \xc3\xbc");
	txt_fini(&t);
	txt_json(&t, o);
	for (size_t n = 0; n + 1 < t.len; n++) {
		assert_true((unsigned char)t.p[n] >= 0x20 || t.p[n] == '\n');
		assert_int_not_equal(t.p[n], 0x7f);
		assert_false((unsigned char)t.p[n] == 0xc2 && (unsigned char)t.p[n + 1] < 0xa0);
	}
	txt_fini(&t);
	json_decref(o);
}

static void every_node_has_a_place_and_words(void **state)
{
	(void)state;
	for (int n = 1; n < N_COUNT; n++) {
		const struct node *x = node_by_id((enum node_id)n);

		assert_int_equal(x->id, n);
		assert_true(n == N_ROOT || x->parent != N_NONE);
		if (x->name)
			assert_true(strlen(x->help) > 3);
		/* What can be written says so in its mode, and the other way round. */
		if (x->kind != KIND_DIR && x->kind != KIND_TREE && x->kind != KIND_LINK)
			assert_int_equal(x->apply != NULL, (x->mode & 0200) != 0);
		/* What blocks is not listed. */
		if (x->kind == KIND_STREAM)
			assert_true(x->flags & NF_HIDDEN);
		for (int k = n + 1; k < N_COUNT; k++) {
			const struct node *y = node_by_id((enum node_id)k);

			assert_false(x->name && y->name && x->parent == y->parent && !strcmp(x->name, y->name));
		}
	}
	assert_true(node_is_reserved("ctl"));
	assert_true(node_is_reserved("images"));
	assert_false(node_is_reserved("demo"));
}

static void pids_are_plain_numbers(void **state)
{
	(void)state;
	assert_int_equal(pid_of_word("17"), 17);
	assert_int_equal(pid_of_word("0"), 0);
	assert_int_equal(pid_of_word("01"), 0);
	assert_int_equal(pid_of_word("+1"), 0);
	assert_int_equal(pid_of_word("1a"), 0);
	assert_int_equal(pid_of_word(""), 0);
	assert_int_equal(pid_of_word("99999999999999999999"), 0);
}

static void file_names_are_checked(void **state)
{
	char longest[300];

	(void)state;
	memset(longest, 'n', sizeof(longest));
	longest[255] = '\0';
	assert_true(file_name_ok(longest));
	longest[255] = 'n';
	longest[256] = '\0';
	assert_false(file_name_ok(longest));
	assert_false(file_name_ok(""));
	assert_false(file_name_ok("."));
	assert_false(file_name_ok(".."));
	assert_false(file_name_ok("a/b"));
	assert_true(file_name_ok("..x"));
}

static void note(struct errlog *l, uid_t uid, const char *box, const char *path, const char *msg)
{
	struct req q = { .uid = uid, .op = "write" };

	(void)snprintf(q.box, sizeof(q.box), "%s", box);
	(void)snprintf(q.path, sizeof(q.path), "%s", path);
	(void)snprintf(q.err.message, sizeof(q.err.message), "%s", msg);
	errlog_note(l, &q, EBUSY);
}

static void refusals_belong_to_who_got_them(void **state)
{
	struct text t = TEXT_NULL;
	struct errlog *l;

	(void)state;
	assert_int_equal(errlog_new(&l), 0);
	note(l, 1, "b1", "b1/ctl", "first");
	note(l, 1, "b2", "b2/ctl", "second");
	note(l, 2, "b1", "b1/ctl", "other");
	note(l, 1, "b1", "x", "");
	errlog_last(l, 1, NULL, NULL, &t);
	assert_non_null(strstr(t.p, "write b2/ctl: EBUSY: second\n"));
	txt_fini(&t);
	errlog_last(l, 1, "b1", NULL, &t);
	assert_non_null(strstr(t.p, "first"));
	txt_fini(&t);
	errlog_last(l, 2, NULL, "b1/ctl", &t);
	assert_non_null(strstr(t.p, "other"));
	txt_fini(&t);
	errlog_last(l, 3, NULL, NULL, &t);
	assert_int_equal(t.len, 0);
	for (int n = 0; n < 100; n++)
		note(l, (uid_t)(100 + n), "b", "p", "m"); /* more users than are kept */
	for (int n = 0; n < 100; n++)
		note(l, 500, "b", "p", "m");
	errlog_all(l, 500, NULL, &t);
	assert_int_equal(t.len > 0, 1);
	size_t lines = 0;
	for (size_t n = 0; n < t.len; n++)
		lines += t.p[n] == '\n';
	assert_int_equal(lines, 64);
	txt_fini(&t);
	errlog_free(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_numbers_only),
		cmocka_unit_test(one_newline_is_taken_off),
		cmocka_unit_test(lines_and_environment),
		cmocka_unit_test(shown_text_is_safe_for_a_terminal),
		cmocka_unit_test(every_node_has_a_place_and_words),
		cmocka_unit_test(pids_are_plain_numbers),
		cmocka_unit_test(file_names_are_checked),
		cmocka_unit_test(refusals_belong_to_who_got_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
