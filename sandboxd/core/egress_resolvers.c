/* SPDX-License-Identifier: MIT */
/* Which servers resolve names for sandboxes. Name lookups of the egress processes ask these and no
 * others; /etc/hosts plays no part. */
#include "sandboxd/core/egress.h"

#include "common/base/log.h"
#include "common/sys/mem.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#define RESOLV_CONF "/etc/resolv.conf"
#define DNS_PORT    53

static int parse_host(const char *host, uint16_t port, struct egress_server *ret)
{
	const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_DGRAM };
	struct addrinfo *ai;

	if (getaddrinfo(host, NULL, &hints, &ai) != 0)
		return -1;
	*ret = (struct egress_server){ .family = (uint16_t)ai->ai_family, .port = port };
	if (ai->ai_family == AF_INET) {
		const struct sockaddr_in *a = (const void *)ai->ai_addr;
		memcpy(ret->addr, &a->sin_addr, 4);
	} else {
		const struct sockaddr_in6 *a = (const void *)ai->ai_addr;
		memcpy(ret->addr, &a->sin6_addr, 16);
		ret->scope = a->sin6_scope_id;
	}
	freeaddrinfo(ai);
	return 0;
}

static int parse_port(const char *s, uint16_t *ret)
{
	char *end;
	unsigned long n = strtoul(s, &end, 10);

	if (!*s || *end || n < 1 || n > 65535)
		return -1;
	*ret = (uint16_t)n;
	return 0;
}

/* ADDRESS, IPV4:PORT or [IPV6]:PORT */
static int parse_given(const char *s, struct egress_server *ret)
{
	uint16_t port = DNS_PORT;
	char host[128];
	const char *colon = strrchr(s, ':'), *close = strrchr(s, ']');
	bool bracket = s[0] == '[' && close;
	size_t n = strlen(s);

	if (bracket) {
		n = (size_t)(close - s) - 1;
		if (close[1] && (close[1] != ':' || parse_port(close + 2, &port) < 0))
			return -1;
	} else if (colon && strchr(s, ':') == colon) {
		n = (size_t)(colon - s);
		if (parse_port(colon + 1, &port) < 0)
			return -1;
	}
	if (n == 0 || n >= sizeof(host))
		return -1;
	memcpy(host, s + bracket, n);
	host[n] = '\0';
	return parse_host(host, port, ret);
}

static void read_conf(struct egress_resolvers *ret)
{
	char line[512], word[128];
	FILE *f = fopen(RESOLV_CONF, "re");

	while (f && ret->n < EGRESS_SERVERS_MAX && fgets(line, sizeof(line), f))
		if (sscanf(line, " nameserver %127s", word) == 1 &&
			parse_host(word, DNS_PORT, &ret->v[ret->n]) == 0)
			ret->n++;
	if (f)
		fclose(f);
}

int egress_resolvers_load(const struct strlist *given, struct egress_resolvers *ret, struct err *e)
{
	*ret = (struct egress_resolvers){ 0 };
	if (given->n > EGRESS_SERVERS_MAX)
		return err_set(e, ERR_INVALID_REQUEST, "--egress-resolver: at most %d",
			EGRESS_SERVERS_MAX);
	for (size_t i = 0; i < given->n; i++)
		if (parse_given(given->v[i], &ret->v[ret->n++]) < 0)
			return err_set(e, ERR_INVALID_REQUEST,
				"--egress-resolver: ADDRESS or ADDRESS:PORT is needed");
	if (!given->n)
		read_conf(ret);
	return 0;
}
