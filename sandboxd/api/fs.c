/* SPDX-License-Identifier: MIT */
/* Files by attribute and by handle: the additions fs_stat, fs_list, fs_open, fs_statfs. Handles
 * belong to the client named by the header Sbx-Client and end 60 s after that client was last heard
 * of; a handle made without the header ends after ten minutes without use. Audit: when a handle is
 * closed (or has expired) one file.written with the bytes written, if any were or if its open made
 * or emptied the file, and one file.read with the bytes read, if any were. */
#include "sandboxd/api/files.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define WRITE_MAX (4u * 1024 * 1024)

int files_enter(struct call *c, struct visit *v, uint64_t *client, struct err *e)
{
	if (files_client(c, client, e) < 0 || visit_begin(c, v, e) < 0)
		return -1;
	struct files_log x = { .core = c->core, .s = v->s };
	guestfs_expired(v->s->fs, files_log_done, &x);
	return 0;
}

/* `path` or `path_b64` of a body. */
static int body_path(const char *path, const char *b64, char out[GUEST_PATH_MAX], struct err *e)
{
	_cleanup_free_ void *raw = NULL;
	size_t len;

	if (path && !b64)
		return guest_path_clean(path, strlen(path), "path", out, e);
	if (!b64 || path)
		return err_set(e, ERR_INVALID_REQUEST, "path: give either path or path_b64");
	if (base64_decode(b64, strlen(b64), &raw, &len) < 0)
		return err_set(e, ERR_INVALID_REQUEST, "path_b64: not base64");
	return guest_path_clean(raw, len, "path_b64", out, e);
}

static int flag_of_query(struct call *c, const char *key, bool *ret, struct err *e)
{
	const char *v;
	size_t len;

	if (call_query(c, key, &v, &len, e) < 0)
		return -1;
	*ret = v && strcmp(v, "0") && strcmp(v, "false");
	return 0;
}

/* Attributes */
static int stat_text(struct guestfs *fs, uint64_t client, const char *path, bool follow,
	struct text *t, struct err *e)
{
	struct guestfs_args a = {
		.client = client, .path = path, .flags = follow ? FILES_FOLLOW : 0
	};
	struct guestfs_result r;

	if (guestfs_call(fs, FILES_STAT, &a, &r, e) < 0)
		return -1;
	text_add(t, "{", 1);
	text_attr(t, &r.attr, r.data, r.data_len);
	text_add(t, "}", 1);
	guestfs_result_free(&r);
	return 0;
}

int handle_fs_stat(struct call *c, struct err *e)
{
	char path[GUEST_PATH_MAX];
	_cleanup_(text_free) struct text t = TEXT_NULL;
	_cleanup_visit_ struct visit v = { .s = NULL };
	uint64_t client;
	bool follow;

	if (files_path(c, path, e) < 0 || flag_of_query(c, "follow", &follow, e) < 0 ||
		files_enter(c, &v, &client, e) < 0)
		return -1;
	if (stat_text(v.s->fs, client, path, follow, &t, e) < 0)
		return -1;
	return reply_text(c, 200, &t, e);
}

/* {"results":[Attr or {"error":…}, …]}, in the order asked. */
int handle_fs_stat_many(struct call *c, struct err *e)
{
	struct fs_stat_body b = { .follow = false };
	_cleanup_(text_free) struct text t = TEXT_NULL;
	_cleanup_visit_ struct visit v = { .s = NULL };
	char path[GUEST_PATH_MAX];
	uint64_t client;
	int r = -1;

	if (call_decode(c, fs_stat_fields, &b, e) < 0)
		return -1;
	if (files_enter(c, &v, &client, e) < 0)
		goto out;
	text_str(&t, "{\"results\":[");
	for (size_t i = 0; i < b.paths.n; i++) {
		struct err one = ERR_NULL;
		if (i)
			text_add(&t, ",", 1);
		if (guest_path_clean(b.paths.v[i], strlen(b.paths.v[i]), "path", path, &one) == 0 &&
			stat_text(v.s->fs, client, path, b.follow, &t, &one) == 0)
			continue;
		text_str(&t, "{\"error\":");
		text_error(&t, &one, core_cap(c->core, CAP_ERRNO));
		text_add(&t, "}", 1);
	}
	text_str(&t, "]}");
	r = reply_text(c, 200, &t, e);
out:
	schema_free(fs_stat_fields, &b);
	return r;
}

int handle_fs_statfs(struct call *c, struct err *e)
{
	char path[GUEST_PATH_MAX];
	struct guestfs_args a = { .path = path };
	struct guestfs_result r;
	struct files_statfs s;
	_cleanup_(text_free) struct text t = TEXT_NULL;
	_cleanup_visit_ struct visit v = { .s = NULL };

	if (files_path(c, path, e) < 0 || files_enter(c, &v, &a.client, e) < 0 ||
		guestfs_call(v.s->fs, FILES_STATFS, &a, &r, e) < 0)
		return -1;
	memcpy(&s, r.data, sizeof(s));
	guestfs_result_free(&r);
	sandbox_space(c->core, v.s, path, &s);
	text_fmt(&t,
		"{\"bsize\":%lld,\"blocks\":%lld,\"bfree\":%lld,\"bavail\":%lld,\"files\":%lld,"
		"\"ffree\":%lld,\"namelen\":%lld}",
		(long long)(s.bsize & INT64_MAX), (long long)(s.blocks & INT64_MAX),
		(long long)(s.bfree & INT64_MAX), (long long)(s.bavail & INT64_MAX),
		(long long)(s.files & INT64_MAX), (long long)(s.ffree & INT64_MAX),
		(long long)(s.namelen & INT64_MAX));
	return reply_text(c, 200, &t, e);
}

/* Handles */
static const struct {
	const char *word;
	unsigned flag;
} open_words[] = {
	{ "read", FILES_O_READ },
	{ "write", FILES_O_WRITE },
	{ "append", FILES_O_APPEND | FILES_O_WRITE },
	{ "create", FILES_O_CREATE },
	{ "exclusive", FILES_O_EXCL | FILES_O_CREATE },
	{ "trunc", FILES_O_TRUNC },
	{ "nofollow", 0 },
};

static int open_flags(const struct strlist *words, unsigned *ret, struct err *e)
{
	unsigned flags = FILES_FOLLOW | FILES_O_DIR_OK;

	for (size_t i = 0; i < words->n; i++) {
		size_t k = 0;
		while (k < ARRAY_LEN(open_words) && strcmp(words->v[i], open_words[k].word))
			k++;
		if (k == ARRAY_LEN(open_words))
			return err_set(e, ERR_INVALID_REQUEST, "flags[%zu]: unknown word", i);
		flags |= open_words[k].flag;
		if (!open_words[k].flag)
			flags &= ~(unsigned)FILES_FOLLOW;
	}
	if (!(flags & (FILES_O_READ | FILES_O_WRITE)))
		return err_set(e, ERR_INVALID_REQUEST, "flags: need read or write");
	if ((flags & (FILES_O_TRUNC | FILES_O_CREATE)) && !(flags & FILES_O_WRITE))
		return err_set(e, ERR_INVALID_REQUEST, "flags: create and trunc need write");
	*ret = flags;
	return 0;
}

static int open_answer(
	struct call *c, const struct guestfs_result *r, bool with_data, struct err *e)
{
	_cleanup_(text_free) struct text t = TEXT_NULL;

	text_fmt(&t, "{\"handle\":\"%llu\",\"attr\":{", (unsigned long long)r->handle);
	text_attr(&t, &r->attr, NULL, 0);
	text_add(&t, "}", 1);
	if (r->flags & FILES_REP_CREATED)
		text_str(&t, ",\"created\":true");
	if (with_data) {
		text_str(&t, ",\"data\":");
		text_b64(&t, r->data, r->data_len);
	}
	text_add(&t, "}", 1);
	return reply_text(c, 200, &t, e);
}

static int open_body(struct call *c, const struct fs_open_body *b, struct err *e)
{
	char path[GUEST_PATH_MAX];
	struct guestfs_args a = { .path = path,
		.mode = b->has_mode ? b->mode & 07777 : 0644,
		.length = (uint64_t)b->want_inline };
	struct guestfs_result r;
	_cleanup_visit_ struct visit v = { .s = NULL };
	int n;

	if (body_path(b->path, b->path_b64, path, e) < 0 ||
		open_flags(&b->flags, &a.flags, e) < 0 || files_enter(c, &v, &a.client, e) < 0 ||
		guestfs_call(v.s->fs, FILES_OPEN, &a, &r, e) < 0)
		return -1;
	n = open_answer(
		c, &r, b->want_inline > 0 && S_ISREG(r.attr.mode) && (a.flags & FILES_O_READ), e);
	if (n < 0)
		guestfs_drop(v.s->fs, a.client, r.handle);
	guestfs_result_free(&r);
	return n;
}

int handle_fs_open(struct call *c, struct err *e)
{
	struct fs_open_body b = { .path = NULL };
	int r;

	if (call_decode(c, fs_open_fields, &b, e) < 0)
		return -1;
	r = open_body(c, &b, e);
	schema_free(fs_open_fields, &b);
	return r;
}

int files_handle(struct call *c, uint64_t *ret, struct err *e)
{
	const char *h = call_param(c, "h");
	size_t n = h ? strspn(h, "0123456789") : 0;

	if (!n || n > 19 || h[n])
		return err_set_sys(e, ERR_NOT_FOUND, ESTALE, "handle: unknown, closed or expired");
	*ret = strtoull(h, NULL, 10);
	return *ret ? 0
		    : err_set_sys(e, ERR_NOT_FOUND, ESTALE, "handle: unknown, closed or expired");
}

int handle_fs_read(struct call *c, struct err *e)
{
	uint64_t client, h, offset, length;
	_cleanup_visit_ struct visit v = { .s = NULL };
	_cleanup_free_ char *buf = NULL;
	size_t n;

	if (files_number(c, "offset", 0, &offset, e) < 0 ||
		files_number(c, "length", 1024 * 1024, &length, e) < 0 ||
		files_enter(c, &v, &client, e) < 0 || files_handle(c, &h, e) < 0)
		return -1;
	length = length < FILES_DATA_MAX ? length : FILES_DATA_MAX;
	buf = malloc(length + 1);
	if (!buf)
		return err_sys(e, ENOMEM, "read a file");
	if (guestfs_read(v.s->fs, client, h, offset, buf, (size_t)length, &n, e) < 0)
		return -1;
	return reply_bytes(c, 200, buf, n);
}

/* A write: the body is gathered, at most 4 MiB, and handed over as one. So an append is one append.
 */
struct fs_write {
	struct visit v;
	uint64_t client, handle, offset;
	unsigned flags;
	char *buf;
	size_t used, room;
};

static int write_too_large(struct err *e)
{
	err_set_sys(e, ERR_INVALID_REQUEST, EFBIG, "body: at most 4 MiB in one write");
	e->http = 413;
	return -1;
}

static int write_query(struct call *c, struct fs_write *w, struct err *e)
{
	bool append, sync;

	if (files_number(c, "offset", 0, &w->offset, e) < 0 ||
		flag_of_query(c, "append", &append, e) < 0 ||
		flag_of_query(c, "sync", &sync, e) < 0)
		return -1;
	w->flags = (append ? FILES_O_APPEND : 0) | (sync ? FILES_WRITE_SYNC : 0);
	return 0;
}

int handle_fs_write_begin(struct call *c, struct err *e)
{
	int64_t len = http_content_length(c->req);
	struct fs_write *w;

	if (len > (int64_t)WRITE_MAX)
		return write_too_large(e);
	w = c->state = calloc(1, sizeof(*w));
	if (!w)
		return err_sys(e, ENOMEM, "write a file");
	w->room = len >= 0 ? (size_t)len : 65536;
	w->buf = malloc(w->room + 1);
	if (!w->buf)
		return err_sys(e, ENOMEM, "write a file");
	if (write_query(c, w, e) < 0 || files_enter(c, &w->v, &w->client, e) < 0 ||
		files_handle(c, &w->handle, e) < 0)
		return -1;
	http_set_body_max(c->req, WRITE_MAX);
	return 0;
}

int handle_fs_write_data(struct call *c, const void *buf, size_t len, struct err *e)
{
	struct fs_write *w = c->state;

	if (len > WRITE_MAX - w->used)
		return write_too_large(e);
	if (len > w->room - w->used) {
		size_t room = w->room;
		while (room - w->used < len)
			room = room ? room * 2 : 4096;
		char *p = realloc(w->buf, room);
		if (!p)
			return err_sys(e, ENOMEM, "write a file");
		w->buf = p;
		w->room = room;
	}
	memcpy(w->buf + w->used, buf, len);
	w->used += len;
	return 0;
}

/* `written` is less than the body when the disk became full in between, as with write(2). */
int handle_fs_write(struct call *c, struct err *e)
{
	struct fs_write *w = c->state;
	struct guestfs_args a = { .client = w->client,
		.handle = w->handle,
		.offset = w->offset,
		.flags = w->flags,
		.data = w->buf,
		.data_len = w->used };
	struct guestfs_result r;
	_cleanup_(text_free) struct text t = TEXT_NULL;

	if (guestfs_call(w->v.s->fs, FILES_WRITE, &a, &r, e) < 0)
		return -1;
	text_fmt(&t, "{\"written\":%lld,\"size\":%llu,\"mtime\":", (long long)r.value,
		(unsigned long long)r.attr.size);
	text_time(&t, &r.attr.mtime);
	text_fmt(&t, ",\"version\":\"%016llx\"}", (unsigned long long)r.attr.version);
	guestfs_result_free(&r);
	return reply_text(c, 200, &t, e);
}

void handle_fs_write_drop(struct call *c, bool complete)
{
	struct fs_write *w = c->state;

	(void)complete;
	if (!w)
		return;
	visit_end(&w->v);
	free(w->buf);
	free(w);
	c->state = NULL;
}

static int on_handle(struct call *c, enum files_op op, unsigned flags, struct err *e)
{
	struct guestfs_args a = { .flags = flags };
	struct guestfs_result r;
	_cleanup_visit_ struct visit v = { .s = NULL };

	if (files_enter(c, &v, &a.client, e) < 0 || files_handle(c, &a.handle, e) < 0 ||
		guestfs_call(v.s->fs, op, &a, &r, e) < 0)
		return -1;
	if (op == FILES_CLOSE)
		files_log_done(&(struct files_log){ c->core, v.s }, r.data, r.bytes_read,
			r.bytes_written, r.flags);
	guestfs_result_free(&r);
	return op == FILES_CLOSE ? reply_empty(c) : reply_json(c, 200, json_object());
}

int handle_fs_sync(struct call *c, struct err *e)
{
	struct fs_sync_body b = { .data_only = false };

	if (call_decode(c, fs_sync_fields, &b, e) < 0)
		return -1;
	return on_handle(c, FILES_SYNC, b.data_only ? FILES_DATA_ONLY : 0, e);
}

int handle_fs_close(struct call *c, struct err *e)
{
	return on_handle(c, FILES_CLOSE, 0, e);
}
