/* SPDX-License-Identifier: MIT */
/* DNS messages as an egress process reads and writes them: the guest's questions, our answers, and
 * what a resolver, or somebody in its name, may send. */
#include "tests/support/test.h"

#include "sandboxd/egress/dnswire.h"

#include <arpa/inet.h>

struct msg {
	uint8_t b[1500];
	size_t n;
};

static void put(struct msg *m, const void *p, size_t n)
{
	memcpy(m->b + m->n, p, n);
	m->n += n;
}

static void put16(struct msg *m, unsigned v)
{
	uint8_t b[2] = { (uint8_t)(v >> 8), (uint8_t)v };

	put(m, b, 2);
}

static void put_name(struct msg *m, const char *name)
{
	while (*name) {
		size_t k = strcspn(name, ".");
		uint8_t len = (uint8_t)k;
		put(m, &len, 1);
		put(m, name, k);
		name += k + (name[k] == '.');
	}
	put(m, "", 1);
}

static struct msg message(
	unsigned id, unsigned flags, const char *name, unsigned type, unsigned answers)
{
	struct msg m = { .n = 0 };

	put16(&m, id);
	put16(&m, flags);
	put16(&m, 1);
	put16(&m, answers);
	put16(&m, 0);
	put16(&m, 0);
	put_name(&m, name);
	put16(&m, type);
	put16(&m, 1);
	return m;
}

static void put_record(struct msg *m, const char *owner, unsigned type, const void *data, size_t n)
{
	if (owner)
		put_name(m, owner);
	else
		put16(m, 0xc00c);
	put16(m, type);
	put16(m, 1);
	put16(m, 0);
	put16(m, 60);
	put16(m, (unsigned)n);
	put(m, data, n);
}

static void put_cname(struct msg *m, const char *owner, const char *target)
{
	struct msg t = { .n = 0 };

	put_name(&t, target);
	put_record(m, owner, 5, t.b, t.n);
}

/* --- questions ------------------------------------------------------------------------------- */

static void questions_are_understood(void **state)
{
	static const struct {
		const char *name, *want;
	} rows[] = {
		{ "ok.test", "ok.test" },
		{ "OK.tEst", "ok.test" },
		{ "_a._tcp.test", "_a._tcp.test" },
		{ "10.0.0.1", "" }, /* nobody's name */
		{ "a b.test", "" },
		{ "", "" },
	};
	struct dns_question q;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct msg m = message(7, 0x0100, rows[i].name, 1, 0);
		assert_int_equal(dns_question_parse(m.b, m.n, &q), DNS_NOERROR);
		assert_string_equal(q.name, rows[i].want);
		assert_int_equal(q.type, 1);
		assert_int_equal(q.end, m.n);
	}
}

static void odd_questions_get_an_error_or_nothing(void **state)
{
	struct msg m = message(7, 0x0100, "ok.test", 1, 0);
	struct dns_question q;

	(void)state;
	for (size_t n = 0; n < 12; n++)
		assert_int_equal(dns_question_parse(m.b, n, &q), -1);
	for (size_t n = 12; n < m.n; n++)
		assert_int_equal(dns_question_parse(m.b, n, &q), DNS_FORMERR);
	m.b[2] |= 0x80; /* an answer */
	assert_int_equal(dns_question_parse(m.b, m.n, &q), -1);
	m.b[2] = 0x28; /* an update */
	assert_int_equal(dns_question_parse(m.b, m.n, &q), DNS_NOTIMP);
	m = message(7, 0x0100, "ok.test", 1, 0);
	m.b[5] = 2; /* two questions */
	assert_int_equal(dns_question_parse(m.b, m.n, &q), DNS_FORMERR);
	m = message(7, 0x0100, "ok.test", 1, 0);
	m.b[m.n - 1] = 3; /* class CHAOS */
	assert_int_equal(dns_question_parse(m.b, m.n, &q), DNS_REFUSED);
	m.n = 12;
	put16(&m, 0xc00c); /* a pointer to itself */
	put16(&m, 1);
	put16(&m, 1);
	assert_int_equal(dns_question_parse(m.b, m.n, &q), DNS_FORMERR);
}

static void answers_fit_and_repeat_the_question(void **state)
{
	struct msg m = { .n = 0 };
	uint32_t addrs[40];
	uint8_t out[DNS_UDP_MAX];
	struct dns_question q;
	char name[254];

	(void)state;
	for (size_t i = 0; i < 253; i++)
		name[i] = i % 2 ? '.' : 'a';
	name[253] = 0;
	m = message(0x1234, 0x0100, name, 1, 0);
	for (unsigned i = 0; i < 40; i++)
		addrs[i] = 0xc6120001 + i;
	assert_int_equal(dns_question_parse(m.b, m.n, &q), DNS_NOERROR);
	size_t n = dns_answer(m.b, &q, DNS_NOERROR, addrs, 40, 30, out);
	assert_true(n <= DNS_UDP_MAX);
	assert_memory_equal(out, m.b, 2);
	assert_memory_equal(out + 12, m.b + 12, m.n - 12);
	assert_int_equal(out[2] & 0x80, 0x80);
	assert_int_equal(out[7], DNS_ANSWERS_MAX);
	n = dns_answer(m.b, &q, DNS_NXDOMAIN, NULL, 0, 30, out);
	assert_int_equal(n, m.n);
	assert_int_equal(out[3] & 15, DNS_NXDOMAIN);
}

/* --- replies --------------------------------------------------------------------------------- */

static struct dns_addrs got;
static char alias[EGRESS_NAME_MAX + 1];

static enum dns_verdict read_reply(const struct msg *m)
{
	return dns_reply(m->b, m->n, 7, "ok.test", 1, &got, alias);
}

static void an_address_is_taken(void **state)
{
	struct msg m = message(7, 0x8180, "OK.test", 1, 2);

	(void)state;
	put_record(&m, NULL, 1, "\x0b\0\1\x0a", 4);
	put_record(&m, "ok.test", 1, "\x0b\0\1\x0b", 4);
	assert_int_equal(read_reply(&m), DNS_DONE);
	assert_int_equal(got.n, 2);
	assert_int_equal(got.ttl, 60);
	assert_memory_equal(got.a[0].a, "\x0b\0\1\x0a", 4);
	for (size_t n = 0; n < m.n; n++) {
		struct msg cut = m;
		cut.n = n;
		assert_int_not_equal(read_reply(&cut), DNS_DONE);
	}
}

static void aliases_are_followed_in_any_order(void **state)
{
	struct msg m = message(7, 0x8180, "ok.test", 1, 3);

	(void)state;
	put_record(&m, "end.test", 1, "\x0b\0\1\x0a", 4);
	put_cname(&m, "mid.test", "end.test");
	put_cname(&m, "ok.test", "Mid.test");
	assert_int_equal(read_reply(&m), DNS_DONE);
	assert_int_equal(got.n, 1);
	m = message(7, 0x8180, "ok.test", 1, 1);
	put_cname(&m, "ok.test", "far.test");
	assert_int_equal(read_reply(&m), DNS_ALIAS);
	assert_string_equal(alias, "far.test");
}

static void what_was_not_asked_is_not_taken(void **state)
{
	struct msg m = message(7, 0x8180, "ok.test", 1, 1);

	(void)state;
	put_record(&m, "evil.test", 1, "\x0b\0\1\x0a", 4);
	assert_int_equal(read_reply(&m), DNS_DONE);
	assert_int_equal(got.n, 0);
	m = message(7, 0x8180, "ok.test", 1, 1);
	put_record(&m, NULL, 1, "\x0b\0\1", 3); /* no address */
	assert_int_equal(read_reply(&m), DNS_DONE);
	assert_int_equal(got.n, 0);
}

static void replies_of_others_are_passed_over(void **state)
{
	struct msg m;

	(void)state;
	m = message(8, 0x8180, "ok.test", 1, 0);
	assert_int_equal(read_reply(&m), DNS_FOREIGN);
	m = message(7, 0x0100, "ok.test", 1, 0); /* a question */
	assert_int_equal(read_reply(&m), DNS_FOREIGN);
	m = message(7, 0x8180, "evil.test", 1, 0);
	assert_int_equal(read_reply(&m), DNS_FOREIGN);
	m = message(7, 0x8180, "ok.test", 28, 0);
	assert_int_equal(read_reply(&m), DNS_FOREIGN);
}

static void broken_replies_end_the_server_s_turn(void **state)
{
	struct msg m;

	(void)state;
	m = message(7, 0x8182, "ok.test", 1, 0); /* SERVFAIL */
	assert_int_equal(read_reply(&m), DNS_BROKEN);
	m = message(7, 0x8380, "ok.test", 1, 0); /* cut */
	assert_int_equal(read_reply(&m), DNS_CUT);
	m = message(7, 0x8183, "ok.test", 1, 0);
	assert_int_equal(read_reply(&m), DNS_DONE);
	assert_int_equal(got.rcode, DNS_NXDOMAIN);
	m = message(7, 0x8180, "ok.test", 1, 5000);
	assert_int_equal(read_reply(&m), DNS_BROKEN);
	m = message(7, 0x8180, "ok.test", 1, 2);
	put_cname(&m, "ok.test", "b.test");
	put_cname(&m, "b.test", "ok.test"); /* round and round */
	assert_int_equal(read_reply(&m), DNS_BROKEN);
	m = message(7, 0x8180, "ok.test", 1, 1);
	put_cname(&m, "ok.test", "bad name.test");
	assert_int_equal(read_reply(&m), DNS_BROKEN);
	m = message(7, 0x8180, "ok.test", 1, 1);
	put16(&m, 0xc0ff); /* a pointer forwards */
	put_record(&m, "", 1, "\x0b\0\1\x0a", 4);
	assert_int_equal(read_reply(&m), DNS_BROKEN);
}

static void our_questions_are_well_formed(void **state)
{
	uint8_t out[DNS_QUERY_MAX];
	struct dns_question q;
	char name[254];

	(void)state;
	for (size_t i = 0; i < 253; i++)
		name[i] = i % 2 ? '.' : 'a';
	name[253] = 0;
	size_t n = dns_query(0xabcd, name, DNS_AAAA, out);
	assert_true(n <= sizeof(out));
	assert_int_equal(dns_question_parse(out, n, &q), DNS_NOERROR);
	assert_string_equal(q.name, name);
	assert_int_equal(q.type, DNS_AAAA);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(questions_are_understood),
		cmocka_unit_test(odd_questions_get_an_error_or_nothing),
		cmocka_unit_test(answers_fit_and_repeat_the_question),
		cmocka_unit_test(an_address_is_taken),
		cmocka_unit_test(aliases_are_followed_in_any_order),
		cmocka_unit_test(what_was_not_asked_is_not_taken),
		cmocka_unit_test(replies_of_others_are_passed_over),
		cmocka_unit_test(broken_replies_end_the_server_s_turn),
		cmocka_unit_test(our_questions_are_well_formed),
	};

	return run_table(tests);
}
