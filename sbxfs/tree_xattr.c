/* SPDX-License-Identifier: MIT */
/* Extended attributes. user.* is the guest's; user.sbx.* is ours and read only; the kernel's question
 * for security.capability before every write is answered from memory. */
#include "sbxfs/errlog.h"
#include "sbxfs/treefs.h"

#include "common/json/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

void reply_xattr(struct req *q, const char *value, size_t len, size_t size)
{
	if (!size)
		fuse_reply_xattr(q->fr, len);
	else if (len > size)
		fuse_reply_err(q->fr, ERANGE);
	else
		fuse_reply_buf(q->fr, value, len);
}

static bool is_ours(const char *name)
{
	return !strncmp(name, "user.sbx.", 9);
}

/* Only these reach the guest. */
static bool is_guest(const char *name)
{
	return !strncmp(name, "user.", 5) && !is_ours(name);
}

static int op_named(struct req *q, struct inode *i, const char *word, const char *name, json_t **ret)
{
	char path[GUEST_PATH_MAX];
	int rc = tree_path(q, i, NULL, path);

	if (rc < 0)
		return rc;
	*ret = wire_new_op(word);
	wire_path(*ret, "path", path);
	if (name)
		json_object_set_new(*ret, "name", json_string(name));
	return 0;
}

static void get_target(struct req *q, struct inode *i, size_t size)
{
	_cleanup_attr_ struct tree_attr a = { .target = NULL };
	int rc = tree_get(q, i, &a);

	if (rc == 0 && !a.target)
		rc = -ENODATA;
	if (rc < 0)
		req_fail(q, rc);
	else
		reply_xattr(q, a.target, strlen(a.target), size);
}

void tree_getxattr(struct req *q, struct inode *i, const char *name, size_t size)
{
	json_t *op, *result, *v;
	void *raw = NULL;
	size_t len = 0;
	bool acts = q->acts;
	int rc;

	/* The kernel lets nobody have user.* of a link; the other name is for links. */
	if (!strcmp(name, "user.sbx.target") || !strcmp(name, "security.sbx.target")) {
		get_target(q, i, size);
		return;
	}
	if (!is_guest(name)) {
		fuse_reply_err(q->fr, strncmp(name, "system.", 7) ? ENODATA : EOPNOTSUPP);
		return;
	}
	rc = op_named(q, i, "getxattr", name, &op);
	if (rc == 0)
		rc = wire_op(q, i->box, op, &result);
	q->acts = acts;
	if (rc < 0) {
		req_fail(q, rc);
		return;
	}
	v = json_object_get(result, "value");
	if (!json_is_string(v) ||
		base64_decode(json_string_value(v), json_string_length(v), &raw, &len) < 0)
		req_fail(q, -EPROTO);
	else
		reply_xattr(q, raw, len, size);
	free(raw);
	json_decref(result);
}

void tree_setxattr(struct req *q, struct inode *i, const char *name, const char *value, size_t size,
	int flags)
{
	char *b64;
	json_t *op;
	int rc;

	if (!is_guest(name)) {
		req_fail(q, is_ours(name) ? -EPERM : -EOPNOTSUPP);
		return;
	}
	rc = op_named(q, i, "setxattr", name, &op);
	if (rc < 0) {
		req_fail(q, rc);
		return;
	}
	b64 = base64_encode(value, size);
	json_object_set_new(op, "value", json_string(b64 ? b64 : ""));
	free(b64);
	if (flags & XATTR_CREATE)
		json_object_set_new(op, "flags", json_pack("[s]", "create"));
	else if (flags & XATTR_REPLACE)
		json_object_set_new(op, "flags", json_pack("[s]", "replace"));
	rc = wire_op(q, i->box, op, NULL);
	tree_changed(q, i);
	req_done(q, rc);
}

static bool has_words(struct req *q)
{
	_cleanup_text_ struct text t = TEXT_NULL;

	errlog_last(q->m->errors, q->uid, NULL, q->path, &t);
	return t.len > 0;
}

void tree_listxattr(struct req *q, struct inode *i, size_t size)
{
	_cleanup_text_ struct text t = TEXT_NULL;
	json_t *op, *result, *v;
	bool acts = q->acts;
	size_t n;
	int rc = op_named(q, i, "listxattr", NULL, &op);

	if (rc == 0)
		rc = wire_op(q, i->box, op, &result);
	q->acts = acts;
	if (rc < 0) {
		req_fail(q, rc);
		return;
	}
	json_array_foreach (json_object_get(result, "names"), n, v)
		if (json_is_string(v) && is_guest(json_string_value(v)))
			txt_add(&t, json_string_value(v), strlen(json_string_value(v)) + 1);
	json_decref(result);
	if (has_words(q))
		txt_add(&t, "user.sbx.error", sizeof("user.sbx.error"));
	reply_xattr(q, t.p, t.len, size);
}

void tree_removexattr(struct req *q, struct inode *i, const char *name)
{
	json_t *op;
	int rc;

	if (!is_guest(name)) {
		req_fail(q, is_ours(name) ? -EPERM : -EOPNOTSUPP);
		return;
	}
	rc = op_named(q, i, "removexattr", name, &op);
	if (rc == 0)
		rc = wire_op(q, i->box, op, NULL);
	tree_changed(q, i);
	req_done(q, rc);
}
