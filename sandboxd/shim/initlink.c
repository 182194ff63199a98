/* SPDX-License-Identifier: MIT */
/* Messages with init. What comes from there is a fixed struct with numbers; descriptors are never
 * taken (a plain recv discards them), and what does not fit a known process is ignored. */
#include "sandboxd/init/init.h"
#include "sandboxd/shim/state.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

int init_send(struct shim *s, const void *msg, size_t len, const void *more, size_t more_len,
	const int *fds, size_t nfds)
{
	union {
		char buf[CMSG_SPACE(6 * sizeof(int))];
		struct cmsghdr align;
	} ctl = { .buf = { 0 } };
	struct iovec iov[2] = { { (void *)(size_t)msg, len }, { (void *)(size_t)more, more_len } };
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = more_len ? 2 : 1 };

	if (nfds) {
		m.msg_control = ctl.buf;
		m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		struct cmsghdr *h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(h), fds, nfds * sizeof(int));
	}
	return sendmsg(s->boot.init_fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

int init_signal(struct shim *s, uint32_t op, uint32_t num, int sig)
{
	struct init_signal m = { .op = op, .num = num, .signal = (uint32_t)sig };

	return init_send(s, &m, sizeof(m), NULL, 0, NULL, 0);
}

static void on_started(struct shim *s, struct proc *p, const struct init_event *ev)
{
	if (p->started)
		return;
	s->nstarting--;
	if (ev->pid > 0)
		return proc_started(s, p);
	struct conn *c = p->starter;
	int error = ev->error > 0 && ev->error < 4096 ? ev->error : EIO;
	cgroup_drop(s, p);
	p->starter = NULL;
	proc_free(s, p);
	if (c) {
		c->start = NULL;
		conn_answer(s, c, -error, (uint16_t)ev->stage, -1);
	}
}

static void on_event(struct shim *s, const struct init_event *ev)
{
	struct proc *p = proc_find(s, ev->num);

	if (!p)
		return;
	if (ev->op == INIT_STARTED)
		on_started(s, p, ev);
	else if (ev->op == INIT_EXITED && p->started && !p->exited)
		proc_exited(s, p, ev->status);
}

void init_ready(struct shim *s, struct source *src)
{
	struct init_event ev;
	ssize_t n = recv(src->fd, &ev, sizeof(ev), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0) {
		if (n == (ssize_t)sizeof(ev))
			on_event(s, &ev);
		return start_retry(s);
	}
	proc_exited_all(s);
	s->ended = true;
}
