/* SPDX-License-Identifier: MIT */
/* The table of processes without a guest: names and numbers, checks of a request and their order,
 * environments, the way back after a restart, retention; and the frames of attach. */
#include "tests/unit/proc_box.h"

#include "sandboxd/api/frames.h"

#include <sys/stat.h>

#define T(text) ((char *)(text)) /* bodies own their strings; here nobody frees them */

static void only_the_plain_spelling_of_a_number_finds_a_process(void **state)
{
	static const struct {
		const char *text;
		bool found;
	} rows[] = {
		{ "1", true },
		{ "job.a", true },
		{ "2", false },
		{ "0", false },
		{ "01", false },
		{ "+1", false },
		{ "-1", false },
		{ " 1", false },
		{ "1 ", false },
		{ "", false },
		{ "4294967297", false },
		{ "18446744073709551617", false },
		{ "job", false },
		{ "Job.a", false },
		{ "1.0", false },
	};
	struct box *b = box_new();

	(void)state;
	box_proc(b, "job.a", false);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct proc *p = NULL;
		struct err e = ERR_NULL;
		int r = proc_find(&b->s, rows[i].text, &p, &e);
		if ((r == 0) != rows[i].found)
			fail_msg("\"%s\"", rows[i].text);
		if (r < 0)
			assert_int_equal(e.code, ERR_NOT_FOUND);
		proc_unref(p);
	}
	box_free(b);
}

static void a_process_shows_what_the_contract_says(void **state)
{
	struct box *b = box_new();
	struct proc *p = box_proc(b, NULL, false), *t = box_proc(b, "shell", true);
	struct hand w = hand_open(b, p);
	json_t *o, *list;

	(void)state;
	o = proc_json(p);
	assert_int_equal(json_object_size(o), 5);
	assert_int_equal(json_integer_value(json_object_get(o, "pid")), 1);
	assert_string_equal(json_string_value(json_object_get(o, "state")), "running");
	assert_true(json_is_null(json_object_get(o, "exit_code")));
	assert_string_equal(json_string_value(json_array_get(json_object_get(o, "argv"), 1)),
		"an \"argument\"\n");
	assert_string_equal(
		json_string_value(json_object_get(o, "started_at")), "2023-11-14T22:13:20.000000Z");
	json_decref(o);
	hand_exit(&w, 130);
	proc_watch.exited(&b->s, 1);
	list = proc_list_json(&b->s);
	assert_int_equal(json_array_size(json_object_get(list, "processes")), 2);
	o = json_array_get(json_object_get(list, "processes"), 0);
	assert_string_equal(json_string_value(json_object_get(o, "state")), "exited");
	assert_int_equal(json_integer_value(json_object_get(o, "exit_code")), 130);
	o = json_array_get(json_object_get(list, "processes"), 1);
	assert_true(json_is_true(json_object_get(o, "tty")));
	assert_string_equal(json_string_value(json_object_get(o, "name")), "shell");
	assert_ptr_equal(t->sandbox, &b->s);
	json_decref(list);
	box_free(b);
}

/* A refusal by a check never reaches the guest, which is not there. */
static void bodies_are_checked_in_order(void **state)
{
	static char *empty[] = { T(""), NULL }, *ok[] = { T("true"), NULL };
	static char *bad_name[] = { T("LD_PRELOAD"), T("1x") }, *reserved[] = { T("LD_PRELOAD") };
	static char *values[] = { T("a"), T("b") };
	static const struct {
		const char *what;
		struct process_body body;
		enum err_code code;
		const char *word;
	} rows[] = {
		{ "no argv", { .cwd = T("rel") }, ERR_INVALID_REQUEST, "argv" },
		{ "empty program", { .argv = { empty, 1 } }, ERR_INVALID_REQUEST, "argv" },
		{ "relative cwd before env",
			{ .argv = { ok, 1 }, .cwd = T("tmp"), .env = { reserved, values, 1 } },
			ERR_INVALID_REQUEST, "cwd" },
		{ "dots in cwd", { .argv = { ok, 1 }, .cwd = T("/a/../b") }, ERR_INVALID_REQUEST,
			"cwd" },
		{ "illegal name before reserved",
			{ .argv = { ok, 1 }, .env = { bad_name, values, 2 } }, ERR_INVALID_REQUEST,
			"env" },
		{ "reserved name", { .argv = { ok, 1 }, .env = { reserved, values, 1 } },
			ERR_REFUSED, "LD_PRELOAD" },
		{ "bad process name", { .argv = { ok, 1 }, .name = T("7up") }, ERR_INVALID_REQUEST,
			"name" },
		{ "taken process name", { .argv = { ok, 1 }, .name = T("job") }, ERR_CONFLICT,
			"job" },
	};
	struct box *b = box_new();

	(void)state;
	box_proc(b, "job", false);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct err e = ERR_NULL;
		struct proc *p = NULL;
		assert_int_equal(proc_start(&b->s, &rows[i].body, &p, &e), -1);
		if (e.code != rows[i].code || !strstr(e.msg, rows[i].word))
			fail_msg("%s: %s", rows[i].what, e.msg);
	}
	assert_int_equal(b->s.next_num, 2);
	assert_int_equal(b->s.running_procs, 1);
	box_free(b);
}

static void a_run_refuses_limits_and_terminals_before_argv(void **state)
{
	static const struct {
		struct process_body body;
		const char *word;
	} rows[] = {
		{ { .timeout_secs = -1, .tty = true }, "timeout_secs" },
		{ { .tty = true }, "tty" },
		{ { .name = T("x") }, "name" },
		{ { .timeout_secs = 0 }, "argv" },
	};
	struct box *b = box_new();

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct err e = ERR_NULL;
		struct proc_result r;
		assert_int_equal(proc_run(&b->s, &rows[i].body, NULL, NULL, &r, &e), -1);
		assert_int_equal(e.code, ERR_INVALID_REQUEST);
		assert_non_null(strstr(e.msg, rows[i].word));
	}
	box_free(b);
}

static const char *env_get(char **env, const char *name)
{
	size_t n = strlen(name);

	for (; *env; env++)
		if (!strncmp(*env, name, n) && (*env)[n] == '=')
			return *env + n + 1;
	return NULL;
}

static void of_equal_names_the_request_wins_over_sandbox_and_image(void **state)
{
	static char *image[] = { T("PATH=/image"), T("A=image"), T("B=image"), T("HOME=/h"),
		T("AB=image"), NULL };
	static char *k1[] = { T("A"), T("B") }, *v1[] = { T("sandbox"), T("sandbox") };
	static char *k2[] = { T("A"), T("C") }, *v2[] = { T("request"), T("") };
	const struct strmap env = { k2, v2, 2 };
	struct box *b = box_new();
	char **list;
	size_t n = 0;

	(void)state;
	b->s.image_env = image;
	b->s.env = (struct strmap){ k1, v1, 2 };
	list = proc_env_build(&b->s, &env, true);
	assert_non_null(list);
	while (list[n])
		n++;
	assert_int_equal(n, 8);
	assert_string_equal(env_get(list, "A"), "request");
	assert_string_equal(env_get(list, "B"), "sandbox");
	assert_string_equal(env_get(list, "C"), "");
	assert_string_equal(env_get(list, "AB"), "image");
	assert_string_equal(env_get(list, "PATH"), "/image");
	assert_string_equal(env_get(list, "HOME"), "/h");
	assert_string_equal(env_get(list, "USER"), "sandbox");
	assert_string_equal(env_get(list, "TERM"), "xterm-256color");
	free(list);
	list = proc_env_build(&b->s, &env, false);
	assert_null(env_get(list, "TERM"));
	free(list);
	b->s.image_env = NULL;
	b->s.env = (struct strmap){ 0 };
	box_free(b);
}

/* Is there a record of this number, on the disk? */
static bool record_there(const struct box *b, unsigned num)
{
	struct spool_meta m = { 0 };
	char name[24];
	int fd;

	spool_file_name(num, name);
	fd = openat(b->s.run_dirfd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (pread(fd, &m, sizeof(m), spool_at(num) + SPOOL_META) < 0)
		m.len = 0;
	close(fd);
	return m.len;
}

static void records_come_back_from_the_files(void **state)
{
	struct box *b = box_new();
	struct proc *done = box_proc(b, "job", true), *lost = box_proc(b, NULL, false), *p;
	struct hand w = hand_open(b, done), w2 = hand_open(b, lost);
	int code = 0, fd;
	bool alive = *state;

	box_proc(b, NULL, false); /* 3: its start was never answered */
	hand_put(&w, 0, "hello", 5);
	hand_exit(&w, 7);
	close(w2.fd);
	fd = openat(b->s.run_dirfd, "spool2", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, "rubbish", 7), 7);
	close(fd);
	fd = openat(b->s.run_dirfd, "sock", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	close(fd);
	proc_free_all(&b->s);
	assert_int_equal(b->s.running_procs, 0);
	b->s.next_num = 1;

	assert_int_equal(proc_restore(&b->s, alive, NULL), 0);
	assert_int_equal(b->s.next_num, 4);
	assert_int_equal(b->s.running_procs, alive);
	assert_false(record_there(b, 3));
	assert_false(record_there(b, 2 * SPOOL_SLOTS));
	assert_int_equal(proc_find(&b->s, "job", &p, NULL), 0);
	assert_int_equal(proc_num(p), 1);
	assert_true(proc_is_tty(p));
	assert_string_equal(p->argv[1], "an \"argument\"\n");
	assert_true(proc_exited(p, &code));
	assert_int_equal(code, 7);
	proc_unref(p);
	assert_int_equal(proc_find(&b->s, "2", &p, NULL), 0);
	assert_int_equal(proc_exited(p, &code), !alive);
	if (!alive)
		assert_int_equal(code, PROC_EXIT_LOST);
	proc_unref(p);
	assert_int_equal(proc_find(&b->s, "3", &p, NULL), -1);
	box_free(b);
}

static void a_record_longer_than_a_page_comes_back(void **state)
{
	struct box *b = box_new();
	struct proc *p = proc_new(&b->s), *back;
	struct hand w;
	size_t n = 100000;

	(void)state;
	p->num = b->s.next_num++;
	p->argv = calloc(2, sizeof(char *));
	p->argv[0] = malloc(n + 1);
	memset(p->argv[0], 'x', n);
	p->argv[0][n] = '\0';
	assert_int_equal(spool_create(p, "/", &p->spool_fd, NULL), 0);
	w = hand_open(b, p);
	hand_put(&w, 0, "out", 3);
	hand_exit(&w, 0);
	proc_unref(p);
	assert_int_equal(proc_restore(&b->s, false, NULL), 0);
	assert_int_equal(proc_find(&b->s, "1", &back, NULL), 0);
	assert_int_equal(strlen(back->argv[0]), n);
	proc_unref(back);
	box_free(b);
}

/* They lie where a shim can write: those that it makes long take no more memory than starts may. */
static void records_that_are_too_long_do_not_all_come_back(void **state)
{
	enum { SIZE = SPOOL_META_MAX - 4096, RUN = 5, EXITED = 2, MOST = 16 << 20, KEPT = 4 << 20 };
	struct box *b = box_new();
	char *arg = malloc(SIZE + 1);

	(void)state;
	assert_non_null(arg);
	memset(arg, 'a', SIZE);
	arg[SIZE] = '\0';
	for (unsigned i = 0; i < RUN + EXITED; i++) {
		struct proc *p = box_proc_of(b, NULL, false, arg);
		struct hand w = hand_open(b, p);
		if (i < RUN)
			close(w.fd);
		else
			hand_exit(&w, 0);
	}
	proc_free_all(&b->s);
	assert_int_equal(proc_restore(&b->s, true, NULL), 0);
	assert_in_range(b->s.argv_kept, 1, KEPT);
	assert_in_range(b->s.argv_live, 1, MOST);
	assert_int_equal(b->s.next_num, RUN + EXITED + 1);
	free(arg);
	box_free(b);
}

static void of_many_exited_the_oldest_lose_their_output_first(void **state)
{
	enum { OUTPUT = 1024, MORE = 70 };
	struct box *b = box_new();
	char buf[4];
	bool end;

	(void)state;
	for (unsigned i = 1; i <= OUTPUT + MORE; i++) {
		struct proc *p = box_proc(b, NULL, false);
		struct hand w = hand_open(b, p);
		hand_put(&w, 0, "x", 1);
		if (i == 1) {
			close(w.fd);
			continue; /* the first still runs */
		}
		hand_exit(&w, 0);
		proc_watch.exited(&b->s, p->num);
	}
	proc_retire(&b->s);
	for (unsigned i = 1; i <= OUTPUT + MORE; i++) {
		struct proc *p = proc_by_num(&b->s, i);
		assert_non_null(p);
		proc_ref(p);
		bool kept = i == 1 || i > MORE;
		if (proc_bytes(p, 0, 0, buf, 4, &end) != kept)
			fail_msg("process %u", i);
		proc_unref(p);
		assert_true(record_there(b, i));
	}
	box_free(b);
}

/* What starts take from the server's memory has an end, however long their arguments are. */
static void of_long_arguments_the_oldest_records_go(void **state)
{
	enum { SIZE = 256 * 1024, STARTS = 300, MOST = 4 << 20 };
	struct box *b = box_new();
	char *arg = malloc(SIZE + 1);

	(void)state;
	assert_non_null(arg);
	memset(arg, 'a', SIZE);
	arg[SIZE] = '\0';
	for (unsigned i = 1; i <= STARTS; i++) {
		struct proc *p = box_proc_of(b, NULL, false, i == 1 ? "short" : arg);
		struct hand w = hand_open(b, p);
		if (i == 1) {
			close(w.fd);
			continue; /* the first still runs */
		}
		hand_exit(&w, 0);
		proc_watch.exited(&b->s, p->num);
		assert_true(proc_too_heavy(&b->s) == (b->s.argv_kept > MOST));
		if (proc_too_heavy(&b->s))
			proc_retire(&b->s);
		assert_true(b->s.argv_kept <= MOST);
	}
	assert_non_null(proc_by_num(&b->s, 1));
	for (unsigned i = STARTS - 14; i <= STARTS; i++)
		assert_non_null(proc_by_num(&b->s, i));
	assert_null(proc_by_num(&b->s, STARTS - 16));
	assert_int_equal(b->s.running_procs, 1);
	assert_true(b->s.argv_live < 100);
	proc_free_all(&b->s);
	assert_int_equal(b->s.argv_live + b->s.argv_kept, 0);
	free(arg);
	box_free(b);
}

static void a_start_beyond_the_room_for_arguments_is_refused(void **state)
{
	static char *argv[] = { T("true"), NULL };
	const struct process_body body = { .argv = { argv, 1 } };
	struct box *b = box_new();
	struct err e = ERR_NULL;
	struct proc *p = NULL;

	(void)state;
	b->s.argv_live = 16 << 20;
	assert_int_equal(proc_start(&b->s, &body, &p, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	assert_non_null(strstr(e.msg, "arguments"));
	assert_int_equal(b->s.argv_live, 16 << 20);
	assert_int_equal(b->s.running_procs, 0);
	assert_int_equal(b->s.next_num, 1);
	assert_null(b->s.procs);
	box_free(b);
}

/* Frames: every call as a word in the log. */
struct frame_log {
	char text[256];
	size_t input;
};

static void log_input(void *arg, const void *buf, size_t len)
{
	struct frame_log *l = arg;

	l->input += len;
	if (len < 64)
		strncat(l->text, buf, len);
}
static void log_end(void *arg)
{
	strcat(((struct frame_log *)arg)->text, "<end>");
}
static void log_signal(void *arg, const char *word)
{
	struct frame_log *l = arg;
	sprintf(l->text + strlen(l->text), "<%s>", word);
}
static void log_resize(void *arg, uint16_t rows, uint16_t cols)
{
	struct frame_log *l = arg;
	sprintf(l->text + strlen(l->text), "<%ux%u>", rows, cols);
}
static const struct frame_calls log_calls = { log_input, log_end, log_signal, log_resize };

static void frames_are_the_same_however_they_are_cut(void **state)
{
	static const char in[] = "i\0\0\0\5hello"
				 "q\0\0\0\3???"
				 "r\0\0\0\4\0\45\0\161"
				 "r\0\0\0\3abc"
				 "s\0\0\0\4TERM"
				 "s\0\0\0\5TERMx"
				 "i\0\0\0\0"
				 "s\0\0\0\0"
				 "e\0\0\0\0"
				 "i\0\0\0\1!";

	(void)state;
	for (size_t cut = 1; cut < sizeof(in); cut++) {
		struct frame_log l = { .text = "" };
		struct frames f = { 0 };
		for (size_t at = 0; at < sizeof(in) - 1; at += cut)
			assert_int_equal(
				frames_feed(&f, in + at,
					at + cut < sizeof(in) - 1 ? cut : sizeof(in) - 1 - at,
					&log_calls, &l),
				0);
		assert_string_equal(l.text, "hello<37x113><TERM><><end>!");
	}
}

static void an_oversize_frame_ends_the_stream_by_its_head(void **state)
{
	static char piece[65536];
	struct frame_log l = { .text = "" };
	struct frames f = { 0 };
	uint8_t head[FRAME_HEAD];

	(void)state;
	frame_head('i', FRAME_MAX, head);
	assert_int_equal(frames_feed(&f, head, sizeof(head), &log_calls, &l), 0);
	for (size_t at = 0; at < FRAME_MAX; at += sizeof(piece))
		assert_int_equal(frames_feed(&f, piece, sizeof(piece), &log_calls, &l), 0);
	assert_int_equal(l.input, FRAME_MAX);
	frame_head('q', FRAME_MAX + 1, head);
	assert_int_equal(frames_feed(&f, head, sizeof(head), &log_calls, &l), -1);
}

int main(void)
{
	static bool alive = true;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_the_plain_spelling_of_a_number_finds_a_process),
		cmocka_unit_test(a_process_shows_what_the_contract_says),
		cmocka_unit_test(bodies_are_checked_in_order),
		cmocka_unit_test(a_run_refuses_limits_and_terminals_before_argv),
		cmocka_unit_test(of_equal_names_the_request_wins_over_sandbox_and_image),
		cmocka_unit_test(records_come_back_from_the_files),
		cmocka_unit_test_prestate(records_come_back_from_the_files, &alive),
		cmocka_unit_test(a_record_longer_than_a_page_comes_back),
		cmocka_unit_test(records_that_are_too_long_do_not_all_come_back),
		cmocka_unit_test(of_many_exited_the_oldest_lose_their_output_first),
		cmocka_unit_test(of_long_arguments_the_oldest_records_go),
		cmocka_unit_test(a_start_beyond_the_room_for_arguments_is_refused),
		cmocka_unit_test(frames_are_the_same_however_they_are_cut),
		cmocka_unit_test(an_oversize_frame_ends_the_stream_by_its_head),
	};

	return run_table(tests);
}
