/* SPDX-License-Identifier: MIT */
/* Background processes: start, list, get, input, signals, names (node
 * contract 11.3, 11.4, 11.6, 11.7; suite items 14-16; cases RUN-5, TTY-1). */
#include "tests/support/suite.h"

static struct rig *rig;
static const char *id;

static json_int_t start(const char *body)
{
	json_t *p = rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/processes", id), body, 201);
	json_int_t pid = json_integer_value(json_object_get(p, "pid"));

	assert_true(pid > 0);
	/* What ends at once may have ended by the time of the answer. */
	if (!strstr(body, "true")) {
		assert_string_equal(json_string_value(json_object_get(p, "state")), "running");
		assert_true(json_is_null(json_object_get(p, "exit_code")));
	}
	json_decref(p);
	return pid;
}

static const char *path_of(json_int_t pid, const char *rest)
{
	return rig_path("/v1/sandboxes/%s/processes/%lld%s", id, (long long)pid, rest);
}

struct wanted {
	json_int_t pid, code;
};

static bool has_exited(void *arg)
{
	struct wanted *w = arg;
	json_t *p = rig_json(rig, "GET", path_of(w->pid, ""), NULL, 200);
	bool exited = !strcmp(json_string_value(json_object_get(p, "state")), "exited");

	w->code = json_integer_value(json_object_get(p, "exit_code"));
	json_decref(p);
	return exited;
}

static json_int_t exit_code(json_int_t pid)
{
	struct wanted w = { .pid = pid };

	rig_wait(has_exited, &w, 20000);
	return w.code;
}

static int input(json_int_t pid, const char *query, const char *text)
{
	_cleanup_answer_ struct answer a = rig_send(rig, "POST",
		rig_path("/v1/sandboxes/%s/processes/%lld/stdin%s", id, (long long)pid, query),
		NULL, "application/octet-stream", text, strlen(text));

	return a.status;
}

static int signal_to(json_int_t pid, const char *body)
{
	_cleanup_answer_ struct answer a =
		rig_send(rig, "POST", path_of(pid, "/signal"), NULL, NULL, body, strlen(body));

	return a.status;
}

static void input_stays_open_until_it_is_closed(void **state)
{
	json_int_t pid = start("{\"argv\":[\"cat\"]}");

	(void)state;
	assert_int_equal(input(pid, "", "ping\n"), 204);
	assert_int_equal(input(pid, "", ""), 204);
	assert_int_equal(input(pid, "?close=0", "pong\n"), 204);
	struct wanted w = { .pid = pid };
	assert_false(has_exited(&w));
	assert_int_equal(input(pid, "?close=1&close=0", "end\n"), 204);
	assert_int_equal(exit_code(pid), 0);
	assert_int_equal(input(pid, "", "more"), 409);
	assert_int_equal(input(pid, "?close=1", ""), 409);
}

static void closed_input_of_a_living_process_is_refused(void **state)
{
	json_int_t pid =
		start("{\"argv\":[\"sh\",\"-c\",\"cat; exec sleep 60\"],\"stdin\":\"YQ==\"}");

	(void)state;
	assert_int_equal(input(pid, "?close=1", ""), 204);
	assert_int_equal(input(pid, "", "more"), 409);
	assert_int_equal(signal_to(pid, "{\"signal\":\"KILL\"}"), 204);
	assert_int_equal(exit_code(pid), 137);
}

static void input_of_64_mib_is_taken_and_one_byte_more_is_not(void **state)
{
	enum { MOST = 64 * 1024 * 1024 };
	char *data = calloc(1, MOST + 1);
	json_int_t pid = start("{\"argv\":[\"wc\",\"-c\"]}");

	(void)state;
	assert_non_null(data);
	for (int more = 1; more >= 0; more--) {
		_cleanup_answer_ struct answer a =
			rig_send(rig, "POST", path_of(pid, "/stdin?close=1"), NULL,
				"application/octet-stream", data, (size_t)MOST + (size_t)more);
		assert_answer(&a, more ? 413 : 204, more ? "invalid_request" : NULL);
	}
	free(data);
	assert_int_equal(exit_code(pid), 0);
	_cleanup_answer_ struct answer a =
		rig_send(rig, "GET", path_of(pid, "/output/stdout"), NULL, NULL, NULL, 0);
	assert_string_equal(a.body, "67108864\n");
}

static void input_that_nobody_reads_ends_with_its_client(void **state)
{
	static char data[150000]; /* more than a pipe takes, less than a socket */
	json_int_t pid = start("{\"argv\":[\"sleep\",\"60\"]}");
	int fd = rig_open(rig, "POST", path_of(pid, "/stdin"), NULL, "application/octet-stream",
		data, sizeof(data));

	(void)state;
	assert_true(httpc_silent(fd, 200)); /* it waits, and for longer than this */
	close(fd);
	assert_int_equal(signal_to(pid, "{\"signal\":\"KILL\"}"), 204);
	assert_int_equal(exit_code(pid), 137);
	fd = rig_open(rig, "POST", path_of(start("{\"argv\":[\"sleep\",\".3\"]}"), "/stdin"), NULL,
		"application/octet-stream", data, sizeof(data));
	_cleanup_answer_ struct answer a = httpc_answer(fd);
	close(fd);
	assert_answer(&a, 409, "conflict"); /* the process has exited meanwhile */
}

static void signals_reach_the_whole_group(void **state)
{
	static const struct {
		const char *body;
		json_int_t code;
	} rows[] = {
		{ "{\"signal\":\"TERM\"}", 143 },
		{ "{\"signal\":\"INT\"}", 130 },
		{ "{\"signal\":\"HUP\"}", 129 },
		{ "{\"signal\":\"KILL\"}", 137 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		json_int_t pid = start("{\"argv\":[\"sleep\",\"30\"]}");
		assert_int_equal(signal_to(pid, rows[i].body), 204);
		assert_int_equal(exit_code(pid), rows[i].code);
		assert_int_equal(signal_to(pid, rows[i].body), 204); /* without effect */
	}
	json_int_t pid = start("{\"argv\":[\"sh\",\"-c\",\"sleep 9003 & wait\"]}");
	assert_int_equal(signal_to(pid, "{\"signal\":\"KILL\"}"), 204);
	assert_int_equal(exit_code(pid), 137);
	assert_int_equal(
		rig_sh(rig, id, "ps -ef 2>/dev/null | grep '[s]leep 9003' | wc -l | grep -qx 0",
			NULL),
		0);
}

static void wrong_signals_are_refused_after_the_process_is_found(void **state)
{
	static const char *const bad[] = {
		"{\"signal\":\"STOP\"}",
		"{\"signal\":\"term\"}",
		"{\"signal\":\"SIGTERM\"}",
		"{\"signal\":\"\"}",
		"{\"signal\":null}",
		"{}",
		"",
	};
	json_int_t pid = start("{\"argv\":[\"true\"]}");

	(void)state;
	exit_code(pid);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(signal_to(pid, bad[i]), 400);
		assert_int_equal(signal_to(9999, bad[i]), 404);
	}
	assert_int_equal(signal_to(9999, "{\"signal\":15}"), 400);
	assert_int_equal(signal_to(9999, "{\"sig\":\"TERM\"}"), 400);
	assert_int_equal(signal_to(9999, "{\"signal\":\"TERM\"}"), 404);
}

static void unknown_processes_are_not_found(void **state)
{
	static const char *const pids[] = { "0", "9999", "01", "+1", "-1", "1.0", "x", "%20",
		"99999999999" };
	static const struct {
		const char *method, *rest, *body;
	} rows[] = {
		{ "GET", "", NULL },
		{ "GET", "/output", NULL },
		{ "POST", "/stdin", "" },
		{ "POST", "/signal", "{\"signal\":\"TERM\"}" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(pids); i++)
		for (size_t k = 0; k < ARRAY_LEN(rows); k++)
			rig_refuses(rig, rows[k].method,
				rig_path("/v1/sandboxes/%s/processes/%s%s", id, pids[i],
					rows[k].rest),
				rows[k].body, 404, "not_found");
}

static void numbers_count_up_and_are_listed_in_order(void **state)
{
	const char *box = rig_sandbox(rig, NULL);
	json_t *list, *p;
	size_t i;

	(void)state;
	for (int k = 0; k < 3; k++) {
		const char *kind = k == 1 ? "run" : "processes";
		p = rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/%s", box, kind),
			"{\"argv\":[\"true\"]}", k == 1 ? 200 : 201);
		json_decref(p);
		rig_refuses(rig, "POST", rig_path("/v1/sandboxes/%s/%s", box, kind),
			"{\"argv\":[\"no-such-program\"]}", 400, "invalid_request");
	}
	list = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/processes", box), NULL, 200);
	assert_int_equal(json_array_size(json_object_get(list, "processes")), 3);
	json_array_foreach (json_object_get(list, "processes"), i, p)
		assert_int_equal(json_integer_value(json_object_get(p, "pid")), i + 1);
	json_decref(list);
}

static void a_name_stands_for_a_number(void **state)
{
	json_t *p = rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/processes", id),
		"{\"argv\":[\"cat\"],\"name\":\"echo.1\"}", 201);

	(void)state;
	assert_string_equal(json_string_value(json_object_get(p, "name")), "echo.1");
	json_decref(p);
	p = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/processes/echo.1", id), NULL, 200);
	assert_string_equal(json_string_value(json_object_get(p, "name")), "echo.1");
	json_decref(p);
	rig_refuses(rig, "POST", rig_path("/v1/sandboxes/%s/processes", id),
		"{\"argv\":[\"cat\"],\"name\":\"echo.1\"}", 409, "conflict");
	rig_refuses(rig, "POST", rig_path("/v1/sandboxes/%s/processes", id),
		"{\"argv\":[\"cat\"],\"name\":\"1up\"}", 400, "invalid_request");
	json_decref(rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/processes/echo.1/signal", id),
		"{\"signal\":\"KILL\"}", 204));
}

static void the_window_size_is_there_before_the_program_asks(void **state)
{
	static const struct {
		const char *size, *want;
	} rows[] = {
		{ ",\"rows\":37,\"cols\":113", "37 113" },
		{ "", "24 80" },
		{ ",\"rows\":0,\"cols\":99", "24 80" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		json_int_t pid = start(rig_path(
			"{\"argv\":[\"sh\",\"-c\",\"stty size; echo $TERM\"],\"tty\":true%s}",
			rows[i].size));
		_cleanup_answer_ struct answer a = { 0 };
		assert_int_equal(exit_code(pid), 0);
		a = rig_send(rig, "GET", path_of(pid, "/output/stdout"), NULL, NULL, NULL, 0);
		assert_answer(&a, 200, NULL);
		assert_string_equal(a.body, rig_path("%s\r\nxterm-256color\r\n", rows[i].want));
	}
}

static void impossible_window_sizes_are_refused(void **state)
{
	static const char *const sizes[] = { "\"rows\":-1", "\"cols\":65536", "\"rows\":1.5",
		"\"cols\":\"80\"" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		rig_refuses(rig, "POST", rig_path("/v1/sandboxes/%s/processes", id),
			rig_path("{\"argv\":[\"true\"],\"tty\":true,%s}", sizes[i]), 400,
			"invalid_request");
}

static void closing_a_terminals_input_sends_control_d(void **state)
{
	json_int_t pid = start("{\"argv\":[\"cat\"],\"tty\":true}");

	(void)state;
	assert_int_equal(input(pid, "", "line\n"), 204);
	assert_int_equal(input(pid, "?close=1", ""), 204);
	assert_int_equal(exit_code(pid), 0);
}

static void processes_of_an_ended_sandbox_stay_on_record(void **state)
{
	const char *box = rig_sandbox(rig, NULL), *path;
	json_t *p = rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/processes", box),
		"{\"argv\":[\"sh\",\"-c\",\"echo here; exec sleep 60\"]}", 201);

	(void)state;
	json_decref(p);
	json_decref(rig_json(rig, "DELETE", rig_path("/v1/sandboxes/%s", box), NULL, 204));
	p = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/processes/1", box), NULL, 200);
	assert_string_equal(json_string_value(json_object_get(p, "state")), "exited");
	assert_int_equal(json_integer_value(json_object_get(p, "exit_code")), 137);
	json_decref(p);
	path = rig_path("/v1/sandboxes/%s/processes/1/signal", box);
	json_decref(rig_json(rig, "POST", path, "{\"signal\":\"TERM\"}", 204));
	_cleanup_answer_ struct answer a =
		rig_send(rig, "POST", rig_path("/v1/sandboxes/%s/processes/1/stdin", box), NULL,
			"application/octet-stream", "x", 1);
	assert_answer(&a, 409, "conflict");
}

static void processes_outlive_a_restart_of_the_server(void **state)
{
	json_int_t pid = start("{\"argv\":[\"cat\"],\"name\":\"survivor\"}"), next;

	(void)state;
	assert_int_equal(input(pid, "", "before\n"), 204);
	rig_restart(rig);
	struct wanted w = { .pid = pid };
	assert_false(has_exited(&w));
	json_decref(rig_json(
		rig, "GET", rig_path("/v1/sandboxes/%s/processes/survivor", id), NULL, 200));
	assert_int_equal(input(pid, "?close=1", "after\n"), 204);
	assert_int_equal(exit_code(pid), 0);
	_cleanup_answer_ struct answer a =
		rig_send(rig, "GET", path_of(pid, "/output/stdout"), NULL, NULL, NULL, 0);
	assert_string_equal(a.body, "before\nafter\n");
	next = start("{\"argv\":[\"true\"]}");
	assert_true(next > pid);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(input_stays_open_until_it_is_closed),
		cmocka_unit_test(closed_input_of_a_living_process_is_refused),
		cmocka_unit_test(input_of_64_mib_is_taken_and_one_byte_more_is_not),
		cmocka_unit_test(input_that_nobody_reads_ends_with_its_client),
		cmocka_unit_test(signals_reach_the_whole_group),
		cmocka_unit_test(wrong_signals_are_refused_after_the_process_is_found),
		cmocka_unit_test(unknown_processes_are_not_found),
		cmocka_unit_test(numbers_count_up_and_are_listed_in_order),
		cmocka_unit_test(a_name_stands_for_a_number),
		cmocka_unit_test(the_window_size_is_there_before_the_program_asks),
		cmocka_unit_test(impossible_window_sizes_are_refused),
		cmocka_unit_test(closing_a_terminals_input_sends_control_d),
		cmocka_unit_test(processes_of_an_ended_sandbox_stay_on_record),
		cmocka_unit_test(processes_outlive_a_restart_of_the_server),
	};

	return run_suite(tests, NULL, &rig, &id);
}
