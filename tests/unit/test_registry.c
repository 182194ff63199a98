/* SPDX-License-Identifier: MIT */
/* Names, order and sums of the registry, without a server: sandboxes here have no runtime. */
#include "tests/support/test.h"

#include "sandboxd/core/core_internal.h"

static struct registry reg;

static int start(void **state)
{
	(void)state;
	registry_init(&reg);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	registry_fini(&reg);
	return 0;
}

static struct sandbox *make(const char *id, int64_t created)
{
	struct sandbox *s = sandbox_new(NULL, id);

	assert_non_null(s);
	s->created_ns = created;
	s->cpus = 0.5;
	s->memory_mb = 10;
	s->disk_mb = 100;
	return s;
}

static struct sandbox *claim(const char *id, int64_t created, const char *name)
{
	struct sandbox *s = make(id, created);
	struct err e = ERR_NULL;

	if (registry_claim(&reg, s, name, false, &e) < 0)
		fail_msg("%s", e.msg);
	return s;
}

static void assert_found(const char *ref, const struct sandbox *want)
{
	struct sandbox *s = registry_find(&reg, ref);

	assert_ptr_equal(s, want);
	sandbox_unref(s);
}

static void a_name_finds_the_live_one_then_the_newest_ended(void **state)
{
	struct sandbox *a = claim("sbx_000000000000000a", 1, "n"), *b, *c;

	(void)state;
	registry_land(&reg, a, NULL);
	assert_found("n", a);
	registry_end(&reg, a, true);
	assert_found("n", a);
	b = claim("sbx_000000000000000b", 2, "n");
	assert_found("n", b);
	registry_end(&reg, b, false);
	assert_found("n", b);
	c = claim("sbx_000000000000000c", 0, "n");
	assert_found("n", c);
	registry_end(&reg, c, false);
	assert_found("n", b); /* by the time of creation, not of ending */
	assert_found("sbx_000000000000000a", a);
	assert_found("sbx_000000000000000f", NULL);
	sandbox_unref(a);
	sandbox_unref(b);
	sandbox_unref(c);
}

static void a_taken_name_is_a_conflict_and_a_cordon_unavailable(void **state)
{
	struct sandbox *a = claim("sbx_000000000000000a", 1, "n"),
		       *b = make("sbx_000000000000000b", 2);
	struct err e = ERR_NULL;

	(void)state;
	assert_int_equal(registry_claim(&reg, b, "n", false, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	assert_found("sbx_000000000000000b", NULL);
	registry_cordon(&reg, true);
	assert_int_equal(registry_claim(&reg, b, "m", false, &e), -1);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_int_equal(registry_land(&reg, a, &e), -1);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_int_equal(registry_claim(&reg, b, "m", true, &e), 0);
	sandbox_unref(a);
	sandbox_unref(b);
}

static void a_rename_moves_the_name(void **state)
{
	struct sandbox *a = claim("sbx_000000000000000a", 1, "n"),
		       *b = claim("sbx_000000000000000b", 2, NULL);
	struct err e = ERR_NULL;

	(void)state;
	assert_int_equal(registry_rename(&reg, b, "n", &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	assert_int_equal(registry_rename(&reg, a, "m", &e), 0);
	assert_int_equal(registry_rename(&reg, a, "m", &e), 0);
	assert_int_equal(registry_rename(&reg, b, "n", &e), 0);
	assert_found("m", a);
	assert_found("n", b);
	assert_int_equal(registry_rename(&reg, a, "", &e), 0);
	assert_found("m", NULL);
	sandbox_unref(a);
	sandbox_unref(b);
}

/* As of a change of name and network that fails because the sandbox ends meanwhile. */
static void one_that_has_ended_gets_its_name_back(void **state)
{
	struct sandbox *a = claim("sbx_000000000000000a", 1, "n"), *b;
	struct err e = ERR_NULL;

	(void)state;
	assert_int_equal(registry_rename(&reg, a, "m", &e), 0);
	registry_end(&reg, a, false);
	assert_found("m", a);
	b = claim("sbx_000000000000000b", 2, "n");
	assert_int_equal(registry_rename(&reg, a, "n", &e), 0);
	assert_found("m", NULL);
	assert_found("n", b);
	registry_remove(&reg, b);
	assert_found("n", a);
	sandbox_unref(a);
	sandbox_unref(b);
}

static void what_is_given_away_comes_back(void **state)
{
	struct sandbox *a = claim("sbx_000000000000000a", 1, NULL),
		       *b = claim("sbx_000000000000000b", 2, NULL);
	struct registry_figures f;

	(void)state;
	registry_land(&reg, a, NULL);
	registry_figures(&reg, &f);
	assert_int_equal(f.live, 2);
	assert_int_equal(f.running, 1);
	assert_true(f.cpus == 1);
	assert_int_equal(f.memory_mb, 20);
	registry_end(&reg, a, true);
	registry_end(&reg, a, true); /* once only */
	registry_remove(&reg, b);
	registry_remove(&reg, b);
	registry_figures(&reg, &f);
	assert_int_equal(f.live, 0);
	assert_int_equal(f.running, 0);
	assert_int_equal(f.ended, 1);
	assert_true(f.cpus == 0);
	assert_int_equal(f.disk_mb, 0);
	sandbox_unref(a);
	sandbox_unref(b);
}

static void the_list_is_newest_first_and_ties_go_to_the_larger_id(void **state)
{
	static const char *const want[] = { "sbx_000000000000000c", "sbx_000000000000000b",
		"sbx_000000000000000a" };
	struct sandbox **all;
	size_t n;

	(void)state;
	sandbox_unref(claim(want[2], 5, NULL));
	sandbox_unref(claim(want[0], 9, NULL));
	sandbox_unref(claim(want[1], 5, NULL));
	assert_int_equal(registry_all(&reg, &all, &n), 0);
	assert_int_equal(n, 3);
	for (size_t i = 0; i < n; i++) {
		assert_string_equal(all[i]->id, want[i]);
		sandbox_unref(all[i]);
	}
	free(all);
}

int main(void)
{
#define ROW(fn) cmocka_unit_test_setup_teardown(fn, start, stop)
	const struct CMUnitTest tests[] = {
		ROW(a_name_finds_the_live_one_then_the_newest_ended),
		ROW(a_taken_name_is_a_conflict_and_a_cordon_unavailable),
		ROW(a_rename_moves_the_name),
		ROW(one_that_has_ended_gets_its_name_back),
		ROW(what_is_given_away_comes_back),
		ROW(the_list_is_newest_first_and_ties_go_to_the_larger_id),
	};
	return run_table(tests);
}
