/* SPDX-License-Identifier: MIT */
/* Section 7 of the contract as rows: function, text, whether it passes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/api/api.h"
#include "common/api/ids.h"
#include "common/sys/mem.h"

#include <stdlib.h>
#include <string.h>

#define A8 "aaaaaaaa"
#define A64 A8 A8 A8 A8 A8 A8 A8 A8
#define A63 A8 A8 A8 A8 A8 A8 A8 "aaaaaaa"

static const struct {
	const char *what;
	bool (*f)(const char *);
	const char *text;
	bool want;
} words[] = {
	{ "name", name_ok, "a", true }, { "name", name_ok, "0-a-", true }, { "name", name_ok, A63, true },
	{ "name", name_ok, A64, false }, { "name", name_ok, "", false }, { "name", name_ok, "Upper", false },
	{ "name", name_ok, "has space", false }, { "name", name_ok, "sbx_lookslikeanid", false },
	{ "name", name_ok, "-lead", false }, { "name", name_ok, "a\n", false }, { "name", name_ok, NULL, false },
	{ "id", id_is_sandbox, "sbx_0000000000000000", true },
	{ "id", id_is_sandbox, "sbx_node-1_00000000000000ff", true },
	{ "id", id_is_sandbox, "sbx_000000000000000", false }, { "id", id_is_sandbox, "sbx_000000000000000G", false },
	{ "id", id_is_sandbox, "sbx_00000000000000000", false }, { "id", id_is_sandbox, "sbx__0000000000000000", false },
	{ "id", id_is_sandbox, "snp_0000000000000000", false }, { "id", id_is_sandbox, "sbx_../0000000000000000", false },
	{ "snapshot", id_is_snapshot, "snp_00000000000000ff", true },
	{ "snapshot", id_is_snapshot, "snp_00000000000000f", false }, { "snapshot", id_is_snapshot, NULL, false },
	{ "snapshot", id_is_snapshot, "snp_00000000000000fff", false }, { "snapshot", id_is_snapshot, "sbx_00000000000000ff", false },
	{ "snapshot", id_is_snapshot, "snp_00000000000000fF", false }, { "label key", label_key_ok, "team/a.b_c-d", true }, { "label key", label_key_ok, "Upper", false },
	{ "label value", label_value_ok, "", true }, { "label value", label_value_ok, "a\xc3\xa9", true },
	{ "label value", label_value_ok, "a\x1b[0m", false }, { "label value", label_value_ok, "\xc2\x80", false },
	{ "label value", label_value_ok, A64 A64 A64 A64, true }, { "label value", label_value_ok, A64 A64 A64 A64 "a", false },
	{ "image", image_ref_ok, "docker.io/library/a:1@sha256", true }, { "image", image_ref_ok, "-x", false },
	{ "image", image_ref_ok, "Not An Image!", false }, { "env", env_name_ok, "_A1", true },
	{ "env", env_name_ok, "1A", false }, { "env", env_name_ok, "A=B", false },
	{ "reserved", env_name_reserved, "LD_PRELOAD", true }, { "reserved", env_name_reserved, "ld_preload", false },
	{ "reserved", env_name_reserved, "SANDBOX_OTHER", false }, { "process name", process_name_ok, "a.b_c-1", true },
	{ "process name", process_name_ok, "1a", false }, { "node", node_name_ok, "a_b", false },
};

static void identifiers_follow_their_rules(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (words[i].f(words[i].text) != words[i].want)
			fail_msg("%s \"%s\" should be %d", words[i].what, words[i].text, words[i].want);
}

static void new_ids_are_ids(void **state)
{
	char a[SBX_ID_MAX], b[SBX_ID_MAX];

	(void)state;
	id_new_sandbox("", a);
	id_new_sandbox("n1", b);
	assert_true(id_is_sandbox(a) && id_is_sandbox(b));
	assert_true(strncmp(b, "sbx_n1_", 7) == 0 && strlen(b) == 23);
}

#define P(in, out) { in, sizeof(in) - 1, out }
static const struct { const char *in; size_t len; const char *out; } paths[] = {
	P("/", "/"), P("//", "/"), P("/a/", "/a"), P("/a//b/./c", "/a/b/c"), P("/..x", "/..x"), P("/a..b", "/a..b"),
	P("/...", "/..."), P("", NULL), P("a", NULL), P("/..", NULL), P("/a/../b", NULL), P("/a/..", NULL), P("/x\0y", NULL),
};

static void guest_paths_are_cleaned_or_refused(void **state)
{
	char out[GUEST_PATH_MAX], again[GUEST_PATH_MAX], big[GUEST_PATH_MAX + 10];
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		int r = guest_path_clean(paths[i].in, paths[i].len, "path", out, &e);
		assert_int_equal(r, paths[i].out ? 0 : -1);
		if (r < 0)
			continue;
		assert_string_equal(out, paths[i].out);
		assert_int_equal(guest_path_clean(out, strlen(out), "path", again, &e), 0);
		assert_string_equal(out, again);
	}
	memset(big, 'a', sizeof(big));
	big[0] = '/';
	assert_int_equal(guest_path_clean(big, sizeof(big), "path", out, &e), -1);
	assert_int_equal(guest_path_clean("x", 1, "cwd", out, &e), -1);
	assert_non_null(strstr(e.msg, "cwd"));
}

static const struct { const char *in, *out; } hosts[] = {
	{ "GitHub.com.", "github.com" }, { " a.b ", "a.b" }, { "*.Example.com", "*.example.com" }, { "localhost", "localhost" },
	{ "xn--bcher-kva.example", "xn--bcher-kva.example" }, { "*", NULL }, { "*.", NULL }, { "*.*.com", NULL },
	{ "a.*.com", NULL }, { "*example.com", NULL }, { "http://a.com", NULL }, { "a.com:443", NULL }, { "a.com/x", NULL },
	{ "10.0.0.1", NULL }, { "a.1", NULL }, { "[::1]", NULL }, { "a..com", NULL }, { "-a.com", NULL }, { "a-.com", NULL },
	{ "a b.com", NULL }, { "", NULL }, { ".", NULL }, { "a_b.com", NULL }, { A64 ".com", NULL }, { A63 ".com", A63 ".com" },
	{ A63 "." A63 "." A63 "." A63, NULL },
};

static void host_names_are_cleaned_or_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
		_cleanup_free_ char *got = NULL;
		struct err e;
		int r = host_name_clean(hosts[i].in, &got, &e);
		if ((r == 0) != (hosts[i].out != NULL))
			fail_msg("\"%s\" gave %d", hosts[i].in, r);
		if (r == 0)
			assert_string_equal(got, hosts[i].out);
	}
}

static void patterns_end_at_a_label(void **state)
{
	(void)state;
	assert_true(host_pattern_covers("*.example.com", "a.example.com"));
	assert_true(host_pattern_covers("*.example.com", "a.b.example.com"));
	assert_true(host_pattern_covers("*.example.com", "*.a.example.com"));
	assert_true(host_pattern_covers("*.example.com", "*.example.com"));
	assert_true(host_pattern_covers("*", "anything.dev"));
	assert_false(host_pattern_covers("*.example.com", "example.com"));
	assert_false(host_pattern_covers("*.example.com", "evil-example.com"));
	assert_false(host_pattern_covers("*.example.com", "*.com"));
	assert_false(host_pattern_covers("a.example.com", "*.example.com"));
	assert_false(host_pattern_covers("example.com", "a.example.com"));
}

static const struct { const char *method, *path, *route, *param; } found[] = {
	{ "GET", "/v1/health", "health", NULL }, { "HEAD", "/v1/health", "health", NULL },
	{ "POST", "/v1/sandboxes/b%6fx/run", "process_run", "box" }, { "GET", "/v1/sandboxes/a%2Fb", "sandbox_get", "a/b" },
	{ "GET", "/v1/sandboxes/x/processes/1/output", "process_output", "x" },
	{ "GET", "/v1/sandboxes/x/processes/1/output/stdout", "process_bytes", "x" },
	{ "TRACE", "/v1/health", NULL, NULL }, { "POST", "/v1/health", NULL, NULL }, { "GET", "/v1/whoami", NULL, NULL },
	{ "GET", "/v1/sandboxes/", NULL, NULL }, { "GET", "/v1/health/", NULL, NULL }, { "GET", "//v1/health", NULL, NULL },
	{ "GET", "/v1/sandboxes/%zz", NULL, NULL }, { "GET", "/v1/sandboxes/%00", NULL, NULL }, { "GET", "/v1/sandboxes/%2", NULL, NULL },
	{ "GET", "", NULL, NULL }, { "get", "/v1/health", NULL, NULL },
};

static void routes_are_found_by_method_and_path(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(found); i++) {
		struct route_match m;
		bool r = route_find(found[i].method, found[i].path, &m);
		if (r != (found[i].route != NULL))
			fail_msg("%s %s gave %d", found[i].method, found[i].path, r);
		if (!r)
			continue;
		assert_string_equal(m.route->name, found[i].route);
		if (found[i].param)
			assert_string_equal(route_param(&m, "ref"), found[i].param);
	}
}

static void percent_text_is_decoded_once(void **state)
{
	char out[32];
	size_t n;
	_cleanup_free_ char *enc = percent_encode("a/b%+ \xff", 7, "/");

	(void)state;
	assert_string_equal(enc, "a/b%25%2B%20%FF");
	assert_int_equal(percent_decode(enc, strlen(enc), out, sizeof(out), &n), 0);
	assert_memory_equal(out, "a/b%+ \xff", 7);
	assert_int_equal(percent_decode("%252e", 5, out, sizeof(out), &n), 0);
	assert_string_equal(out, "%2e");
	assert_int_equal(percent_decode("%", 1, out, sizeof(out), &n), -1);
	assert_int_equal(percent_decode("%4", 2, out, sizeof(out), &n), -1);
	assert_int_equal(percent_decode("%00", 3, out, sizeof(out), &n), -1);
	assert_int_equal(percent_decode("abcd", 4, out, 4, &n), -1);
}

static void errors_keep_their_code_and_gain_a_prefix(void **state)
{
	struct err e = ERR_NULL;

	(void)state;
	assert_int_equal(err_sys(&e, 30 /* EROFS */, "write /x"), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	assert_non_null(strstr(e.msg, "read-only"));
	err_prefix(&e, "box: ");
	assert_memory_equal(e.msg, "box: write", 10);
	assert_int_equal(err_http(&e), 409);
	assert_string_equal(err_errno_name(e.sys), "EROFS");
	assert_int_equal(err_errno_of_name("EROFS"), 30);
	assert_int_equal(err_code_of_word("forbidden_origin"), ERR_FORBIDDEN_ORIGIN);
	assert_int_equal(err_code_of_word("nonsense"), ERR_INTERNAL);
}

static void what_a_terminal_shows_is_known(void **state)
{
	static const struct {
		const char *text;
		size_t len, is;
	} rows[] = {
		{ "a", 1, 1 }, { " ", 1, 1 }, { "\303\244", 2, 2 }, { "\342\202\254", 3, 3 }, { "\360\237\230\200", 4, 4 },
		{ "\302\240", 2, 2 }, { "", 0, 0 }, { "\0", 1, 0 }, { "\033", 1, 0 }, { "\n", 1, 0 }, { "\177", 1, 0 },
		{ "\302\233", 2, 0 }, { "\302\200", 2, 0 }, { "\233", 1, 0 }, { "\303", 1, 0 }, { "\300\257", 2, 0 },
		{ "\355\240\200", 3, 0 }, { "\342\202\254", 2, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(printable_one(rows[i].text, rows[i].len), rows[i].is);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(identifiers_follow_their_rules), cmocka_unit_test(new_ids_are_ids),
		cmocka_unit_test(guest_paths_are_cleaned_or_refused), cmocka_unit_test(host_names_are_cleaned_or_refused),
		cmocka_unit_test(patterns_end_at_a_label), cmocka_unit_test(routes_are_found_by_method_and_path),
		cmocka_unit_test(percent_text_is_decoded_once), cmocka_unit_test(what_a_terminal_shows_is_known), cmocka_unit_test(errors_keep_their_code_and_gain_a_prefix),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
