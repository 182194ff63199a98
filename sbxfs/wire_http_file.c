/* SPDX-License-Identifier: MIT */
/* Open files the plain way: by the server's handle, data as bytes. */
#include "sbxfs/wire_http.h"

#include "common/json/json.h"

#include <errno.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>

static json_t *open_words(int flags)
{
	json_t *w = json_array();
	int how = flags & O_ACCMODE;

	if (how != O_WRONLY)
		json_array_append_new(w, json_string("read"));
	if (how != O_RDONLY || (flags & O_CREAT)) /* the server makes nothing that is only read */
		json_array_append_new(w, json_string("write"));
	if (flags & O_CREAT)
		json_array_append_new(w, json_string("create"));
	if (flags & O_EXCL)
		json_array_append_new(w, json_string("exclusive"));
	if ((flags & O_TRUNC) && how != O_RDONLY)
		json_array_append_new(w, json_string("trunc"));
	/* The host's kernel has followed links where they are to be followed. */
	json_array_append_new(w, json_string("nofollow"));
	return w;
}

static int open_answer(struct req *q, json_t *o, char ret_handle[24], struct tree_attr *ret,
	char **ret_data, size_t *ret_len)
{
	const char *h = json_string_value(json_object_get(o, "handle"));
	json_t *data = json_object_get(o, "data");
	void *raw = NULL;
	int rc;

	if (!h || !h[0] || strlen(h) > 20 || strspn(h, "0123456789") != strlen(h))
		return refuse(q, EPROTO, "the server's answer has no handle");
	strcpy(ret_handle, h);
	rc = tree_attr_of(q, json_object_get(o, "attr"), ret);
	if (rc < 0)
		return rc;
	if (ret_data && json_is_string(data) &&
		base64_decode(json_string_value(data), json_string_length(data), &raw, ret_len) == 0)
		*ret_data = raw;
	return 0;
}

int http_open(struct req *q, const char *box, const char *path, int flags, mode_t mode, size_t want,
	char ret_handle[24], struct tree_attr *ret, char **ret_data, size_t *ret_len)
{
	json_t *body, *o;
	int rc = remote_need(q, CAP_FS_OPEN, "open files");

	if (ret_data)
		*ret_data = NULL;
	if (rc < 0)
		return rc;
	body = json_pack("{s:o}", "flags", open_words(flags));
	http_add_path(body, "path", path);
	if (flags & O_CREAT)
		json_object_set_new(body, "mode", json_integer(mode & 07777));
	if (want)
		json_object_set_new(body, "inline", json_integer((json_int_t)want));
	q->acts |= (flags & O_ACCMODE) != O_RDONLY;
	rc = http_json(q, "POST", sbx_path("/v1/sandboxes/%s/fs/open", box), body, &o);
	if (rc < 0)
		return rc;
	rc = open_answer(q, o, ret_handle, ret, ret_data, ret_len);
	json_decref(o);
	return rc;
}

int http_read(struct req *q, const char *box, const char *handle, uint64_t off, size_t len,
	char *buf, size_t *ret)
{
	struct sbx_request r = { .timeout_ms = HTTP_DATA_MS };
	_cleanup_response_ struct sbx_response resp = { 0 };
	int rc = http_send(q, "GET",
		sbx_path("/v1/sandboxes/%s/fs/handles/%s?offset=%lld&length=%lld", box, handle,
			(long long)off, (long long)len), &r, &resp);

	if (rc == 0 && resp.len > len)
		rc = refuse(q, EPROTO, "the server sent more than was asked for");
	if (rc < 0)
		return rc;
	if (resp.len)
		memcpy(buf, resp.body, resp.len);
	*ret = resp.len;
	return 0;
}

int http_write(struct req *q, const char *box, const char *handle, uint64_t off, bool append,
	const void *buf, size_t len, uint64_t *ret_written)
{
	struct sbx_request r = { .body = buf, .body_len = len,
		.body_type = "application/octet-stream", .timeout_ms = HTTP_DATA_MS };
	_cleanup_response_ struct sbx_response resp = { 0 };
	json_t *o, *n;
	int rc;

	q->acts = true;
	rc = http_send(q, "PUT", append ?
		sbx_path("/v1/sandboxes/%s/fs/handles/%s?append=1", box, handle) :
		sbx_path("/v1/sandboxes/%s/fs/handles/%s?offset=%lld", box, handle, (long long)off),
		&r, &resp);
	if (rc == 0)
		rc = http_parse(q, &resp, &o);
	if (rc < 0)
		return rc;
	n = json_object_get(o, "written");
	*ret_written = len;
	if (json_is_integer(n) && json_integer_value(n) >= 0 && (size_t)json_integer_value(n) < len)
		*ret_written = (uint64_t)json_integer_value(n);
	json_decref(o);
	return 0;
}

int http_sync(struct req *q, const char *box, const char *handle, bool data_only)
{
	return http_json(q, "POST", sbx_path("/v1/sandboxes/%s/fs/handles/%s/sync", box, handle),
		json_pack("{s:b}", "data_only", data_only), NULL);
}

void http_close(struct req *q, const char *box, const char *handle)
{
	struct sbx_error saved = q->err;

	(void)http_json(q, "DELETE", sbx_path("/v1/sandboxes/%s/fs/handles/%s", box, handle), NULL, NULL);
	q->err = saved;
}

/* An operation that sets nothing tells the attributes. */
int http_fstat(struct req *q, const char *box, const char *handle, struct tree_attr *ret)
{
	json_t *op = http_new_op("utimes"), *result;
	bool acts = q->acts;
	int rc;

	json_object_set_new(op, "handle", json_string(handle));
	rc = http_send_op(q, box, op, &result);
	q->acts = acts;
	if (rc < 0)
		return rc;
	rc = tree_attr_of(q, json_object_get(result, "attr"), ret);
	json_decref(result);
	return rc;
}

static json_t *handle_op(const char *word, const char *handle, off_t off, off_t len)
{
	json_t *op = http_new_op(word);

	json_object_set_new(op, "handle", json_string(handle));
	json_object_set_new(op, "offset", json_integer(off));
	if (len >= 0)
		json_object_set_new(op, "length", json_integer(len));
	return op;
}

static const struct {
	int flag;
	const char *word;
} falloc_words[] = {
	{ FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, "punch_hole" },
	{ FALLOC_FL_ZERO_RANGE, "zero_range" },
	{ FALLOC_FL_COLLAPSE_RANGE, "collapse_range" },
	{ FALLOC_FL_INSERT_RANGE, "insert_range" },
	{ FALLOC_FL_KEEP_SIZE, "keep_size" },
};

int http_fallocate(struct req *q, const char *box, const char *handle, int mode, off_t off, off_t len)
{
	json_t *op, *flags = json_array();

	for (size_t n = 0; n < sizeof(falloc_words) / sizeof(falloc_words[0]); n++) {
		if ((mode & falloc_words[n].flag) != falloc_words[n].flag)
			continue;
		json_array_append_new(flags, json_string(falloc_words[n].word));
		mode &= ~falloc_words[n].flag;
	}
	if (mode) {
		json_decref(flags);
		return -EOPNOTSUPP;
	}
	op = handle_op("fallocate", handle, off, len);
	json_object_set_new(op, "flags", flags);
	return http_send_op(q, box, op, NULL);
}

int http_copy(struct req *q, const char *box, const struct wire_copy *c, uint64_t *ret)
{
	json_t *op = handle_op("copy", c->from, c->from_off, (off_t)(c->len > INT32_MAX ? INT32_MAX : c->len));
	json_t *result;
	int rc;

	json_object_set_new(op, "to_handle", json_string(c->to));
	json_object_set_new(op, "to_offset", json_integer(c->to_off));
	rc = http_send_op(q, box, op, &result);
	if (rc < 0)
		return rc;
	*ret = http_count(result, "copied");
	json_decref(result);
	return 0;
}

int http_seek(struct req *q, const char *box, const char *handle, off_t off, int whence, off_t *ret)
{
	json_t *op = handle_op("seek", handle, off, -1), *result;
	int rc;

	json_object_set_new(op, "whence", json_string(whence == SEEK_DATA ? "data" : "hole"));
	rc = http_send_op(q, box, op, &result);
	if (rc < 0)
		return rc;
	*ret = json_integer_value(json_object_get(result, "offset"));
	json_decref(result);
	return 0;
}
