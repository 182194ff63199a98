/* SPDX-License-Identifier: MIT */
/* One request and its answer. The transfer library repeats a request by itself when a kept-alive
 * connection turns out dead; that is right for GET and HEAD only, so any other method is refused a
 * second connection once its first byte may have left (prereq and open_socket below). */
#include "client/lib/internal.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

/* State of one call, known to the callbacks. */
struct exchange {
	struct sbx *s;
	const struct sbx_request *q;
	struct sbx_response *r;
	CURL *easy;
	bool safe;          /* GET, HEAD: may be sent again */
	bool sent;          /* a request line went out, at least in part */
	bool stopped;       /* on_data said enough */
	bool cancelled;
	bool header_done;   /* the blank line came: a cut header is not an answer */
	bool gave_up;       /* on_read said -1 */
	const char *broken; /* the answer breaks a limit: which */
	size_t header_bytes;
	int status;
	struct sbx_buf body;
	int64_t moved_ms;   /* when a byte moved last */
};

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int prereq(void *arg, char *pip, char *lip, int pp, int lp)
{
	struct exchange *x = arg;

	(void)pip, (void)lip, (void)pp, (void)lp;
	x->sent = true;
	return CURL_PREREQFUNC_OK;
}

static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
	struct exchange *x = arg;

	(void)purpose;
	if (x->sent && !x->safe)
		return CURL_SOCKET_BAD;
	return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

static void take_text(char *out, size_t size, const char *v, size_t n)
{
	if (n < size) { /* a cut value would mislead */
		memcpy(out, v, n);
		out[n] = '\0';
	}
}

static void take_header(struct sbx_response *r, const char *line, size_t len)
{
	static const struct {
		const char *name;
		size_t offset, size; /* size 0: an int64_t */
	} wanted[] = {
#define H(name, member) { name, offsetof(struct sbx_response, member), sizeof(r->member) }
		H("etag", etag), H("sbx-attr", attr), H("sbx-instance", instance),
#undef H
#define NUMBER(name, member) { name, offsetof(struct sbx_response, member), 0 }
		NUMBER("sbx-first-offset", first_offset), NUMBER("sbx-size", size),
		NUMBER("sbx-complete", complete),
#undef NUMBER
	};
	const char *colon = memchr(line, ':', len), *v, *end = line + len;

	if (!colon)
		return;
	for (v = colon + 1; v < end && (*v == ' ' || *v == '\t'); v++)
		;
	while (end > v && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' '))
		end--;
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
		if (strlen(wanted[i].name) != (size_t)(colon - line) ||
		    strncasecmp(wanted[i].name, line, (size_t)(colon - line)) != 0)
			continue;
		if (wanted[i].size)
			take_text((char *)r + wanted[i].offset, wanted[i].size, v, (size_t)(end - v));
		else if (end > v && *v >= '0' && *v <= '9')
			*(int64_t *)(void *)((char *)r + wanted[i].offset) = strtoll(v, NULL, 10);
	}
}

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
	struct exchange *x = arg;
	size_t len = size * n;
	long status = 0;

	x->moved_ms = now_ms();
	x->header_bytes += len;
	if (x->header_bytes > SBX_HEADERS_MAX) {
		x->broken = "its header is too large";
		return 0;
	}
	curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &status);
	x->status = (int)status;
	if (status < 200)
		return len;
	take_header(x->r, p, len);
	if (len == 2 && p[0] == '\r')
		x->header_done = true;
	return len;
}

static size_t body_max(const struct exchange *x)
{
	const char *type = NULL;

	if (x->status / 100 != 2)
		return SBX_ERROR_BODY_MAX;
	curl_easy_getinfo(x->easy, CURLINFO_CONTENT_TYPE, &type);
	return type && !strncasecmp(type, "application/octet-stream", 24) ? SBX_RAW_MAX : SBX_JSON_MAX;
}

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
	struct exchange *x = arg;
	size_t len = size * n;

	x->moved_ms = now_ms();
	if (x->q->on_data && x->status / 100 == 2) {
		if (x->q->on_data(x->q->arg, p, len)) {
			x->moved_ms = now_ms(); /* the taker's time is not the server's silence */
			return len;
		}
		x->stopped = true;
		return 0;
	}
	x->body.max = body_max(x);
	if (sbx_buf_add(&x->body, p, len))
		return len;
	x->broken = "its body is too large";
	return 0;
}

static size_t on_upload(char *buf, size_t size, size_t n, void *arg)
{
	struct exchange *x = arg;
	ssize_t got = x->q->on_read(x->q->arg, buf, size * n);

	x->moved_ms = now_ms();
	if (got >= 0)
		return (size_t)got;
	x->gave_up = true;
	return CURL_READFUNC_ABORT;
}

static int no_rewind(void *arg, curl_off_t off, int origin)
{
	(void)arg, (void)off, (void)origin;
	return CURL_SEEKFUNC_FAIL;
}

static void set_method(CURL *c, const struct sbx_request *q, bool has_body)
{
	bool get = !strcmp(q->method, "GET"), head = !strcmp(q->method, "HEAD");

	curl_easy_setopt(c, CURLOPT_UPLOAD, 0L);
	curl_easy_setopt(c, CURLOPT_POSTFIELDS, NULL);
	curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, NULL);
	if (get || (!has_body && !strcmp(q->method, "DELETE"))) {
		curl_easy_setopt(c, CURLOPT_HTTPGET, 1L);
	} else if (head) {
		curl_easy_setopt(c, CURLOPT_NOBODY, 1L);
	} else if (q->on_read) {
		curl_easy_setopt(c, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(c, CURLOPT_INFILESIZE_LARGE,
			(curl_off_t)(q->body_len ? (curl_off_t)q->body_len : -1));
	} else {
		curl_easy_setopt(c, CURLOPT_POST, 1L);
		curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->body_len);
		curl_easy_setopt(c, CURLOPT_POSTFIELDS, q->body ? q->body : "");
	}
	if (!get && !head)
		curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, q->method);
}

static struct curl_slist *headers_of(struct sbx *s, const struct sbx_request *q, bool has_body)
{
	const char *type = q->body_type ? q->body_type : "application/json";
	struct curl_slist *l = sbx_headers_base(s, q->background);

	if (l && strcmp(q->method, "GET") != 0 && strcmp(q->method, "HEAD") != 0)
		l = sbx_header_add(l, "Content-Type", has_body ? type : "");
	for (size_t i = 0; l && q->headers && q->headers[i]; i++) {
		struct curl_slist *more = curl_slist_append(l, q->headers[i]);
		if (!more)
			curl_slist_free_all(l);
		l = more;
	}
	return l;
}

static int timeout_of(const struct sbx *s, const struct sbx_request *q)
{
	return q->timeout_ms ? q->timeout_ms : s->timeout_ms;
}

static void set_options(struct exchange *x, const char *url, struct curl_slist *headers, bool has_body)
{
	int timeout = timeout_of(x->s, x->q);
	CURL *c = x->easy;

	set_method(c, x->q, has_body);
	curl_easy_setopt(c, CURLOPT_URL, url);
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, timeout > 0 && !x->q->on_data ? (long)timeout : 0L);
	curl_easy_setopt(c, CURLOPT_PREREQFUNCTION, prereq);
	curl_easy_setopt(c, CURLOPT_PREREQDATA, x);
	curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, open_socket);
	curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, x);
	curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(c, CURLOPT_HEADERDATA, x);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, x);
	curl_easy_setopt(c, CURLOPT_READFUNCTION, on_upload);
	curl_easy_setopt(c, CURLOPT_READDATA, x);
	curl_easy_setopt(c, CURLOPT_SEEKFUNCTION, no_rewind);
}

/* Is the call still wanted, and does the server still speak? CURLE_OK: go on. */
static CURLcode watch(struct exchange *x)
{
	int timeout = timeout_of(x->s, x->q);

	if (x->q->cancelled && x->q->cancelled(x->q->arg)) {
		x->cancelled = true;
		return CURLE_ABORTED_BY_CALLBACK;
	}
	if (x->q->on_data && timeout > 0 && now_ms() - x->moved_ms > timeout)
		return CURLE_OPERATION_TIMEDOUT;
	return CURLE_OK;
}

static CURLcode finished(struct conn *c)
{
	int left;

	for (CURLMsg *m; (m = curl_multi_info_read(c->multi, &left));)
		if (m->msg == CURLMSG_DONE)
			return m->data.result;
	return CURLE_RECV_ERROR;
}

static CURLcode drive(struct exchange *x, struct conn *c)
{
	int slice = x->q->cancelled ? 100 : 1000, running = 1;
	CURLcode rc = CURLE_OK;

	if (curl_multi_add_handle(c->multi, c->easy) != CURLM_OK)
		return CURLE_OUT_OF_MEMORY;
	while (rc == CURLE_OK) {
		if (curl_multi_perform(c->multi, &running) != CURLM_OK) {
			rc = CURLE_OUT_OF_MEMORY;
		} else if (!running) {
			rc = finished(c);
			break;
		} else {
			rc = watch(x);
			if (rc == CURLE_OK)
				curl_multi_poll(c->multi, NULL, 0, slice, NULL);
		}
	}
	curl_multi_remove_handle(c->multi, c->easy);
	return rc;
}

/* OpenSSL writes with plain write(2): a dead peer would raise SIGPIPE in the caller's thread. */
static CURLcode drive_quietly(struct exchange *x, struct conn *c)
{
	static const struct timespec no_wait;
	sigset_t pipe, old, pending;
	CURLcode rc;
	bool ours;

	if (!x->s->tls)
		return drive(x, c);
	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	sigpending(&pending);
	ours = !sigismember(&pending, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &pipe, &old);
	rc = drive(x, c);
	if (ours)
		while (sigtimedwait(&pipe, NULL, &no_wait) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc;
}

static int judge(struct exchange *x, CURLcode rc, struct sbx_error *e)
{
	long os_errno = 0;

	if (rc == CURLE_OK && !x->header_done)
		rc = CURLE_GOT_NOTHING;
	x->r->status = x->status;
	if (x->broken && x->status / 100 != 2 && x->body.len) /* enough of an error to tell */
		return sbx_fail_answer(e, x->status, NULL, 0);
	if (x->broken) {
		sbx_fail_shape(e, x->broken);
	} else if (x->stopped || (rc == CURLE_OK && x->status / 100 == 2)) {
		return 0;
	} else if (rc == CURLE_OK && x->status >= 200) {
		return sbx_fail_answer(e, x->status, x->body.data, x->body.len);
	} else if (x->gave_up) {
		sbx_fail(e, "interrupted", EINTR, "the body was not given to its end");
	} else {
		curl_easy_getinfo(x->easy, CURLINFO_OS_ERRNO, &os_errno);
		sbx_fail_curl(e, x->s, rc == CURLE_OK ? CURLE_WEIRD_SERVER_REPLY : rc, os_errno, x->sent);
	}
	if (e)
		e->sent = x->sent;
	return -1;
}

static void slist_p(struct curl_slist **l)
{
	curl_slist_free_all(*l);
}

int sbx_call(struct sbx *s, const struct sbx_request *q, struct sbx_response *ret, struct sbx_error *e)
{
	struct sbx_response spare = { .first_offset = -1, .size = -1, .complete = -1 };
	struct exchange x = { .s = s, .q = q, .r = &spare };
	bool has_body = q->on_read || q->body_len > 0;
	_cleanup_free_ char *url = NULL;
	_cleanup_(slist_p) struct curl_slist *headers = NULL;
	struct conn *c;
	CURLcode rc;
	int r;

	if (!sbx_path_ok(q->path))
		return sbx_fail(e, "invalid_request", EINVAL, "a request's path must be encoded");
	headers = headers_of(s, q, has_body);
	if (asprintf(&url, "%s%s", s->base, q->path) < 0)
		url = NULL;
	c = headers && url ? sbx_conn_take(s) : NULL;
	if (!c)
		return sbx_fail(e, "internal", ENOMEM, "out of memory");
	x.easy = c->easy;
	x.safe = !strcmp(q->method, "GET") || !strcmp(q->method, "HEAD");
	x.moved_ms = now_ms();
	set_options(&x, url, headers, has_body);
	rc = drive_quietly(&x, c);
	r = judge(&x, rc, e);
	curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, NULL);
	sbx_conn_give(s, c, rc == CURLE_OK);
	if (r == 0 && ret) {
		spare.body = steal(x.body.data);
		spare.len = x.body.len;
		if (!spare.body && !(spare.body = calloc(1, 1)))
			return sbx_fail(e, "internal", ENOMEM, "out of memory");
		*ret = spare;
	}
	free(x.body.data);
	return r;
}

void sbx_response_free(struct sbx_response *r)
{
	if (!r)
		return;
	free(r->body);
	*r = (struct sbx_response){ .first_offset = -1, .size = -1, .complete = -1 };
}
