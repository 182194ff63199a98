/* SPDX-License-Identifier: MIT */
/* POST …/fs/ops: a batch. {"ops":[{"op":"mkdir",…},…],"stop":true} gives {"results":[…]} with one
 * object for each operation carried out, in order: {} with what the operation tells ("attr",
 * "value", "names", "copied", "offset"), or {"error":…}. With stop (the default) the first error is
 * the last result. One table says which members each operation takes; every other member is a 400
 * that names it, and then nothing of the batch is done.
 *
 * Members: path names what is worked on, from and to what is moved, linked or copied, each also as
 * …_b64 with exact bytes; handle and to_handle stand for path (or from) and to where the table has
 * them. target is a link's text. Times are "seconds.nanoseconds" or "now"; one left out stays. */
#include "sandboxd/api/files.h"

#include "common/sys/mem.h"

#include <ctype.h>
#include <errno.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/stat.h>

#define OPS_MAX        1000
#define BATCH_TEXT_MAX (8u * 1024 * 1024)

struct op_body {
	char *op, *path, *path_b64, *from, *from_b64, *to, *to_b64, *target, *target_b64, *name,
		*type, *atime, *mtime, *whence;
	json_t *handle, *to_handle;
	struct strlist flags;
	struct blob value;
	bool follow, has_value, has_mode, has_uid, has_gid, has_size, has_length;
	uint32_t mode;
	int64_t uid, gid, size, offset, to_offset, length;
};
#define NAT .min = 0, .max = INT64_MAX
static const struct field op_fields[] = {
	FIELD(op_body, op, F_STR, .required = true),
	FIELD(op_body, path, F_STR),
	FIELD(op_body, path_b64, F_STR),
	FIELD(op_body, from, F_STR),
	FIELD(op_body, from_b64, F_STR),
	FIELD(op_body, to, F_STR),
	FIELD(op_body, to_b64, F_STR),
	FIELD(op_body, target, F_STR),
	FIELD(op_body, target_b64, F_STR),
	FIELD(op_body, name, F_STR, .max = 255),
	FIELD(op_body, type, F_STR),
	FIELD(op_body, atime, F_STR, .max = 40),
	FIELD(op_body, mtime, F_STR, .max = 40),
	FIELD(op_body, whence, F_STR),
	FIELD(op_body, handle, F_ANY),
	FIELD(op_body, to_handle, F_ANY),
	FIELD(op_body, flags, F_STRS, .max = 8),
	FIELD_HAS(op_body, value, F_B64),
	FIELD(op_body, follow, F_BOOL),
	FIELD_HAS(op_body, mode, F_MODE),
	FIELD_HAS(op_body, uid, F_INT, .min = 0, .max = 0xfffffffe),
	FIELD_HAS(op_body, gid, F_INT, .min = 0, .max = 0xfffffffe),
	FIELD_HAS(op_body, size, F_INT, NAT),
	FIELD(op_body, offset, F_INT, NAT),
	FIELD(op_body, to_offset, F_INT, NAT),
	FIELD_HAS(op_body, length, F_INT, NAT),
	FIELDS_END,
};

/* What an operation takes (and, where no other would make sense, needs). */
enum takes {
	PATH = 1 << 0,
	FROM_TO = 1 << 1,
	HANDLE = 1 << 2,
	TARGET = 1 << 3,
	MODE = 1 << 4,
	OWNER = 1 << 5,
	TIMES = 1 << 6,
	SIZE = 1 << 7,
	RANGE = 1 << 8,
	NAME = 1 << 9,
	VALUE = 1 << 10,
	FLAGS = 1 << 11,
	FOLLOW = 1 << 12,
	TYPE = 1 << 13,
	WHENCE = 1 << 14,
	TO_RANGE = 1 << 15,
	MUST_HANDLE = 1 << 16,
	TELL_ATTR = 1 << 20,
	REMOVES = 1 << 21,
	WRITES = 1 << 22,
};
static const struct op_row {
	const char *word;
	enum files_op op;
	unsigned takes;
} rows[] = {
	{ "mkdir", FILES_MKDIR, PATH | MODE | TELL_ATTR },
	{ "rmdir", FILES_RMDIR, PATH | REMOVES },
	{ "unlink", FILES_UNLINK, PATH | REMOVES },
	{ "rename", FILES_RENAME, FROM_TO | FLAGS },
	{ "link", FILES_LINK, FROM_TO | TELL_ATTR },
	{ "symlink", FILES_SYMLINK, PATH | TARGET | TELL_ATTR },
	{ "mknod", FILES_MKNOD, PATH | MODE | TYPE | TELL_ATTR },
	{ "chmod", FILES_SETATTR, PATH | HANDLE | MODE | FOLLOW | TELL_ATTR },
	{ "chown", FILES_SETATTR, PATH | HANDLE | OWNER | FOLLOW | TELL_ATTR },
	{ "utimes", FILES_SETATTR, PATH | HANDLE | TIMES | FOLLOW | TELL_ATTR },
	{ "truncate", FILES_SETATTR, PATH | HANDLE | SIZE | FOLLOW | TELL_ATTR | WRITES },
	{ "fallocate", FILES_FALLOCATE, PATH | HANDLE | RANGE | FLAGS | TELL_ATTR | WRITES },
	{ "copy", FILES_COPY, FROM_TO | HANDLE | RANGE | TO_RANGE | TELL_ATTR },
	{ "getxattr", FILES_XATTR_GET, PATH | HANDLE | NAME | FOLLOW },
	{ "setxattr", FILES_XATTR_SET, PATH | HANDLE | NAME | VALUE | FLAGS | FOLLOW },
	{ "listxattr", FILES_XATTR_LIST, PATH | HANDLE | FOLLOW },
	{ "removexattr", FILES_XATTR_REMOVE, PATH | HANDLE | NAME | FOLLOW },
	{ "seek", FILES_SEEK, HANDLE | MUST_HANDLE | RANGE | WHENCE },
};
static const struct {
	const char *name;
	unsigned takes;
} members[] = {
	{ "path", PATH },
	{ "path_b64", PATH },
	{ "from", FROM_TO },
	{ "from_b64", FROM_TO },
	{ "to", FROM_TO },
	{ "to_b64", FROM_TO },
	{ "target", TARGET },
	{ "target_b64", TARGET },
	{ "name", NAME },
	{ "type", TYPE },
	{ "atime", TIMES },
	{ "mtime", TIMES },
	{ "whence", WHENCE },
	{ "handle", HANDLE },
	{ "to_handle", TO_RANGE },
	{ "flags", FLAGS },
	{ "value", VALUE },
	{ "follow", FOLLOW },
	{ "mode", MODE },
	{ "uid", OWNER },
	{ "gid", OWNER },
	{ "size", SIZE },
	{ "offset", RANGE },
	{ "length", RANGE },
	{ "to_offset", TO_RANGE },
};
static const struct {
	enum files_op op;
	const char *word;
	unsigned flag, mode;
} flag_words[] = {
	{ FILES_RENAME, "noreplace", FILES_NOREPLACE, 0 },
	{ FILES_RENAME, "exchange", FILES_EXCHANGE, 0 },
	{ FILES_XATTR_SET, "create", 0, 1 },
	{ FILES_XATTR_SET, "replace", 0, 2 },
	{ FILES_FALLOCATE, "keep_size", 0, FALLOC_FL_KEEP_SIZE },
	{ FILES_FALLOCATE, "punch_hole", 0, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE },
	{ FILES_FALLOCATE, "zero_range", 0, FALLOC_FL_ZERO_RANGE },
	{ FILES_FALLOCATE, "collapse_range", 0, FALLOC_FL_COLLAPSE_RANGE },
	{ FILES_FALLOCATE, "insert_range", 0, FALLOC_FL_INSERT_RANGE },
};

/* One operation, ready to be sent. */
struct ready {
	const struct op_row *row;
	struct op_body b;
	struct guestfs_args a;
	char path[GUEST_PATH_MAX], path2[GUEST_PATH_MAX];
};
struct batch {
	struct call *c;
	struct visit v;
	uint64_t client;
	struct text t;
};

static int wrong(struct err *e, const char *what)
{
	return err_set(e, ERR_INVALID_REQUEST, "%s", what);
}

static int handle_of(json_t *j, uint64_t *ret, struct err *e)
{
	const char *s = json_string_value(j);

	if (json_is_integer(j) && json_integer_value(j) > 0)
		*ret = (uint64_t)json_integer_value(j);
	else if (s && *s && strlen(s) < 20 && strspn(s, "0123456789") == strlen(s))
		*ret = strtoull(s, NULL, 10);
	else
		return wrong(e, "handle: not a handle");
	return *ret ? 0 : wrong(e, "handle: not a handle");
}

static int path_of(const char *key, const char *plain, const char *b64, char out[GUEST_PATH_MAX],
	struct err *e)
{
	_cleanup_free_ void *raw = NULL;
	size_t len;

	if (!plain == !b64)
		return err_set(e, ERR_INVALID_REQUEST, "%s: give it once, as text or as _b64", key);
	if (plain)
		return guest_path_clean(plain, strlen(plain), key, out, e);
	if (base64_decode(b64, strlen(b64), &raw, &len) < 0)
		return err_set(e, ERR_INVALID_REQUEST, "%s_b64: not base64", key);
	return guest_path_clean(raw, len, key, out, e);
}

static int target_of(const struct op_body *b, char out[GUEST_PATH_MAX], struct err *e)
{
	_cleanup_free_ void *raw = NULL;
	const char *s = b->target;
	size_t len = s ? strlen(s) : 0;

	if (!b->target == !b->target_b64)
		return wrong(e, "target: give it once, as text or as _b64");
	if (!s) {
		if (base64_decode(b->target_b64, strlen(b->target_b64), &raw, &len) < 0)
			return wrong(e, "target_b64: not base64");
		s = raw;
	}
	if (len == 0 || len >= GUEST_PATH_MAX || memchr(s, '\0', len))
		return wrong(e, "target: 1 to 4095 bytes without NUL");
	memcpy(out, s, len);
	out[len] = '\0';
	return 0;
}

/* "now", or seconds with up to nine decimals; -1.5 is half a second before -1. */
static int time_of(const char *s, unsigned set, unsigned now, unsigned *flags,
	struct files_time *ret, struct err *e)
{
	bool minus = *s == '-';
	uint64_t sec = 0;
	uint32_t nsec = 0, unit = 100000000;
	const char *p = s + minus;

	if (!strcmp(s, "now")) {
		*flags |= now;
		return 0;
	}
	if (!isdigit((unsigned char)*p))
		return wrong(e, "times: seconds.nanoseconds or now");
	for (; isdigit((unsigned char)*p) && sec < 100000000000000u; p++)
		sec = sec * 10 + (uint64_t)(*p - '0');
	if (*p == '.')
		for (p++; isdigit((unsigned char)*p) && unit; p++, unit /= 10)
			nsec += (uint32_t)(*p - '0') * unit;
	if (*p)
		return wrong(e, "times: seconds.nanoseconds or now");
	*ret = (struct files_time){ .sec = minus ? -(int64_t)sec : (int64_t)sec, .nsec = nsec };
	if (minus && nsec) {
		ret->sec--;
		ret->nsec = 1000000000 - nsec;
	}
	*flags |= set;
	return 0;
}

static int flags_of(struct ready *r, struct err *e)
{
	for (size_t i = 0; i < r->b.flags.n; i++) {
		size_t k = 0;
		while (k < ARRAY_LEN(flag_words) &&
			(flag_words[k].op != r->row->op ||
				strcmp(flag_words[k].word, r->b.flags.v[i])))
			k++;
		if (k == ARRAY_LEN(flag_words))
			return err_set_sys(
				e, ERR_INVALID_REQUEST, EINVAL, "flags[%zu]: unknown word", i);
		r->a.flags |= flag_words[k].flag;
		r->a.mode |= flag_words[k].mode;
	}
	return 0;
}

static int names_of(struct ready *r, struct err *e)
{
	const struct op_body *b = &r->b;
	unsigned takes = r->row->takes;

	if (b->handle && handle_of(b->handle, &r->a.handle, e) < 0)
		return -1;
	if (b->to_handle && handle_of(b->to_handle, &r->a.handle2, e) < 0)
		return -1;
	if ((takes & MUST_HANDLE) && !b->handle)
		return wrong(e, "handle: missing");
	if ((takes & PATH) && !b->handle) {
		if (path_of("path", b->path, b->path_b64, r->path, e) < 0)
			return -1;
		r->a.path = r->path;
	}
	if ((takes & FROM_TO) && !b->handle) {
		if (path_of("from", b->from, b->from_b64, r->path, e) < 0)
			return -1;
		r->a.path = r->path;
	}
	if ((takes & FROM_TO) && !b->to_handle) {
		if (path_of("to", b->to, b->to_b64, r->path2, e) < 0)
			return -1;
		r->a.path2 = r->path2;
	}
	return 0;
}

/* Members that mean something only to some operations. */
static int values_of(struct ready *r, struct err *e)
{
	const struct op_body *b = &r->b;
	unsigned takes = r->row->takes;
	struct guestfs_args *a = &r->a;

	a->offset = (uint64_t)(takes & SIZE ? b->size : b->offset);
	a->offset2 = (uint64_t)b->to_offset;
	a->length = b->has_length ? (uint64_t)b->length : INT64_MAX;
	a->flags |= b->follow ? FILES_FOLLOW : 0;
	if ((takes & SIZE) && !b->has_size)
		return wrong(e, "size: missing");
	a->flags |= takes & SIZE ? FILES_SET_SIZE : 0;
	if (r->row->op == FILES_SETATTR && (takes & MODE)) {
		if (!b->has_mode)
			return wrong(e, "mode: missing");
		a->flags |= FILES_SET_MODE;
	}
	if (takes & MODE)
		a->mode = b->has_mode ? b->mode & 07777 : takes & TYPE ? 0644 : 0755;
	if (takes & OWNER) {
		a->flags |= (b->has_uid ? FILES_SET_UID : 0) | (b->has_gid ? FILES_SET_GID : 0);
		a->uid = (uint32_t)b->uid;
		a->gid = (uint32_t)b->gid;
	}
	if (takes & TYPE)
		a->mode |= b->type && strcmp(b->type, "fifo") ? S_IFCHR : S_IFIFO;
	if ((takes & TIMES) && b->atime &&
		time_of(b->atime, FILES_SET_ATIME, FILES_ATIME_NOW, &a->flags, &a->atime, e) < 0)
		return -1;
	if ((takes & TIMES) && b->mtime &&
		time_of(b->mtime, FILES_SET_MTIME, FILES_MTIME_NOW, &a->flags, &a->mtime, e) < 0)
		return -1;
	if (takes & TARGET) {
		if (target_of(b, r->path2, e) < 0)
			return -1;
		a->path2 = r->path2;
	}
	return 0;
}

static int more_values_of(struct ready *r, struct err *e)
{
	const struct op_body *b = &r->b;
	unsigned takes = r->row->takes;

	if (takes & NAME) {
		if (!b->name || !*b->name)
			return wrong(e, "name: missing");
		r->a.path2 = b->name;
	}
	if (takes & VALUE) {
		if (!b->has_value || b->value.len > FILES_XATTR_MAX)
			return wrong(e, "value: base64 of at most 64 KiB");
		r->a.data = b->value.data;
		r->a.data_len = b->value.len;
	}
	if (takes & WHENCE) {
		if (!b->whence || (strcmp(b->whence, "data") && strcmp(b->whence, "hole")))
			return wrong(e, "whence: data or hole");
		r->a.mode = !strcmp(b->whence, "hole");
	}
	if (r->row->op == FILES_FALLOCATE && !b->has_length)
		return wrong(e, "length: missing");
	return flags_of(r, e);
}

static const struct op_row *row_of(const char *word)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (!strcmp(rows[i].word, word))
			return &rows[i];
	return NULL;
}

/* The common table knows more members than this operation takes. */
static int members_ok(json_t *o, const struct op_row *row, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(members); i++)
		if (!(members[i].takes & row->takes) && json_object_get(o, members[i].name))
			return err_set(e, ERR_INVALID_REQUEST, "%s: not a member of %s",
				members[i].name, row->word);
	return 0;
}

static void ready_fini(struct ready *r)
{
	schema_free(op_fields, &r->b);
}

static int make_ready(json_t *o, struct ready *r, struct err *e)
{
	memset(&r->b, 0, sizeof(r->b));
	memset(&r->a, 0, sizeof(r->a));
	if (!json_is_object(o))
		return wrong(e, "must be an object");
	if (schema_decode(op_fields, o, &r->b, e) < 0)
		return -1;
	r->row = row_of(r->b.op);
	if (!r->row)
		return wrong(e, "op: unknown operation");
	if (members_ok(o, r->row, e) < 0 || names_of(r, e) < 0 || values_of(r, e) < 0)
		return -1;
	return more_values_of(r, e);
}

static void tell_names(struct text *t, const struct guestfs_result *r)
{
	text_str(t, "\"names\":[");
	for (size_t i = 0, n = 0; i < r->data_len; i += strlen(r->data + i) + 1) {
		text_str(t, n++ ? "," : "");
		filetext_json(t, r->data + i, strlen(r->data + i));
	}
	text_str(t, "]");
}

static void tell(struct text *t, const struct op_row *row, const struct guestfs_result *r)
{
	text_add(t, "{", 1);
	if (row->op == FILES_COPY)
		text_fmt(t, "\"copied\":%lld,", (long long)r->value);
	if (row->takes & TELL_ATTR) {
		text_str(t, "\"attr\":{");
		text_attr(t, &r->attr, NULL, 0);
		text_add(t, "}", 1);
	}
	if (row->op == FILES_XATTR_GET) {
		text_str(t, "\"value\":");
		text_b64(t, r->data, r->data_len);
	}
	if (row->op == FILES_XATTR_LIST)
		tell_names(t, r);
	if (row->op == FILES_SEEK)
		text_fmt(t, "\"offset\":%lld", (long long)r->value);
	text_add(t, "}", 1);
}

static int may_go_on(struct call *c, struct err *e)
{
	if (core_stopping(c->core))
		return err_set(e, ERR_UNAVAILABLE, "the server is stopping");
	return call_gone(c) ? err_set(e, ERR_CONFLICT, "the client has left") : 0;
}

/* The worker copies a share at a time. How much there is to copy is the guest's word: nobody goes on for a client
 * that has left. */
static int copy_all(struct call *c, struct guestfs *fs, const struct ready *r,
	struct guestfs_result *ret, struct err *e)
{
	struct guestfs_args a = r->a;
	int64_t total = 0;

	for (;;) {
		a.offset = r->a.offset + (uint64_t)total;
		a.offset2 = r->a.offset2 + (uint64_t)total;
		a.length = r->a.length - (uint64_t)total;
		if (may_go_on(c, e) < 0 || guestfs_call(fs, FILES_COPY, &a, ret, e) < 0)
			return -1;
		total += ret->value;
		if (ret->value == 0 || (uint64_t)total >= r->a.length)
			break;
		guestfs_result_free(ret);
	}
	ret->value = total;
	return 0;
}

static void record(struct batch *b, const struct ready *r, const struct guestfs_result *res)
{
	if (r->row->takes & REMOVES)
		files_audit(b->c->core, b->v.s, "file.removed", r->path, 0);
	else if ((r->row->takes & WRITES) && r->a.path)
		files_audit(b->c->core, b->v.s, "file.written", r->path, 0);
	else if (r->row->op == FILES_COPY && r->a.path2)
		files_audit(b->c->core, b->v.s, "file.written", r->path2, (uint64_t)res->value);
}

static int carry_out(struct batch *b, struct ready *r, struct err *e)
{
	struct guestfs_result res;
	int n;

	r->a.client = b->client;
	n = r->row->op == FILES_COPY ? copy_all(b->c, b->v.s->fs, r, &res, e)
				     : guestfs_call(b->v.s->fs, r->row->op, &r->a, &res, e);
	if (n < 0)
		return -1;
	record(b, r, &res);
	tell(&b->t, r->row, &res);
	guestfs_result_free(&res);
	return 0;
}

/* Everything is looked at before anything is done. */
static int check_all(json_t *ops, struct ready *r, struct err *e)
{
	if (!json_is_array(ops) || json_array_size(ops) > OPS_MAX)
		return err_set(
			e, ERR_INVALID_REQUEST, "ops: a list of at most %d operations", OPS_MAX);
	for (size_t i = 0; i < json_array_size(ops); i++) {
		int n = make_ready(json_array_get(ops, i), r, e);
		ready_fini(r);
		if (n < 0)
			return err_prefix(e, "ops[%zu]: ", i);
	}
	return 0;
}

static void run_all(struct batch *b, json_t *ops, bool stop, struct ready *r)
{
	text_str(&b->t, "{\"results\":[");
	for (size_t i = 0; i < json_array_size(ops) && !b->t.failed; i++) {
		struct err one = ERR_NULL;
		text_str(&b->t, i ? "," : "");
		int n = make_ready(json_array_get(ops, i), r, &one);
		n = n < 0 ? n : carry_out(b, r, &one);
		ready_fini(r);
		if (n == 0)
			continue;
		text_str(&b->t, "{\"error\":");
		text_error(&b->t, &one, core_cap(b->c->core, CAP_ERRNO));
		text_add(&b->t, "}", 1);
		if (stop)
			break;
	}
	text_str(&b->t, "]}");
}

static int ops_body(struct call *c, const struct fs_ops_body *body, struct err *e)
{
	_cleanup_free_ struct ready *r = malloc(sizeof(*r));
	struct batch b = { .c = c, .t = { .max = BATCH_TEXT_MAX } };
	int n = -1;

	if (!r)
		return err_sys(e, ENOMEM, "file operations");
	if (check_all(body->ops, r, e) < 0 || files_client(c, &b.client, e) < 0 ||
		visit_begin(c, &b.v, e) < 0)
		return -1;
	run_all(&b, body->ops, !body->has_stop || body->stop, r);
	n = reply_text(c, 200, &b.t, e);
	text_free(&b.t);
	visit_end(&b.v);
	return n;
}

int handle_fs_ops(struct call *c, struct err *e)
{
	struct fs_ops_body b = { .ops = NULL };
	int r;

	if (call_decode(c, fs_ops_fields, &b, e) < 0)
		return -1;
	r = ops_body(c, &b, e);
	schema_free(fs_ops_fields, &b);
	return r;
}
