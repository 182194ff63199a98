/* SPDX-License-Identifier: MIT */
/* Endpoints of the contract whose capability this server does not have. The frame refuses most of
 * them before their body is read; those whose body comes first decode it here. */
#include "sandboxd/api/call.h"

#include "common/sys/mem.h"

static int absent(const struct call *c, struct err *e)
{
	return err_set(e, ERR_UNSUPPORTED, "this server lacks the capability %s",
		cap_word(c->match.route->cap));
}

#define ABSENT(name)                                                                               \
	int handle_##name(struct call *c, struct err *e)                                           \
	{                                                                                          \
		return absent(c, e);                                                               \
	}
ABSENT(snapshot_take)
ABSENT(snapshot_delete)
ABSENT(volume_list)
ABSENT(volume_delete)
ABSENT(image_list)
ABSENT(image_install)
ABSENT(image_remove)

int handle_schedule_put(struct call *c, struct err *e)
{
	_cleanup_(sandbox_unref_p) struct sandbox *s = NULL;
	struct schedule_body body = { 0 };

	if (call_decode(c, schedule_fields, &body, e) < 0 || call_sandbox(c, &s, e) < 0)
		return -1;
	return absent(c, e);
}

int handle_volume_create(struct call *c, struct err *e)
{
	struct volume_body body = { 0 };

	if (call_decode(c, volume_fields, &body, e) < 0)
		return -1;
	schema_free(volume_fields, &body);
	return absent(c, e);
}

/* Without snapshots the list is empty, not refused (29.2, row 31). */
int handle_snapshot_list(struct call *c, struct err *e)
{
	(void)e;
	return reply_json(c, 200, json_pack("{s:[]}", "snapshots"));
}
