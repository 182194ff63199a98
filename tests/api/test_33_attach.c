/* SPDX-License-Identifier: MIT */
/* Attach over a real socket (node contract 12, suite item 34, check 28.10, case TTY-1). */
#include "sandboxd/api/upgrade.h"
#include "tests/support/patience.h"
#include "tests/support/suite.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define UPGRADE "Connection: keep-alive, Upgrade\r\nUpgrade: SBX-stream/1\r\n"
#define WAIT_MS 20000

static struct rig *rig;
static const char *id;

static json_int_t start(const char *body)
{
	json_t *p = rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/processes", id), body, 201);
	json_int_t pid = json_integer_value(json_object_get(p, "pid"));

	json_decref(p);
	return pid;
}

static int attach(json_int_t pid)
{
	int fd = rig_open(rig, "GET",
		rig_path("/v1/sandboxes/%s/processes/%lld/attach", id, (long long)pid), UPGRADE,
		NULL, NULL, 0);
	_cleanup_answer_ struct answer a = httpc_head(fd);
	char value[64];

	assert_int_equal(a.status, 101);
	assert_non_null(answer_header(&a, "Connection", value, sizeof(value)));
	assert_string_equal(answer_header(&a, "Upgrade", value, sizeof(value)), "sbx-stream/1");
	return fd;
}

static void put(int fd, char type, const void *payload, size_t len)
{
	unsigned char head[5] = { (unsigned char)type, (unsigned char)(len >> 24),
		(unsigned char)(len >> 16), (unsigned char)(len >> 8), (unsigned char)len };

	httpc_send_bytes(fd, head, 5);
	httpc_send_bytes(fd, payload, len);
}

static bool get_bytes(int fd, void *buf, size_t len)
{
	for (size_t got = 0; got < len;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		assert_int_equal(poll(&p, 1, WAIT_MS), 1);
		ssize_t n = recv(fd, (char *)buf + got, len - got, 0);
		if (n <= 0)
			return false;
		got += (size_t)n;
	}
	return true;
}

/* One frame; false at the end of the stream. Payload is NUL-terminated, caller frees. */
static bool get(int fd, char *ret_type, char **ret_payload, size_t *ret_len)
{
	unsigned char head[5];
	size_t len;

	if (!get_bytes(fd, head, 5))
		return false;
	len = (size_t)head[1] << 24 | (size_t)head[2] << 16 | (size_t)head[3] << 8 | head[4];
	assert_true(len <= 1024 * 1024);
	*ret_type = (char)head[0];
	*ret_payload = calloc(1, len + 1);
	*ret_len = len;
	assert_true(len == 0 || get_bytes(fd, *ret_payload, len));
	return true;
}

/* Reads to the exit frame, which must be the last; output of both streams joined, caller frees. */
static char *read_to_exit(int fd, int *ret_code, size_t *ret_len)
{
	char *text = calloc(1, 1), *payload, type;
	size_t len = 0, n;
	bool ended = false;

	while (get(fd, &type, &payload, &n)) {
		assert_false(ended);
		if (type == 'x') {
			assert_int_equal(n, 4);
			const unsigned char *p = (unsigned char *)payload;
			*ret_code = (int)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 |
					  (uint32_t)p[2] << 8 | p[3]);
			ended = true;
		} else {
			assert_true(type == 'o' || type == 'E');
			text = realloc(text, len + n + 1);
			memcpy(text + len, payload, n + 1);
			len += n;
		}
		free(payload);
	}
	assert_true(ended);
	if (ret_len)
		*ret_len = len;
	return text;
}

/* Waits until the output holds `want`; further bytes are kept in *text. */
static void read_until(int fd, char **text, const char *want)
{
	while (!*text || !strstr(*text, want)) {
		char type, *payload;
		size_t n, have = *text ? strlen(*text) : 0;
		assert_true(get(fd, &type, &payload, &n));
		assert_int_not_equal(type, 'x');
		*text = realloc(*text, have + n + 1);
		memcpy(*text + have, payload, n + 1);
		free(payload);
	}
}

static const char *state_of(json_int_t pid, int *ret_code)
{
	json_t *p = rig_json(rig, "GET",
		rig_path("/v1/sandboxes/%s/processes/%lld", id, (long long)pid), NULL, 200);
	bool exited = !strcmp(json_string_value(json_object_get(p, "state")), "exited");

	if (ret_code)
		*ret_code = (int)json_integer_value(json_object_get(p, "exit_code"));
	json_decref(p);
	return exited ? "exited" : "running";
}

static void frames_sent_before_a_close_are_applied_and_the_process_goes_on(void **state)
{
	json_int_t pid = start("{\"argv\":[\"cat\"]}");
	int fd = attach(pid), code = -1;
	char *text;

	(void)state;
	put(fd, 'i', "first\n", 6);
	close(fd);
	assert_string_equal(state_of(pid, NULL), "running");
	fd = attach(pid);
	text = NULL;
	read_until(fd, &text, "first\n");
	free(text);
	put(fd, 'i', "second\n", 7);
	put(fd, 'e', NULL, 0);
	text = read_to_exit(fd, &code, NULL);
	assert_string_equal(text, "second\n");
	assert_int_equal(code, 0);
	free(text);
	close(fd);
	fd = attach(pid);
	put(fd, 'i', "ignored", 7);
	text = read_to_exit(fd, &code, NULL);
	assert_string_equal(text, "first\nsecond\n");
	assert_int_equal(code, 0);
	free(text);
	close(fd);
}

/* The process reads nothing for longer than a server might be patient with one who has left; where
 * it talks meanwhile, the server sees early that nobody listens. */
static void input_sent_before_a_close_waits_for_its_reader(void **state)
{
	static const char *const bodies[] = {
		"{\"argv\":[\"sh\",\"-c\",\"while [ ! -e go ]; do sleep 0.1; done; cat > got0\"]}",
		"{\"argv\":[\"sh\",\"-c\",\"while [ ! -e go ]; do echo; sleep 0.1; done; cat > got1\"]}",
	};
	enum { PART = 50000, PARTS = 3 }; /* more than a pipe takes */
	static char data[PART];
	json_int_t pid[ARRAY_LEN(bodies)];
	char *out = NULL;
	int fd, code;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
		pid[i] = start(bodies[i]);
		fd = attach(pid[i]);
		for (int n = 0; n < PARTS; n++)
			put(fd, 'i', memset(data, 'a' + n, PART), PART);
		put(fd, 'e', NULL, 0);
		close(fd);
	}
	sleep(6);
	assert_int_equal(rig_sh(rig, id, "touch go", NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
		fd = attach(pid[i]);
		free(read_to_exit(fd, &code, NULL));
		close(fd);
		assert_int_equal(code, 0);
		assert_int_equal(rig_sh(rig, id, i ? "cat got1" : "cat got0", &out), 0);
		assert_int_equal(strlen(out), PART * PARTS);
		for (int n = 0; n < PART * PARTS; n++)
			assert_int_equal(out[n], 'a' + n / PART);
		free(out);
	}
}

static void input_of_one_who_left_does_not_hold_up_a_stop(void **state)
{
	static char big[200000];
	struct rig *shared = rig;
	const char *box = id;
	json_int_t pid;
	int fd;

	(void)state;
	/* a stop waits for its streams, if need be for ever */
	alarm((unsigned)patience_ms(120000) / 1000);
	rig = rig_new(NULL);
	id = rig_sandbox(rig, NULL);
	pid = start("{\"argv\":[\"sleep\",\"600\"]}");
	fd = attach(pid);
	put(fd, 'i', big, sizeof(big));
	close(fd);
	rig_restart(rig);
	alarm(0);
	assert_string_equal(state_of(pid, NULL), "running");
	rig_free(rig);
	rig = shared;
	id = box;
}

/* A process that does not read on keeps nobody's place. */
static void input_that_nobody_takes_is_given_up(void **state)
{
	static char big[200000];
	json_int_t pid = start("{\"argv\":[\"sh\",\"-c\","
			       "\"while [ ! -e on ]; do sleep 0.1; done; cat > rest\"]}");
	int before = upgrade_patience_ms, fd, code;
	char *out = NULL;

	(void)state;
	upgrade_patience_ms = 2000;
	fd = attach(pid);
	put(fd, 'i', big, sizeof(big));
	put(fd, 'e', NULL, 0);
	close(fd);
	sleep(6);
	upgrade_patience_ms = before;
	assert_int_equal(rig_sh(rig, id, "touch on", NULL), 0);
	sleep(2); /* all would come, and its end */
	fd = attach(pid);
	put(fd, 'e', NULL, 0);
	free(read_to_exit(fd, &code, NULL));
	close(fd);
	assert_int_equal(rig_sh(rig, id, "wc -c < rest", &out), 0);
	assert_true(atoi(out) < (int)sizeof(big));
	free(out);
}

static void several_attaches_see_the_same_and_all_may_write(void **state)
{
	json_int_t pid = start("{\"argv\":[\"cat\"]}");
	int a = attach(pid), b = attach(pid), code;
	char *ta = NULL, *tb = NULL;

	(void)state;
	put(a, 'i', "from a\n", 7);
	read_until(b, &tb, "from a\n");
	put(b, 'i', "from b\n", 7);
	read_until(a, &ta, "from b\n");
	assert_string_equal(ta, "from a\nfrom b\n");
	put(b, 'e', NULL, 0);
	free(read_to_exit(a, &code, NULL));
	assert_int_equal(code, 0);
	free(read_to_exit(b, &code, NULL));
	assert_int_equal(code, 0);
	free(ta);
	free(tb);
	close(a);
	close(b);
}

static void unknown_and_malformed_frames_are_skipped(void **state)
{
	json_int_t pid = start("{\"argv\":[\"cat\"]}");
	int fd = attach(pid), code;
	char *text;

	(void)state;
	put(fd, 'q', "whatever", 8);
	put(fd, 's', "STOP", 4);
	put(fd, 's', "USR1 and more", 13);
	put(fd, 'r', "\0\1\0\1", 4); /* no terminal */
	put(fd, 'r', "abc", 3);
	put(fd, 'i', NULL, 0);
	put(fd, 'i', "still here\n", 11);
	put(fd, 'e', NULL, 0);
	text = read_to_exit(fd, &code, NULL);
	assert_string_equal(text, "still here\n");
	assert_int_equal(code, 0);
	free(text);
	close(fd);
}

static void an_oversize_frame_ends_the_connection_but_not_the_process(void **state)
{
	json_int_t pid = start("{\"argv\":[\"cat\"]}");
	int fd = attach(pid);

	(void)state;
	httpc_send_bytes(fd, "i\0\x10\0\1", 5); /* 1 MiB and one */
	assert_true(httpc_closed(fd, WAIT_MS));
	close(fd);
	assert_string_equal(state_of(pid, NULL), "running");
}

static void a_megabyte_of_binary_data_passes_unchanged(void **state)
{
	enum { N = 1024 * 1024 };
	json_int_t pid = start("{\"argv\":[\"cat\"]}");
	int fd = attach(pid), code;
	unsigned char *data = malloc(N);
	char *text;
	size_t n;

	(void)state;
	for (size_t i = 0; i < N; i++)
		data[i] = (unsigned char)(i * 131 + i / 256);
	put(fd, 'i', data, N);
	put(fd, 'e', NULL, 0);
	text = read_to_exit(fd, &code, &n);
	assert_int_equal(n, N);
	assert_memory_equal(text, data, N);
	free(text);
	free(data);
	close(fd);
}

static void signals_and_exit_codes_above_127_pass(void **state)
{
	static const struct {
		const char *word;
		int code;
	} rows[] = { { "TERM", 143 }, { "INT", 130 }, { "HUP", 129 }, { "KILL", 137 } };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		json_int_t pid = start("{\"argv\":[\"sleep\",\"60\"]}");
		int fd = attach(pid), code = 0;
		put(fd, 's', rows[i].word, strlen(rows[i].word));
		free(read_to_exit(fd, &code, NULL));
		assert_int_equal(code, rows[i].code);
		assert_string_equal(state_of(pid, &code), "exited");
		assert_int_equal(code, rows[i].code);
		close(fd);
	}
}

static void the_exit_of_a_timed_out_run_is_minus_one(void **state)
{
	json_t *r = rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/run", id),
		       "{\"argv\":[\"sleep\",\"60\"],\"timeout_secs\":1}", 200),
	       *list, *last;
	int code = 0, fd;

	(void)state;
	json_decref(r);
	list = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/processes", id), NULL, 200);
	last = json_object_get(list, "processes");
	last = json_array_get(last, json_array_size(last) - 1);
	fd = attach(json_integer_value(json_object_get(last, "pid")));
	free(read_to_exit(fd, &code, NULL));
	assert_int_equal(code, -1);
	json_decref(list);
	close(fd);
}

static void a_resize_is_in_force_before_later_input(void **state)
{
	json_int_t pid = start(
		"{\"argv\":[\"sh\",\"-c\",\"stty -echo; trap 'echo winch' WINCH; echo ready; while "
		":; do read x && stty size; done\"],\"tty\":true,\"rows\":37,\"cols\":113}");
	int fd = attach(pid);
	char *text = NULL;

	(void)state;
	read_until(fd, &text, "ready");
	put(fd, 'r', "\0\60\0\120", 4); /* 48 80 */
	put(fd, 'i', "\n", 1);
	read_until(fd, &text, "48 80");
	assert_non_null(strstr(text, "winch"));
	put(fd, 's', "KILL", 4);
	free(text);
	close(fd);
}

static void the_end_frame_sends_control_d_to_a_terminal(void **state)
{
	json_int_t pid = start("{\"argv\":[\"cat\"],\"tty\":true}");
	int fd = attach(pid), code = -1;

	(void)state;
	put(fd, 'i', "hi\n", 3);
	put(fd, 'e', NULL, 0);
	free(read_to_exit(fd, &code, NULL));
	assert_int_equal(code, 0);
	close(fd);
}

static void closing_the_sending_half_detaches(void **state)
{
	json_int_t pid = start("{\"argv\":[\"cat\"]}");
	int fd = attach(pid);

	(void)state;
	shutdown(fd, SHUT_WR);
	assert_true(httpc_closed(fd, WAIT_MS));
	close(fd);
	assert_string_equal(state_of(pid, NULL), "running");
}

static void a_client_that_does_not_read_does_not_hold_up_the_process(void **state)
{
	json_int_t pid = start("{\"argv\":[\"sh\",\"-c\",\"read x; head -c 4000000 /dev/zero\"]}");
	int stuck = attach(pid), fd = attach(pid), code = -1;
	size_t n;

	(void)state;
	put(stuck, 'i', "\n", 1);
	free(read_to_exit(fd, &code, &n));
	assert_int_equal(n, 4000000);
	assert_int_equal(code, 0);
	close(stuck);
	close(fd);
}

static void a_deleted_sandbox_ends_attaches_even_with_blocked_input(void **state)
{
	static char big[1024 * 1024];
	const char *box = rig_sandbox(rig, NULL), *keep = id;
	json_int_t pid;
	int fd, code = 0;

	(void)state;
	id = box;
	pid = start("{\"argv\":[\"sleep\",\"600\"]}");
	fd = attach(pid);
	put(fd, 'i', big, 200000); /* more than its pipe takes */
	json_decref(rig_json(rig, "DELETE", rig_path("/v1/sandboxes/%s", box), NULL, 204));
	free(read_to_exit(fd, &code, NULL));
	assert_int_equal(code, 137);
	close(fd);
	id = keep;
}

static void refusals_come_before_the_switch(void **state)
{
	static const struct {
		const char *path, *headers;
		int status;
		const char *code;
	} rows[] = {
		{ "/v1/sandboxes/nobody/processes/1/attach", NULL, 400, "invalid_request" },
		{ "/v1/sandboxes/nobody/processes/1/attach", "Upgrade: sbx-stream/1\r\n", 400,
			"invalid_request" },
		{ "/v1/sandboxes/nobody/processes/1/attach",
			"Connection: upgrade\r\nUpgrade: websocket\r\n", 400, "invalid_request" },
		{ "/v1/sandboxes/nobody/processes/1/attach", UPGRADE, 404, "not_found" },
		{ "/v1/sandboxes/%s/processes/9999/attach", UPGRADE, 404, "not_found" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		_cleanup_answer_ struct answer a = rig_send(
			rig, "GET", rig_path(rows[i].path, id), rows[i].headers, NULL, NULL, 0);
		assert_answer(&a, rows[i].status, rows[i].code);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_sent_before_a_close_are_applied_and_the_process_goes_on),
		cmocka_unit_test(input_sent_before_a_close_waits_for_its_reader),
		cmocka_unit_test(input_of_one_who_left_does_not_hold_up_a_stop),
		cmocka_unit_test(input_that_nobody_takes_is_given_up),
		cmocka_unit_test(several_attaches_see_the_same_and_all_may_write),
		cmocka_unit_test(unknown_and_malformed_frames_are_skipped),
		cmocka_unit_test(an_oversize_frame_ends_the_connection_but_not_the_process),
		cmocka_unit_test(a_megabyte_of_binary_data_passes_unchanged),
		cmocka_unit_test(signals_and_exit_codes_above_127_pass),
		cmocka_unit_test(the_exit_of_a_timed_out_run_is_minus_one),
		cmocka_unit_test(a_resize_is_in_force_before_later_input),
		cmocka_unit_test(the_end_frame_sends_control_d_to_a_terminal),
		cmocka_unit_test(closing_the_sending_half_detaches),
		cmocka_unit_test(a_client_that_does_not_read_does_not_hold_up_the_process),
		cmocka_unit_test(a_deleted_sandbox_ends_attaches_even_with_blocked_input),
		cmocka_unit_test(refusals_come_before_the_switch),
	};

	return run_suite(tests, NULL, &rig, &id);
}
