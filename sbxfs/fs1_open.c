/* SPDX-License-Identifier: MIT */
/* A connection on its way to be one: a thread of its own opens it, so that a server which does not answer
 * holds nobody for longer than a moment; after a failure there is a pause. */
#include "sbxfs/fs1_priv.h"
#include "sbxfs/session.h"

#include "common/sys/deadline.h"
#include "common/sys/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define OPEN_MS  2000 /* so long waits who asked first */
#define STEP_MS  250  /* after a refusal, doubling */
#define STACK    (256 * 1024)

static int epoll_of(int fd)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLONESHOT };
	int ep = epoll_create1(EPOLL_CLOEXEC);

	if (ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0)
		return ep;
	if (ep >= 0)
		close(ep);
	return -1;
}

static struct fs1_conn *conn_new(struct fs1 *f, const char *box, int fd)
{
	struct fs1_conn *c = calloc(1, sizeof(*c));

	if (c)
		c->ep = epoll_of(fd);
	if (!c || c->ep < 0) {
		free(c);
		return NULL;
	}
	c->armed = true;
	c->m = f->m;
	c->fd = fd;
	c->refs = 2; /* the receiver's and the list's */
	c->limit = SLOTS;
	(void)snprintf(c->box, sizeof(c->box), "%s", box);
	pthread_mutex_init(&c->send, NULL);
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->room, NULL);
	for (unsigned n = 0; n < SLOTS; n++)
		pthread_cond_init(&c->slots[n].answered, NULL);
	c->used_ms = now_ms();
	atomic_store(&c->heard_ms, c->used_ms);
	return c;
}

/* The program's signals are for others. */
static int start(void *(*fn)(void *arg), void *arg)
{
	sigset_t all, old;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = thread_detached(fn, arg, STACK);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc;
}

/* Without the lock. *ret has a reference for the caller, the receiver and the list; it is counted. */
static int open_conn(struct fs1 *f, const char *box, struct fs1_conn **ret)
{
	struct sbx_error e = { .status = 0 };
	struct fs1_conn *c;
	int fd, rc;

	if (sbx_fs_connect(f->m->sbx, box, f->m->client, true, &fd, &e) < 0)
		return -EAGAIN;
	c = conn_new(f, box, fd);
	if (!c) {
		close(fd);
		return -ENOMEM;
	}
	pthread_mutex_lock(&f->lock);
	f->conns++;
	c->epoch = ++f->epochs;
	c->refs++;
	pthread_mutex_unlock(&f->lock);
	rc = fs1_say_hello(c);
	if (rc == 0)
		rc = start(fs1_receive, c);
	if (rc == 0) {
		*ret = c;
		return 0;
	}
	fs1_put(c);
	fs1_put(c);
	fs1_put(c);
	return rc;
}

/* Lock held; the box is marked as opening. Is the connection taken? */
static bool opened(struct fs1 *f, const char *box, int rc, struct fs1_conn *c)
{
	struct fs1_box *b = fs1_box_find(f, box);

	b->opening = false;
	if (rc == 0 && !f->stopping) {
		b->conn = c;
		b->step_ms = 0;
		c->listed = true;
		return true;
	}
	b->step_ms = b->step_ms ? b->step_ms * 2 : STEP_MS;
	if (b->step_ms > FS1_STEP_MAX)
		b->step_ms = FS1_STEP_MAX;
	b->retry_ms = now_ms() + b->step_ms;
	atomic_fetch_add(&f->refused, 1);
	return false;
}

struct opening {
	struct fs1 *f;
	char box[SBX_ID_MAX];
};

static void *open_run(void *arg)
{
	struct opening *o = arg;
	struct fs1 *f = o->f;
	struct req q = { .m = f->m, .op = "connect", .start_ms = now_ms() };
	struct fs1_conn *c = NULL;
	int rc = -EAGAIN;
	bool taken;

	if (!remote_is_down(f->m) && remote_has(&q, CAP_FS_STREAM))
		rc = open_conn(f, o->box, &c);
	pthread_mutex_lock(&f->lock);
	taken = opened(f, o->box, rc, c);
	pthread_cond_broadcast(&f->gone);
	pthread_mutex_unlock(&f->lock);
	if (rc == 0 && !taken) { /* the mount ends */
		(void)shutdown(c->fd, SHUT_RDWR);
		fs1_put(c);
	}
	if (rc == 0)
		fs1_put(c);
	free(o);
	pthread_mutex_lock(&f->lock);
	f->opening--;
	pthread_cond_broadcast(&f->gone);
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

void fs1_open_begin(struct fs1 *f, struct fs1_box *b)
{
	struct opening *o = malloc(sizeof(*o));

	b->opening = true;
	f->opening++;
	if (o) {
		o->f = f;
		memcpy(o->box, b->id, sizeof(o->box));
	}
	if (o && start(open_run, o) == 0)
		return;
	f->opening--;
	(void)opened(f, b->id, -EAGAIN, NULL);
	free(o);
}

struct fs1_box *fs1_open_wait(struct req *q, struct fs1 *f, const char *box)
{
	uint64_t until = now_ms() + (uint64_t)mount_patience(f->m, OPEN_MS);
	struct fs1_box *b;

	while ((b = fs1_box_find(f, box)) && b->opening && now_ms() < until && !remote_interrupted(q)) {
		session_sleeps();
		(void)cond_wait_ms(&f->gone, &f->lock, FS1_LOOK_MS);
	}
	return b;
}
