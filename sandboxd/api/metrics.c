/* SPDX-License-Identifier: MIT */
/* Usage of the last hour. last=N (an addition): only the newest N samples. */
#include "sandboxd/api/call.h"

#include "common/sys/mem.h"
#include "sandboxd/core/metrics.h"

#include <stdlib.h>
#include <string.h>

/* 0: all. */
static int query_last(struct call *c, uint64_t *ret, struct err *e)
{
	const char *v;
	size_t len;

	*ret = 0;
	if (call_query(c, "last", &v, &len, e) < 0)
		return -1;
	if (!v)
		return 0;
	if (!len || len > 6 || strspn(v, "0123456789") != len || !(*ret = strtoull(v, NULL, 10)))
		return err_set(e, ERR_INVALID_REQUEST, "last: a whole number above 0 is needed");
	return 0;
}

int handle_metrics_get(struct call *c, struct err *e)
{
	_cleanup_(sandbox_unref_p) struct sandbox *s = NULL;
	_cleanup_free_ char *text = NULL;
	uint64_t last;

	if (query_last(c, &last, e) < 0 || call_sandbox(c, &s, e) < 0)
		return -1;
	text = metrics_text(s, last);
	if (!text)
		return reply_json(c, 200, NULL);
	http_reply(c->req, 200, "application/json", text, strlen(text));
	return 0;
}
