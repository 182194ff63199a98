/* SPDX-License-Identifier: MIT */
/* Input of a process: first the bytes given at its start, then the waiting writers in their order.
 * Only the first writer writes, so two requests never mix; a process that does not read parks them. */
#include "common/sys/mem.h"
#include "sandboxd/shim/state.h"

#include <errno.h>
#include <sys/epoll.h>

void input_unqueue(struct conn *c)
{
	struct conn **p = &c->writing->writers;

	while (*p && *p != c)
		p = &(*p)->next_writer;
	if (*p)
		*p = c->next_writer;
	c->next_writer = NULL;
	c->writing = NULL;
}

static void finish(struct shim *s, struct conn *c, int64_t value)
{
	input_unqueue(c);
	conn_answer(s, c, value, 0, -1);
}

/* Nothing can be written any more: everybody who waits hears it. */
void input_close(struct shim *s, struct proc *p)
{
	source_close(s, &p->in);
	close_p(&p->in_data);
	p->in_data = -1;
	p->in_open = false;
	if (p->head)
		__atomic_store_n(&p->head->stdin_closed, 1, __ATOMIC_RELEASE);
	while (p->writers)
		finish(s, p->writers, -EPIPE);
}

/* 1: all taken, 0: must wait, -1: nobody reads there any more. */
static int push(const struct proc *p, const char *buf, size_t len, size_t *ret_done)
{
	*ret_done = 0;
	while (*ret_done < len) {
		ssize_t n = write(p->in.fd, buf + *ret_done, len - *ret_done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0 || (n < 0 && errno == EAGAIN))
			return 0;
		if (n < 0)
			return -1;
		*ret_done += (size_t)n;
	}
	return 1;
}

static int push_data(struct shim *s, struct proc *p)
{
	while (p->in_data >= 0) {
		ssize_t n = pread(p->in_data, s->buf, sizeof(s->buf), (off_t)p->in_pos);
		size_t done;
		if (n <= 0) {
			close(steal_fd(&p->in_data));
			break;
		}
		int r = push(p, s->buf, (size_t)n, &done);
		p->in_pos += done;
		if (r <= 0)
			return r;
	}
	return 1;
}

static int push_writers(struct shim *s, struct proc *p)
{
	while (p->writers) {
		struct conn *c = p->writers;
		size_t done;
		int r = push(p, c->body + c->written, c->body_len - c->written, &done);
		c->written += done;
		if (r <= 0)
			return r;
		finish(s, c, 0);
	}
	return 1;
}

void input_pump(struct shim *s, struct proc *p)
{
	int r;

	if (p->in.fd < 0)
		return;
	r = push_data(s, p);
	if (r > 0)
		r = push_writers(s, p);
	if (r == 0)
		(void)source_watch(s, &p->in, EPOLLOUT);
	else if (r < 0 || !p->in_open)
		input_close(s, p);
	else
		source_unwatch(s, &p->in);
}

void input_ready(struct shim *s, struct source *src)
{
	input_pump(s, (struct proc *)src);
}
