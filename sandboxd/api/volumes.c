/* SPDX-License-Identifier: MIT */
/* Volumes over HTTP. */
#include "sandboxd/api/call.h"

#include "common/sys/mem.h"
#include "sandboxd/core/volumes.h"

int handle_volume_create(struct call *c, struct err *e)
{
	struct volume_body body = { 0 };
	json_t *volume = NULL;
	int rc;

	if (call_decode(c, volume_fields, &body, e) < 0)
		return -1;
	rc = volumes_create(c->core, &body, &volume, e);
	schema_free(volume_fields, &body);
	return rc < 0 ? -1 : reply_json(c, 201, volume);
}

int handle_volume_list(struct call *c, struct err *e)
{
	json_t *all = volumes_json(c->core);

	(void)e;
	return reply_json(c, 200, all ? json_pack("{s:o}", "volumes", all) : NULL);
}

int handle_volume_delete(struct call *c, struct err *e)
{
	return volumes_delete(c->core, call_param(c, "name"), e) < 0 ? -1 : reply_empty(c);
}
