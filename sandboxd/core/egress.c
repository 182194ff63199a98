/* SPDX-License-Identifier: MIT */
/* Asking the egress processes. Each question is a connection of its own: they are rare, and what
 * broke in one cannot spoil the next. */
#include "sandboxd/core/egress_internal.h"

#include "common/base/log.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#define CALL_MS    10000 /* for a whole question, whatever trickles in meanwhile */
#define QUICK_MS   2000  /* by threads that serve all sandboxes */
#define EVENTS_MAX 200   /* between two answers: more than a process sends in that time */

struct request { /* hello and frames, sent at once */
	uint8_t *b;
	size_t len;
	unsigned frames;
};

static int broken(struct err *e, int r)
{
	return err_set_sys(e, ERR_UNAVAILABLE, -r,
		"the sandbox's egress process cannot be reached: %s", strerror(-r));
}

/* Milliseconds until `end`. */
static int left(int64_t end)
{
	int64_t now = clock_mono_ms();

	return now < end ? (int)(end - now) : 0;
}

static int dial(const struct egress *g, int64_t end, int *ret_fd)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int ms = left(end);
	const struct timeval limit = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 + 1 };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/egress", g->run_dirfd);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	*ret_fd = steal_fd(&fd);
	return 0;
}

static size_t names_len(const struct strlist *l)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++)
		n += strlen(l->v[i]) + 1;
	return n;
}

static uint8_t *put(uint8_t *p, const void *data, size_t n)
{
	memcpy(p, data, n);
	return p + n;
}

static uint8_t *put_names(uint8_t *p, const struct strlist *l)
{
	for (size_t i = 0; i < l->n; i++)
		p = put(p, l->v[i], strlen(l->v[i]) + 1);
	return p;
}

static void put_hello(struct request *q, const struct egress *g, uint32_t kind)
{
	struct proto_hello h = { .magic = PROTO_MAGIC,
		.version = PROTO_VERSION,
		.kind = kind,
		.generation = g->s->generation };

	memcpy(h.secret, g->s->secret, sizeof(h.secret));
	memcpy(q->b, &h, sizeof(h));
	q->len = sizeof(h);
	explicit_bzero(&h, sizeof(h));
}

static void put_frame(struct request *q, uint16_t op, uint32_t len)
{
	struct proto_frame f = { .op = op, .len = len };

	q->len = (size_t)(put(q->b + q->len, &f, sizeof(f)) - q->b);
	q->frames++;
}

/* Resolvers and policy. p NULL: the resolvers only. */
static int make_request(const struct egress *g, uint32_t kind, const struct net_policy *p,
	struct request *q, struct err *e)
{
	static const uint32_t modes[] = { [NET_NONE] = EGRESS_NONE,
		[NET_ALLOWLIST] = EGRESS_ALLOWLIST,
		[NET_OPEN] = EGRESS_OPEN };
	struct egress_resolvers r;
	size_t names = p ? names_len(&p->allow) + names_len(&p->deny) : 0;
	struct egress_policy head = { .len = (uint32_t)names };

	if (names > PROTO_FRAME_MAX - sizeof(head))
		return err_set(e, ERR_INVALID_REQUEST, "network: the lists are too long");
	*q = (struct request){ .b = malloc(sizeof(struct proto_hello) +
					   3 * sizeof(struct proto_frame) + sizeof(r) +
					   sizeof(head) + names) };
	if (!q->b)
		return err_oom(e);
	put_hello(q, g, kind);
	egress_watch_resolvers(g->watch, &r);
	put_frame(q, EGRESS_RESOLVERS, (uint32_t)(r.n * sizeof(r.v[0])));
	q->len = (size_t)(put(q->b + q->len, r.v, r.n * sizeof(r.v[0])) - q->b);
	if (!p)
		return 0;
	head.mode = modes[p->mode];
	head.nallow = (uint32_t)p->allow.n;
	head.ndeny = (uint32_t)p->deny.n;
	put_frame(q, EGRESS_POLICY, (uint32_t)(sizeof(head) + names));
	uint8_t *at = put(q->b + q->len, &head, sizeof(head));
	at = put_names(put_names(at, &p->allow), &p->deny);
	q->len = (size_t)(at - q->b);
	return 0;
}

static void request_free(struct request *q)
{
	if (q->b)
		explicit_bzero(q->b, sizeof(struct proto_hello));
	free(q->b);
}

static int read_hello_ok(int fd, int64_t end)
{
	struct proto_hello_ok ok;
	int r = fd_recv_full(fd, &ok, sizeof(ok), left(end));

	if (r < 0)
		return r;
	if (ok.magic != PROTO_MAGIC || ok.version != PROTO_VERSION)
		return -EPROTO;
	return ok.error < 0 ? ok.error : 0;
}

/* Events may come between answers on a connection that gets them; they are dropped here. */
static int read_answer(int fd, int64_t end)
{
	struct proto_frame f;
	uint8_t event[EGRESS_EVENT_MAX];
	int r, events = 0;

	do {
		r = fd_recv_full(fd, &f, sizeof(f), left(end));
		if (r == 0 && (f.len > sizeof(event) || ++events > EVENTS_MAX))
			r = -EPROTO;
		if (r == 0 && f.len)
			r = fd_recv_full(fd, event, f.len, left(end));
	} while (r == 0 && f.op == EGRESS_REFUSED);
	return r < 0 ? r : f.value < -4095 ? -EPROTO : f.value < 0 ? (int)f.value : 0;
}

/* 0, or -errno. On success *keep, when given, is the connection. */
static int send_request(const struct egress *g, const struct request *q, int ms, int *keep)
{
	_cleanup_close_ int fd = -1;
	int64_t end = clock_mono_ms() + ms;
	int r = dial(g, end, &fd);

	if (r == 0)
		r = fd_send_full(fd, q->b, q->len, left(end));
	if (r == 0)
		r = read_hello_ok(fd, end);
	for (unsigned i = 0; i < q->frames && r == 0; i++)
		r = read_answer(fd, end);
	if (r == 0 && keep)
		*keep = steal_fd(&fd);
	return r;
}

static bool is_dead(int r)
{
	return r == -ECONNREFUSED || r == -ENOENT || r == -ECONNRESET || r == -EPIPE ||
	       r == -ENODATA;
}

/* As a new connection for events. */
static int connect_events(
	struct egress *g, const struct net_policy *p, int ms, int *r, struct err *e)
{
	struct request q;
	int fd = -1;

	if (make_request(g, PROTO_EVENTS, p, &q, e) < 0)
		return -1;
	*r = send_request(g, &q, ms, &fd);
	request_free(&q);
	if (*r < 0)
		return broken(e, *r);
	egress_watch_fd(g, fd);
	return 0;
}

static int revive(struct egress *g, const struct net_policy *p, int ms, struct err *e)
{
	struct core *c = g->s->core;
	struct err why = ERR_NULL;
	int r = 0;

	if (connect_events(g, p, ms, &r, &why) == 0)
		return 0;
	if (is_dead(r) && c->ops->egress_add && p->mode != NET_NONE) {
		why = (struct err)ERR_NULL;
		if (c->ops->egress_add(
			    c->backend, g->s->id, g->s->secret, g->s->generation, &why) == 0 &&
			connect_events(g, p, ms, &r, &why) == 0)
			return 0;
	}
	/* One that is dead lets nothing through. */
	if (is_dead(r) && p->mode == NET_NONE) {
		egress_watch_fd(g, -1);
		return 0;
	}
	if (e)
		*e = why;
	return -1;
}

/* Asked for by the threads that do this for all sandboxes: one that stalls must not stop them. */
int egress_revive(struct egress *g, const struct net_policy *p, struct err *e)
{
	return revive(g, p, QUICK_MS, e);
}

static int new_egress(struct sandbox *s, struct egress **ret, struct err *e)
{
	struct egress *g = calloc(1, sizeof(*g));

	if (!g)
		return err_oom(e);
	*g = (struct egress){ .s = s, .watch = s->core->egress, .fd = -1 };
	g->run_dirfd = fcntl(s->run_dirfd, F_DUPFD_CLOEXEC, 3);
	if (g->run_dirfd < 0) {
		free(g);
		return err_sys(e, errno, "the sandbox's run folder");
	}
	pthread_mutex_init(&g->turn, NULL);
	egress_watch_add(g);
	*ret = g;
	return 0;
}

int egress_open(struct sandbox *s, struct egress **ret, struct err *e)
{
	const struct net_policy none = { .mode = NET_NONE };
	struct egress *g;
	int r = 0;

	if (new_egress(s, &g, e) < 0)
		return -1;
	if (connect_events(g, &none, CALL_MS, &r, e) < 0) {
		egress_close(g);
		return -1;
	}
	*ret = g;
	return 0;
}

void egress_close(struct egress *g)
{
	if (!g)
		return;
	egress_watch_remove(g);
	close_p(&g->run_dirfd);
	pthread_mutex_destroy(&g->turn);
	free(g);
}

static int ask_for(struct egress *g, const struct net_policy *p, struct err *e)
{
	struct request q;
	int r;

	if (make_request(g, PROTO_CALLS, p, &q, e) < 0)
		return -1;
	r = send_request(g, &q, CALL_MS, NULL);
	request_free(&q);
	if (r == 0)
		return 0;
	return is_dead(r) ? revive(g, p, CALL_MS, e) : broken(e, r);
}

/* Under `turn`. A question whose answer did not come may have been heard all the same: the watch's thread then puts
 * in force again what the sandbox has. */
static int put_in_force(struct egress *g, const struct net_policy *p, struct err *e)
{
	if (ask_for(g, p, e) == 0) {
		g->unsure = false;
		return 0;
	}
	g->unsure = true;
	egress_watch_fd(g, -1);
	return -1;
}

int egress_policy(struct egress *g, const struct net_policy *p, struct err *e)
{
	int rc;

	pthread_mutex_lock(&g->turn);
	rc = put_in_force(g, p, e);
	pthread_mutex_unlock(&g->turn);
	return rc;
}

int egress_counters(struct egress *g, struct egress_counters *ret, struct err *e)
{
	struct request q = { .b = malloc(sizeof(struct proto_hello) + sizeof(struct proto_frame)) };
	struct egress_counts counts;
	struct proto_frame f;
	_cleanup_close_ int fd = -1;
	int64_t end = clock_mono_ms() + QUICK_MS;
	int r;

	if (!q.b)
		return err_oom(e);
	put_hello(&q, g, PROTO_CALLS);
	put_frame(&q, EGRESS_COUNTERS, 0);
	r = dial(g, end, &fd);
	if (r == 0)
		r = fd_send_full(fd, q.b, q.len, left(end));
	if (r == 0)
		r = read_hello_ok(fd, end);
	if (r == 0)
		r = fd_recv_full(fd, &f, sizeof(f), left(end));
	if (r == 0)
		r = f.op == EGRESS_COUNTERS && f.len == sizeof(counts)
			    ? fd_recv_full(fd, &counts, sizeof(counts), left(end))
			    : -EPROTO;
	request_free(&q);
	if (r < 0)
		return broken(e, r);
	*ret = (struct egress_counters){ counts.rx_bytes < 0 ? 0 : counts.rx_bytes,
		counts.tx_bytes < 0 ? 0 : counts.tx_bytes };
	return 0;
}

/* --- a sandbox's life ------------------------------------------------------------------------ */

static void set_egress(struct sandbox *s, struct egress *g)
{
	pthread_mutex_lock(&s->lock);
	s->egress = g;
	pthread_mutex_unlock(&s->lock);
}

int egress_begin(struct sandbox *s, struct err *e)
{
	struct egress *g;
	int r = 0;

	if (s->network.mode == NET_NONE)
		return 0;
	if (new_egress(s, &g, e) < 0)
		return -1;
	if (connect_events(g, &s->network, CALL_MS, &r, e) < 0) {
		egress_close(g);
		return -1;
	}
	set_egress(s, g);
	return 0;
}

void egress_resume(struct sandbox *s)
{
	struct err e = ERR_NULL;
	struct egress *g;
	int r = 0;

	if (!s->core->egress)
		return;
	if (s->network.mode == NET_NONE && faccessat(s->run_dirfd, "egress", F_OK, 0) < 0)
		return;
	if (new_egress(s, &g, &e) == 0) {
		if (connect_events(g, &s->network, QUICK_MS, &r, &e) < 0) {
			g->unsure = true; /* it has what the front before said last, kept or not */
			egress_watch_fd(g, -1);
		}
		set_egress(s, g);
	}
	if (e.code && s->network.mode != NET_NONE)
		log_warn("a sandbox has no network for now id=%s reason=\"%s\"", s->id, e.msg);
}

int egress_change(struct sandbox *s, struct net_policy *p, struct err *e)
{
	struct net_policy old;
	struct egress *g;
	int rc = 0;

	pthread_mutex_lock(&s->lock);
	g = s->egress;
	pthread_mutex_unlock(&s->lock);
	if (!g && p->mode != NET_NONE) {
		if (new_egress(s, &g, e) < 0)
			return -1;
		set_egress(s, g);
	}
	if (g) {
		pthread_mutex_lock(&g->turn);
		rc = put_in_force(g, p, e);
	}
	if (rc == 0) {
		pthread_mutex_lock(&s->lock);
		old = s->network;
		s->network = *p;
		*p = (struct net_policy){ .mode = NET_NONE };
		pthread_mutex_unlock(&s->lock);
		net_policy_free(&old);
	}
	if (g)
		pthread_mutex_unlock(&g->turn);
	return rc;
}
