/* SPDX-License-Identifier: MIT */
#include "common/sys/fd.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

int fd_read_full(int fd, void *buf, size_t len)
{
	char *p = buf;
	size_t got = 0;

	while (got < len) {
		ssize_t n = read(fd, p + got, len - got);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return got ? -EPIPE : -ENODATA;
		got += (size_t)n;
	}
	return 0;
}

int fd_write_full(int fd, const void *buf, size_t len)
{
	const char *p = buf;

	while (len > 0) {
		ssize_t n = write(fd, p, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

bool fd_wait(int fd, short events, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = events };
	int r;

	do
		r = poll(&p, 1, timeout_ms);
	while (r < 0 && errno == EINTR);
	return r > 0;
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* *end: when all of it must be done, 0 before the first wait. */
static bool wait_until(int fd, short events, int timeout_ms, int64_t *end)
{
	int64_t now;

	if (timeout_ms < 0)
		return fd_wait(fd, events, -1);
	now = now_ms();
	if (!*end)
		*end = now + timeout_ms;
	return fd_wait(fd, events, now < *end ? (int)(*end - now) : 0);
}

int fd_recv_full(int fd, void *buf, size_t len, int timeout_ms)
{
	char *p = buf;
	size_t got = 0;
	int64_t end = 0;

	while (got < len) {
		ssize_t n = recv(fd, p + got, len - got, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			if (!wait_until(fd, POLLIN, timeout_ms, &end))
				return -ETIMEDOUT;
			continue;
		}
		if (n < 0)
			return -errno;
		if (n == 0)
			return got ? -EPIPE : -ENODATA;
		got += (size_t)n;
	}
	return 0;
}

int fd_send_full(int fd, const void *buf, size_t len, int timeout_ms)
{
	const char *p = buf;
	int64_t end = 0;

	while (len > 0) {
		ssize_t n = send(fd, p, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			if (!wait_until(fd, POLLOUT, timeout_ms, &end))
				return -ETIMEDOUT;
			continue;
		}
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

#define MAX_FDS 8

int fd_send_msg(int sock, const void *buf, size_t len, const int *fds, size_t nfds)
{
	union {
		char buf[CMSG_SPACE(MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} ctl;
	struct iovec iov = { .iov_base = (void *)(size_t)buf, .iov_len = len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (nfds > MAX_FDS)
		return -EINVAL;
	if (nfds) {
		memset(&ctl, 0, sizeof(ctl));
		m.msg_control = ctl.buf;
		m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
	}
	do
		n = sendmsg(sock, &m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if ((size_t)n < len)
		return fd_send_full(sock, (const char *)buf + n, len - (size_t)n, -1);
	return 0;
}

static void take_fds(struct msghdr *m, int *fds, size_t room, size_t *n)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (*n < room)
				fds[(*n)++] = fd;
			else
				close(fd);
		}
	}
}

ssize_t fd_recv_msg(int sock, void *buf, size_t len, int *fds, size_t *nfds)
{
	union {
		char buf[CMSG_SPACE(MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} ctl;
	struct iovec iov = { .iov_base = buf, .iov_len = len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf,
		.msg_controllen = sizeof(ctl.buf) };
	size_t room = nfds ? *nfds : 0, got = 0;
	ssize_t n;

	do
		n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (nfds)
		*nfds = 0;
	if (n < 0)
		return -errno;
	take_fds(&m, fds, room, &got);
	if (nfds)
		*nfds = got;
	return n;
}
