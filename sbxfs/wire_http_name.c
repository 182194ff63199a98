/* SPDX-License-Identifier: MIT */
/* Names, attributes and extended attributes the plain way: batches of operations. */
#include "sbxfs/wire_http.h"

#include "common/json/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

/* An operation that makes something and tells its attributes; `op` is taken. */
static int send_make(struct req *q, const char *box, json_t *op, struct tree_attr *ret)
{
	json_t *result;
	int rc = http_send_op(q, box, op, &result);

	if (rc < 0)
		return rc;
	rc = tree_attr_of(q, json_object_get(result, "attr"), ret);
	json_decref(result);
	return rc;
}

int http_make(struct req *q, const char *box, enum wire_make what, const char *path, mode_t mode,
	const char *target, struct tree_attr *ret)
{
	static const char *const words[] = { "mkdir", "mknod", "symlink" };
	json_t *op = http_new_op(words[what]);

	http_add_path(op, "path", path);
	if (what == WIRE_SYMLINK)
		http_add_path(op, "target", target);
	else
		json_object_set_new(op, "mode", json_integer(mode & 07777));
	if (what == WIRE_FIFO)
		json_object_set_new(op, "type", json_string("fifo"));
	return send_make(q, box, op, ret);
}

int http_link(struct req *q, const char *box, const char *from, const char *to, struct tree_attr *ret)
{
	json_t *op = http_new_op("link");

	http_add_path(op, "from", from);
	http_add_path(op, "to", to);
	return send_make(q, box, op, ret);
}

int http_drop(struct req *q, const char *box, const char *path, bool is_dir)
{
	json_t *op = http_new_op(is_dir ? "rmdir" : "unlink");

	http_add_path(op, "path", path);
	return http_send_op(q, box, op, NULL);
}

int http_rename(struct req *q, const char *box, const char *from, const char *to, unsigned flags)
{
	json_t *op = http_new_op("rename"), *words = json_array();

	http_add_path(op, "from", from);
	http_add_path(op, "to", to);
	if (flags & RENAME_NOREPLACE)
		json_array_append_new(words, json_string("noreplace"));
	if (flags & RENAME_EXCHANGE)
		json_array_append_new(words, json_string("exchange"));
	json_object_set_new(op, "flags", words);
	return http_send_op(q, box, op, NULL);
}

/* By handle when one is given, else by path. */
static json_t *op_on(const char *word, const char *path, const char *handle)
{
	json_t *op = http_new_op(word);

	if (handle)
		json_object_set_new(op, "handle", json_string(handle));
	else
		http_add_path(op, "path", path);
	return op;
}

static json_t *add_op(json_t *ops, const char *word, const char *path, const char *handle)
{
	json_t *op = op_on(word, path, handle);

	json_array_append_new(ops, op);
	return op;
}

static void set_time(json_t *op, const char *key, const struct timespec *ts, bool now)
{
	long long sec = ts->tv_sec;
	long nsec = ts->tv_nsec;
	char text[48];

	/* -1.5 is half a second before -1, not after. */
	if (sec < 0 && nsec) {
		sec++;
		nsec = 1000000000 - nsec;
		(void)snprintf(text, sizeof(text), "-%lld.%09ld", -sec, nsec);
	} else {
		(void)snprintf(text, sizeof(text), "%lld.%09ld", sec, nsec);
	}
	json_object_set_new(op, key, json_string(now ? "now" : text));
}

/* Several changes of one call are one batch: size and owner first, since they take bits away. */
int http_setattr(struct req *q, const char *box, const char *path, const char *handle,
	const struct stat *st, int set, struct tree_attr *ret)
{
	json_t *ops = json_array(), *results = NULL, *op;
	int rc;

	if (set & FUSE_SET_ATTR_SIZE) {
		op = add_op(ops, "truncate", path, handle);
		json_object_set_new(op, "size", json_integer(st->st_size));
	}
	if (set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) {
		op = add_op(ops, "chown", path, handle);
		if (set & FUSE_SET_ATTR_UID)
			json_object_set_new(op, "uid", json_integer(wire_uid(q->m, st->st_uid)));
		if (set & FUSE_SET_ATTR_GID)
			json_object_set_new(op, "gid", json_integer(wire_gid(q->m, st->st_gid)));
	}
	if (set & FUSE_SET_ATTR_MODE) {
		op = add_op(ops, "chmod", path, handle);
		json_object_set_new(op, "mode", json_integer(st->st_mode & 07777));
	}
	if (set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME)) {
		op = add_op(ops, "utimes", path, handle);
		if (set & FUSE_SET_ATTR_ATIME)
			set_time(op, "atime", &st->st_atim, set & FUSE_SET_ATTR_ATIME_NOW);
		if (set & FUSE_SET_ATTR_MTIME)
			set_time(op, "mtime", &st->st_mtim, set & FUSE_SET_ATTR_MTIME_NOW);
	}
	if (!json_array_size(ops)) { /* no operation says that nothing shall be changed */
		json_decref(ops);
		return handle ? http_fstat(q, box, handle, ret) : http_stat(q, box, path, ret);
	}
	rc = http_send_ops(q, box, ops, &results);
	if (rc < 0)
		return rc;
	op = json_array_get(results, json_array_size(results) - 1);
	rc = tree_attr_of(q, json_object_get(op, "attr"), ret);
	json_decref(results);
	return rc;
}

static json_t *xattr_op(const char *word, const char *path, const char *handle, const char *name)
{
	json_t *op = op_on(word, path, handle);

	if (name)
		json_object_set_new(op, "name", json_string(name));
	return op;
}

int http_xattr_get(struct req *q, const char *box, const char *path, const char *handle,
	const char *name, char **ret, size_t *ret_len)
{
	bool acts = q->acts;
	json_t *result, *v;
	void *raw = NULL;
	int rc = http_send_op(q, box, xattr_op("getxattr", path, handle, name), &result);

	q->acts = acts;
	if (rc < 0)
		return rc;
	v = json_object_get(result, "value");
	if (!json_is_string(v) ||
		base64_decode(json_string_value(v), json_string_length(v), &raw, ret_len) < 0)
		rc = -EPROTO;
	json_decref(result);
	*ret = raw;
	return rc;
}

int http_xattr_set(struct req *q, const char *box, const char *path, const char *handle,
	const char *name, const struct wire_value *v)
{
	json_t *op = xattr_op("setxattr", path, handle, name);
	char *b64 = base64_encode(v->p, v->len);

	json_object_set_new(op, "value", json_string(b64 ? b64 : ""));
	free(b64);
	if (v->flags & XATTR_CREATE)
		json_object_set_new(op, "flags", json_pack("[s]", "create"));
	else if (v->flags & XATTR_REPLACE)
		json_object_set_new(op, "flags", json_pack("[s]", "replace"));
	return http_send_op(q, box, op, NULL);
}

int http_xattr_list(struct req *q, const char *box, const char *path, const char *handle, char **ret,
	size_t *ret_len)
{
	struct text t = TEXT_NULL;
	bool acts = q->acts;
	json_t *result, *v;
	size_t n;
	int rc = http_send_op(q, box, xattr_op("listxattr", path, handle, NULL), &result);

	q->acts = acts;
	if (rc < 0)
		return rc;
	json_array_foreach (json_object_get(result, "names"), n, v)
		if (json_is_string(v))
			txt_add(&t, json_string_value(v), strlen(json_string_value(v)) + 1);
	json_decref(result);
	*ret = t.p;
	*ret_len = t.len;
	return t.failed ? -ENOMEM : 0;
}

int http_xattr_remove(struct req *q, const char *box, const char *path, const char *handle,
	const char *name)
{
	return http_send_op(q, box, xattr_op("removexattr", path, handle, name), NULL);
}
