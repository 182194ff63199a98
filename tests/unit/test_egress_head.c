/* SPDX-License-Identifier: MIT */
/* What an egress process reads from the first bytes of a connection: which protocol, which names,
 * where a request ends. The rows that are refused are those that two readers could understand in
 * two ways. */
#include "tests/support/test.h"

#include "sandboxd/egress/head.h"

#include <errno.h>

static void the_protocol_is_guessed(void **state)
{
	static const struct {
		const char *bytes;
		size_t n; /* 0: a string */
		enum sniff want;
	} rows[] = {
		{ "\x16\x03\x01\x02\x00", 5, SNIFF_TLS },
		{ "\x16", 1, SNIFF_MORE },
		{ "\x16\x02", 2, SNIFF_OTHER },
		{ "GET / HTTP/1.1\r\n", 0, SNIFF_HTTP },
		{ "GET /", 0, SNIFF_MORE },
		{ "G", 0, SNIFF_MORE },
		{ "\r\n\r\nGET / HTTP/1.1\r\n", 0, SNIFF_HTTP },
		{ "\n", 0, SNIFF_MORE },
		{ "odd-method /x HTTP/1.0\n", 0, SNIFF_HTTP },
		{ "GET\t/ HTTP/1.1\n", 0, SNIFF_HTTP },
		{ "PRI * HTTP/2.0\r\n", 0, SNIFF_HTTP },
		{ "GET key\r\n", 0, SNIFF_OTHER },
		{ "GET / HTTX/1.1\r\n", 0, SNIFF_OTHER },
		{ "SSH-2.0-x\r\n", 0, SNIFF_OTHER },
		{ "\x00\x01", 2, SNIFF_OTHER },
		{ "{\"a\":1}\n", 0, SNIFF_OTHER },
		{ "EHLO x\r\n", 0, SNIFF_OTHER },
		{ "AVERYLONGWORDTHATSOMEMAYTAKEFORAMETHOD", 0, SNIFF_MORE },
		{ "AVERYLONGWORDTHATSOMEMAYTAKEFORAMETHOD / HTTP/1.1\r\n", 0, SNIFF_HTTP },
		{ " GET / HTTP/1.1\r\n", 0, SNIFF_HTTP },
		{ "\n\t GET\v/ http/1.1\n", 0, SNIFF_HTTP },
		{ "GET / HTTP/1.1", 0, SNIFF_HTTP },
		{ "AMQP\x00\x00\x09\x01", 8, SNIFF_OTHER },
		{ "0032git-upload-pack /x\x00", 23, SNIFF_OTHER },
		{ "PING", 0, SNIFF_MORE },
		{ "*1\r\n$4\r\nPING\r\n", 0, SNIFF_OTHER },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		size_t n = rows[i].n ? rows[i].n : strlen(rows[i].bytes);
		if (sniff((const uint8_t *)rows[i].bytes, n) != rows[i].want)
			fail_msg("row %zu: %s", i, rows[i].bytes);
	}
}

/* --- TLS ------------------------------------------------------------------------------------- */

struct bytes {
	uint8_t b[20000];
	size_t n;
};

static void add(struct bytes *o, const void *p, size_t n)
{
	memcpy(o->b + o->n, p, n);
	o->n += n;
}

static void add16(struct bytes *o, size_t v)
{
	uint8_t b[2] = { (uint8_t)(v >> 8), (uint8_t)v };

	add(o, b, 2);
}

static void add_ext(struct bytes *o, unsigned type, const struct bytes *body)
{
	add16(o, type);
	add16(o, body->n);
	add(o, body->b, body->n);
}

static struct bytes sni(const char *name, size_t n)
{
	struct bytes o = { .n = 0 };

	add16(&o, n + 3);
	add(&o, "\0", 1);
	add16(&o, n);
	add(&o, name, n);
	return o;
}

/* A hello with these extensions, whole. */
static struct bytes hello_with(const struct bytes *exts)
{
	struct bytes body = { .n = 0 }, o = { .n = 0 };

	add16(&body, 0x0303);
	add(&body, "0123456789abcdef0123456789abcdef", 32);
	add(&body, "\0", 1);
	add16(&body, 2);
	add16(&body, 0x1301);
	add(&body, "\1\0", 2);
	add16(&body, exts->n);
	add(&body, exts->b, exts->n);
	add(&o, "\x16\x03\x01", 3);
	add16(&o, body.n + 4);
	add(&o, "\1\0", 2);
	add16(&o, body.n);
	add(&o, body.b, body.n);
	return o;
}

static struct bytes hello_for(const char *name)
{
	struct bytes exts = { .n = 0 }, s = sni(name, strlen(name)), alpn = { .n = 0 };

	add(&alpn, "\0\3\2h2", 5);
	add_ext(&exts, 16, &alpn);
	add_ext(&exts, 0, &s);
	return hello_with(&exts);
}

static void a_hello_is_read_whole_or_not_at_all(void **state)
{
	struct bytes b = hello_for("A.Example.test");
	struct hello h;

	(void)state;
	for (size_t n = 0; n < b.n; n++)
		assert_int_equal(hello_parse(b.b, n, &h), 0);
	assert_int_equal(hello_parse(b.b, b.n, &h), 1);
	assert_string_equal(h.name, "a.example.test");
	assert_false(h.hidden);
	add(&b, "more", 4); /* early data */
	assert_int_equal(hello_parse(b.b, b.n, &h), 1);
}

static void a_hello_without_a_name_says_so(void **state)
{
	struct bytes none = { .n = 0 }, b = hello_with(&none);
	struct hello h;

	(void)state;
	assert_int_equal(hello_parse(b.b, b.n, &h), 1);
	assert_string_equal(h.name, "");
}

static void an_encrypted_hello_is_seen(void **state)
{
	static const unsigned kinds[] = { 0xfe0d, 0xffce };
	struct hello h;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		struct bytes exts = { .n = 0 }, s = sni("ok.test", 7), ech = { .n = 0 };
		add(&ech, "\0\0\1\0\1", 5);
		add_ext(&exts, 0, &s);
		add_ext(&exts, kinds[i], &ech);
		struct bytes b = hello_with(&exts);
		assert_int_equal(hello_parse(b.b, b.n, &h), 1);
		assert_true(h.hidden);
	}
}

static void a_broken_hello_is_refused(void **state)
{
	struct bytes exts = { .n = 0 }, s = sni("ok.test", 7), b;
	struct hello h;

	(void)state;
	add_ext(&exts, 0, &s);
	add_ext(&exts, 0, &s); /* two names */
	b = hello_with(&exts);
	assert_int_equal(hello_parse(b.b, b.n, &h), -EINVAL);

	exts.n = 0;
	s = sni("ok.test\0.evil", 13); /* NUL in it */
	add_ext(&exts, 0, &s);
	b = hello_with(&exts);
	assert_int_equal(hello_parse(b.b, b.n, &h), -EINVAL);

	exts.n = 0;
	s = sni("10.0.0.1", 8);
	add_ext(&exts, 0, &s);
	b = hello_with(&exts);
	assert_int_equal(hello_parse(b.b, b.n, &h), -EINVAL);

	b = hello_for("ok.test");
	b.b[3] = 0x41; /* a record of more than there may be */
	assert_int_equal(hello_parse(b.b, b.n, &h), -EINVAL);

	b = hello_for("ok.test");
	b.b[5] = 2; /* not a client's */
	assert_int_equal(hello_parse(b.b, b.n, &h), -EINVAL);

	b = hello_for("ok.test");
	b.b[8]++; /* goes on in a second record */
	assert_int_equal(hello_parse(b.b, b.n, &h), -EINVAL);

	b = hello_for("ok.test");
	b.b[4]++; /* a record with something behind the hello */
	b.n++;
	assert_int_equal(hello_parse(b.b, b.n, &h), -EINVAL);
}

/* --- HTTP ------------------------------------------------------------------------------------ */

#define HOST "Host: ok.test\r\n"

static void heads_name_their_host(void **state)
{
	static const struct {
		const char *text, *name; /* NULL: refused */
	} rows[] = {
		{ "GET / HTTP/1.1\r\n" HOST "\r\n", "ok.test" },
		{ "GET / HTTP/1.1\r\nhOsT:  OK.test.:8080 \r\n\r\n", "ok.test" },
		{ "\r\nGET / HTTP/1.0\r\n" HOST "\r\n", "ok.test" },
		{ "GET http://ok.test/x HTTP/1.1\r\n" HOST "\r\n", "ok.test" },
		{ "GET http://ok.test:80?q HTTP/1.0\r\n\r\n", "ok.test" },
		{ "OPTIONS * HTTP/1.1\r\n" HOST "\r\n", "ok.test" },
		{ "CONNECT ok.test:443 HTTP/1.1\r\n" HOST "\r\n", "ok.test" },
		{ "GET / HTTP/1.1\r\nHost: 11.0.1.10\r\n\r\n", "" },
		{ "GET / HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n\r\n", "" },
		{ "GET / HTTP/1.1\r\n\r\n", NULL },
		{ "GET / HTTP/1.0\r\n\r\n", NULL },
		{ "GET / HTTP/1.1\r\nHost:\r\n\r\n", NULL },
		{ "GET / HTTP/1.1\r\n" HOST HOST "\r\n", NULL },
		{ "GET / HTTP/1.1\r\n" HOST "Host: evil.test\r\n\r\n", NULL },
		{ "GET http://evil.test/ HTTP/1.1\r\n" HOST "\r\n", NULL },
		{ "GET http://10.0.0.1/ HTTP/1.1\r\n" HOST "\r\n", NULL },
		{ "GET http://u@ok.test/ HTTP/1.1\r\n" HOST "\r\n", NULL },
		{ "CONNECT evil.test:443 HTTP/1.1\r\n" HOST "\r\n", NULL },
		{ "CONNECT ok.test HTTP/1.1\r\n" HOST "\r\n", NULL },
		{ "GET evil.test HTTP/1.1\r\n" HOST "\r\n", NULL },
		{ "GET / HTTP/2.0\r\n" HOST "\r\n", NULL },
		{ "GET / HTTP/1.1 \r\n" HOST "\r\n", NULL },
		{ "GET  / HTTP/1.1\r\n" HOST "\r\n", NULL },
		{ "GET\t/ HTTP/1.1\r\n" HOST "\r\n", NULL },
		{ "GET / HTTP/1.1\n" HOST "\r\n\r\n", NULL },
		{ "GET / HTTP/1.1\r\nHost: ok.test\n\r\n\r\n", NULL },
		{ "GET / HTTP/1.1\r\nX: a\rHost: evil.test\r\n" HOST "\r\n", NULL },
		{ "GET / HTTP/1.1\r\n" HOST " folded\r\n\r\n", NULL },
		{ "GET / HTTP/1.1\r\nHost : ok.test\r\n\r\n", NULL },
		{ "GET / HTTP/1.1\r\n Host: evil.test\r\n" HOST "\r\n", NULL },
		{ "GET / HTTP/1.1\r\nHost: ok.test evil.test\r\n\r\n", NULL },
		{ "GET / HTTP/1.1\r\nHost: ok.test,evil.test\r\n\r\n", NULL },
		{ "GET / HTTP/1.1\r\nHost: ok.test:x\r\n\r\n", NULL },
		{ "GET / HTTP/1.1\r\nHost: ok.test/\r\n\r\n", NULL },
		{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
			NULL },
		{ "POST / HTTP/1.1\r\n" HOST "Content-Length: +1\r\n\r\n", NULL },
		{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999\r\n\r\n", NULL },
		{ "POST / HTTP/1.1\r\n" HOST
		  "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
			NULL },
		{ "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n", NULL },
		{ "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", NULL },
		{ "POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct http h = { .phase = HTTP_HEAD };
		struct http_head head;
		size_t n = strlen(rows[i].text);
		int64_t r = http_feed(&h, (const uint8_t *)rows[i].text, n, false, &head);
		if (rows[i].name ? r != (int64_t)n || !head.seen ||
					   strcmp(head.name, rows[i].name) != 0
				 : r != -EINVAL)
			fail_msg("row %zu, %lld \"%s\": %s", i, (long long)r, head.name,
				rows[i].text);
	}
}

/* In pieces of every size the stream gives the same names. */
static void names_of(const char *text, size_t piece, char *out)
{
	struct http h = { .phase = HTTP_HEAD };
	size_t n = strlen(text), have = 0, done = 0;

	*out = 0;
	while (done < n) {
		have = have + piece < n ? have + piece : n;
		for (;;) {
			struct http_head head;
			int64_t r = http_feed(
				&h, (const uint8_t *)text + done, have - done, false, &head);
			if (r < 0) {
				strcat(out, "refused");
				return;
			}
			done += (size_t)r;
			if (head.seen) {
				strcat(out, head.name);
				strcat(out, " ");
			}
			if (r == 0)
				break;
		}
		if (have == n && done < n)
			return; /* the rest is not a whole request */
	}
}

static void every_request_of_a_connection_is_read(void **state)
{
	static const char *const rows[][2] = {
		{ "GET /1 HTTP/1.1\r\nHost: a.test\r\n\r\nGET /2 HTTP/1.1\r\nHost: b.test\r\n\r\n",
			"a.test b.test " },
		{ "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 28\r\n\r\n"
		  "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: b.test\r\n\r\n",
			"a.test b.test " },
		{ "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
		  "5\r\nhello\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"
		  "GET / HTTP/1.1\r\nHost: b.test\r\n\r\n",
			"a.test b.test " },
		{ "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
		  "5;ext=1\r\nhello\r\n0\r\n\r\n",
			"a.test refused" },
		{ "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
		  "5 \r\nhello\r\n0\r\n\r\n",
			"a.test refused" },
		{ "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
		  "5\r\nhelloGET / HTTP/1.1\r\n",
			"a.test refused" },
		{ "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
		  "0x5\r\nhello\r\n",
			"a.test refused" },
		{ "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
		  "10000000000000000\r\nhello\r\n",
			"a.test refused" },
		{ "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
		  "5\nhello\r\n",
			"a.test refused" },
		{ "GET / HTTP/1.1\r\nHost: a.test\r\n\r\nnonsense\r\n\r\n", "a.test refused" },
	};
	char got[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		for (size_t piece = 1; piece < 200; piece += piece < 20 ? 1 : 37) {
			names_of(rows[i][0], piece, got);
			if (strcmp(got, rows[i][1]) != 0)
				fail_msg("row %zu in pieces of %zu: %s", i, piece, got);
		}
}

static void a_head_that_never_ends_is_refused(void **state)
{
	static uint8_t b[HEAD_MAX + 10];
	struct http h = { .phase = HTTP_HEAD };
	struct http_head head;

	(void)state;
	memset(b, 'a', sizeof(b));
	assert_int_equal(http_feed(&h, b, HEAD_MAX - 1, false, &head), 0);
	assert_int_equal(http_feed(&h, b, HEAD_MAX, false, &head), -EMSGSIZE);
}

static void an_upgrade_holds_the_next_request_back(void **state)
{
	static const char text[] =
		"GET / HTTP/1.1\r\nHost: a.test\r\nUpgrade: WebSocket\r\n"
		"Content-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: b.test\r\n\r\n";
	const uint8_t *b = (const uint8_t *)text;
	size_t n = sizeof(text) - 1;
	struct http h = { .phase = HTTP_HEAD };
	struct http_head head;
	int64_t first = http_feed(&h, b, n, false, &head);

	(void)state;
	assert_int_equal(head.upgrade, UPGRADE_WEBSOCKET);
	assert_int_equal(http_feed(&h, b + first, n - (size_t)first, true, &head), 3);
	assert_int_equal(http_feed(&h, b + first + 3, n - (size_t)first - 3, true, &head), 0);
	assert_true(http_feed(&h, b + first + 3, n - (size_t)first - 3, false, &head) > 0);
	assert_string_equal(head.name, "b.test");
}

static void a_body_may_be_skipped_unseen(void **state)
{
	static const char text[] = "PUT / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100\r\n\r\n";
	struct http h = { .phase = HTTP_HEAD };
	struct http_head head;

	(void)state;
	http_feed(&h, (const uint8_t *)text, sizeof(text) - 1, false, &head);
	assert_int_equal(http_body_left(&h), 100);
	http_skip(&h, 60);
	assert_int_equal(http_body_left(&h), 40);
	http_skip(&h, 40);
	assert_int_equal(http_body_left(&h), 0);
	assert_int_equal(h.phase, HTTP_HEAD);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_protocol_is_guessed),
		cmocka_unit_test(a_hello_is_read_whole_or_not_at_all),
		cmocka_unit_test(a_hello_without_a_name_says_so),
		cmocka_unit_test(an_encrypted_hello_is_seen),
		cmocka_unit_test(a_broken_hello_is_refused),
		cmocka_unit_test(heads_name_their_host),
		cmocka_unit_test(every_request_of_a_connection_is_read),
		cmocka_unit_test(a_head_that_never_ends_is_refused),
		cmocka_unit_test(an_upgrade_holds_the_next_request_back),
		cmocka_unit_test(a_body_may_be_skipped_unseen),
	};

	return run_table(tests);
}
