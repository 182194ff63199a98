/* SPDX-License-Identifier: MIT */
/* The thread that measures. It looks once a second and measures what is due then, each sandbox
 * every five seconds from its own first moment on: hundreds of them are spread over the five
 * seconds, and between two questions to the broker others get their answers. Nothing is measured
 * under a lock. */
#include "sandboxd/core/metrics.h"

#include "common/base/log.h"
#include "common/sys/deadline.h"
#include "sandboxd/core/clock.h"
#include "sandboxd/core/core_internal.h"
#include "sandboxd/core/egress.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define NET_AGAIN_MS 60000 /* an egress process that did not answer is left alone for so long */

struct sampler {
	struct core *core;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* under lock */
	bool stop;
};

static int64_t mono_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Is it time? Notes a sleep on the way. */
static bool is_due(struct sandbox *s, int64_t now_ms)
{
	bool due = false;

	pthread_mutex_lock(&s->lock);
	if (s->state == SBX_RUNNING) {
		if (!s->metrics)
			s->metrics = metrics_new();
		/* the ticks are not exact */
		due = s->metrics && now_ms + 500 >= *metrics_due_ms(s->metrics);
	} else if (s->metrics) {
		metrics_pause(s->metrics);
		*metrics_due_ms(s->metrics) = 0;
	}
	pthread_mutex_unlock(&s->lock);
	return due;
}

/* Pins the egress process's connection until sandbox_leave. NULL: there is nothing to ask, or it
 * did not answer lately. */
static struct egress *egress_of(struct sandbox *s, int64_t now_ms)
{
	struct egress *g = NULL;

	pthread_mutex_lock(&s->lock);
	if (s->state == SBX_RUNNING && s->egress && now_ms >= *metrics_net_ms(s->metrics)) {
		g = s->egress;
		s->users++;
	}
	pthread_mutex_unlock(&s->lock);
	return g;
}

static void measure_net(struct sandbox *s, struct metrics_read *r)
{
	int64_t now_ms = clock_mono_ms();
	struct egress *g = egress_of(s, now_ms);
	struct egress_counters n;

	if (!g)
		return;
	if (egress_counters(g, &n, NULL) == 0) {
		r->net_rx_bytes = n.rx_bytes;
		r->net_tx_bytes = n.tx_bytes;
	} else {
		*metrics_net_ms(s->metrics) = now_ms + NET_AGAIN_MS;
	}
	sandbox_leave(s, false);
}

static int measure(struct sandbox *s, struct metrics_read *r)
{
	struct core *c = s->core;

	*r = (struct metrics_read){ .net_rx_bytes = -1, .net_tx_bytes = -1 };
	if (c->ops->meter(c->backend, s->id, &r->meter, NULL) < 0)
		return -1;
	/* Who did not run did not talk; most sandboxes are idle most of the time. */
	if (metrics_ran(s->metrics, r->meter.cpu_ns))
		measure_net(s, r);
	r->mono_ns = mono_ns();
	r->wall_ns = clock_wall_ns();
	return 0;
}

static void sample(struct sandbox *s, int64_t now_ms)
{
	struct metrics_read r;
	int64_t *due;

	if (!is_due(s, now_ms) || measure(s, &r) < 0)
		return;
	pthread_mutex_lock(&s->lock);
	/* It may have ended or fallen asleep meanwhile. */
	if (s->state == SBX_RUNNING) {
		metrics_add(s->metrics, &r, s->cpus);
		due = metrics_due_ms(s->metrics);
		*due += METRICS_EVERY_SECS * 1000;
		if (*due <= now_ms)
			*due = now_ms + METRICS_EVERY_SECS * 1000;
	}
	pthread_mutex_unlock(&s->lock);
}

static void sample_all(struct core *c)
{
	struct sandbox **all;
	size_t n;

	if (registry_all(&c->reg, &all, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		sample(all[i], clock_mono_ms());
		sandbox_unref(all[i]);
	}
	free(all);
}

/* A second later, or from now on when that is over already. */
static void advance(struct timespec *next)
{
	struct timespec now = deadline_ms(0);

	if (now.tv_sec > next->tv_sec)
		*next = now;
	next->tv_sec++;
}

static void *run(void *arg)
{
	struct sampler *p = arg;
	struct timespec next = deadline_ms(0);

	pthread_mutex_lock(&p->lock);
	while (!p->stop) {
		advance(&next);
		while (!p->stop && cond_wait_until(&p->cond, &p->lock, &next))
			;
		if (p->stop)
			break;
		pthread_mutex_unlock(&p->lock);
		sample_all(p->core);
		pthread_mutex_lock(&p->lock);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

int metrics_start(struct core *c, struct err *e)
{
	struct sampler *p;
	int r;

	if (!core_cap(c, CAP_METRICS))
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p)
		return err_oom(e);
	p->core = c;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->cond, NULL);
	r = pthread_create(&p->thread, NULL, run, p);
	if (r != 0) {
		free(p);
		return err_sys(e, r, "start the thread that measures");
	}
	c->sampler = p;
	return 0;
}

void metrics_stop(struct core *c)
{
	struct sampler *p = c->sampler;

	if (!p)
		return;
	c->sampler = NULL;
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_signal(&p->cond);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	pthread_cond_destroy(&p->cond);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
