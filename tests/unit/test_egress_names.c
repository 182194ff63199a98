/* SPDX-License-Identifier: MIT */
/* What an egress process thinks of names: cleaning, rules, and the addresses that stand for them.
 */
#include "tests/support/test.h"

#include "sandboxd/egress/names.h"
#include "sandboxd/egress/policy.h"

#include <errno.h>
#include <time.h>

/* --- cleaning -------------------------------------------------------------------------------- */

static void names_are_cleaned_or_refused(void **state)
{
	static const struct {
		const char *in, *want; /* NULL: refused */
	} rows[] = {
		{ "a.example.test", "a.example.test" },
		{ "A.B.EXAMPLE.TEST.", "a.b.example.test" },
		{ "_srv._tcp.x.test", "_srv._tcp.x.test" },
		{ "xn--bcher-kva.test", "xn--bcher-kva.test" },
		{ "localhost", "localhost" },
		{ "1e100.net", "1e100.net" },
		{ "", NULL },
		{ ".", NULL },
		{ "..", NULL },
		{ "a..b", NULL },
		{ ".a", NULL },
		{ "a.test..", NULL },
		{ "10.0.0.1", NULL },
		{ "a.1", NULL },
		{ "[::1]", NULL },
		{ "::1", NULL },
		{ "a b.test", NULL },
		{ "a/b", NULL },
		{ "a:80", NULL },
		{ "*.test", NULL },
		{ "b\xc3\xbc.test", NULL },
		{ "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.test", NULL },
	};
	char got[EGRESS_NAME_MAX + 1];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int r = name_clean(rows[i].in, strlen(rows[i].in), got);
		if (!rows[i].want && r == 0)
			fail_msg("\"%s\" was taken for \"%s\"", rows[i].in, got);
		if (rows[i].want && (r < 0 || strcmp(got, rows[i].want) != 0))
			fail_msg("\"%s\" was refused or became something else", rows[i].in);
	}
	assert_int_equal(name_clean("a\0b.test", 8, got), -EINVAL);
}

static void a_name_has_at_most_253_characters(void **state)
{
	char in[300], got[EGRESS_NAME_MAX + 1];

	(void)state;
	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = i % 2 ? '.' : 'a';
	assert_int_equal(name_clean(in, 253, got), 0);
	assert_int_equal(name_clean(in, 255, got), -EINVAL);
	assert_int_equal(name_clean(in, 254, got), 0); /* the last dot does not count */
}

/* --- rules ----------------------------------------------------------------------------------- */

static size_t pack(char *to, const char *const *names)
{
	size_t n = 0;

	for (; names && *names; names++) {
		strcpy(to + n, *names);
		n += strlen(*names) + 1;
	}
	return n;
}

static uint32_t count(const char *const *names)
{
	uint32_t n = 0;

	while (names && names[n])
		n++;
	return n;
}

static int make(
	enum egress_mode mode, const char *const *allow, const char *const *deny, struct policy *p)
{
	char block[4096];
	size_t n = pack(block, allow);
	struct egress_policy h = { .mode = mode, .nallow = count(allow), .ndeny = count(deny) };

	n += pack(block + n, deny);
	h.len = (uint32_t)n;
	return policy_parse(&h, block, p);
}

static const char *const allow_list[] = { "*.example.test", "plain.test", "both.test",
	"*.both.test", NULL };
static const char *const deny_list[] = { "both.test", "*.no.example.test", NULL };

static void a_pattern_ends_at_a_label(void **state)
{
	static const struct {
		const char *name;
		bool allowlist, open;
	} rows[] = {
		{ "a.example.test", true, true },
		{ "a.b.example.test", true, true },
		{ "example.test", false, true },
		{ "evilexample.test", false, true },
		{ "a.example.test.evil.test", false, true },
		{ "plain.test", true, true },
		{ "x.plain.test", false, true },
		{ "lain.test", false, true },
		{ "test", false, true },
		{ "both.test", false, false },
		{ "x.both.test", true, true },
		{ "no.example.test", true, true },
		{ "x.no.example.test", false, false },
		{ "y.x.no.example.test", false, false },
	};
	struct policy list, open, none;

	(void)state;
	assert_int_equal(make(EGRESS_ALLOWLIST, allow_list, deny_list, &list), 0);
	assert_int_equal(make(EGRESS_OPEN, NULL, deny_list, &open), 0);
	assert_int_equal(make(EGRESS_NONE, allow_list, NULL, &none), 0);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (policy_permits(&list, rows[i].name) != rows[i].allowlist ||
			policy_permits(&open, rows[i].name) != rows[i].open ||
			policy_permits(&none, rows[i].name))
			fail_msg("%s", rows[i].name);
	}
	assert_true(policy_has_rules(&list) && policy_has_rules(&open));
	policy_free(&list);
	policy_free(&open);
	policy_free(&none);
}

static void the_first_policy_permits_nothing(void **state)
{
	static const struct policy zero;

	(void)state;
	assert_false(policy_permits(&zero, "a.test"));
}

static void a_malformed_policy_is_refused(void **state)
{
	static const struct {
		uint32_t mode, nallow, ndeny, len;
		const char *block;
	} rows[] = {
		{ 3, 0, 0, 0, "" },
		{ 1, 1, 0, 0, "" },
		{ 1, 1, 0, 6, "a.test" },            /* no NUL within */
		{ 1, 1, 0, 14, "a.test\0b.test\0" }, /* one more than said */
		{ 1, 3, 0, 14, "a.test\0b.test\0" },
		{ 1, 1, 0, 7, "A.test\0" },
		{ 1, 1, 0, 2, "*\0" },
		{ 1, 1, 0, 3, "*.\0" },
		{ 1, 0, 1, 8, "a..test\0" },
		{ 1, 0xffffffff, 0, 7, "a.test\0" },
		{ 1, 0, 0, 0xffffffff, "" },
	};
	struct policy p;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct egress_policy h = { rows[i].mode, rows[i].nallow, rows[i].ndeny,
			rows[i].len };
		if (policy_parse(&h, rows[i].block, &p) == 0)
			fail_msg("row %zu was taken", i);
	}
}

/* 20,000 rules: what a lookup costs must not be what a walk costs. */
static void thousands_of_rules_are_looked_up(void **state)
{
	const uint32_t n = 20000;
	char *block = malloc(n * 32), name[64];
	struct egress_policy h = { .mode = EGRESS_ALLOWLIST, .nallow = n };
	struct policy p;
	clock_t start;

	(void)state;
	for (uint32_t i = 0; i < n; i++)
		h.len += (uint32_t)sprintf(block + h.len, i % 2 ? "h%u.test" : "*.w%u.test", i) + 1;
	assert_int_equal(policy_parse(&h, block, &p), 0);
	start = clock();
	for (uint32_t i = 0; i < n; i++) {
		snprintf(name, sizeof(name), i % 2 ? "h%u.test" : "a.b.w%u.test", i);
		assert_true(policy_permits(&p, name));
		snprintf(name, sizeof(name), "x%u.test", i);
		assert_false(policy_permits(&p, name));
	}
	assert_true(clock() - start < 2 * CLOCKS_PER_SEC);
	policy_free(&p);
	free(block);
}

/* --- placeholders ---------------------------------------------------------------------------- */

static void a_name_keeps_its_address(void **state)
{
	struct names t = { 0 };
	uint32_t a = names_give(&t, "a.test"), b = names_give(&t, "b.test");

	(void)state;
	assert_true(a && b && a != b);
	assert_int_equal(a & EGRESS_FAKE_MASK, EGRESS_FAKE_NET);
	assert_int_equal(names_give(&t, "a.test"), a);
	assert_string_equal(names_find(&t, a), "a.test");
	assert_null(names_find(&t, a + 77));
	assert_null(names_find(&t, 0x08080808));
	names_free(&t);
}

static void the_table_is_bounded_and_its_addresses_rest(void **state)
{
	struct names t = { 0 };
	uint32_t first = names_give(&t, "first.test"), kept = names_give(&t, "kept.test");
	char name[32];

	(void)state;
	for (int i = 0; i < 3 * NAMES_MAX; i++) {
		snprintf(name, sizeof(name), "n%d.test", i);
		uint32_t a = names_give(&t, name);
		assert_true(a != first && a != kept);
		assert_int_equal(names_give(&t, "kept.test"), kept);
		assert_true(t.n <= NAMES_MAX);
	}
	assert_null(names_find(&t, first));
	assert_string_equal(names_find(&t, kept), "kept.test");
	names_free(&t);
}

static void addresses_come_round_without_a_clash(void **state)
{
	struct names t = { 0 };
	uint32_t kept = names_give(&t, "kept.test");
	char name[32];

	(void)state;
	for (int i = 0; i < 140000; i++) {
		snprintf(name, sizeof(name), "n%d.test", i);
		uint32_t a = names_give(&t, name);
		if (a == kept || (a & EGRESS_FAKE_MASK) != EGRESS_FAKE_NET)
			fail_msg("%s got %x", name, a);
		if (i % 1000 == 0)
			names_give(&t, "kept.test");
	}
	assert_string_equal(names_find(&t, kept), "kept.test");
	names_free(&t);
}

static bool begins_with_a(const void *arg, const char *name)
{
	(void)arg;
	return name[0] == 'a';
}

static void forbidden_names_are_forgotten(void **state)
{
	struct names t = { 0 };
	uint32_t a = names_give(&t, "a.test"), b = names_give(&t, "b.test");

	(void)state;
	names_filter(&t, begins_with_a, NULL);
	assert_non_null(names_find(&t, a));
	assert_null(names_find(&t, b));
	assert_int_not_equal(names_give(&t, "b.test"), b);
	names_free(&t);
	names_filter(&t, begins_with_a, NULL);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_cleaned_or_refused),
		cmocka_unit_test(a_name_has_at_most_253_characters),
		cmocka_unit_test(a_pattern_ends_at_a_label),
		cmocka_unit_test(the_first_policy_permits_nothing),
		cmocka_unit_test(a_malformed_policy_is_refused),
		cmocka_unit_test(thousands_of_rules_are_looked_up),
		cmocka_unit_test(a_name_keeps_its_address),
		cmocka_unit_test(the_table_is_bounded_and_its_addresses_rest),
		cmocka_unit_test(addresses_come_round_without_a_clash),
		cmocka_unit_test(forbidden_names_are_forgotten),
	};

	return run_table(tests);
}
