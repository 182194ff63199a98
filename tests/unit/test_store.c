/* SPDX-License-Identifier: MIT */
/* The record store: what is acknowledged is there after a new open, what is wiped is nowhere, many
 * writers share commits, a damaged file is refused with a sentence. */
#include "tests/support/test.h"

#include "sandboxd/store/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct box {
	char dir[64];
};

static int make_dir(void **state)
{
	struct box *b = calloc(1, sizeof(*b));

	snprintf(b->dir, sizeof(b->dir), "/tmp/store-XXXXXX");
	assert_non_null(mkdtemp(b->dir));
	*state = b;
	return 0;
}

static int drop_dir(void **state)
{
	static const char *const names[] = { "records.db", "records.db-wal", "records.db-shm" };
	struct box *b = *state;
	char path[160];

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", b->dir, names[i]);
		unlink(path);
	}
	rmdir(b->dir);
	free(b);
	return 0;
}

static struct store *open_store(const struct box *b)
{
	struct store *st;
	struct err e = ERR_NULL;

	if (store_open(b->dir, &st, &e) < 0)
		fail_msg("%s", e.msg);
	return st;
}

static void put(struct store *st, const char *id, int state, const char *env)
{
	struct store_sandbox r = { .id = id,
		.seq = 7,
		.state = state,
		.created_ns = 123456789,
		.generation = 3,
		.secret = "0123456789abcde",
		.boot = "boot",
		.body = "{\"a\":1}",
		.env = env };

	assert_int_equal(store_wait(st, store_put_sandbox(st, &r, true), NULL), 0);
}

struct loaded {
	int n;
	int state;
	char env[64], id[64];
	uint64_t generation;
	bool ended; /* its secret is gone */
};
static int load_one(void *arg, const struct store_sandbox *r, struct err *e)
{
	struct loaded *l = arg;

	(void)e;
	l->n++;
	l->state = r->state;
	l->generation = r->generation;
	snprintf(l->id, sizeof(l->id), "%s", r->id);
	snprintf(l->env, sizeof(l->env), "%s", r->env ? r->env : "-");
	assert_string_equal(r->body, "{\"a\":1}");
	assert_string_equal((const char *)r->secret, l->ended ? "" : "0123456789abcde");
	return 0;
}

static struct loaded load(const struct box *b)
{
	struct store *st = open_store(b);
	struct loaded l = { 0 };

	assert_int_equal(store_load_sandboxes(st, load_one, &l, NULL), 0);
	store_close(st);
	return l;
}

static void a_record_is_there_after_a_new_open(void **state)
{
	struct store *st = open_store(*state);
	struct loaded l;

	put(st, "sbx_1", 1, "{\"K\":\"v\"}");
	store_close(st);
	l = load(*state);
	assert_int_equal(l.n, 1);
	assert_int_equal(l.state, 1);
	assert_int_equal(l.generation, 3);
	assert_string_equal(l.id, "sbx_1");
	assert_string_equal(l.env, "{\"K\":\"v\"}");
}

/* Of a record the state alone, and the writer is killed as soon as it was told. */
static void a_state_that_was_acknowledged_outlives_its_writer(void **state)
{
	struct loaded l;
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		struct store *st = open_store(*state);
		put(st, "sbx_1", 0, "{\"K\":\"v\"}");
		if (store_wait(st, store_mark_awaited(st, "sbx_1", 5), NULL) == 0)
			raise(SIGKILL);
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	l = load(*state);
	assert_int_equal(l.n, 1);
	assert_int_equal(l.state, 5);
	assert_string_equal(l.env, "{\"K\":\"v\"}");
}

/* The writer is killed as soon as it was told. */
static void an_end_that_was_acknowledged_outlives_its_writer(void **state)
{
	struct loaded l = { .ended = true };
	struct store *st;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		st = open_store(*state);
		put(st, "sbx_1", 1, "{}");
		if (store_wait(st, store_end_awaited(st, "sbx_1", 3), NULL) == 0)
			raise(SIGKILL);
		_exit(1);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	st = open_store(*state);
	assert_int_equal(store_load_sandboxes(st, load_one, &l, NULL), 0);
	store_close(st);
	assert_int_equal(l.state, 3);
	assert_string_equal(l.env, "-");
}

static void a_dropped_record_is_gone(void **state)
{
	struct store *st = open_store(*state);

	put(st, "sbx_1", 1, "{}");
	assert_int_equal(store_wait(st, store_drop_sandbox(st, "sbx_1", true), NULL), 0);
	store_close(st);
	assert_int_equal(load(*state).n, 0);
}

static bool files_hold(const struct box *b, const char *needle)
{
	DIR *d = opendir(b->dir);
	const struct dirent *e;
	bool found = false;

	while ((e = readdir(d)) && !found) {
		static char buf[1 << 20];
		int fd = openat(dirfd(d), e->d_name, O_RDONLY);
		ssize_t n = fd < 0 || e->d_name[0] == '.' ? 0 : read(fd, buf, sizeof(buf));
		found = n > 0 && memmem(buf, (size_t)n, needle, strlen(needle));
		close(fd);
	}
	closedir(d);
	return found;
}

static void values_are_wiped_from_the_files_when_a_sandbox_ends(void **state)
{
	struct store *st = open_store(*state);

	put(st, "sbx_1", 1, "{\"K\":\"zq7secret\"}");
	assert_true(files_hold(*state, "zq7secret"));
	put(st, "sbx_1", 3, NULL);
	for (int i = 0; i < 3000 && files_hold(*state, "zq7secret"); i++)
		usleep(10000);
	assert_false(files_hold(*state, "zq7secret"));
	store_close(st);
	assert_string_equal(load(*state).env, "-");
}

static off_t log_size(const struct box *b)
{
	char path[128];
	struct stat s;

	snprintf(path, sizeof(path), "%s/records.db-wal", b->dir);
	return stat(path, &s) < 0 ? -1 : s.st_size;
}

/* A commit into a log that grows has to write the file's size as well. */
static void commits_do_not_make_the_log_grow(void **state)
{
	struct store *st = open_store(*state);
	off_t size = log_size(*state);

	assert_true(size > 0);
	for (int i = 0; i < 100; i++)
		put(st, "sbx_1", 1, "{}");
	assert_int_equal(log_size(*state), size);
	store_close(st);
}

static void a_log_that_has_become_long_is_settled(void **state)
{
	struct store *st = open_store(*state);
	off_t size = log_size(*state);

	for (int i = 0; i < 600; i++)
		put(st, "sbx_1", 1, "{\"K\":\"zq8secret\"}");
	for (int i = 0; i < 3000 && log_size(*state) != size; i++)
		usleep(10000);
	assert_int_equal(log_size(*state), size);
	put(st, "sbx_2", 1, "{}");
	store_close(st);
	assert_int_equal(load(*state).n, 2);
}

static void an_ended_record_keeps_its_body_only(void **state)
{
	struct store *st = open_store(*state);
	struct loaded l;

	put(st, "sbx_1", 1, "{\"K\":\"v\"}");
	assert_int_equal(store_wait(st, store_end_awaited(st, "sbx_1", 3), NULL), 0);
	store_close(st);
	st = open_store(*state);
	l = (struct loaded){ .ended = true };
	assert_int_equal(store_load_sandboxes(st, load_one, &l, NULL), 0);
	store_close(st);
	assert_int_equal(l.n, 1);
	assert_int_equal(l.state, 3);
	assert_string_equal(l.env, "-");
}

static void what_nobody_waits_for_is_there_after_a_close(void **state)
{
	struct store *st = open_store(*state);
	struct store_sandbox r = {
		.id = "sbx_1", .body = "{\"a\":1}", .secret = "0123456789abcde"
	};

	assert_true(store_put_sandbox(st, &r, false) > 0);
	store_close(st);
	assert_int_equal(load(*state).n, 1);
}

static void the_files_are_private(void **state)
{
	const struct box *b = *state;
	struct store *st;
	char path[128];
	struct stat s;

	umask(0);
	st = open_store(b);
	put(st, "sbx_1", 1, "{}");
	snprintf(path, sizeof(path), "%s/records.db", b->dir);
	assert_int_equal(stat(path, &s), 0);
	assert_int_equal(s.st_mode & 077, 0);
	snprintf(path, sizeof(path), "%s/records.db-wal", b->dir);
	assert_int_equal(stat(path, &s), 0);
	assert_int_equal(s.st_mode & 077, 0);
	store_close(st);
	umask(022);
}

#define WRITERS 16
#define WRITES  20
struct writer {
	struct store *st;
	int n;
};
static void *write_many(void *arg)
{
	const struct writer *w = arg;

	for (int i = 0; i < WRITES; i++) {
		char id[32];
		struct store_sandbox r = {
			.id = id, .body = "{\"a\":1}", .secret = "0123456789abcde"
		};
		snprintf(id, sizeof(id), "sbx_%d_%d", w->n, i);
		if (store_wait(w->st, store_put_sandbox(w->st, &r, true), NULL) < 0)
			return NULL;
	}
	return arg;
}

static void many_writers_share_commits(void **state)
{
	struct store *st = open_store(*state);
	struct writer w[WRITERS];
	pthread_t t[WRITERS];
	void *ok;

	for (int i = 0; i < WRITERS; i++) {
		w[i] = (struct writer){ st, i };
		assert_int_equal(pthread_create(&t[i], NULL, write_many, &w[i]), 0);
	}
	for (int i = 0; i < WRITERS; i++) {
		pthread_join(t[i], &ok);
		assert_non_null(ok);
	}
	assert_true(store_commits(st) < WRITERS * WRITES);
	store_close(st);
	assert_int_equal(load(*state).n, WRITERS * WRITES);
}

static void a_damaged_file_is_refused(void **state)
{
	const struct box *b = *state;
	struct store *st = open_store(b);
	struct err e = ERR_NULL;
	char path[128];
	int fd;

	put(st, "sbx_1", 1, "{}");
	store_close(st);
	snprintf(path, sizeof(path), "%s/records.db", b->dir);
	fd = open(path, O_WRONLY);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pwrite(fd, "not a database, not at all......", 32, i * 32), 32);
	close(fd);
	assert_int_equal(store_open(b->dir, &st, &e), -1);
	assert_non_null(strstr(e.msg, "damaged"));
}

static void a_second_user_of_the_file_is_refused(void **state)
{
	struct store *st = open_store(*state), *other;
	struct err e = ERR_NULL;

	put(st, "sbx_1", 1, "{}");
	assert_int_equal(store_open(((struct box *)*state)->dir, &other, &e), -1);
	assert_non_null(strstr(e.msg, "in use"));
	store_close(st);
}

static int put_big(struct store *st, const char *id, struct err *e)
{
	static char body[64 * 1024];
	struct store_sandbox r = { .id = id, .body = body, .secret = "0123456789abcde" };

	memset(body, 'x', sizeof(body) - 1);
	return store_wait(st, store_put_sandbox(st, &r, true), e);
}

static void a_write_that_finds_no_room_fails_alone_and_later_ones_work(void **state)
{
	struct store *st = open_store(*state);
	struct rlimit was, tight;
	struct err e = ERR_NULL;
	int failed = 0;

	put(st, "sbx_before", 1, "{}");
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &was);
	tight = was;
	tight.rlim_cur = 192 * 1024;
	setrlimit(RLIMIT_FSIZE, &tight);
	for (int i = 0; i < 8; i++) {
		char id[32];
		snprintf(id, sizeof(id), "sbx_big_%d", i);
		failed += put_big(st, id, &e) < 0;
	}
	setrlimit(RLIMIT_FSIZE, &was);
	assert_true(failed > 0);
	assert_true(e.msg[0]);
	assert_int_equal(put_big(st, "sbx_after", &e), 0);
	store_close(st);
	st = open_store(*state);
	store_close(st);
}

static int join_row(void *arg, const char *key, const char *body, struct err *e)
{
	char *text = arg;

	(void)e;
	strcat(strcat(strcat(strcat(text, key), "="), body), ";");
	return 0;
}

static void rows_of_one_write_come_and_go_together(void **state)
{
	struct store_row add[] = { { "layer", "1", "{}" }, { "layer", "2", "[]" },
		{ "image", "1", "i" } };
	struct store_row swap[] = { { "layer", "3", "new" }, { "layer", "1", NULL } };
	struct store *st = open_store(*state);
	struct err e = ERR_NULL;
	char text[64] = "";

	assert_int_equal(store_wait(st, store_put_rows(st, add, 3, true), &e), 0);
	assert_int_equal(store_wait(st, store_put_rows(st, swap, 2, true), &e), 0);
	store_close(st);
	st = open_store(*state);
	assert_int_equal(store_load_rows(st, "layer", join_row, text, &e), 0);
	assert_string_equal(text, "2=[];3=new;");
	store_close(st);
}

int main(void)
{
#define ROW(fn) cmocka_unit_test_setup_teardown(fn, make_dir, drop_dir)
	const struct CMUnitTest tests[] = {
		ROW(a_record_is_there_after_a_new_open),
		ROW(a_state_that_was_acknowledged_outlives_its_writer),
		ROW(an_end_that_was_acknowledged_outlives_its_writer),
		ROW(a_dropped_record_is_gone),
		ROW(values_are_wiped_from_the_files_when_a_sandbox_ends),
		ROW(commits_do_not_make_the_log_grow),
		ROW(a_log_that_has_become_long_is_settled),
		ROW(an_ended_record_keeps_its_body_only),
		ROW(what_nobody_waits_for_is_there_after_a_close),
		ROW(the_files_are_private),
		ROW(many_writers_share_commits),
		ROW(a_write_that_finds_no_room_fails_alone_and_later_ones_work),
		ROW(a_damaged_file_is_refused),
		ROW(rows_of_one_write_come_and_go_together),
		ROW(a_second_user_of_the_file_is_refused),
	};
	return run_table(tests);
}
