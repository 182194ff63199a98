/* SPDX-License-Identifier: MIT */
/* The thread that pushes. Once a second it looks which sandboxes are due, and drives all pushes
 * under way with the transfer library. It sleeps, and the library is not loaded, while no sandbox
 * has a setting.
 *
 * Fairness: a push is cut after ten seconds, and a sandbox has one at a time. Those whose last push
 * went well have places of their own, so that however many collectors never answer, they take
 * places from each other only. */
#include "sandboxd/core/export_internal.h"

#include "common/curl/curl.h"
#include "common/sys/deadline.h"
#include "common/sys/mem.h"
#include "sandboxd/core/clock.h"
#include "sandboxd/core/core_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LANE_MOST 128 /* pushes under way, of each of the two kinds */
#define LOOK_MS   1000

struct exporter {
	struct core *core;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* under lock */
	bool stop, woken;
	CURLM *multi; /* made by the thread, once; others only wake it */
	/* the thread's own */
	struct push *pushes;
	unsigned under_way[LANES], turn;
	int64_t look_ms;
};

static void wake(struct exporter *x)
{
	if (!x)
		return;
	pthread_mutex_lock(&x->lock);
	x->woken = true;
	if (x->multi)
		K->multi_wakeup(x->multi);
	pthread_cond_signal(&x->cond);
	pthread_mutex_unlock(&x->lock);
}

void export_set(struct sandbox *s, struct export *x)
{
	export_free(s->metrics_export);
	s->metrics_export = x;
	if (x)
		x->sent = metrics_count(s);
	export_begin(s);
	wake(s->core->exporter); /* a push for the old one is cut */
}

void export_begin(struct sandbox *s)
{
	struct export *x = s->metrics_export;

	if (!x)
		return;
	x->due_ms = clock_mono_ms() + x->interval_secs * 1000;
	wake(s->core->exporter);
}

void export_end(struct sandbox *s)
{
	struct export *x = s->metrics_export;

	if (!x)
		return;
	for (size_t i = 0; i < x->headers.n; i++)
		explicit_bzero(x->headers.values[i], strlen(x->headers.values[i]));
	wake(s->core->exporter); /* a push under way is cut */
}

/* --- its end --------------------------------------------------------------------------------- */

/* Lock held. */
static void note(struct export *set, const char *failure)
{
	int64_t now = clock_wall_ns();

	set->proven = !*failure;
	snprintf(set->last_error, sizeof(set->last_error), "%s", failure);
	if (*failure) {
		if (!set->failing_since_ns)
			set->failing_since_ns = now;
		return;
	}
	set->last_push_ns = now;
	set->failing_since_ns = 0;
}

/* failure NULL: it was cut, and says nothing about the collector. */
static void finish(struct push *p, const char *failure)
{
	struct sandbox *s = p->s;
	struct export *set;

	pthread_mutex_lock(&s->lock);
	set = s->metrics_export;
	if (set && set->serial == p->serial) {
		set->busy = false;
		if (failure && s->state != SBX_TERMINATED) {
			note(set, failure);
			sandbox_changed(s);
		}
	}
	pthread_mutex_unlock(&s->lock);
	p->exporter->under_way[p->lane]--;
	push_free(p);
}

static void unlink_push(struct exporter *x, struct push *p)
{
	struct push **at = &x->pushes;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	K->multi_remove_handle(x->multi, p->easy);
}

/* --- the thread ------------------------------------------------------------------------------ */

/* Lock held. Something new to send, and the time for it? */
static bool is_due(const struct sandbox *s)
{
	const struct export *set = s->metrics_export;

	return s->state == SBX_RUNNING && !set->busy && clock_mono_ms() >= set->due_ms &&
	       metrics_count(s) > set->sent;
}

/* Lock held. Returns the push that is to be started. */
static struct push *take_due(struct exporter *x, struct sandbox *s)
{
	struct export *set = s->metrics_export;
	enum lane lane = set->proven ? LANE_PROVEN : LANE_OTHER;
	struct push *p;

	if (!is_due(s) || x->under_way[lane] >= LANE_MOST)
		return NULL;
	p = x->multi ? push_new(s, lane) : NULL;
	if (p)
		p->exporter = x;
	set->sent = metrics_count(s); /* what fails is not sent again */
	set->due_ms += set->interval_secs * 1000;
	if (set->due_ms <= clock_mono_ms())
		set->due_ms = clock_mono_ms() + set->interval_secs * 1000;
	set->busy = p != NULL;
	if (p)
		return p;
	note(set, x->multi ? "the server is out of memory" : "the server has no libcurl.so.4");
	sandbox_changed(s);
	return NULL;
}

static void start(struct exporter *x, struct push *p)
{
	x->under_way[p->lane]++;
	if (!push_set_options(p)) {
		finish(p, "the server's libcurl.so.4 is too old");
		return;
	}
	p->next = x->pushes;
	x->pushes = p;
	if (K->multi_add_handle(x->multi, p->easy) == CURLM_OK)
		return;
	x->pushes = p->next;
	finish(p, "the server is out of memory");
}

/* True: it has a setting. */
static bool look_at(struct exporter *x, struct sandbox *s)
{
	struct push *p = NULL;
	bool set;

	pthread_mutex_lock(&s->lock);
	set = s->metrics_export && s->state != SBX_TERMINATED;
	if (set && (x->multi || !curl_lib()))
		p = take_due(x, s);
	pthread_mutex_unlock(&s->lock);
	if (p)
		start(x, p);
	return set;
}

/* Not always from the same end: places may be few. */
static bool look_at_all(struct exporter *x)
{
	struct sandbox **all;
	bool any = false;
	size_t n, first;

	if (registry_all(&x->core->reg, &all, &n) < 0)
		return true;
	first = n ? x->turn++ % n : 0;
	for (size_t i = 0; i < n; i++)
		any |= look_at(x, all[(first + i) % n]);
	for (size_t i = 0; i < n; i++)
		sandbox_unref(all[i]);
	free(all);
	return any;
}

/* Its setting was replaced, or its sandbox has ended. */
static bool outdated(const struct push *p)
{
	struct sandbox *s = p->s;
	bool old;

	pthread_mutex_lock(&s->lock);
	old = s->state == SBX_TERMINATED || !s->metrics_export ||
	      s->metrics_export->serial != p->serial;
	pthread_mutex_unlock(&s->lock);
	return old;
}

static void cut_pushes(struct exporter *x, bool all)
{
	struct push *next;

	for (struct push *p = x->pushes; p; p = next) {
		next = p->next;
		if (!all && !outdated(p))
			continue;
		unlink_push(x, p);
		finish(p, NULL);
	}
}

static void take_results(struct exporter *x)
{
	char failure[sizeof(((struct export *)0)->last_error)];
	struct push *p;
	CURLMsg *m;
	int left;

	while ((m = K->multi_info_read(x->multi, &left))) {
		if (m->msg != CURLMSG_DONE)
			continue;
		K->easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &p);
		push_judge(p, m->data.result, failure, sizeof(failure));
		unlink_push(x, p);
		finish(p, failure);
	}
}

/* Until something moves, at most until the next look. */
static void drive(struct exporter *x)
{
	int64_t left = x->look_ms - clock_mono_ms();
	int running;

	K->multi_poll(x->multi, NULL, 0, left > 0 ? (int)left : 0, NULL);
	K->multi_perform(x->multi, &running);
	take_results(x);
}

/* Only with the first setting; without the library no push is made. */
static void make_multi(struct exporter *x)
{
	CURLM *multi = curl_lib() ? K->multi_init() : NULL;

	pthread_mutex_lock(&x->lock);
	x->multi = multi;
	pthread_mutex_unlock(&x->lock);
}

/* True: it is to stop. Sleeps while there is nothing to do at all. */
static bool rest(struct exporter *x, bool idle)
{
	bool stop;

	pthread_mutex_lock(&x->lock);
	while (idle && !x->stop && !x->woken)
		pthread_cond_wait(&x->cond, &x->lock);
	if (!idle && !x->multi && !x->stop && !x->woken)
		(void)cond_wait_ms(&x->cond, &x->lock, 1000);
	if (x->woken)
		x->look_ms = 0;
	x->woken = false;
	stop = x->stop;
	pthread_mutex_unlock(&x->lock);
	return stop;
}

static void *run(void *arg)
{
	struct exporter *x = arg;
	bool any = false;
	CURLM *multi;

	while (!rest(x, !any && !x->pushes)) {
		if (clock_mono_ms() >= x->look_ms) {
			x->look_ms = clock_mono_ms() + LOOK_MS;
			cut_pushes(x, false);
			any = look_at_all(x);
			if (any && !x->multi)
				make_multi(x);
		}
		if (x->multi)
			drive(x);
	}
	cut_pushes(x, true);
	multi = x->multi;
	pthread_mutex_lock(&x->lock);
	x->multi = NULL;
	pthread_mutex_unlock(&x->lock);
	if (multi)
		K->multi_cleanup(multi);
	return NULL;
}

int exporter_open(struct core *c, struct err *e)
{
	struct exporter *x;
	int r;

	if (!core_cap(c, CAP_METRICS_EXPORT))
		return 0;
	x = calloc(1, sizeof(*x));
	if (!x)
		return err_oom(e);
	x->core = c;
	x->woken = true; /* settings may have come with the records */
	pthread_mutex_init(&x->lock, NULL);
	pthread_cond_init(&x->cond, NULL);
	r = pthread_create(&x->thread, NULL, run, x);
	if (r != 0) {
		free(x);
		return err_sys(e, r, "start the thread that pushes metrics");
	}
	c->exporter = x;
	return 0;
}

void exporter_close(struct core *c)
{
	struct exporter *x = c->exporter;

	if (!x)
		return;
	pthread_mutex_lock(&x->lock);
	x->stop = true;
	pthread_mutex_unlock(&x->lock);
	wake(x);
	pthread_join(x->thread, NULL);
	c->exporter = NULL;
	pthread_cond_destroy(&x->cond);
	pthread_mutex_destroy(&x->lock);
	free(x);
}
