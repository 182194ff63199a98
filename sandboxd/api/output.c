/* SPDX-License-Identifier: MIT */
/* Addition `output_range`: GET …/output/{stdout|stderr|both}, raw bytes. `Range: bytes=A-[B]` or
 * `bytes=-N` picks a piece of what is there now; follow=1 goes on to the end of the process.
 * Headers: Sbx-First-Offset is the first byte kept (always 0 here), Sbx-Offset where the answer
 * starts, Sbx-Size what was there, Sbx-Complete whether that is all there will ever be. `both` is
 * the streams in the order they came. */
#include "common/sys/mem.h"
#include "sandboxd/api/call.h"
#include "sandboxd/core/proc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOTH       2
#define QUIET_MS   1000
#define TO_THE_END UINT64_MAX

struct range {
	uint64_t from, to;  /* to: exclusive, or TO_THE_END */
	bool given, suffix; /* suffix: the last `from` bytes */
};

static const char *parse_number(const char *p, uint64_t *ret)
{
	char *end;

	if (*p < '0' || *p > '9')
		return NULL;
	errno = 0;
	*ret = strtoull(p, &end, 10);
	return errno || *ret > INT64_MAX ? NULL : end;
}

/* One range; several are not worth the multipart answer. */
static int parse_range(const char *text, struct range *r, struct err *e)
{
	const char *p = text;

	*r = (struct range){ .to = TO_THE_END };
	if (!text)
		return 0;
	r->given = true;
	if (strncmp(p, "bytes=", 6))
		goto bad;
	p += 6;
	r->suffix = *p == '-';
	p = parse_number(p + r->suffix, &r->from);
	if (p && r->suffix && *p == '\0')
		return 0;
	if (!p || r->suffix || *p++ != '-')
		goto bad;
	if (*p == '\0')
		return 0;
	p = parse_number(p, &r->to);
	if (p && *p == '\0' && r->to >= r->from) {
		r->to++;
		return 0;
	}
bad:
	return err_set(
		e, ERR_INVALID_REQUEST, "Range must be bytes=FIRST-, bytes=FIRST-LAST or bytes=-N");
}

struct bytes {
	struct sandbox *s; /* referenced */
	struct http_req *req;
	bool held, follow;
	int stream;
	uint64_t at, to;
	struct proc_reader reader; /* its proc; its order for BOTH */
};

static void bytes_done(void *arg)
{
	struct bytes *b = arg;

	proc_reader_fini(&b->reader);
	sandbox_release(b->s, b->held);
	sandbox_unref(b->s);
	free(b);
}

enum got { GOT_NOTHING, GOT_BYTES, GOT_END };

/* Waits up to QUIET_MS for something. */
static enum got read_some(struct bytes *b, char *buf, size_t max, size_t *ret_len)
{
	static const enum got of[] = { [PROC_READ_QUIET] = GOT_NOTHING,
		[PROC_READ_DATA] = GOT_BYTES,
		[PROC_READ_END] = GOT_END };
	int stream, code;
	bool end;

	if (b->stream == BOTH)
		return of[proc_reader_next(
			&b->reader, QUIET_MS, &stream, buf, max, ret_len, &code)];
	if (!proc_bytes_wait(b->reader.proc, b->stream, b->at, QUIET_MS))
		return GOT_NOTHING;
	*ret_len = (size_t)proc_bytes(b->reader.proc, b->stream, b->at, buf, max, &end);
	return *ret_len ? GOT_BYTES : end ? GOT_END : GOT_NOTHING;
}

static ssize_t bytes_read(void *arg, uint64_t pos, char *buf, size_t max)
{
	struct bytes *b = arg;
	size_t n;

	(void)pos;
	while (b->at < b->to) {
		switch (read_some(
			b, buf, b->to - b->at < max ? (size_t)(b->to - b->at) : max, &n)) {
		case GOT_BYTES:
			b->at += n;
			return (ssize_t)n;
		case GOT_END:
			return 0;
		case GOT_NOTHING:
			if (http_client_gone(b->req))
				return -1;
		}
	}
	return 0;
}

static void add_number(struct call *c, const char *name, uint64_t n)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
	http_add_header(c->req, name, text);
}

static void add_headers(struct call *c, const struct range *r, uint64_t size, bool complete)
{
	add_number(c, "Sbx-First-Offset", 0);
	add_number(c, "Sbx-Offset", r->from);
	add_number(c, "Sbx-Size", size);
	add_number(c, "Sbx-Complete", complete);
	http_add_header(c->req, "Accept-Ranges", "bytes");
}

static int behind_end(struct call *c, uint64_t size, struct err *e)
{
	char text[40];

	snprintf(text, sizeof(text), "bytes */%llu", (unsigned long long)size);
	http_add_header(c->req, "Content-Range", text);
	err_set(e, ERR_INVALID_REQUEST, "the range starts behind the end of the output");
	e->http = 416;
	return -1;
}

/* Fits the range to what is there; a range behind the end has nothing to answer with. */
static int fit(struct call *c, struct range *r, uint64_t size, bool follow, struct err *e)
{
	if (r->suffix) {
		r->from = r->from < size ? size - r->from : 0;
		r->suffix = false;
	}
	if (follow)
		return 0;
	if (r->given && r->from >= size && (size || r->from))
		return behind_end(c, size, e);
	if (r->to > size)
		r->to = size;
	return 0;
}

static int send_bytes(
	struct call *c, struct bytes *b, const struct range *r, uint64_t size, bool whole)
{
	struct http_source src = { b, bytes_read, bytes_done };
	char text[72];

	if (b->follow || !r->given || size == 0)
		return reply_stream(c, 200, "application/octet-stream",
			b->follow ? -1 : (int64_t)(r->to - r->from), &src);
	if (whole)
		snprintf(text, sizeof(text), "bytes %llu-%llu/%llu", (unsigned long long)r->from,
			(unsigned long long)r->to - 1, (unsigned long long)size);
	else
		snprintf(text, sizeof(text), "bytes %llu-%llu/*", (unsigned long long)r->from,
			(unsigned long long)r->to - 1);
	http_add_header(c->req, "Content-Range", text);
	return reply_stream(c, 206, "application/octet-stream", (int64_t)(r->to - r->from), &src);
}

static int stream_of_word(const char *word, struct err *e)
{
	static const char *const words[] = { "stdout", "stderr", "both" };

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (!strcmp(words[i], word))
			return (int)i;
	return err_set(e, ERR_NOT_FOUND, "no such stream: stdout, stderr or both");
}

static int answer(struct call *c, struct sandbox **s, struct proc *p, int stream, struct range *r,
	bool follow, struct err *e)
{
	bool complete;
	uint64_t size = proc_output_size(p, stream, &complete);
	struct bytes *b;

	if (fit(c, r, size, follow, e) < 0)
		return -1;
	b = calloc(1, sizeof(*b));
	if (!b)
		return err_oom(e);
	*b = (struct bytes){ .req = c->req,
		.held = sandbox_hold(*s, call_use(c)),
		.follow = follow,
		.stream = stream,
		.at = r->from,
		.to = r->to,
		.s = *s };
	proc_reader_init(&b->reader, p);
	*s = NULL;
	if (stream == BOTH && r->from && !proc_reader_skip(&b->reader, r->from)) {
		bytes_done(b);
		return behind_end(c, size, e);
	}
	add_headers(c, r, size, complete);
	return send_bytes(c, b, r, size, complete);
}

int handle_process_bytes(struct call *c, struct err *e)
{
	_cleanup_(sandbox_unref_p) struct sandbox *s = NULL;
	const char *follow = NULL;
	struct proc *p = NULL;
	struct range r;
	size_t len;
	int stream = stream_of_word(call_param(c, "stream"), e), ret = -1;

	if (stream < 0 || parse_range(http_header(c->req, "Range"), &r, e) < 0 ||
		call_query(c, "follow", &follow, &len, e) < 0 || call_sandbox(c, &s, e) < 0)
		return -1;
	struct sandbox *held = s; /* answer() may hand our reference on */
	sandbox_ref(held);
	if (proc_find(s, call_param(c, "pid"), &p, e) == 0 && proc_output_open(p, e) == 0)
		ret = answer(c, &s, p, stream, &r, follow && !strcmp(follow, "1"), e);
	proc_unref(p);
	sandbox_unref(held);
	return ret;
}
