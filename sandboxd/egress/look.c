/* SPDX-License-Identifier: MIT */
/* Reads the names that a connection says, before any server has seen a byte of them. Every name has
 * to be permitted and to be the one that was asked for. Where rules are in force, what cannot be
 * understood does not pass; in mode open without any rule it passes as it is. */
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/egress/state.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

static bool raw(struct egress *g, struct conn *c)
{
	c->way = WAY_RAW;
	c->cleared = c->len;
	c->upgrade = UPGRADE_NONE;
	conn_half(g, c, false);
	return c->far_state != FAR_NONE || conn_dial(g, c);
}

static bool unclear(struct egress *g, struct conn *c, enum egress_why why)
{
	if (policy_has_rules(&g->policy)) {
		conn_refuse(g, c, why, c->said);
		return false;
	}
	c->unchecked = true;
	return raw(g, c);
}

/* Keeps what was said; false: it may not be. */
static bool said(struct egress *g, struct conn *c, const char *name)
{
	enum egress_why why = WHY_NAME;
	bool ok = policy_permits(&g->policy, name);

	if (ok && c->name && strcmp(c->name, name) != 0) {
		why = WHY_MISMATCH;
		ok = false;
	}
	if (!ok) {
		conn_refuse(g, c, why, name);
		return false;
	}
	if (!c->said || strcmp(c->said, name) != 0) {
		free(c->said);
		c->said = strdup(name);
		if (!c->said) {
			conn_close(g, c);
			return false;
		}
	}
	return true;
}

static bool look_tls(struct egress *g, struct conn *c)
{
	struct hello h;
	int r = hello_parse(c->buf, c->len, &h);

	if (r == 0 && c->len < HELLO_MAX)
		return true;
	if (r != 1 || (h.hidden && policy_has_rules(&g->policy)))
		return unclear(g, c, WHY_UNCLEAR);
	if (!h.name[0] && c->web && g->policy.mode == EGRESS_ALLOWLIST) {
		conn_refuse(g, c, WHY_UNNAMED, NULL);
		return false;
	}
	if (h.name[0] && !said(g, c, h.name))
		return false;
	c->unchecked |= h.hidden; /* what it says is not where it leads */
	return raw(g, c);
}

/* We are the proxy that was asked: the tunnel begins here, as a connection of its own. */
static bool tunnel(struct egress *g, struct conn *c, const struct http_head *head, size_t used)
{
	static const char ok[] = "HTTP/1.1 200 Connection established\r\n\r\n";

	if (c->tunnel || c->far_state != FAR_NONE || c->http.requests != 1)
		return unclear(g, c, WHY_UNCLEAR);
	if (!c->name && !(c->name = strdup(head->name))) {
		conn_close(g, c);
		return false;
	}
	if (send(c->guest.fd, ok, sizeof(ok) - 1, MSG_NOSIGNAL) != (ssize_t)sizeof(ok) - 1) {
		conn_close(g, c);
		return false;
	}
	c->tunnel = true;
	c->port = head->port;
	c->http = (struct http){ .phase = HTTP_HEAD };
	c->len -= used;
	memmove(c->buf, c->buf + used, c->len);
	return conn_begin(g, c) && (c->len == 0 || look(g, c));
}

static bool request(struct egress *g, struct conn *c, const struct http_head *head, size_t used)
{
	if (!head->name[0] && (c->name || head->connect)) {
		conn_refuse(g, c, WHY_UNNAMED, NULL);
		return false;
	}
	if (head->name[0] && !said(g, c, head->name))
		return false;
	if (head->connect)
		return tunnel(g, c, head, c->cleared + used);
	/* Which answer belongs to it is only certain for the first one. */
	if (head->upgrade && c->http.requests != 1)
		return unclear(g, c, WHY_UNCLEAR);
	c->upgrade = head->upgrade;
	c->cleared += used;
	conn_half(g, c, false);
	return c->far_state != FAR_NONE || conn_dial(g, c);
}

static bool look_http(struct egress *g, struct conn *c)
{
	while (c->way == WAY_HTTP && c->cleared < c->len) {
		struct http_head head;
		int64_t n = http_feed(&c->http, c->buf + c->cleared, c->len - c->cleared,
			c->upgrade != UPGRADE_NONE, &head);
		if (n < 0)
			return unclear(g, c, WHY_UNCLEAR);
		if (head.seen && !request(g, c, &head, (size_t)n))
			return false;
		if (!head.seen)
			c->cleared += (size_t)n;
		if (n == 0)
			break;
	}
	return true;
}

bool look(struct egress *g, struct conn *c)
{
	if (c->way == WAY_HTTP)
		return look_http(g, c);
	if (!c->half && g->nhalf >= HALF_MAX) {
		conn_refuse(g, c, WHY_MANY, NULL);
		return false;
	}
	conn_half(g, c, true);
	switch (sniff(c->buf, c->len)) {
	case SNIFF_MORE:
		return true;
	case SNIFF_TLS:
		return look_tls(g, c);
	case SNIFF_HTTP:
		c->way = WAY_HTTP;
		return look_http(g, c);
	case SNIFF_OTHER:
		return c->web ? unclear(g, c, WHY_UNCLEAR) : raw(g, c);
	}
	return false;
}

/* What could still become a request is not let through half: the other half would be unseen. */
bool look_late(struct egress *g, struct conn *c)
{
	if (!unclear(g, c, WHY_UNNAMED))
		return false;
	relay_run(g, c);
	return c->guest.fd >= 0;
}

int look_at_answer(struct egress *g, struct conn *c, const uint8_t *b, size_t n)
{
	enum upgrade asked = c->upgrade;

	if (n < 12)
		return 0;
	if (memcmp(b, "HTTP/1.", 7) != 0 || memcmp(b + 8, " 101", 4) != 0) {
		c->upgrade = UPGRADE_NONE;
		return look(g, c) ? 1 : -1; /* requests that had to wait */
	}
	if (asked == UPGRADE_WEBSOCKET)
		return raw(g, c) ? 1 : -1;
	return unclear(g, c, WHY_UNCLEAR) ? 1 : -1;
}
