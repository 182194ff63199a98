/* SPDX-License-Identifier: MIT */
/* Open files that clients hold between requests. A handle's number is its slot and a serial, so an
 * old number never finds a new file. A handle lives while its client is heard from; one without a
 * client lives by its own use. Closing while a request works on it waits for that request. */
#include "sandboxd/worker/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static struct client *client_find(struct worker *w, uint64_t id)
{
	for (unsigned i = 0; i < w->nclients; i++)
		if (w->clients[i].id == id)
			return &w->clients[i];
	return NULL;
}

static struct client *client_add(struct worker *w, uint64_t id)
{
	struct client *c = client_find(w, id);

	if (c || w->nclients == FILES_CLIENTS_MAX)
		return c;
	c = &w->clients[w->nclients++];
	*c = (struct client){ .id = id, .heard_ms = now_ms() };
	return c;
}

static void client_drop(struct worker *w, uint64_t id)
{
	struct client *c = client_find(w, id);

	if (c && --c->handles == 0)
		*c = w->clients[--w->nclients];
}

void handle_heard(struct worker *w, uint64_t client)
{
	if (!client)
		return;
	pthread_mutex_lock(&w->lock);
	struct client *c = client_find(w, client);
	if (c)
		c->heard_ms = now_ms();
	pthread_mutex_unlock(&w->lock);
}

static void free_handle(struct worker *w, struct handle *h)
{
	if (h->fd >= 0)
		close(h->fd);
	wait_poke(w); /* what it had locked, it has not any more */
	put_free(w, h->put);
	pthread_mutex_destroy(&h->lock);
	free(h->path);
	free(h);
}

static int take_slot(struct worker *w, struct handle *h)
{
	struct client *c;

	if (w->nhandles == FILES_HANDLES_MAX)
		return -ENFILE;
	c = client_add(w, h->client);
	if (!c || c->handles >= FILES_CLIENT_HANDLES_MAX)
		return -EMFILE;
	while (w->slots[w->next_slot])
		w->next_slot = (w->next_slot + 1) % FILES_HANDLES_MAX;
	h->id = ++w->serial * FILES_HANDLES_MAX + w->next_slot;
	w->slots[w->next_slot] = h;
	w->next_slot = (w->next_slot + 1) % FILES_HANDLES_MAX;
	w->nhandles++;
	c->handles++;
	return 0;
}

int handle_room(struct worker *w, uint64_t client)
{
	const struct client *c;
	int r = 0;

	pthread_mutex_lock(&w->lock);
	c = client_find(w, client);
	if (w->nhandles == FILES_HANDLES_MAX)
		r = -ENFILE;
	else if (c ? c->handles >= FILES_CLIENT_HANDLES_MAX : w->nclients == FILES_CLIENTS_MAX)
		r = -EMFILE;
	pthread_mutex_unlock(&w->lock);
	return r;
}

/* Two references: the table's and the caller's. */
struct handle *handle_new(struct worker *w, uint64_t client, const char *path, int *ret_err)
{
	struct handle *h = calloc(1, sizeof(*h));
	int r = -ENOMEM;

	if (!h)
		goto fail;
	h->fd = -1;
	h->client = client;
	h->refs = 2;
	h->used_ms = now_ms();
	pthread_mutex_init(&h->lock, NULL);
	h->path = strdup(path);
	if (!h->path)
		goto fail;
	pthread_mutex_lock(&w->lock);
	r = take_slot(w, h);
	pthread_mutex_unlock(&w->lock);
	if (r == 0)
		return h;
fail:
	if (h)
		free_handle(w, h);
	*ret_err = r;
	return NULL;
}

struct handle *handle_get(struct worker *w, uint64_t client, uint64_t id)
{
	struct handle *h;

	pthread_mutex_lock(&w->lock);
	h = w->slots[id % FILES_HANDLES_MAX];
	if (h && (h->id != id || h->client != client))
		h = NULL;
	if (h) {
		h->refs++;
		h->used_ms = now_ms();
	}
	pthread_mutex_unlock(&w->lock);
	return h;
}

void handle_put(struct worker *w, struct handle *h)
{
	bool last;

	pthread_mutex_lock(&w->lock);
	last = --h->refs == 0;
	pthread_mutex_unlock(&w->lock);
	if (last)
		free_handle(w, h);
}

static void tell_closed(struct worker *w, struct handle *h)
{
	char *path = h->path;

	if (h->put || (!h->bytes_read && !h->bytes_written && !h->changed))
		return;
	h->path = NULL;
	closed_add(w, path, h->bytes_read, h->bytes_written, h->changed ? FILES_REP_CREATED : 0);
}

/* Lock held. True when the caller must drop the table's reference. */
static bool close_locked(struct worker *w, struct handle *h, bool tell)
{
	if (h->closed)
		return false;
	h->closed = true;
	w->slots[h->id % FILES_HANDLES_MAX] = NULL;
	w->nhandles--;
	client_drop(w, h->client);
	if (tell)
		tell_closed(w, h);
	return true;
}

void handle_close(struct worker *w, struct handle *h, bool tell)
{
	bool drop;

	pthread_mutex_lock(&w->lock);
	drop = close_locked(w, h, tell);
	pthread_mutex_unlock(&w->lock);
	if (!drop)
		return;
	lock_handle_gone(w, h);
	handle_put(w, h);
}

bool handle_is_open(struct worker *w, const struct handle *h)
{
	bool open;

	pthread_mutex_lock(&w->lock);
	open = !h->closed;
	pthread_mutex_unlock(&w->lock);
	return open;
}

static bool expired(struct worker *w, const struct handle *h, int64_t now)
{
	const struct client *c = h->client ? client_find(w, h->client) : NULL;
	int64_t last = c ? c->heard_ms : h->used_ms;
	int64_t most = c ? w->expire_ms : w->expire_ms * FILES_EXPIRE_UNOWNED;

	/* Others wait for what it locks. */
	if (most > FS_LOCK_SECS * 1000 && __atomic_load_n(&h->locked, __ATOMIC_RELAXED))
		most = FS_LOCK_SECS * 1000;

	/* refs > 1: a request is working on it. */
	return h->refs == 1 && now - last >= most;
}

void handle_sweep(struct worker *w)
{
	int64_t now = now_ms();
	struct handle *dead = NULL;

	do {
		dead = NULL;
		pthread_mutex_lock(&w->lock);
		for (size_t i = 0; i < FILES_HANDLES_MAX && w->nhandles && !dead; i++)
			if (w->slots[i] && expired(w, w->slots[i], now))
				dead = w->slots[i];
		if (dead)
			close_locked(w, dead, true);
		w->swept_ms = now;
		pthread_mutex_unlock(&w->lock);
		if (!dead)
			break;
		lock_handle_gone(w, dead);
		handle_put(w, dead);
	} while (dead);
}

/* At the end of the worker: uploads leave no temporary file. */
void handle_close_all(struct worker *w)
{
	for (size_t i = 0; i < FILES_HANDLES_MAX; i++)
		if (w->slots[i])
			handle_close(w, w->slots[i], false);
}
