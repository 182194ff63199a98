/* SPDX-License-Identifier: MIT */
/* Tunnels, node contract section 14: bytes between the client and a port of the guest's loopback.
 * The end of one direction is passed on as a half-close; the tunnel is over when both have ended,
 * or when the sandbox ends or is put to sleep. */
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/api/call.h"
#include "sandboxd/api/upgrade.h"
#include "sandboxd/core/audit.h"

#include <stdlib.h>

#define PROTOCOL "sbx-tunnel/1"
struct tunnel {
	struct sandbox *s; /* referenced and entered: an open tunnel is use */
	bool use;
	struct sandbox_tunnel ends;
};

static void tunnel_run(void *arg, int fd, const void *extra, size_t extra_len)
{
	struct tunnel *t = arg;

	t->ends.client_fd = fd;
	sandbox_tunnel_open(t->s, &t->ends);
	if (fd >= 0)
		upgrade_pump(t->s->core, fd, t->ends.guest_fd, extra, extra_len);
	sandbox_tunnel_close(t->s, &t->ends);
	close_p(&t->ends.guest_fd);
	sandbox_leave(t->s, t->use);
	sandbox_unref(t->s);
	free(t);
}

static int parse_port(struct call *c, uint16_t *ret, struct err *e)
{
	const char *text;
	size_t len;
	long n = 0;

	if (call_query(c, "port", &text, &len, e) < 0)
		return -1;
	for (size_t i = 0; text && i < len && n >= 0 && n <= 65535; i++)
		n = text[i] >= '0' && text[i] <= '9' ? n * 10 + (text[i] - '0') : -1;
	if (n < 1 || n > 65535)
		return err_set(e, ERR_INVALID_REQUEST, "port must be a number from 1 to 65535");
	*ret = (uint16_t)n;
	return 0;
}

int handle_tunnel_open(struct call *c, struct err *e)
{
	_cleanup_(sandbox_unref_p) struct sandbox *s = NULL;
	struct tunnel *t;
	uint16_t port = 0;
	int fd;

	if (upgrade_check(c, PROTOCOL, e) < 0 || parse_port(c, &port, e) < 0 ||
		call_sandbox(c, &s, e) < 0 || sandbox_enter(s, call_use(c), e) < 0)
		return -1;
	t = malloc(sizeof(*t));
	if (!t || guest_dial(s->guest, port, &fd, e) < 0) {
		sandbox_leave(s, call_use(c));
		if (!t)
			err_oom(e);
		free(t);
		return -1;
	}
	audit_event(
		core_audit(c->core), "tunnel.opened", s->id, json_pack("{s:i}", "port", (int)port));
	*t = (struct tunnel){ .use = call_use(c), .ends.guest_fd = fd, .s = steal(s) };
	http_upgrade(c->req, PROTOCOL, tunnel_run, t);
	return 0;
}
