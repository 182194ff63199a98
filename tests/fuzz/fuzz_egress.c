/* SPDX-License-Identifier: MIT */
/* Everything that an egress process reads of a guest or of a resolver. The first byte chooses: a
 * TLS hello, an HTTP stream, a question, a reply. */
#include "tests/fuzz/fuzz.h"

#include "sandboxd/egress/dnswire.h"
#include "sandboxd/egress/head.h"
#include "sandboxd/egress/policy.h"

static void name_is_clean(const char *name)
{
	char again[EGRESS_NAME_MAX + 1];

	promise(name_clean(name, strlen(name), again) == 0 && !strcmp(name, again));
}

static void hello(const uint8_t *b, size_t n)
{
	struct hello h, shorter;
	int r = hello_parse(b, n, &h);

	(void)sniff(b, n);
	if (r != 1)
		return;
	if (h.name[0])
		name_is_clean(h.name);
	/* A hello that is whole was not whole one byte earlier, or says the same. */
	if (n && hello_parse(b, n - 1, &shorter) == 1)
		promise(!strcmp(h.name, shorter.name) && h.hidden == shorter.hidden);
}

/* All at once and byte by byte, a stream has the same names and is cut at the same place. */
static size_t stream(const uint8_t *b, size_t n, size_t piece, uint32_t *names, bool *refused)
{
	struct http h = { .phase = HTTP_HEAD };
	size_t have = 0, done = 0;

	*names = 0;
	*refused = false;
	while (have < n) {
		have = have + piece < n ? have + piece : n;
		for (;;) {
			struct http_head head;
			int64_t r = http_feed(&h, b + done, have - done, false, &head);
			if (r < 0) {
				*refused = true;
				return done;
			}
			promise((size_t)r <= have - done);
			done += (size_t)r;
			if (head.seen && head.name[0])
				name_is_clean(head.name);
			for (const char *p = head.name; head.seen && *p; p++)
				*names = *names * 31 + (uint8_t)*p;
			if (r == 0)
				break;
		}
	}
	return done;
}

static void requests(const uint8_t *b, size_t n)
{
	uint32_t whole, bytes;
	bool bad_whole, bad_bytes;

	if (n > 4096)
		n = 4096;
	stream(b, n, n ? n : 1, &whole, &bad_whole);
	stream(b, n, 1, &bytes, &bad_bytes);
	promise(whole == bytes && bad_whole == bad_bytes);
}

static void question(const uint8_t *b, size_t n)
{
	const uint32_t addr = 0xc6120001;
	uint8_t out[DNS_UDP_MAX];
	struct dns_question q;
	int rcode = dns_question_parse(b, n, &q);

	if (rcode < 0)
		return;
	if (q.name[0])
		name_is_clean(q.name);
	promise(q.end <= n);
	promise(dns_answer(b, &q, rcode, &addr, 1, 30, out) <= sizeof(out));
}

static void reply(const uint8_t *b, size_t n)
{
	char alias[EGRESS_NAME_MAX + 1];
	struct dns_addrs a;

	if (dns_reply(b, n, 7, "ok.test", 1, &a, alias) == DNS_ALIAS)
		name_is_clean(alias);
	promise(a.n <= DNS_ADDRS_MAX);
	(void)dns_reply(b, n, 7, "ok.test", 28, &a, alias);
}

int fuzz_egress(const uint8_t *data, size_t size)
{
	static void (*const all[])(const uint8_t *, size_t) = { hello, requests, question, reply };

	if (size)
		all[data[0] % 4](data + 1, size - 1);
	return 0;
}
