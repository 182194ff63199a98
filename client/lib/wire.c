/* SPDX-License-Identifier: MIT */
#include "client/lib/wire.h"
#include "client/lib/exchange.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

int wire_connect(const struct sbx *s, bool (*cancelled)(void *arg), void *arg)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int64_t end = sbx_now_ms() + s->connect_timeout_ms;
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	strcpy(a.sun_path, s->socket_path); /* its length was checked when the handle was opened */
	while (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		/* The server's queue is full, and poll cannot wait for room in it. */
		if (cancelled && cancelled(arg))
			return -EINTR;
		if (sbx_now_ms() > end)
			return -ETIMEDOUT;
		poll(NULL, 0, 5);
	}
	return steal_fd(&fd);
}

static bool add(struct sbx_buf *b, const char *text)
{
	return sbx_buf_add(b, text, strlen(text));
}

static bool add_line(struct sbx_buf *b, const char *name, const char *value)
{
	return add(b, name) && add(b, value) && add(b, "\r\n");
}

static bool add_token(struct sbx *s, struct sbx_buf *b)
{
	bool ok = true;

	pthread_mutex_lock(&s->lock);
	if (s->token)
		ok = add_line(b, "Authorization: Bearer ", s->token);
	pthread_mutex_unlock(&s->lock);
	return ok;
}

/* The lines that tell what body follows. */
static bool add_body_lines(const struct sbx_request *q, struct sbx_buf *b)
{
	bool has_body = q->on_read || q->body_len > 0;
	char length[32];

	if (has_body &&
		!add_line(b, "Content-Type: ", q->body_type ? q->body_type : "application/json"))
		return false;
	if (q->on_read && !q->body_len)
		return add(b, "Transfer-Encoding: chunked\r\n");
	if (!has_body && (!strcmp(q->method, "GET") || !strcmp(q->method, "HEAD") ||
				 !strcmp(q->method, "DELETE")))
		return true;
	snprintf(length, sizeof(length), "%zu", q->body_len);
	return add_line(b, "Content-Length: ", length);
}

bool wire_head(struct sbx *s, const struct sbx_request *q, const char *upgrade, struct sbx_buf *b)
{
	const char *host = strstr(s->base, "://") + 3;
	bool ok = add(b, q->method) && add(b, " ") && add(b, q->path) && add(b, " HTTP/1.1\r\n") &&
		  add_line(b, "Host: ", host) && add_token(s, b);

	if (ok && q->background)
		ok = add(b, "Sandbox-Background: 1\r\n");
	if (ok && upgrade)
		ok = add(b, "Connection: Upgrade\r\n") && add_line(b, "Upgrade: ", upgrade);
	for (size_t i = 0; ok && q->headers && q->headers[i]; i++)
		ok = !strpbrk(q->headers[i], "\r\n") && add_line(b, q->headers[i], "");
	return ok && add_body_lines(q, b) && add(b, "\r\n");
}

int wire_status(const char *line)
{
	if ((strncmp(line, "HTTP/1.1 ", 9) != 0 && strncmp(line, "HTTP/1.0 ", 9) != 0) ||
		line[9] < '1' || line[9] > '5' || line[10] < '0' || line[10] > '9' ||
		line[11] < '0' || line[11] > '9' || (line[12] && line[12] != ' '))
		return 0;
	return (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
}

bool wire_is_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
