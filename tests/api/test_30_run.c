/* SPDX-License-Identifier: MIT */
/* POST …/run over a real socket: node contract 11.1, 11.2, suite items 9-13, cases RUN-1 to RUN-6.
 */

#include "common/json/json.h"
#include "tests/support/suite.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct rig *rig;
static const char *id;

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static json_t *run(const char *body)
{
	return rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/run", id), body, 200);
}

/* Decoded stream of an answer; caller frees. */
static char *text_of(const json_t *result, const char *stream, size_t *ret_len)
{
	const char *b64 = json_string_value(json_object_get(result, stream));
	void *raw = NULL;

	assert_non_null(b64);
	assert_int_equal(base64_decode(b64, strlen(b64), &raw, ret_len), 0);
	return raw;
}

static void assert_result(json_t *r, int code, const char *out, const char *err)
{
	size_t n;
	_cleanup_free_ char *o = text_of(r, "stdout", &n), *e = text_of(r, "stderr", &n);

	assert_string_equal(o, out);
	assert_string_equal(e, err);
	assert_int_equal(json_integer_value(json_object_get(r, "exit_code")), code);
	assert_true(json_is_false(json_object_get(r, "truncated")));
	assert_true(json_is_false(json_object_get(r, "timed_out")));
	json_decref(r);
}

static void a_run_answers_with_output_and_exit_code(void **state)
{
	static const struct {
		const char *body;
		int code;
		const char *out, *err;
	} rows[] = {
		{ "{\"argv\":[\"echo\",\"hello\",\"world\"]}", 0, "hello world\n", "" },
		{ "{\"argv\":[\"false\"]}", 1, "", "" },
		{ "{\"argv\":[\"sh\",\"-c\",\"printf o; printf e >&2; exit 7\"]}", 7, "o", "e" },
		{ "{\"argv\":[\"sh\",\"-c\",\"kill -9 $$\"]}", 137, "", "" },
		{ "{\"argv\":[\"cat\"],\"stdin\":\"bGluZTEKbGluZTIK\"}", 0, "line1\nline2\n", "" },
		{ "{\"argv\":[\"cat\"]}", 0, "", "" },
		{ "{\"argv\":[\"cat\"],\"stdin\":\"\"}", 0, "", "" },
		{ "{\"argv\":[\"cat\"],\"stdin\":null,\"tty\":null,\"cwd\":null}", 0, "", "" },
		{ "{\"argv\":[\"printenv\",\"A\"],\"env\":{\"A\":\"x y\"}}", 0, "x y\n", "" },
		{ "{\"argv\":[\"true\"],\"cwd\":\"\",\"timeout_secs\":0}", 0, "", "" },
		{ "{\"argv\":[\"echo\",\"\"]}", 0, "\n", "" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_result(run(rows[i].body), rows[i].code, rows[i].out, rows[i].err);
}

static void what_cannot_be_run_is_refused_and_leaves_no_process(void **state)
{
	static const struct {
		const char *body;
		int status;
		const char *code, *word;
	} rows[] = {
		{ "{\"argv\":[\"definitely-not-a-command-x9\"]}", 400, "invalid_request",
			"not found" },
		{ "{\"argv\":[\"/etc\"]}", 400, "invalid_request", "not executable" },
		{ "{\"argv\":[\"/etc/passwd\"]}", 400, "invalid_request", "not executable" },
		{ "{\"argv\":[\"\"]}", 400, "invalid_request", "argv" },
		{ "{\"argv\":[]}", 400, "invalid_request", "argv" },
		{ "{\"argv\":null}", 400, "invalid_request", "argv" },
		{ "{}", 400, "invalid_request", "argv" },
		{ "{\"argv\":[\"true\\u0000\"]}", 400, "invalid_request", "argv" },
		{ "{\"argv\":[\"true\",null]}", 400, "invalid_request", "argv" },
		{ "{\"argv\":\"true\"}", 400, "invalid_request", "argv" },
		{ "{\"argv\":[\"true\"],\"cwd\":\"tmp\"}", 400, "invalid_request", "cwd" },
		{ "{\"argv\":[\"true\"],\"cwd\":\"/a/../b\"}", 400, "invalid_request", "cwd" },
		{ "{\"argv\":[\"true\"],\"cwd\":\"/no-such-dir\"}", 400, "invalid_request", "cwd" },
		{ "{\"argv\":[\"true\"],\"tty\":true}", 400, "invalid_request", "tty" },
		{ "{\"argv\":[\"true\"],\"timeout_secs\":-1}", 400, "invalid_request",
			"timeout_secs" },
		{ "{\"argv\":[\"true\"],\"timeout_secs\":1.5}", 400, "invalid_request",
			"timeout_secs" },
		{ "{\"argv\":[\"true\"],\"stdin\":\"not base64\"}", 400, "invalid_request",
			"stdin" },
		{ "{\"argv\":[\"true\"],\"env\":{\"1A\":\"\",\"LD_PRELOAD\":\"\"}}", 400,
			"invalid_request", "env" },
		{ "{\"argv\":[\"true\"],\"env\":{\"BASH_ENV\":\"zq7secret\"}}", 403, "refused",
			"BASH_ENV" },
		{ "{\"argv\":[\"true\"],\"nonsense\":1}", 400, "invalid_request", "nonsense" },
		{ "{\"argv\":[\"true\"],\"name\":\"x\"}", 400, "invalid_request", "name" },
	};
	json_t *before, *after;

	(void)state;
	before = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/processes", id), NULL, 200);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		_cleanup_answer_ struct answer a =
			rig_send(rig, "POST", rig_path("/v1/sandboxes/%s/run", id), NULL, NULL,
				rows[i].body, strlen(rows[i].body));
		assert_answer(&a, rows[i].status, rows[i].code);
		if (!strstr(a.body, rows[i].word))
			fail_msg("%s: %s", rows[i].body, a.body);
		assert_null(strstr(a.body, "zq7secret"));
	}
	after = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/processes", id), NULL, 200);
	assert_true(json_equal(before, after));
	json_decref(before);
	json_decref(after);
}

static void a_script_without_its_interpreter_is_not_an_exit_status(void **state)
{
	(void)state;
	assert_int_equal(rig_sh(rig, id, "printf '#!/no/interp\\n' > bad; chmod +x bad", NULL), 0);
	rig_refuses(rig, "POST", rig_path("/v1/sandboxes/%s/run", id), "{\"argv\":[\"./bad\"]}",
		400, "invalid_request");
}

static void a_child_left_in_the_background_does_not_hold_the_answer(void **state)
{
	int64_t start = now_ms();

	(void)state;
	assert_result(
		run("{\"argv\":[\"sh\",\"-c\",\"sleep 300 & echo started\"],\"timeout_secs\":60}"),
		0, "started\n", "");
	assert_result(run("{\"argv\":[\"sh\",\"-c\",\"(setsid sleep 300 &) ; echo again\"]}"), 0,
		"again\n", "");
	assert_true(now_ms() - start < 30000);
}

static void a_time_limit_ends_the_whole_tree_and_keeps_what_was_written(void **state)
{
	int64_t start = now_ms();
	json_t *r, *p, *list;
	size_t n;

	(void)state;
	r = run("{\"argv\":[\"sh\",\"-c\",\"echo early; trap '' TERM; sh -c 'trap \\\"\\\" TERM INT HUP; "
		"sleep 9001' & sleep 9001 | cat & wait\"],\"timeout_secs\":1}");
	assert_true(now_ms() - start < 30000);
	assert_true(json_is_true(json_object_get(r, "timed_out")));
	assert_int_equal(json_integer_value(json_object_get(r, "exit_code")), -1);
	_cleanup_free_ char *out = text_of(r, "stdout", &n);
	assert_string_equal(out, "early\n");
	json_decref(r);
	assert_int_equal(
		rig_sh(rig, id, "ps -ef 2>/dev/null | grep '[s]leep 9001' | wc -l | grep -qx 0",
			NULL),
		0);
	list = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/processes", id), NULL, 200);
	p = json_object_get(list, "processes");
	p = json_array_get(p, json_array_size(p) - 2); /* the last is the look itself */
	assert_int_equal(json_integer_value(json_object_get(p, "exit_code")), -1);
	json_decref(list);
}

static void the_end_of_a_large_output_is_never_lost(void **state)
{
	(void)state;
	for (int i = 0; i < 10; i++) {
		size_t n;
		json_t *r = run("{\"argv\":[\"seq\",\"1\",\"300000\"]}"); /* thirty pipes full */
		_cleanup_free_ char *out = text_of(r, "stdout", &n);
		assert_int_equal(n, 1988895);
		assert_string_equal(out + n - 7, "300000\n");
		json_decref(r);
	}
}

static void output_beyond_8_mib_is_cut_and_the_process_is_not_held_up(void **state)
{
	json_t *r = run("{\"argv\":[\"sh\",\"-c\",\"head -c 9437184 /dev/zero; echo done >&2\"]}");
	size_t n;
	char *text = text_of(r, "stdout", &n);

	(void)state;
	assert_int_equal(n, 8 * 1024 * 1024);
	free(text);
	assert_true(json_is_true(json_object_get(r, "truncated")));
	assert_int_equal(json_integer_value(json_object_get(r, "exit_code")), 0);
	text = text_of(r, "stderr", &n);
	assert_string_equal(text, "done\n");
	free(text);
	json_decref(r);
}

static void input_larger_than_a_pipe_does_not_hang_a_run_that_does_not_read(void **state)
{
	enum { RAW = 600000 };
	_cleanup_free_ char *data = calloc(1, RAW), *b64 = base64_encode(data, RAW), *body = NULL;
	json_t *r;
	size_t n;

	(void)state;
	assert_true(
		asprintf(&body, "{\"argv\":[\"sh\",\"-c\",\"sleep .1; echo ok\"],\"stdin\":\"%s\"}",
			b64) > 0);
	assert_result(run(body), 0, "ok\n", "");
	free(body);
	assert_true(asprintf(&body, "{\"argv\":[\"sh\",\"-c\",\"cat; cat >&2\"],\"stdin\":\"%s\"}",
			    b64) > 0);
	r = run(body);
	free(text_of(r, "stdout", &n));
	assert_int_equal(n, RAW);
	json_decref(r);
}

static void output_is_bytes(void **state)
{
	json_t *r = run("{\"argv\":[\"sh\",\"-c\",\"printf '\\\\360\\\\220'; printf "
			"'\\\\215\\\\210\\\\n\\\\377\\\\000\\\\376'\"]}");
	size_t n;
	_cleanup_free_ char *out = text_of(r, "stdout", &n);

	(void)state;
	assert_int_equal(n, 8);
	assert_memory_equal(out, "\xf0\x90\x8d\x88\n\xff\0\xfe", 8);
	json_decref(r);
}

static void nothing_of_the_server_is_inherited(void **state)
{
	_cleanup_free_ char *out = NULL;

	(void)state;
	assert_int_equal(
		rig_sh(rig, id,
			"grep -E 'SigIgn|SigBlk' /proc/self/status | grep -v 0000000000000000; ls /proc/self/fd | wc -l",
			&out),
		0);
	assert_string_equal(out, "4\n");
	assert_result(run("{\"argv\":[\"sh\",\"-c\",\"yes | head -n1\"],\"timeout_secs\":10}"), 0,
		"y\n", "");
}

static void unknown_and_ended_sandboxes_refuse_a_run(void **state)
{
	const char *other = rig_sandbox(rig, NULL);
	json_t *v;

	(void)state;
	rig_refuses(rig, "POST", "/v1/sandboxes/sbx_0000000000000000/run", "{\"argv\":[\"true\"]}",
		404, "not_found");
	v = rig_json(rig, "DELETE", rig_path("/v1/sandboxes/%s", other), NULL, 204);
	json_decref(v);
	rig_refuses(rig, "POST", rig_path("/v1/sandboxes/%s/run", other), "{\"argv\":[\"true\"]}",
		409, "conflict");
	/* The body comes first, then the sandbox, then what the body asks for. */
	rig_refuses(rig, "POST", rig_path("/v1/sandboxes/%s/run", other), "{\"bind\":1}", 400,
		"invalid_request");
	rig_refuses(rig, "POST", rig_path("/v1/sandboxes/%s/run", other), "{\"tty\":true}", 409,
		"conflict");
}

static bool sleeper_is_gone(void *arg)
{
	(void)arg;
	return rig_sh(rig, id, "ps -ef 2>/dev/null | grep '[s]leep 9002' | wc -l | grep -qx 0",
		       NULL) == 0;
}

static bool sleeper_is_there(void *arg)
{
	return !sleeper_is_gone(arg);
}

static void a_client_that_leaves_takes_its_run_with_it(void **state)
{
	static const char body[] = "{\"argv\":[\"sh\",\"-c\",\"sleep 9002 & wait\"]}";
	int fd = rig_open(rig, "POST", rig_path("/v1/sandboxes/%s/run", id), NULL, NULL, body,
		sizeof(body) - 1);

	(void)state;
	rig_wait(sleeper_is_there, NULL, 10000);
	close(fd);
	rig_wait(sleeper_is_gone, NULL, 10000);
}

struct begun {
	const char *box;
};

static bool has_begun(void *arg)
{
	const struct begun *b = arg;
	_cleanup_answer_ struct answer a =
		rig_send(rig, "GET", rig_path("/v1/sandboxes/%s/processes/1/output/stdout", b->box),
			NULL, NULL, NULL, 0);

	return a.status == 200 && a.len > 0;
}

static void a_run_ends_with_its_sandbox(void **state)
{
	static const char body[] = "{\"argv\":[\"sh\",\"-c\",\"echo begun; exec sleep 60\"]}";
	const char *box = rig_sandbox(rig, NULL);
	int fd = rig_open(rig, "POST", rig_path("/v1/sandboxes/%s/run", box), NULL, NULL, body,
		sizeof(body) - 1);
	struct begun b = { .box = box };
	json_t *r;
	size_t n;

	(void)state;
	rig_wait(has_begun, &b, 10000);
	json_decref(rig_json(rig, "DELETE", rig_path("/v1/sandboxes/%s", box), NULL, 204));
	_cleanup_answer_ struct answer a = httpc_answer(fd);
	close(fd);
	assert_answer(&a, 200, NULL);
	r = answer_json(&a);
	_cleanup_free_ char *out = text_of(r, "stdout", &n);
	assert_string_equal(out, "begun\n");
	assert_int_equal(json_integer_value(json_object_get(r, "exit_code")), 137);
	json_decref(r);
}

/* SEC-1 and suite items 41, 42: the log knows program, count and hash, and no text. */
static void events_of_a_run_hold_a_hash_of_its_arguments(void **state)
{
	json_t *r = run(
		"{\"argv\":[\"sh\",\"-c\",\"true\",\"zq7secret-2\"],\"env\":{\"T\":\"zq7secret-3\"},"
		"\"cwd\":\"/tmp\",\"stdin\":\"enE3c2VjcmV0\"}");
	json_t *events, *list, *started = NULL, *ended = NULL, *e;
	size_t i;

	(void)state;
	json_decref(r);
	events = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/events", id), NULL, 200);
	list = json_object_get(events, "events");
	_cleanup_free_ char *text = json_text(events);
	assert_null(strstr(text, "zq7secret"));
	json_array_foreach (list, i, e) {
		const char *type = json_string_value(json_object_get(e, "type"));
		if (!strcmp(type, "process.started"))
			started = e;
		if (!strcmp(type, "process.exited"))
			ended = e;
	}
	assert_non_null(started);
	assert_string_equal(json_string_value(json_object_get(started, "program")), "sh");
	assert_int_equal(json_integer_value(json_object_get(started, "arg_count")), 3);
	assert_string_equal(json_string_value(json_object_get(started, "args_sha256")),
		"c6d5b26f7e0abfeaa6a0ce1c59e8240dd6358c7e85f722fbad6c45447823e8b8");
	assert_string_equal(json_string_value(json_object_get(started, "cwd")), "/tmp");
	assert_string_equal(
		json_string_value(json_array_get(json_object_get(started, "env_names"), 0)), "T");
	if (ended) /* may come after the answer */
		assert_true(json_is_integer(json_object_get(ended, "exit_code")));
	json_decref(events);
}

static const char *found_in; /* nftw has no argument for its callback */

static int look_for_secret(const char *path, const struct stat *st, int type, struct FTW *at)
{
	static char buf[1 << 16];
	off_t pos = 0; /* spools are a gigabyte, nearly all of it holes */
	int fd;
	ssize_t n;

	(void)at;
	if (type != FTW_F || !S_ISREG(st->st_mode))
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return 0;
	while ((pos = lseek(fd, pos, SEEK_DATA)) >= 0 && (n = read(fd, buf, sizeof(buf))) > 0) {
		if (memmem(buf, (size_t)n, "zq7kept", 7))
			found_in = "a file";
		pos += n;
	}
	close(fd);
	if (strstr(path, "/run/") && (st->st_mode & 077))
		found_in = "permissions of the run folder";
	return 0;
}

static void values_and_input_of_a_run_are_kept_nowhere(void **state)
{
	(void)state;
	json_decref(run(
		"{\"argv\":[\"true\"],\"env\":{\"T\":\"zq7kept\"},\"stdin\":\"enE3a2VwdA==\"}"));
	found_in = NULL;
	assert_int_equal(nftw(rig->state, look_for_secret, 16, FTW_PHYS), 0);
	assert_null(found_in);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_run_answers_with_output_and_exit_code),
		cmocka_unit_test(what_cannot_be_run_is_refused_and_leaves_no_process),
		cmocka_unit_test(a_script_without_its_interpreter_is_not_an_exit_status),
		cmocka_unit_test(a_child_left_in_the_background_does_not_hold_the_answer),
		cmocka_unit_test(a_time_limit_ends_the_whole_tree_and_keeps_what_was_written),
		cmocka_unit_test(the_end_of_a_large_output_is_never_lost),
		cmocka_unit_test(output_beyond_8_mib_is_cut_and_the_process_is_not_held_up),
		cmocka_unit_test(input_larger_than_a_pipe_does_not_hang_a_run_that_does_not_read),
		cmocka_unit_test(output_is_bytes),
		cmocka_unit_test(nothing_of_the_server_is_inherited),
		cmocka_unit_test(unknown_and_ended_sandboxes_refuse_a_run),
		cmocka_unit_test(a_client_that_leaves_takes_its_run_with_it),
		cmocka_unit_test(a_run_ends_with_its_sandbox),
		cmocka_unit_test(events_of_a_run_hold_a_hash_of_its_arguments),
		cmocka_unit_test(values_and_input_of_a_run_are_kept_nowhere),
	};

	return run_suite(tests, NULL, &rig, &id);
}
