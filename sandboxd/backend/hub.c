/* SPDX-License-Identifier: MIT */
/* Reads events. Entries are found by key under the lock; callbacks run without the lock, with the
 * entry named as `current`, so that a removal can wait for the one under way. */
#include "sandboxd/backend/hub.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#define BUCKETS 1024

struct guest_hub {
	int epoll, wake;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t idle;
	/* under lock */
	struct hub_entry *entries[BUCKETS];
	struct hub_entry *current;
	uint64_t next_key;
	bool stop;
};

static struct hub_entry **find(struct guest_hub *h, uint64_t key)
{
	struct hub_entry **p = &h->entries[key % BUCKETS];

	while (*p && (*p)->key != key)
		p = &(*p)->next;
	return p;
}

/* Is it still ours to use? A callback may have removed it. */
static bool still(struct guest_hub *h, const struct hub_entry *en)
{
	pthread_mutex_lock(&h->lock);
	bool r = h->current == en;
	pthread_mutex_unlock(&h->lock);
	return r;
}

static void gone(struct guest_hub *h, struct hub_entry *en)
{
	(void)epoll_ctl(h->epoll, EPOLL_CTL_DEL, en->fd, NULL);
	if (en->watch->gone)
		en->watch->gone(en->arg);
}

static bool deliver(const struct hub_entry *en, const struct proto_frame *f)
{
	if (f->len != 0 || f->value < 0 || f->value > UINT32_MAX)
		return false;
	if (f->op == PROTO_OUTPUT && en->watch->output)
		en->watch->output(en->arg, (uint32_t)f->value);
	else if (f->op == PROTO_EXITED && en->watch->exited)
		en->watch->exited(en->arg, (uint32_t)f->value);
	return true;
}

static void read_events(struct guest_hub *h, struct hub_entry *en)
{
	struct proto_frame f[sizeof(en->frames) / sizeof(en->frames[0])];
	ssize_t n = recv(en->fd, (char *)en->frames + en->got, sizeof(en->frames) - en->got,
		MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		return gone(h, en);
	en->got += (size_t)n;
	size_t count = en->got / sizeof(f[0]);
	memcpy(f, en->frames, count * sizeof(f[0]));
	en->got -= count * sizeof(f[0]);
	memmove(en->frames, en->frames + count, en->got);
	for (size_t i = 0; i < count && still(h, en); i++)
		if (!deliver(en, &f[i]))
			return gone(h, en);
}

static void handle(struct guest_hub *h, uint64_t key)
{
	pthread_mutex_lock(&h->lock);
	struct hub_entry *en = h->current = *find(h, key);
	pthread_mutex_unlock(&h->lock);
	if (!en)
		return;
	read_events(h, en);
	pthread_mutex_lock(&h->lock);
	h->current = NULL;
	pthread_cond_broadcast(&h->idle);
	pthread_mutex_unlock(&h->lock);
}

static void *run(void *arg)
{
	struct guest_hub *h = arg;
	struct epoll_event ev[32];

	for (;;) {
		int n = epoll_wait(h->epoll, ev, ARRAY_LEN(ev), -1);
		for (int i = 0; i < n; i++) {
			if (ev[i].data.u64 == 0)
				return NULL;
			handle(h, ev[i].data.u64);
		}
	}
}

static void hub_destroy(struct guest_hub *h)
{
	close_p(&h->epoll);
	close_p(&h->wake);
	pthread_mutex_destroy(&h->lock);
	pthread_cond_destroy(&h->idle);
	free(h);
}

int guest_hub_new(struct guest_hub **ret, struct err *e)
{
	struct guest_hub *h = calloc(1, sizeof(*h));
	struct epoll_event ev = { .events = EPOLLIN };

	if (!h)
		return err_set(e, ERR_INTERNAL, "out of memory");
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->idle, NULL);
	h->next_key = 1;
	h->wake = eventfd(0, EFD_CLOEXEC);
	h->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (h->wake < 0 || h->epoll < 0 || epoll_ctl(h->epoll, EPOLL_CTL_ADD, h->wake, &ev) < 0 ||
	    pthread_create(&h->thread, NULL, run, h) != 0) {
		hub_destroy(h);
		return err_set(e, ERR_INTERNAL, "the event thread cannot be started");
	}
	*ret = h;
	return 0;
}

void guest_hub_free(struct guest_hub *h)
{
	const uint64_t one = 1;

	if (!h)
		return;
	(void)!write(h->wake, &one, sizeof(one));
	pthread_join(h->thread, NULL);
	hub_destroy(h);
}

int hub_add(struct guest_hub *h, struct hub_entry *en, struct err *e)
{
	struct epoll_event ev = { .events = EPOLLIN };

	pthread_mutex_lock(&h->lock);
	ev.data.u64 = en->key = h->next_key++;
	en->next = NULL;
	*find(h, en->key) = en;
	int r = epoll_ctl(h->epoll, EPOLL_CTL_ADD, en->fd, &ev) < 0 ? errno : 0;
	if (r)
		*find(h, en->key) = en->next;
	pthread_mutex_unlock(&h->lock);
	return r ? err_sys(e, r, "events of a sandbox") : 0;
}

void hub_mute(struct guest_hub *h, const struct hub_entry *en)
{
	(void)epoll_ctl(h->epoll, EPOLL_CTL_DEL, en->fd, NULL);
}

void hub_remove(struct guest_hub *h, struct hub_entry *en)
{
	pthread_mutex_lock(&h->lock);
	struct hub_entry **p = find(h, en->key);
	if (*p)
		*p = en->next;
	if (pthread_equal(pthread_self(), h->thread) && h->current == en)
		h->current = NULL;
	while (h->current == en)
		pthread_cond_wait(&h->idle, &h->lock);
	pthread_mutex_unlock(&h->lock);
	(void)epoll_ctl(h->epoll, EPOLL_CTL_DEL, en->fd, NULL);
	close_p(&en->fd);
	en->fd = -1;
}
