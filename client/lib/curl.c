/* SPDX-License-Identifier: MIT */
/* The transport over TCP and TLS. The transfer library repeats a request by itself when a
 * kept-alive connection turns out dead; that is right for GET and HEAD only, so any other method is
 * refused a second connection once its first byte may have left (prereq and open_socket below). */
#include "client/lib/exchange.h"

#include "common/curl/curl.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* An exchange and the handle that its callbacks may ask. */
struct transfer {
	struct exchange *x;
	CURL *easy;
};

static int prereq(void *arg, char *pip, char *lip, int pp, int lp)
{
	struct transfer *t = arg;

	(void)pip, (void)lip, (void)pp, (void)lp;
	t->x->sent = true;
	return CURL_PREREQFUNC_OK;
}

static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
	struct transfer *t = arg;

	(void)purpose;
	if (t->x->sent && !t->x->safe)
		return CURL_SOCKET_BAD;
	return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
	struct transfer *t = arg;
	long status = 0;

	K->easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
	t->x->status = (int)status;
	return exchange_header(t->x, p, size * n) ? size * n : 0;
}

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
	struct transfer *t = arg;

	return exchange_body(t->x, p, size * n) ? size * n : 0;
}

static size_t on_upload(char *buf, size_t size, size_t n, void *arg)
{
	struct transfer *t = arg;
	ssize_t got = exchange_upload(t->x, buf, size * n);

	return got < 0 ? CURL_READFUNC_ABORT : (size_t)got;
}

static int no_rewind(void *arg, curl_off_t off, int origin)
{
	(void)arg, (void)off, (void)origin;
	return CURL_SEEKFUNC_FAIL;
}

static void set_method(CURL *c, const struct sbx_request *q, bool has_body)
{
	bool get = !strcmp(q->method, "GET"), head = !strcmp(q->method, "HEAD");

	K->easy_setopt(c, CURLOPT_UPLOAD, 0L);
	K->easy_setopt(c, CURLOPT_POSTFIELDS, NULL);
	K->easy_setopt(c, CURLOPT_CUSTOMREQUEST, NULL);
	if (get || (!has_body && !strcmp(q->method, "DELETE"))) {
		K->easy_setopt(c, CURLOPT_HTTPGET, 1L);
	} else if (head) {
		K->easy_setopt(c, CURLOPT_NOBODY, 1L);
	} else if (q->on_read) {
		K->easy_setopt(c, CURLOPT_UPLOAD, 1L);
		K->easy_setopt(c, CURLOPT_INFILESIZE_LARGE,
			(curl_off_t)(q->body_len ? (curl_off_t)q->body_len : -1));
	} else {
		K->easy_setopt(c, CURLOPT_POST, 1L);
		K->easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->body_len);
		K->easy_setopt(c, CURLOPT_POSTFIELDS, q->body ? q->body : "");
	}
	if (!get && !head)
		K->easy_setopt(c, CURLOPT_CUSTOMREQUEST, q->method);
}

/* Appends to the list; on failure frees it and gives NULL. */
static struct curl_slist *header_add(struct curl_slist *l, const char *name, const char *value)
{
	_cleanup_free_ char *line = NULL;
	struct curl_slist *more;

	if (asprintf(&line, "%s:%s%s", name, *value ? " " : "", value) < 0) {
		line = NULL;
		K->slist_free_all(l);
		return NULL;
	}
	more = K->slist_append(l, line);
	explicit_bzero(line, strlen(line));
	if (!more)
		K->slist_free_all(l);
	return more;
}

/* Authorization, Sandbox-Background and the empty Expect. NULL: out of memory. */
static struct curl_slist *headers_base(struct sbx *s, bool background)
{
	char token[SBX_TOKEN_MAX + sizeof("Bearer ")];
	struct curl_slist *l = NULL;
	bool has;

	pthread_mutex_lock(&s->lock);
	has = s->token != NULL;
	if (has)
		snprintf(token, sizeof(token), "Bearer %s", s->token);
	pthread_mutex_unlock(&s->lock);
	l = header_add(NULL, "Expect", "");
	if (l && has)
		l = header_add(l, "Authorization", token);
	if (has)
		explicit_bzero(token, sizeof(token));
	if (l && background)
		l = header_add(l, "Sandbox-Background", "1");
	return l;
}

static struct curl_slist *headers_of(const struct exchange *x)
{
	const struct sbx_request *q = x->q;
	const char *type = q->body_type ? q->body_type : "application/json";
	struct curl_slist *l = headers_base(x->s, q->background);

	if (l && !x->safe)
		l = header_add(l, "Content-Type", x->has_body ? type : "");
	for (size_t i = 0; l && q->headers && q->headers[i]; i++) {
		struct curl_slist *more = K->slist_append(l, q->headers[i]);
		if (!more)
			K->slist_free_all(l);
		l = more;
	}
	return l;
}

static void set_options(struct transfer *t, const char *url, struct curl_slist *headers)
{
	CURL *c = t->easy;

	set_method(c, t->x->q, t->x->has_body);
	K->easy_setopt(c, CURLOPT_URL, url);
	K->easy_setopt(c, CURLOPT_HTTPHEADER, headers);
	K->easy_setopt(c, CURLOPT_PREREQFUNCTION, prereq);
	K->easy_setopt(c, CURLOPT_PREREQDATA, t);
	K->easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, open_socket);
	K->easy_setopt(c, CURLOPT_OPENSOCKETDATA, t);
	K->easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
	K->easy_setopt(c, CURLOPT_HEADERDATA, t);
	K->easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
	K->easy_setopt(c, CURLOPT_WRITEDATA, t);
	K->easy_setopt(c, CURLOPT_READFUNCTION, on_upload);
	K->easy_setopt(c, CURLOPT_READDATA, t);
	K->easy_setopt(c, CURLOPT_SEEKFUNCTION, no_rewind);
}

static CURLcode finished(struct conn *c)
{
	int left;

	for (CURLMsg *m; (m = K->multi_info_read(c->multi, &left));)
		if (m->msg == CURLMSG_DONE)
			return m->data.result;
	return CURLE_RECV_ERROR;
}

static CURLcode drive(struct exchange *x, struct conn *c)
{
	CURLcode rc = CURLE_OK;
	int running = 1;

	if (K->multi_add_handle(c->multi, c->easy) != CURLM_OK)
		return CURLE_OUT_OF_MEMORY;
	while (rc == CURLE_OK) {
		if (K->multi_perform(c->multi, &running) != CURLM_OK) {
			rc = CURLE_OUT_OF_MEMORY;
		} else if (!running) {
			rc = finished(c);
			break;
		} else {
			rc = exchange_watch(x);
			if (rc == CURLE_OK)
				K->multi_poll(c->multi, NULL, 0, exchange_slice_ms(x), NULL);
		}
	}
	K->multi_remove_handle(c->multi, c->easy);
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

static bool ready(struct exchange *x, struct conn *c)
{
	if (c->easy)
		return true;
	c->multi = K->multi_init();
	c->easy = K->easy_init();
	if (!c->multi || !c->easy)
		return false;
	K->multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, 1L);
	sbx_easy_setup(x->s, c->easy);
	return true;
}

CURLcode sbx_curl_transport(struct exchange *x, struct conn *c, bool *ret_keep)
{
	_cleanup_free_ char *url = NULL;
	struct curl_slist *headers;
	struct transfer t = { .x = x };
	long os_errno = 0;
	CURLcode rc;

	if (!ready(x, c) || asprintf(&url, "%s%s", x->s->base, x->q->path) < 0) {
		url = NULL;
		return CURLE_OUT_OF_MEMORY;
	}
	headers = headers_of(x);
	if (!headers)
		return CURLE_OUT_OF_MEMORY;
	t.easy = c->easy;
	set_options(&t, url, headers);
	rc = drive_quietly(x, c);
	K->easy_getinfo(c->easy, CURLINFO_OS_ERRNO, &os_errno);
	x->os_errno = (int)os_errno;
	K->easy_setopt(c->easy, CURLOPT_HTTPHEADER, NULL);
	K->slist_free_all(headers);
	*ret_keep = rc == CURLE_OK;
	return rc;
}
