/* SPDX-License-Identifier: MIT */
/* The other way of catching, for hosts whose kernel takes no socket lookup program: three rules of
 * nftables in the namespace's output hook send the same packets to the same sockets, and connection
 * tracking remembers where they were going. Plain netlink; all rules come into force at once, and
 * those of a catcher before this one go with the same stroke. */
#include "sandboxd/priv/catch.h"

#include "common/sys/mem.h"
#include "sandboxd/proto/egress.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_nat.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#define TABLE        "sbx"
#define CHAIN        "out"
#define NAT_PRIORITY (-100)
#define DNS          53

struct batch {
	_Alignas(8) uint8_t b[8192];
	size_t n;
	struct nlmsghdr *msg;
	uint32_t seq;
};

static void *room(struct batch *q, size_t len)
{
	void *p = q->b + q->n;

	memset(p, 0, NLMSG_ALIGN(len));
	q->n += NLMSG_ALIGN(len);
	return p;
}

static void end_msg(struct batch *q)
{
	if (q->msg)
		q->msg->nlmsg_len = (uint32_t)(q->b + q->n - (uint8_t *)q->msg);
	q->msg = NULL;
}

static void msg(struct batch *q, unsigned type, unsigned flags, uint8_t family, uint16_t res)
{
	end_msg(q);
	q->msg = room(q, sizeof(*q->msg));
	q->msg->nlmsg_type = (uint16_t)type;
	q->msg->nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags);
	q->msg->nlmsg_seq = ++q->seq;
	*(struct nfgenmsg *)room(q, sizeof(struct nfgenmsg)) =
		(struct nfgenmsg){ .nfgen_family = family, .res_id = htons(res) };
}

static void nft(struct batch *q, unsigned type, unsigned flags)
{
	msg(q, NFNL_SUBSYS_NFTABLES << 8 | type, flags, NFPROTO_IPV4, 0);
}

static struct nlattr *attr(struct batch *q, uint16_t type, const void *data, size_t len)
{
	struct nlattr *a = room(q, sizeof(*a));

	a->nla_type = type;
	a->nla_len = (uint16_t)(sizeof(*a) + len);
	if (len)
		memcpy(room(q, len), data, len);
	return a;
}

static void attr_text(struct batch *q, uint16_t type, const char *text)
{
	attr(q, type, text, strlen(text) + 1);
}

static void attr_u32(struct batch *q, uint16_t type, uint32_t v)
{
	v = htonl(v);
	attr(q, type, &v, sizeof(v));
}

static struct nlattr *nest(struct batch *q, uint16_t type)
{
	return attr(q, type | NLA_F_NESTED, NULL, 0);
}

static void end_nest(const struct batch *q, struct nlattr *a)
{
	a->nla_len = (uint16_t)(q->b + q->n - (const uint8_t *)a);
}

/* --- expressions ----------------------------------------------------------------------------- */

struct expr {
	struct nlattr *elem, *data;
};

static struct expr expr(struct batch *q, const char *name)
{
	struct expr e = { .elem = nest(q, NFTA_LIST_ELEM) };

	attr_text(q, NFTA_EXPR_NAME, name);
	e.data = nest(q, NFTA_EXPR_DATA);
	return e;
}

static void end_expr(const struct batch *q, struct expr e)
{
	end_nest(q, e.data);
	end_nest(q, e.elem);
}

static void value(struct batch *q, uint16_t type, const void *v, size_t len)
{
	struct nlattr *a = nest(q, type);

	attr(q, NFTA_DATA_VALUE, v, len);
	end_nest(q, a);
}

static void compare(struct batch *q, enum nft_cmp_ops op, const void *v, size_t len)
{
	struct expr e = expr(q, "cmp");

	attr_u32(q, NFTA_CMP_SREG, NFT_REG_1);
	attr_u32(q, NFTA_CMP_OP, op);
	value(q, NFTA_CMP_DATA, v, len);
	end_expr(q, e);
}

static void protocol_is(struct batch *q, uint8_t protocol)
{
	struct expr e = expr(q, "meta");

	attr_u32(q, NFTA_META_DREG, NFT_REG_1);
	attr_u32(q, NFTA_META_KEY, NFT_META_L4PROTO);
	end_expr(q, e);
	compare(q, NFT_CMP_EQ, &protocol, sizeof(protocol));
}

static void load(struct batch *q, enum nft_payload_bases base, uint32_t offset, uint32_t len)
{
	struct expr e = expr(q, "payload");

	attr_u32(q, NFTA_PAYLOAD_DREG, NFT_REG_1);
	attr_u32(q, NFTA_PAYLOAD_BASE, base);
	attr_u32(q, NFTA_PAYLOAD_OFFSET, offset);
	attr_u32(q, NFTA_PAYLOAD_LEN, len);
	end_expr(q, e);
}

static void not_inside(struct batch *q)
{
	const uint32_t self = htonl(EGRESS_SELF_ADDR);
	const uint8_t loopback = 127;

	load(q, NFT_PAYLOAD_NETWORK_HEADER, 16, sizeof(loopback));
	compare(q, NFT_CMP_NEQ, &loopback, sizeof(loopback));
	load(q, NFT_PAYLOAD_NETWORK_HEADER, 16, sizeof(self));
	compare(q, NFT_CMP_NEQ, &self, sizeof(self));
}

static void put_in(struct batch *q, uint32_t reg, const void *v, size_t len)
{
	struct expr e = expr(q, "immediate");

	attr_u32(q, NFTA_IMMEDIATE_DREG, reg);
	value(q, NFTA_IMMEDIATE_DATA, v, len);
	end_expr(q, e);
}

static void send_to(struct batch *q, uint16_t port)
{
	const uint32_t addr = htonl(EGRESS_DNS_ADDR);
	const uint16_t at = htons(port);

	put_in(q, NFT_REG_1, &addr, sizeof(addr));
	put_in(q, NFT_REG_2, &at, sizeof(at));
	struct expr e = expr(q, "nat");
	attr_u32(q, NFTA_NAT_TYPE, NFT_NAT_DNAT);
	attr_u32(q, NFTA_NAT_FAMILY, NFPROTO_IPV4);
	attr_u32(q, NFTA_NAT_REG_ADDR_MIN, NFT_REG_1);
	attr_u32(q, NFTA_NAT_REG_PROTO_MIN, NFT_REG_2);
	end_expr(q, e);
}

/* --- the rules ------------------------------------------------------------------------------- */

static void rule(struct batch *q, uint8_t protocol, uint16_t dport, uint16_t port)
{
	const uint16_t at = htons(dport);
	struct nlattr *list;

	nft(q, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND);
	attr_text(q, NFTA_RULE_TABLE, TABLE);
	attr_text(q, NFTA_RULE_CHAIN, CHAIN);
	list = nest(q, NFTA_RULE_EXPRESSIONS);
	protocol_is(q, protocol);
	not_inside(q);
	if (dport) {
		load(q, NFT_PAYLOAD_TRANSPORT_HEADER, 2, sizeof(at));
		compare(q, NFT_CMP_EQ, &at, sizeof(at));
	}
	send_to(q, port);
	end_nest(q, list);
}

static void table(struct batch *q, unsigned type, unsigned flags)
{
	nft(q, type, flags);
	attr_text(q, NFTA_TABLE_NAME, TABLE);
}

static void chain(struct batch *q)
{
	struct nlattr *hook;

	nft(q, NFT_MSG_NEWCHAIN, NLM_F_CREATE);
	attr_text(q, NFTA_CHAIN_TABLE, TABLE);
	attr_text(q, NFTA_CHAIN_NAME, CHAIN);
	hook = nest(q, NFTA_CHAIN_HOOK);
	attr_u32(q, NFTA_HOOK_HOOKNUM, NF_INET_LOCAL_OUT);
	attr_u32(q, NFTA_HOOK_PRIORITY, (uint32_t)NAT_PRIORITY);
	end_nest(q, hook);
	attr_text(q, NFTA_CHAIN_TYPE, "nat");
}

/* The number of the message whose answer is the last. */
static uint32_t fill(struct batch *q, uint16_t port)
{
	uint32_t last;

	msg(q, NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
	table(q, NFT_MSG_NEWTABLE, NLM_F_CREATE); /* so that there is one to remove */
	table(q, NFT_MSG_DELTABLE, 0);
	table(q, NFT_MSG_NEWTABLE, NLM_F_CREATE);
	chain(q);
	rule(q, IPPROTO_TCP, DNS, DNS);
	rule(q, IPPROTO_TCP, 0, port);
	rule(q, IPPROTO_UDP, DNS, DNS);
	q->msg->nlmsg_flags |= NLM_F_ACK; /* asked for here: kernels before 6.10 confirm no end of a batch */
	last = q->seq;
	msg(q, NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
	end_msg(q);
	return last;
}

/* Errors name the message that is wrong; the last one's answer ends them. */
static int answer(int nl, uint32_t last)
{
	_Alignas(8) char b[4096];
	int result = 0;

	for (;;) {
		ssize_t n = recv(nl, b, sizeof(b), 0);
		if (n < 0)
			return result < 0 ? result : -errno;
		for (const struct nlmsghdr *h = (const void *)b; NLMSG_OK(h, (size_t)n);
			h = NLMSG_NEXT(h, n)) {
			const struct nlmsgerr *e = NLMSG_DATA(h);
			if (h->nlmsg_type != NLMSG_ERROR)
				continue;
			if (e->error < 0 && result == 0)
				result = e->error;
			if (h->nlmsg_seq == last || e->error < 0)
				return result;
		}
	}
}

int catch_redirect(uint16_t port)
{
	_cleanup_close_ int nl = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
	const struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	const struct timeval limit = { .tv_sec = 5 };
	struct batch q = { .n = 0 };
	uint32_t last;

	if (nl < 0 || setsockopt(nl, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0)
		return -errno;
	last = fill(&q, port);
	if (sendto(nl, q.b, q.n, 0, (const struct sockaddr *)&kernel, sizeof(kernel)) < 0)
		return -errno;
	return answer(nl, last);
}
