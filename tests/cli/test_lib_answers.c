/* SPDX-License-Identifier: MIT */
/* libsbx against a server that answers badly: every row is one misbehaviour and the error that the
 * caller must see. */
#include "client/include/sbx.h"
#include "tests/support/peer.h"
#include "tests/support/test.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum manner { SAY, SAY_AND_CUT, SILENT, FLOOD_BODY, FLOOD_HEADER, FLOOD_INTERIM, DRIP };

static const struct row {
	const char *name;
	enum manner manner;
	const char *text;
	int status, sys;            /* sys 0: success */
	const char *code, *message; /* message: a part of it */
} rows[] = {
	{ "an answer without a body is success", SAY, "HTTP/1.1 204 No Content\r\n\r\n", 204, 0, "",
		"" },
	{ "a conflict keeps its code and message", SAY,
		"HTTP/1.1 409 C\r\nContent-Length: 64\r\n\r\n"
		"{\"error\":{\"code\":\"conflict\",\"message\":\"name in use by another\"}}",
		409, EBUSY, "conflict", "name in use by another" },
	{ "error.errno is taken when it is on the list", SAY,
		"HTTP/1.1 409 C\r\nConnection: close\r\n\r\n"
		"{\"error\":{\"code\":\"conflict\",\"message\":\"m\",\"errno\":\"ENOTEMPTY\"}}",
		409, ENOTEMPTY, "conflict", "m" },
	{ "an unknown errno falls back to the code", SAY,
		"HTTP/1.1 404 C\r\nConnection: close\r\n\r\n"
		"{\"error\":{\"code\":\"not_found\",\"message\":\"m\",\"errno\":\"EWHATEVER\"}}",
		404, ENOENT, "not_found", "m" },
	{ "read-only in a conflict's message is EROFS", SAY,
		"HTTP/1.1 409 C\r\nConnection: close\r\n\r\n"
		"{\"error\":{\"code\":\"conflict\",\"message\":\"read-only file system\"}}",
		409, EROFS, "conflict", "read-only" },
	{ "413 is EFBIG", SAY,
		"HTTP/1.1 413 C\r\nConnection: close\r\n\r\n"
		"{\"error\":{\"code\":\"invalid_request\",\"message\":\"too large\"}}",
		413, EFBIG, "invalid_request", "too large" },
	{ "415 is EPROTO", SAY,
		"HTTP/1.1 415 C\r\nConnection: close\r\n\r\n"
		"{\"error\":{\"code\":\"invalid_request\",\"message\":\"type\"}}",
		415, EPROTO, "invalid_request", "type" },
	{ "unavailable is EAGAIN", SAY,
		"HTTP/1.1 503 C\r\nConnection: close\r\n\r\n"
		"{\"error\":{\"code\":\"unavailable\",\"message\":\"cordoned\"}}",
		503, EAGAIN, "unavailable", "cordoned" },
	{ "a code of a later version keeps its word", SAY,
		"HTTP/1.1 409 C\r\nConnection: close\r\n\r\n"
		"{\"error\":{\"code\":\"stale_head\",\"message\":\"moved\"}}",
		409, EBUSY, "stale_head", "moved" },
	{ "control bytes of a message are escaped", SAY,
		"HTTP/1.1 409 C\r\nConnection: close\r\n\r\n"
		"{\"error\":{\"code\":\"conflict\",\"message\":\"a\\u001b[2Jb\\u0085c\"}}",
		409, EBUSY, "conflict", "a\\x1b[2Jb\\xc2\\x85c" },
	{ "an error page that is not JSON is internal", SAY,
		"HTTP/1.1 500 E\r\nConnection: close\r\n\r\n<html>oops</html>", 500, EIO,
		"internal", "500" },
	{ "a bad gateway is a server out of reach", SAY,
		"HTTP/1.1 502 E\r\nConnection: close\r\n\r\nno", 502, EHOSTDOWN, "internal",
		"502" },
	{ "a deeply nested error does not recurse", SAY, "@deep", 500, EIO, "internal", "500" },
	{ "a redirect is not followed", SAY,
		"HTTP/1.1 302 F\r\nLocation: http://localhost/v1/x\r\nContent-Length: 0\r\n\r\n",
		302, EPROTO, "protocol", "redirect" },
	{ "bytes that are not HTTP are a protocol error", SAY_AND_CUT, "SSH-2.0-OpenSSH\r\n", 0,
		EPROTO, "protocol", "" },
	{ "a connection cut before the answer is unreachable", SAY_AND_CUT, "", 0, EHOSTDOWN,
		"unreachable", "" },
	{ "a connection cut within the header is an error", SAY_AND_CUT,
		"HTTP/1.1 200 OK\r\nContent-Le", 0, EHOSTDOWN, "unreachable", "" },
	{ "a connection cut within the body is not a short success", SAY_AND_CUT,
		"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", 0, EHOSTDOWN, "unreachable",
		"broke" },
	{ "a chunked body without its end is not a success", SAY_AND_CUT,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", 0, EHOSTDOWN,
		"unreachable", "" },
	{ "a broken chunk length is not a success", SAY,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhalf\r\n", 0, EHOSTDOWN,
		"unreachable", "" },
	{ "no answer in time is a timeout", SILENT, "", 0, ETIMEDOUT, "timeout", "" },
	{ "a body that drips beyond the time is a timeout", DRIP, "", 0, ETIMEDOUT, "timeout", "" },
	{ "a body without an end is refused", FLOOD_BODY, "HTTP/1.1 200 OK\r\n\r\n", 0, EPROTO,
		"protocol", "too large" },
	{ "an error body without an end is refused", FLOOD_BODY, "HTTP/1.1 500 E\r\n\r\n", 500, EIO,
		"internal", "" },
	{ "a header without an end is refused", FLOOD_HEADER, "HTTP/1.1 200 OK\r\n", 0, EPROTO,
		"protocol", "" },
	{ "interim answers without an end are refused", FLOOD_INTERIM, "", 0, EPROTO, "protocol",
		"" },
};

static bool over_tcp; /* the same rows for both transports */

static void say_deep(int fd)
{
	char body[8001];

	memset(body, '[', sizeof(body) - 1);
	body[sizeof(body) - 1] = '\0';
	peer_say(fd, "HTTP/1.1 500 E\r\nConnection: close\r\n\r\n{\"error\":");
	peer_say(fd, body);
}

/* Sends until the client has had enough; the most stops a client that never has. */
static void flood(int fd, const char *piece, size_t most)
{
	for (size_t sent = 0; sent < most; sent += strlen(piece))
		if (send(fd, piece, strlen(piece), MSG_NOSIGNAL) < 0)
			return;
}

static void wait_for_close(int fd)
{
	char c;

	while (recv(fd, &c, 1, 0) > 0)
		;
}

static void serve_row(int fd, int nth, void *arg)
{
	const struct row *row = arg;
	static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
	char buf[4096], line[1025];

	(void)nth;
	if (!peer_request(fd, buf, sizeof(buf)))
		return;
	memset(line, 'x', sizeof(line) - 1);
	line[sizeof(line) - 1] = '\0';
	if (!strcmp(row->text, "@deep"))
		return say_deep(fd);
	peer_say(fd, row->text);
	if (row->manner == SILENT)
		wait_for_close(fd);
	if (row->manner == FLOOD_BODY)
		flood(fd, line, 256 << 20);
	if (row->manner == FLOOD_HEADER) {
		memcpy(line, "A: ", 3);
		memcpy(line + sizeof(line) - 3, "\r\n", 2);
		flood(fd, line, 64 << 20);
	}
	if (row->manner == FLOOD_INTERIM)
		flood(fd, interim, 64 << 20);
	if (row->manner == DRIP) {
		peer_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
		for (char c; recv(fd, &c, 1, MSG_DONTWAIT) != 0;) {
			if (send(fd, "x", 1, MSG_NOSIGNAL) < 0)
				return;
			usleep(20000);
		}
	}
}

static long max_rss_kb(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_maxrss;
}

static void check_row(void **state)
{
	const struct row *row = *state;
	struct peer *p = peer_start(serve_row, *state);
	struct sbx_options opt = { .endpoint = over_tcp ? peer_url(p) : peer_endpoint(p),
		.timeout_ms = row->sys == ETIMEDOUT ? 300 : 30000 };
	struct sbx_request q = { .method = "GET", .path = "/v1/sandboxes" };
	struct sbx_response r = { 0 };
	struct sbx_error e = { 0 };
	struct sbx *s;
	long before = max_rss_kb();

	assert_int_equal(sbx_open(&opt, &s, &e), 0);
	if (row->sys == 0) {
		assert_int_equal(sbx_call(s, &q, &r, &e), 0);
		assert_int_equal(r.status, row->status);
	} else {
		assert_int_equal(sbx_call(s, &q, &r, &e), -1);
		assert_string_equal(e.code, row->code);
		assert_int_equal(e.sys, row->sys);
		assert_int_equal(e.status, row->status);
		assert_non_null(strstr(e.message, row->message));
		assert_null(r.body);
	}
	assert_true(max_rss_kb() - before < 64 * 1024);
	sbx_response_free(&r);
	sbx_close(s);
	peer_stop(p);
}

int main(void)
{
	struct CMUnitTest tests[ARRAY_LEN(rows)];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		tests[i] = (struct CMUnitTest){ .name = rows[i].name,
			.test_func = check_row,
			.initial_state = (void *)(uintptr_t)&rows[i] };
	cmocka_set_test_filter(getenv("T"));
	int failed = cmocka_run_group_tests_name("unix", tests, NULL, NULL);
	over_tcp = true;
	return failed + cmocka_run_group_tests_name("tcp", tests, NULL, NULL);
}
