/* SPDX-License-Identifier: MIT */
/* One request in, one answer out. Lengths are looked at as soon as they are there, before anything
 * that they count is read. */
#include "sandboxd/worker/state.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOVE_MS   (FS_PROGRESS_SECS * 1000)
#define STARVE_MS 2000 /* so long when other streams find no thread */
#define SLICE_MS  500

struct head {
	struct proto_frame f;
	struct files_req q;
};

static bool lengths_ok(const struct job *j)
{
	const struct files_req *q = &j->q;
	uint64_t sum = sizeof(*q) + (uint64_t)q->path_len + q->path2_len + q->data_len;
	uint32_t most = j->stream ? FS_PATH_MAX : FILES_PATH_MAX;

	return q->path_len < most && q->path2_len < most && q->data_len <= FILES_DATA_MAX && sum == j->f.len;
}

static bool take_path(char *to, const char *from, uint32_t len)
{
	memcpy(to, from, len);
	to[len] = '\0';
	return strlen(to) == len;
}

/* False: nothing has moved for too long. */
static bool wait_move(struct worker *w, const struct stream *s, int fd, short events)
{
	for (int waited = 0; waited < MOVE_MS; waited += SLICE_MS) {
		if (fd_wait(fd, events, SLICE_MS))
			return true;
		if (s && waited >= STARVE_MS && streams_starve(w))
			return false;
	}
	return false;
}

/* Like recv; a descriptor that comes along is kept if there is none yet. */
static ssize_t recv_some(int fd, void *buf, size_t len, int *ret_fd)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} ctl;
	struct iovec v = { buf, len };
	struct msghdr m = { .msg_iov = &v,
		.msg_iovlen = 1,
		.msg_control = ctl.buf,
		.msg_controllen = sizeof(ctl.buf) };
	ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
	size_t count = 0;
	int got;

	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); /* the room for one holds two */
	for (size_t i = 0; i < count; i++) {
		memcpy(&got, CMSG_DATA(c) + i * sizeof(int), sizeof(got));
		if (*ret_fd >= 0)
			close(got);
		else
			*ret_fd = got;
	}
	return n;
}

/* The frame's length is looked at before the rest of the head has come. Result as of wire_read. */
static int read_head(const struct job *j, int fd, struct head *h, int *ret_fd)
{
	size_t got = 0;

	while (got < sizeof(*h)) {
		ssize_t n = recv_some(fd, (char *)h + got, sizeof(*h) - got, ret_fd);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN && wait_move(j->w, j->stream, fd, POLLIN))
			continue;
		if (n <= 0)
			return n == 0 && got == 0 ? 0 : -1;
		got += (size_t)n;
		if (got >= sizeof(h->f) && h->f.len < sizeof(h->q))
			return -1;
	}
	return 1;
}

static bool recv_all(const struct job *j, int fd, char *buf, size_t len)
{
	while (len) {
		ssize_t n = recv(fd, buf, len, MSG_DONTWAIT);
		if (n < 0 && (errno == EINTR ||
				     (errno == EAGAIN && wait_move(j->w, j->stream, fd, POLLIN))))
			continue;
		if (n <= 0)
			return false;
		buf += n;
		len -= (size_t)n;
	}
	return true;
}

int wire_read(int fd, struct job *j, char *in, int *ret_fd)
{
	struct head h;
	int r;

	*ret_fd = -1;
	r = read_head(j, fd, &h, ret_fd);
	if (r <= 0)
		return r;
	j->f = h.f;
	j->q = h.q;
	if (!lengths_ok(j) || !recv_all(j, fd, in, j->f.len - sizeof(j->q)))
		return -1;
	j->data = in + j->q.path_len + j->q.path2_len;
	return take_path(j->path, in, j->q.path_len) &&
			       take_path(j->path2, in + j->q.path_len, j->q.path2_len)
		       ? 1
		       : -1;
}

static void skip(struct msghdr *m, size_t done)
{
	while (m->msg_iovlen && done >= m->msg_iov->iov_len) {
		done -= m->msg_iov->iov_len;
		m->msg_iov++;
		m->msg_iovlen--;
	}
	if (!m->msg_iovlen)
		return;
	m->msg_iov->iov_base = (char *)m->msg_iov->iov_base + done;
	m->msg_iov->iov_len -= done;
}

bool wire_send(struct worker *w, const struct stream *s, int fd, struct iovec *v, size_t n)
{
	struct msghdr m = { .msg_iov = v, .msg_iovlen = n };

	for (skip(&m, 0); m.msg_iovlen;) {
		ssize_t sent = sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent >= 0)
			skip(&m, (size_t)sent);
		else if (errno != EINTR && !(errno == EAGAIN && wait_move(w, s, fd, POLLOUT)))
			return false;
	}
	return true;
}

size_t wire_push(struct push *p, struct iovec v[PUSH_PARTS])
{
	if (!p->f.value)
		return 0;
	p->f.len = (uint32_t)sizeof(p->rep) + p->rep.data_len;
	v[0] = (struct iovec){ &p->f, sizeof(p->f) };
	v[1] = (struct iovec){ &p->rep, sizeof(p->rep) };
	v[2] = (struct iovec){ p->data, p->rep.data_len };
	return PUSH_PARTS;
}

bool wire_answer(int fd, struct job *j, int64_t value, struct push *before)
{
	struct iovec v[PUSH_PARTS + 3];
	size_t n = before ? wire_push(before, v) : 0;

	if (value < 0) {
		j->out_len = 0;
		j->rep.handle = 0;
	}
	if (!j->stream && __atomic_load_n(&j->w->nclosed, __ATOMIC_RELAXED))
		j->rep.flags |= FILES_REP_EXPIRED;
	j->rep.data_len = (uint32_t)j->out_len;
	j->f.len = (uint32_t)(sizeof(j->rep) + j->out_len);
	j->f.flags = 0;
	j->f.value = value;
	v[n++] = (struct iovec){ &j->f, sizeof(j->f) };
	v[n++] = (struct iovec){ &j->rep, sizeof(j->rep) };
	v[n++] = (struct iovec){ j->out, j->out_len };
	return wire_send(j->w, j->stream, fd, v, n);
}
