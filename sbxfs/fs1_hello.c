/* SPDX-License-Identifier: MIT */
/* The first words on a connection, before anybody else uses it: which version, what the peer can do, and
 * memory for both when it is on this machine. */
#include "sbxfs/fs1_priv.h"

#include "common/sys/fd.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#define HELLO_MS 5000

static int recv_full(int fd, void *buf, size_t len, uint64_t until_ms)
{
	char *p = buf;

	while (len) {
		uint64_t now = now_ms();
		ssize_t n;

		if (now >= until_ms || !fd_wait(fd, POLLIN, (int)(until_ms - now)))
			return -ETIMEDOUT;
		n = recv(fd, p, len, MSG_DONTWAIT);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ECONNRESET;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

static void timeouts(int fd, int recv_ms)
{
	struct timeval in = { recv_ms / 1000, recv_ms % 1000 * 1000 };
	struct timeval out = { .tv_sec = FS1_SEND_MS / 1000 };

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &in, sizeof(in));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &out, sizeof(out));
}

/* The peer refuses when the descriptor did not reach it: then it is on another machine. */
static int share(struct fs1_conn *c, uint64_t until_ms)
{
	struct {
		struct fs_frame f;
		struct files_req r;
	} m = { .f = { .op = FILES_SHARE, .tag = 1, .len = sizeof(m.r) },
		.r.length = (uint64_t)FS1_PIECES * CHUNK };
	struct files_rep rep;
	struct fs_frame f;
	int fd, rc;

	if (!fs1_share_begin(c, &fd))
		return 0;
	rc = fd_send_msg(c->fd, &m, sizeof(m), &fd, 1);
	if (rc == 0)
		rc = recv_full(c->fd, &f, sizeof(f), until_ms);
	if (rc == 0)
		rc = f.len == sizeof(rep) ? recv_full(c->fd, &rep, sizeof(rep), until_ms) : -EPROTO;
	if (rc == 0 && (!fs1_head_ok(&f, &rep) || f.tag != 1 || f.op != FILES_SHARE))
		rc = -EPROTO;
	if (rc < 0 || f.value < 0)
		fs1_share_end(c);
	return rc;
}

int fs1_say_hello(struct fs1_conn *c)
{
	struct {
		struct fs_frame f;
		struct files_req r;
	} m = { .f = { .op = FILES_HELLO, .tag = 1, .value = FS_VERSION, .len = sizeof(m.r) } };
	uint64_t until = now_ms() + (uint64_t)mount_patience(c->m, HELLO_MS);
	struct files_rep rep;
	struct fs_frame f;
	int rc;

	timeouts(c->fd, FS1_LOOK_MS);
	rc = fd_send_msg(c->fd, &m, sizeof(m), NULL, 0);
	if (rc == 0)
		rc = recv_full(c->fd, &f, sizeof(f), until);
	if (rc == 0)
		rc = f.len == sizeof(rep) + sizeof(c->hello) ?
			recv_full(c->fd, &rep, sizeof(rep), until) : -EPROTO;
	if (rc == 0)
		rc = recv_full(c->fd, &c->hello, sizeof(c->hello), until);
	if (rc == 0 && (!fs1_head_ok(&f, &rep) || f.tag != 1 || !fs1_hello_ok(&f, &rep, &c->hello)))
		rc = -EPROTO;
	if (rc == 0)
		rc = share(c, until);
	if (c->hello.inflight_max < c->limit)
		c->limit = c->hello.inflight_max;
	return rc;
}
