/* SPDX-License-Identifier: MIT */
/* Snapshots and their schedule over HTTP. Taking one is not bound to its client: the thread that
 * serves it goes on to the end, and only the answer is lost. */
#include "sandboxd/api/call.h"

#include "common/sys/mem.h"
#include "sandboxd/core/schedule.h"
#include "sandboxd/core/snapshots.h"

int handle_snapshot_take(struct call *c, struct err *e)
{
	_cleanup_(sandbox_unref_p) struct sandbox *s = NULL;
	json_t *snapshot = NULL;

	if (call_sandbox(c, &s, e) < 0 || snapshot_take(s, call_use(c), &snapshot, e) < 0)
		return -1;
	return reply_json(c, 201, snapshot);
}

/* Without snapshots the list is empty, not refused (29.2, row 31). */
int handle_snapshot_list(struct call *c, struct err *e)
{
	json_t *all = snapshots_json(c->core);

	(void)e;
	return reply_json(c, 200, all ? json_pack("{s:o}", "snapshots", all) : NULL);
}

int handle_snapshot_delete(struct call *c, struct err *e)
{
	return snapshot_delete(c->core, call_param(c, "id"), e) < 0 ? -1 : reply_empty(c);
}

int handle_schedule_put(struct call *c, struct err *e)
{
	_cleanup_(sandbox_unref_p) struct sandbox *s = NULL;
	struct schedule_body body = { 0 };

	if (call_decode(c, schedule_fields, &body, e) < 0 ||
		schedule_check(c->core, body.every_secs, body.keep, e) < 0 ||
		call_sandbox(c, &s, e) < 0 || schedule_set(s, &body, call_use(c), e) < 0)
		return -1;
	return reply_json(c, 200, sandbox_json(s));
}
