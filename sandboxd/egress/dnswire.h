/* SPDX-License-Identifier: MIT */
/* DNS messages, in both directions: what the guest asks and gets, what a resolver is asked and
 * says. Pure functions over hostile bytes; nothing is allocated. */
#ifndef SANDBOXD_EGRESS_DNSWIRE_H
#define SANDBOXD_EGRESS_DNSWIRE_H

#include "sandboxd/proto/egress.h"

#include <stddef.h>
#include <stdint.h>

#define DNS_UDP_MAX     512 /* what we send to the guest */
#define DNS_QUERY_MAX   320 /* what we send to a resolver */
#define DNS_REPLY_MAX   4096
#define DNS_ANSWERS_MAX 15
#define DNS_ADDRS_MAX   16

enum dns_type { DNS_A = 1, DNS_CNAME_RR = 5, DNS_AAAA = 28 };
enum dns_rcode { DNS_NOERROR, DNS_FORMERR, DNS_SERVFAIL, DNS_NXDOMAIN, DNS_NOTIMP, DNS_REFUSED };

struct dns_question {
	char name[EGRESS_NAME_MAX + 1]; /* cleaned; "": not a name that anybody may reach */
	uint16_t type;
	size_t end; /* header and question, as they go into the answer */
};
/* What to answer: an enum dns_rcode, or -1: nothing at all. */
int dns_question_parse(const uint8_t *b, size_t n, struct dns_question *q);
/* Answers the query in `b`, of which q speaks; bytes written to out[DNS_UDP_MAX]. */
size_t dns_answer(const uint8_t *b, const struct dns_question *q, int rcode, const uint32_t *addrs,
	size_t naddrs, uint32_t ttl, uint8_t *out);

struct dns_addr {
	uint16_t family; /* AF_INET, AF_INET6 */
	uint8_t a[16];
};
struct dns_addrs {
	int rcode; /* or -1: no resolver answered */
	unsigned n;
	uint32_t ttl;
	struct dns_addr a[DNS_ADDRS_MAX];
};
/* Bytes written to out[DNS_QUERY_MAX]. */
size_t dns_query(uint16_t id, const char *name, uint16_t type, uint8_t *out);
enum dns_verdict {
	DNS_FOREIGN, /* not the answer to this question: keep waiting */
	DNS_DONE,    /* ret->rcode says how */
	DNS_ALIAS,   /* only a CNAME: ask again for alias */
	DNS_CUT,     /* ask again over TCP */
	DNS_BROKEN,  /* this server is of no use for it */
};
enum dns_verdict dns_reply(const uint8_t *b, size_t n, uint16_t id, const char *name, uint16_t type,
	struct dns_addrs *ret, char alias[EGRESS_NAME_MAX + 1]);

#endif
