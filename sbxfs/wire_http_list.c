/* SPDX-License-Identifier: MIT */
/* Listings the plain way: one object a line, each taken as it comes. */
#include "sbxfs/wire_http.h"

#include "common/base/err.h"
#include "common/json/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES (64u * 1024)

struct list_sink {
	struct req *q;
	struct text line;
	wire_entry *each;
	void *arg;
	int rc;
	bool ended;
};

static int list_entry(struct list_sink *s, const char *name, const json_t *o)
{
	_cleanup_attr_ struct tree_attr a = { .target = NULL };
	int rc = tree_attr_of(s->q, o, &a);

	return rc == 0 ? s->each(s->arg, name, &a) : rc;
}

static void list_line(struct list_sink *s)
{
	struct err e = ERR_NULL;
	json_t *o;
	char *name;

	if (json_parse_any(s->line.p ? s->line.p : "", s->line.len, LINE_MAX_BYTES, &o, &e) < 0) {
		s->rc = refuse(s->q, EPROTO, "the server's listing cannot be read: %s", e.msg);
		return;
	}
	if (json_is_true(json_object_get(o, "end"))) {
		s->ended = true;
	} else if (json_object_get(o, "error")) {
		s->rc = http_op_error(s->q, json_object_get(o, "error"));
	} else {
		name = wire_bytes(o, "name");
		/* One bad name would fail the whole directory. */
		if (name && file_name_ok(name))
			s->rc = list_entry(s, name, o);
		else
			atomic_fetch_add(&s->q->m->stats.bad_names, 1);
		free(name);
	}
	json_decref(o);
}

static bool list_data(void *arg, const void *buf, size_t len)
{
	struct list_sink *s = arg;
	const char *p = buf, *end = p + len, *nl;

	while (s->rc == 0 && (nl = memchr(p, '\n', (size_t)(end - p)))) {
		txt_add(&s->line, p, (size_t)(nl - p));
		list_line(s);
		s->line.len = 0;
		p = nl + 1;
	}
	if (s->rc == 0 && s->line.len + (size_t)(end - p) > LINE_MAX_BYTES)
		s->rc = refuse(s->q, EPROTO, "a line of the server's listing is too long");
	if (s->rc == 0)
		txt_add(&s->line, p, (size_t)(end - p));
	return s->rc == 0 && !s->line.failed;
}

int http_list(struct req *q, const char *box, const char *path, wire_entry *each, void *arg,
	struct tree_stamp *ret_stamp)
{
	struct list_sink s = { .q = q, .each = each, .arg = arg };
	struct sbx_request r = { .on_data = list_data, .arg = &s };
	_cleanup_response_ struct sbx_response resp = { 0 };
	int rc = remote_need(q, CAP_FS_LIST, "list directories");

	if (ret_stamp)
		memset(ret_stamp, 0, sizeof(*ret_stamp));
	if (rc == 0)
		rc = http_send(q, "GET", sbx_path("/v1/sandboxes/%s/fs/list?path=%S", box, path), &r, &resp);
	txt_fini(&s.line);
	if (rc == 0)
		rc = s.rc;
	return rc == 0 && !s.ended ? refuse(q, EIO, "the server's listing was cut short") : rc;
}
