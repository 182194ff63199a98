/* SPDX-License-Identifier: MIT */
/* First come, first served: a queue in order of falling due, and two threads that take from it. */
#include "sandboxd/core/schedule.h"

#include "common/base/log.h"
#include "sandboxd/core/clock.h"
#include "sandboxd/core/core_internal.h"
#include "sandboxd/core/snapshots.h"

#define AT_A_TIME 2 /* on the host; node contract, 29.2 */

struct schedule_job {
	struct schedule_job *next;
	struct sandbox *s; /* referenced */
};
struct schedule {
	pthread_t threads[AT_A_TIME];
	size_t started;
	pthread_mutex_t lock;
	pthread_cond_t work;
	/* under lock */
	struct schedule_job *first, **last;
	bool stop;
};

int schedule_check(const struct core *c, int64_t every, int64_t keep, struct err *e)
{
	const struct limits *l = &c->policy->limits;

	if (every < 0 || keep < 0)
		return err_set(e, ERR_INVALID_REQUEST,
			"a snapshot schedule's interval and number must not be negative");
	if (!core_cap(c, CAP_SNAPSHOT) || (!every && !keep))
		return 0;
	if (!every)
		return err_set(e, ERR_INVALID_REQUEST,
			"how many snapshots to keep needs an interval to take them at");
	if (every < l->min_snapshot_every_secs || every > INT32_MAX)
		return err_set(e, ERR_INVALID_REQUEST,
			"the interval of scheduled snapshots must be at least %lld seconds",
			(long long)l->min_snapshot_every_secs);
	if ((keep ? keep : 1) > l->max_snapshot_keep) /* 0 is one */
		return err_set(e, ERR_INVALID_REQUEST,
			"at most %lld scheduled snapshots of a sandbox are kept",
			(long long)l->max_snapshot_keep);
	return 0;
}

void schedule_arm(struct sandbox *s)
{
	s->snapshot_due_ms =
		s->snapshot_every_secs ? clock_mono_ms() + s->snapshot_every_secs * 1000 : 0;
}

/* Lock held. */
static int check_set(const struct sandbox *s, struct err *e)
{
	if (!core_cap(s->core, CAP_SNAPSHOT))
		return err_set(e, ERR_UNSUPPORTED,
			"this server lacks the capability for a snapshot schedule");
	if (s->nvolumes)
		return err_set(
			e, ERR_CONFLICT, "a sandbox with volumes cannot have a snapshot schedule");
	if (s->state != SBX_RUNNING) /* since it was entered */
		return err_set(e, ERR_CONFLICT, "sandbox is %s, not running",
			sandbox_state_words[s->state]);
	return 0;
}

/* Lock held. */
static uint64_t apply(struct sandbox *s, const struct schedule_body *b)
{
	s->snapshot_every_secs = b->every_secs;
	s->snapshot_keep = b->every_secs && !b->keep ? 1 : b->keep;
	schedule_arm(s);
	audit_event(s->core->audit, "sandbox.updated", s->id,
		json_pack("{s:I,s:I}", "snapshot_every_secs", (json_int_t)s->snapshot_every_secs,
			"snapshot_keep", (json_int_t)s->snapshot_keep));
	sandbox_changed(s);
	return sandbox_save(s, true);
}

static int set_entered(struct sandbox *s, const struct schedule_body *b, struct err *e)
{
	uint64_t ticket = 0;
	int64_t keep = 0;
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = check_set(s, e);
	if (rc == 0) {
		ticket = apply(s, b);
		keep = s->snapshot_keep;
	}
	pthread_mutex_unlock(&s->lock);
	if (rc < 0 || lifetime_wait_saved(s, ticket, e) < 0)
		return -1;
	/* what a stopped schedule has taken stays */
	return keep ? snapshots_prune(s->core, s->id, keep, e) : 0;
}

int schedule_set(struct sandbox *s, const struct schedule_body *b, bool use, struct err *e)
{
	int rc;

	if (sandbox_enter(s, use, e) < 0)
		return -1;
	rc = set_entered(s, b, e);
	sandbox_leave(s, use);
	return rc;
}

static void put(struct schedule *p, struct schedule_job *j)
{
	pthread_mutex_lock(&p->lock);
	*p->last = j;
	p->last = &j->next;
	pthread_cond_signal(&p->work);
	pthread_mutex_unlock(&p->lock);
}

void schedule_look(struct sandbox *s)
{
	struct schedule_job *j;

	if (!s->snapshot_every_secs || s->state != SBX_RUNNING || s->snapshot_queued ||
		s->taking.started_ns || clock_mono_ms() < s->snapshot_due_ms)
		return;
	j = calloc(1, sizeof(*j));
	if (!j)
		return; /* the next tick finds it again */
	sandbox_ref(s);
	j->s = s;
	s->snapshot_queued = true;
	put(s->core->schedule, j);
}

/* Failed or not, the next one is an interval away from here. */
static void attempt(struct sandbox *s)
{
	struct err e = ERR_NULL;
	bool wanted;

	pthread_mutex_lock(&s->lock);
	wanted = s->snapshot_every_secs && s->state == SBX_RUNNING &&
		 clock_mono_ms() >= s->snapshot_due_ms;
	pthread_mutex_unlock(&s->lock);
	if (wanted && snapshot_take_scheduled(s, &e) < 0)
		log_warn("a scheduled snapshot was not taken id=%s reason=\"%s\"", s->id, e.msg);
	pthread_mutex_lock(&s->lock);
	s->snapshot_queued = false;
	if (wanted)
		schedule_arm(s);
	pthread_mutex_unlock(&s->lock);
}

static void *work(void *arg)
{
	struct schedule *p = arg;
	struct schedule_job *j;

	pthread_mutex_lock(&p->lock);
	for (;;) {
		while (!p->first && !p->stop)
			pthread_cond_wait(&p->work, &p->lock);
		if (p->stop)
			break;
		j = p->first;
		p->first = j->next;
		if (!p->first)
			p->last = &p->first;
		pthread_mutex_unlock(&p->lock);
		attempt(j->s);
		sandbox_unref(j->s);
		free(j);
		pthread_mutex_lock(&p->lock);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

int schedule_open(struct core *c, struct schedule **ret, struct err *e)
{
	struct schedule *p = calloc(1, sizeof(*p));

	if (!p)
		return err_oom(e);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	p->last = &p->first;
	*ret = p;
	for (; core_cap(c, CAP_SNAPSHOT) && p->started < AT_A_TIME; p->started++)
		if (pthread_create(&p->threads[p->started], NULL, work, p))
			return err_set(e, ERR_UNAVAILABLE, "no thread could be started");
	return 0;
}

void schedule_close(struct schedule *p)
{
	struct schedule_job *j;

	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->work);
	pthread_mutex_unlock(&p->lock);
	while (p->started > 0)
		pthread_join(p->threads[--p->started], NULL);
	while ((j = p->first)) {
		p->first = j->next;
		sandbox_unref(j->s);
		free(j);
	}
	pthread_cond_destroy(&p->work);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
