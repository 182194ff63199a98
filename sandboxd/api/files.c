/* SPDX-License-Identifier: MIT */
/* Whole files, section 13 of the contract. Order of refusals: path 400, unknown
 * sandbox 404, not running 409, then what the guest's files say. A small file is one round trip to
 * the worker; a large one is streamed in pieces. */
#include "sandboxd/api/files.h"

#include "common/sys/mem.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PIECE (1024u * 1024)

/* Reading */
struct range {
	uint64_t first, length;
	bool part;
};
struct download {
	struct visit v;
	uint64_t handle;
	struct range r;
	char *head; /* what came with the open: the first bytes of the file */
	size_t head_len;
	char path[GUEST_PATH_MAX];
};

static void download_free(struct download *d)
{
	if (!d)
		return;
	if (d->v.s && d->handle)
		guestfs_drop(d->v.s->fs, 0, d->handle);
	visit_end(&d->v);
	free(d->head);
	free(d);
}

static void download_free_p(struct download **d)
{
	download_free(*d);
}

static ssize_t download_read(void *arg, uint64_t pos, char *buf, size_t max)
{
	struct download *d = arg;
	uint64_t at = d->r.first + pos, left = d->r.length - pos;
	size_t n = left < max ? (size_t)left : max;

	if (pos >= d->r.length)
		return 0;
	if (at < d->head_len) {
		n = n < d->head_len - at ? n : (size_t)(d->head_len - at);
		memcpy(buf, d->head + at, n);
	} else if (guestfs_read(d->v.s->fs, 0, d->handle, at, buf, n < PIECE ? n : PIECE, &n,
			   NULL) < 0 ||
		   n == 0) {
		/* Shorter than it was: the length is already told, so the answer must break. */
		return -1;
	}
	/* Recorded before the last byte is out, so that who has all of it finds the event. */
	if (pos + n == d->r.length)
		files_audit(d->v.core, d->v.s, "file.read", d->path, d->r.length);
	return (ssize_t)n;
}

static void download_done(void *arg)
{
	download_free(arg);
}

static bool etag_matches(const char *list, const char *etag)
{
	if (!list)
		return false;
	return !strcmp(list, "*") || strstr(list, etag) != NULL;
}

static bool digits(const char **s, uint64_t *ret)
{
	char *end;

	if (!isdigit((unsigned char)**s))
		return false;
	errno = 0;
	*ret = strtoull(*s, &end, 10);
	*s = end;
	return errno == 0;
}

/* One range of bytes; anything else is as if it were not there. -1: nothing of it is in the file.
 */
static int parse_range(const char *h, uint64_t size, struct range *r)
{
	uint64_t a, b = UINT64_MAX;

	if (!h || strncmp(h, "bytes=", 6))
		return 0;
	h += 6;
	if (*h == '-') {
		h++;
		if (!digits(&h, &a) || *h)
			return 0;
		if (a == 0 || size == 0)
			return -1;
		a = a < size ? a : size;
		*r = (struct range){ size - a, a, true };
		return 0;
	}
	if (!digits(&h, &a) || *h++ != '-' || (*h && !digits(&h, &b)) || *h || b < a)
		return 0;
	if (a >= size)
		return -1;
	b = b < size ? b : size - 1;
	*r = (struct range){ a, b - a + 1, true };
	return 0;
}

static void describe(struct call *c, const struct files_attr *a, const char *etag)
{
	struct text t = TEXT_NULL;

	http_add_header(c->req, "ETag", etag);
	http_add_header(c->req, "Accept-Ranges", "bytes");
	text_add(&t, "{", 1);
	text_attr(&t, a, NULL, 0);
	text_add(&t, "}", 1);
	if (!t.failed)
		http_add_header(c->req, "Sbx-Attr", t.buf);
	text_free(&t);
}

/* Chooses what part to send. 1: answered already (not modified). */
static int choose(struct call *c, const struct files_attr *a, struct range *r, struct err *e)
{
	char etag[24], text[80];
	const char *if_range;

	*r = (struct range){ 0, a->size, false };
	if (core_cap(c->core, CAP_FS_RANGE)) {
		snprintf(etag, sizeof(etag), "\"%016llx\"", (unsigned long long)a->version);
		describe(c, a, etag);
		if (etag_matches(http_header(c->req, "If-None-Match"), etag)) {
			reply_bytes(c, 304, "", 0);
			return 1;
		}
		if_range = http_header(c->req, "If-Range");
		if ((!if_range || !strcmp(if_range, etag)) &&
			parse_range(http_header(c->req, "Range"), a->size, r) < 0) {
			snprintf(text, sizeof(text), "bytes */%llu", (unsigned long long)a->size);
			http_add_header(c->req, "Content-Range", text);
			err_set(e, ERR_INVALID_REQUEST, "range: the file ends before it");
			e->http = 416;
			return -1;
		}
	}
	if (!r->part && a->size > GUESTFS_FILE_MAX) {
		err_set_sys(e, ERR_INVALID_REQUEST, EFBIG, "the file is larger than 64 MiB");
		e->http = 413;
		return -1;
	}
	if (r->part) {
		snprintf(text, sizeof(text), "bytes %llu-%llu/%llu", (unsigned long long)r->first,
			(unsigned long long)(r->first + r->length - 1),
			(unsigned long long)a->size);
		http_add_header(c->req, "Content-Range", text);
	}
	return 0;
}

static int send_file(struct call *c, struct download **dp)
{
	struct download *d = *dp;
	int status = d->r.part ? 206 : 200;

	if (d->r.first + d->r.length <= d->head_len) {
		files_audit(d->v.core, d->v.s, "file.read", d->path, d->r.length);
		return reply_bytes(c, status, d->head + d->r.first, (size_t)d->r.length);
	}
	int64_t length = (int64_t)d->r.length;
	struct http_source src = {
		.arg = steal(*dp), .read = download_read, .done = download_done
	};
	return reply_stream(c, status, "application/octet-stream", length, &src);
}

int handle_file_get(struct call *c, struct err *e)
{
	_cleanup_(download_free_p) struct download *d = calloc(1, sizeof(*d));
	struct guestfs_args a = { .flags = FILES_FOLLOW | FILES_O_READ | FILES_INLINE_CLOSE,
		.length = FILES_INLINE_MAX };
	struct guestfs_result r;
	int n;

	if (!d)
		return err_sys(e, ENOMEM, "read a file");
	if (files_path(c, d->path, e) < 0 || visit_begin(c, &d->v, e) < 0)
		return -1;
	a.path = d->path;
	if (guestfs_call(d->v.s->fs, FILES_OPEN, &a, &r, e) < 0)
		return -1;
	d->handle = r.handle;
	d->head = r.data;
	d->head_len = r.data_len;
	/* A file that shrank while it was opened: what is there is the file. */
	if (!r.handle)
		r.attr.size = r.data_len;
	n = choose(c, &r.attr, &d->r, e);
	if (n)
		return n < 0 ? -1 : 0;
	return send_file(c, &d);
}

/* Writing */
struct upload {
	struct visit v;
	uint64_t handle, total;
	char *buf;
	size_t used;
	char path[GUEST_PATH_MAX];
};

static int too_large(struct err *e)
{
	err_set_sys(e, ERR_INVALID_REQUEST, EFBIG, "body: at most 64 MiB");
	e->http = 413;
	return -1;
}

int handle_file_put_begin(struct call *c, struct err *e)
{
	int64_t len = http_content_length(c->req);
	size_t room = len >= 0 && len < PIECE ? (size_t)len : PIECE;
	struct upload *u;

	if (len > (int64_t)GUESTFS_FILE_MAX)
		return too_large(e);
	/* Taken for the whole, a piece would cost the rest. */
	if (http_header(c->req, "Content-Range"))
		return err_set(e, ERR_INVALID_REQUEST, "Content-Range: a file is written whole");
	u = c->state = calloc(1, sizeof(*u));
	if (!u)
		return err_sys(e, ENOMEM, "write a file");
	if (files_path(c, u->path, e) < 0 || visit_begin(c, &u->v, e) < 0)
		return -1;
	u->buf = malloc(room + 1);
	if (!u->buf)
		return err_sys(e, ENOMEM, "write a file");
	http_set_body_max(c->req, GUESTFS_FILE_MAX);
	return 0;
}

static int upload_call(struct upload *u, enum files_op op, struct guestfs_args *a, struct err *e)
{
	struct guestfs_result r;

	a->path = u->path;
	a->handle = u->handle;
	if (guestfs_call(u->v.s->fs, op, a, &r, e) < 0)
		return -1;
	if (r.handle)
		u->handle = r.handle;
	guestfs_result_free(&r);
	return 0;
}

static int upload_flush(struct upload *u, struct err *e)
{
	struct guestfs_args none = { .flags = 0 };
	struct guestfs_args a = { .data = u->buf, .data_len = u->used };

	if (!u->handle && upload_call(u, FILES_PUT_BEGIN, &none, e) < 0)
		return -1;
	if (upload_call(u, FILES_PUT_DATA, &a, e) < 0)
		return -1;
	u->used = 0;
	return 0;
}

int handle_file_put_data(struct call *c, const void *buf, size_t len, struct err *e)
{
	struct upload *u = c->state;
	int64_t told = http_content_length(c->req);
	size_t room = told >= 0 && told < PIECE ? (size_t)told : PIECE;
	const char *p = buf;

	if (len > GUESTFS_FILE_MAX - u->total)
		return too_large(e);
	u->total += len;
	while (len) {
		if (u->used == room && upload_flush(u, e) < 0)
			return -1;
		size_t n = len < room - u->used ? len : room - u->used;
		if (!n)
			return err_set(
				e, ERR_INVALID_REQUEST, "body: longer than its Content-Length");
		memcpy(u->buf + u->used, p, n);
		u->used += n;
		p += n;
		len -= n;
	}
	return 0;
}

int handle_file_put(struct call *c, struct err *e)
{
	struct upload *u = c->state;
	struct guestfs_args a = { .data = u->buf, .data_len = u->used };
	struct guestfs_args none = { .flags = 0 };

	if (!u->handle) {
		if (upload_call(u, FILES_PUT, &a, e) < 0)
			return -1;
	} else if (upload_flush(u, e) < 0 || upload_call(u, FILES_PUT_COMMIT, &none, e) < 0) {
		return -1;
	}
	u->handle = 0;
	files_audit(c->core, u->v.s, "file.written", u->path, u->total);
	return reply_empty(c);
}

void handle_file_put_drop(struct call *c, bool complete)
{
	struct upload *u = c->state;
	struct guestfs_args none = { .flags = 0 };

	(void)complete; /* what was committed has no handle any more */
	if (!u)
		return;
	if (u->v.s && u->handle)
		(void)upload_call(u, FILES_PUT_ABORT, &none, NULL);
	visit_end(&u->v);
	free(u->buf);
	free(u);
	c->state = NULL;
}

int handle_file_delete(struct call *c, struct err *e)
{
	char path[GUEST_PATH_MAX];
	struct guestfs_args a = { .path = path };
	struct guestfs_result r;
	_cleanup_visit_ struct visit v = { .s = NULL };

	if (files_path(c, path, e) < 0 || visit_begin(c, &v, e) < 0)
		return -1;
	if (guestfs_call(v.s->fs, FILES_REMOVE, &a, &r, e) < 0)
		return -1;
	guestfs_result_free(&r);
	files_audit(c->core, v.s, "file.removed", path, 0);
	return reply_empty(c);
}
