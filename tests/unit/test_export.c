/* SPDX-License-Identifier: MIT */
/* The rules of a metrics export (node contract, 20): what may be asked for, where a push may
 * connect, what is shown, what is sent. */
#include "tests/support/test.h"

#include "common/json/json.h"
#include "sandboxd/core/core_internal.h"
#include "sandboxd/core/export.h"
#include "sandboxd/core/strs.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <zlib.h>

static struct server_policy policy = { .limits = { .min_metrics_export_secs = 10 } };
static struct core core = { .policy = &policy };

static int set_up(void **state)
{
	(void)state;
	core.caps[CAP_METRICS_EXPORT] = true;
	core.export_private = false;
	return 0;
}

static char *mutable(const char *s)
{
	return (char *)(uintptr_t)s;
}

static enum err_code check(const struct metrics_export_body *b, bool update)
{
	struct err e = ERR_NULL;

	return check_metrics_export(&core, b, update, &e) == 0 ? ERR_NONE : e.code;
}

/* --- endpoints ------------------------------------------------------------------------------- */

static const struct endpoint_row {
	const char *name, *in;
	const char *want; /* completed; NULL: refused */
	bool allow_private;
} endpoints[] = {
	{ "a host gets the usual path", "https://c.example", "https://c.example/v1/metrics",
		false },
	{ "a slash gets the usual path", "https://c.example/", "https://c.example/v1/metrics",
		false },
	{ "a port stays", "https://c.example:4318", "https://c.example:4318/v1/metrics", false },
	{ "a path stays", "https://c.example/otlp/x", "https://c.example/otlp/x", false },
	{ "a path of two slashes is one", "https://c.example//", "https://c.example//", false },
	{ "an escape in the path stays", "https://c.example/a%20b", "https://c.example/a%20b",
		false },
	{ "the scheme's case does not matter", "HTTPS://C.example", "HTTPS://C.example/v1/metrics",
		false },
	{ "an address", "https://8.8.8.8:1", "https://8.8.8.8:1/v1/metrics", false },
	{ "an address of IPv6", "https://[2600::1]:4318/x", "https://[2600::1]:4318/x", false },
	{ "a private address is a matter of the push", "https://10.0.0.1",
		"https://10.0.0.1/v1/metrics", false },
	{ "nothing", "", NULL, false },
	{ "no scheme", "c.example", NULL, false },
	{ "no host", "https://", NULL, false },
	{ "no host but a path", "https:///v1", NULL, false },
	{ "no host but a port", "https://:443", NULL, false },
	{ "one slash", "https:/c.example", NULL, false },
	{ "http", "http://c.example", NULL, false },
	{ "http to loopback", "http://127.0.0.1:4318", NULL, false },
	{ "another scheme", "ftp://c.example", NULL, false },
	{ "a scheme that only begins so", "httpsx://c.example", NULL, false },
	{ "a user", "https://u@c.example", NULL, false },
	{ "a user and a password", "https://u:p@c.example", NULL, false },
	{ "a query", "https://c.example/?a=1", NULL, false },
	{ "an empty query", "https://c.example/?", NULL, false },
	{ "a query behind the host", "https://c.example?a", NULL, false },
	{ "a fragment", "https://c.example/#f", NULL, false },
	{ "a blank", "https://c.example/a b", NULL, false },
	{ "a line feed", "https://c.example/\nX: y", NULL, false },
	{ "a backslash", "https://c.example\\@evil.example/", NULL, false },
	{ "a broken escape", "https://c.example/%2", NULL, false },
	{ "bytes beyond ASCII in the host", "https://c\xc3\xa4.example", NULL, false },
	{ "bytes beyond ASCII in the path", "https://c.example/\xc3\xa4", NULL, false },
	{ "port 0", "https://c.example:0", NULL, false },
	{ "a port too high", "https://c.example:65536", NULL, false },
	{ "a port that is no number", "https://c.example:4x", NULL, false },
	{ "an empty port", "https://c.example:/", NULL, false },
	{ "two ports", "https://c.example:1:2", NULL, false },
	{ "half an address of IPv6", "https://[2600::1", NULL, false },
	{ "brackets around a name", "https://[c.example]", NULL, false },
	{ "something behind the brackets", "https://[2600::1]x", NULL, false },
	{ "a zone in an address", "https://[fe80::1%25eth0]", NULL, false },
	{ "allowed: http to a loopback address", "http://127.0.0.1:4318",
		"http://127.0.0.1:4318/v1/metrics", true },
	{ "allowed: http to localhost", "http://localhost:1/x", "http://localhost:1/x", true },
	{ "allowed: http to ::1", "http://[::1]:1", "http://[::1]:1/v1/metrics", true },
	{ "allowed: but not http elsewhere", "http://10.0.0.1", NULL, true },
	{ "allowed: nor to a name that only looks so", "http://localhost.example", NULL, true },
	{ "allowed: https to a private address", "https://10.0.0.1", "https://10.0.0.1/v1/metrics",
		true },
};

static void check_endpoint(void **state)
{
	const struct endpoint_row *row = *state;
	struct metrics_export_body b = { .endpoint = mutable(row->in) };
	struct export *x = NULL;

	core.export_private = row->allow_private;
	if (!row->want) {
		assert_int_equal(check(&b, false), ERR_INVALID_REQUEST);
		return;
	}
	assert_int_equal(check(&b, false), ERR_NONE);
	assert_int_equal(export_new(&core, &b, &x, NULL), 0);
	assert_string_equal(x->endpoint, row->want);
	export_free(x);
}

static void a_long_endpoint_is_refused(void **state)
{
	char text[4096] = "https://c.example/";
	struct metrics_export_body b = { .endpoint = text };

	(void)state;
	memset(text + strlen(text), 'a', 2048 - strlen(text));
	assert_int_equal(check(&b, false), ERR_NONE);
	text[2048] = 'a';
	assert_int_equal(check(&b, false), ERR_INVALID_REQUEST);
}

/* --- headers --------------------------------------------------------------------------------- */

static const struct header_row {
	const char *name, *key, *value;
	bool ok;
} headers[] = {
	{ "a usual header", "Authorization", "Bearer x", true },
	{ "an empty value", "X-Empty", "", true },
	{ "a tab in a value", "X", "a\tb", true },
	{ "bytes beyond ASCII in a value", "X", "\xc3\xa4", true },
	{ "all that a name may be made of", "a!#$%&'*+-.^_`|~9", "x", true },
	{ "no name", "", "x", false },
	{ "a blank in a name", "X Y", "x", false },
	{ "a colon in a name", "X:", "x", false },
	{ "a byte beyond ASCII in a name", "X\xc3\xa4", "x", false },
	{ "a line feed in a value", "X", "a\nb", false },
	{ "a carriage return in a value", "X", "a\r", false },
	{ "another control character in a value", "X", "a\x01", false },
	{ "DEL in a value", "X", "a\x7f", false },
	{ "Host", "Host", "x", false },
	{ "content-type in any case", "CONTENT-type", "x", false },
	{ "Content-Encoding", "Content-Encoding", "x", false },
	{ "Content-Length", "Content-Length", "1", false },
	{ "Transfer-Encoding", "transfer-encoding", "x", false },
	{ "Connection", "Connection", "x", false },
	{ "Keep-Alive", "Keep-Alive", "x", false },
	{ "TE", "te", "x", false },
	{ "Trailer", "Trailer", "x", false },
	{ "Upgrade", "Upgrade", "x", false },
	{ "Expect", "Expect", "x", false },
	{ "Proxy-Authorization", "Proxy-Authorization", "x", false },
	{ "anything that begins with proxy-", "proxy-x", "x", false },
	{ "but not what only holds it", "X-Proxy-Key", "x", true },
};

static void check_header(void **state)
{
	const struct header_row *row = *state;
	char *keys[1] = { mutable(row->key) }, *values[1] = { mutable(row->value) };
	struct metrics_export_body b = { .endpoint = mutable("https://c.example"),
		.headers = { keys, values, 1 } };

	assert_int_equal(check(&b, false), row->ok ? ERR_NONE : ERR_INVALID_REQUEST);
	assert_int_equal(check(&b, true), row->ok ? ERR_NONE : ERR_INVALID_REQUEST);
}

static void at_most_sixteen_headers(void **state)
{
	char names[17][8], *keys[17], *values[17];
	struct metrics_export_body b = { .endpoint = mutable("https://c.example"),
		.headers = { keys, values, 16 } };

	(void)state;
	for (int i = 0; i < 17; i++) {
		snprintf(names[i], sizeof(names[i]), "X-%d", i);
		keys[i] = names[i];
		values[i] = mutable("v");
	}
	assert_int_equal(check(&b, false), ERR_NONE);
	b.headers.n = 17;
	assert_int_equal(check(&b, false), ERR_INVALID_REQUEST);
}

static void a_name_comes_once_whatever_its_case(void **state)
{
	char *keys[] = { mutable("X-Key"), mutable("x-key") };
	char *values[] = { mutable("1"), mutable("2") };
	struct metrics_export_body b = { .endpoint = mutable("https://c.example"),
		.headers = { keys, values, 2 } };

	(void)state;
	assert_int_equal(check(&b, false), ERR_INVALID_REQUEST);
}

/* --- the rest of the body -------------------------------------------------------------------- */

static void intervals(void **state)
{
	static const struct {
		int64_t in;
		bool given;
		int64_t want; /* 0: refused */
	} rows[] = { { 0, false, 60 }, { 0, true, 60 }, { 10, true, 10 }, { 9, true, 0 },
		{ -1, true, 0 }, { 86400, true, 86400 }, { 1LL << 40, true, 0 } };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct metrics_export_body b = { .endpoint = mutable("https://c.example"),
			.interval_secs = rows[i].in,
			.has_interval_secs = rows[i].given };
		struct export *x = NULL;
		if (!rows[i].want) {
			assert_int_equal(check(&b, false), ERR_INVALID_REQUEST);
			continue;
		}
		assert_int_equal(check(&b, false), ERR_NONE);
		assert_int_equal(export_new(&core, &b, &x, NULL), 0);
		assert_int_equal(x->interval_secs, rows[i].want);
		export_free(x);
	}
}

static void the_usual_interval_is_never_below_the_least(void **state)
{
	struct metrics_export_body b = { .endpoint = mutable("https://c.example") };
	struct export *x = NULL;

	(void)state;
	policy.limits.min_metrics_export_secs = 300;
	assert_int_equal(export_new(&core, &b, &x, NULL), 0);
	policy.limits.min_metrics_export_secs = 10;
	assert_int_equal(x->interval_secs, 300);
	export_free(x);
}

static void an_empty_endpoint_stops_an_update_only(void **state)
{
	struct metrics_export_body b = { .endpoint = mutable("") };
	struct export *x = (void *)1;

	(void)state;
	assert_int_equal(check(&b, false), ERR_INVALID_REQUEST);
	assert_int_equal(check(&b, true), ERR_NONE);
	assert_int_equal(export_new(&core, &b, &x, NULL), 0);
	assert_null(x);
	b.endpoint = NULL; /* absent is not empty */
	assert_int_equal(check(&b, true), ERR_INVALID_REQUEST);
}

static void secrets_of_a_gateway_are_refused(void **state)
{
	struct metrics_export_body b = { .endpoint = mutable("https://c.example"),
		.header_secrets = json_object() };

	(void)state;
	assert_int_equal(check(&b, false), ERR_INVALID_REQUEST);
	json_decref(b.header_secrets);
}

static void what_is_wrong_comes_before_what_is_lacking(void **state)
{
	struct metrics_export_body b = { .endpoint = mutable("https://c.example") };

	(void)state;
	core.caps[CAP_METRICS_EXPORT] = false;
	assert_int_equal(check(&b, false), ERR_UNSUPPORTED);
	b.endpoint = mutable("https://u@c.example");
	assert_int_equal(check(&b, false), ERR_INVALID_REQUEST);
}

/* --- where a push may connect ---------------------------------------------------------------- */

static const struct connect_row {
	const char *address;
	bool usual, allowed, plain; /* https; https with private targets allowed; http with them */
} connects[] = {
	{ "8.8.8.8", true, true, false },
	{ "2600::1", true, true, false },
	{ "127.0.0.1", false, true, true },
	{ "127.9.9.9", false, true, true },
	{ "::1", false, true, true },
	{ "::ffff:127.0.0.1", false, true, true },
	{ "10.0.0.1", false, true, false },
	{ "192.168.1.1", false, true, false },
	{ "172.31.255.255", false, true, false },
	{ "100.64.0.1", false, true, false },
	{ "169.254.169.254", false, true, false },
	{ "0.0.0.0", false, true, false },
	{ "::", false, true, false },
	{ "fe80::1", false, true, false },
	{ "fd00::1", false, true, false },
	{ "::ffff:10.0.0.1", false, true, false },
	{ "64:ff9b::a00:1", false, true, false },
	{ "2002:a00:1::", false, true, false },
};

static void check_connect(void **state)
{
	const struct connect_row *row = *state;
	struct sockaddr_storage ss = { 0 };
	struct sockaddr *sa = (struct sockaddr *)&ss;

	if (inet_pton(AF_INET, row->address, &((struct sockaddr_in *)sa)->sin_addr) == 1)
		ss.ss_family = AF_INET;
	else if (inet_pton(AF_INET6, row->address, &((struct sockaddr_in6 *)sa)->sin6_addr) == 1)
		ss.ss_family = AF_INET6;
	assert_int_not_equal(ss.ss_family, 0);
	assert_int_equal(export_may_connect(false, false, sa), row->usual);
	assert_int_equal(export_may_connect(true, false, sa), row->allowed);
	assert_int_equal(export_may_connect(true, true, sa), row->plain);
	assert_false(export_may_connect(false, true, sa)); /* http never without the flag */
}

/* --- forms ----------------------------------------------------------------------------------- */

static struct export *example(void)
{
	char *keys[] = { mutable("X-Key"), mutable("Authorization") };
	char *values[] = { mutable("zq7secret-1"), mutable("zq7secret-2") };
	struct metrics_export_body b = { .endpoint = mutable("https://c.example"),
		.headers = { keys, values, 2 } };
	struct export *x = NULL;

	assert_int_equal(export_new(&core, &b, &x, NULL), 0);
	return x;
}

static void assert_text(json_t *v, const char *want)
{
	_cleanup_free_ char *text = json_dumps(v, JSON_COMPACT);

	assert_string_equal(text, want);
	json_decref(v);
}

static void it_is_shown_with_names_and_without_values(void **state)
{
	struct export *x = example();

	(void)state;
	assert_text(export_json(x),
		"{\"endpoint\":\"https://c.example/v1/metrics\",\"interval_secs\":60,"
		"\"header_names\":[\"Authorization\",\"X-Key\"]}");
	x->last_push_ns = 1700000000000000000;
	assert_text(export_json(x),
		"{\"endpoint\":\"https://c.example/v1/metrics\",\"interval_secs\":60,"
		"\"header_names\":[\"Authorization\",\"X-Key\"],"
		"\"last_push_at\":\"2023-11-14T22:13:20.000000Z\"}");
	x->failing_since_ns = 1700000001000000000;
	snprintf(x->last_error, sizeof(x->last_error), "no");
	assert_text(export_json(x),
		"{\"endpoint\":\"https://c.example/v1/metrics\",\"interval_secs\":60,"
		"\"header_names\":[\"Authorization\",\"X-Key\"],"
		"\"last_push_at\":\"2023-11-14T22:13:20.000000Z\","
		"\"failing_since\":\"2023-11-14T22:13:21.000000Z\",\"last_error\":\"no\"}");
	export_free(x);
	assert_text(export_plain_json(NULL), "{\"endpoint\":\"\"}");
}

static void a_record_gives_it_back(void **state)
{
	struct export *x = example(), *y = NULL;
	json_t *plain = export_plain_json(x), *values = map_json(&x->headers);
	_cleanup_free_ char *text = json_dumps(plain, 0);

	(void)state;
	assert_null(strstr(text, "zq7"));
	assert_int_equal(export_load(&core, plain, values, &y), 0);
	assert_string_equal(y->endpoint, x->endpoint);
	assert_int_equal(y->interval_secs, 60);
	assert_string_equal(map_get(&y->headers, "Authorization"), "zq7secret-2");
	assert_int_not_equal(x->serial, y->serial);
	export_free(y);
	/* of an ended sandbox: names only */
	assert_int_equal(export_load(&core, plain, NULL, &y), 0);
	assert_string_equal(map_get(&y->headers, "X-Key"), "");
	export_free(y);
	assert_int_equal(export_load(&core, NULL, NULL, &y), 0);
	assert_null(y);
	json_object_del(plain, "endpoint");
	assert_int_equal(export_load(&core, plain, NULL, &y), -1);
	json_decref(plain);
	json_decref(values);
	export_free(x);
}

static void the_end_leaves_no_value(void **state)
{
	struct sandbox s = { .core = &core, .metrics_export = example() };

	(void)state;
	export_end(&s);
	for (size_t i = 0; i < s.metrics_export->headers.n; i++)
		assert_string_equal(s.metrics_export->headers.values[i], "");
	assert_int_equal(s.metrics_export->headers.n, 2);
	export_free(s.metrics_export);
}

/* --- what is sent ---------------------------------------------------------------------------- */

static const char otlp[] =
	"{\"resourceMetrics\":[{\"resource\":{\"attributes\":["
	"{\"key\":\"service.name\",\"value\":{\"stringValue\":\"sandbox\"}},"
	"{\"key\":\"sandbox.id\",\"value\":{\"stringValue\":\"sbx_1\"}},"
	"{\"key\":\"sandbox.name\",\"value\":{\"stringValue\":\"box\"}},"
	"{\"key\":\"sandbox.image\",\"value\":{\"stringValue\":\"base\"}},"
	"{\"key\":\"sandbox.label.team\",\"value\":{\"stringValue\":\"a \\\"b\\\"\"}}]},"
	"\"scopeMetrics\":[{\"scope\":{\"name\":\"sandboxd\",\"version\":\"" SANDBOXD_VERSION "\"},"
	"\"metrics\":["
	"{\"name\":\"sandbox.cpu.utilization\",\"unit\":\"1\",\"gauge\":{\"dataPoints\":["
	"{\"timeUnixNano\":\"1700000005000000000\",\"asDouble\":0.5}]}},"
	"{\"name\":\"sandbox.memory.usage\",\"unit\":\"By\",\"gauge\":{\"dataPoints\":["
	"{\"timeUnixNano\":\"1700000005000000000\",\"asInt\":\"1024\"}]}},"
	"{\"name\":\"sandbox.memory.limit\",\"unit\":\"By\",\"gauge\":{\"dataPoints\":["
	"{\"timeUnixNano\":\"1700000005000000000\",\"asInt\":\"9007199254740993\"}]}},"
	"{\"name\":\"sandbox.network.io\",\"unit\":\"By\",\"sum\":{\"aggregationTemporality\":2,"
	"\"isMonotonic\":true,\"dataPoints\":["
	"{\"attributes\":[{\"key\":\"network.io.direction\",\"value\":{\"stringValue\":\"receive\"}}],"
	"\"startTimeUnixNano\":\"1700000000000000000\",\"timeUnixNano\":\"1700000005000000000\","
	"\"asInt\":\"1\"},"
	"{\"attributes\":[{\"key\":\"network.io.direction\",\"value\":{\"stringValue\":\"transmit\"}}],"
	"\"startTimeUnixNano\":\"1700000000000000000\",\"timeUnixNano\":\"1700000005000000000\","
	"\"asInt\":\"2\"}]}},"
	"{\"name\":\"sandbox.disk.io\",\"unit\":\"By\",\"sum\":{\"aggregationTemporality\":2,"
	"\"isMonotonic\":true,\"dataPoints\":["
	"{\"attributes\":[{\"key\":\"disk.io.direction\",\"value\":{\"stringValue\":\"read\"}}],"
	"\"startTimeUnixNano\":\"1700000000000000000\",\"timeUnixNano\":\"1700000005000000000\","
	"\"asInt\":\"3\"},"
	"{\"attributes\":[{\"key\":\"disk.io.direction\",\"value\":{\"stringValue\":\"write\"}}],"
	"\"startTimeUnixNano\":\"1700000000000000000\",\"timeUnixNano\":\"1700000005000000000\","
	"\"asInt\":\"4\"}]}}%s]}]}]}";
static const char otlp_processes[] =
	",{\"name\":\"sandbox.processes\",\"unit\":\"count\",\"gauge\":{\"dataPoints\":["
	"{\"timeUnixNano\":\"1700000005000000000\",\"asInt\":\"7\"}]}}";

static void the_body_is_otlp_json(void **state)
{
	char *keys[] = { mutable("team"), mutable("gateway.owner") };
	char *values[] = { mutable("a \"b\""), mutable("x") };
	struct sandbox s = { .id = "sbx_1",
		.name = mutable("box"),
		.image = mutable("base"),
		.created_ns = 1700000000000000000,
		.labels = { keys, values, 2 } };
	struct sample m = { .time_ns = 1700000005000000000,
		.cpu_percent = 50,
		.memory_bytes = 1024,
		.memory_limit_bytes = 9007199254740993, /* no double */
		.net_rx_bytes = 1,
		.net_tx_bytes = 2,
		.disk_read_bytes = 3,
		.disk_write_bytes = 4,
		.processes = 7 };
	char want[8192];

	(void)state;
	snprintf(want, sizeof(want), otlp, otlp_processes);
	assert_text(otlp_json(&s, &m), want);
	m.processes = 0; /* cannot be seen */
	snprintf(want, sizeof(want), otlp, "");
	assert_text(otlp_json(&s, &m), want);
}

static void it_is_sent_as_gzip(void **state)
{
	char text[5000], back[6000];
	z_stream z = { 0 };
	size_t len;
	void *packed;

	(void)state;
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (char)('a' + i * i % 23);
	packed = otlp_gzip(text, sizeof(text), &len);
	assert_non_null(packed);
	assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK); /* gzip only */
	z.next_in = packed;
	z.avail_in = (uInt)len;
	z.next_out = (Bytef *)back;
	z.avail_out = sizeof(back);
	assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
	assert_int_equal(z.total_out, sizeof(text));
	assert_memory_equal(back, text, sizeof(text));
	inflateEnd(&z);
	free(packed);
}

int main(void)
{
	static const struct CMUnitTest single[] = {
		cmocka_unit_test_setup(a_long_endpoint_is_refused, set_up),
		cmocka_unit_test_setup(at_most_sixteen_headers, set_up),
		cmocka_unit_test_setup(a_name_comes_once_whatever_its_case, set_up),
		cmocka_unit_test_setup(intervals, set_up),
		cmocka_unit_test_setup(the_usual_interval_is_never_below_the_least, set_up),
		cmocka_unit_test_setup(an_empty_endpoint_stops_an_update_only, set_up),
		cmocka_unit_test_setup(secrets_of_a_gateway_are_refused, set_up),
		cmocka_unit_test_setup(what_is_wrong_comes_before_what_is_lacking, set_up),
		cmocka_unit_test_setup(it_is_shown_with_names_and_without_values, set_up),
		cmocka_unit_test_setup(a_record_gives_it_back, set_up),
		cmocka_unit_test_setup(the_end_leaves_no_value, set_up),
		cmocka_unit_test_setup(the_body_is_otlp_json, set_up),
		cmocka_unit_test_setup(it_is_sent_as_gzip, set_up),
	};
	static struct CMUnitTest tests[ARRAY_LEN(single) + ARRAY_LEN(endpoints) +
				       ARRAY_LEN(headers) + ARRAY_LEN(connects)];
	size_t n = 0;

#define ADD(list, label, fn)                                                                       \
	for (size_t i = 0; i < ARRAY_LEN(list); i++)                                               \
		tests[n++] = (struct CMUnitTest){ .name = (list)[i].label,                         \
			.test_func = (fn),                                                         \
			.setup_func = set_up,                                                      \
			.initial_state = (void *)(uintptr_t) & (list)[i] };
	ADD(endpoints, name, check_endpoint)
	ADD(headers, name, check_header)
	ADD(connects, address, check_connect)
	memcpy(&tests[n], single, sizeof(single));
	return run_table(tests);
}
