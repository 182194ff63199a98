/* SPDX-License-Identifier: MIT */
/* libsbx's promises about connections: reuse, the one resend, cancelling, streams both ways, taking
 * over, many threads. */
#include "client/include/sbx.h"
#include "common/sys/fd.h"
#include "tests/support/peer.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define OK_TEXT                                                                                    \
	"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nETag: \"v7\"\r\nSbx-First-Offset: 12\r\n\r\n{}"

static bool over_tcp; /* the same promises for both transports */

static const char *address(const struct peer *p)
{
	return over_tcp ? peer_url(p) : peer_endpoint(p);
}

static struct sbx *open_at(const char *endpoint)
{
	struct sbx_options opt = { .endpoint = endpoint, .timeout_ms = 5000 };
	struct sbx_error e;
	struct sbx *s;

	assert_int_equal(sbx_open(&opt, &s, &e), 0);
	return s;
}

static int get(struct sbx *s, struct sbx_error *e)
{
	struct sbx_request q = { .method = "GET", .path = "/x" };
	struct sbx_response r;

	if (sbx_call(s, &q, &r, e) < 0)
		return -1;
	sbx_response_free(&r);
	return 0;
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* ---- connections ---- */

static atomic_int requests;

static void serve_ok(int fd, int nth, void *arg)
{
	char buf[65536];

	(void)nth, (void)arg;
	while (peer_request(fd, buf, sizeof(buf))) {
		requests++;
		peer_say(fd, OK_TEXT);
	}
}

static void a_connection_serves_many_calls(void **state)
{
	struct peer *p = peer_start(serve_ok, NULL);
	struct sbx *s = open_at(address(p));
	struct sbx_request q = { .method = "GET", .path = "/x" };
	struct sbx_response r;
	struct sbx_error e;

	(void)state;
	for (int i = 0; i < 20; i++)
		assert_int_equal(get(s, &e), 0);
	assert_int_equal(sbx_call(s, &q, &r, &e), 0);
	assert_string_equal(r.etag, "\"v7\"");
	assert_int_equal(r.first_offset, 12);
	assert_string_equal(r.body, "{}");
	sbx_response_free(&r);
	assert_int_equal(peer_connections(p), 1);
	sbx_close(s);
	peer_stop(p);
}

/* Answers once; a second request on that connection is read and then met with silence and a close.
 */
static void serve_once(int fd, int nth, void *arg)
{
	char buf[65536];

	(void)arg;
	if (!peer_request(fd, buf, sizeof(buf)))
		return;
	requests++;
	if (nth == 2)
		return; /* the fresh connection of a resend dies as well */
	peer_say(fd, OK_TEXT);
	if (peer_request(fd, buf, sizeof(buf)))
		requests++;
}

static void a_safe_request_on_a_dead_connection_is_sent_once_more(void **state)
{
	struct peer *p = peer_start(serve_once, NULL);
	struct sbx *s = open_at(address(p));
	struct sbx_error e;

	(void)state;
	requests = 0;
	assert_int_equal(get(s, &e), 0);
	assert_int_equal(get(s, &e), 0);
	assert_int_equal(requests, 3);
	assert_int_equal(peer_connections(p), 2);
	/* Third call: connection 1 dies under it, connection 2 dies at once. No third try. */
	assert_int_equal(get(s, &e), -1);
	assert_int_equal(e.sys, EHOSTDOWN);
	assert_int_equal(peer_connections(p), 3);
	sbx_close(s);
	peer_stop(p);
}

static void no_other_request_is_ever_sent_twice(void **state)
{
	static const struct {
		const char *method, *body;
	} ways[] = {
		{ "POST", NULL },
		{ "POST", "{}" },
		{ "PUT", "bytes" },
		{ "PATCH", "{}" },
		{ "DELETE", NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
		struct peer *p = peer_start(serve_once, NULL);
		struct sbx *s = open_at(address(p));
		struct sbx_request q = { .method = ways[i].method,
			.path = "/x",
			.body = ways[i].body,
			.body_len = ways[i].body ? strlen(ways[i].body) : 0 };
		struct sbx_error e;
		requests = 0;
		assert_int_equal(get(s, &e), 0);
		assert_int_equal(sbx_call(s, &q, NULL, &e), -1);
		assert_int_equal(requests, 2);
		assert_int_equal(e.sys, EHOSTDOWN);
		assert_true(e.sent);
		assert_int_equal(peer_connections(p), 1);
		sbx_close(s);
		peer_stop(p);
	}
}

static void an_absent_server_was_sent_nothing(void **state)
{
	struct sbx *s = open_at("unix:///nonexistent/sock");
	struct sbx_error e;

	(void)state;
	assert_int_equal(get(s, &e), -1);
	assert_string_equal(e.code, "unreachable");
	assert_int_equal(e.sys, EHOSTDOWN);
	assert_false(e.sent);
	sbx_close(s);
}

/* ---- waiting ---- */

static void serve_silence(int fd, int nth, void *arg)
{
	char buf[65536];

	(void)nth, (void)arg;
	peer_request(fd, buf, sizeof(buf));
	while (recv(fd, buf, 1, 0) > 0)
		;
}

static bool cancel_at(void *arg)
{
	return now_ms() > *(int64_t *)arg;
}

static void a_waiting_call_can_be_cancelled(void **state)
{
	struct peer *p = peer_start(serve_silence, NULL);
	struct sbx *s = open_at(address(p));
	int64_t at = now_ms() + 100;
	struct sbx_request q = {
		.method = "GET", .path = "/x", .cancelled = cancel_at, .arg = &at
	};
	struct sbx_error e;

	(void)state;
	assert_int_equal(sbx_call(s, &q, NULL, &e), -1);
	assert_int_equal(e.sys, EINTR);
	assert_string_equal(e.code, "interrupted");
	assert_true(now_ms() - at < 30000);
	sbx_close(s);
	peer_stop(p);
}

struct taken {
	size_t bytes, most;
};

static bool take(void *arg, const void *buf, size_t len)
{
	struct taken *t = arg;

	(void)buf;
	t->bytes += len;
	return t->bytes < t->most;
}

static void serve_stream(int fd, int nth, void *arg)
{
	char buf[65536];

	(void)nth, (void)arg;
	peer_request(fd, buf, sizeof(buf));
	peer_say(fd, "HTTP/1.1 200 OK\r\n\r\n");
	for (int i = 0; i < 10; i++) {
		usleep(50000);
		peer_say(fd, "0123456789");
	}
	while (recv(fd, buf, 1, 0) > 0)
		;
}

static void a_streams_timeout_is_one_of_silence(void **state)
{
	struct peer *p = peer_start(serve_stream, NULL);
	struct sbx *s = open_at(address(p));
	struct taken t = { .most = 1000 };
	struct sbx_request q = {
		.method = "GET", .path = "/x", .on_data = take, .arg = &t, .timeout_ms = 300
	};
	struct sbx_error e;

	(void)state;
	assert_int_equal(sbx_call(s, &q, NULL, &e), -1);
	assert_int_equal(e.sys, ETIMEDOUT);
	assert_int_equal(t.bytes, 100); /* 500 ms of stream passed before */
	sbx_close(s);
	peer_stop(p);
}

static void a_stream_ends_well_when_its_taker_has_enough(void **state)
{
	struct peer *p = peer_start(serve_stream, NULL);
	struct sbx *s = open_at(address(p));
	struct taken t = { .most = 20 };
	struct sbx_request q = { .method = "GET", .path = "/x", .on_data = take, .arg = &t };
	struct sbx_error e;

	(void)state;
	assert_int_equal(sbx_call(s, &q, NULL, &e), 0);
	assert_int_equal(t.bytes, 20);
	sbx_close(s);
	peer_stop(p);
}

/* ---- bodies ---- */

static char heard[65536];

static void serve_heard(int fd, int nth, void *arg)
{
	(void)nth, (void)arg;
	if (peer_request(fd, heard, sizeof(heard)))
		peer_say(fd, "HTTP/1.1 204 N\r\nConnection: close\r\n\r\n");
}

static ssize_t give(void *arg, void *buf, size_t max)
{
	int *left = arg;

	(void)max;
	if (*left <= 0)
		return *left;
	(*left)--;
	memcpy(buf, "piece", 5);
	return 5;
}

static void a_body_can_be_read_from_the_caller(void **state)
{
	struct peer *p = peer_start(serve_heard, NULL);
	struct sbx *s = open_at(address(p));
	int left = 3;
	struct sbx_request q = { .method = "PUT",
		.path = "/x",
		.on_read = give,
		.arg = &left,
		.body_len = 15,
		.body_type = "application/octet-stream",
		.background = true };
	struct sbx_error e;

	(void)state;
	assert_int_equal(sbx_call(s, &q, NULL, &e), 0);
	assert_non_null(strstr(heard, "Content-Length: 15\r\n"));
	assert_non_null(strstr(heard, "Content-Type: application/octet-stream\r\n"));
	assert_non_null(strstr(heard, "Sandbox-Background: 1\r\n"));
	assert_non_null(strstr(heard, "\r\n\r\npiecepiecepiece"));
	assert_null(strstr(heard, "Expect"));
	left = 2;
	q.body_len = 0;
	assert_int_equal(sbx_call(s, &q, NULL, &e), 0);
	assert_non_null(strstr(heard, "Transfer-Encoding: chunked\r\n"));
	sbx_close(s);
	peer_stop(p);
}

static ssize_t give_up(void *arg, void *buf, size_t max)
{
	(void)arg, (void)buf, (void)max;
	return -1;
}

static void a_body_given_up_is_an_interrupted_call(void **state)
{
	struct peer *p = peer_start(serve_heard, NULL);
	struct sbx *s = open_at(address(p));
	struct sbx_request q = { .method = "PUT", .path = "/x", .on_read = give_up };
	struct sbx_error e;

	(void)state;
	assert_int_equal(sbx_call(s, &q, NULL, &e), -1);
	assert_int_equal(e.sys, EINTR);
	sbx_close(s);
	peer_stop(p);
}

static void a_post_without_a_body_names_no_type(void **state)
{
	struct peer *p = peer_start(serve_heard, NULL);
	struct sbx *s = open_at(address(p));
	struct sbx_request q = { .method = "POST", .path = "/v1/x" };
	struct sbx_error e;

	(void)state;
	assert_int_equal(sbx_call(s, &q, NULL, &e), 0);
	assert_non_null(strstr(heard, over_tcp ? "POST /v1/x HTTP/1.1\r\nHost: 127.0.0.1:"
					       : "POST /v1/x HTTP/1.1\r\nHost: localhost\r\n"));
	assert_non_null(strstr(heard, "Content-Length: 0\r\n"));
	assert_null(strstr(heard, "Content-Type"));
	sbx_close(s);
	peer_stop(p);
}

static void a_path_that_could_split_a_request_is_refused(void **state)
{
	static const char *const bad[] = { "", "x", "/a b", "/a\r\nX: y", "/a#b", "http://other/" };
	struct sbx *s = open_at("unix:///nonexistent/sock");

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct sbx_request q = { .method = "GET", .path = bad[i] };
		struct sbx_error e;
		int fd;
		assert_int_equal(sbx_call(s, &q, NULL, &e), -1);
		assert_int_equal(e.sys, EINVAL);
		assert_int_equal(sbx_upgrade(s, bad[i], "sbx-stream/1", false, &fd, &e), -1);
	}
	sbx_close(s);
}

static void a_header_or_method_that_could_split_a_request_is_refused(void **state)
{
	static const char *const lines[] = { "X: y\r\nZ: z", NULL };
	const struct sbx_request rows[] = {
		{ .method = "GET", .path = "/", .headers = lines },
		{ .method = "GET / HTTP/1.1\r\n", .path = "/" },
		{ .method = "", .path = "/" },
		{ .method = "PUT",
			.path = "/",
			.body = "x",
			.body_len = 1,
			.body_type = "a\r\nB: c" },
	};
	struct sbx *s = open_at("unix:///nonexistent/sock");
	struct sbx_error e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(sbx_call(s, &rows[i], NULL, &e), -1);
		assert_int_equal(e.sys, EINVAL);
	}
	sbx_close(s);
}

static void paths_are_encoded_by_their_place(void **state)
{
	char *p = sbx_path(
		"/v1/%s/f?path=%S&n=%d&o=%lld&c=100%%", "a/b c", "/d e/ü&?#", -3, 1LL << 40);

	(void)state;
	assert_string_equal(
		p, "/v1/a%2Fb%20c/f?path=/d%20e/%C3%BC%26%3F%23&n=-3&o=1099511627776&c=100%");
	free(p);
	assert_null(sbx_path("%u", 3));
}

/* ---- taking over ---- */

static void serve_upgrade(int fd, int nth, void *arg)
{
	char buf[65536];

	(void)nth;
	if (!peer_request(fd, buf, sizeof(buf)))
		return;
	assert_non_null(strstr(buf, "\r\nConnection: Upgrade\r\n"));
	assert_non_null(strstr(buf, "\r\nUpgrade: sbx-stream/1\r\n"));
	fd_send_full(fd, arg, strlen(arg), 1000);
	/* One frame straight behind the header, then an echo. */
	if (strstr(arg, " 101 "))
		fd_send_full(fd, "o\0\0\0\5hello", 10, 1000);
	for (ssize_t n; (n = recv(fd, buf, sizeof(buf), 0)) > 0;)
		fd_send_full(fd, buf, (size_t)n, 1000);
}

static const char switched[] = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
			       "Upgrade: sbx-stream/1\r\n\r\n";

static void a_stream_loses_no_byte_behind_the_header(void **state)
{
	struct peer *p = peer_start(serve_upgrade, (void *)(uintptr_t)switched);
	struct sbx *s = open_at(address(p));
	char *buf = malloc(SBX_FRAME_MAX), *sent = calloc(1, SBX_FRAME_MAX), type;
	struct sbx_error e;
	size_t len;
	int fd;

	(void)state;
	assert_int_equal(sbx_upgrade(s, "/a", "sbx-stream/1", false, &fd, &e), 0);
	assert_int_equal(sbx_frame_read(fd, &type, buf, &len), 1);
	assert_int_equal(type, 'o');
	assert_int_equal(len, 5);
	assert_memory_equal(buf, "hello", 5);
	memset(sent, 'z', 1000);
	assert_int_equal(sbx_frame_write(fd, 'i', sent, 1000), 0);
	assert_int_equal(sbx_frame_read(fd, &type, buf, &len), 1);
	assert_int_equal(len, 1000);
	assert_memory_equal(buf, sent, 1000);
	assert_int_equal(sbx_frame_write(fd, 'i', sent, SBX_FRAME_MAX + 1), -1);
	shutdown(fd, SHUT_WR);
	assert_int_equal(sbx_frame_read(fd, &type, buf, &len), 0);
	close(fd);
	free(buf);
	free(sent);
	sbx_close(s);
	peer_stop(p);
}

static void a_refused_switch_is_the_servers_error(void **state)
{
	static const struct {
		const char *answer, *code;
		int sys;
	} rows[] = {
		{ "HTTP/1.1 404 N\r\nContent-Length: 52\r\n\r\n{\"error\":{\"code\":\"not_found\",\"message\":\"nothing x\"}}",
			"not_found", ENOENT },
		{ "HTTP/1.1 409 N\r\nTransfer-Encoding: chunked\r\n\r\n2d\r\n"
		  "{\"error\":{\"code\":\"conflict\",\"message\":\"x\"}}\r\n0\r\n\r\n",
			"conflict", EBUSY },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "protocol", EPROTO },
		{ "HTTP/1.1 101 S\r\nUpgrade: websocket\r\n\r\n", "protocol", EPROTO },
		{ "HTTP/1.1 302 S\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", "protocol",
			EPROTO },
		{ "garbage\r\n\r\n", "protocol", EPROTO },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct peer *p = peer_start(serve_upgrade, (void *)(uintptr_t)rows[i].answer);
		struct sbx *s = open_at(address(p));
		struct sbx_error e;
		int fd = -1;
		assert_int_equal(sbx_upgrade(s, "/a", "sbx-stream/1", false, &fd, &e), -1);
		assert_string_equal(e.code, rows[i].code);
		assert_int_equal(e.sys, rows[i].sys);
		assert_int_equal(fd, -1);
		sbx_close(s);
		peer_stop(p);
	}
}

static void a_frame_that_is_too_large_ends_the_stream(void **state)
{
	int sv[2];
	char buf[16], type;
	size_t len;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	assert_int_equal(write(sv[0], "o\0\x10\0\1", 5), 5);
	assert_int_equal(sbx_frame_read(sv[1], &type, buf, &len), -1);
	close(sv[0]);
	close(sv[1]);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	assert_int_equal(write(sv[0], "o\0\0", 3), 3);
	close(sv[0]);
	assert_int_equal(sbx_frame_read(sv[1], &type, buf, &len), -1);
	close(sv[1]);
}

/* ---- threads ---- */

static void *call_often(void *arg)
{
	struct sbx_error e;

	for (int i = 0; i < 50; i++) {
		if (get(arg, &e) < 0)
			return arg;
		if (i == 25 && sbx_reload_token(arg, &e) < 0)
			return arg;
	}
	return NULL;
}

static void a_handle_serves_many_threads(void **state)
{
	struct peer *p = peer_start(serve_ok, NULL);
	struct sbx *s = open_at(address(p));
	pthread_t t[8];
	void *bad;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		assert_int_equal(pthread_create(&t[i], NULL, call_often, s), 0);
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		pthread_join(t[i], &bad);
		assert_null(bad);
	}
	assert_true(peer_connections(p) <= 8);
	sbx_close(s);
	peer_stop(p);
}

/* ---- options ---- */

static void endpoints_that_cannot_be_safe_are_refused(void **state)
{
	static const char *const bad[] = { "http://example.com:80", "http://192.0.2.1:8080",
		"unix://relative/sock", "ftp://localhost", "https://user@host",
		"http://localhost:80/v1", "x", "http://127.evil.example:80" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct sbx_options opt = { .endpoint = bad[i] };
		struct sbx_error e;
		struct sbx *s;
		assert_int_equal(sbx_open(&opt, &s, &e), -1);
		assert_string_equal(e.code, "invalid_request");
	}
}

static void a_token_file_must_be_private(void **state)
{
	char path[] = "/tmp/token-XXXXXX";
	int fd = mkstemp(path);
	struct peer *p = peer_start(serve_heard, NULL);
	struct sbx_options opt = { .endpoint = address(p), .token_file = path };
	struct sbx_error e;
	struct sbx *s;

	(void)state;
	assert_int_equal(write(fd, "  0123456789abcdef\n", 19), 19);
	fchmod(fd, 0640);
	assert_int_equal(sbx_open(&opt, &s, &e), -1);
	assert_int_equal(e.sys, EACCES);
	assert_non_null(strstr(e.message, "chmod 600"));
	fchmod(fd, 0600);
	assert_int_equal(sbx_open(&opt, &s, &e), 0);
	assert_int_equal(get(s, &e), 0);
	assert_non_null(strstr(heard, "\r\nAuthorization: Bearer 0123456789abcdef\r\n"));
	assert_int_equal(pwrite(fd, "  fedcba9876543210\n", 19, 0), 19);
	assert_int_equal(sbx_reload_token(s, &e), 0);
	assert_int_equal(get(s, &e), 0);
	assert_non_null(strstr(heard, "\r\nAuthorization: Bearer fedcba9876543210\r\n"));
	assert_int_equal(pwrite(fd, "a\nX-Injected: 1      ", 21, 0), 21);
	assert_int_equal(sbx_reload_token(s, &e), -1);
	sbx_close(s);
	close(fd);
	unlink(path);
	peer_stop(p);
}

static void the_environment_fills_what_options_leave_out(void **state)
{
	struct sbx_options opt = { .endpoint = "unix:///option" };
	struct sbx_error e;
	struct sbx *s;

	(void)state;
	setenv("SBX_ENDPOINT", "unix:///environment", 1);
	assert_int_equal(sbx_open(NULL, &s, &e), 0);
	assert_string_equal(sbx_endpoint(s), "unix:///environment");
	sbx_close(s);
	assert_int_equal(sbx_open(&opt, &s, &e), 0);
	assert_string_equal(sbx_endpoint(s), "unix:///option");
	sbx_close(s);
	unsetenv("SBX_ENDPOINT");
	setenv("XDG_RUNTIME_DIR", "/tmp", 1);
	setenv("HOME", "/nonexistent", 1);
	assert_int_equal(sbx_open(NULL, &s, &e), 0);
	assert_string_equal(sbx_endpoint(s), "unix:///tmp/sandboxd.sock");
	sbx_close(s);
	unsetenv("XDG_RUNTIME_DIR");
	assert_int_equal(sbx_open(NULL, &s, &e), 0);
	assert_string_equal(sbx_endpoint(s), "unix:///nonexistent/.config/sandbox/sandboxd.sock");
	sbx_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_connection_serves_many_calls),
		cmocka_unit_test(a_safe_request_on_a_dead_connection_is_sent_once_more),
		cmocka_unit_test(no_other_request_is_ever_sent_twice),
		cmocka_unit_test(an_absent_server_was_sent_nothing),
		cmocka_unit_test(a_waiting_call_can_be_cancelled),
		cmocka_unit_test(a_streams_timeout_is_one_of_silence),
		cmocka_unit_test(a_stream_ends_well_when_its_taker_has_enough),
		cmocka_unit_test(a_body_can_be_read_from_the_caller),
		cmocka_unit_test(a_body_given_up_is_an_interrupted_call),
		cmocka_unit_test(a_post_without_a_body_names_no_type),
		cmocka_unit_test(a_path_that_could_split_a_request_is_refused),
		cmocka_unit_test(a_header_or_method_that_could_split_a_request_is_refused),
		cmocka_unit_test(paths_are_encoded_by_their_place),
		cmocka_unit_test(a_stream_loses_no_byte_behind_the_header),
		cmocka_unit_test(a_refused_switch_is_the_servers_error),
		cmocka_unit_test(a_frame_that_is_too_large_ends_the_stream),
		cmocka_unit_test(a_handle_serves_many_threads),
		cmocka_unit_test(endpoints_that_cannot_be_safe_are_refused),
		cmocka_unit_test(a_token_file_must_be_private),
		cmocka_unit_test(the_environment_fills_what_options_leave_out),
	};

	cmocka_set_test_filter(getenv("T"));
	int failed = cmocka_run_group_tests_name("unix", tests, NULL, NULL);
	over_tcp = true;
	return failed + cmocka_run_group_tests_name("tcp", tests, NULL, NULL);
}
