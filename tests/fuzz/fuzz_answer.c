/* SPDX-License-Identifier: MIT */
/* The client's parser of HTTP answers: whatever a server sends, the limits hold, the end is
 * reached, and what is shown to people is printable. */
#include "tests/fuzz/fuzz.h"

#include "client/lib/exchange.h"

#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_MOST 100000 /* what a socket's buffer takes without a reader */

static void printable(const char *s)
{
	for (; *s; s++)
		promise((unsigned char)*s >= 0x20 && *s != 0x7f);
}

int fuzz_answer(const uint8_t *data, size_t size)
{
	struct sbx s = { .endpoint = (char[]){ "unix:///x" },
		.socket_path = (char[]){ "/x" },
		.timeout_ms = 10000 };
	struct sbx_request q = { .method = size && data[0] & 1 ? "GET" : "HEAD", .path = "/x" };
	struct sbx_response r = { .first_offset = -1, .size = -1, .complete = -1 };
	struct exchange x = { .s = &s, .q = &q, .r = &r };
	struct conn c = { .fd = -1 };
	struct sbx_error e;
	int sv[2];
	CURLcode rc;

	if (size < 1 || size > ANSWER_MOST)
		return 0;
	promise(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) == 0);
	promise(send(sv[1], data + 1, size - 1, MSG_DONTWAIT) == (ssize_t)(size - 1));
	close(sv[1]);
	c.fd = sv[0];
	exchange_begin(&x);
	rc = sbx_unix_answer(&x, &c);
	promise(rc != CURLE_OPERATION_TIMEDOUT && rc != CURLE_OUT_OF_MEMORY);
	promise(x.body.len < size && x.header_bytes <= SBX_HEADERS_MAX + 65538);
	promise(rc != CURLE_OK || (x.header_done && x.status >= 200 && x.status < 600));
	promise(strlen(r.etag) < sizeof(r.etag) && strlen(r.attr) < sizeof(r.attr));
	sbx_fail_answer(&e, x.status, x.body.data, x.body.len);
	printable(e.message);
	printable(e.code);
	promise(e.sys > 0);
	close(c.fd);
	free(c.in);
	free(x.body.data);
	return 0;
}
