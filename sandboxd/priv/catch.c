/* SPDX-License-Identifier: MIT */
/* Routes over netlink, three sockets, and a program of the kernel's socket lookup that hands each
 * foreign connection to the listener: no packet is rewritten, so the accepted socket's own address
 * is the one that was asked for. */
#include "sandboxd/priv/catch.h"

#include "common/sys/mem.h"
#include "sandboxd/proto/egress.h"

#include <arpa/inet.h>
#include <linux/bpf.h>
#include <linux/fib_rules.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#ifndef CATCH_BY_LOOKUP /* the network tests build one that has to do without */
#define CATCH_BY_LOOKUP 1
#endif
#define SO_ORIGINAL_DST 80  /* linux/netfilter_ipv4.h, which does not go with netinet/in.h */
#define TABLE           100 /* where everything is local */
#define BACKLOG         512
#define DNS             53

/* --- routes ---------------------------------------------------------------------------------- */

struct request {
	struct nlmsghdr h;
	uint8_t room[128];
};

static void *body(struct request *q, uint16_t type, uint16_t flags, size_t len)
{
	*q = (struct request){ .h = { .nlmsg_len = (uint32_t)NLMSG_LENGTH(len),
				       .nlmsg_type = type,
				       .nlmsg_flags =
					       (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags) } };
	return NLMSG_DATA(&q->h);
}

static void attr(struct request *q, uint16_t type, const void *data, size_t len)
{
	struct rtattr *a = (struct rtattr *)(void *)((char *)q + NLMSG_ALIGN(q->h.nlmsg_len));

	a->rta_type = type;
	a->rta_len = (unsigned short)RTA_LENGTH(len);
	memcpy(RTA_DATA(a), data, len);
	q->h.nlmsg_len = (uint32_t)(NLMSG_ALIGN(q->h.nlmsg_len) + RTA_SPACE(len));
}

static int ask(int nl, struct request *q)
{
	_Alignas(8) char b[512];
	const struct nlmsghdr *h = (const struct nlmsghdr *)(const void *)b;
	ssize_t n;

	if (send(nl, q, q->h.nlmsg_len, 0) < 0)
		return -errno;
	n = recv(nl, b, sizeof(b), 0);
	if (n < (ssize_t)NLMSG_LENGTH(sizeof(struct nlmsgerr)) || h->nlmsg_type != NLMSG_ERROR)
		return n < 0 ? -errno : -EPROTO;
	int r = ((const struct nlmsgerr *)NLMSG_DATA(h))->error;
	return r == -EEXIST ? 0 : r; /* left by a catcher before this one */
}

static int add_address(int nl, unsigned int lo)
{
	const uint32_t self = htonl(EGRESS_SELF_ADDR);
	struct request q;
	struct ifaddrmsg *m = body(&q, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sizeof(*m));

	*m = (struct ifaddrmsg){ .ifa_family = AF_INET,
		.ifa_prefixlen = 32,
		.ifa_index = lo,
		.ifa_scope = RT_SCOPE_HOST };
	attr(&q, IFA_LOCAL, &self, sizeof(self));
	return ask(nl, &q);
}

static int add_route(int nl, unsigned int lo)
{
	const uint32_t self = htonl(EGRESS_SELF_ADDR), table = TABLE;
	struct request q;
	struct rtmsg *m = body(&q, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sizeof(*m));

	*m = (struct rtmsg){ .rtm_family = AF_INET,
		.rtm_table = TABLE,
		.rtm_type = RTN_LOCAL,
		.rtm_protocol = RTPROT_STATIC,
		.rtm_scope = RT_SCOPE_HOST };
	attr(&q, RTA_OIF, &lo, sizeof(lo));
	attr(&q, RTA_PREFSRC, &self, sizeof(self));
	attr(&q, RTA_TABLE, &table, sizeof(table));
	return ask(nl, &q);
}

static int add_rule(int nl, uint32_t priority, uint8_t protocol, uint16_t port)
{
	const struct fib_rule_port_range range = { port, port };
	struct request q;
	struct fib_rule_hdr *m = body(&q, RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, sizeof(*m));

	*m = (struct fib_rule_hdr){ .family = AF_INET, .table = TABLE, .action = FR_ACT_TO_TBL };
	attr(&q, FRA_PRIORITY, &priority, sizeof(priority));
	attr(&q, FRA_IP_PROTO, &protocol, sizeof(protocol));
	if (port)
		attr(&q, FRA_DPORT_RANGE, &range, sizeof(range));
	return ask(nl, &q);
}

static int add_routes(void)
{
	_cleanup_close_ int nl = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	unsigned int lo = if_nametoindex("lo");
	int r;

	if (nl < 0 || !lo)
		return -errno;
	if ((r = add_address(nl, lo)) < 0 || (r = add_route(nl, lo)) < 0 ||
		(r = add_rule(nl, 100, IPPROTO_TCP, 0)) < 0)
		return r;
	return add_rule(nl, 101, IPPROTO_UDP, DNS);
}

/* --- sockets --------------------------------------------------------------------------------- */

static int open_socket(int type, uint16_t port, int *ret)
{
	const struct sockaddr_in a = { .sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(EGRESS_DNS_ADDR) };
	const int one = 1;
	int fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	*ret = fd;
	/* Answers come from whatever address was asked. */
	if (fd < 0 || setsockopt(fd, IPPROTO_IP, IP_TRANSPARENT, &one, sizeof(one)) < 0 ||
		(type == SOCK_DGRAM &&
			setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &one, sizeof(one)) < 0) ||
		bind(fd, (const struct sockaddr *)&a, sizeof(a)) < 0 ||
		(type == SOCK_STREAM && listen(fd, BACKLOG) < 0))
		return -errno;
	return 0;
}

/* --- the lookup program ---------------------------------------------------------------------- */

enum slot { SLOT_TCP, SLOT_DNS_TCP, SLOT_DNS_UDP, SLOTS };

static int sys_bpf(int cmd, union bpf_attr *a)
{
	int r = (int)syscall(SYS_bpf, cmd, a, sizeof(*a));

	return r < 0 ? -errno : r;
}

static int make_map(const struct catcher *c)
{
	const int fds[SLOTS] = {
		[SLOT_TCP] = c->tcp, [SLOT_DNS_TCP] = c->dns_tcp, [SLOT_DNS_UDP] = c->dns_udp
	};
	union bpf_attr make = { .map_type = BPF_MAP_TYPE_SOCKMAP,
		.key_size = 4,
		.value_size = 8,
		.max_entries = SLOTS };
	int map = sys_bpf(BPF_MAP_CREATE, &make);

	for (uint32_t i = 0; i < SLOTS && map >= 0; i++) {
		uint64_t fd = (uint64_t)fds[i];
		union bpf_attr set = {
			.map_fd = (uint32_t)map, .key = (uintptr_t)&i, .value = (uintptr_t)&fd
		};
		int r = sys_bpf(BPF_MAP_UPDATE_ELEM, &set);
		if (r < 0) {
			close(map);
			return r;
		}
	}
	return map;
}

#define OP(c, d, s, o, i)                                                                          \
	{                                                                                          \
		.code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i)                \
	}
#define LOAD(reg, field)                                                                           \
	OP(BPF_LDX | BPF_MEM | BPF_W, reg, 6, offsetof(struct bpf_sk_lookup, field), 0)
#define MOVE(to, from)        OP(BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0)
#define SET(reg, value)       OP(BPF_ALU64 | BPF_MOV | BPF_K, reg, 0, 0, value)
#define IF_EQ(reg, value, by) OP(BPF_JMP32 | BPF_JEQ | BPF_K, reg, 0, by, (int32_t)(value))
#define IF_NE(reg, value, by) OP(BPF_JMP32 | BPF_JNE | BPF_K, reg, 0, by, (int32_t)(value))
#define CALL(helper)          OP(BPF_JMP | BPF_CALL, 0, 0, 0, helper)
#define EXIT                  OP(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)

/* What stays inside is left to the ordinary lookup. With the listener gone, connections are
 * dropped. */
static int load_program(int map)
{
	/* clang-format off */
	const struct bpf_insn p[] = {
		MOVE(6, 1),
		LOAD(2, family),
		IF_NE(2, AF_INET, 28),                  /* only ::1 exists */
		LOAD(2, local_ip4),
		OP(BPF_ALU | BPF_END | BPF_TO_BE, 2, 0, 0, 32),
		IF_EQ(2, EGRESS_SELF_ADDR, 25),
		OP(BPF_ALU | BPF_RSH | BPF_K, 2, 0, 0, 24),
		IF_EQ(2, 127, 23),
		LOAD(3, local_port),
		LOAD(4, protocol),
		SET(5, SLOT_TCP),
		IF_NE(3, DNS, 3),
		SET(5, SLOT_DNS_TCP),
		IF_EQ(4, IPPROTO_TCP, 3),
		SET(5, SLOT_DNS_UDP),
		IF_EQ(3, DNS, 1),
		IF_NE(4, IPPROTO_TCP, 14),              /* to itself, if anywhere */
		OP(BPF_STX | BPF_MEM | BPF_W, 10, 5, -4, 0),
		OP(BPF_LD | BPF_DW | BPF_IMM, 1, BPF_PSEUDO_MAP_FD, 0, map), OP(0, 0, 0, 0, 0),
		MOVE(2, 10),
		OP(BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -4),
		CALL(BPF_FUNC_map_lookup_elem),
		OP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 9, 0),
		MOVE(7, 0),
		MOVE(1, 6),
		MOVE(2, 7),
		SET(3, 0),
		CALL(BPF_FUNC_sk_assign),
		MOVE(1, 7),
		CALL(BPF_FUNC_sk_release),
		SET(0, SK_PASS),
		EXIT,
		SET(0, SK_DROP),
		EXIT,
	};
	/* clang-format on */
	union bpf_attr load = { .prog_type = BPF_PROG_TYPE_SK_LOOKUP,
		.expected_attach_type = BPF_SK_LOOKUP,
		.insns = (uintptr_t)p,
		.insn_cnt = ARRAY_LEN(p),
		.license = (uintptr_t) "Dual MIT/GPL" };

	return sys_bpf(BPF_PROG_LOAD, &load);
}

static int attach_program(struct catcher *c)
{
	_cleanup_close_ int net = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	_cleanup_close_ int map = make_map(c);
	_cleanup_close_ int prog = map < 0 ? map : load_program(map);
	union bpf_attr link = { .link_create = { .prog_fd = (uint32_t)prog,
					.target_fd = (uint32_t)net,
					.attach_type = BPF_SK_LOOKUP } };

	if (net < 0 || prog < 0)
		return net < 0 ? -errno : prog;
	c->link = sys_bpf(BPF_LINK_CREATE, &link);
	return c->link < 0 ? c->link : 0;
}

static int attach(struct catcher *c)
{
	struct sockaddr_in a;
	socklen_t n = sizeof(a);
	int r = CATCH_BY_LOOKUP ? attach_program(c) : -EOPNOTSUPP;

	if (r == 0)
		return 0;
	if (getsockname(c->tcp, (struct sockaddr *)&a, &n) < 0)
		return -errno;
	return catch_redirect(ntohs(a.sin_port));
}

int catch_open(struct catcher *c, struct fail *f)
{
	int r;

	*c = (struct catcher)CATCHER_NULL;
	/* The sockets first: they say whether somebody else does this already. */
	if ((r = open_socket(SOCK_DGRAM, DNS, &c->dns_udp)) < 0 ||
		(r = open_socket(SOCK_STREAM, DNS, &c->dns_tcp)) < 0 ||
		(r = open_socket(SOCK_STREAM, 0, &c->tcp)) < 0)
		fail_set(f, r, "open the sandbox's network sockets");
	else if ((r = add_routes()) < 0)
		fail_set(f, r, "make the sandbox's routes");
	else if ((r = attach(c)) < 0)
		fail_set(f, r, "attach a socket lookup program or a redirect");
	if (r < 0)
		catch_close(c);
	return r;
}

int catch_test(const struct catcher *c, struct fail *f)
{
	const struct sockaddr_in far = {
		.sin_family = AF_INET, .sin_port = htons(81), .sin_addr.s_addr = htonl(0x08080404)
	};
	_cleanup_close_ int from = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct pollfd p = { .fd = c->tcp, .events = POLLIN };
	struct sockaddr_in got;
	socklen_t n = sizeof(got);

	if (from < 0 || (connect(from, (const struct sockaddr *)&far, sizeof(far)) < 0 &&
				errno != EINPROGRESS))
		return fail_set(f, errno, "connect through the socket lookup program");
	if (poll(&p, 1, 1000) != 1)
		return fail_set(f, ETIMEDOUT, "catch a connection");
	_cleanup_close_ int to = accept4(c->tcp, NULL, NULL, SOCK_CLOEXEC);
	if (to < 0 ||
		(c->link >= 0 ? getsockname(to, (struct sockaddr *)&got, &n)
			      : getsockopt(to, SOL_IP, SO_ORIGINAL_DST, &got, &n)) < 0 ||
		got.sin_addr.s_addr != far.sin_addr.s_addr || got.sin_port != far.sin_port)
		return fail_set(f, EPROTO, "tell where a caught connection goes");
	return 0;
}

void catch_close(struct catcher *c)
{
	close_p(&c->tcp);
	close_p(&c->dns_tcp);
	close_p(&c->dns_udp);
	close_p(&c->link);
	*c = (struct catcher)CATCHER_NULL;
}
