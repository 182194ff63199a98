/* SPDX-License-Identifier: MIT */
/* Takes a connection over after a 101. Without TLS the caller gets the socket itself; with TLS it
 * gets one end of a socket pair, and a thread of ours copies between the other end and the wire. */
#include "client/lib/internal.h"

#include "common/sys/fd.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define ANSWER_MAX (128 * 1024)

/* A connection being taken over. */
struct take {
	const struct sbx *s;
	CURL *easy;
	curl_socket_t sock;
	int64_t deadline_ms;
};

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static bool wait_io(const struct take *t, short events)
{
	int64_t left = t->deadline_ms - now_ms();

	return left > 0 && fd_wait(t->sock, events, left > INT32_MAX ? -1 : (int)left);
}

static CURLcode send_all(struct take *t, const char *p, size_t len)
{
	while (len > 0) {
		size_t n = 0;
		CURLcode rc = curl_easy_send(t->easy, p, len, &n);
		if (rc == CURLE_AGAIN) {
			if (!wait_io(t, POLLOUT))
				return CURLE_OPERATION_TIMEDOUT;
			continue;
		}
		if (rc != CURLE_OK)
			return rc;
		p += n;
		len -= n;
	}
	return CURLE_OK;
}

/* Reads 1..max bytes; *n 0: the end. */
static CURLcode recv_some(struct take *t, char *buf, size_t max, size_t *n)
{
	for (;;) {
		CURLcode rc = curl_easy_recv(t->easy, buf, max, n);
		if (rc != CURLE_AGAIN)
			return rc;
		if (!wait_io(t, POLLIN))
			return CURLE_OPERATION_TIMEDOUT;
	}
}

/* How many bytes may be read without taking any behind the header: over TLS one at a time (they are
 * in the library's buffer anyway), else what a look ahead shows. */
static size_t header_part(struct take *t, const struct sbx_buf *b, char *look, size_t max)
{
	size_t keep = b->len < 3 ? b->len : 3;
	char joined[4096 + 4];
	ssize_t n;

	if (t->s->tls || !wait_io(t, POLLIN))
		return 1;
	n = recv(t->sock, look, max, MSG_PEEK | MSG_DONTWAIT);
	if (n <= 0)
		return 1;
	/* The blank line may straddle what we have and what comes. */
	memcpy(joined, b->data ? b->data + b->len - keep : "", keep);
	memcpy(joined + keep, look, (size_t)n);
	const char *end = memmem(joined, keep + (size_t)n, "\r\n\r\n", 4);
	return end ? (size_t)(end + 4 - joined) - keep : (size_t)n;
}

static CURLcode recv_header(struct take *t, struct sbx_buf *b)
{
	char chunk[4096];

	for (;;) {
		size_t n = 0;
		CURLcode rc = recv_some(t, chunk, header_part(t, b, chunk, sizeof(chunk)), &n);
		if (rc != CURLE_OK)
			return rc;
		if (n == 0)
			return CURLE_GOT_NOTHING;
		if (!sbx_buf_add(b, chunk, n))
			return CURLE_WEIRD_SERVER_REPLY;
		if (b->len >= 4 && !memcmp(b->data + b->len - 4, "\r\n\r\n", 4))
			return CURLE_OK;
	}
}

/* A header's value within the block, or NULL; *len without white space around it. */
static const char *find_header(const struct sbx_buf *b, const char *name, size_t *len)
{
	size_t nlen = strlen(name);

	for (const char *p = strstr(b->data, "\r\n"); p; p = strstr(p, "\r\n")) {
		p += 2;
		if (strncasecmp(p, name, nlen) != 0 || p[nlen] != ':')
			continue;
		p += nlen + 1;
		p += strspn(p, " \t");
		*len = strcspn(p, "\r\n");
		while (*len && (p[*len - 1] == ' ' || p[*len - 1] == '\t'))
			(*len)--;
		return p;
	}
	return NULL;
}

/* Reads an error's body and reports it. A chunked body is read as it is: the JSON object in it is
 * found between its first and its last brace. */
static int refuse(struct take *t, int status, const struct sbx_buf *head, struct sbx_error *e)
{
	struct sbx_buf b = { .max = SBX_ERROR_BODY_MAX };
	char chunk[4096];
	size_t vlen, n;
	const char *v = find_header(head, "Content-Length", &vlen), *from, *to;
	size_t want = v ? strtoull(v, NULL, 10) : SIZE_MAX;
	int r;

	while (b.len < want && recv_some(t, chunk, sizeof(chunk), &n) == CURLE_OK && n > 0) {
		bool last = !v && n >= 5 && !memcmp(chunk + n - 5, "0\r\n\r\n", 5);
		if (!sbx_buf_add(&b, chunk, n) || last)
			break;
	}
	from = b.data ? memchr(b.data, '{', b.len) : NULL;
	to = b.data ? memrchr(b.data, '}', b.len) : NULL;
	r = sbx_fail_answer(e, status, from, from && to > from ? (size_t)(to + 1 - from) : 0);
	free(b.data);
	return r;
}

static int judge_header(struct take *t, const struct sbx_buf *head, const char *protocol,
	struct sbx_error *e)
{
	int status = 0;
	size_t len = 0;
	const char *v;

	if (sscanf(head->data, "HTTP/1.%*1[01] %3d", &status) != 1 || status < 100)
		return sbx_fail_shape(e, "no HTTP status");
	if (status / 100 == 2)
		return sbx_fail_shape(e, "it did not switch to the stream protocol");
	if (status != 101)
		return refuse(t, status, head, e);
	v = find_header(head, "Upgrade", &len);
	if (!v || len != strlen(protocol) || strncasecmp(v, protocol, len) != 0)
		return sbx_fail_shape(e, "it switched to another protocol");
	return 0;
}

static char *request_text(struct sbx *s, const char *path, const char *protocol, bool background)
{
	struct sbx_buf b = { .max = ANSWER_MAX };
	struct curl_slist *l = sbx_headers_base(s, background);
	const char *host = strstr(s->base, "://") + 3;
	_cleanup_free_ char *head = NULL;
	bool ok = l && asprintf(&head, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\n"
		"Upgrade: %s\r\n", path, host, protocol) >= 0;

	ok = ok && sbx_buf_add(&b, head, strlen(head));
	for (struct curl_slist *h = l; ok && h; h = h->next)
		if (h->data[strlen(h->data) - 1] != ':') /* the emptied Expect */
			ok = sbx_buf_add(&b, h->data, strlen(h->data)) && sbx_buf_add(&b, "\r\n", 2);
	ok = ok && sbx_buf_add(&b, "\r\n", 2);
	curl_slist_free_all(l);
	if (ok)
		return b.data;
	free(b.data);
	return NULL;
}

static int shake_hands(struct take *t, struct sbx *s, const char *path, const char *protocol,
	bool background, struct sbx_error *e)
{
	_cleanup_free_ char *req = request_text(s, path, protocol, background);
	struct sbx_buf head = { .max = SBX_HEADERS_MAX };
	CURLcode rc;
	int r;

	if (!req)
		return sbx_fail(e, "internal", ENOMEM, "out of memory");
	rc = send_all(t, req, strlen(req));
	if (rc == CURLE_OK)
		rc = recv_header(t, &head);
	r = rc == CURLE_OK ? judge_header(t, &head, protocol, e) : sbx_fail_curl(e, s, rc, 0, true);
	explicit_bzero(req, strlen(req));
	free(head.data);
	return r;
}

#define PUMP_ROOM 65536

/* The copying thread's state: `near` is our end of the caller's socket pair. What the wire does not
 * take at once waits in `out`, and nothing more is read from the caller meanwhile; the other
 * direction goes on. */
struct pump {
	CURL *easy;
	curl_socket_t wire;
	int near;
	bool near_open, wire_open; /* may still be read */
	size_t out_len, out_at;
	char out[PUMP_ROOM], in[PUMP_ROOM];
};

/* The caller ended its half: a close-notify says that no more will come and leaves the other
 * direction open. The transfer library has no call for it, so its TLS session is asked. */
static void end_writing(struct pump *p)
{
	struct curl_tlssessioninfo *tls = NULL;

	curl_easy_getinfo(p->easy, CURLINFO_TLS_SSL_PTR, &tls);
	if (tls && tls->backend == CURLSSLBACKEND_OPENSSL && tls->internals)
		SSL_shutdown(tls->internals);
	shutdown(p->wire, SHUT_WR);
}

/* As much of `out` as the wire takes now. */
static bool flush_out(struct pump *p)
{
	while (p->out_at < p->out_len) {
		size_t n = 0;
		CURLcode rc = curl_easy_send(p->easy, p->out + p->out_at, p->out_len - p->out_at, &n);
		if (rc == CURLE_AGAIN)
			return true;
		if (rc != CURLE_OK)
			return false;
		p->out_at += n;
	}
	p->out_at = p->out_len = 0;
	return true;
}

/* Wire to caller, until the wire has nothing more for now. False: this connection is done. */
static bool pump_in(struct pump *p)
{
	for (;;) {
		size_t n = 0;
		CURLcode rc = curl_easy_recv(p->easy, p->in, sizeof(p->in), &n);
		if (rc == CURLE_AGAIN)
			return true;
		if (rc != CURLE_OK)
			return false;
		if (n == 0) {
			p->wire_open = false;
			shutdown(p->near, SHUT_WR);
			return true;
		}
		if (fd_send_full(p->near, p->in, n, -1) < 0)
			return false;
	}
}

static bool pump_out(struct pump *p)
{
	ssize_t n = recv(p->near, p->out, sizeof(p->out), 0);

	if (n < 0)
		return errno == EINTR;
	if (n == 0) {
		p->near_open = false;
		end_writing(p);
		return true;
	}
	p->out_len = (size_t)n;
	return flush_out(p);
}

static bool pump_once(struct pump *p)
{
	short to_wire = p->out_len ? POLLOUT : 0, from_wire = p->wire_open ? POLLIN : 0;
	struct pollfd f[2] = {
		{ to_wire || from_wire ? p->wire : -1, to_wire | from_wire, 0 },
		{ p->out_len ? -1 : p->near, p->near_open ? POLLIN : 0, 0 },
	};

	if (poll(f, 2, -1) < 0)
		return errno == EINTR;
	if (f[0].revents && p->wire_open && !pump_in(p))
		return false;
	if (p->out_len)
		return flush_out(p);
	if (p->near_open && f[1].revents) /* a close is met behind the last byte */
		return pump_out(p);
	/* The caller has closed its end altogether. */
	return !(f[1].revents & (POLLHUP | POLLERR));
}

static void *pump_run(void *arg)
{
	struct pump *p = arg;
	/* What came in one record with the header is in the TLS library, where poll cannot see it. */
	bool go = pump_in(p);

	while (go && (p->near_open || p->wire_open))
		go = pump_once(p);
	curl_easy_cleanup(p->easy);
	close(p->near);
	free(p);
	return NULL;
}

/* The thread takes the easy handle. */
static int start_pump(CURL *easy, curl_socket_t wire, int *ret_fd)
{
	struct pump *p = calloc(1, sizeof(*p));
	sigset_t all, old;
	pthread_t t;
	int sv[2] = { -1, -1 }, r;

	if (!p || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0) {
		free(p);
		return -1;
	}
	p->easy = easy;
	p->wire = wire;
	p->near = sv[0];
	p->near_open = p->wire_open = true;
	/* The program's signals are not for this thread; SIGPIPE from the TLS library least of all. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&t, NULL, pump_run, p);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r != 0) {
		close(sv[0]);
		close(sv[1]);
		free(p);
		return -1;
	}
	pthread_detach(t);
	*ret_fd = sv[1];
	return 0;
}

/* A duplicate outlives the transfer library's own descriptor, which is closed with its handle. */
static int take_socket(curl_socket_t sock, int *ret_fd)
{
	int fd = fcntl(sock, F_DUPFD_CLOEXEC, 3), flags;

	if (fd < 0)
		return -1;
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0) {
		close(fd);
		return -1;
	}
	*ret_fd = fd;
	return 0;
}

static void easy_p(CURL **c)
{
	curl_easy_cleanup(*c);
}

static curl_socket_t open_cloexec(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
	(void)arg, (void)purpose;
	return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

int sbx_upgrade(struct sbx *s, const char *path, const char *protocol, bool background, int *ret_fd,
	struct sbx_error *e)
{
	_cleanup_(easy_p) CURL *easy = curl_easy_init();
	struct take t = { .s = s, .easy = easy };
	long os_errno = 0;
	CURLcode rc;

	if (!sbx_path_ok(path))
		return sbx_fail(e, "invalid_request", EINVAL, "a request's path must be encoded");
	if (!easy)
		return sbx_fail(e, "internal", ENOMEM, "out of memory");
	sbx_easy_setup(s, easy);
	curl_easy_setopt(easy, CURLOPT_URL, s->base);
	curl_easy_setopt(easy, CURLOPT_CONNECT_ONLY, 1L);
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_cloexec);
	rc = curl_easy_perform(easy);
	if (rc == CURLE_OK)
		rc = curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &t.sock);
	if (rc != CURLE_OK) {
		curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &os_errno);
		return sbx_fail_curl(e, s, rc, os_errno, false);
	}
	t.deadline_ms = s->timeout_ms < 0 ? INT64_MAX / 2 : now_ms() + s->timeout_ms;
	if (shake_hands(&t, s, path, protocol, background, e) < 0)
		return -1;
	if (!s->tls && take_socket(t.sock, ret_fd) == 0)
		return 0;
	if (s->tls && start_pump(easy, t.sock, ret_fd) == 0) {
		easy = NULL;
		return 0;
	}
	return sbx_fail(e, "internal", errno, "cannot take the connection over");
}
