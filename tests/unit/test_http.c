/* SPDX-License-Identifier: MIT */
/* The HTTP server alone, over real sockets, with an application of a few lines. */
#include "common/http/http.h"
#include "tests/support/httpc.h"
#include "tests/support/patience.h"
#include "tests/support/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct fixture {
	struct http_server *server;
	unsigned short port;
	_Atomic int begun, gone, incomplete, upgraded_gone;
	_Atomic uint64_t bytes;
	_Atomic bool busy;
};

static ssize_t count_read(void *arg, uint64_t pos, char *buf, size_t max)
{
	(void)arg;
	(void)max;
	if (pos >= 3)
		return 0;
	buf[0] = (char)('a' + pos);
	return 1;
}

/* A stream that says one byte and is then quiet until the client has left. */
static ssize_t quiet_read(void *arg, uint64_t pos, char *buf, size_t max)
{
	struct http_req *r = arg;
	struct pollfd p = { .fd = http_client_fd(r), .events = POLLRDHUP };

	(void)max;
	if (pos == 0) {
		buf[0] = '.';
		return 1;
	}
	poll(&p, 1, 15000);
	return -1;
}

static void echo_run(void *arg, int fd, const void *extra, size_t len)
{
	struct fixture *f = arg;
	char buf[4096];
	ssize_t n;

	if (fd < 0)
		return;
	if (len)
		send(fd, extra, len, MSG_NOSIGNAL);
	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0)
		send(fd, buf, (size_t)n, MSG_NOSIGNAL);
	f->upgraded_gone++;
}

static void app_begin(void *arg, struct http_req *r)
{
	struct fixture *f = arg;

	f->begun++;
	if (!strcmp(http_path(r), "/known"))
		http_trust(r);
	if (!strcmp(http_path(r), "/refuse")) {
		http_add_header(r, "X-Refused", "yes");
		http_reply(r, 401, "text/plain", "no", 2);
	} else if (!strcmp(http_path(r), "/small")) {
		http_set_body_max(r, 10);
	}
}

static void app_data(void *arg, struct http_req *r, const void *buf, size_t len)
{
	struct fixture *f = arg;

	(void)buf;
	f->bytes += len;
	if (!strcmp(http_path(r), "/middle"))
		http_reply(r, 409, "text/plain", "stop", 4);
	if (!strcmp(http_path(r), "/busy")) {
		f->busy = true;
		poll(NULL, 0, 800); /* three looks of the sweeper */
	}
}

static void app_end(void *arg, struct http_req *r)
{
	struct fixture *f = arg;
	char text[64];
	size_t len;
	bool bad;

	if (!strcmp(http_path(r), "/stream")) {
		http_reply_stream(
			r, 200, "text/plain", -1, &(struct http_source){ .read = count_read });
	} else if (!strcmp(http_path(r), "/sized")) {
		http_reply_stream(
			r, 200, "text/plain", 3, &(struct http_source){ .read = count_read });
	} else if (!strcmp(http_path(r), "/quiet")) {
		http_reply_stream(r, 200, "text/plain", -1,
			&(struct http_source){ .arg = r, .read = quiet_read });
	} else if (!strcmp(http_path(r), "/up")) {
		http_upgrade(r, "echo/1", echo_run, f);
	} else if (!strcmp(http_path(r), "/query")) {
		const char *v = http_query(r, "k", 0, &len, &bad);

		http_reply(r, bad ? 400 : v ? 200 : 404, "text/plain", v ? v : "", len);
	} else {
		int n = snprintf(text, sizeof(text), "%s %s %llu", http_method(r), http_path(r),
			(unsigned long long)f->bytes);

		http_reply(r, 200, "text/plain", text, (size_t)n);
	}
}

static void app_gone(void *arg, struct http_req *r, bool complete)
{
	struct fixture *f = arg;

	(void)r;
	f->gone++;
	if (!complete)
		f->incomplete++;
}

static int listen_loopback(unsigned short *port)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	assert_return_code(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), errno);
	assert_return_code(listen(fd, 512), errno);
	assert_return_code(getsockname(fd, (struct sockaddr *)&sa, &len), errno);
	*port = ntohs(sa.sin_port);
	return fd;
}

static int setup_with(void **state, unsigned ms)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct http_app app = { f, app_begin, app_data, app_end, app_gone };
	struct err e = ERR_NULL;
	struct http_conf conf = {
		.max_connections = 4,
		.header_timeout_ms = ms,
		.idle_timeout_ms = 2 * ms,
		.body_timeout_ms = ms,
	};

	assert_non_null(f);
	conf.listen_fd = listen_loopback(&f->port);
	if (http_server_start(&conf, &app, &f->server, &e) < 0)
		fail_msg("%s", e.msg);
	*state = f;
	return 0;
}

/* For what ends by itself. */
static int setup(void **state)
{
	return setup_with(state, 400);
}

static int setup_patient(void **state)
{
	return setup_with(state, 30000);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	http_server_stop(f->server, 1000);
	assert_int_equal(f->begun, f->gone);
	free(f);
	return 0;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static struct answer ask(struct fixture *f, const char *text)
{
	int fd = httpc_tcp(f->port);
	struct answer a;

	httpc_send(fd, text);
	a = httpc_answer(fd);
	close(fd);
	return a;
}

static void keeps_a_connection(void **state)
{
	struct fixture *f = *state;
	_cleanup_close_ int fd = httpc_tcp(f->port);

	for (int i = 0; i < 3; i++) {
		_cleanup_answer_ struct answer a = { 0 };

		httpc_send(fd, "GET /a%2Fb?x HTTP/1.1\r\nHost: h\r\n\r\n");
		a = httpc_answer(fd);
		assert_int_equal(a.status, 200);
		assert_string_equal(a.body, "GET /a%2Fb 0");
	}
}

static void serves_a_body_of_any_method(void **state)
{
	struct fixture *f = *state;
	_cleanup_answer_ struct answer a =
		ask(f, "DELETE /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n12345");

	assert_string_equal(a.body, "DELETE /x 5");
}

static void understands_the_absolute_form(void **state)
{
	_cleanup_answer_ struct answer a =
		ask(*state, "GET http://h:1/x?k=http://y HTTP/1.1\r\nHost: h:1\r\n\r\n");
	_cleanup_answer_ struct answer b = ask(*state, "GET http://h HTTP/1.1\r\nHost: H\r\n\r\n");
	_cleanup_answer_ struct answer c =
		ask(*state, "GET http://other/x HTTP/1.1\r\nHost: h\r\n\r\n");

	assert_string_equal(a.body, "GET /x 0");
	assert_string_equal(b.body, "GET / 0");
	assert_answer(&c, 400, "invalid_request");
}

static void head_has_no_body(void **state)
{
	struct fixture *f = *state;
	_cleanup_close_ int fd = httpc_tcp(f->port);
	_cleanup_answer_ struct answer a = { 0 }, b = { 0 };

	httpc_send(fd, "HEAD /x HTTP/1.1\r\nHost: h\r\n\r\nGET /y HTTP/1.1\r\nHost: h\r\n\r\n");
	a = httpc_answer_head(fd);
	assert_int_equal(a.status, 200);
	b = httpc_answer(fd);
	assert_string_equal(b.body, "GET /y 0");
}

/* Not even the end of chunks, which a client would take for the begin of its next answer. */
static void head_of_a_stream_has_no_body(void **state)
{
	struct fixture *f = *state;
	_cleanup_close_ int fd = httpc_tcp(f->port);
	_cleanup_answer_ struct answer a = { 0 };

	httpc_send(fd, "HEAD /stream HTTP/1.1\r\nHost: h\r\n\r\n");
	a = httpc_answer_head(fd);
	assert_int_equal(a.status, 200);
	assert_true(httpc_closed(fd, 20000));
}

static const struct framing {
	const char *name, *text;
} framings[] = {
	{ "refuses both lengths",
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n" },
	{ "refuses two lengths",
		"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc" },
	{ "refuses the same length twice",
		"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc" },
	{ "refuses an unknown transfer coding",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\nabc" },
	{ "refuses stacked transfer codings",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" },
	{ "refuses chunked twice",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" },
	{ "refuses two hosts", "GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n" },
	{ "refuses a missing host", "GET / HTTP/1.1\r\n\r\n" },
	{ "refuses a negative length", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n" },
	{ "refuses a signed length",
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +3\r\n\r\nabc" },
	{ "refuses a bad chunk size",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n" },
};
static const struct framing *framing; /* the row under test */

static void one_400_and_closed(void **state)
{
	struct fixture *f = *state;
	_cleanup_close_ int fd = httpc_tcp(f->port);
	_cleanup_answer_ struct answer a = { 0 };

	httpc_send(fd, framing->text);
	a = httpc_answer(fd);
	assert_int_equal(a.status, 400);
	assert_true(httpc_closed(fd, 10000));
}

static void framing_faults_get_one_answer(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(framings); i++) {
		framing = &framings[i];
		print_message("  %s\n", framing->name);
		one_400_and_closed(state);
	}
}

static void early_refusal_closes(void **state, const char *method)
{
	struct fixture *f = *state;
	_cleanup_close_ int fd = httpc_tcp(f->port);
	_cleanup_answer_ struct answer a = { 0 };
	char text[256], v[32];

	snprintf(text, sizeof(text), "%s /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: 28\r\n\r\n",
		method);
	httpc_send(fd, text);
	a = httpc_answer(fd); /* before a byte of the body */
	assert_int_equal(a.status, 401);
	assert_string_equal(answer_header(&a, "Connection", v, sizeof(v)), "close");
	assert_string_equal(answer_header(&a, "X-Refused", v, sizeof(v)), "yes");
	httpc_send(fd, "GET /b HTTP/1.1\r\nHost: h\r\n\r\nGET /c HTTP/1.1\r\nHost: h\r\n\r\n");
	assert_true(httpc_closed(fd, 10000));
}

static void refuses_before_the_body_and_never_reads_it_as_a_request(void **state)
{
	static const char *const methods[] = { "POST", "PUT", "PATCH", "DELETE", "GET" };

	for (size_t i = 0; i < ARRAY_LEN(methods); i++)
		early_refusal_closes(state, methods[i]);
}

static void refused_upload_still_sees_the_answer(void **state)
{
	struct fixture *f = *state;
	_cleanup_close_ int fd = httpc_tcp(f->port);
	_cleanup_answer_ struct answer a = { 0 };
	_cleanup_free_ char *big = calloc(1, 8u << 20);

	httpc_send(fd, "PUT /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: 8388608\r\n\r\n");
	httpc_send_bytes(fd, big, 8u << 20);
	a = httpc_answer(fd);
	assert_int_equal(a.status, 401);
}

static void keeps_the_connection_after_a_refusal_without_a_body(void **state)
{
	struct fixture *f = *state;
	_cleanup_close_ int fd = httpc_tcp(f->port);
	_cleanup_answer_ struct answer a = { 0 }, b = { 0 };

	httpc_send(fd, "GET /refuse HTTP/1.1\r\nHost: h\r\n\r\nGET /y HTTP/1.1\r\nHost: h\r\n\r\n");
	a = httpc_answer(fd);
	assert_int_equal(a.status, 401);
	b = httpc_answer(fd);
	assert_int_equal(b.status, 200);
}

static void answers_in_the_middle_of_a_body(void **state)
{
	struct fixture *f = *state;
	_cleanup_close_ int fd = httpc_tcp(f->port);
	_cleanup_answer_ struct answer a = { 0 };

	httpc_send(fd, "PUT /middle HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\nabc");
	a = httpc_answer(fd);
	assert_int_equal(a.status, 409);
	assert_string_equal(a.body, "stop");
	assert_true(httpc_closed(fd, 10000));
}

static void counts_a_chunked_body(void **state)
{
	struct fixture *f = *state;
	_cleanup_answer_ struct answer a =
		ask(f, "PUT /small HTTP/1.1\r\nHost: h\r\n"
		       "Transfer-Encoding: chunked\r\n\r\n6\r\n123456\r\n6\r\n123456\r\n0\r\n\r\n");
	_cleanup_answer_ struct answer b =
		ask(f, "PUT /small HTTP/1.1\r\nHost: h\r\n"
		       "Transfer-Encoding: chunked\r\n\r\n6\r\n123456\r\n4\r\n1234\r\n0\r\n\r\n");

	assert_answer(&a, 413, "invalid_request");
	assert_int_equal(b.status, 200);
}

static void continue_is_sent_when_asked_and_wanted(void **state)
{
	struct fixture *f = *state;
	_cleanup_close_ int fd = httpc_tcp(f->port);
	_cleanup_answer_ struct answer a = { 0 }, b = { 0 };

	httpc_send(fd,
		"PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-Continue\r\n\r\n");
	a = httpc_answer(fd);
	assert_int_equal(a.status, 100);
	httpc_send(fd, "ok");
	b = httpc_answer(fd);
	assert_string_equal(b.body, "PUT /x 2");
}

static void no_continue_before_a_refusal(void **state)
{
	struct fixture *f = *state;
	_cleanup_close_ int fd = httpc_tcp(f->port);
	_cleanup_answer_ struct answer a = { 0 };

	httpc_send(fd,
		"PUT /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n");
	a = httpc_answer(fd);
	assert_int_equal(a.status, 401);
	assert_true(httpc_closed(fd, 10000));
}

static void unknown_expectation_counts_for_nothing(void **state)
{
	struct fixture *f = *state;
	_cleanup_answer_ struct answer a = ask(
		f, "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: miracles\r\n\r\nok");

	assert_int_equal(a.status, 200);
}

static void one_byte_now_and_then_does_not_keep_a_header_open(void **state)
{
	struct fixture *f = *state;
	_cleanup_close_ int fd = httpc_tcp(f->port);
	int64_t start = now_ms();

	httpc_send(fd, "GET /x HTTP/1.1\r\nHost: h\r\nX-A: ");
	while (!httpc_closed(fd, 50)) {
		httpc_send(fd, "a");
		assert_true(now_ms() - start < 30000);
	}
	assert_true(now_ms() - start >= 350);
}

static void closes_silent_connections(void **state)
{
	struct fixture *f = *state;
	_cleanup_close_ int fresh = httpc_tcp(f->port), used = httpc_tcp(f->port);
	_cleanup_answer_ struct answer a = { 0 };

	httpc_send(used, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
	a = httpc_answer(used);
	assert_int_equal(a.status, 200);
	assert_true(httpc_closed(fresh, 10000));
	assert_true(httpc_closed(used, 10000));
}

static void cuts_a_body_that_stops(void **state)
{
	struct fixture *f = *state;
	_cleanup_close_ int fd = httpc_tcp(f->port);

	httpc_send(fd, "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc");
	assert_true(httpc_closed(fd, 10000));
	for (int i = 0; !f->gone && i < 3000; i++)
		usleep(10000);
	assert_int_equal(f->incomplete, 1);
}

static void leaves_a_quiet_stream_alone(void **state)
{
	struct fixture *f = *state;
	_cleanup_close_ int fd = httpc_tcp(f->port);
	_cleanup_answer_ struct answer a = { 0 };
	char c;

	httpc_send(fd, "GET /quiet HTTP/1.1\r\nHost: h\r\n\r\n");
	a = httpc_head(fd);
	assert_int_equal(a.status, 200);
	for (int i = 0; i < 6; i++)
		assert_int_equal(recv(fd, &c, 1, MSG_WAITALL), 1); /* "1\r\n.\r\n" */
	assert_true(httpc_silent(fd, 1200));
}

static void streams(void **state)
{
	struct fixture *f = *state;
	_cleanup_answer_ struct answer a = ask(f, "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
	_cleanup_answer_ struct answer b = ask(f, "GET /sized HTTP/1.1\r\nHost: h\r\n\r\n");
	char v[16];

	assert_string_equal(a.body, "abc");
	assert_string_equal(b.body, "abc");
	assert_string_equal(answer_header(&b, "Content-Length", v, sizeof(v)), "3");
}

static void upgrades(void **state)
{
	struct fixture *f = *state;
	_cleanup_close_ int fd = httpc_tcp(f->port);
	_cleanup_answer_ struct answer a = { 0 };
	char buf[6], v[32];

	httpc_send(fd,
		"GET /up HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo/1\r\n\r\nabc");
	a = httpc_answer(fd);
	assert_int_equal(a.status, 101);
	assert_string_equal(answer_header(&a, "Upgrade", v, sizeof(v)), "echo/1");
	httpc_send(fd, "def");
	assert_int_equal(recv(fd, buf, 6, MSG_WAITALL), 6);
	assert_memory_equal(buf, "abcdef", 6);
	assert_true(httpc_silent(fd, 1200)); /* quiet is not idle */
}

static void *stop_thread(void *arg)
{
	struct fixture *f = arg;

	http_server_stop(f->server, 100);
	return NULL;
}

static void stop_ends_streams_and_upgrades(void **state)
{
	struct fixture *f = *state;
	_cleanup_close_ int up = httpc_tcp(f->port), quiet = httpc_tcp(f->port);
	_cleanup_answer_ struct answer a = { 0 }, b = { 0 };
	int64_t start = now_ms();
	pthread_t t;

	httpc_send(up,
		"GET /up HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo/1\r\n\r\n");
	a = httpc_answer(up);
	httpc_send(quiet, "GET /quiet HTTP/1.1\r\nHost: h\r\n\r\n");
	b = httpc_head(quiet);
	pthread_create(&t, NULL, stop_thread, f);
	pthread_join(t, NULL);
	assert_true(now_ms() - start < 30000);
	assert_int_equal(f->upgraded_gone, 1);
	f->server = NULL;
}

static void answers_503_beyond_the_limit(void **state)
{
	struct fixture *f = *state;
	int fds[5];
	_cleanup_answer_ struct answer b = { 0 };

	for (int i = 0; i < 4; i++) {
		_cleanup_answer_ struct answer a = { 0 };

		fds[i] = httpc_tcp(f->port);
		httpc_send(fds[i], "GET /known HTTP/1.1\r\nHost: h\r\n\r\n");
		a = httpc_answer(fds[i]);
		assert_int_equal(a.status, 200);
	}
	fds[4] = httpc_tcp(f->port);
	httpc_send(fds[4], "GET /known HTTP/1.1\r\nHost: h\r\n\r\n");
	b = httpc_answer(fds[4]);
	assert_answer(&b, 503, "unavailable");
	assert_true(httpc_closed(fds[4], 10000));
	for (int i = 0; i < 5; i++)
		close(fds[i]);
}

/* What one sends that may be given up for another: nothing, a part, what needs no token. */
static const char *const strangers[] = { "", "GET /x HTTP/1.1\r\nHos",
	"GET /x HTTP/1.1\r\nHost: h\r\n\r\n" };

static void strangers_make_room_for_who_comes(void **state)
{
	struct fixture *f = *state;
	int known = httpc_tcp(f->port), fds[ARRAY_LEN(strangers)];
	_cleanup_answer_ struct answer a = { 0 };

	httpc_send(known, "GET /known HTTP/1.1\r\nHost: h\r\n\r\n");
	a = httpc_answer(known);
	assert_int_equal(a.status, 200);
	for (size_t i = 0; i < ARRAY_LEN(strangers); i++) {
		_cleanup_answer_ struct answer b = { 0 };

		fds[i] = httpc_tcp(f->port);
		httpc_send(fds[i], strangers[i]);
		if (strstr(strangers[i], "\r\n\r\n"))
			b = httpc_answer(fds[i]);
	}
	for (size_t i = 0; i < 3; i++) {
		_cleanup_close_ int fd = httpc_tcp(f->port);
		_cleanup_answer_ struct answer b = { 0 };

		httpc_send(fd, "GET /known HTTP/1.1\r\nHost: h\r\n\r\n");
		b = httpc_answer(fd);
		assert_int_equal(b.status, 200);
	}
	for (size_t i = 0; i < ARRAY_LEN(strangers); i++)
		close(fds[i]);
	httpc_send(known, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
	answer_free(&a);
	a = httpc_answer(known);
	assert_int_equal(a.status, 200);
	close(known);
}

/* What needs no token may have a body, and that need never be whole. */
static void strangers_with_bodies_make_room(void **state)
{
	static const char *const bodies[] = { "Content-Length: 99\r\n\r\nab",
		"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n" };
	struct fixture *f = *state;
	int fds[4], known[4];

	for (int i = 0; i < 4; i++) {
		char text[128];
		int until = f->begun + 1;

		snprintf(text, sizeof(text), "POST /x HTTP/1.1\r\nHost: h\r\n%s", bodies[i % 2]);
		fds[i] = httpc_tcp(f->port);
		httpc_send(fds[i], text);
		for (int k = 0; k < 3000 && f->begun < until; k++)
			poll(NULL, 0, 10);
		assert_int_equal(f->begun, until);
	}
	for (int i = 0; i < 4; i++) {
		_cleanup_answer_ struct answer a = { 0 };

		known[i] = httpc_tcp(f->port);
		httpc_send(known[i], "GET /known HTTP/1.1\r\nHost: h\r\n\r\n");
		a = httpc_answer(known[i]);
		assert_int_equal(a.status, 200);
	}
	for (int i = 0; i < 4; i++) {
		close(fds[i]);
		close(known[i]);
	}
}

/* The server asks how much of a connection is unread. While `late` is set, what it will read comes just after that,
 * and its thread is at work before the answer to the question is used. */
static struct {
	_Atomic(struct fixture *) f;
	int client;
} late;
int ioctl(int fd, unsigned long what, ...)
{
	struct fixture *f = late.f;
	va_list ap;

	va_start(ap, what);
	void *p = va_arg(ap, void *);
	va_end(ap);
	if (what != FIONREAD || !f)
		return (int)syscall(SYS_ioctl, fd, what, p);
	late.f = NULL;
	(void)!send(late.client, "x", 1, MSG_NOSIGNAL);
	for (int i = 0; i < patience_ms(20000) && !f->busy; i++)
		poll(NULL, 0, 1);
	*(int *)p = 1;
	return 0;
}

static void who_is_spared_and_gets_going_is_not_cut(void **state)
{
	struct fixture *f = *state;
	_cleanup_close_ int stranger = httpc_tcp(f->port), next = -1;
	int known[3];
	_cleanup_answer_ struct answer goes_on = { 0 }, a = { 0 }, turned_away = { 0 };

	httpc_send(stranger, "POST /busy HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n");
	goes_on = httpc_answer(stranger);
	assert_int_equal(goes_on.status, 100);
	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		_cleanup_answer_ struct answer b = { 0 };

		known[i] = httpc_tcp(f->port);
		httpc_send(known[i], "GET /known HTTP/1.1\r\nHost: h\r\n\r\n");
		b = httpc_answer(known[i]);
		assert_int_equal(b.status, 200);
	}
	late.client = stranger;
	late.f = f;
	next = httpc_tcp(f->port);
	a = httpc_answer(stranger);
	assert_true(f->busy);
	assert_int_equal(a.status, 200);
	httpc_send(next, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
	turned_away = httpc_answer(next); /* there was nobody to make room */
	assert_int_equal(turned_away.status, 503);
	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		close(known[i]);
}

static void who_is_turned_away_hears_why(void **state)
{
	struct fixture *f = *state;
	int fds[5];
	_cleanup_answer_ struct answer a = { 0 }, b = { 0 };

	for (int i = 0; i < 5; i++)
		fds[i] = httpc_tcp(f->port);
	httpc_send(fds[4], "GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
	a = httpc_answer(fds[4]);
	assert_int_equal(a.status, 200);
	b = httpc_answer(fds[0]);
	assert_answer(&b, 503, "unavailable");
	assert_true(httpc_closed(fds[0], 10000));
	for (int i = 0; i < 5; i++)
		close(fds[i]);
}

static long cpu_ms(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000 +
	       (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1000;
}

/* A socket that waits to be connected, made while there are descriptors; then there is none any more. */
static int last_socket(struct rlimit *was)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), next = dup(fd);
	struct rlimit none;

	assert_true(fd >= 0 && next >= 0);
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, was), 0);
	none = (struct rlimit){ (rlim_t)next, was->rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	return fd;
}

static void connect_late(int fd, const struct fixture *f)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons(f->port) };

	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	httpc_send(fd, "GET /known HTTP/1.1\r\nHost: h\r\n\r\n");
}

/* Nobody is there who could make room. Who comes waits in the kernel's queue, and the thread that lets in
 * does not ask all the time. */
static void without_descriptors_who_comes_waits(void **state)
{
	struct fixture *f = *state;
	_cleanup_close_ int known = httpc_tcp(f->port), fd = -1;
	_cleanup_answer_ struct answer a = { 0 }, b = { 0 };
	struct rlimit was;
	long before, used;

	httpc_send(known, "GET /known HTTP/1.1\r\nHost: h\r\n\r\n");
	a = httpc_answer(known);
	assert_int_equal(a.status, 200);
	fd = last_socket(&was);
	connect_late(fd, f);
	before = cpu_ms();
	poll(NULL, 0, 400);
	used = cpu_ms() - before;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	b = httpc_answer(fd);
	assert_int_equal(b.status, 200);
	assert_true(used < 100);
}

static void without_descriptors_strangers_make_room(void **state)
{
	struct fixture *f = *state;
	_cleanup_close_ int stranger = httpc_tcp(f->port), fd = -1;
	_cleanup_answer_ struct answer a = { 0 }, b = { 0 };
	struct rlimit was;

	httpc_send(stranger, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
	a = httpc_answer(stranger);
	assert_int_equal(a.status, 200);
	fd = last_socket(&was);
	connect_late(fd, f);
	b = httpc_answer(fd);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	assert_int_equal(b.status, 200);
	assert_true(httpc_closed(stranger, 10000));
}

static void answers_that_nobody_takes_are_cut(void **state)
{
	static const char ask[] = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n";
	struct fixture *f = *state;
	_cleanup_close_ int fd = httpc_tcp(f->port);
	struct pollfd p = { .fd = fd, .events = POLLRDHUP };

	while (send(fd, ask, sizeof(ask) - 1, MSG_DONTWAIT | MSG_NOSIGNAL) > 0 || poll(&p, 1, 100) == 0)
		assert_true(f->begun < 1000000);
	assert_true(poll(&p, 1, 0) > 0);
}

static void query_is_decoded_once(void **state)
{
	static const struct {
		const char *query, *want;
		int status;
	} rows[] = {
		{ "k=a%20b+c", "a b+c", 200 },
		{ "x=1&k=%2520&k=2", "%20", 200 },
		{ "%6b=yes", "yes", 200 },
		{ "k", "", 200 },
		{ "kk=1", "", 404 },
		{ "k=%zz", NULL, 400 },
		{ "k=%4", NULL, 400 },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		_cleanup_answer_ struct answer a = { 0 };
		char text[128];

		snprintf(text, sizeof(text), "GET /query?%s HTTP/1.1\r\nHost: h\r\n\r\n",
			rows[i].query);
		a = ask(*state, text);
		assert_int_equal(a.status, rows[i].status);
		if (rows[i].want)
			assert_string_equal(a.body, rows[i].want);
	}
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
#define P(fn) cmocka_unit_test_setup_teardown(fn, setup_patient, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		P(keeps_a_connection),
		P(serves_a_body_of_any_method),
		P(head_has_no_body),
		P(head_of_a_stream_has_no_body),
		P(understands_the_absolute_form),
		P(framing_faults_get_one_answer),
		P(refuses_before_the_body_and_never_reads_it_as_a_request),
		P(refused_upload_still_sees_the_answer),
		P(keeps_the_connection_after_a_refusal_without_a_body),
		P(answers_in_the_middle_of_a_body),
		P(counts_a_chunked_body),
		P(continue_is_sent_when_asked_and_wanted),
		P(no_continue_before_a_refusal),
		P(unknown_expectation_counts_for_nothing),
		T(one_byte_now_and_then_does_not_keep_a_header_open),
		T(closes_silent_connections),
		T(cuts_a_body_that_stops),
		T(leaves_a_quiet_stream_alone),
		P(streams),
		T(upgrades),
		P(stop_ends_streams_and_upgrades),
		P(answers_503_beyond_the_limit),
		P(strangers_make_room_for_who_comes),
		P(strangers_with_bodies_make_room),
		P(who_is_spared_and_gets_going_is_not_cut),
		P(who_is_turned_away_hears_why),
		P(without_descriptors_who_comes_waits),
		P(without_descriptors_strangers_make_room),
		T(answers_that_nobody_takes_are_cut),
		P(query_is_decoded_once),
	};

	return run_table(tests);
}
