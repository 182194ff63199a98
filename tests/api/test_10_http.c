/* SPDX-License-Identifier: MIT */
/* The guard and the transport as a client sees them, over real sockets: node contract 1.2 to 2. */
#include "tests/support/rig.h"
#include "tests/support/test.h"

#include <sys/socket.h>
#include <unistd.h>

#define TOKEN    "0123456789abcdef-token"
#define AUTH     "Authorization: Bearer " TOKEN "\r\n"
#define HOST     "Host: localhost\r\n"
#define JSON     "Content-Type: application/json\r\n"
#define BYTES    "Content-Type: application/octet-stream\r\n"
#define NODE     "GET /v1/node HTTP/1.1\r\n"
#define CREATE   "POST /v1/sandboxes HTTP/1.1\r\n"
#define PUT_FILE "PUT /v1/sandboxes/x/files?path=/a HTTP/1.1\r\n"

static const char *const args[] = {
	"--allowed-host",
	"box.example",
	"--allowed-origin",
	"https://app.example",
	NULL,
};
static const struct rig_conf conf = { .token = TOKEN, .args = args };

static int setup(void **state)
{
	*state = rig_new(&conf);
	return 0;
}

static int teardown(void **state)
{
	rig_free(*state);
	return 0;
}

static struct answer raw(struct rig *r, const char *text)
{
	_cleanup_close_ int fd = httpc_unix(r->sock);

	httpc_send(fd, text);
	return httpc_answer(fd);
}

static size_t sandboxes(struct rig *r)
{
	json_t *v = rig_json(r, "GET", "/v1/sandboxes", NULL, 200);
	size_t n = json_array_size(json_object_get(v, "sandboxes"));

	json_decref(v);
	return n;
}

/* --- the guard --- */

static const struct guard_row {
	const char *name, *request;
	int status;
	const char *code;
} guard_rows[] = {
	/* row 1 */
	{ "host localhost passes", NODE HOST AUTH "\r\n", 200, NULL },
	{ "host ignores case and port", NODE "Host: LocalHost:8080\r\n" AUTH "\r\n", 200, NULL },
	{ "host may be a loopback address", NODE "Host: 127.3.2.1\r\n" AUTH "\r\n", 200, NULL },
	{ "host may be bracketed", NODE "Host: [::1]:80\r\n" AUTH "\r\n", 200, NULL },
	{ "blanks behind a value are no part of it",
		NODE "Host: localhost \t\r\nAuthorization: Bearer " TOKEN " \r\n\r\n", 200, NULL },
	{ "host may be an allowed one", NODE "Host: Box.Example:1\r\n" AUTH "\r\n", 200, NULL },
	{ "host may not be foreign", NODE "Host: evil.example\r\n" AUTH "\r\n", 403,
		"forbidden_origin" },
	{ "host may not only look like loopback", NODE "Host: 127.0.0.1.nip.io\r\n" AUTH "\r\n",
		403, "forbidden_origin" },
	{ "host may not be empty", NODE "Host:\r\n" AUTH "\r\n", 403, "forbidden_origin" },
	{ "host may not carry a path", NODE "Host: localhost:80/x\r\n" AUTH "\r\n", 403,
		"forbidden_origin" },
	{ "host is needed by HTTP/1.0 too", "GET /v1/node HTTP/1.0\r\n" AUTH "\r\n", 403,
		"forbidden_origin" },
	{ "two hosts are malformed", NODE HOST HOST AUTH "\r\n", 400, "invalid_request" },
	{ "no host is malformed", NODE AUTH "\r\n", 400, "invalid_request" },
	{ "health is guarded by host", "GET /v1/health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403,
		"forbidden_origin" },
	/* row 2 */
	{ "origin of this host passes",
		NODE "Host: localhost:99\r\nOrigin: http://localhost:99\r\n" AUTH "\r\n", 200,
		NULL },
	{ "origin on another port is refused",
		NODE "Host: localhost:99\r\nOrigin: http://localhost:98\r\n" AUTH "\r\n", 403,
		"forbidden_origin" },
	{ "origin that is configured passes",
		NODE HOST "Origin: https://app.example\r\n" AUTH "\r\n", 200, NULL },
	{ "origin is compared exactly", NODE HOST "Origin: https://app.example:443\r\n" AUTH "\r\n",
		403, "forbidden_origin" },
	{ "origin null is refused", NODE HOST "Origin: null\r\n" AUTH "\r\n", 403,
		"forbidden_origin" },
	{ "origin comes before the token", NODE HOST "Origin: http://evil\r\n\r\n", 403,
		"forbidden_origin" },
	/* row 3 */
	{ "token is needed", NODE HOST "\r\n", 401, "unauthorized" },
	{ "token must be right", NODE HOST "Authorization: Bearer 0123456789abcdef-tokem\r\n\r\n",
		401, "unauthorized" },
	{ "token must be whole", NODE HOST "Authorization: Bearer 0123456789abcdef\r\n\r\n", 401,
		"unauthorized" },
	{ "token must not be longer", NODE HOST "Authorization: Bearer " TOKEN TOKEN "\r\n\r\n",
		401, "unauthorized" },
	{ "scheme has one spelling", NODE HOST "Authorization: bearer " TOKEN "\r\n\r\n", 401,
		"unauthorized" },
	{ "scheme and token have one space", NODE HOST "Authorization: Bearer  " TOKEN "\r\n\r\n",
		401, "unauthorized" },
	{ "token in the query counts for nothing",
		"GET /v1/node?token=" TOKEN " HTTP/1.1\r\n" HOST "\r\n", 401, "unauthorized" },
	{ "health needs no token", "GET /v1/health HTTP/1.1\r\n" HOST "\r\n", 200, NULL },
	{ "token comes before the media type", CREATE HOST "Content-Length: 2\r\n\r\n{}", 401,
		"unauthorized" },
	/* row 4 */
	{ "a body needs its media type", CREATE HOST AUTH "Content-Length: 2\r\n\r\n{}", 415,
		"invalid_request" },
	{ "a chunked body is a body",
		CREATE HOST AUTH "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 415,
		"invalid_request" },
	{ "a text is no JSON",
		CREATE HOST AUTH "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", 415,
		"invalid_request" },
	{ "a file is no JSON", PUT_FILE HOST AUTH JSON "Content-Length: 2\r\n\r\n{}", 415,
		"invalid_request" },
	{ "parameters of the type are ignored",
		"POST /v1/node/cordon HTTP/1.1\r\n" HOST AUTH
		"Content-Type: Application/JSON; charset=utf-8\r\nContent-Length: 18\r\n\r\n{\"cordoned\":false}",
		200, NULL },
	{ "the type comes before the size", CREATE HOST AUTH "Content-Length: 99999999999\r\n\r\n",
		415, "invalid_request" },
	/* row 5 */
	{ "JSON above 1 MiB", CREATE HOST AUTH JSON "Content-Length: 1048577\r\n\r\n", 400,
		"invalid_request" },
	{ "a file above 64 MiB", PUT_FILE HOST AUTH BYTES "Content-Length: 67108865\r\n\r\n", 413,
		"invalid_request" },
	{ "a file of absurd size",
		PUT_FILE HOST AUTH BYTES "Content-Length: 9999999999999999999\r\n\r\n", 413,
		"invalid_request" },
	/* behind the guard */
	{ "a piece of a file is not taken for the file",
		PUT_FILE HOST AUTH BYTES "Content-Range: bytes 0-1/9\r\nContent-Length: 2\r\n\r\nab",
		400, "invalid_request" },
	{ "a body is not taken for what it stands for",
		PUT_FILE HOST AUTH BYTES "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\nab",
		415, "invalid_request" },
	{ "a body may say that it is as it is",
		PUT_FILE HOST AUTH BYTES "Content-Encoding: identity\r\nContent-Length: 2\r\n\r\nab",
		404, "not_found" },
	{ "nothing is written whatever a condition says",
		PUT_FILE HOST AUTH BYTES "If-Match: \"0\"\r\nContent-Length: 2\r\n\r\nab", 501,
		"unsupported" },
	{ "nothing is made whatever a condition says",
		CREATE HOST AUTH JSON "If-None-Match: *\r\nContent-Length: 2\r\n\r\n{}", 501,
		"unsupported" },
	{ "nothing is ended whatever a condition says",
		"DELETE /v1/sandboxes/a HTTP/1.1\r\n" HOST AUTH
		"If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n", 501, "unsupported" },
	{ "what is only read needs no condition", NODE HOST AUTH "If-Match: \"0\"\r\n\r\n", 200,
		NULL },
	{ "a capability comes before the body",
		"POST /v1/images HTTP/1.1\r\n" HOST AUTH JSON "Content-Length: 999\r\n\r\n", 501,
		"unsupported" },
	{ "unknown paths", "GET /v1/whoami HTTP/1.1\r\n" HOST AUTH "\r\n", 404, "not_found" },
	{ "no trailing slash", "GET /v1/node/ HTTP/1.1\r\n" HOST AUTH "\r\n", 404, "not_found" },
	{ "the root", "GET / HTTP/1.1\r\n" HOST AUTH "\r\n", 404, "not_found" },
	{ "another method", "PUT /v1/node HTTP/1.1\r\n" HOST AUTH "\r\n", 404, "not_found" },
	{ "TRACE", "TRACE /v1/node HTTP/1.1\r\n" HOST AUTH "\r\n", 404, "not_found" },
	{ "OPTIONS without an origin", "OPTIONS /v1/node HTTP/1.1\r\n" HOST AUTH "\r\n", 404,
		"not_found" },
	{ "an invented method", "BREW /v1/node HTTP/1.1\r\n" HOST AUTH "\r\n", 404, "not_found" },
	{ "HEAD of what cannot be read", "HEAD /v1/node/cordon HTTP/1.0\r\n" HOST AUTH "\r\n", 404,
		NULL },
	{ "a slash in a segment stays escaped",
		"GET /v1/sandboxes/a%2Fb HTTP/1.1\r\n" HOST AUTH "\r\n", 404, "not_found" },
	{ "a broken escape", "GET /v1/sandboxes/a%2 HTTP/1.1\r\n" HOST AUTH "\r\n", 404,
		"not_found" },
	{ "the organisation's header is ignored", NODE HOST AUTH "X-Sandbox-Org: x\r\n\r\n", 200,
		NULL },
};

static void guard_checks_in_order(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(guard_rows); i++) {
		const struct guard_row *row = &guard_rows[i];
		struct rig *r = *state;
		_cleanup_close_ int fd = httpc_unix(r->sock);
		_cleanup_answer_ struct answer a = { 0 };

		httpc_send(fd, row->request);
		a = strncmp(row->request, "HEAD", 4) ? httpc_answer(fd) : httpc_answer_head(fd);
		if (a.status != row->status)
			print_error("row \"%s\"\n", row->name);
		assert_answer(&a, row->status, row->code);
	}
	assert_int_equal(sandboxes(*state), 0);
}

static void unauthorized_names_the_scheme(void **state)
{
	_cleanup_answer_ struct answer a = raw(*state, NODE HOST "\r\n");
	char v[32];

	assert_string_equal(answer_header(&a, "WWW-Authenticate", v, sizeof(v)), "Bearer");
	assert_string_equal(answer_header(&a, "Content-Type", v, sizeof(v)), "application/json");
}

static void cross_origin_create_has_no_effect(void **state)
{
	_cleanup_answer_ struct answer a =
		raw(*state, CREATE HOST AUTH "Origin: http://evil.example\r\n\r\n");

	assert_answer(&a, 403, "forbidden_origin");
	assert_int_equal(sandboxes(*state), 0);
}

static void cors_only_for_configured_origins(void **state)
{
	static const char name[] = "Access-Control-Allow-Origin", app[] = "https://app.example";
	_cleanup_answer_ struct answer a = raw(*state,
		"OPTIONS /v1/sandboxes HTTP/1.1\r\n" HOST
		"Origin: https://app.example\r\nAccess-Control-Request-Method: POST\r\n\r\n");
	_cleanup_answer_ struct answer b =
		raw(*state, NODE HOST AUTH "Origin: https://app.example\r\n\r\n");
	_cleanup_answer_ struct answer c =
		raw(*state, NODE HOST AUTH "Origin: http://localhost\r\n\r\n");
	char v[64];

	assert_int_equal(a.status, 204);
	assert_string_equal(answer_header(&a, name, v, sizeof(v)), app);
	assert_non_null(answer_header(&a, "Access-Control-Allow-Methods", v, sizeof(v)));
	assert_string_equal(answer_header(&b, name, v, sizeof(v)), app);
	assert_int_equal(c.status, 200);
	assert_null(answer_header(&c, name, v, sizeof(v)));
}

static void head_answers_as_get_without_a_body(void **state)
{
	static const char *const paths[] = { "/v1/health", "/v1/capabilities", "/v1/node",
		"/v1/sandboxes", "/v1/sandboxes/nope", "/v1/snapshots", "/v1/volumes" };

	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		_cleanup_answer_ struct answer get =
			rig_send(*state, "GET", paths[i], NULL, NULL, NULL, 0);
		_cleanup_close_ int fd = rig_open(*state, "HEAD", paths[i], NULL, NULL, NULL, 0);
		_cleanup_answer_ struct answer head = httpc_answer_head(fd), next = { 0 };

		assert_int_equal(head.status, get.status);
		httpc_send(fd, "GET /v1/health HTTP/1.1\r\n" HOST "\r\n");
		next = httpc_answer(fd);
		assert_int_equal(next.status, 200);
	}
}

/* --- transport --- */

static void two_lengths_get_one_answer(void **state)
{
	static const char *const requests[] = {
		CREATE HOST AUTH JSON
		"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" NODE
			HOST AUTH "\r\n",
		NODE HOST AUTH "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
		NODE HOST AUTH "Content-Length: 3x\r\n\r\nabc",
	};

	for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
		struct rig *r = *state;
		_cleanup_close_ int fd = httpc_unix(r->sock);
		_cleanup_answer_ struct answer a = { 0 };

		httpc_send(fd, requests[i]);
		a = httpc_answer(fd);
		assert_answer(&a, 400, "invalid_request");
		assert_true(httpc_closed(fd, 10000));
	}
	assert_int_equal(sandboxes(*state), 0);
}

static void no_continue_before_a_refusal(void **state)
{
	static const struct {
		const char *auth, *length;
		int status;
	} rows[] = {
		{ "Authorization: Bearer wrong\r\n", "10", 401 },
		{ AUTH, "99999999999", 413 },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct rig *r = *state;
		_cleanup_close_ int fd = httpc_unix(r->sock);
		_cleanup_answer_ struct answer a = { 0 };

		httpc_send(
			fd, rig_path("%s%s%s%sContent-Length: %s\r\nExpect: 100-continue\r\n\r\n",
				    PUT_FILE, HOST, rows[i].auth, BYTES, rows[i].length));
		a = httpc_answer(fd);
		assert_int_equal(a.status, rows[i].status);
		assert_true(httpc_closed(fd, 10000));
	}
}

static void continue_comes_when_the_body_is_wanted(void **state)
{
	struct rig *r = *state;
	const char *id = rig_sandbox(r, NULL);
	_cleanup_close_ int fd = httpc_unix(r->sock);
	_cleanup_answer_ struct answer a = { 0 }, b = { 0 };

	httpc_send(fd,
		rig_path("PUT /v1/sandboxes/%s/files?path=/sandbox/home/x HTTP/1.1\r\n" HOST AUTH
				 BYTES "Content-Length: 10\r\nExpect: 100-Continue\r\n\r\n",
			id));
	a = httpc_answer(fd);
	assert_int_equal(a.status, 100);
	assert_true(httpc_silent(fd, 100));
	httpc_send(fd, "0123456789");
	b = httpc_answer(fd);
	assert_int_equal(b.status, 204);
}

/* Sends one request whose body looks like a request, and a second one without a token. */
static void exchange(struct rig *r, const char *path, const char *host, const char *token,
	char *got, size_t size)
{
	static const char inner[] = "GET /v1/capabilities HTTP/1.1\r\n" HOST AUTH "\r\n";
	_cleanup_close_ int fd = httpc_unix(r->sock);
	size_t n = 0;
	ssize_t k;

	httpc_send(
		fd, rig_path("POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n" JSON
			     "Content-Length: %zu\r\n\r\n%sGET /v1/capabilities HTTP/1.1\r\n" HOST
			     "\r\n",
			    path, host, token, sizeof(inner) - 1, inner));
	shutdown(fd, SHUT_WR);
	while (n < size - 1 && (k = recv(fd, got + n, size - 1 - n, 0)) > 0)
		n += (size_t)k;
	got[n] = '\0';
}

static void early_answer_leaves_no_body_behind(void **state)
{
	static const struct {
		const char *name, *path, *token, *host;
	} rows[] = {
		{ "401", "/v1/sandboxes", "bad", "localhost" },
		{ "404", "/v1/nope", TOKEN, "localhost" },
		{ "404 box", "/v1/sandboxes/nope/run", TOKEN, "localhost" },
		{ "host", "/v1/sandboxes", TOKEN, "evil.example" },
		{ "method", "/v1/capabilities", TOKEN, "localhost" },
	};
	char got[16384];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		exchange(*state, rows[i].path, rows[i].host, rows[i].token, got, sizeof(got));
		if (strstr(got, "api_version"))
			fail_msg("%s: the body was taken for a request", rows[i].name);
		assert_non_null(strstr(got, "HTTP/1.1 4"));
		assert_null(strstr(got, " 501 "));
	}
}

static void chunked_json_is_bounded(void **state)
{
	struct rig *r = *state;
	_cleanup_close_ int fd = httpc_unix(r->sock);
	_cleanup_answer_ struct answer a = { 0 };
	_cleanup_free_ char *chunk = malloc(65536);

	assert_non_null(chunk);
	memset(chunk, ' ', 65536);
	httpc_send(fd, CREATE HOST AUTH JSON "Transfer-Encoding: chunked\r\n\r\n");
	for (int i = 0; i < 17; i++) {
		httpc_send(fd, "10000\r\n");
		httpc_send_bytes(fd, chunk, 65536);
		httpc_send(fd, "\r\n");
	}
	a = httpc_answer(fd);
	assert_answer(&a, 400, "invalid_request");
}

static void json_of_exactly_1_mib_is_read(void **state)
{
	size_t size = 1024 * 1024;
	_cleanup_free_ char *body = malloc(size);
	_cleanup_answer_ struct answer a = { 0 };

	assert_non_null(body);
	memset(body, ' ', size);
	memcpy(body, "{\"cordoned\":false}", 18);
	a = rig_send(*state, "POST", "/v1/node/cordon", NULL, NULL, body, size);
	assert_int_equal(a.status, 200);
}

static void connections_beyond_the_limit_get_503(void **state)
{
	static const char *const few[] = { "--max-connections", "3", NULL };
	struct rig *r = rig_new(&(struct rig_conf){ .args = few });
	int fds[4];

	(void)state;
	for (int i = 0; i < 4; i++) {
		_cleanup_answer_ struct answer a = { 0 };

		fds[i] = httpc_unix(r->sock);
		httpc_send(fds[i], "GET /v1/node HTTP/1.1\r\n" HOST "\r\n");
		a = httpc_answer(fds[i]);
		assert_int_equal(a.status, i < 3 ? 200 : 503);
	}
	for (int i = 0; i < 4; i++)
		close(fds[i]);
	rig_free(r);
}

/* 128 streams of one sandbox are open: the next request for it is refused, others are served. */
static void one_sandbox_cannot_take_every_connection(void **state)
{
	struct rig *r = *state;
	const char *id = rig_sandbox(r, NULL);
	const char *path = rig_path("/v1/sandboxes/%s/processes/1/output", id);
	json_t *v = rig_json(r, "POST", rig_path("/v1/sandboxes/%s/processes", id),
		"{\"argv\":[\"sleep\",\"600\"]}", 201);
	int fds[128];

	json_decref(v);
	for (int i = 0; i < 128; i++) {
		_cleanup_answer_ struct answer a = { 0 };

		fds[i] = rig_open(r, "GET", path, NULL, NULL, NULL, 0);
		a = httpc_head(fds[i]);
		assert_int_equal(a.status, 200);
	}
	rig_refuses(r, "GET", rig_path("/v1/sandboxes/%s", id), NULL, 503, "unavailable");
	v = rig_json(r, "GET", "/v1/sandboxes", NULL, 200);
	json_decref(v);
	/* What ends something comes through. */
	rig_refuses(r, "POST", rig_path("/v1/sandboxes/%s/processes/9/signal", id),
		"{\"signal\":\"HUP\"}", 404, "not_found");
	json_decref(rig_json(r, "DELETE", rig_path("/v1/sandboxes/%s", id), NULL, 204));
	for (int i = 0; i < 128; i++)
		close(fds[i]);
	for (int tries = 0;; tries++) { /* the server notices each that has left */
		_cleanup_answer_ struct answer a =
			rig_send(r, "GET", rig_path("/v1/sandboxes/%s", id), NULL, NULL, NULL, 0);

		if (a.status == 200)
			break;
		assert_true(tries < 2000);
		usleep(5000);
	}
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(guard_checks_in_order),
		T(unauthorized_names_the_scheme),
		T(cross_origin_create_has_no_effect),
		T(cors_only_for_configured_origins),
		T(head_answers_as_get_without_a_body),
		T(two_lengths_get_one_answer),
		T(no_continue_before_a_refusal),
		T(continue_comes_when_the_body_is_wanted),
		T(early_answer_leaves_no_body_behind),
		T(chunked_json_is_bounded),
		T(json_of_exactly_1_mib_is_read),
		T(one_sandbox_cannot_take_every_connection),
		cmocka_unit_test(connections_beyond_the_limit_get_503),
	};

	return run_table(tests);
}
