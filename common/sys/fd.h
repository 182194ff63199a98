/* SPDX-License-Identifier: MIT */
/* Full reads and writes, descriptor passing. Libc only; every function returns -errno on failure. */
#ifndef COMMON_SYS_FD_H
#define COMMON_SYS_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Reads exactly `len` bytes; 0, or -errno, or -ENODATA at a clean end, -EPIPE in the middle. */
int fd_read_full(int fd, void *buf, size_t len);
int fd_write_full(int fd, const void *buf, size_t len);
/* As above on sockets: no SIGPIPE, gives up with -ETIMEDOUT when not all of it is done after
 * timeout_ms (negative: waits for ever). A peer that moves a byte now and then gains nothing. */
int fd_recv_full(int fd, void *buf, size_t len, int timeout_ms);
int fd_send_full(int fd, const void *buf, size_t len, int timeout_ms);
/* One message with at most 8 descriptors over a unix socket. fd_recv_msg gives the length received
 * (0: end of stream); descriptors arrive close-on-exec, *nfds in: room, out: count; more than
 * there is room for are closed. */
int fd_send_msg(int sock, const void *buf, size_t len, const int *fds, size_t nfds);
ssize_t fd_recv_msg(int sock, void *buf, size_t len, int *fds, size_t *nfds);
/* Waits for `events` (poll) on fd; true when they came, false at the timeout. */
bool fd_wait(int fd, short events, int timeout_ms);

#endif
