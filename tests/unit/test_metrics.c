/* SPDX-License-Identifier: MIT */
/* The ring of samples: what readings of the kernel become. Pure; no clock, no broker. */
#include "tests/support/test.h"

#include "common/json/json.h"
#include "sandboxd/core/core_internal.h"
#include "sandboxd/core/metrics.h"

#include <string.h>

#define SECOND 1000000000LL
#define MIB    (1024 * 1024)

/* A reading at so many seconds after the start, a gigabyte of limit. */
static struct metrics_read at(double seconds, double cpu_seconds)
{
	return (struct metrics_read){ .mono_ns = (int64_t)(seconds * SECOND),
		.wall_ns = 1700000000 * SECOND + (int64_t)(seconds * SECOND),
		.meter = { .cpu_ns = (int64_t)(cpu_seconds * SECOND),
			.memory_bytes = 8 * MIB,
			.memory_limit_bytes = 1024 * MIB,
			.disk_read_bytes = 0,
			.disk_write_bytes = 0,
			.processes = 1 } };
}

static struct sample newest(const struct metrics *m)
{
	struct sample s;

	assert_true(metrics_get(m, metrics_len(m) - 1, &s));
	return s;
}

/* --- processor time -------------------------------------------------------------------------- */

static const struct cpu_row {
	const char *name;
	double cpus, used; /* processor seconds within five seconds */
	double want;       /* percent */
} cpu_rows[] = {
	{ "an idle sandbox uses nothing", 1, 0, 0 },
	{ "one of one processor is all", 1, 5, 100 },
	{ "one of two processors is half", 2, 5, 50 },
	{ "a quarter of a processor, used up, is all of what was given", 0.25, 1.25, 100 },
	{ "more than was given is still all", 1, 9, 100 },
	{ "time that runs backwards is none", 1, -2, 0 },
	{ "a hundredth of a percent is seen", 1, 0.0005, 0.01 },
};

static void check_cpu(void **state)
{
	const struct cpu_row *row = *state;
	struct metrics *m = metrics_new();
	struct metrics_read a = at(0, 100), b = at(5, 100 + row->used);

	assert_true(metrics_add(m, &a, row->cpus));
	assert_true(newest(m).cpu_percent == 0); /* whatever was used before */
	assert_true(metrics_add(m, &b, row->cpus));
	assert_true(newest(m).cpu_percent > row->want - 0.006);
	assert_true(newest(m).cpu_percent < row->want + 0.006);
	metrics_free(m);
}

static void a_sleep_is_not_counted(void **state)
{
	struct metrics *m = metrics_new();
	struct metrics_read r;

	(void)state;
	r = at(0, 0);
	metrics_add(m, &r, 1);
	r = at(5, 5);
	metrics_add(m, &r, 1);
	metrics_pause(m);
	r = at(1005, 5.5); /* the first look after it is no sample */
	assert_true(metrics_add(m, &r, 1));
	assert_int_equal(metrics_len(m), 2);
	r = at(1010, 8);
	metrics_add(m, &r, 1);
	assert_int_equal(metrics_len(m), 3);
	assert_true(newest(m).cpu_percent == 50);
	metrics_free(m);
}

static void unreadable_processor_time_leaves_a_sample_and_no_wrong_share(void **state)
{
	struct metrics *m = metrics_new();
	struct metrics_read r = at(0, 0);

	(void)state;
	metrics_add(m, &r, 1);
	r = at(5, 0);
	r.meter.cpu_ns = -1;
	metrics_add(m, &r, 1);
	assert_int_equal(metrics_len(m), 2);
	r = at(10, 5); /* half of the ten seconds since it was last known */
	metrics_add(m, &r, 1);
	assert_true(newest(m).cpu_percent == 50);
	metrics_free(m);
}

static void whether_it_ran_is_known_from_its_processor_time(void **state)
{
	struct metrics *m = metrics_new();
	struct metrics_read r = at(0, 1);

	(void)state;
	assert_true(metrics_ran(m, r.meter.cpu_ns)); /* never read yet */
	metrics_add(m, &r, 1);
	assert_false(metrics_ran(m, r.meter.cpu_ns));
	assert_true(metrics_ran(m, r.meter.cpu_ns + 1));
	assert_true(metrics_ran(m, -1));
	metrics_free(m);
}

/* --- counters -------------------------------------------------------------------------------- */

static const struct counter_row {
	const char *name;
	int64_t raw[4], want[4]; /* as read; as shown */
} counter_rows[] = {
	{ "a counter is shown as it is", { 10, 20, 30, 40 }, { 10, 20, 30, 40 } },
	{ "a counter that falls holds", { 100, 30, 30, 40 }, { 100, 100, 100, 110 } },
	{ "a counter that starts again goes on from where it was", { 100, 0, 50, 60 },
		{ 100, 100, 150, 160 } },
	{ "a failed read keeps the value", { 100, -1, 120, -1 }, { 100, 100, 120, 120 } },
	{ "a failed first read is nothing", { -1, -1, 5, 6 }, { 0, 0, 5, 6 } },
	{ "more than 32 bits", { 5000000000, 6000000000, 1LL << 45, 1LL << 50 },
		{ 5000000000, 6000000000, 1LL << 45, 1LL << 50 } },
};

static void check_counter(void **state)
{
	const struct counter_row *row = *state;
	struct metrics *m = metrics_new();

	for (int i = 0; i < 4; i++) {
		struct metrics_read r = at(5 * i, 0);
		r.meter.disk_read_bytes = r.meter.disk_write_bytes = row->raw[i];
		r.net_rx_bytes = r.net_tx_bytes = row->raw[i];
		assert_true(metrics_add(m, &r, 1));
		assert_int_equal(newest(m).disk_read_bytes, row->want[i]);
		assert_int_equal(newest(m).disk_write_bytes, row->want[i]);
		assert_int_equal(newest(m).net_rx_bytes, row->want[i]);
		assert_int_equal(newest(m).net_tx_bytes, row->want[i]);
	}
	metrics_free(m);
}

static void failed_reads_keep_memory_and_processes(void **state)
{
	struct metrics *m = metrics_new();
	struct metrics_read r = at(0, 0);

	(void)state;
	r.meter.processes = 7;
	metrics_add(m, &r, 1);
	r = at(5, 0);
	r.meter.memory_bytes = r.meter.memory_limit_bytes = r.meter.processes = -1;
	metrics_add(m, &r, 1);
	assert_int_equal(newest(m).memory_bytes, 8 * MIB);
	assert_int_equal(newest(m).memory_limit_bytes, 1024LL * MIB);
	assert_int_equal(newest(m).processes, 7);
	metrics_free(m);
}

static void memory_is_never_above_its_limit(void **state)
{
	struct metrics *m = metrics_new();
	struct metrics_read r = at(0, 0);

	(void)state;
	r.meter.memory_bytes = 1025LL * MIB;
	metrics_add(m, &r, 1);
	assert_int_equal(newest(m).memory_bytes, 1024LL * MIB);
	metrics_free(m);
}

/* --- time and the ring ----------------------------------------------------------------------- */

static void times_increase_whatever_the_clock_does(void **state)
{
	static const int64_t steps[] = { 0, 5, -3600, 1, 7200, 7200 };
	struct metrics *m = metrics_new();
	struct sample a, b;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		struct metrics_read r = at(5.0 * (double)i, 0);
		r.wall_ns = (1700000000 + steps[i]) * SECOND;
		metrics_add(m, &r, 1);
	}
	for (size_t i = 1; i < metrics_len(m); i++) {
		assert_true(metrics_get(m, i - 1, &a) && metrics_get(m, i, &b));
		assert_true(b.time_ns > a.time_ns);
	}
	metrics_free(m);
}

static void only_the_last_hour_is_kept(void **state)
{
	struct metrics *m = metrics_new();
	struct sample s;

	(void)state;
	for (int i = 0; i < 2 * METRICS_KEPT + 100; i++) {
		struct metrics_read r = at(5.0 * i, 0);
		r.meter.disk_read_bytes = i;
		assert_true(metrics_add(m, &r, 1));
	}
	assert_int_equal(metrics_len(m), METRICS_KEPT);
	for (int i = 0; i < METRICS_KEPT; i++) {
		assert_true(metrics_get(m, (size_t)i, &s));
		assert_int_equal(s.disk_read_bytes, METRICS_KEPT + 100 + i);
	}
	assert_false(metrics_get(m, METRICS_KEPT, &s));
	metrics_free(m);
}

/* --- as shown -------------------------------------------------------------------------------- */

static json_t *shown(struct metrics *m, uint64_t last)
{
	struct sandbox s = { .metrics = m };
	_cleanup_free_ char *text = NULL;
	json_t *v;

	pthread_mutex_init(&s.lock, NULL);
	text = metrics_text(&s, last);
	pthread_mutex_destroy(&s.lock);
	assert_non_null(text);
	v = json_loads(text, 0, NULL);
	assert_non_null(v);
	assert_int_equal(json_integer_value(json_object_get(v, "interval_secs")), 5);
	return v;
}

static int64_t number(const json_t *o, const char *key)
{
	assert_true(json_is_integer(json_object_get(o, key)));
	return json_integer_value(json_object_get(o, key));
}

static void a_sample_is_shown_with_every_field(void **state)
{
	struct metrics *m = metrics_new();
	struct metrics_read r = at(0, 0);
	json_t *v, *s;

	(void)state;
	r.net_rx_bytes = 1;
	r.net_tx_bytes = 2;
	r.meter.disk_read_bytes = 3;
	r.meter.disk_write_bytes = 4;
	r.meter.processes = 5;
	metrics_add(m, &r, 1);
	v = shown(m, 0);
	s = json_array_get(json_object_get(v, "samples"), 0);
	assert_string_equal(
		json_string_value(json_object_get(s, "time")), "2023-11-14T22:13:20.000000Z");
	assert_true(json_number_value(json_object_get(s, "cpu_percent")) == 0);
	assert_int_equal(number(s, "memory_bytes"), 8 * MIB);
	assert_int_equal(number(s, "memory_limit_bytes"), 1024LL * MIB);
	assert_int_equal(number(s, "net_rx_bytes"), 1);
	assert_int_equal(number(s, "net_tx_bytes"), 2);
	assert_int_equal(number(s, "disk_read_bytes"), 3);
	assert_int_equal(number(s, "disk_write_bytes"), 4);
	assert_int_equal(number(s, "processes"), 5);
	assert_int_equal(json_object_size(s), 9);
	json_decref(v);
	metrics_free(m);
}

static void processes_that_cannot_be_seen_are_not_shown(void **state)
{
	struct metrics *m = metrics_new();
	struct metrics_read r = at(0, 0);
	json_t *v;

	(void)state;
	r.meter.processes = -1;
	metrics_add(m, &r, 1);
	v = shown(m, 0);
	assert_null(json_object_get(json_array_get(json_object_get(v, "samples"), 0), "processes"));
	json_decref(v);
	metrics_free(m);
}

static void the_newest_can_be_asked_for_alone(void **state)
{
	static const struct {
		uint64_t last;
		size_t want;
	} rows[] = { { 0, 9 }, { 1, 1 }, { 4, 4 }, { 9, 9 }, { 100, 9 } };
	struct metrics *m = metrics_new();
	json_t *v, *list;

	(void)state;
	for (int i = 0; i < 9; i++) {
		struct metrics_read r = at(5 * i, 0);
		r.meter.disk_read_bytes = i;
		metrics_add(m, &r, 1);
	}
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		v = shown(m, rows[i].last);
		list = json_object_get(v, "samples");
		assert_int_equal(json_array_size(list), rows[i].want);
		assert_int_equal(
			number(json_array_get(list, rows[i].want - 1), "disk_read_bytes"), 8);
		json_decref(v);
	}
	metrics_free(m);
}

static void without_samples_the_list_is_empty(void **state)
{
	json_t *v = shown(NULL, 0);

	(void)state;
	assert_true(json_is_array(json_object_get(v, "samples")));
	assert_int_equal(json_array_size(json_object_get(v, "samples")), 0);
	json_decref(v);
}

int main(void)
{
	static const struct CMUnitTest single[] = {
		cmocka_unit_test(a_sleep_is_not_counted),
		cmocka_unit_test(unreadable_processor_time_leaves_a_sample_and_no_wrong_share),
		cmocka_unit_test(whether_it_ran_is_known_from_its_processor_time),
		cmocka_unit_test(failed_reads_keep_memory_and_processes),
		cmocka_unit_test(memory_is_never_above_its_limit),
		cmocka_unit_test(times_increase_whatever_the_clock_does),
		cmocka_unit_test(only_the_last_hour_is_kept),
		cmocka_unit_test(a_sample_is_shown_with_every_field),
		cmocka_unit_test(processes_that_cannot_be_seen_are_not_shown),
		cmocka_unit_test(the_newest_can_be_asked_for_alone),
		cmocka_unit_test(without_samples_the_list_is_empty),
	};
	struct CMUnitTest tests[ARRAY_LEN(single) + ARRAY_LEN(cpu_rows) + ARRAY_LEN(counter_rows)];
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(cpu_rows); i++)
		tests[n++] = (struct CMUnitTest){ .name = cpu_rows[i].name,
			.test_func = check_cpu,
			.initial_state = (void *)(uintptr_t)&cpu_rows[i] };
	for (size_t i = 0; i < ARRAY_LEN(counter_rows); i++)
		tests[n++] = (struct CMUnitTest){ .name = counter_rows[i].name,
			.test_func = check_counter,
			.initial_state = (void *)(uintptr_t)&counter_rows[i] };
	memcpy(&tests[n], single, sizeof(single));
	cmocka_set_test_filter(getenv("T"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
