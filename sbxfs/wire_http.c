/* SPDX-License-Identifier: MIT */
/* Requests about guest files the plain way. Names that are not UTF-8 travel as base64 in bodies and as
 * escapes in queries; what comes back is bounded and checked. */
#include "sbxfs/remote.h"
#include "sbxfs/wire.h"

#include "common/base/err.h"
#include "common/json/json.h"

#include <errno.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#define LINE_MAX_BYTES (64u * 1024)
#define DATA_TIMEOUT_MS 30000

/* Every request about files names this mount, so that its handles live as long as it does. */
static int wire_send(struct req *q, const char *method, char *path, struct sbx_request *r,
	struct sbx_response *ret)
{
	char client[64];
	const char *headers[] = { client, NULL };

	(void)snprintf(client, sizeof(client), "Sbx-Client: %s", q->m->client);
	r->headers = headers;
	return remote_send(q, method, path, r, ret);
}

static int parse(struct req *q, const struct sbx_response *resp, json_t **ret)
{
	struct err e = ERR_NULL;

	if (json_parse_any(resp->body ? resp->body : "", resp->len, TEXT_MAX, ret, &e) < 0)
		return refuse(q, EPROTO, "the server's answer cannot be read: %s", e.msg);
	return 0;
}

static int wire_json(struct req *q, const char *method, char *path, json_t *body, json_t **ret)
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
	rc = wire_send(q, method, path, &r, &resp);
	free(text);
	return rc < 0 || !ret ? rc : parse(q, &resp, ret);
}

static void add_path(json_t *o, const char *key, const char *path)
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

int http_stat(struct req *q, const char *box, const char *path, struct tree_attr *ret)
{
	json_t *o;
	int rc = remote_need(q, CAP_FS_STAT, "show attributes of files");

	if (rc == 0)
		rc = wire_json(q, "GET", sbx_path("/v1/sandboxes/%s/fs/stat?path=%S", box, path), NULL, &o);
	if (rc < 0)
		return rc;
	rc = tree_attr_of(q, o, ret);
	json_decref(o);
	return rc;
}

static json_t *new_op(const char *word)
{
	return json_pack("{s:s}", "op", word);
}

/* An error inside of a 200: the same words and errno as one of its own. */
static int op_error(struct req *q, const json_t *error)
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

static int send_ops(struct req *q, const char *box, json_t *ops, json_t **ret_results)
{
	json_t *body, *one, *results;
	size_t n;
	int rc = remote_need(q, CAP_FS_OPS, "change files like this");

	if (rc < 0) {
		json_decref(ops);
		return rc;
	}
	q->acts = true;
	rc = wire_json(q, "POST", sbx_path("/v1/sandboxes/%s/fs/ops", box), json_pack("{s:o}", "ops", ops),
		&body);
	if (rc < 0)
		return rc;
	results = json_object_get(body, "results");
	if (!json_array_size(results))
		rc = refuse(q, EPROTO, "the server's answer has no results");
	json_array_foreach (results, n, one)
		if (rc == 0 && json_object_get(one, "error"))
			rc = op_error(q, json_object_get(one, "error"));
	if (rc == 0 && ret_results)
		*ret_results = json_incref(results);
	json_decref(body);
	return rc;
}

static int send_op(struct req *q, const char *box, json_t *op, json_t **ret_result)
{
	json_t *results;
	int rc = send_ops(q, box, json_pack("[o]", op), &results);

	if (rc < 0)
		return rc;
	if (ret_result)
		*ret_result = json_incref(json_array_get(results, 0));
	json_decref(results);
	return 0;
}

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
		s->rc = op_error(s->q, json_object_get(o, "error"));
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

int http_list(struct req *q, const char *box, const char *path, wire_entry *each, void *arg)
{
	struct list_sink s = { .q = q, .each = each, .arg = arg };
	struct sbx_request r = { .on_data = list_data, .arg = &s };
	_cleanup_response_ struct sbx_response resp = { 0 };
	int rc = remote_need(q, CAP_FS_LIST, "list directories");

	if (rc == 0)
		rc = wire_send(q, "GET", sbx_path("/v1/sandboxes/%s/fs/list?path=%S", box, path), &r, &resp);
	txt_fini(&s.line);
	if (rc == 0)
		rc = s.rc;
	return rc == 0 && !s.ended ? refuse(q, EIO, "the server's listing was cut short") : rc;
}

static json_t *open_words(int flags)
{
	json_t *w = json_array();
	int how = flags & O_ACCMODE;

	if (how != O_WRONLY)
		json_array_append_new(w, json_string("read"));
	if (how != O_RDONLY)
		json_array_append_new(w, json_string(flags & O_APPEND ? "append" : "write"));
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
	add_path(body, "path", path);
	if (flags & O_CREAT)
		json_object_set_new(body, "mode", json_integer(mode & 07777));
	if (want)
		json_object_set_new(body, "inline", json_integer((json_int_t)want));
	q->acts |= (flags & O_ACCMODE) != O_RDONLY;
	rc = wire_json(q, "POST", sbx_path("/v1/sandboxes/%s/fs/open", box), body, &o);
	if (rc < 0)
		return rc;
	rc = open_answer(q, o, ret_handle, ret, ret_data, ret_len);
	json_decref(o);
	return rc;
}

int http_read(struct req *q, const char *box, const char *handle, uint64_t off, size_t len,
	char *buf, size_t *ret)
{
	struct sbx_request r = { .timeout_ms = DATA_TIMEOUT_MS };
	_cleanup_response_ struct sbx_response resp = { 0 };
	int rc = wire_send(q, "GET",
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
		.body_type = "application/octet-stream", .timeout_ms = DATA_TIMEOUT_MS };
	_cleanup_response_ struct sbx_response resp = { 0 };
	json_t *o, *n;
	int rc;

	q->acts = true;
	rc = wire_send(q, "PUT", append ?
		sbx_path("/v1/sandboxes/%s/fs/handles/%s?append=1", box, handle) :
		sbx_path("/v1/sandboxes/%s/fs/handles/%s?offset=%lld", box, handle, (long long)off),
		&r, &resp);
	if (rc == 0)
		rc = parse(q, &resp, &o);
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
	return wire_json(q, "POST", sbx_path("/v1/sandboxes/%s/fs/handles/%s/sync", box, handle),
		json_pack("{s:b}", "data_only", data_only), NULL);
}

void http_close(struct req *q, const char *box, const char *handle)
{
	struct sbx_error saved = q->err;

	(void)wire_json(q, "DELETE", sbx_path("/v1/sandboxes/%s/fs/handles/%s", box, handle), NULL, NULL);
	q->err = saved;
}

/* An operation that sets nothing tells the attributes. */
int http_fstat(struct req *q, const char *box, const char *handle, struct tree_attr *ret)
{
	json_t *op = new_op("utimes"), *result;
	bool acts = q->acts;
	int rc;

	json_object_set_new(op, "handle", json_string(handle));
	rc = send_op(q, box, op, &result);
	q->acts = acts;
	if (rc < 0)
		return rc;
	rc = tree_attr_of(q, json_object_get(result, "attr"), ret);
	json_decref(result);
	return rc;
}

static uint64_t count(const json_t *o, const char *key)
{
	json_int_t n = json_integer_value(json_object_get(o, key));

	return n > 0 ? (uint64_t)n : 0;
}

int http_statfs(struct req *q, const char *box, const char *path, struct statvfs *ret)
{
	json_t *o;
	int rc = remote_need(q, CAP_FS_STATFS, "tell the space of a sandbox");

	if (rc == 0)
		rc = wire_json(q, "GET", sbx_path("/v1/sandboxes/%s/fs/statfs?path=%S", box, path), NULL, &o);
	if (rc < 0)
		return rc;
	ret->f_bsize = ret->f_frsize = count(o, "bsize") ? count(o, "bsize") : 4096;
	ret->f_blocks = count(o, "blocks") ? count(o, "blocks") : 1; /* df hides what has none */
	ret->f_bfree = count(o, "bfree");
	ret->f_bavail = count(o, "bavail");
	ret->f_files = count(o, "files");
	ret->f_ffree = ret->f_favail = count(o, "ffree");
	ret->f_namemax = 255;
	json_decref(o);
	return 0;
}

/* An operation that makes something and tells its attributes; `op` is taken. */
static int send_make(struct req *q, const char *box, json_t *op, struct tree_attr *ret)
{
	json_t *result;
	int rc = send_op(q, box, op, &result);

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
	json_t *op = new_op(words[what]);

	add_path(op, "path", path);
	if (what == WIRE_SYMLINK)
		add_path(op, "target", target);
	else
		json_object_set_new(op, "mode", json_integer(mode & 07777));
	if (what == WIRE_FIFO)
		json_object_set_new(op, "type", json_string("fifo"));
	return send_make(q, box, op, ret);
}

int http_link(struct req *q, const char *box, const char *from, const char *to, struct tree_attr *ret)
{
	json_t *op = new_op("link");

	add_path(op, "from", from);
	add_path(op, "to", to);
	return send_make(q, box, op, ret);
}

int http_drop(struct req *q, const char *box, const char *path, bool is_dir)
{
	json_t *op = new_op(is_dir ? "rmdir" : "unlink");

	add_path(op, "path", path);
	return send_op(q, box, op, NULL);
}

int http_rename(struct req *q, const char *box, const char *from, const char *to, unsigned flags)
{
	json_t *op = new_op("rename"), *words = json_array();

	add_path(op, "from", from);
	add_path(op, "to", to);
	if (flags & RENAME_NOREPLACE)
		json_array_append_new(words, json_string("noreplace"));
	if (flags & RENAME_EXCHANGE)
		json_array_append_new(words, json_string("exchange"));
	json_object_set_new(op, "flags", words);
	return send_op(q, box, op, NULL);
}

/* By handle when one is given, else by path. */
static json_t *add_op(json_t *ops, const char *word, const char *path, const char *handle)
{
	json_t *op = new_op(word);

	if (handle)
		json_object_set_new(op, "handle", json_string(handle));
	else
		add_path(op, "path", path);
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
	rc = send_ops(q, box, ops, &results);
	if (rc < 0)
		return rc;
	op = json_array_get(results, json_array_size(results) - 1);
	rc = tree_attr_of(q, json_object_get(op, "attr"), ret);
	json_decref(results);
	return rc;
}

static json_t *handle_op(const char *word, const char *handle, off_t off, off_t len)
{
	json_t *op = new_op(word);

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
	return send_op(q, box, op, NULL);
}

int http_copy(struct req *q, const char *box, const struct wire_copy *c, uint64_t *ret)
{
	json_t *op = handle_op("copy", c->from, c->from_off, (off_t)(c->len > INT32_MAX ? INT32_MAX : c->len));
	json_t *result;
	int rc;

	json_object_set_new(op, "to_handle", json_string(c->to));
	json_object_set_new(op, "to_offset", json_integer(c->to_off));
	rc = send_op(q, box, op, &result);
	if (rc < 0)
		return rc;
	*ret = count(result, "copied");
	json_decref(result);
	return 0;
}

int http_seek(struct req *q, const char *box, const char *handle, off_t off, int whence, off_t *ret)
{
	json_t *op = handle_op("seek", handle, off, -1), *result;
	int rc;

	json_object_set_new(op, "whence", json_string(whence == SEEK_DATA ? "data" : "hole"));
	rc = send_op(q, box, op, &result);
	if (rc < 0)
		return rc;
	*ret = json_integer_value(json_object_get(result, "offset"));
	json_decref(result);
	return 0;
}

static json_t *xattr_op(const char *word, const char *path, const char *name)
{
	json_t *op = new_op(word);

	add_path(op, "path", path);
	if (name)
		json_object_set_new(op, "name", json_string(name));
	return op;
}

int http_xattr_get(struct req *q, const char *box, const char *path, const char *name, char **ret,
	size_t *ret_len)
{
	bool acts = q->acts;
	json_t *result, *v;
	void *raw = NULL;
	int rc = send_op(q, box, xattr_op("getxattr", path, name), &result);

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

int http_xattr_set(struct req *q, const char *box, const char *path, const char *name,
	const struct wire_value *v)
{
	json_t *op = xattr_op("setxattr", path, name);
	char *b64 = base64_encode(v->p, v->len);

	json_object_set_new(op, "value", json_string(b64 ? b64 : ""));
	free(b64);
	if (v->flags & XATTR_CREATE)
		json_object_set_new(op, "flags", json_pack("[s]", "create"));
	else if (v->flags & XATTR_REPLACE)
		json_object_set_new(op, "flags", json_pack("[s]", "replace"));
	return send_op(q, box, op, NULL);
}

int http_xattr_list(struct req *q, const char *box, const char *path, char **ret, size_t *ret_len)
{
	struct text t = TEXT_NULL;
	bool acts = q->acts;
	json_t *result, *v;
	size_t n;
	int rc = send_op(q, box, xattr_op("listxattr", path, NULL), &result);

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

int http_xattr_remove(struct req *q, const char *box, const char *path, const char *name)
{
	return send_op(q, box, xattr_op("removexattr", path, name), NULL);
}
