/* SPDX-License-Identifier: MIT */
#include "client/lib/exchange.h"

#include "common/sys/mem.h"

#include <string.h>
#include <time.h>

int64_t sbx_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void exchange_begin(struct exchange *x)
{
	x->safe = !strcmp(x->q->method, "GET") || !strcmp(x->q->method, "HEAD");
	x->has_body = x->q->on_read || x->q->body_len > 0;
	x->start_ms = x->moved_ms = sbx_now_ms();
}

static void take_text(char *out, size_t size, const char *v, size_t n)
{
	if (n < size) { /* a cut value would mislead */
		memcpy(out, v, n);
		out[n] = '\0';
	}
}

/* The headers that an answer shows to its caller. */
static const struct wanted {
	const char *name;
	size_t offset, size; /* size 0: an int64_t */
} wanted[] = {
#define TEXT(name, member)                                                                         \
	{                                                                                          \
		name, offsetof(struct sbx_response, member),                                       \
			sizeof(((struct sbx_response *)0)->member)                                 \
	}
#define NUMBER(name, member)                                                                       \
	{                                                                                          \
		name, offsetof(struct sbx_response, member), 0                                     \
	}
	TEXT("etag", etag),
	TEXT("sbx-attr", attr),
	TEXT("sbx-instance", instance),
	NUMBER("sbx-first-offset", first_offset),
	NUMBER("sbx-size", size),
	NUMBER("sbx-complete", complete),
#undef TEXT
#undef NUMBER
};

static void take_header(struct exchange *x, const char *line, size_t len)
{
	const char *colon = memchr(line, ':', len), *v, *end = line + len;
	size_t name;

	if (!colon)
		return;
	name = (size_t)(colon - line);
	for (v = colon + 1; v < end && (*v == ' ' || *v == '\t'); v++)
		;
	while (end > v && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' '))
		end--;
	if (name == 12 && !strncasecmp(line, "content-type", 12))
		x->raw = end - v >= 24 && !strncasecmp(v, "application/octet-stream", 24);
	for (const struct wanted *w = wanted; w < wanted + ARRAY_LEN(wanted); w++) {
		if (strlen(w->name) != name || strncasecmp(w->name, line, name) != 0)
			continue;
		char *member = (char *)x->r + w->offset;
		if (w->size)
			take_text(member, w->size, v, (size_t)(end - v));
		else if (end > v && *v >= '0' && *v <= '9')
			*(int64_t *)(void *)member = strtoll(v, NULL, 10);
	}
}

bool exchange_header(struct exchange *x, const char *line, size_t len)
{
	x->moved_ms = sbx_now_ms();
	x->header_bytes += len;
	if (x->header_bytes > SBX_HEADERS_MAX) {
		x->broken = "its header is too large";
		return false;
	}
	if (x->status < 200)
		return true;
	if (len == 0 || line[0] == '\r' || line[0] == '\n')
		x->header_done = true;
	else
		take_header(x, line, len);
	return true;
}

bool exchange_body(struct exchange *x, const void *buf, size_t len)
{
	bool ok = x->status / 100 == 2;

	x->moved_ms = sbx_now_ms();
	if (ok && x->q->on_data) {
		x->stopped = !x->q->on_data(x->q->arg, buf, len);
		x->moved_ms = sbx_now_ms(); /* the taker's time is not the server's silence */
		return !x->stopped;
	}
	x->body.max = !ok ? SBX_ERROR_BODY_MAX : x->raw ? SBX_RAW_MAX : SBX_JSON_MAX;
	if (sbx_buf_add(&x->body, buf, len))
		return true;
	x->broken = "its body is too large";
	return false;
}

ssize_t exchange_upload(struct exchange *x, void *buf, size_t max)
{
	ssize_t n = x->q->on_read(x->q->arg, buf, max);

	x->moved_ms = sbx_now_ms();
	x->gave_up = n < 0;
	return n;
}

int exchange_timeout_ms(const struct exchange *x)
{
	return x->q->timeout_ms ? x->q->timeout_ms : x->s->timeout_ms;
}

int exchange_slice_ms(const struct exchange *x)
{
	int slice = x->q->cancelled ? 100 : 1000, timeout = exchange_timeout_ms(x);
	int64_t left;

	if (timeout <= 0)
		return slice;
	left = (x->q->on_data ? x->moved_ms : x->start_ms) + timeout + 1 - sbx_now_ms();
	return left < 0 ? 0 : left < slice ? (int)left : slice;
}

CURLcode exchange_watch(struct exchange *x)
{
	int timeout = exchange_timeout_ms(x);
	int64_t since = x->q->on_data ? x->moved_ms : x->start_ms;

	if (x->q->cancelled && x->q->cancelled(x->q->arg))
		return CURLE_ABORTED_BY_CALLBACK;
	if (timeout > 0 && sbx_now_ms() - since > timeout)
		return CURLE_OPERATION_TIMEDOUT;
	return CURLE_OK;
}
