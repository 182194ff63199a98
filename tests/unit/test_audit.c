/* SPDX-License-Identifier: MIT */
/* The event log: lines, rotation, bad lines, followers, modes. */
#include "tests/support/test.h"

#include "sandboxd/core/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ID "sbx_00000000000000a1"

struct box {
	char dir[64], path[96];
};

static int make_box(void **state)
{
	struct box *b = calloc(1, sizeof(*b));

	snprintf(b->dir, sizeof(b->dir), "/tmp/audit-XXXXXX");
	assert_non_null(mkdtemp(b->dir));
	snprintf(b->path, sizeof(b->path), "%s/log/events.jsonl", b->dir);
	*state = b;
	return 0;
}

static int drop_box(void **state)
{
	struct box *b = *state;
	char path[160];

	for (int i = 0; i <= 6; i++) {
		snprintf(path, sizeof(path), i ? "%s.%d" : "%s", b->path, i);
		unlink(path);
	}
	snprintf(path, sizeof(path), "%s/log", b->dir);
	rmdir(path);
	rmdir(b->dir);
	free(b);
	return 0;
}

static struct audit *open_log(const struct box *b)
{
	struct audit *a;
	struct err e = ERR_NULL;

	if (audit_open(b->path, &a, &e) < 0)
		fail_msg("%s", e.msg);
	return a;
}

static size_t count(struct audit *a, const char *id, bool *cut)
{
	json_t *events;
	size_t n;

	assert_int_equal(audit_read(a, id, &events, cut, NULL), 0);
	n = json_array_size(events);
	json_decref(events);
	return n;
}

static void events_come_back_in_order_and_only_of_that_sandbox(void **state)
{
	struct audit *a = open_log(*state);
	json_t *events, *first;
	bool cut;

	audit_event(a, "sandbox.created", ID, json_pack("{s:s}", "image", "base"));
	audit_event(a, "sandbox.created", "sbx_00000000000000b2", NULL);
	audit_event(a, "process.started", ID, json_pack("{s:i,s:s}", "pid", 1, "program", "sh"));
	/* a value that mentions another id is not that sandbox's event */
	audit_event(a, "file.read", ID,
		json_pack("{s:s}", "path", "\"sandbox\":\"sbx_00000000000000b2\""));
	assert_int_equal(audit_read(a, ID, &events, &cut, NULL), 0);
	assert_int_equal(json_array_size(events), 3);
	first = json_array_get(events, 0);
	assert_string_equal(json_string_value(json_object_get(first, "type")), "sandbox.created");
	assert_string_equal(json_string_value(json_object_get(first, "sandbox")), ID);
	assert_non_null(json_object_get(first, "time"));
	assert_false(cut);
	json_decref(events);
	assert_int_equal(count(a, "sbx_00000000000000b2", &cut), 1);
	assert_int_equal(count(a, "sbx_00000000000000c3", &cut), 0);
	audit_close(a);
}

static void the_log_is_private(void **state)
{
	const struct box *b = *state;
	struct audit *a;
	struct stat st;
	char dir[96];

	umask(0);
	a = open_log(b);
	umask(022);
	snprintf(dir, sizeof(dir), "%s/log", b->dir);
	assert_int_equal(stat(dir, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(stat(b->path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	audit_close(a);
}

static void lines_that_do_not_parse_are_skipped(void **state)
{
	const struct box *b = *state;
	struct audit *a = open_log(b);
	static char big[5 << 20];
	bool cut;
	int fd;

	audit_event(a, "sandbox.created", ID, NULL);
	fd = open(b->path, O_WRONLY | O_APPEND);
	memset(big, 'x', sizeof(big));
	memcpy(big, "{\"sandbox\":\"" ID "\",\"k\":\"", 24);
	big[sizeof(big) - 1] = '\n';
	assert_true(write(fd, "{\"sandbox\":\"" ID "\",\n\n\0\n", 36) > 0);
	assert_true(write(fd, big, sizeof(big)) > 0);
	close(fd);
	audit_event(a, "sandbox.terminated", ID, NULL);
	assert_int_equal(count(a, ID, &cut), 2);
	audit_close(a);
}

static void the_newest_five_thousand_are_given(void **state)
{
	struct audit *a = open_log(*state);
	json_t *events;
	bool cut;

	for (int i = 0; i < 5003; i++)
		audit_event(a, "file.read", ID, json_pack("{s:i}", "n", i));
	assert_int_equal(audit_read(a, ID, &events, &cut, NULL), 0);
	assert_true(cut);
	assert_int_equal(json_array_size(events), 5000);
	assert_int_equal(json_integer_value(json_object_get(json_array_get(events, 0), "n")), 3);
	json_decref(events);
	audit_close(a);
}

static void a_full_file_moves_on_and_is_still_read(void **state)
{
	const struct box *b = *state;
	struct audit *a = open_log(b);
	static char pad[64 * 1024];
	char path[160];
	struct stat st;
	bool cut;

	memset(pad, 'p', sizeof(pad) - 1);
	audit_event(a, "sandbox.created", ID, NULL);
	for (int i = 0; i < 150; i++)
		audit_event(
			a, "file.read", "sbx_00000000000000b2", json_pack("{s:s}", "path", pad));
	audit_event(a, "sandbox.terminated", ID, NULL);
	snprintf(path, sizeof(path), "%s.1", b->path);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size <= 8 * 1024 * 1024);
	assert_int_equal(count(a, ID, &cut), 2);
	for (int i = 0; i < 900; i++)
		audit_event(
			a, "file.read", "sbx_00000000000000b2", json_pack("{s:s}", "path", pad));
	snprintf(path, sizeof(path), "%s.5", b->path);
	assert_int_equal(stat(path, &st), 0);
	snprintf(path, sizeof(path), "%s.6", b->path);
	assert_int_equal(stat(path, &st), -1);
	assert_int_equal(count(a, ID, &cut), 0);
	audit_close(a);
}

/* Its log while it goes by, counted. */
static int warnings(const char *path, const char *what)
{
	char line[1024];
	FILE *f = fopen(path, "re");
	int n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, what) != NULL;
	fclose(f);
	return n;
}

static void a_full_file_that_cannot_move_on_is_told_and_goes_on(void **state)
{
	const struct box *b = *state;
	struct audit *a = open_log(b);
	char path[160], said[160], pad[60001];
	int err = dup(STDERR_FILENO), fd;
	bool cut;

	memset(pad, 'a', sizeof(pad) - 1);
	pad[sizeof(pad) - 1] = '\0';
	for (int n = 1; n <= 5; n++) { /* folders with something in them: nothing can take their places */
		snprintf(path, sizeof(path), "%s.%d", b->path, n);
		assert_return_code(mkdir(path, 0700), errno);
		snprintf(path, sizeof(path), "%s.%d/x", b->path, n);
		assert_return_code(mkdir(path, 0700), errno);
	}
	snprintf(said, sizeof(said), "%s/said", b->dir);
	fd = open(said, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	dup2(fd, STDERR_FILENO);
	for (int i = 0; i < 160; i++)
		audit_event(a, "file.read", ID, json_pack("{s:s}", "path", pad));
	dup2(err, STDERR_FILENO);
	assert_int_equal(warnings(said, "cannot be renamed"), 1);
	assert_int_equal(count(a, ID, &cut), 160);
	audit_close(a);
	for (int n = 1; n <= 5; n++) {
		snprintf(path, sizeof(path), "%s.%d/x", b->path, n);
		rmdir(path);
		snprintf(path, sizeof(path), "%s.%d", b->path, n);
		rmdir(path);
	}
	unlink(said);
	close(fd);
	close(err);
}

static void numbers_grow_over_a_new_open(void **state)
{
	struct audit *a = open_log(*state);
	uint64_t seq;

	audit_event(a, "sandbox.created", ID, NULL);
	seq = audit_seq(a);
	audit_close(a);
	a = open_log(*state);
	audit_event(a, "sandbox.terminated", ID, NULL);
	assert_true(audit_seq(a) > seq);
	audit_close(a);
}

static void *write_one(void *arg)
{
	audit_event(arg, "sandbox.created", ID, NULL);
	return NULL;
}

static void a_follower_waits_for_what_is_new(void **state)
{
	struct audit *a = open_log(*state);
	uint64_t seq = audit_seq(a);
	pthread_t t;
	bool lost;
	json_t *l;

	l = audit_follow(a, seq, 20, &lost);
	assert_int_equal(json_array_size(l), 0);
	json_decref(l);
	assert_int_equal(pthread_create(&t, NULL, write_one, a), 0);
	l = audit_follow(a, seq, 5000, &lost);
	pthread_join(t, NULL);
	assert_int_equal(json_array_size(l), 1);
	assert_false(lost);
	json_decref(l);
	l = audit_follow(a, 0, 0, &lost);
	assert_true(lost);
	assert_int_equal(json_array_size(l), 1);
	json_decref(l);
	audit_close(a);
}

static void a_follower_that_fell_behind_is_told(void **state)
{
	struct audit *a = open_log(*state);
	uint64_t seq = audit_seq(a);
	bool lost;
	json_t *l;

	for (int i = 0; i < 5000; i++)
		audit_event(a, "file.read", ID, NULL);
	l = audit_follow(a, seq, 0, &lost);
	assert_true(lost);
	assert_int_equal(json_integer_value(json_object_get(json_array_get(l, 0), "seq")),
		(json_int_t)(seq + 1 + 5000 - 4096));
	json_decref(l);
	audit_close(a);
}

/* What is left of a line that found no room for its end does not spoil the one after it. */
static void an_event_after_a_full_disk_is_kept(void **state)
{
	struct audit *a = open_log(*state);
	const struct box *b = *state;
	struct rlimit was, tight;
	struct stat st;
	bool cut;

	audit_event(a, "sandbox.created", ID, NULL);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(stat(b->path, &st), 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	tight = (struct rlimit){ (rlim_t)st.st_size + 20, was.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
	audit_event(a, "sandbox.suspended", ID, NULL);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	audit_event(a, "sandbox.resumed", ID, NULL);
	audit_event(a, "sandbox.terminated", ID, NULL);
	assert_int_equal(count(a, ID, &cut), 3);
	audit_close(a);
}

/* A server that starts again after its host's clock was set back counts from below. */
static void a_follower_with_a_number_of_the_future_gets_what_there_is(void **state)
{
	struct audit *a = open_log(*state);
	const uint64_t ahead = audit_seq(a) + 3600000000u;
	pthread_t t;
	bool lost;
	json_t *l;

	assert_int_equal(pthread_create(&t, NULL, write_one, a), 0);
	l = audit_follow(a, ahead, 5000, &lost);
	pthread_join(t, NULL);
	assert_int_equal(json_array_size(l), 1);
	assert_true(lost);
	json_decref(l);
	audit_close(a);
}

/* However long events are, few bytes of them are held, and few come at a time. */
static void long_events_are_held_within_bounds(void **state)
{
	struct audit *a = open_log(*state);
	const size_t size = 512 * 1024;
	char *pad = malloc(size + 1);
	uint64_t seq = audit_seq(a);
	size_t held = 0;
	bool lost;

	assert_non_null(pad);
	memset(pad, 'p', size);
	pad[size] = '\0';
	for (int i = 0; i < 64; i++)
		audit_event(a, "process.started", ID, json_pack("{s:s}", "cwd", pad));
	for (;;) {
		json_t *l = audit_follow(a, seq, 0, &lost);
		size_t n = json_array_size(l);

		assert_true(n <= 2);
		if (n)
			seq = (uint64_t)json_integer_value(
				json_object_get(json_array_get(l, n - 1), "seq"));
		json_decref(l);
		if (!n)
			break;
		held += n;
	}
	assert_int_equal(seq, audit_seq(a));
	assert_in_range(held, 16, 32);
	free(pad);
	audit_close(a);
}

/* A log that cannot be opened, or not all of it, is not one without events. */
static void no_descriptor_left_is_not_a_log_without_events(void **state)
{
	const struct box *b = *state;
	struct audit *a = open_log(b);
	char old[160];
	struct rlimit was, few;
	int lowest;
	bool cut;

	audit_event(a, "sandbox.created", ID, NULL);
	snprintf(old, sizeof(old), "%s.1", b->path);
	assert_return_code(link(b->path, old), errno);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	lowest = dup(STDOUT_FILENO);
	assert_true(lowest >= 0);
	close(lowest);
	for (int room = 0; room < 2; room++) { /* for none, for the older one alone */
		struct err e = ERR_NULL;
		json_t *events;

		few = (struct rlimit){ (rlim_t)(lowest + room), was.rlim_max };
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
		int rc = audit_read(a, ID, &events, &cut, &e);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
		assert_int_equal(rc, -1);
		assert_int_equal(e.code, ERR_UNAVAILABLE);
	}
	assert_int_equal(count(a, ID, &cut), 2);
	assert_int_equal(dup(STDOUT_FILENO), lowest); /* nothing stays open */
	close(lowest);
	audit_close(a);
}

#define FILLED 64 /* events of one sandbox, a mebibyte of another's behind each: nine files */
struct filling {
	struct audit *a;
	int written; /* atomic */
};

static void *fill_files(void *arg)
{
	static char pad[1024 * 1024];
	struct filling *f = arg;

	memset(pad, 'p', sizeof(pad) - 1);
	for (int i = 0; i < FILLED; i++) {
		audit_event(f->a, "file.read", ID, json_pack("{s:i}", "n", i));
		__atomic_store_n(&f->written, i + 1, __ATOMIC_RELEASE);
		audit_event(f->a, "file.read", "sbx_00000000000000b2", json_pack("{s:s}", "path", pad));
	}
	return NULL;
}

/* Whatever moves on meanwhile: without a gap, up to what had been written when it began. */
static void files_that_move_on_while_they_are_read_hide_nothing(void **state)
{
	struct filling f = { .a = open_log(*state) };
	json_t *events, *one;
	pthread_t t;
	int before;
	bool cut;
	size_t i;

	audit_event(f.a, "sandbox.created", "sbx_00000000000000b2", NULL);
	assert_int_equal(pthread_create(&t, NULL, fill_files, &f), 0);
	do {
		json_int_t first = 0, n = 0;

		before = __atomic_load_n(&f.written, __ATOMIC_ACQUIRE);
		assert_int_equal(audit_read(f.a, ID, &events, &cut, NULL), 0);
		json_array_foreach (events, i, one) {
			n = json_integer_value(json_object_get(one, "n"));
			first = i == 0 ? n : first;
			assert_int_equal(n, first + (json_int_t)i);
		}
		assert_true(n + 1 >= before);
		json_decref(events);
	} while (before < FILLED);
	pthread_join(t, NULL);
	audit_close(f.a);
}

static void an_event_is_quick(void **state)
{
	struct audit *a = open_log(*state);
	struct timespec t0, t1;
	double us;

	clock_gettime(CLOCK_MONOTONIC, &t0);
	for (int i = 0; i < 2000; i++)
		audit_event(a, "process.exited", ID,
			json_pack("{s:i,s:i,s:i}", "pid", i, "exit_code", 0, "duration_ms", 3));
	clock_gettime(CLOCK_MONOTONIC, &t1);
	us = ((double)(t1.tv_sec - t0.tv_sec) * 1e9 + (double)(t1.tv_nsec - t0.tv_nsec)) / 2e6;
	print_message("an event takes %.1f us\n", us);
	audit_close(a);
}

int main(void)
{
#define ROW(fn) cmocka_unit_test_setup_teardown(fn, make_box, drop_box)
	const struct CMUnitTest tests[] = {
		ROW(events_come_back_in_order_and_only_of_that_sandbox),
		ROW(the_log_is_private),
		ROW(lines_that_do_not_parse_are_skipped),
		ROW(the_newest_five_thousand_are_given),
		ROW(a_full_file_moves_on_and_is_still_read),
		ROW(a_full_file_that_cannot_move_on_is_told_and_goes_on),
		ROW(numbers_grow_over_a_new_open),
		ROW(a_follower_waits_for_what_is_new),
		ROW(a_follower_that_fell_behind_is_told),
		ROW(an_event_after_a_full_disk_is_kept),
		ROW(a_follower_with_a_number_of_the_future_gets_what_there_is),
		ROW(long_events_are_held_within_bounds),
		ROW(no_descriptor_left_is_not_a_log_without_events),
		ROW(files_that_move_on_while_they_are_read_hide_nothing),
		ROW(an_event_is_quick),
	};
	return run_table(tests);
}
