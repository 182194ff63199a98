/* SPDX-License-Identifier: MIT */
#include "sandboxd/egress/dnswire.h"

#include "sandboxd/egress/policy.h"

#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#define HEADER    12
#define CLASS_IN  1
#define FLAG_QR   0x8000u
#define FLAG_TC   0x0200u
#define FLAG_RD   0x0100u
#define FLAG_RA   0x0080u
#define OPCODE    0x7800u
#define RCODE     0x000fu
#define ALIASES   16 /* in one answer */
#define RECORDS   128
#define TYPE_OPT  41
#define EDNS_SIZE 1232

static unsigned get16(const uint8_t *p)
{
	return (unsigned)p[0] << 8 | p[1];
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)get16(p) << 16 | get16(p + 2);
}

static uint8_t *put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
	return p + 2;
}

static uint8_t *put32(uint8_t *p, uint32_t v)
{
	return put16(put16(p, v >> 16), v & 0xffff);
}

/* Reads a name at `at`, following pointers backwards only. to[256] gets its text with dots; a label
 * with anything odd in it makes *odd true. Where the name ends at its first place, or 0: malformed.
 */
static size_t read_name(const uint8_t *b, size_t n, size_t at, bool pointers, char *to, bool *odd)
{
	size_t end = 0, len = 0, low = at;

	*odd = false;
	while (at < n) {
		unsigned k = b[at];
		if (k == 0) {
			to[len ? len - 1 : 0] = 0;
			return end ? end : at + 1;
		}
		if (k >= 0xc0) {
			if (!pointers || at + 1 >= n)
				return 0;
			size_t to_at = get16(b + at) & 0x3fff;
			if (!end)
				end = at + 2;
			if (to_at >= low)
				return 0;
			at = low = to_at;
			continue;
		}
		if (k > 63 || at + 1 + k > n || len + k + 1 > 254)
			return 0;
		for (unsigned i = 0; i < k; i++) {
			char c = (char)b[at + 1 + i];
			if (c == '.' || c == 0)
				*odd = true;
			to[len++] = c;
		}
		to[len++] = '.';
		at += 1 + k;
	}
	return 0;
}

/* As above, cleaned: "" when it is no name of a host. */
static size_t clean_at(const uint8_t *b, size_t n, size_t at, bool pointers, char *to)
{
	char raw[256];
	bool odd;
	size_t end = read_name(b, n, at, pointers, raw, &odd);

	if (end && (odd || name_clean(raw, strlen(raw), to) < 0))
		to[0] = 0;
	return end;
}

/* --- the guest's side ------------------------------------------------------------------------ */

int dns_question_parse(const uint8_t *b, size_t n, struct dns_question *q)
{
	unsigned flags;

	*q = (struct dns_question){ .end = HEADER };
	if (n < HEADER)
		return -1;
	flags = get16(b + 2);
	if (flags & FLAG_QR)
		return -1;
	if (flags & OPCODE)
		return DNS_NOTIMP;
	if (get16(b + 4) != 1)
		return DNS_FORMERR;
	size_t end = clean_at(b, n, HEADER, false, q->name);
	if (!end || end + 4 > n)
		return DNS_FORMERR;
	q->type = (uint16_t)get16(b + end);
	q->end = end + 4;
	if (get16(b + end + 2) != CLASS_IN)
		return DNS_REFUSED;
	return DNS_NOERROR;
}

size_t dns_answer(const uint8_t *b, const struct dns_question *q, int rcode, const uint32_t *addrs,
	size_t naddrs, uint32_t ttl, uint8_t *out)
{
	uint8_t *p = out + q->end;

	if (naddrs > DNS_ANSWERS_MAX)
		naddrs = DNS_ANSWERS_MAX;
	memcpy(out, b, q->end);
	put16(out + 2, FLAG_QR | (get16(b + 2) & (OPCODE | FLAG_RD)) | FLAG_RA | (unsigned)rcode);
	put16(out + 4, q->end > HEADER);
	put16(out + 6, (unsigned)naddrs);
	put32(out + 8, 0);
	for (size_t i = 0; i < naddrs; i++) {
		p = put16(p, 0xc000 | HEADER);
		p = put16(p, DNS_A);
		p = put16(p, CLASS_IN);
		p = put32(p, ttl);
		p = put16(p, 4);
		p = put32(p, addrs[i]);
	}
	return (size_t)(p - out);
}

/* --- the resolver's side --------------------------------------------------------------------- */

size_t dns_query(uint16_t id, const char *name, uint16_t type, uint8_t *out)
{
	uint8_t *p = out;

	p = put16(p, id);
	p = put16(p, FLAG_RD);
	p = put32(p, 1u << 16);
	p = put32(p, 1); /* the additional record below */
	while (*name) {
		size_t k = strcspn(name, ".");
		*p++ = (uint8_t)k;
		memcpy(p, name, k);
		p += k;
		name += k + (name[k] == '.');
	}
	*p++ = 0;
	p = put16(p, type);
	p = put16(p, CLASS_IN);
	*p++ = 0;
	p = put16(p, TYPE_OPT);
	p = put16(p, EDNS_SIZE);
	p = put32(p, 0);
	p = put16(p, 0);
	return (size_t)(p - out);
}

struct record {
	char owner[EGRESS_NAME_MAX + 1];
	unsigned type;
	uint32_t ttl;
	size_t data, len;
};

/* Where the next record begins, or 0. */
static size_t read_record(const uint8_t *b, size_t n, size_t at, struct record *r)
{
	size_t end = clean_at(b, n, at, true, r->owner);

	if (!end || end + 10 > n)
		return 0;
	r->type = get16(b + end);
	if (get16(b + end + 2) != CLASS_IN)
		r->type = 0;
	r->ttl = get32(b + end + 4);
	r->len = get16(b + end + 8);
	r->data = end + 10;
	return r->data + r->len > n ? 0 : r->data + r->len;
}

static void take_addr(const uint8_t *b, const struct record *r, struct dns_addrs *ret)
{
	struct dns_addr *a = &ret->a[ret->n];

	if (ret->n >= DNS_ADDRS_MAX || r->len != (r->type == DNS_A ? 4u : 16u))
		return;
	a->family = r->type == DNS_A ? AF_INET : AF_INET6;
	memcpy(a->a, b + r->data, r->len);
	if (r->ttl < ret->ttl)
		ret->ttl = r->ttl;
	ret->n++;
}

/* One walk over the answers for what `name` is: its addresses, or where it points. 1: points on. */
static int walk(const uint8_t *b, size_t n, size_t at, unsigned count, unsigned type, char *name,
	struct dns_addrs *ret)
{
	char target[EGRESS_NAME_MAX + 1] = "";
	struct record r;

	for (unsigned i = 0; i < count; i++) {
		at = read_record(b, n, at, &r);
		if (!at)
			return -1;
		if (!r.owner[0] || strcmp(r.owner, name) != 0)
			continue;
		if (r.type == type)
			take_addr(b, &r, ret);
		else if (r.type == DNS_CNAME_RR && !target[0] &&
			 (clean_at(b, r.data + r.len, r.data, true, target) == 0 || !target[0]))
			return -1;
	}
	if (ret->n || !target[0])
		return 0;
	memcpy(name, target, sizeof(target));
	return 1;
}

static size_t same_question(const uint8_t *b, size_t n, const char *name, unsigned type)
{
	char asked[EGRESS_NAME_MAX + 1];
	size_t end = clean_at(b, n, HEADER, false, asked);

	if (!end || end + 4 > n || strcmp(asked, name) != 0 || get16(b + end) != type ||
		get16(b + end + 2) != CLASS_IN)
		return 0;
	return end + 4;
}

enum dns_verdict dns_reply(const uint8_t *b, size_t n, uint16_t id, const char *name, uint16_t type,
	struct dns_addrs *ret, char alias[EGRESS_NAME_MAX + 1])
{
	unsigned flags, count, hops = 0;
	size_t at;
	int r;

	*ret = (struct dns_addrs){ .ttl = UINT32_MAX };
	if (n < HEADER || get16(b) != id || get16(b + 4) != 1)
		return DNS_FOREIGN;
	flags = get16(b + 2);
	at = same_question(b, n, name, type);
	if (!(flags & FLAG_QR) || (flags & OPCODE) || !at)
		return DNS_FOREIGN;
	if (flags & FLAG_TC)
		return DNS_CUT;
	ret->rcode = (int)(flags & RCODE);
	if (ret->rcode == DNS_NXDOMAIN)
		return DNS_DONE;
	count = get16(b + 6);
	if (ret->rcode != DNS_NOERROR || count > RECORDS)
		return DNS_BROKEN;
	memcpy(alias, name, strlen(name) + 1);
	while ((r = walk(b, n, at, count, type, alias, ret)) > 0)
		if (++hops > ALIASES)
			return DNS_BROKEN;
	if (r < 0)
		return DNS_BROKEN;
	return hops && !ret->n ? DNS_ALIAS : DNS_DONE;
}
