/* SPDX-License-Identifier: MIT */
/* The table of the special-purpose registries. IPv6 is refused unless it lies in the part that is
 * given out to the internet (2000::/3); what stands for an IPv4 address is judged as that address.
 */
#include "common/base/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

static const struct {
	uint32_t net;
	unsigned bits;
	enum addr_kind kind;
} v4[] = {
	{ 0x00000000, 8, ADDR_INNER },    /* this host, this network */
	{ 0x0a000000, 8, ADDR_INNER },    /* 10/8 private */
	{ 0x64400000, 10, ADDR_INNER },   /* 100.64/10 shared by providers */
	{ 0x7f000000, 8, ADDR_LOOPBACK }, /* 127/8 */
	{ 0xa9fe0000, 16, ADDR_INNER },   /* 169.254/16 link-local, metadata services */
	{ 0xac100000, 12, ADDR_INNER },   /* 172.16/12 private */
	{ 0xc0000000, 24, ADDR_INNER },   /* 192.0.0/24 protocol assignments */
	{ 0xc0000200, 24, ADDR_INNER },   /* 192.0.2/24 documentation */
	{ 0xc0586300, 24, ADDR_INNER },   /* 192.88.99/24 6to4 relays */
	{ 0xc0a80000, 16, ADDR_INNER },   /* 192.168/16 private */
	{ 0xc6120000, 15, ADDR_INNER },   /* 198.18/15 benchmarks */
	{ 0xc6336400, 24, ADDR_INNER },   /* 198.51.100/24 documentation */
	{ 0xcb007100, 24, ADDR_INNER },   /* 203.0.113/24 documentation */
	{ 0xe0000000, 4, ADDR_INNER },    /* multicast */
	{ 0xf0000000, 4, ADDR_INNER },    /* reserved, broadcast */
};

static uint32_t be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static enum addr_kind kind_v4(uint32_t a)
{
	for (size_t i = 0; i < LEN(v4); i++)
		if ((a ^ v4[i].net) >> (32 - v4[i].bits) == 0)
			return v4[i].kind;
	return ADDR_PUBLIC;
}

static bool starts(const uint8_t *a, const uint8_t *net, unsigned bits)
{
	unsigned whole = bits / 8, rest = bits % 8;

	if (memcmp(a, net, whole) != 0)
		return false;
	return rest == 0 || (a[whole] ^ net[whole]) >> (8 - rest) == 0;
}

/* What carries an IPv4 address, and where. */
static const struct {
	uint8_t net[12];
	unsigned bits, at;
	bool flipped; /* Teredo hides the client's address from translators */
} carriers[] = {
	{ { [10] = 0xff, [11] = 0xff }, 96, 12, false }, /* ::ffff:0:0/96 mapped */
	{ { 0x00, 0x64, 0xff, 0x9b }, 96, 12, false },   /* 64:ff9b::/96 NAT64 */
	{ { 0x20, 0x02 }, 16, 2, false },                /* 2002::/16 6to4 */
	{ { 0x20, 0x01, 0x00, 0x00 }, 32, 4, false },    /* 2001::/32 Teredo, server */
	{ { 0x20, 0x01, 0x00, 0x00 }, 32, 12, true },    /* and client */
};
static const struct {
	uint8_t net[6];
	unsigned bits;
} v6_inner[] = {
	{ { 0x20, 0x01, 0x00 }, 23 },       /* 2001::/23 protocol assignments */
	{ { 0x20, 0x01, 0x0d, 0xb8 }, 32 }, /* 2001:db8::/32 documentation */
	{ { 0x3f, 0xff, 0x00 }, 20 },       /* 3fff::/20 documentation */
};

/* The worst of what it carries; *found: it carries something. */
static enum addr_kind kind_carried(const uint8_t *a, bool *found)
{
	enum addr_kind worst = ADDR_PUBLIC;

	for (size_t i = 0; i < LEN(carriers); i++) {
		if (!starts(a, carriers[i].net, carriers[i].bits))
			continue;
		uint32_t in = be32(a + carriers[i].at);
		enum addr_kind k = kind_v4(carriers[i].flipped ? ~in : in);
		if (k != ADDR_PUBLIC)
			worst = i == 0 ? k : ADDR_INNER; /* only a mapped one reaches loopback */
		*found = true;
	}
	return worst;
}

static enum addr_kind kind_v6(const uint8_t *a)
{
	static const uint8_t global[1] = { 0x20 };
	bool found = false;
	enum addr_kind k = kind_carried(a, &found);

	if (found)
		return k;
	if (memcmp(a, &in6addr_loopback, 16) == 0)
		return ADDR_LOOPBACK;
	if (!starts(a, global, 3))
		return ADDR_INNER;
	for (size_t i = 0; i < LEN(v6_inner); i++)
		if (starts(a, v6_inner[i].net, v6_inner[i].bits))
			return ADDR_INNER;
	return ADDR_PUBLIC;
}

/* The IPv6 form of either family, so that one comparison serves both. */
static bool as_v6(const struct sockaddr *sa, uint8_t ret[16])
{
	if (sa->sa_family == AF_INET6) {
		memcpy(ret, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
		return true;
	}
	if (sa->sa_family != AF_INET)
		return false;
	memset(ret, 0, 10);
	memset(ret + 10, 0xff, 2);
	memcpy(ret + 12, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
	return true;
}

enum addr_kind addr_kind_of(const struct sockaddr *sa)
{
	uint8_t a[16];

	return as_v6(sa, a) ? kind_v6(a) : ADDR_INNER;
}

bool addr_public(const struct sockaddr *sa)
{
	return addr_kind_of(sa) == ADDR_PUBLIC;
}

/* --- the host's own -------------------------------------------------------------------------- */

struct addr_own {
	size_t n;
	uint8_t a[][16];
};

int addr_own_load(struct addr_own **ret)
{
	struct ifaddrs *all, *i;
	struct addr_own *own;
	size_t n = 0;

	if (getifaddrs(&all) < 0)
		return -errno;
	for (i = all; i; i = i->ifa_next)
		n++;
	own = calloc(1, sizeof(*own) + n * sizeof(own->a[0]));
	for (i = all; own && i; i = i->ifa_next)
		if (i->ifa_addr && as_v6(i->ifa_addr, own->a[own->n]))
			own->n++;
	freeifaddrs(all);
	if (!own)
		return -ENOMEM;
	*ret = own;
	return 0;
}

void addr_own_free(struct addr_own *own)
{
	free(own);
}

bool addr_own_has(const struct addr_own *own, const struct sockaddr *sa)
{
	uint8_t a[16], carried[16] = { [10] = 0xff, [11] = 0xff };

	if (!as_v6(sa, a))
		return false;
	for (size_t i = 0; i < own->n; i++) {
		if (memcmp(own->a[i], a, 16) == 0)
			return true;
		for (size_t c = 1; c < LEN(carriers); c++) {
			if (!starts(a, carriers[c].net, carriers[c].bits))
				continue;
			for (int k = 0; k < 4; k++)
				carried[12 + k] = (uint8_t)(a[carriers[c].at + (unsigned)k] ^
							    (carriers[c].flipped ? 0xff : 0));
			if (memcmp(own->a[i], carried, 16) == 0)
				return true;
		}
	}
	return false;
}

bool addr_dialable(const struct sockaddr *sa)
{
	struct addr_own *own;
	bool ok;

	if (!addr_public(sa) || addr_own_load(&own) < 0)
		return false;
	ok = !addr_own_has(own, sa);
	addr_own_free(own);
	return ok;
}
