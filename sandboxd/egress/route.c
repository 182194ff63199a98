/* SPDX-License-Identifier: MIT */
/* Asks the host's routing table about one address: only what is reached through a gateway or a link
 * may be dialled. The question is answered for this very moment, whatever addresses the host has.
 */
#include "sandboxd/egress/state.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

int route_open(void)
{
	const struct timeval limit = { .tv_sec = 2 };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd >= 0)
		(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return fd < 0 ? -errno : fd;
}

static int ask(int netlink, const struct sockaddr *sa, uint32_t seq)
{
	struct {
		struct nlmsghdr h;
		struct rtmsg m;
		struct rtattr a;
		uint8_t addr[16];
	} q = { .h = { .nlmsg_type = RTM_GETROUTE, .nlmsg_flags = NLM_F_REQUEST, .nlmsg_seq = seq },
		.m = { .rtm_family = (uint8_t)sa->sa_family } };
	size_t n = sa->sa_family == AF_INET ? 4 : 16;

	if (n == 4)
		memcpy(q.addr, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, n);
	else
		memcpy(q.addr, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, n);
	q.m.rtm_dst_len = (uint8_t)(n * 8);
	q.a.rta_type = RTA_DST;
	q.a.rta_len = (unsigned short)RTA_LENGTH(n);
	q.h.nlmsg_len = (uint32_t)(NLMSG_LENGTH(sizeof(q.m)) + RTA_LENGTH(n));
	return send(netlink, &q, q.h.nlmsg_len, 0) < 0 ? -errno : 0;
}

/* No answer counts as the host's own: nobody is dialled. Where no way leads, dialling says so. */
static bool no_way(const struct nlmsghdr *h, ssize_t n)
{
	if (h->nlmsg_type != NLMSG_ERROR || n < (ssize_t)NLMSG_LENGTH(sizeof(struct nlmsgerr)))
		return false;
	int r = ((const struct nlmsgerr *)NLMSG_DATA(h))->error;
	return r == -ENETUNREACH || r == -EHOSTUNREACH;
}

bool route_is_own(int netlink, const struct sockaddr *sa)
{
	static uint32_t seq;
	_Alignas(8) char b[2048];
	const struct nlmsghdr *h = (const struct nlmsghdr *)(const void *)b;

	if (ask(netlink, sa, ++seq) < 0)
		return true;
	for (;;) {
		ssize_t n = recv(netlink, b, sizeof(b), 0);
		if (n < (ssize_t)sizeof(*h))
			return true;
		if (h->nlmsg_seq != seq)
			continue; /* of a question that we gave up on */
		if (no_way(h, n))
			return false;
		if (h->nlmsg_type != RTM_NEWROUTE ||
			n < (ssize_t)NLMSG_LENGTH(sizeof(struct rtmsg)))
			return true;
		return ((const struct rtmsg *)NLMSG_DATA(h))->rtm_type != RTN_UNICAST;
	}
}
