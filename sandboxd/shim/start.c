/* SPDX-License-Identifier: MIT */
/* START: checks the request, makes pipes or a terminal, hands the guest's ends to init. The window
 * size is set before anything can ask for it. */
#include "common/sys/mem.h"
#include "sandboxd/init/init.h"
#include "sandboxd/shim/state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#define DEFAULT_ROWS 24
#define DEFAULT_COLS 80

struct guest_ends {
	int fds[6]; /* stdio, cgroup.procs, payload */
	size_t n;
};

static void ends_close(struct guest_ends *g)
{
	while (g->n)
		close(g->fds[--g->n]);
}

static int add_stream(struct shim *s, struct proc *p, int index, int fd)
{
	struct stream *st = calloc(1, sizeof(*st));

	if (!st) {
		close(fd);
		return -ENOMEM;
	}
	st->src = (struct source){ .fd = fd, .ready = output_ready };
	st->proc = p;
	st->index = index;
	p->out[index] = st;
	return source_watch(s, &st->src, EPOLLIN);
}

static int nonblock(int fd)
{
	return fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int make_pipes(struct shim *s, struct proc *p, struct guest_ends *g)
{
	int fd[2], r;

	if (pipe2(fd, O_CLOEXEC) < 0)
		return -errno;
	g->fds[g->n++] = fd[0];
	p->in.fd = fd[1];
	if ((r = nonblock(fd[1])) < 0)
		return r;
	for (int i = 0; i < 2; i++) {
		if (pipe2(fd, O_CLOEXEC) < 0)
			return -errno;
		g->fds[g->n++] = fd[1];
		if ((r = nonblock(fd[0])) < 0) {
			close(fd[0]);
			return r;
		}
		if ((r = add_stream(s, p, i, fd[0])) < 0)
			return r;
	}
	return 0;
}

static int make_tty(struct shim *s, struct proc *p, const struct proto_start *m, struct guest_ends *g)
{
	const int flags = O_RDWR | O_NOCTTY | O_CLOEXEC;
	bool fitted = m->rows && m->cols;
	struct winsize w = { .ws_row = fitted ? m->rows : DEFAULT_ROWS,
		.ws_col = fitted ? m->cols : DEFAULT_COLS };
	int dir = s->boot.devpts_fd, unlock = 0;
	_cleanup_close_ int fd = dir >= 0 ? openat(dir, "ptmx", flags | O_NONBLOCK)
					  : open("/dev/ptmx", flags | O_NONBLOCK);

	if (fd < 0 || ioctl(fd, TIOCSPTLCK, &unlock) < 0 || ioctl(fd, TIOCSWINSZ, &w) < 0)
		return -errno;
	int peer = ioctl(fd, TIOCGPTPEER, flags);
	if (peer < 0)
		return -errno;
	g->fds[g->n++] = peer;
	/* Its own descriptor, because readiness to read and to write are two sources. */
	if ((p->in.fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)) < 0)
		return -errno;
	return add_stream(s, p, 0, steal_fd(&fd));
}

static int payload_file(const char *strings, size_t len)
{
	int fd = memfd_create("start", MFD_CLOEXEC);

	if (fd >= 0 && write(fd, strings, len) != (ssize_t)len)
		close(steal_fd(&fd));
	return fd;
}

static int queue_job(struct shim *s, const struct proc *p, const struct init_start *m,
	const char *strings, size_t len, struct guest_ends *g)
{
	struct start_job *j = malloc(sizeof(*j) + sizeof(*m) + len);

	if (!j)
		return -ENOMEM;
	*j = (struct start_job){ .num = p->num, .nfds = g->n, .len = sizeof(*m) + len };
	memcpy(j->msg, m, sizeof(*m));
	memcpy(j->msg + sizeof(*m), strings, len);
	memcpy(j->fds, g->fds, sizeof(j->fds));
	g->n = 0;
	*s->jobs_last = j;
	s->jobs_last = &j->next;
	return 0;
}

/* After events of init, and on the tick: in the order of arrival, until there is no room again. */
void start_retry(struct shim *s)
{
	while (s->jobs) {
		struct start_job *j = s->jobs;
		if (init_send(s, j->msg, j->len, NULL, 0, j->fds, j->nfds) == -EAGAIN)
			return;
		s->jobs = j->next;
		if (!s->jobs)
			s->jobs_last = &s->jobs;
		for (size_t i = 0; i < j->nfds; i++)
			close(j->fds[i]);
		free(j);
	}
}

static int hand_over(struct shim *s, struct proc *p, const struct proto_start *m,
	const char *strings, struct guest_ends *g)
{
	struct init_start im = { .op = INIT_START, .num = p->num, .argc = m->argc, .envc = m->envc,
		.len = m->len, .flags = (p->tty ? INIT_TTY : 0) | (p->in_cgroup ? INIT_CGROUP : 0) };
	size_t len = m->len;
	int r;

	if (len > INIT_INLINE_MAX) {
		int fd = payload_file(strings, len);
		if (fd < 0)
			return -ENOMEM;
		g->fds[g->n++] = fd;
		im.flags |= INIT_MEMFD;
		len = 0;
	}
	r = s->jobs ? -EAGAIN : init_send(s, &im, sizeof(im), strings, len, g->fds, g->n);
	return r == -EAGAIN ? queue_job(s, p, &im, strings, len, g) : r;
}

static int set_up(struct shim *s, struct proc *p, const struct proto_start *m, const char *strings,
	struct guest_ends *g)
{
	int procs = -1;
	int r = p->tty ? make_tty(s, p, m, g) : make_pipes(s, p, g);

	if (r < 0 || (r = cgroup_make(s, p, &procs)) < 0)
		return r;
	if (procs >= 0)
		g->fds[g->n++] = procs;
	return hand_over(s, p, m, strings, g);
}

static int check(struct shim *s, const struct conn *c, struct proto_start *m)
{
	if (c->body_len < sizeof(*m))
		return -EPROTO;
	memcpy(m, c->body, sizeof(*m));
	if (m->len != c->body_len - sizeof(*m) || m->len > PROTO_START_MAX || m->argc < 1 ||
	    c->nfds != (m->flags & PROTO_START_STDIN ? 2 : 1))
		return -EPROTO;
	if (s->nstarting >= STARTING_MAX)
		return -EAGAIN;
	return proc_find(s, (uint32_t)c->in.frame.value) ? -EEXIST : 0;
}

static struct proc *make_proc(struct conn *c, const struct proto_start *m)
{
	struct proc *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->num = (uint32_t)c->in.frame.value;
	p->tty = m->flags & PROTO_START_TTY;
	p->in_open = m->flags & PROTO_START_OPEN;
	p->spool = -1;
	p->in = (struct source){ .fd = -1, .ready = input_ready };
	p->in_data = m->flags & PROTO_START_STDIN ? steal_fd(&c->fds[1]) : -1;
	return p;
}

void start_call(struct shim *s, struct conn *c)
{
	struct guest_ends g = { .n = 0 };
	struct proto_start m;
	struct proc *p = NULL;
	int r = check(s, c, &m);

	if (r == 0 && !(p = make_proc(c, &m)))
		r = -ENOMEM;
	if (r < 0)
		return conn_answer(s, c, r, PROTO_AT_SHIM, -1);
	proc_add(s, p);
	r = spool_open(p, steal_fd(&c->fds[0]));
	if (r == 0)
		r = set_up(s, p, &m, c->body + sizeof(m), &g);
	ends_close(&g);
	if (r < 0) {
		cgroup_drop(s, p);
		proc_free(s, p);
		return conn_answer(s, c, r, PROTO_AT_SHIM, -1);
	}
	s->nstarting++;
	p->starter = c;
	c->start = p;
}
