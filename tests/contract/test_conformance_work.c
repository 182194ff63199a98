/* SPDX-License-Identifier: MIT */
/* The contract's acceptance list, seen from outside: work in a sandbox. See test_conformance.c. */
#include "tests/support/conform.h"

#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char *run_path(const char *id)
{
	return at("/v1/sandboxes/%s/run", id);
}

/* 9 */
static void a_run_captures_output_and_exit_code(void **state)
{
	const char *id = box(NULL);
	struct ran r = run_in(id, argv_of("echo", "hello", "world", NULL));

	(void)state;
	assert_int_equal(r.code, 0);
	assert_string_equal(r.out, "hello world\n");
	assert_false(r.truncated || r.timed_out);
	assert_int_equal(run_in(id, argv_of("false", NULL)).code, 1);
}

/* 10 */
static void a_run_passes_its_input(void **state)
{
	/* "one line\nanother\n" */
	struct ran r = run_in(box(NULL),
		with(argv_of("cat", NULL), "stdin", json_string("b25lIGxpbmUKYW5vdGhlcgo=")));

	(void)state;
	assert_int_equal(r.code, 0);
	assert_string_equal(r.out, "one line\nanother\n");
}

static long seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

/* 11 */
static void a_run_times_out(void **state)
{
	const char *id = box(NULL);
	long start = seconds();
	struct ran r =
		run_in(id, with(argv_of("sleep", "30", NULL), "timeout_secs", json_integer(1)));

	(void)state;
	assert_true(r.timed_out);
	assert_int_equal(r.code, -1);
	assert_true(seconds() - start < 15);
}

/* 12 */
static void a_run_refuses_an_unknown_command(void **state)
{
	const char *id = box(NULL);

	(void)state;
	refused("invalid_request", "POST", run_path(id),
		argv_of("definitely-not-a-command-x9", NULL));
	refused("invalid_request", "POST", run_path(id), J("{s:n}", "argv"));
}

static json_t *pwd_in(const char *cwd)
{
	return with(argv_of("pwd", NULL), "cwd", json_string(cwd));
}

/* 13 */
static void a_run_uses_the_working_directory(void **state)
{
	const char *id = box(NULL);

	(void)state;
	assert_string_equal(run_in(id, pwd_in("/tmp")).out, "/tmp\n");
	refused("invalid_request", "POST", run_path(id), pwd_in("tmp"));
	assert_non_null(strstr(
		refused("invalid_request", "POST", run_path(id), pwd_in("/no-such-dir")), "cwd"));
	assert_string_equal(run_in(id, argv_of("pwd", NULL)).out, "/sandbox/home\n");
}

static json_t *process(const char *id, long pid)
{
	return ask("GET", at("/v1/sandboxes/%s/processes/%ld", id, pid), NULL);
}

/* 14 */
static void a_background_process_streams_input_to_output(void **state)
{
	const char *id = box(NULL), *out;
	long pid = start_in(id, argv_of("cat", NULL)), code;
	json_t *p, *list;

	(void)state;
	assert_string_equal(str(process(id, pid), "state"), "running");
	stdin_to(id, pid, "ping\n", false);
	stdin_to(id, pid, "pong\n", true);
	out = follow(id, pid, &code);
	p = process(id, pid);
	assert_string_equal(out, "ping\npong\n");
	assert_int_equal(code, 0);
	assert_string_equal(str(p, "state"), "exited");
	assert_true(json_is_integer(json_object_get(p, "exit_code")));
	assert_int_equal(num(p, "exit_code"), 0);
	list = json_object_get(ask("GET", at("/v1/sandboxes/%s/processes", id), NULL), "processes");
	assert_int_equal(json_array_size(list), 1);
	assert_int_equal(num(json_array_get(list, 0), "pid"), pid);
	refused_bytes("conflict", "POST", at("/v1/sandboxes/%s/processes/%ld/stdin", id, pid), "x");
}

/* 15 */
static void a_signal_ends_a_process(void **state)
{
	const char *id = box(NULL);
	long pid = start_in(id, argv_of("sleep", "30", NULL)), code;
	const char *path = at("/v1/sandboxes/%s/processes/%ld/signal", id, pid);

	(void)state;
	ask("POST", path, J("{s:s}", "signal", "TERM"));
	follow(id, pid, &code);
	assert_int_equal(code, 143);
	refused("invalid_request", "POST", path, J("{s:s}", "signal", "STOP"));
}

/* 16 */
static void a_late_follower_sees_output_from_the_start(void **state)
{
	const char *id = box(NULL);
	long pid = start_in(id, argv_of("echo", "early", NULL)), code;

	(void)state;
	for (int i = 0; strcmp(str(process(id, pid), "state"), "exited") != 0; i++) {
		assert_true(i < 200);
		pause_ms(100);
	}
	for (int i = 0; i < 2; i++) {
		assert_string_equal(follow(id, pid, &code), "early\n");
		assert_int_equal(code, 0);
	}
}

static json_t *dir(const char *id, const char *path)
{
	return json_object_get(
		ask("GET", path_in(id, "dirs", path, strlen(path)), NULL), "entries");
}

static const char *file_path(const char *id, const char *path)
{
	return path_in(id, "files", path, strlen(path));
}

/* 17 */
static void files_make_the_round_trip(void **state)
{
	static const char content[27] = "binary\0content\xff with\nlines";
	static const char path[] = "/sandbox/home/nested/dir/f.txt";
	const char *id = box(NULL);
	const json_t *e;
	size_t len;

	(void)state;
	file_put_in(id, path, content, sizeof(content));
	assert_memory_equal(file_get_in(id, path, &len), content, sizeof(content));
	assert_int_equal(len, sizeof(content));
	assert_int_equal(json_array_size(dir(id, "/sandbox/home/nested/dir")), 1);
	e = json_array_get(dir(id, "/sandbox/home/nested/dir"), 0);
	assert_string_equal(str(e, "name"), "f.txt");
	assert_string_equal(str(e, "type"), "file");
	assert_int_equal(num(e, "size"), sizeof(content));
	assert_int_equal(json_array_size(dir(id, "/sandbox/home/nested")), 1);
	assert_string_equal(str(json_array_get(dir(id, "/sandbox/home/nested"), 0), "type"), "dir");
	ask("DELETE", file_path(id, path), NULL);
	refused("not_found", "GET", file_path(id, path), NULL);
}

/* 18 */
static void files_and_processes_share_one_file_system(void **state)
{
	const char *id = box(NULL);

	(void)state;
	file_put_in(id, "/sandbox/home/shared.txt", "shared content", 14);
	assert_string_equal(
		run_in(id, argv_of("cat", "/sandbox/home/shared.txt", NULL)).out, "shared content");
	assert_string_equal(run_in(id, with(argv_of("cat", "shared.txt", NULL), "cwd",
					       json_string("/sandbox/home")))
				    .out,
		"shared content");
}

/* 19 */
static void removing_a_directory_that_is_not_empty_conflicts(void **state)
{
	const char *id = box(NULL);

	(void)state;
	file_put_in(id, "/sandbox/home/d/x", "x", 1);
	refused("conflict", "DELETE", file_path(id, "/sandbox/home/d"), NULL);
}

/* 20 */
static void paths_that_lead_elsewhere_are_refused(void **state)
{
	static const struct {
		const char *path;
		size_t len;
	} rows[] = {
		{ "relative/path", 13 },
		{ "/workspace/../etc/passwd", 24 },
		{ "/a/../../b", 10 },
		{ "", 0 },
		{ "/x\0y", 4 },
	};
	const char *id = box(NULL);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const char *path = path_in(id, "files", rows[i].path, rows[i].len);
		refused("invalid_request", "GET", path, NULL);
		refused_bytes("invalid_request", "PUT", path, "x");
	}
}

/* 34 */
static void an_attach_streams_input_and_output(void **state)
{
	const char *id = box(NULL);
	long pid = start_in(id, argv_of("cat", NULL));
	struct conform_stream got[2];

	(void)state;
	attach(id, pid, "first\n", false, false);
	pause_ms(100);
	assert_string_equal(str(process(id, pid), "state"), "running");
	got[0] = attach(id, pid, "second\n", true, true);
	got[1] = attach(id, pid, NULL, false, true);
	for (size_t i = 0; i < ARRAY_LEN(got); i++) {
		assert_string_equal(got[i].out, "first\nsecond\n");
		assert_int_equal(got[i].code, 0);
	}
	refused("invalid_request", "POST", run_path(id),
		with(argv_of("true", NULL), "tty", json_true()));
}

static json_t *two_samples(const char *path)
{
	for (int i = 0; i < 120; i++) {
		json_t *m = ask("GET", path, NULL);
		assert_true(num(m, "interval_secs") >= 1);
		if (json_array_size(json_object_get(m, "samples")) >= 2)
			return json_object_get(m, "samples");
		pause_ms(250);
	}
	fail_msg("fewer than two samples within 30 s");
	return NULL;
}

/* 37 */
static void usage_of_a_running_sandbox_is_sampled(void **state)
{
	const char *path = at("/v1/sandboxes/%s/metrics", box(NULL)), *before = "";
	json_t *samples, *s;
	size_t i;

	(void)state;
	if (!conform_can("metrics")) {
		refused("unsupported", "GET", path, NULL);
		return;
	}
	samples = two_samples(path);
	json_array_foreach (samples, i, s) {
		double cpu = json_number_value(json_object_get(s, "cpu_percent"));
		long used = num(s, "memory_bytes"), limit = num(s, "memory_limit_bytes");
		assert_true(cpu >= 0 && cpu <= 100);
		assert_true(used >= 0 && (limit <= 0 || used <= limit));
		assert_true(strcmp(before, str(s, "time")) < 0); /* one precision for all */
		before = str(s, "time");
	}
	refused("", "GET", "/v1/sandboxes/sbx_0000000000000000/metrics", NULL);
}

/* A server in the guest that answers "hello from the guest:" and what it was sent. */
static bool listen_in(const char *id, const char *address)
{
	static const char with_python[] =
		"import socket,sys\n"
		"s=socket.socket();s.setsockopt(socket.SOL_SOCKET,socket.SO_REUSEADDR,1)\n"
		"s.bind((sys.argv[1],8765));s.listen()\n"
		"while 1:\n"
		" c,_=s.accept();d=c.recv(4);c.sendall(b'hello from the guest:'+d);c.close()\n";
	static const char with_nc[] =
		"busybox nc -ll -p 8765 -e sh -c 'printf \"hello from the guest:\"; head -c 4'";

	if (sh_in(id, "command -v python3").code == 0)
		start_in(id, argv_of("python3", "-c", with_python, address, NULL));
	else if (sh_in(id, "command -v busybox").code == 0)
		start_in(id, argv_of("sh", "-c", with_nc, NULL));
	else
		return false;
	return true;
}

/* 39 */
static void a_tunnel_reaches_a_port_of_the_guest(void **state)
{
	const char *id = box(NULL);
	char got[64] = "";
	size_t len = 0;
	ssize_t n;
	int fd = -1;

	(void)state;
	if (!conform_can("tunnel")) {
		refused("unsupported", "GET", at("/v1/sandboxes/%s/tunnel?port=8765", id), NULL);
		return;
	}
	assert_int_equal(tunnel(id, 8765), -1); /* nobody listens yet */
	if (!listen_in(id, "127.0.0.1"))
		skip();
	for (int i = 0; i < 100 && (fd = tunnel(id, 8765)) < 0; i++)
		pause_ms(50);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "ping", 4), 4);
	while ((n = read(fd, got + len, sizeof(got) - 1 - len)) > 0)
		len += (size_t)n;
	assert_int_equal(n, 0);
	close(fd);
	assert_string_equal(got, "hello from the guest:ping");
	assert_int_equal(tunnel(id, 0), -1);
	refused("invalid_request", "GET", at("/v1/sandboxes/%s/tunnel?port=0", id), NULL);
}

/* 43 */
static void processes_do_not_run_as_root(void **state)
{
	struct ran r = run_in(box(NULL), argv_of("id", "-u", NULL));

	(void)state;
	assert_int_equal(r.code, 0);
	assert_true(r.len > 0);
	assert_string_not_equal(r.out, "0\n");
}

static bool reaches(const char *id, const char *address)
{
	char text[200];

	snprintf(text, sizeof(text), "printf ping | busybox nc -w 1 %s 8765 | grep -q hello",
		address);
	return sh_in(id, text).code == 0;
}

/* 44; where a sandbox has no address but its loopback, that one must be its own. */
static void sandboxes_cannot_reach_each_other(void **state)
{
	const char *a = box(NULL), *b = box(NULL);
	char address[64] = "127.0.0.1";
	bool up = false;
	struct ran r;

	(void)state;
	if (!listen_in(a, "0.0.0.0"))
		skip();
	r = sh_in(a,
		"ip -o -4 addr | grep -v ' lo ' | sed 's/.*inet \\([0-9.]*\\).*/\\1/' | head -n1");
	if (r.code == 0 && r.len > 7)
		snprintf(address, sizeof(address), "%.*s", (int)strcspn(r.out, "\n"), r.out);
	for (int i = 0; i < 50 && !up; i++) {
		up = reaches(a, address);
		if (!up)
			pause_ms(100);
	}
	assert_true(up);
	for (int i = 0; i < 10; i++)
		assert_false(reaches(b, address));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		conform_test(a_run_captures_output_and_exit_code),
		conform_test(a_run_passes_its_input),
		conform_test(a_run_times_out),
		conform_test(a_run_refuses_an_unknown_command),
		conform_test(a_run_uses_the_working_directory),
		conform_test(a_background_process_streams_input_to_output),
		conform_test(a_signal_ends_a_process),
		conform_test(a_late_follower_sees_output_from_the_start),
		conform_test(files_make_the_round_trip),
		conform_test(files_and_processes_share_one_file_system),
		conform_test(removing_a_directory_that_is_not_empty_conflicts),
		conform_test(paths_that_lead_elsewhere_are_refused),
		conform_test(an_attach_streams_input_and_output),
		conform_test(usage_of_a_running_sandbox_is_sampled),
		conform_test(a_tunnel_reaches_a_port_of_the_guest),
		conform_test(processes_do_not_run_as_root),
		conform_test(sandboxes_cannot_reach_each_other),
	};

	return conform_run("conformance: work", tests, ARRAY_LEN(tests));
}
