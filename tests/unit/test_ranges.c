/* SPDX-License-Identifier: MIT */
/* Ranges of locks against a model: one kind a byte. */
#include "common/fs/ranges.h"
#include "tests/support/test.h"

#include <stdlib.h>
#include <string.h>

#define BYTES 48

static void agrees(const struct ranges *r, const char *model)
{
	char got[BYTES];

	memset(got, RANGE_NONE, sizeof(got));
	for (size_t i = 0; i < r->n; i++) {
		const struct range *g = &r->v[i];

		assert_true(g->from <= g->to && g->to < BYTES);
		if (i) { /* sorted, apart, and joined where they could be */
			assert_true(g[-1].to < g->from);
			assert_true(g[-1].to + 1 < g->from || g[-1].write != g->write);
		}
		memset(got + g->from, g->write ? RANGE_WRITE : RANGE_READ, g->to - g->from + 1);
	}
	assert_memory_equal(got, model, BYTES);
}

static const struct range *first(const char *model, uint64_t from, uint64_t to, bool write, struct range *at)
{
	for (uint64_t b = from; b <= to; b++)
		if (model[b] == RANGE_WRITE || (!write && model[b] == RANGE_READ)) {
			*at = (struct range){ b, b, model[b] == RANGE_WRITE };
			return at;
		}
	return NULL;
}

static void random_changes_agree_with_a_model(void **state)
{
	struct ranges r = { .v = NULL }, next;
	char model[BYTES] = { 0 };
	struct range at;

	(void)state;
	srand(7);
	for (int i = 0; i < 20000; i++) {
		uint64_t from = (uint64_t)rand() % BYTES, to = from + (uint64_t)rand() % (BYTES - from);
		enum range_kind kind = (enum range_kind)(rand() % 3);
		bool write = rand() % 2;
		const struct range *found = ranges_find(&r, from, to, write);
		const struct range *want = first(model, from, to, write, &at);

		assert_int_equal(found != NULL, want != NULL);
		assert_true(!found || (found->from <= at.from && found->to >= at.from && found->write == at.write));
		assert_int_equal(ranges_with(&r, from, to, kind, &next), 0);
		ranges_free(&r);
		r = next;
		memset(model + from, (int)kind, to - from + 1);
		agrees(&r, model);
	}
	ranges_free(&r);
}

static void the_last_byte_of_all_is_like_any_other(void **state)
{
	struct ranges r = { .v = NULL }, next;

	(void)state;
	assert_int_equal(ranges_with(&r, 0, INT64_MAX, RANGE_WRITE, &next), 0);
	assert_int_equal(next.n, 1);
	assert_int_equal(ranges_with(&next, 5, INT64_MAX, RANGE_NONE, &r), 0);
	assert_int_equal(r.n, 1);
	assert_int_equal(r.v[0].to, 4);
	assert_null(ranges_find(&r, 5, INT64_MAX, false));
	ranges_free(&next);
	assert_int_equal(ranges_with(&r, 0, INT64_MAX, RANGE_NONE, &next), 0);
	assert_int_equal(next.n, 0);
	ranges_free(&next);
	ranges_free(&r);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_changes_agree_with_a_model),
		cmocka_unit_test(the_last_byte_of_all_is_like_any_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
