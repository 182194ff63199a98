/* SPDX-License-Identifier: MIT */
/* Health, capabilities and the node. */
#include "sandboxd/api/call.h"

int handle_health(struct call *c, struct err *e)
{
	(void)e;
	return reply_json(c, 200, json_pack("{s:s}", "status", "ok"));
}

int handle_capabilities(struct call *c, struct err *e)
{
	(void)e;
	return reply_json(c, 200, core_capabilities_json(c->core));
}

int handle_node_get(struct call *c, struct err *e)
{
	(void)e;
	return reply_json(c, 200, core_node_json(c->core));
}

int handle_node_cordon(struct call *c, struct err *e)
{
	struct cordon_body body = { 0 };

	if (call_decode(c, cordon_fields, &body, e) < 0)
		return -1;
	if (!body.has_cordoned)
		return err_set(e, ERR_INVALID_REQUEST, "cordoned: required, true or false");
	if (core_cordon(c->core, body.cordoned, e) < 0)
		return -1;
	return reply_json(c, 200, core_node_json(c->core));
}
