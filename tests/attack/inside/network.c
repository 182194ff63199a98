/* SPDX-License-Identifier: MIT */
/* A sandbox's network is one loopback interface that belongs to the host's root. */
#include "tests/attack/inside/inside.h"

#include <arpa/inet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif
#ifndef SO_RCVBUFFORCE
#define SO_RCVBUFFORCE 33
#endif

/* --- sockets that must not come to be --------------------------------------------------------- */

static void try_families(void)
{
	static const int types[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_RDM, SOCK_SEQPACKET,
		SOCK_DCCP };
	char some[128] = "";

	for (int f = 0; f < 64; f++)
		for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
			int s = socket(f, types[t], 0);
			size_t n = strlen(some);
			if (s < 0)
				continue;
			close(s);
			if (f != AF_UNIX && f != AF_INET && f != AF_INET6 && f != AF_NETLINK &&
				n < 100)
				snprintf(some + n, sizeof(some) - n, "%s%d", n ? "," : "", f);
		}
	say("other-families", some[0] ? some : "none");
}

/* Each would have the host load a module, or is another way past what looks at TCP. */
static void try_protocols(void)
{
	static const struct {
		const char *name;
		int family, type, protocol;
	} list[] = {
		{ "sctp", AF_INET, SOCK_STREAM, 132 },
		{ "sctp-many", AF_INET, SOCK_SEQPACKET, 132 },
		{ "sctp-six", AF_INET6, SOCK_STREAM, 132 },
		{ "dccp", AF_INET, SOCK_DCCP, 33 },
		{ "mptcp", AF_INET, SOCK_STREAM, IPPROTO_MPTCP },
		{ "mptcp-six", AF_INET6, SOCK_STREAM, IPPROTO_MPTCP },
		{ "udplite", AF_INET, SOCK_DGRAM, 136 },
		{ "l2tp", AF_INET, SOCK_DGRAM, 115 },
		{ "smc", AF_INET, SOCK_STREAM, 256 },
		{ "raw-six", AF_INET6, SOCK_RAW, 58 },
		{ "raw-any", AF_INET, SOCK_RAW, 255 },
		{ "ping", AF_INET, SOCK_DGRAM, IPPROTO_ICMP },
		{ "tcp-by-number", AF_INET, SOCK_STREAM, IPPROTO_TCP },
		{ "udp-by-number", AF_INET6, SOCK_DGRAM, IPPROTO_UDP },
	};

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		int s = socket(list[i].family, list[i].type, list[i].protocol);
		result(list[i].name, s);
		if (s >= 0)
			close(s);
	}
	char some[64] = "";
	for (int p = 1; p < 32; p++) {
		int s = socket(AF_NETLINK, SOCK_RAW, p);
		size_t n = strlen(some);
		if (s >= 0 && n < 50)
			snprintf(some + n, sizeof(some) - n, "%s%d", n ? "," : "", p);
		if (s >= 0)
			close(s);
	}
	say("other-netlinks", some[0] ? some : "none");
}

/* --- changes to the network --------------------------------------------------------------------
 */

static long ask_kernel(int s, int type)
{
	struct {
		struct nlmsghdr h;
		char body[64];
	} q = { .h = { .nlmsg_len = sizeof(q),
			.nlmsg_type = (unsigned short)type,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE } };
	struct {
		struct nlmsghdr h;
		struct nlmsgerr e;
		char more[512];
	} a = { 0 };

	q.body[4] = 1; /* where most have the interface's number */
	if (send(s, &q, sizeof(q), 0) < 0 || recv(s, &a, sizeof(a), 0) < 0)
		return -1;
	if (a.h.nlmsg_type != NLMSG_ERROR || a.e.error == 0)
		return 0;
	errno = -a.e.error;
	return -1;
}

static void try_netlink(void)
{
	static const struct {
		const char *name;
		int type;
	} list[] = { { "new-interface", RTM_NEWLINK }, { "delete-interface", RTM_DELLINK },
		{ "new-address", RTM_NEWADDR }, { "delete-address", RTM_DELADDR },
		{ "new-route", RTM_NEWROUTE }, { "delete-route", RTM_DELROUTE },
		{ "new-rule", RTM_NEWRULE }, { "new-neighbour", RTM_NEWNEIGH },
		{ "new-queue", RTM_NEWQDISC }, { "new-filter", RTM_NEWTFILTER },
		{ "new-netns-id", RTM_NEWNSID } };
	int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		result(list[i].name, ask_kernel(s, list[i].type));
	close(s);
}

static void try_options(void)
{
	static const struct {
		const char *name;
		int level, option;
	} list[] = { { "packet-mark", SOL_SOCKET, SO_MARK }, { "repair", IPPROTO_TCP, TCP_REPAIR },
		{ "transparent", IPPROTO_IP, 19 },
		{ "buffer-by-force", SOL_SOCKET, SO_RCVBUFFORCE },
		{ "socket-debug", SOL_SOCKET, SO_DEBUG } };
	int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	char b[256];
	socklen_t n = sizeof(b);

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		result(list[i].name,
			setsockopt(s, list[i].level, list[i].option, &one, sizeof(one)));
	result("packet-filter", getsockopt(s, IPPROTO_IP, 64, b, &n));
	result("congestion-module", setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "hybla", 5));
	result("protocol-module", setsockopt(s, IPPROTO_TCP, 31, "tls", 3));
	close(s);
}

/* --- what leads out -----------------------------------------------------------------------------
 */

static void send_to(const char *name, const char *addr, int broadcast)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(5353) };
	int s = socket(AF_INET, SOCK_DGRAM, 0);

	inet_pton(AF_INET, addr, &a.sin_addr);
	(void)setsockopt(s, SOL_SOCKET, SO_BROADCAST, &broadcast, sizeof(broadcast));
	result(name, sendto(s, "x", 1, 0, (struct sockaddr *)&a, sizeof(a)));
	close(s);
}

static void try_six(const char *name, const char *addr, int type)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons(443) };
	int s = socket(AF_INET6, type, 0);

	inet_pton(AF_INET6, addr, &a.sin6_addr);
	result(name, connect(s, (struct sockaddr *)&a, sizeof(a)));
	close(s);
}

void try_network(void)
{
	struct if_nameindex *all = if_nameindex();
	bool only = all && all[0].if_index && strcmp(all[0].if_name, "lo") == 0 && !all[1].if_index;

	say("interfaces", only ? "lo" : "more");
	try_families();
	try_protocols();
	try_netlink();
	try_options();
	send_to("broadcast", "255.255.255.255", 1);
	send_to("multicast", "224.0.0.251", 0);
	send_to("carrier-grade", "100.64.1.1", 0);
	try_six("six-public", "2606:4700::1111", SOCK_STREAM);
	try_six("six-public-udp", "2606:4700::1111", SOCK_DGRAM);
	try_six("six-link-local", "fe80::1", SOCK_DGRAM);
	try_six("six-unique-local", "fd00::1", SOCK_STREAM);
	try_six("six-mapped", "::ffff:169.254.169.254", SOCK_STREAM);
	try_six("six-nat", "64:ff9b::a9fe:a9fe", SOCK_STREAM);
}
