/* SPDX-License-Identifier: MIT */
/* Which addresses somebody else's word may lead us to: the table, row by row, with the neighbours
 * of each range on both sides. */
#include "tests/support/test.h"

#include "common/base/addr.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

static const struct {
	const char *text;
	enum addr_kind want;
} rows[] = {
	{ "8.8.8.8", ADDR_PUBLIC },
	{ "1.1.1.1", ADDR_PUBLIC },
	{ "0.0.0.0", ADDR_INNER },
	{ "0.255.255.255", ADDR_INNER },
	{ "1.0.0.0", ADDR_PUBLIC },
	{ "9.255.255.255", ADDR_PUBLIC },
	{ "10.0.0.0", ADDR_INNER },
	{ "10.255.255.255", ADDR_INNER },
	{ "11.0.0.0", ADDR_PUBLIC },
	{ "100.63.255.255", ADDR_PUBLIC },
	{ "100.64.0.0", ADDR_INNER },
	{ "100.127.255.255", ADDR_INNER },
	{ "100.128.0.0", ADDR_PUBLIC },
	{ "126.255.255.255", ADDR_PUBLIC },
	{ "127.0.0.1", ADDR_LOOPBACK },
	{ "127.255.255.254", ADDR_LOOPBACK },
	{ "128.0.0.0", ADDR_PUBLIC },
	{ "169.253.255.255", ADDR_PUBLIC },
	{ "169.254.169.254", ADDR_INNER },
	{ "169.255.0.0", ADDR_PUBLIC },
	{ "172.15.255.255", ADDR_PUBLIC },
	{ "172.16.0.0", ADDR_INNER },
	{ "172.31.255.255", ADDR_INNER },
	{ "172.32.0.0", ADDR_PUBLIC },
	{ "192.0.0.8", ADDR_INNER },
	{ "192.0.1.0", ADDR_PUBLIC },
	{ "192.0.2.1", ADDR_INNER },
	{ "192.0.3.0", ADDR_PUBLIC },
	{ "192.88.99.1", ADDR_INNER },
	{ "192.167.255.255", ADDR_PUBLIC },
	{ "192.168.0.1", ADDR_INNER },
	{ "192.169.0.0", ADDR_PUBLIC },
	{ "198.17.255.255", ADDR_PUBLIC },
	{ "198.18.0.0", ADDR_INNER },
	{ "198.19.255.255", ADDR_INNER },
	{ "198.20.0.0", ADDR_PUBLIC },
	{ "198.51.100.7", ADDR_INNER },
	{ "203.0.113.7", ADDR_INNER },
	{ "203.0.114.0", ADDR_PUBLIC },
	{ "223.255.255.255", ADDR_PUBLIC },
	{ "224.0.0.1", ADDR_INNER },
	{ "239.255.255.255", ADDR_INNER },
	{ "240.0.0.1", ADDR_INNER },
	{ "255.255.255.255", ADDR_INNER },
	{ "2606:4700::1111", ADDR_PUBLIC },
	{ "2a00:1450:4001::1", ADDR_PUBLIC },
	{ "::", ADDR_INNER },
	{ "::1", ADDR_LOOPBACK },
	{ "::2", ADDR_INNER },
	{ "::8.8.8.8", ADDR_INNER },
	{ "fe80::1", ADDR_INNER },
	{ "febf::1", ADDR_INNER },
	{ "fec0::1", ADDR_INNER },
	{ "fc00::1", ADDR_INNER },
	{ "fd12:3456::1", ADDR_INNER },
	{ "ff02::1", ADDR_INNER },
	{ "100::1", ADDR_INNER },
	{ "5f00::1", ADDR_INNER },
	{ "4000::1", ADDR_INNER },
	{ "2001:db8::1", ADDR_INNER },
	{ "2001:db9::1", ADDR_PUBLIC },
	{ "2001:2::1", ADDR_INNER },
	{ "2001:10::1", ADDR_INNER },
	{ "2001:1ff:ffff::1", ADDR_INNER },
	{ "2001:200::1", ADDR_PUBLIC },
	{ "3fff::1", ADDR_INNER },
	{ "3fff:fff:ffff::1", ADDR_INNER },
	{ "3fff:1000::1", ADDR_PUBLIC },
	/* what stands for an IPv4 address is judged as that */
	{ "::ffff:8.8.8.8", ADDR_PUBLIC },
	{ "::ffff:10.0.0.1", ADDR_INNER },
	{ "::ffff:127.0.0.1", ADDR_LOOPBACK },
	{ "::ffff:169.254.169.254", ADDR_INNER },
	{ "::ffff:0:8.8.8.8", ADDR_INNER },
	{ "64:ff9b::8.8.8.8", ADDR_PUBLIC },
	{ "64:ff9b::192.168.1.1", ADDR_INNER },
	{ "64:ff9b::127.0.0.1", ADDR_INNER },
	{ "64:ff9b:1::8.8.8.8", ADDR_INNER },
	{ "2002:808:808::1", ADDR_PUBLIC },
	{ "2002:a00:1::1", ADDR_INNER },
	{ "2002:7f00:1::1", ADDR_INNER },
	/* Teredo: server 8.8.8.8, client 8.8.4.4 (flipped); then an inner one of each */
	{ "2001:0:808:808::f7f7:fbfb", ADDR_PUBLIC },
	{ "2001:0:a00:1::f7f7:fbfb", ADDR_INNER },
	{ "2001:0:808:808::f5ff:fffe", ADDR_INNER },
};

union any {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

static union any parse(const char *text)
{
	union any a = { 0 };

	if (inet_pton(AF_INET, text, &a.in.sin_addr) == 1)
		a.sa.sa_family = AF_INET;
	else if (inet_pton(AF_INET6, text, &a.in6.sin6_addr) == 1)
		a.sa.sa_family = AF_INET6;
	else
		fail_msg("%s", text);
	return a;
}

static void kinds(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		union any a = parse(rows[i].text);
		if (addr_kind_of(&a.sa) != rows[i].want)
			fail_msg("%s is kind %d, not %d", rows[i].text, addr_kind_of(&a.sa),
				rows[i].want);
		assert_int_equal(addr_public(&a.sa), rows[i].want == ADDR_PUBLIC);
	}
}

static void other_families(void **state)
{
	struct sockaddr sa = { .sa_family = AF_UNIX };

	(void)state;
	assert_int_equal(addr_kind_of(&sa), ADDR_INNER);
}

static void own_addresses(void **state)
{
	struct addr_own *own;
	struct ifaddrs *all;
	union any far = parse("2606:4700::1111"), mapped = parse("64:ff9b::0.0.0.0");
	int seen = 0;

	(void)state;
	assert_int_equal(addr_own_load(&own), 0);
	assert_int_equal(getifaddrs(&all), 0);
	for (struct ifaddrs *i = all; i; i = i->ifa_next) {
		if (!i->ifa_addr ||
			(i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
			continue;
		assert_true(addr_own_has(own, i->ifa_addr));
		assert_false(addr_dialable(i->ifa_addr));
		seen++;
		if (i->ifa_addr->sa_family != AF_INET)
			continue;
		/* behind a translator it is the same address */
		memcpy(mapped.in6.sin6_addr.s6_addr + 12,
			&((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr, 4);
		assert_true(addr_own_has(own, &mapped.sa));
	}
	assert_true(seen > 0);
	assert_false(addr_own_has(own, &far.sa));
	assert_true(addr_dialable(&far.sa));
	freeifaddrs(all);
	addr_own_free(own);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(kinds),
		cmocka_unit_test(other_families),
		cmocka_unit_test(own_addresses),
	};

	return run_table(tests);
}
