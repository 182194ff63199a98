/* SPDX-License-Identifier: MIT */
/* Readers of spool files: what an honest shim writes comes out in order, and whatever a broken one
 * writes is bounded. */
#include "tests/unit/proc_box.h"

#include "common/json/json.h"

#include <sys/resource.h>

static struct proc *exited(struct box *b, struct proc *p)
{
	proc_watch.exited(&b->s, p->num);
	assert_true(proc_exited(p, NULL));
	return p;
}

/* Everything to the end as text: each piece in brackets, o or e first. */
static char *read_all(struct proc *p, size_t max, int *ret_code)
{
	struct proc_reader r;
	char *text = NULL, buf[64];
	size_t size = 0, n;
	FILE *f = open_memstream(&text, &size);
	int stream;
	enum proc_read got;

	proc_reader_init(&r, p);
	while ((got = proc_reader_next(&r, 0, &stream, buf, max, &n, ret_code)) == PROC_READ_DATA)
		fprintf(f, "[%c%.*s]", stream ? 'e' : 'o', (int)n, buf);
	fputs(got == PROC_READ_END ? "." : "?", f);
	fclose(f);
	proc_reader_fini(&r);
	return text;
}

#define assert_reads(p, max, want, want_code)                                                      \
	do {                                                                                       \
		int code_ = 4711;                                                                  \
		char *text_ = read_all((p), (max), &code_);                                        \
		assert_string_equal(text_, (want));                                                \
		if (strchr((want), '.'))                                                           \
			assert_int_equal(code_, (want_code));                                      \
		free(text_);                                                                       \
	} while (0)

static void streams_come_in_the_order_they_were_written(void **state)
{
	struct box *b = box_new();
	struct proc *p = box_proc(b, NULL, false);
	struct hand w = hand_open(b, p);

	(void)state;
	assert_reads(p, 64, "?", 0);
	hand_put(&w, 0, "one", 3);
	hand_put(&w, 0, "two", 3);
	assert_reads(p, 64, "[oonetwo]?", 0);
	hand_put(&w, 1, "err", 3);
	hand_put(&w, 0, "three", 5);
	assert_reads(p, 64, "[oonetwo][eerr][othree]?", 0);
	hand_exit(&w, 3);
	assert_reads(p, 64, "[oonetwo][eerr][othree]?", 0); /* not before it is visible */
	exited(b, p);
	assert_reads(p, 64, "[oonetwo][eerr][othree].", 3);
	assert_reads(p, 2, "[oon][oet][owo][eer][er][oth][ore][oe].", 3);
	box_free(b);
}

static void a_reader_of_a_growing_run_gets_each_byte_once(void **state)
{
	struct box *b = box_new();
	struct proc *p = box_proc(b, NULL, false);
	struct hand w = hand_open(b, p);
	struct proc_reader r;
	char buf[8];
	size_t n;
	int stream, code;

	(void)state;
	proc_reader_init(&r, p);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(
			proc_reader_next(&r, 0, &stream, buf, 8, &n, &code), PROC_READ_QUIET);
		hand_put(&w, i == 3, &"abcde"[i], 1);
		assert_int_equal(
			proc_reader_next(&r, 0, &stream, buf, 8, &n, &code), PROC_READ_DATA);
		assert_int_equal(n, 1);
		assert_int_equal(buf[0], "abcde"[i]);
		assert_int_equal(stream, i == 3);
	}
	proc_reader_fini(&r);
	close(w.fd);
	box_free(b);
}

struct writer {
	struct box *b;
	struct proc *p;
	struct hand w;
};

static void *write_slowly(void *arg)
{
	struct writer *t = arg;

	for (int i = 0; i < 200; i++) {
		hand_put(&t->w, i % 3 == 0, "x", 1);
		proc_watch.output(&t->b->s, t->p->num);
	}
	hand_exit(&t->w, 0);
	proc_watch.exited(&t->b->s, t->p->num);
	return NULL;
}

static void a_waiting_reader_is_woken_by_output_and_by_the_exit(void **state)
{
	struct writer t = { .b = box_new() };
	struct proc_reader r;
	pthread_t thread;
	size_t n, total = 0;
	char buf[16];
	int stream, code = -5;

	(void)state;
	t.p = box_proc(t.b, NULL, false);
	t.w = hand_open(t.b, t.p);
	proc_reader_init(&r, t.p);
	assert_int_equal(pthread_create(&thread, NULL, write_slowly, &t), 0);
	for (;;) {
		enum proc_read got = proc_reader_next(&r, 20000, &stream, buf, 16, &n, &code);
		assert_int_not_equal(got, PROC_READ_QUIET);
		if (got == PROC_READ_END)
			break;
		total += n;
	}
	assert_int_equal(total, 200);
	assert_int_equal(code, 0);
	pthread_join(thread, NULL);
	proc_reader_fini(&r);
	box_free(t.b);
}

static void *kick(void *arg)
{
	proc_reader_kick(arg);
	return NULL;
}

static void a_kick_ends_a_wait(void **state)
{
	struct box *b = box_new();
	struct proc *p = box_proc(b, NULL, false);
	struct proc_reader r;
	pthread_t thread;
	char buf[4];
	size_t n;
	int stream, code;

	(void)state;
	proc_reader_init(&r, p);
	assert_int_equal(pthread_create(&thread, NULL, kick, &r), 0);
	assert_int_equal(proc_reader_next(&r, 20000, &stream, buf, 4, &n, &code), PROC_READ_QUIET);
	assert_true(proc_reader_stopped(&r));
	pthread_join(thread, NULL);
	proc_reader_fini(&r);
	box_free(b);
}

/* Rows: what the head and the order table claim; what a reader may see of "abcdef" and "ABCDEF". */
static const struct {
	const char *what;
	uint64_t kept[2];
	uint32_t runs, entries[4];
	const char *want;
} lies[] = {
	{ "no order at all", { 3, 2 }, 0, { 0 }, "[oabc][eAB]." },
	{ "order promises more than is kept", { 2, 1 }, 2, { 1000, 0x80000000u | 77 },
		"[oab][eA]." },
	{ "order tells less than is kept", { 4, 2 }, 2, { 1, 0x80000001u }, "[oa][eA][obcd][eB]." },
	{ "empty entries", { 2, 2 }, 4, { 0, 0x80000000u, 2, 0x80000002u }, "[oab][eAB]." },
	{ "more runs than entries", { 2, 0 }, 1000, { 1 }, "[oa][ob]." },
	{ "runs beyond the table", { 1, 1 }, 0xffffffffu, { 1, 0x80000001u }, "[oa][eA]." },
};

static void what_a_broken_shim_claims_is_bounded(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
		struct box *b = box_new();
		struct proc *p = box_proc(b, NULL, false);
		struct hand w = hand_open(b, p);

		hand_write(&w, "abcdef", 6, SPOOL_OUT);
		hand_write(&w, "ABCDEF", 6, SPOOL_ERR);
		hand_write(&w, lies[i].entries, sizeof(lies[i].entries), SPOOL_ORDER);
		memcpy(w.h.kept, lies[i].kept, sizeof(w.h.kept));
		w.h.runs = lies[i].runs;
		hand_exit(&w, 1);
		exited(b, p);
		assert_reads(p, 64, lies[i].want, 1);
		box_free(b);
	}
}

static void counts_beyond_the_cap_are_cut(void **state)
{
	struct box *b = box_new();
	struct proc *p = box_proc(b, NULL, false);
	struct hand w = hand_open(b, p);
	bool end;

	(void)state;
	w.h.kept[0] = UINT64_MAX;
	w.h.kept[1] = SPOOL_CAP + 1;
	w.h.state = 77;
	hand_head(&w);
	assert_int_equal(proc_output_size(p, 0, &end), SPOOL_CAP);
	assert_int_equal(proc_output_size(p, 2, &end), 2ull * SPOOL_CAP);
	assert_false(end);
	close(w.fd);
	box_free(b);
}

static void a_file_cut_short_reads_as_zeros(void **state)
{
	struct box *b = box_new();
	struct proc *p = box_proc(b, NULL, false);
	struct hand w = hand_open(b, p);
	char buf[4];
	bool end;

	(void)state;
	hand_put(&w, 0, "abc", 3);
	assert_int_equal(ftruncate(w.fd, w.at + SPOOL_OUT + 1), 0);
	assert_int_equal(proc_bytes(p, 0, 0, buf, 4, &end), 3);
	assert_memory_equal(buf, "a\0\0", 3);
	assert_int_equal(ftruncate(w.fd, 0), 0);
	assert_int_equal(proc_bytes(p, 0, 0, buf, 4, &end), 0);
	assert_reads(p, 64, "?", 0);
	close(w.fd);
	exited(b, p);
	assert_reads(p, 64, ".", PROC_EXIT_LOST);
	box_free(b);
}

static void the_rest_follows_when_the_order_table_is_full(void **state)
{
	struct box *b = box_new();
	struct proc *p = box_proc(b, NULL, false);
	struct hand w = hand_open(b, p);
	uint32_t *entries = malloc(SPOOL_RUNS_MAX * sizeof(*entries));
	struct proc_reader r;
	char buf[64];
	int stream, code;
	size_t n;

	(void)state;
	assert_non_null(entries);
	for (uint32_t i = 0; i < SPOOL_RUNS_MAX; i++)
		entries[i] = 1 | (i % 2 ? 0x80000000u : 0);
	hand_write(&w, entries, SPOOL_RUNS_MAX * sizeof(*entries), SPOOL_ORDER);
	free(entries);
	w.h.kept[0] = SPOOL_RUNS_MAX / 2 + 3;
	w.h.kept[1] = SPOOL_RUNS_MAX / 2 + 2;
	w.h.runs = SPOOL_RUNS_MAX;
	hand_write(&w, "xyz", 3, SPOOL_OUT + SPOOL_RUNS_MAX / 2);
	hand_write(&w, "uv", 2, SPOOL_ERR + SPOOL_RUNS_MAX / 2);
	hand_head(&w);
	proc_reader_init(&r, p);
	assert_true(proc_reader_skip(&r, SPOOL_RUNS_MAX));
	assert_int_equal(proc_reader_next(&r, 0, &stream, buf, 64, &n, &code), PROC_READ_DATA);
	assert_int_equal(stream, 0);
	assert_memory_equal(buf, "xyz", n);
	assert_int_equal(proc_reader_next(&r, 0, &stream, buf, 64, &n, &code), PROC_READ_DATA);
	assert_int_equal(stream, 1);
	assert_memory_equal(buf, "uv", n);
	assert_int_equal(proc_reader_next(&r, 0, &stream, buf, 64, &n, &code), PROC_READ_QUIET);
	assert_false(proc_reader_skip(&r, 1));
	proc_reader_fini(&r);
	close(w.fd);
	box_free(b);
}

static void a_sandbox_that_ends_gives_137_and_keeps_what_was_written(void **state)
{
	struct box *b = box_new();
	struct proc *p = box_proc(b, NULL, false);
	struct hand w = hand_open(b, p);

	(void)state;
	hand_put(&w, 1, "bye", 3);
	pthread_mutex_lock(&b->s.lock);
	proc_sandbox_ended(&b->s);
	pthread_mutex_unlock(&b->s.lock);
	assert_int_equal(b->s.running_procs, 0);
	assert_true(b->s.idle_since_ms > 0);
	assert_reads(p, 64, "[ebye].", PROC_EXIT_KILLED);
	hand_exit(&w, 0);
	proc_watch.exited(&b->s, p->num); /* too late to change anything */
	assert_reads(p, 64, "[ebye].", PROC_EXIT_KILLED);
	box_free(b);
}

/* An output that cannot be opened is not one without a byte. */
static void no_descriptor_left_is_said_before_anything_is_read(void **state)
{
	struct box *b = box_new();
	struct proc *p = box_proc(b, NULL, false);
	struct hand w = hand_open(b, p);
	struct rlimit was, none;
	struct err e = ERR_NULL;
	int lowest;

	(void)state;
	hand_put(&w, 0, "abc", 3);
	hand_exit(&w, 0);
	exited(b, p);
	proc_ref(p);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	lowest = dup(STDOUT_FILENO);
	assert_true(lowest >= 0);
	close(lowest);
	none = (struct rlimit){ (rlim_t)lowest, was.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(proc_output_open(p, &e), -1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_int_equal(proc_output_open(p, &e), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0); /* it stays open */
	assert_reads(p, 64, "[oabc].", 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	proc_unref(p);
	box_free(b);
}

static void bytes_are_read_at_any_offset(void **state)
{
	struct box *b = box_new();
	struct proc *p = box_proc(b, NULL, false);
	struct hand w = hand_open(b, p);
	char buf[8];
	bool end;

	(void)state;
	hand_put(&w, 0, "abcdef", 6);
	assert_int_equal(proc_bytes(p, 0, 2, buf, 3, &end), 3);
	assert_memory_equal(buf, "cde", 3);
	assert_false(end);
	assert_int_equal(proc_bytes(p, 0, 6, buf, 3, &end), 0);
	assert_false(end);
	assert_int_equal(proc_bytes(p, 0, UINT64_MAX, buf, 3, &end), 0);
	assert_false(proc_bytes_wait(p, 1, 0, 0));
	hand_exit(&w, 0);
	exited(b, p);
	assert_true(proc_bytes_wait(p, 1, 0, 0));
	assert_int_equal(proc_bytes(p, 0, 3, buf, 8, &end), 3);
	assert_true(end);
	box_free(b);
}

static void a_result_reads_the_same_from_every_position(void **state)
{
	static const size_t lengths[] = { 0, 1, 2, 3, 4, 5, 300, 40000 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
		struct box *b = box_new();
		struct proc *p = box_proc(b, NULL, false);
		struct hand w = hand_open(b, p);
		struct proc_result r;
		unsigned char data[40000];
		char *whole, piece[7];
		size_t at = 0, n;

		for (size_t k = 0; k < sizeof(data); k++)
			data[k] = (unsigned char)(k * 7 + i);
		if (lengths[i]) {
			hand_put(&w, 0, data, lengths[i]);
			hand_put(&w, 1, data, lengths[i] - 1);
		}
		w.h.dropped[1] = i == 3;
		hand_exit(&w, 9);
		proc_ref(p);
		exited(b, p);
		proc_result_of(&r, p);
		whole = calloc(1, r.text_len + 1);
		while ((n = proc_result_read(&r, at, whole + at, r.text_len - at)))
			at += n;
		assert_int_equal(at, r.text_len);
		json_t *o = NULL;
		assert_int_equal(json_parse_any(whole, at, at, &o, NULL), 0);
		const char *out = json_string_value(json_object_get(o, "stdout"));
		void *raw = NULL;
		assert_int_equal(base64_decode(out, strlen(out), &raw, &n), 0);
		assert_int_equal(n, lengths[i]);
		assert_memory_equal(raw, data, n);
		assert_int_equal(json_integer_value(json_object_get(o, "exit_code")), 9);
		assert_int_equal(json_is_true(json_object_get(o, "truncated")), i == 3);
		assert_true(json_is_false(json_object_get(o, "timed_out")));
		for (size_t pos = 0; pos < r.text_len; pos += pos < 700 ? 1 : 997) {
			size_t max = pos % sizeof(piece) + 1;
			n = proc_result_read(&r, pos, piece, max);
			assert_in_range(n, 1, max);
			assert_memory_equal(piece, whole + pos, n);
		}
		free(raw);
		json_decref(o);
		free(whole);
		proc_result_fini(&r);
		box_free(b);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(streams_come_in_the_order_they_were_written),
		cmocka_unit_test(a_reader_of_a_growing_run_gets_each_byte_once),
		cmocka_unit_test(a_waiting_reader_is_woken_by_output_and_by_the_exit),
		cmocka_unit_test(a_kick_ends_a_wait),
		cmocka_unit_test(what_a_broken_shim_claims_is_bounded),
		cmocka_unit_test(counts_beyond_the_cap_are_cut),
		cmocka_unit_test(a_file_cut_short_reads_as_zeros),
		cmocka_unit_test(the_rest_follows_when_the_order_table_is_full),
		cmocka_unit_test(a_sandbox_that_ends_gives_137_and_keeps_what_was_written),
		cmocka_unit_test(no_descriptor_left_is_said_before_anything_is_read),
		cmocka_unit_test(bytes_are_read_at_any_offset),
		cmocka_unit_test(a_result_reads_the_same_from_every_position),
	};

	return run_table(tests);
}
