/* SPDX-License-Identifier: MIT */
/* Files of any size. The contract's plain read and write carry 64 MiB; what is larger goes in
 * pieces through ranges and handles, where the server has them. */
#include "client/cli/cli.h"

#include "common/api/api.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>

#define PLAIN_MAX (64 * 1024 * 1024)
#define PIECE     (4 * 1024 * 1024) /* most that one handle write takes */

static int set_error(struct sbx_error *e, int sys, const char *what)
{
	*e = (struct sbx_error){ .sys = sys, .code = "internal" };
	snprintf(e->message, sizeof(e->message), "%s: %s", what, strerrordesc_np(sys));
	return -1;
}

/* A guest's names are bytes and JSON is text: what is none stands beside its shown form in base64,
 * both in answers and in requests. */
char *entry_bytes(const json_t *v, const char *key)
{
	const char *text = json_string_value(json_object_get(v, key)), *exact;
	char other[32];
	size_t len = 0;
	void *raw = NULL;
	char *out;

	(void)snprintf(other, sizeof(other), "%s_b64", key);
	exact = json_string_value(json_object_get(v, other));
	if (!exact)
		return text ? strdup(text) : NULL;
	if (base64_decode(exact, strlen(exact), &raw, &len) < 0)
		return NULL;
	out = memchr(raw, '\0', len) ? NULL : strndup(raw, len);
	free(raw);
	return out;
}

int put_bytes(json_t *o, const char *key, const char *bytes)
{
	json_t *text = json_string(bytes);
	_cleanup_free_ char *exact = text ? NULL : base64_encode(bytes, strlen(bytes));
	char other[32];

	(void)snprintf(other, sizeof(other), "%s_b64", key);
	return text ? json_object_set_new(o, key, text)
		    : json_object_set_new(o, other, exact ? json_string(exact) : NULL);
}

json_t *path_op(const char *op, const char *path)
{
	json_t *o = json_pack("{s:s}", "op", op);

	if (o && put_bytes(o, "path", path) == 0)
		return o;
	json_decref(o);
	return NULL;
}

struct sink {
	int fd, failed;
	uint64_t total, most; /* most: so much may come in all; 0: no limit */
};

/* Who shares the open file with us may have it so that it does not wait. */
static int write_waiting(int fd, const char *buf, size_t len)
{
	while (len) {
		ssize_t n = write(fd, buf, len);
		if (n < 0 && errno == EAGAIN)
			(void)fd_wait(fd, POLLOUT, -1);
		else if (n < 0 && errno != EINTR)
			return -errno;
		else if (n > 0)
			buf += n, len -= (size_t)n;
	}
	return 0;
}

ssize_t read_waiting(int fd, void *buf, size_t max)
{
	ssize_t n;

	while ((n = read(fd, buf, max)) < 0 && (errno == EINTR || errno == EAGAIN))
		if (errno == EAGAIN)
			(void)fd_wait(fd, POLLIN, -1);
	return n;
}

static bool to_fd(void *arg, const void *buf, size_t len)
{
	struct sink *s = arg;
	int r = s->most && len > s->most - s->total ? -EPROTO : write_waiting(s->fd, buf, len);

	s->total += len;
	if (r < 0)
		s->failed = -r;
	return r == 0;
}

static int get_ranges(struct cli *c, char *path, struct sink *s, struct sbx_error *e)
{
	for (;;) {
		char range[64];
		const char *headers[] = { range, NULL };
		struct sbx_request q = { .method = "GET",
			.path = path,
			.on_data = to_fd,
			.arg = s,
			.headers = headers };
		uint64_t from = s->total;
		snprintf(range, sizeof(range), "Range: bytes=%" PRIu64 "-%" PRIu64, from,
			from + PIECE - 1);
		s->most = from + PIECE; /* who gives all of it each time would do so for ever */
		if (sbx_call(c->s, &q, NULL, e) < 0)
			return e->status == 416 ? 0 : -1;
		if (s->failed == EPROTO)
			return set_error(e, EPROTO, "the server sent more than was asked for");
		if (s->failed)
			return set_error(e, s->failed, "cannot write here");
		if (s->total - from < PIECE)
			return 0;
	}
}

int file_download(struct cli *c, const char *ref, const char *path, int fd, struct sbx_error *e)
{
	_cleanup_free_ char *url = sbx_path("/v1/sandboxes/%s/files?path=%S", ref, path);
	struct sink s = { .fd = fd };
	struct sbx_request q = { .method = "GET", .path = url, .on_data = to_fd, .arg = &s };

	if (!url)
		return set_error(e, ENOMEM, path);
	if (sbx_call(c->s, &q, NULL, e) == 0)
		return s.failed ? set_error(e, s.failed, "cannot write here") : 0;
	if (e->status != 413 || !server_can(c, "fs_range"))
		return -1;
	return get_ranges(c, url, &s, e);
}

ssize_t body_from_fd(void *arg, void *buf, size_t max)
{
	return read_waiting(*(int *)arg, buf, max);
}

static int put_plain(struct cli *c, const char *ref, const char *path, int fd, uint64_t size,
	struct sbx_error *e)
{
	_cleanup_free_ char *url = sbx_path("/v1/sandboxes/%s/files?path=%S", ref, path);
	struct sbx_request q = { .method = "PUT",
		.path = url,
		.on_read = body_from_fd,
		.arg = &fd,
		.body_len = size,
		.body_type = "application/octet-stream",
		.timeout_ms = -1 };

	if (size == 0) /* nothing to announce is not an unknown length */
		q.on_read = NULL;
	return url ? sbx_call(c->s, &q, NULL, e) : set_error(e, ENOMEM, path);
}

static ssize_t read_piece(int fd, char *buf, size_t max)
{
	size_t got = 0;

	while (got < max) {
		ssize_t n = read_waiting(fd, buf + got, max - got);
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		got += (size_t)n;
	}
	return (ssize_t)got;
}

/* A handle on the file, as text. */
static int open_handle(struct cli *c, const char *ref, const char *path, const char *const *headers,
	char **ret, struct sbx_error *e)
{
	_cleanup_json_ json_t *o = json_pack("{s:[s,s,s],s:i}", "flags", "write", "create", "trunc",
				      "mode", 0644),
			      *v = NULL;
	bool told = o && put_bytes(o, "path", path) == 0;
	_cleanup_free_ char *body = told ? json_text(o) : NULL,
			    *url = sbx_path("/v1/sandboxes/%s/fs/open", ref);
	struct sbx_request q = { .method = "POST",
		.path = url,
		.body = body,
		.body_len = body ? strlen(body) : 0,
		.headers = headers };
	struct sbx_response r;
	json_t *h;

	if (!body || !url)
		return set_error(e, EINVAL, path);
	if (sbx_call(c->s, &q, &r, e) < 0)
		return -1;
	if (json_parse_any(r.body, r.len, 1 << 20, &v, NULL) < 0)
		v = NULL;
	sbx_response_free(&r);
	h = json_object_get(v, "handle");
	*ret = json_is_string(h) ? strdup(json_string_value(h))
	       : h               ? json_dumps(h, JSON_ENCODE_ANY)
				 : NULL;
	return *ret ? 0 : set_error(e, EPROTO, "open");
}

/* The n bytes that buf has already, then what follows. */
static int write_pieces(struct cli *c, const char *ref, const char *handle, int fd, char *buf,
	ssize_t n, const char *const *headers, struct sbx_error *e)
{
	uint64_t at = 0;

	for (; n > 0; n = read_piece(fd, buf, PIECE)) {
		_cleanup_free_ char *url = sbx_path(
			"/v1/sandboxes/%s/fs/handles/%s?offset=%lld", ref, handle, (long long)at);
		struct sbx_request q = { .method = "PUT",
			.path = url,
			.body = buf,
			.body_len = (size_t)n,
			.body_type = "application/octet-stream",
			.headers = headers };
		if (!url)
			return set_error(e, ENOMEM, "upload");
		if (sbx_call(c->s, &q, NULL, e) < 0)
			return -1;
		at += (uint64_t)n;
	}
	return n < 0 ? set_error(e, errno, "read") : 0;
}

/* The server knows the open file by its number alone. */
static void name_handle(struct sbx_error *e, const char *path)
{
	static const char by_number[] = "handle: ";
	char text[sizeof(e->message)];

	if (strncmp(e->message, by_number, sizeof(by_number) - 1) != 0)
		return;
	(void)snprintf(text, sizeof(text), "%s: %s", path, e->message + sizeof(by_number) - 1);
	memcpy(e->message, text, sizeof(text));
}

/* What ends within one piece is written whole, so that an input that breaks off early leaves the
 * old file. */
static int put_pieces(struct cli *c, const char *ref, const char *path, int fd, struct sbx_error *e)
{
	_cleanup_free_ char *buf = malloc(PIECE);
	ssize_t n = buf ? read_piece(fd, buf, PIECE) : -1;

	char client[64];
	const char *headers[] = { client, NULL };
	_cleanup_free_ char *handle = NULL, *url = NULL;
	struct sbx_error ignored;
	int r;

	if (n < 0)
		return set_error(e, buf ? errno : ENOMEM, "read");
	if (n < PIECE)
		return sbx_file_put(c->s, ref, path, buf, (size_t)n, e);
	snprintf(client, sizeof(client), "Sbx-Client: sbx-%d", (int)getpid());
	if (open_handle(c, ref, path, headers, &handle, e) < 0)
		return -1;
	r = write_pieces(c, ref, handle, fd, buf, n, headers, e);
	url = sbx_path("/v1/sandboxes/%s/fs/handles/%s", ref, handle);
	struct sbx_request q = { .method = "DELETE", .path = url, .headers = headers };
	if (url && sbx_call(c->s, &q, NULL, r < 0 ? &ignored : e) < 0)
		r = -1; /* a close can report a failed write */
	if (r < 0)
		name_handle(e, path);
	return r;
}

int file_upload(struct cli *c, const char *ref, const char *path, int fd, struct sbx_error *e)
{
	struct stat st;
	off_t at = lseek(fd, 0, SEEK_CUR);

	if (fstat(fd, &st) < 0)
		return set_error(e, errno, "upload");
	if (S_ISREG(st.st_mode) && at >= 0 && st.st_size - at <= PLAIN_MAX)
		return put_plain(
			c, ref, path, fd, st.st_size > at ? (uint64_t)(st.st_size - at) : 0, e);
	if (server_can(c, "fs_open"))
		return put_pieces(c, ref, path, fd, e);
	if (S_ISREG(st.st_mode)) {
		*e = (struct sbx_error){ .sys = EFBIG,
			.code = "unsupported",
			.message = "this server takes files of at most 64 MiB" };
		return -1;
	}
	/* A pipe of unknown length: in chunks, and the server says when it is too much. */
	_cleanup_free_ char *url = sbx_path("/v1/sandboxes/%s/files?path=%S", ref, path);
	struct sbx_request q = { .method = "PUT",
		.path = url,
		.on_read = body_from_fd,
		.arg = &fd,
		.body_type = "application/octet-stream",
		.timeout_ms = -1 };
	return url ? sbx_call(c->s, &q, NULL, e) : set_error(e, ENOMEM, path);
}

/* The error of the one operation, wherever the answer holds it. */
static int op_result(json_t *v, struct sbx_error *e)
{
	json_t *first = json_array_get(json_object_get(v, "results"), 0);
	json_t *error = json_object_get(first, "error");
	const char *message = json_string_value(json_object_get(error, "message"));
	const char *code = json_string_value(json_object_get(error, "code"));
	const char *name = json_string_value(json_object_get(error, "errno"));

	if (!json_is_object(first))
		return set_error(e, EPROTO, "file operation");
	if (!error)
		return 0;
	*e = (struct sbx_error){ .sys = err_errno_of_name(name ? name : "") };
	snprintf(e->code, sizeof(e->code), "%s", code ? code : "internal");
	snprintf(e->message, sizeof(e->message), "%s", message ? message : "the operation failed");
	return -1;
}

int file_op(struct cli *c, const char *ref, json_t *op, struct sbx_error *e)
{
	_cleanup_json_ json_t *v = NULL;
	struct sbx_response r;
	int bad;

	if (!op)
		return set_error(e, EINVAL, "file operation");
	if (ask(c, "POST", sbx_path("/v1/sandboxes/%s/fs/ops", ref),
		    json_pack("{s:[o]}", "ops", op), &r, e) < 0)
		return -1;
	bad = json_parse_any(r.body, r.len, 1 << 20, &v, NULL) < 0;
	sbx_response_free(&r);
	return bad ? set_error(e, EPROTO, "file operation") : op_result(v, e);
}

#define ENTRIES_MAX 1000000 /* of a folder; the mount has the same */

struct gather {
	json_t *list;
	json_t *last; /* the line that ends a page */
	bool many;
};

static bool on_entry(void *arg, const char *text, size_t len)
{
	struct gather *g = arg;
	json_t *v = NULL;

	if (json_parse_any(text, len, 1 << 20, &v, NULL) < 0)
		return false;
	if (json_object_get(v, "end")) {
		json_decref(g->last);
		g->last = v;
		return true;
	}
	g->many = json_array_size(g->list) >= ENTRIES_MAX;
	if (g->many)
		json_decref(v);
	else
		json_array_append_new(g->list, v);
	return !g->many;
}

static int too_many(struct sbx_error *e)
{
	*e = (struct sbx_error){ .sys = E2BIG,
		.code = "internal",
		.message = "the folder has more than 1,000,000 entries" };
	return -1;
}

/* The detailed listing, page after page. */
static int list_entries(
	struct cli *c, const char *ref, const char *path, json_t *list, struct sbx_error *e)
{
	struct gather g = { .list = list };
	_cleanup_free_ char *after = NULL;
	int r;

	do {
		struct lines l = { .line = on_entry, .arg = &g };
		char *url = after ? sbx_path("/v1/sandboxes/%s/fs/list?path=%S&after=%s", ref, path,
					    after)
				  : sbx_path("/v1/sandboxes/%s/fs/list?path=%S", ref, path);
		const char *next;
		r = ask_lines(c, url, &l, e);
		next = json_string_value(json_object_get(g.last, "next"));
		if (g.many)
			r = too_many(e);
		else if (r == 0 && (!g.last || (next && after && !strcmp(next, after))))
			r = set_error(e, EPROTO, path); /* it would never end */
		free(after);
		after = next ? strdup(next) : NULL;
		json_decref(g.last);
		g.last = NULL;
	} while (r == 0 && after);
	return r;
}

int dir_entries(struct cli *c, const char *ref, const char *path, json_t **ret, struct sbx_error *e)
{
	_cleanup_json_ json_t *list = json_array(), *v = NULL;
	struct sbx_response r;
	json_t *plain;

	if (list_entries(c, ref, path, list, e) == 0) {
		*ret = steal(list);
		return 0;
	}
	if (e->status != 501)
		return -1;
	if (ask(c, "GET", sbx_path("/v1/sandboxes/%s/dirs?path=%S", ref, path), NULL, &r, e) < 0)
		return -1;
	if (json_parse_any(r.body, r.len, 64 << 20, &v, NULL) < 0)
		v = NULL;
	sbx_response_free(&r);
	plain = json_object_get(v, "entries");
	if (!json_is_array(plain))
		return set_error(e, EPROTO, path);
	*ret = json_incref(plain);
	return 0;
}
