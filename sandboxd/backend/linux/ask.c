/* SPDX-License-Identifier: MIT */
#include "sandboxd/backend/linux/ask.h"

#include "common/base/log.h"
#include "common/sys/deadline.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>

struct ask {
	int fd, stop; /* stop: eventfd that ends the reader */
	pthread_t reader;
	pthread_mutex_t lock; /* everything below */
	uint64_t tag;
	struct ask_call *calls;
	bool dead;
};

static void close_fds(int fds[ASK_FDS])
{
	for (int i = 0; i < ASK_FDS; i++) {
		close_p(&fds[i]);
		fds[i] = -1;
	}
}

/* Nobody waits for it any more: its descriptors are closed. */
static void take_answer(struct ask *a, const struct priv_ans *ans, int fds[ASK_FDS])
{
	pthread_mutex_lock(&a->lock);
	for (struct ask_call *c = a->calls; c; c = c->next)
		if (c->tag == ans->tag) {
			c->ans = *ans;
			for (int i = 0; i < ASK_FDS; i++)
				c->fds[i] = steal_fd(&fds[i]);
			c->done = true;
			pthread_cond_signal(&c->cond);
		}
	pthread_mutex_unlock(&a->lock);
	close_fds(fds);
}

static void all_dead(struct ask *a)
{
	pthread_mutex_lock(&a->lock);
	a->dead = true;
	for (struct ask_call *c = a->calls; c; c = c->next)
		pthread_cond_signal(&c->cond);
	pthread_mutex_unlock(&a->lock);
}

static void *read_answers(void *arg)
{
	struct ask *a = arg;
	struct pollfd p[2] = { { .fd = a->fd, .events = POLLIN },
		{ .fd = a->stop, .events = POLLIN } };
	struct priv_ans ans;

	for (;;) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			break;
		if (p[1].revents)
			return NULL;
		if (!p[0].revents)
			continue;
		int fds[ASK_FDS] = { -1, -1 };
		size_t nfds = ASK_FDS;
		ssize_t n = fd_recv_msg(a->fd, &ans, sizeof(ans), fds, &nfds);
		if (n == sizeof(ans) && ans.magic == PRIV_MAGIC)
			take_answer(a, &ans, fds);
		close_fds(fds);
		if (n <= 0)
			break;
	}
	log_error("the broker sbx-priv has ended: no sandbox can be made or removed");
	all_dead(a);
	return NULL;
}

int ask_new(int broker_fd, struct ask **ret, struct err *e)
{
	struct ask *a = calloc(1, sizeof(*a));
	int r;

	if (!a)
		return err_set(e, ERR_INTERNAL, "out of memory");
	a->fd = broker_fd;
	a->stop = eventfd(0, EFD_CLOEXEC);
	pthread_mutex_init(&a->lock, NULL);
	r = a->stop < 0 ? errno : pthread_create(&a->reader, NULL, read_answers, a);
	if (r != 0) {
		close_p(&a->stop);
		free(a);
		return err_sys(e, r, "start the broker's reader");
	}
	*ret = a;
	return 0;
}

void ask_free(struct ask *a)
{
	uint64_t one = 1;

	if (!a)
		return;
	if (write(a->stop, &one, sizeof(one)) == sizeof(one))
		pthread_join(a->reader, NULL);
	close(a->stop);
	close(a->fd);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

static void unlink_call(struct ask *a, const struct ask_call *c)
{
	struct ask_call **p = &a->calls;

	while (*p && *p != c)
		p = &(*p)->next;
	if (*p)
		*p = c->next;
}

static int refuse(struct ask *a, const struct priv_ans *ans, struct err *e)
{
	char text[sizeof(ans->text)];

	(void)a;
	memcpy(text, ans->text, sizeof(text));
	text[sizeof(text) - 1] = 0;
	switch (ans->error) {
	case EEXIST:
	case ESRCH: /* no runtime of this sandbox, or not any more */
		return err_set(e, ERR_CONFLICT, "%s", text);
	case ENOTSUP:
		return err_set(e, ERR_UNSUPPORTED, "%s", text);
	case ELOOP: /* a volume's mount point */
	case ENOTDIR:
		return err_set(e, ERR_INVALID_REQUEST, "%s", text);
	case EAGAIN:
	case ETIMEDOUT:
	case ENOSPC:
	case EDQUOT:
	case EMFILE: /* the broker's own: it may have some again */
	case ENFILE:
	case ENOMEM:
		return err_set(e, ERR_UNAVAILABLE, "%s", text);
	default:
		return err_set(e, ERR_INTERNAL, "%s", text);
	}
}

/* Waits with the lock held. */
static int wait_done(struct ask *a, struct ask_call *c, int timeout_ms)
{
	struct timespec end = deadline_ms(timeout_ms);

	while (!c->done && !a->dead && cond_wait_until(&c->cond, &a->lock, &end))
		;
	return c->done ? 0 : a->dead ? EPIPE : ETIMEDOUT;
}

void ask_begin(struct ask *a, struct priv_req *q, int fd, struct ask_call *c)
{
	*c = (struct ask_call){ .fds = { -1, -1 } };
	pthread_cond_init(&c->cond, NULL);
	pthread_mutex_lock(&a->lock);
	q->magic = PRIV_MAGIC;
	c->tag = q->tag = ++a->tag;
	c->next = a->calls;
	a->calls = c; /* ask_end takes it out */
	pthread_mutex_unlock(&a->lock);
	c->sent = -fd_send_msg(a->fd, q, sizeof(*q), &fd, fd >= 0);
}

int ask_end(struct ask *a, struct ask_call *c, int timeout_ms, struct priv_ans *ret, struct err *e)
{
	int fds[ASK_FDS], rc = ask_end_fds(a, c, timeout_ms, ret, fds, e);

	close_fds(fds);
	return rc;
}

int ask_end_fds(struct ask *a, struct ask_call *c, int timeout_ms, struct priv_ans *ret,
	int fds[ASK_FDS], struct err *e)
{
	int r = c->sent;

	pthread_mutex_lock(&a->lock);
	if (r == 0)
		r = wait_done(a, c, timeout_ms);
	unlink_call(a, c);
	pthread_mutex_unlock(&a->lock);
	pthread_cond_destroy(&c->cond);
	memcpy(fds, c->fds, sizeof(c->fds));
	if (r == ETIMEDOUT)
		return err_set(e, ERR_UNAVAILABLE, "the broker does not answer");
	if (r != 0)
		return err_set(e, ERR_UNAVAILABLE, "the broker has ended");
	if (c->ans.error)
		return refuse(a, &c->ans, e);
	if (ret)
		*ret = c->ans;
	return 0;
}

int ask_call(struct ask *a, struct priv_req *q, int fd, int timeout_ms, struct priv_ans *ret,
	struct err *e)
{
	struct ask_call c;

	ask_begin(a, q, fd, &c);
	return ask_end(a, &c, timeout_ms, ret, e);
}
