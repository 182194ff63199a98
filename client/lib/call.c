/* SPDX-License-Identifier: MIT */
/* One request and its answer: a connection from the pool, a transport for the bytes, a verdict. */
#include "client/lib/exchange.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <string.h>

static int judge(struct exchange *x, CURLcode rc, struct sbx_error *e)
{
	if (rc == CURLE_OK && !x->header_done)
		rc = CURLE_GOT_NOTHING;
	x->r->status = x->status;
	if (x->broken && x->header_done && x->status / 100 != 2) /* enough of an error to tell */
		return sbx_fail_answer(e, x->status, NULL, 0);
	if (x->broken)
		sbx_fail_shape(e, x->broken);
	else if (x->stopped || (rc == CURLE_OK && x->status / 100 == 2))
		return 0;
	else if (rc == CURLE_OK && x->status >= 200)
		return sbx_fail_answer(e, x->status, x->body.data, x->body.len);
	else if (x->gave_up)
		sbx_fail(e, "interrupted", EINTR, "the body was not given to its end");
	else
		sbx_fail_curl(e, x->s, rc == CURLE_OK ? CURLE_WEIRD_SERVER_REPLY : rc, x->os_errno,
			x->sent);
	if (e)
		e->sent = x->sent;
	return -1;
}

/* Nothing of a request may add lines to it. */
static bool request_ok(const struct sbx_request *q)
{
	for (size_t i = 0; q->headers && q->headers[i]; i++)
		if (strpbrk(q->headers[i], "\r\n") || !strchr(q->headers[i], ':'))
			return false;
	return q->method && *q->method &&
	       !q->method[strspn(q->method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")] &&
	       !(q->body_type && strpbrk(q->body_type, "\r\n")) && sbx_path_ok(q->path);
}

int sbx_call(
	struct sbx *s, const struct sbx_request *q, struct sbx_response *ret, struct sbx_error *e)
{
	struct sbx_response r = { .first_offset = -1, .size = -1, .complete = -1 };
	struct exchange x = { .s = s, .q = q, .r = &r };
	struct conn *c;
	bool keep = false;
	CURLcode rc;
	int bad;

	if (!request_ok(q))
		return sbx_fail(e, "invalid_request", EINVAL,
			"a request needs a method, an encoded path and headers of one line each");
	c = sbx_conn_take(s);
	if (!c)
		return sbx_fail(e, "internal", ENOMEM, "out of memory");
	exchange_begin(&x);
	rc = (s->socket_path ? sbx_unix_transport : sbx_curl_transport)(&x, c, &keep);
	sbx_conn_give(s, c, keep);
	bad = judge(&x, rc, e);
	if (bad == 0 && ret) {
		r.body = x.body.data ? steal(x.body.data) : calloc(1, 1);
		r.len = x.body.len;
		if (!r.body)
			return sbx_fail(e, "internal", ENOMEM, "out of memory");
		*ret = r;
	}
	free(x.body.data);
	return bad;
}

void sbx_response_free(struct sbx_response *r)
{
	if (!r)
		return;
	free(r->body);
	*r = (struct sbx_response){ .first_offset = -1, .size = -1, .complete = -1 };
}
