/* SPDX-License-Identifier: MIT */
/* Requests about guest files the plain way. Names that are not UTF-8 travel as base64 in bodies and as
 * escapes in queries; what comes back is bounded and checked. */
#include "sbxfs/wire_http.h"

#include "common/base/err.h"
#include "common/json/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int http_send(struct req *q, const char *method, char *path, struct sbx_request *r,
	struct sbx_response *ret)
{
	char client[64];
	const char *headers[] = { client, NULL };

	(void)snprintf(client, sizeof(client), "Sbx-Client: %s", q->m->client);
	r->headers = headers;
	return remote_send(q, method, path, r, ret);
}

int http_parse(struct req *q, const struct sbx_response *resp, json_t **ret)
{
	struct err e = ERR_NULL;

	if (json_parse_any(resp->body ? resp->body : "", resp->len, TEXT_MAX, ret, &e) < 0)
		return refuse(q, EPROTO, "the server's answer cannot be read: %s", e.msg);
	return 0;
}

int http_json(struct req *q, const char *method, char *path, json_t *body, json_t **ret)
{
	_cleanup_response_ struct sbx_response resp = { 0 };
	char *text = body ? json_text(body) : NULL;
	struct sbx_request r = { .body = text, .body_len = text ? strlen(text) : 0 };
	int rc;

	if (body && !text) {
		json_decref(body);
		free(path);
		return -ENOMEM;
	}
	json_decref(body);
	rc = http_send(q, method, path, &r, &resp);
	free(text);
	return rc < 0 || !ret ? rc : http_parse(q, &resp, ret);
}

void http_add_path(json_t *o, const char *key, const char *path)
{
	char b64_key[32], *b64;

	if (utf8_ok(path, strlen(path))) {
		json_object_set_new(o, key, json_string(path));
		return;
	}
	(void)snprintf(b64_key, sizeof(b64_key), "%s_b64", key);
	b64 = base64_encode(path, strlen(path));
	if (b64)
		json_object_set_new(o, b64_key, json_string(b64));
	free(b64);
}

uint64_t http_count(const json_t *o, const char *key)
{
	json_int_t n = json_integer_value(json_object_get(o, key));

	return n > 0 ? (uint64_t)n : 0;
}

json_t *http_new_op(const char *word)
{
	return json_pack("{s:s}", "op", word);
}

int http_op_error(struct req *q, const json_t *error)
{
	const char *code = json_string_value(json_object_get(error, "code"));
	const char *msg = json_string_value(json_object_get(error, "message"));
	const char *word = json_string_value(json_object_get(error, "errno"));
	int sys = word ? err_errno_of_name(word) : 0;

	if (!sys)
		sys = err_errno(err_code_of_word(code ? code : ""));
	(void)refuse(q, sys ? sys : EIO, "%s", msg ? msg : "the server gives no reason");
	(void)snprintf(q->err.code, sizeof(q->err.code), "%s", code ? code : "");
	return -(sys ? sys : EIO);
}

int http_send_ops(struct req *q, const char *box, json_t *ops, json_t **ret_results)
{
	json_t *body, *one, *results;
	size_t n;
	int rc = remote_need(q, CAP_FS_OPS, "change files like this");

	if (rc < 0) {
		json_decref(ops);
		return rc;
	}
	q->acts = true;
	rc = http_json(q, "POST", sbx_path("/v1/sandboxes/%s/fs/ops", box), json_pack("{s:o}", "ops", ops),
		&body);
	if (rc < 0)
		return rc;
	results = json_object_get(body, "results");
	if (!json_array_size(results))
		rc = refuse(q, EPROTO, "the server's answer has no results");
	json_array_foreach (results, n, one)
		if (rc == 0 && json_object_get(one, "error"))
			rc = http_op_error(q, json_object_get(one, "error"));
	if (rc == 0 && ret_results)
		*ret_results = json_incref(results);
	json_decref(body);
	return rc;
}

int http_send_op(struct req *q, const char *box, json_t *op, json_t **ret_result)
{
	json_t *results;
	int rc = http_send_ops(q, box, json_pack("[o]", op), &results);

	if (rc < 0)
		return rc;
	if (ret_result)
		*ret_result = json_incref(json_array_get(results, 0));
	json_decref(results);
	return 0;
}

int http_stat(struct req *q, const char *box, const char *path, struct tree_attr *ret)
{
	json_t *o;
	int rc = remote_need(q, CAP_FS_STAT, "show attributes of files");

	if (rc == 0)
		rc = http_json(q, "GET", sbx_path("/v1/sandboxes/%s/fs/stat?path=%S", box, path), NULL, &o);
	if (rc < 0)
		return rc;
	rc = tree_attr_of(q, o, ret);
	json_decref(o);
	return rc;
}

int http_statfs(struct req *q, const char *box, const char *path, struct statvfs *ret)
{
	json_t *o;
	int rc = remote_need(q, CAP_FS_STATFS, "tell the space of a sandbox");

	if (rc == 0)
		rc = http_json(q, "GET", sbx_path("/v1/sandboxes/%s/fs/statfs?path=%S", box, path), NULL, &o);
	if (rc < 0)
		return rc;
	ret->f_bsize = ret->f_frsize = http_count(o, "bsize") ? http_count(o, "bsize") : 4096;
	ret->f_blocks = http_count(o, "blocks") ? http_count(o, "blocks") : 1; /* df hides what has none */
	ret->f_bfree = http_count(o, "bfree");
	ret->f_bavail = http_count(o, "bavail");
	ret->f_files = http_count(o, "files");
	ret->f_ffree = ret->f_favail = http_count(o, "ffree");
	ret->f_namemax = 255;
	json_decref(o);
	return 0;
}
