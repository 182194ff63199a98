/* SPDX-License-Identifier: MIT */
/* Frames of sbx-stream/1: one letter, four bytes of length, the payload. The length is checked
 * before a byte of it is taken. */
#include "client/include/sbx.h"

#include "common/sys/fd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

int sbx_frame_read(int fd, char *ret_type, void *buf, size_t *ret_len)
{
	unsigned char head[5];
	uint32_t len;
	int r = fd_read_full(fd, head, sizeof(head));

	if (r == -ENODATA)
		return 0;
	if (r < 0)
		return -1;
	memcpy(&len, head + 1, sizeof(len));
	len = ntohl(len);
	if (len > SBX_FRAME_MAX || (len && fd_read_full(fd, buf, len) < 0))
		return -1;
	*ret_type = (char)head[0];
	*ret_len = len;
	return 1;
}

int sbx_frame_write(int fd, char type, const void *buf, size_t len)
{
	unsigned char head[5] = { (unsigned char)type };
	uint32_t be = htonl((uint32_t)len);
	struct iovec iov[2] = { { head, sizeof(head) }, { (void *)(uintptr_t)buf, len } };
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };

	if (len > SBX_FRAME_MAX)
		return -1;
	memcpy(head + 1, &be, sizeof(be));
	while (iov[0].iov_len + iov[1].iov_len > 0) {
		ssize_t n = sendmsg(fd, &m, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		for (int i = 0; i < 2; i++) {
			size_t took = (size_t)n < iov[i].iov_len ? (size_t)n : iov[i].iov_len;
			iov[i].iov_base = (char *)iov[i].iov_base + took;
			iov[i].iov_len -= took;
			n -= (ssize_t)took;
		}
	}
	return 0;
}
