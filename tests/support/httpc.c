/* SPDX-License-Identifier: MIT */
#include "tests/support/httpc.h"
#include "tests/support/patience.h"
#include "tests/support/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#define WAIT_MS 20000

static int connect_to(int family, const void *addr, socklen_t len)
{
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	if (connect(fd, addr, len) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

int httpc_unix(const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
	return connect_to(AF_UNIX, &sa, sizeof(sa));
}

int httpc_tcp(unsigned short port)
{
	struct sockaddr_in sa = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};

	return connect_to(AF_INET, &sa, sizeof(sa));
}

void httpc_send_bytes(int fd, const void *buf, size_t len)
{
	const char *p = buf;

	while (len > 0) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n <= 0)
			return;
		p += n;
		len -= (size_t)n;
	}
}

void httpc_send(int fd, const char *text)
{
	httpc_send_bytes(fd, text, strlen(text));
}

/* 1 a byte or more, 0 end of stream or reset. */
static ssize_t get(int fd, void *buf, size_t len)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	ssize_t n;

	if (poll(&p, 1, patience_ms(WAIT_MS)) != 1)
		fail_msg("nothing came from the server for %d s", patience_ms(WAIT_MS) / 1000);
	n = recv(fd, buf, len, 0);
	return n < 0 ? 0 : n;
}

/* One byte after the other up to `end`, so that nothing behind it is consumed. */
static char *get_until(int fd, const char *end)
{
	size_t len = 0, size = 4096, elen = strlen(end);
	char *buf = malloc(size);

	assert_non_null(buf);
	for (;;) {
		if (len + 2 > size)
			buf = realloc(buf, size *= 2);
		assert_non_null(buf);
		if (get(fd, buf + len, 1) <= 0)
			break;
		len++;
		if (len >= elen && !memcmp(buf + len - elen, end, elen))
			break;
	}
	buf[len] = '\0';
	return buf;
}

static void append(char **buf, size_t *len, const void *data, size_t n)
{
	*buf = realloc(*buf, *len + n + 1);
	assert_non_null(*buf);
	if (n)
		memcpy(*buf + *len, data, n);
	*len += n;
	(*buf)[*len] = '\0';
}

static bool get_exact(int fd, char **buf, size_t *len, size_t n)
{
	char tmp[65536];

	while (n > 0) {
		ssize_t k = get(fd, tmp, n < sizeof(tmp) ? n : sizeof(tmp));

		if (k <= 0)
			return false;
		append(buf, len, tmp, (size_t)k);
		n -= (size_t)k;
	}
	return true;
}

/* Size of the next chunk; -1 at the end of the stream. Reads the line end behind it as well. */
static long chunk_size(int fd)
{
	_cleanup_free_ char *line = get_until(fd, "\r\n");

	if (!*line)
		return -1;
	return strtol(line, NULL, 16);
}

static bool get_chunk(int fd, char **buf, size_t *len)
{
	long n = chunk_size(fd);
	_cleanup_free_ char *end = NULL;

	if (n > 0 && !get_exact(fd, buf, len, (size_t)n))
		return false;
	if (n >= 0)
		end = get_until(fd, "\r\n");
	return n > 0;
}

struct answer httpc_head(int fd)
{
	struct answer a = { 0 };

	a.head = get_until(fd, "\r\n\r\n");
	sscanf(a.head, "HTTP/1.1 %d", &a.status);
	append(&a.body, &a.len, "", 0);
	return a;
}

struct answer httpc_answer_head(int fd)
{
	return httpc_head(fd);
}

struct answer httpc_answer(int fd)
{
	struct answer a = httpc_head(fd);
	char v[64], tmp[65536];
	ssize_t n;

	if (a.status == 0 || a.status == 100 || a.status == 101 || a.status == 204)
		return a;
	if (answer_header(&a, "Content-Length", v, sizeof(v))) {
		get_exact(fd, &a.body, &a.len, strtoul(v, NULL, 10));
	} else if (answer_header(&a, "Transfer-Encoding", v, sizeof(v))) {
		while (get_chunk(fd, &a.body, &a.len))
			;
	} else {
		while ((n = get(fd, tmp, sizeof(tmp))) > 0)
			append(&a.body, &a.len, tmp, (size_t)n);
	}
	return a;
}

static json_t *take_line(struct httpc_stream *st)
{
	char *nl = st->len ? memchr(st->buf, '\n', st->len) : NULL;
	size_t n;
	json_t *v;

	if (!nl)
		return NULL;
	n = (size_t)(nl - st->buf);
	v = json_loadb(st->buf, n, JSON_DECODE_ANY, NULL);
	if (!v)
		fail_msg("not a JSON line: %.*s", (int)n, st->buf);
	memmove(st->buf, nl + 1, st->len - n - 1);
	st->len -= n + 1;
	return v;
}

json_t *httpc_line(int fd, struct httpc_stream *st)
{
	json_t *v;

	while (!(v = take_line(st))) {
		if (st->ended)
			return NULL;
		if (!get_chunk(fd, &st->buf, &st->len))
			st->ended = true;
	}
	return v;
}

void httpc_stream_free(struct httpc_stream *st)
{
	free(st->buf);
	*st = (struct httpc_stream){ 0 };
}

bool httpc_closed(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char c;

	if (poll(&p, 1, patience_ms(ms)) != 1)
		return false;
	return recv(fd, &c, 1, 0) <= 0;
}

bool httpc_silent(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms) == 0;
}

const char *answer_header(const struct answer *a, const char *name, char *buf, size_t size)
{
	size_t n = strlen(name);

	for (const char *p = strstr(a->head, "\r\n"); p; p = strstr(p, "\r\n")) {
		p += 2;
		if (strncasecmp(p, name, n) || p[n] != ':')
			continue;
		p += n + 1;
		p += strspn(p, " ");
		snprintf(buf, size, "%.*s", (int)strcspn(p, "\r"), p);
		return buf;
	}
	return NULL;
}

json_t *answer_json(const struct answer *a)
{
	json_error_t je;
	json_t *v = json_loadb(a->body, a->len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);

	if (!v)
		fail_msg("not JSON (%s): %s%s", je.text, a->head, a->body);
	return v;
}

void answer_free(struct answer *a)
{
	free(a->head);
	free(a->body);
	*a = (struct answer){ 0 };
}

void answer_check(const struct answer *a, int status, const char *code, const char *file, int line)
{
	const char *got = NULL;
	json_t *v = NULL;

	if (a->status != status) {
		print_error("%s:%d: wanted %d, got: %s%s\n", file, line, status,
			a->head ? a->head : "", a->body ? a->body : "");
		_fail(file, line);
	}
	if (!code)
		return;
	v = json_loadb(a->body, a->len, 0, NULL);
	json_unpack(v, "{s:{s:s}}", "error", "code", &got);
	if (!got || strcmp(got, code)) {
		print_error("%s:%d: wanted code %s, got: %s\n", file, line, code, a->body);
		json_decref(v);
		_fail(file, line);
	}
	json_decref(v);
}
