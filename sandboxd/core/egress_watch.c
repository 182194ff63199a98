/* SPDX-License-Identifier: MIT */
/* One thread reads what all egress processes refuse, and has one started again that has died.
 * Entries are found by key under the lock; one that is being worked on is `current`, so that its
 * removal, and whoever gives it another connection, can wait for it. */
#include "sandboxd/core/egress_internal.h"

#include "common/base/log.h"
#include "common/sys/mem.h"
#include "sandboxd/core/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#define BUCKETS  256
#define FIRST_MS 300 /* an end of the sandbox looks the same for a moment */
#define MOST_MS  30000
/* Lines of the log that one sandbox's refusals get: a process keeps to less by itself. */
#define LINES_PER_S 10
#define LINES_BURST 60

struct egress_watch {
	struct core *core;
	int epoll, wake;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t idle;
	/* under lock */
	struct egress *entries[BUCKETS];
	struct egress *current;
	uint64_t next_key;
	struct egress_resolvers resolvers;
	bool stop;
};

static struct egress **find(struct egress_watch *w, uint64_t key)
{
	struct egress **p = &w->entries[key % BUCKETS];

	while (*p && (*p)->key != key)
		p = &(*p)->next;
	return p;
}

static void wake(struct egress_watch *w)
{
	const uint64_t one = 1;

	(void)!write(w->wake, &one, sizeof(one));
}

int egress_watch_add(struct egress *g)
{
	struct egress_watch *w = g->watch;

	pthread_mutex_lock(&w->lock);
	g->key = w->next_key++;
	*find(w, g->key) = g;
	pthread_mutex_unlock(&w->lock);
	return 0;
}

static void drop_fd(struct egress *g)
{
	if (g->fd < 0)
		return;
	(void)epoll_ctl(g->watch->epoll, EPOLL_CTL_DEL, g->fd, NULL);
	close(g->fd);
	g->fd = -1;
}

/* Lock held. Afterwards no event of it is under way and its connection is closed: the watch's thread reads without the
 * lock. That thread itself asks when it has one started again, and reads nothing then. */
static void take_from_thread(struct egress *g)
{
	struct egress_watch *w = g->watch;

	if (g->fd >= 0) /* one that never stops refusing would be `current` again and again */
		(void)epoll_ctl(w->epoll, EPOLL_CTL_DEL, g->fd, NULL);
	while (w->current == g && !pthread_equal(w->thread, pthread_self()))
		pthread_cond_wait(&w->idle, &w->lock);
	drop_fd(g);
	g->got = 0;
}

void egress_watch_remove(struct egress *g)
{
	struct egress_watch *w = g->watch;
	struct egress **p;

	pthread_mutex_lock(&w->lock);
	p = find(w, g->key);
	if (*p)
		*p = g->next;
	take_from_thread(g);
	pthread_mutex_unlock(&w->lock);
}

/* Lock held. */
static void mark_lost(struct egress *g)
{
	drop_fd(g);
	g->got = 0;
	g->wait_ms = g->wait_ms ? g->wait_ms * 2 : FIRST_MS;
	if (g->wait_ms > MOST_MS)
		g->wait_ms = MOST_MS;
	g->retry_ms = clock_mono_ms() + g->wait_ms;
}

void egress_watch_fd(struct egress *g, int fd)
{
	struct egress_watch *w = g->watch;
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = g->key };

	pthread_mutex_lock(&w->lock);
	take_from_thread(g);
	g->fd = fd;
	g->retry_ms = 0;
	if (fd >= 0 && epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &ev) < 0)
		drop_fd(g);
	if (g->fd < 0)
		mark_lost(g);
	pthread_mutex_unlock(&w->lock);
	if (fd < 0)
		wake(w);
}

void egress_watch_resolvers(struct egress_watch *w, struct egress_resolvers *ret)
{
	pthread_mutex_lock(&w->lock);
	*ret = w->resolvers;
	pthread_mutex_unlock(&w->lock);
}

/* --- what they refuse ------------------------------------------------------------------------ */

static const char *const reasons[WHY_COUNT] = {
	[WHY_NAME] = "the network policy does not allow it",
	[WHY_ADDRESS] = "an address that no name led to",
	[WHY_INNER] = "it leads to an address that is not public",
	[WHY_MISMATCH] = "it names another server than the one that was asked for",
	[WHY_UNNAMED] = "it does not say the server's name",
	[WHY_UNCLEAR] = "it cannot be understood, or hides the server's name",
	[WHY_NO_ANSWER] = "the resolver has no address for it",
	[WHY_MANY] = "too many connections",
};

/* A process that has been taken over must not fill the host's log. */
static bool may_log(struct egress *g)
{
	int64_t now = clock_mono_ms();
	int64_t more = (now - g->told_ms) * LINES_PER_S / 1000;

	if (more > 0) {
		g->tokens = g->tokens + more > LINES_BURST ? LINES_BURST : g->tokens + (int)more;
		g->told_ms = now;
	}
	if (g->tokens <= 0)
		return false;
	g->tokens--;
	return true;
}

static void report(struct egress *g, const struct egress_refused *r, const char *name)
{
	char quoted[2 * EGRESS_NAME_MAX + 8], addr[INET_ADDRSTRLEN] = "-";
	const struct in_addr a = { htonl(r->addr) };

	if (!may_log(g)) {
		g->unreported += 1 + (int64_t)r->more;
		return;
	}
	if (r->addr)
		inet_ntop(AF_INET, &a, addr, sizeof(addr));
	log_warn("egress refused id=%s name=%s address=%s port=%u reason=\"%s\" unreported=%lld",
		g->s->id, log_quote(name, quoted, sizeof(quoted)), addr, r->port, reasons[r->why],
		(long long)(g->unreported + r->more));
	g->unreported = 0;
}

/* Bytes that made up an event; 0: more are needed; -1: not what an egress process says. */
static ssize_t take_event(struct egress *g, const uint8_t *b, size_t n)
{
	char name[EGRESS_NAME_MAX + 1] = "";
	struct egress_refused r;
	struct proto_frame f;

	if (n < sizeof(f))
		return 0;
	memcpy(&f, b, sizeof(f));
	if (f.op != EGRESS_REFUSED || f.len < sizeof(r) || f.len > sizeof(r) + EGRESS_NAME_MAX)
		return -1;
	if (n < sizeof(f) + f.len)
		return 0;
	memcpy(&r, b + sizeof(f), sizeof(r));
	if (r.why >= WHY_COUNT || r.port > 65535)
		return -1;
	memcpy(name, b + sizeof(f) + sizeof(r), f.len - sizeof(r));
	report(g, &r, name);
	return (ssize_t)(sizeof(f) + f.len);
}

/* False: the process has gone, or talks nonsense. Only this thread reads. */
static bool read_events(struct egress *g, int fd)
{
	ssize_t n = recv(fd, g->in + g->got, sizeof(g->in) - g->got, MSG_DONTWAIT), k;
	size_t at = 0;

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n == 0)
		return false;
	g->got += (size_t)n;
	while ((k = take_event(g, g->in + at, g->got - at)) > 0)
		at += (size_t)k;
	g->got -= at;
	memmove(g->in, g->in + at, g->got);
	return k == 0;
}

/* --- thread ---------------------------------------------------------------------------------- */

static void tell_restart(const struct sandbox *s, enum net_mode mode, const char *why)
{
	if (why && mode == NET_NONE)
		log_warn("a sandbox's network could not be taken away again, for now id=%s reason=\"%s\"",
			s->id, why);
	else if (why)
		log_warn("a sandbox has no network for now id=%s reason=\"%s\"", s->id, why);
	else if (mode != NET_NONE)
		log_warn("a sandbox's egress process was lost, and serves again id=%s", s->id);
}

/* Has another one started, with the policy as it is now. False: there is no need any more. */
static bool restart(struct egress *g)
{
	struct sandbox *s = g->s;
	struct err e = ERR_NULL;
	struct net_policy p = { .mode = NET_NONE };
	bool needed = false;
	int rc = -1;

	/* One that is asked just now, and may take its time to answer, must not hold up the others. */
	if (pthread_mutex_trylock(&g->turn) != 0)
		return true;
	pthread_mutex_lock(&s->lock);
	needed = (s->state == SBX_RUNNING || s->state == SBX_SUSPENDED) &&
		 (s->network.mode != NET_NONE || g->unsure);
	if (needed)
		rc = net_policy_copy(&s->network, &p, &e);
	pthread_mutex_unlock(&s->lock);
	if (rc == 0) {
		rc = egress_revive(g, &p, &e);
		g->unsure = g->unsure && rc < 0;
		tell_restart(s, p.mode, rc < 0 ? e.msg : NULL);
		net_policy_free(&p);
	}
	pthread_mutex_unlock(&g->turn);
	return needed;
}

static void release(struct egress_watch *w)
{
	w->current = NULL;
	pthread_cond_broadcast(&w->idle);
}

static void handle(struct egress_watch *w, uint64_t key)
{
	struct egress *g;
	int fd;

	pthread_mutex_lock(&w->lock);
	g = w->current = *find(w, key);
	fd = g ? g->fd : -1;
	pthread_mutex_unlock(&w->lock);
	if (!g)
		return;
	bool ok = fd < 0 || read_events(g, fd);
	pthread_mutex_lock(&w->lock);
	if (ok && fd >= 0)
		g->wait_ms = 0;
	else if (fd >= 0)
		mark_lost(g);
	release(w);
	pthread_mutex_unlock(&w->lock);
}

/* Lock held: one whose time has come; else how long until the next one, -1: none. */
static struct egress *next_lost(struct egress_watch *w, int *wait_ms)
{
	int64_t now = clock_mono_ms(), first = 0;

	for (size_t i = 0; i < BUCKETS; i++)
		for (struct egress *g = w->entries[i]; g; g = g->next) {
			if (g->fd >= 0 || !g->retry_ms)
				continue;
			if (g->retry_ms <= now)
				return g;
			if (!first || g->retry_ms < first)
				first = g->retry_ms;
		}
	*wait_ms = first ? (int)(first - now) + 1 : -1;
	return NULL;
}

static int restart_lost(struct egress_watch *w)
{
	struct egress *g;
	int wait_ms = -1;

	pthread_mutex_lock(&w->lock);
	while (!w->stop && (g = next_lost(w, &wait_ms))) {
		w->current = g;
		g->retry_ms = INT64_MAX; /* until this try is over */
		pthread_mutex_unlock(&w->lock);
		bool needed = restart(g);
		pthread_mutex_lock(&w->lock);
		if (!needed)
			g->retry_ms = 0;
		else if (g->fd < 0)
			mark_lost(g);
		release(w);
	}
	if (w->stop)
		wait_ms = -2;
	pthread_mutex_unlock(&w->lock);
	return wait_ms;
}

static void *run(void *arg)
{
	struct egress_watch *w = arg;
	struct epoll_event ev[32];
	uint64_t count;
	int wait_ms;

	while ((wait_ms = restart_lost(w)) != -2) {
		int n = epoll_wait(w->epoll, ev, ARRAY_LEN(ev), wait_ms);
		for (int i = 0; i < n; i++)
			if (ev[i].data.u64)
				handle(w, ev[i].data.u64);
			else
				(void)!read(w->wake, &count, sizeof(count));
	}
	return NULL;
}

static void destroy(struct egress_watch *w)
{
	close_p(&w->epoll);
	close_p(&w->wake);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->idle);
	free(w);
}

int egress_watch_new(struct core *c, struct egress_watch **ret, struct err *e)
{
	struct egress_watch *w = calloc(1, sizeof(*w));
	struct epoll_event ev = { .events = EPOLLIN };

	if (!w)
		return err_oom(e);
	w->core = c;
	w->next_key = 1;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->idle, NULL);
	w->epoll = epoll_create1(EPOLL_CLOEXEC);
	w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->epoll < 0 || w->wake < 0 || epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->wake, &ev) < 0 ||
		pthread_create(&w->thread, NULL, run, w) != 0) {
		destroy(w);
		return err_set(e, ERR_INTERNAL, "the egress thread cannot be started");
	}
	*ret = w;
	return 0;
}

void egress_watch_free(struct egress_watch *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_mutex_unlock(&w->lock);
	wake(w);
	pthread_join(w->thread, NULL);
	destroy(w);
}

/* --- resolvers ------------------------------------------------------------------------------- */

static void tell(struct sandbox *s)
{
	struct net_policy p;
	struct egress *g;
	bool go = false;

	pthread_mutex_lock(&s->lock);
	g = s->egress;
	if (g && (s->state == SBX_RUNNING || s->state == SBX_SUSPENDED)) {
		s->users++; /* keeps g */
		go = true;
	}
	pthread_mutex_unlock(&s->lock);
	if (!go)
		return;
	pthread_mutex_lock(&g->turn);
	pthread_mutex_lock(&s->lock);
	go = net_policy_copy(&s->network, &p, NULL) == 0;
	pthread_mutex_unlock(&s->lock);
	if (go) {
		(void)egress_revive(g, &p, NULL); /* a new connection brings the new servers */
		net_policy_free(&p);
	}
	pthread_mutex_unlock(&g->turn);
	sandbox_leave(s, false);
}

void core_set_resolvers(struct core *c, const struct egress_resolvers *r)
{
	struct sandbox **all = NULL;
	size_t n = 0;

	if (!c->egress)
		return;
	pthread_mutex_lock(&c->egress->lock);
	c->egress->resolvers = *r;
	pthread_mutex_unlock(&c->egress->lock);
	if (registry_all(&c->reg, &all, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		tell(all[i]);
		sandbox_unref(all[i]);
	}
	free(all);
}
