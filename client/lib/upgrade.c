/* SPDX-License-Identifier: MIT */
/* Takes a connection over after a 101. Without TLS the caller gets the socket itself; with TLS it
 * gets one end of a socket pair, and a thread of ours copies between the other end and the wire. */
#include "client/lib/exchange.h"
#include "client/lib/wire.h"

#include "common/curl/curl.h"
#include "common/fs/files.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* A connection being taken over. */
struct take {
	const struct sbx *s;
	CURL *easy; /* NULL over a unix socket */
	curl_socket_t sock;
	int64_t deadline_ms;
};

static bool wait_io(const struct take *t, short events)
{
	int64_t left = t->deadline_ms - sbx_now_ms();

	return left > 0 && fd_wait(t->sock, events, left > INT32_MAX ? -1 : (int)left);
}

static CURLcode code_of(ssize_t n, CURLcode broken)
{
	return n >= 0 ? CURLE_OK : errno == EAGAIN || errno == EINTR ? CURLE_AGAIN : broken;
}

static CURLcode io_send(struct take *t, const char *p, size_t len, size_t *ret_n)
{
	ssize_t n;

	if (t->easy)
		return K->easy_send(t->easy, p, len, ret_n);
	n = send(t->sock, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);
	*ret_n = n > 0 ? (size_t)n : 0;
	return code_of(n, CURLE_SEND_ERROR);
}

static CURLcode io_recv(struct take *t, char *p, size_t max, size_t *ret_n)
{
	ssize_t n;

	if (t->easy)
		return K->easy_recv(t->easy, p, max, ret_n);
	n = recv(t->sock, p, max, MSG_DONTWAIT);
	*ret_n = n > 0 ? (size_t)n : 0;
	return code_of(n, CURLE_RECV_ERROR);
}

static CURLcode send_all(struct take *t, const char *p, size_t len)
{
	while (len > 0) {
		size_t n = 0;
		CURLcode rc = io_send(t, p, len, &n);
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
		CURLcode rc = io_recv(t, buf, max, n);
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

static int judge_header(
	struct take *t, const struct sbx_buf *head, const char *protocol, struct sbx_error *e)
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

/* What is asked for. */
struct offer {
	const char *path, *protocol;
	const char *const *headers; /* NULL: none */
	bool background;
};

static int shake_hands(struct take *t, struct sbx *s, const struct offer *o, struct sbx_error *e)
{
	struct sbx_request q = { .method = "GET", .path = o->path, .headers = o->headers,
		.background = o->background };
	struct sbx_buf req = { .max = WIRE_HEAD_MAX }, head = { .max = SBX_HEADERS_MAX };
	CURLcode rc = CURLE_OUT_OF_MEMORY;
	int r;

	if (wire_head(s, &q, o->protocol, &req))
		rc = send_all(t, req.data, req.len);
	if (rc == CURLE_OK)
		rc = recv_header(t, &head);
	r = rc == CURLE_OK ? judge_header(t, &head, o->protocol, e) : sbx_fail_curl(e, s, rc, 0, true);
	if (req.data)
		explicit_bzero(req.data, req.len);
	free(req.data);
	free(head.data);
	return r;
}

#define PUMP_ROOM 65536

/* The copying thread's state: `near` is our end of the caller's socket pair. What the wire does not
 * take at once waits in `out`, and nothing more is read from the caller meanwhile; what the caller
 * does not take waits in `in`, in the same way. The other direction goes on. */
struct pump {
	CURL *easy;
	curl_socket_t wire;
	int near;
	bool near_open, wire_open; /* may still be read */
	size_t out_len, out_at, in_len, in_at;
	char out[PUMP_ROOM], in[PUMP_ROOM];
};

/* The caller ended its half: a close-notify says that no more will come and leaves the other
 * direction open. The transfer library has no call for it, so its TLS session is asked. */
static void end_writing(struct pump *p)
{
	struct curl_tlssessioninfo *tls = NULL;

	K->easy_getinfo(p->easy, CURLINFO_TLS_SSL_PTR, &tls);
	if (tls && tls->backend == CURLSSLBACKEND_OPENSSL && tls->internals && K->ssl_shutdown)
		K->ssl_shutdown(tls->internals);
	shutdown(p->wire, SHUT_WR);
}

/* As much of `out` as the wire takes now. */
static bool flush_out(struct pump *p)
{
	while (p->out_at < p->out_len) {
		size_t n = 0;
		CURLcode rc = K->easy_send(p->easy, p->out + p->out_at, p->out_len - p->out_at, &n);
		if (rc == CURLE_AGAIN)
			return true;
		if (rc != CURLE_OK)
			return false;
		p->out_at += n;
	}
	p->out_at = p->out_len = 0;
	return true;
}

/* As much of `in` as the caller takes now. False: he has gone. */
static bool flush_in(struct pump *p)
{
	while (p->in_at < p->in_len) {
		ssize_t n = send(p->near, p->in + p->in_at, p->in_len - p->in_at, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN;
		p->in_at += (size_t)n;
	}
	p->in_at = p->in_len = 0;
	return true;
}

/* Wire to caller, until the wire has nothing more or the caller takes no more for now. False: this
 * connection is done. */
static bool pump_in(struct pump *p)
{
	while (flush_in(p)) {
		CURLcode rc;
		if (p->in_len)
			return true;
		rc = K->easy_recv(p->easy, p->in, sizeof(p->in), &p->in_len);
		if (rc != CURLE_OK)
			p->in_len = 0;
		if (rc == CURLE_AGAIN)
			return true;
		if (rc != CURLE_OK)
			return false;
		if (p->in_len == 0) {
			p->wire_open = false;
			shutdown(p->near, SHUT_WR);
			return true;
		}
	}
	return false;
}

/* The wire takes no more; what came by it the caller still gets. */
static bool wire_broke(struct pump *p)
{
	p->out_len = p->out_at = 0;
	p->near_open = p->wire_open = false;
	return p->in_len > 0;
}

static bool pump_out(struct pump *p)
{
	ssize_t n = recv(p->near, p->out, sizeof(p->out), MSG_DONTWAIT);

	if (n < 0)
		return errno == EINTR || errno == EAGAIN;
	if (n == 0) {
		p->near_open = false;
		end_writing(p);
		return true;
	}
	p->out_len = (size_t)n;
	return flush_out(p) || wire_broke(p);
}

static bool pump_once(struct pump *p)
{
	short to_wire = p->out_len ? POLLOUT : 0, from_wire = p->wire_open && !p->in_len ? POLLIN : 0;
	short to_near = p->in_len ? POLLOUT : 0, from_near = p->near_open && !p->out_len ? POLLIN : 0;
	struct pollfd f[2] = {
		{ to_wire || from_wire ? p->wire : -1, to_wire | from_wire, 0 },
		{ p->out_len && !to_near ? -1 : p->near, to_near | from_near, 0 },
	};

	if (poll(f, 2, -1) < 0)
		return errno == EINTR;
	/* What the TLS library holds is not seen by poll: who takes what waited gets that as well. */
	if (to_near ? f[1].revents : f[0].revents && p->wire_open)
		if (!pump_in(p))
			return false;
	if (p->out_len)
		return flush_out(p) || wire_broke(p);
	if (p->near_open && f[1].revents & ~POLLOUT) /* a close is met behind the last byte */
		return pump_out(p);
	/* The caller has closed its end altogether. */
	return !(f[1].revents & (POLLHUP | POLLERR));
}

static void *pump_run(void *arg)
{
	struct pump *p = arg;
	/* What came in one record with the header is in the TLS library, where poll cannot see it.
	 */
	bool go = pump_in(p);

	while (go && (p->near_open || p->wire_open || p->in_len))
		go = pump_once(p);
	K->easy_cleanup(p->easy);
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
	/* The program's signals are not for this thread; SIGPIPE from the TLS library least of all.
	 */
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
	if (*c)
		K->easy_cleanup(*c);
}

static curl_socket_t open_cloexec(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
	(void)arg, (void)purpose;
	return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

/* A connected easy handle that the caller frees, and its socket. */
static CURLcode connect_easy(struct sbx *s, CURL **ret, curl_socket_t *ret_sock, long *os_errno)
{
	CURL *easy = *ret = K->easy_init();
	CURLcode rc;

	if (!easy)
		return CURLE_OUT_OF_MEMORY;
	sbx_easy_setup(s, easy);
	K->easy_setopt(easy, CURLOPT_URL, s->base);
	K->easy_setopt(easy, CURLOPT_CONNECT_ONLY, 1L);
	K->easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_cloexec);
	rc = K->easy_perform(easy);
	if (rc == CURLE_OK)
		rc = K->easy_getinfo(easy, CURLINFO_ACTIVESOCKET, ret_sock);
	if (rc != CURLE_OK)
		K->easy_getinfo(easy, CURLINFO_OS_ERRNO, os_errno);
	return rc;
}

static void set_deadline(struct take *t)
{
	t->deadline_ms = t->s->timeout_ms < 0 ? INT64_MAX / 2 : sbx_now_ms() + t->s->timeout_ms;
}

static int upgrade_unix(struct sbx *s, const struct offer *o, int *ret_fd, struct sbx_error *e)
{
	_cleanup_close_ int fd = wire_connect(s, NULL, NULL);
	struct take t = { .s = s, .sock = fd };

	if (fd < 0)
		return sbx_fail_curl(e, s,
			fd == -ETIMEDOUT ? CURLE_OPERATION_TIMEDOUT : CURLE_COULDNT_CONNECT, -fd,
			false);
	set_deadline(&t);
	if (shake_hands(&t, s, o, e) < 0)
		return -1;
	if (take_socket(fd, ret_fd) < 0)
		return sbx_fail(e, "internal", errno, "cannot take the connection over");
	return 0;
}

static int upgrade_url(struct sbx *s, const struct offer *o, int *ret_fd, struct sbx_error *e)
{
	_cleanup_(easy_p) CURL *easy = NULL;
	struct take t = { .s = s };
	long os_errno = 0;
	CURLcode rc = connect_easy(s, &easy, &t.sock, &os_errno);

	if (rc != CURLE_OK)
		return sbx_fail_curl(e, s, rc, os_errno, false);
	t.easy = easy;
	set_deadline(&t);
	if (shake_hands(&t, s, o, e) < 0)
		return -1;
	if (!s->tls && take_socket(t.sock, ret_fd) == 0)
		return 0;
	if (s->tls && start_pump(easy, t.sock, ret_fd) == 0) {
		easy = NULL;
		return 0;
	}
	return sbx_fail(e, "internal", errno, "cannot take the connection over");
}

static int upgrade(struct sbx *s, const struct offer *o, int *ret_fd, struct sbx_error *e)
{
	if (!sbx_path_ok(o->path))
		return sbx_fail(e, "invalid_request", EINVAL, "a request's path must be encoded");
	return (s->socket_path ? upgrade_unix : upgrade_url)(s, o, ret_fd, e);
}

int sbx_upgrade(struct sbx *s, const char *path, const char *protocol, bool background, int *ret_fd,
	struct sbx_error *e)
{
	struct offer o = { .path = path, .protocol = protocol, .background = background };

	return upgrade(s, &o, ret_fd, e);
}

int sbx_fs_connect(struct sbx *s, const char *ref, const char *client, bool background, int *ret_fd,
	struct sbx_error *e)
{
	_cleanup_free_ char *path = sbx_path("/v1/sandboxes/%s/fs", ref), *line = NULL;
	const char *headers[] = { NULL, NULL };
	struct offer o = { .path = path, .protocol = FS_PROTOCOL, .headers = headers,
		.background = background };

	if (!path || (client && asprintf(&line, "Sbx-Client: %s", client) < 0)) {
		line = NULL;
		return sbx_fail(e, "internal", ENOMEM, "out of memory");
	}
	headers[0] = line;
	return upgrade(s, &o, ret_fd, e);
}
