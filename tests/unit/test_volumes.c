/* SPDX-License-Identifier: MIT */
/* Volumes (node contract, 18) as the core decides about them, on a backend that only counts. */
#include "tests/support/double.h"

#include "sandboxd/core/volumes.h"

static struct double_rig *const rig = &double_rig;
static struct double_world *const w = &double_world;

#define NAME(s) ((char *)(uintptr_t)(s))

static enum err_code make(const char *name, int64_t size)
{
	struct volume_body b = { .name = NAME(name), .size_mb = size };
	struct err e = ERR_NULL;
	json_t *o = NULL;

	if (volumes_create(rig->core, &b, &o, &e) < 0)
		return e.code;
	assert_string_equal(json_string_value(json_object_get(o, "name")), name);
	json_decref(o);
	return ERR_NONE;
}

static enum err_code delete (const char *name) {
	struct err e = ERR_NULL;

	return volumes_delete(rig->core, name, &e) < 0 ? e.code : ERR_NONE;
}

static enum err_code mount(const char *name, bool read_only, struct sandbox **ret)
{
	struct volume_mount_body m = { NAME(name), NAME("/data"), read_only };
	struct create_body b = { .volumes = { &m, 1 } };
	struct err e = ERR_NULL;

	return sandbox_create(rig->core, &b, NULL, NULL, ret, &e) < 0 ? e.code : ERR_NONE;
}

static void end(struct sandbox *s)
{
	assert_int_equal(sandbox_terminate(s, "request", NULL), 0);
	sandbox_unref(s);
}

/* Who the listing says holds it; "" for nobody, NULL when it is not listed. */
static const char *holder(const char *name)
{
	static char id[SBX_ID_MAX];
	_cleanup_json_ json_t *all = volumes_json(rig->core);
	const char *got = NULL;
	json_t *v;
	size_t i;

	json_array_foreach (all, i, v)
		if (!strcmp(json_string_value(json_object_get(v, "name")), name)) {
			const char *h = json_string_value(json_object_get(v, "attached_to"));
			snprintf(id, sizeof(id), "%s", h ? h : "");
			got = id;
		}
	return got;
}

static unsigned there(void)
{
	unsigned n = 0;

	for (size_t i = 0; i < DOUBLE_MAX; i++)
		n += w->volumes[i];
	return n;
}

static void bodies_are_checked_in_order(void **state)
{
	static const struct {
		const char *name;
		int64_t size;
		enum err_code want;
	} rows[] = {
		{ "good", 64, ERR_NONE },
		{ "good", 64, ERR_CONFLICT },
		{ "good", -1, ERR_INVALID_REQUEST },
		{ "Bad_Name", 64, ERR_INVALID_REQUEST },
		{ "", 64, ERR_INVALID_REQUEST },
		{ NULL, 64, ERR_INVALID_REQUEST },
		{ "sbx_0000000000000000", 64, ERR_INVALID_REQUEST },
		{ "negative", -1, ERR_INVALID_REQUEST },
		{ "big", 102401, ERR_INVALID_REQUEST },
		{ "biggest", 102400, ERR_NONE },
		{ "usual", 0, ERR_NONE },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (make(rows[i].name, rows[i].size) != rows[i].want)
			fail_msg("row %zu", i);
	assert_int_equal(there(), 3);
	assert_int_equal(delete ("none"), ERR_NOT_FOUND);
	assert_int_equal(delete ("Bad_Name"), ERR_NOT_FOUND);
	assert_int_equal(delete ("good"), ERR_NONE);
	assert_int_equal(delete ("good"), ERR_NOT_FOUND);
	assert_int_equal(there(), 2);
}

static void the_list_is_by_name_and_sizes_have_a_default(void **state)
{
	static const char *const names[] = { "b", "c", "a" };
	_cleanup_json_ json_t *all = NULL;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		assert_int_equal(make(names[i], 0), ERR_NONE);
	all = volumes_json(rig->core);
	assert_int_equal(json_array_size(all), 3);
	for (size_t i = 0; i < 3; i++) {
		const json_t *v = json_array_get(all, i);
		char want[2] = { (char)('a' + i), '\0' };
		assert_string_equal(json_string_value(json_object_get(v, "name")), want);
		assert_int_equal(json_integer_value(json_object_get(v, "size_mb")),
			rig->policy.limits.default_disk_mb);
		assert_non_null(json_object_get(v, "created_at"));
	}
}

static void a_volume_that_cannot_be_made_leaves_nothing(void **state)
{
	(void)state;
	w->fail_volumes = 1;
	assert_int_equal(make("v", 1), ERR_INTERNAL);
	assert_null(holder("v"));
	assert_int_equal(there(), 0);
	assert_int_equal(make("v", 1), ERR_NONE);
}

static void one_writer_or_many_readers(void **state)
{
	struct sandbox *a, *b, *none;

	(void)state;
	make("v", 1);
	assert_int_equal(mount("unknown", false, &none), ERR_NOT_FOUND);
	assert_int_equal(mount("v", false, &a), ERR_NONE);
	assert_string_equal(holder("v"), a->id);
	assert_int_equal(mount("v", false, &none), ERR_CONFLICT);
	assert_int_equal(mount("v", true, &none), ERR_CONFLICT);
	assert_int_equal(delete ("v"), ERR_CONFLICT);
	end(a);
	assert_string_equal(holder("v"), "");
	assert_int_equal(mount("v", true, &a), ERR_NONE);
	assert_int_equal(mount("v", true, &b), ERR_NONE);
	assert_int_equal(mount("v", false, &none), ERR_CONFLICT);
	end(a);
	assert_string_equal(holder("v"), b->id);
	assert_int_equal(delete ("v"), ERR_CONFLICT);
	end(b);
	assert_int_equal(delete ("v"), ERR_NONE);
}

static void a_create_that_fails_gives_its_volume_back(void **state)
{
	struct sandbox *s;

	(void)state;
	make("v", 1);
	w->fail_creates = 1;
	assert_int_equal(mount("v", false, &s), ERR_INTERNAL);
	assert_string_equal(holder("v"), "");
	assert_int_equal(mount("v", false, &s), ERR_NONE);
	end(s);
}

static void *end_thread(void *arg)
{
	sandbox_terminate(arg, "request", NULL);
	return NULL;
}

static bool is_terminated(void *arg)
{
	struct sandbox *s = arg;
	bool is;

	pthread_mutex_lock(&s->lock);
	is = s->state == SBX_TERMINATED;
	pthread_mutex_unlock(&s->lock);
	return is;
}

/* Its record says terminated, but its processes may still write. */
static void a_volume_is_free_when_no_process_of_its_holder_runs(void **state)
{
	struct sandbox *s, *next;
	pthread_t t;

	(void)state;
	make("v", 1);
	assert_int_equal(mount("v", false, &s), ERR_NONE);
	double_set(&w->hold_end, true);
	assert_int_equal(pthread_create(&t, NULL, end_thread, s), 0);
	double_wait(is_terminated, s);
	assert_int_equal(mount("v", false, &next), ERR_CONFLICT);
	assert_int_equal(delete ("v"), ERR_CONFLICT);
	double_set(&w->hold_end, false);
	pthread_join(t, NULL);
	assert_int_equal(mount("v", false, &next), ERR_NONE);
	end(next);
	sandbox_unref(s);
}

static void a_holder_that_could_not_be_ended_holds_on(void **state)
{
	struct sandbox *s, *next;

	(void)state;
	make("v", 1);
	assert_int_equal(mount("v", false, &s), ERR_NONE);
	double_fail_ends(1000); /* it is tried again behind our back */
	assert_int_equal(sandbox_terminate(s, "request", NULL), -1);
	assert_string_equal(holder("v"), s->id);
	assert_int_equal(mount("v", false, &next), ERR_CONFLICT);
	double_fail_ends(0);
	end(s);
	assert_int_equal(mount("v", false, &next), ERR_NONE);
	end(next);
}

#define RACERS 8
static struct sandbox *got[RACERS];
static enum err_code codes[RACERS];

static void *mount_thread(void *arg)
{
	size_t i = (size_t)(uintptr_t)arg;

	codes[i] = mount("v", false, &got[i]);
	return NULL;
}

static void of_many_creates_for_one_volume_one_gets_it(void **state)
{
	pthread_t t[RACERS];
	unsigned won = 0;

	(void)state;
	make("v", 1);
	for (size_t i = 0; i < RACERS; i++)
		assert_int_equal(
			pthread_create(&t[i], NULL, mount_thread, (void *)(uintptr_t)i), 0);
	for (size_t i = 0; i < RACERS; i++)
		pthread_join(t[i], NULL);
	for (size_t i = 0; i < RACERS; i++) {
		if (codes[i] == ERR_NONE) {
			won++;
			end(got[i]);
		} else {
			assert_int_equal(codes[i], ERR_CONFLICT);
		}
	}
	assert_int_equal(won, 1);
}

static void *make_thread(void *arg)
{
	codes[(uintptr_t)arg] = make("same", 1);
	return NULL;
}

static void of_many_that_make_one_volume_one_does(void **state)
{
	pthread_t t[RACERS];
	unsigned won = 0;

	(void)state;
	for (size_t i = 0; i < RACERS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, make_thread, (void *)(uintptr_t)i), 0);
	for (size_t i = 0; i < RACERS; i++)
		pthread_join(t[i], NULL);
	for (size_t i = 0; i < RACERS; i++)
		won += codes[i] == ERR_NONE;
	assert_int_equal(won, 1);
	assert_int_equal(there(), 1);
}

static void volumes_survive_and_their_holders_are_what_there_is(void **state)
{
	struct sandbox *s, *other;
	char id[SBX_ID_MAX];
	struct err e = ERR_NULL;

	(void)state;
	make("held", 1);
	make("free", 1);
	assert_int_equal(mount("held", false, &s), ERR_NONE);
	memcpy(id, s->id, sizeof(id));
	sandbox_unref(s);
	double_restart(rig, true, true);
	assert_string_equal(holder("held"), id);
	assert_string_equal(holder("free"), "");
	assert_int_equal(there(), 2);
	assert_int_equal(mount("held", true, &other), ERR_CONFLICT);
	assert_int_equal(sandbox_find(rig->core, id, &s, &e), 0);
	assert_int_equal(s->nvolumes, 1);
	assert_string_equal(s->volumes[0].at.path, "/data");
	end(s);
	assert_int_equal(mount("held", true, &other), ERR_NONE);
	sandbox_unref(other);
	/* not kept: the holder ends, the volume stays */
	double_restart(rig, false, false);
	assert_string_equal(holder("held"), "");
	assert_int_equal(there(), 2);
	make("third", 1);
	assert_int_equal(there(), 3); /* none got another's number */
}

/* More are made, in the life of a server, than there are numbers. */
static void numbers_come_round_and_none_has_two(void **state)
{
	char name[16];

	(void)state;
	assert_int_equal(make("stays", 1), ERR_NONE);
	assert_int_equal(make("left", 1), ERR_NONE);
	w->fail_drops = 1;
	assert_int_equal(delete ("left"), ERR_NONE); /* its content stays, and so its number */
	assert_int_equal(there(), 2);
	for (int i = 0; i < DOUBLE_MAX + 8; i++) {
		assert_int_equal(make("v", 1), ERR_NONE);
		assert_int_equal(there(), 3);
		assert_int_equal(delete ("v"), ERR_NONE);
	}
	double_restart(rig, true, true);
	assert_int_equal(there(), 1); /* swept */
	for (int i = 2; i < DOUBLE_MAX; i++) {
		snprintf(name, sizeof(name), "v%d", i);
		assert_int_equal(make(name, 1), ERR_NONE);
	}
	assert_int_equal(make("more", 1), ERR_UNAVAILABLE);
	assert_null(holder("more"));
	assert_int_equal(delete ("v300"), ERR_NONE);
	assert_int_equal(make("more", 1), ERR_NONE);
}

static void shapes_of_mounts_are_checked_before_anything_else(void **state)
{
	static const struct {
		const char *name[2], *path[2], *snapshot;
		int64_t every;
		enum err_code want;
	} rows[] = {
		{ { "v" }, { "/usr/local" }, NULL, 0, ERR_INVALID_REQUEST },
		{ { "v" }, { "/tmp/cache" }, NULL, 0, ERR_INVALID_REQUEST },
		{ { "v" }, { "/proc/x" }, NULL, 0, ERR_INVALID_REQUEST },
		{ { "v" }, { "/etc" }, NULL, 0, ERR_INVALID_REQUEST },
		{ { "v" }, { "data" }, NULL, 0, ERR_INVALID_REQUEST },
		{ { "v" }, { "/data/../etc" }, NULL, 0, ERR_INVALID_REQUEST },
		{ { "v" }, { "/data/" }, NULL, 0, ERR_INVALID_REQUEST },
		{ { "v" }, { "/" }, NULL, 0, ERR_INVALID_REQUEST },
		{ { "v", "w" }, { "/data", "/data/inner" }, NULL, 0, ERR_INVALID_REQUEST },
		{ { "v", "w" }, { "/data/inner", "/data" }, NULL, 0, ERR_INVALID_REQUEST },
		{ { "v", "v" }, { "/a", "/b" }, NULL, 0, ERR_INVALID_REQUEST },
		{ { "Bad_Name" }, { "/data" }, NULL, 0, ERR_INVALID_REQUEST },
		{ { "none" }, { "/data" }, NULL, 0, ERR_NOT_FOUND },
		{ { "v" }, { "/data" }, NULL, 1, ERR_CONFLICT }, /* a schedule */
		{ { "none" }, { "/data" }, NULL, 1, ERR_CONFLICT },
		{ { "v" }, { "/data" }, "snp_0000000000000000", 0, ERR_NOT_FOUND },
	};

	(void)state;
	make("v", 1);
	make("w", 1);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct volume_mount_body m[2] = {
			{ NAME(rows[i].name[0]), NAME(rows[i].path[0]), false },
			{ NAME(rows[i].name[1]), NAME(rows[i].path[1]), false },
		};
		struct create_body b = { .volumes = { m, rows[i].name[1] ? 2 : 1 },
			.snapshot_id = NAME(rows[i].snapshot),
			.snapshot_every_secs = rows[i].every };
		struct sandbox *s = NULL;
		struct err e = ERR_NULL;
		assert_int_equal(sandbox_create(rig->core, &b, NULL, NULL, &s, &e), -1);
		if (e.code != rows[i].want)
			fail_msg("row %zu: %s", i, e.msg);
	}
	assert_string_equal(holder("v"), "");
}

static void a_created_event_names_the_mounts(void **state)
{
	struct sandbox *s;
	json_t *all = NULL, *v;
	struct err e = ERR_NULL;
	bool cut;

	(void)state;
	make("v", 1);
	assert_int_equal(mount("v", true, &s), ERR_NONE);
	assert_int_equal(audit_read(rig->core->audit, s->id, &all, &cut, &e), 0);
	v = json_array_get(json_object_get(json_array_get(all, 0), "volumes"), 0);
	assert_string_equal(json_string_value(json_object_get(v, "name")), "v");
	assert_string_equal(json_string_value(json_object_get(v, "path")), "/data");
	assert_true(json_is_true(json_object_get(v, "read_only")));
	assert_null(json_object_get(v, "num"));
	json_decref(all);
	end(s);
}

#define T(f) cmocka_unit_test_setup_teardown(f, double_setup, double_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(bodies_are_checked_in_order),
		T(the_list_is_by_name_and_sizes_have_a_default),
		T(a_volume_that_cannot_be_made_leaves_nothing),
		T(one_writer_or_many_readers),
		T(a_create_that_fails_gives_its_volume_back),
		T(a_volume_is_free_when_no_process_of_its_holder_runs),
		T(a_holder_that_could_not_be_ended_holds_on),
		T(of_many_creates_for_one_volume_one_gets_it),
		T(of_many_that_make_one_volume_one_does),
		T(volumes_survive_and_their_holders_are_what_there_is),
		T(numbers_come_round_and_none_has_two),
		T(shapes_of_mounts_are_checked_before_anything_else),
		T(a_created_event_names_the_mounts),
	};

	return run_table(tests);
}
