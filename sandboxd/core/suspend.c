/* SPDX-License-Identifier: MIT */
/* Sleep and waking (node contract, 10.2, 10.3, 15). While the backend freezes or thaws, the sandbox
 * is in a *turn*: its state is still the old one, its lock is free, and whoever wants it to run
 * waits until the turn is over. So requests that come together share one resume, and its failure is
 * the answer of each. */
#include "sandboxd/core/core_internal.h"

#include "common/base/log.h"
#include "common/sys/fault.h"
#include "common/sys/mem.h"
#include "sandboxd/core/clock.h"

/* Lock held; given up while the backend works. */
static int turn(struct sandbox *s, enum turn t, struct err *e)
{
	struct core *c = s->core;
	struct err why = ERR_NULL;
	int rc;

	s->turn = t;
	pthread_mutex_unlock(&s->lock);
	rc = c->ops->freeze(c->backend, s->id, t == TURN_SLEEP, &why);
	pthread_mutex_lock(&s->lock);
	if (s->state == SBX_TERMINATED)
		rc = err_set(&why, ERR_CONFLICT, "sandbox is terminated, not running");
	s->turn = TURN_NONE;
	s->turns++;
	s->turn_err = rc < 0 ? why : (struct err)ERR_NULL;
	pthread_cond_broadcast(&s->changed);
	if (rc < 0 && e)
		*e = why;
	return rc;
}

/* Lock held. Waits for the end of a turn; -1: it was a waking that `use` wanted too, and it failed.
 */
static int join_turn(struct sandbox *s, bool use, struct err *e)
{
	bool waking = s->turn == TURN_WAKE;
	unsigned no = s->turns;

	while (s->turn && s->turns == no)
		pthread_cond_wait(&s->changed, &s->lock);
	if (!waking || !use || s->turns != no + 1 || !s->turn_err.code)
		return 0;
	if (e)
		*e = s->turn_err;
	return -1;
}

/* Lock held. What everybody sees of a change, the event with the state. */
static uint64_t show(struct sandbox *s, const char *event, const char *reason, bool durable)
{
	audit_event(
		s->core->audit, event, s->id, reason ? json_pack("{s:s}", "reason", reason) : NULL);
	sandbox_changed(s);
	pthread_cond_broadcast(&s->changed);
	return sandbox_save(s, durable);
}

/* Lock held, state suspended, no turn. The record need not be on the disk before a request is
 * served: a sandbox that is found asleep with processes running was awake (restore.c). */
static int wake(struct sandbox *s, const char *reason, uint64_t *ret_ticket, struct err *e)
{
	if (turn(s, TURN_WAKE, e) < 0)
		return -1;
	fault_point("sandbox-thawed");
	s->state = SBX_RUNNING;
	s->idle_suspended = false;
	s->idle_since_ms = use_now(s) ? 0 : clock_mono_ms();
	registry_running(&s->core->reg, 1);
	*ret_ticket = show(s, "sandbox.resumed", reason, !reason);
	return 0;
}

/* Lock held, state running, no turn, no process. */
static int sleep_now(struct sandbox *s, bool idle, uint64_t *ret_ticket, struct err *e)
{
	if (turn(s, TURN_SLEEP, e) < 0)
		return -1;
	fault_point("sandbox-frozen");
	s->state = SBX_SUSPENDED;
	s->idle_suspended = idle;
	registry_running(&s->core->reg, -1);
	use_cut_tunnels(s);
	*ret_ticket = show(s, "sandbox.suspended", idle ? "idle" : NULL, !idle);
	return 0;
}

int suspend_settle(struct sandbox *s, bool use, struct err *e)
{
	uint64_t ticket;

	for (;;) {
		if (s->turn) {
			if (join_turn(s, use, e) < 0)
				return -1;
		} else if (use && s->state == SBX_SUSPENDED && s->idle_suspended) {
			if (wake(s, "request", &ticket, e) < 0)
				return -1;
		} else {
			return 0;
		}
	}
}

/* Lock held: from "state" on in the order of section 15. */
static int suspend_locked(struct sandbox *s, uint64_t *ret_ticket, struct err *e)
{
	/* a snapshot makes the guest stand still, too, and sets it going again */
	while (s->turn || (s->taking.started_ns && s->state == SBX_RUNNING))
		pthread_cond_wait(&s->changed, &s->lock);
	if (s->state == SBX_SUSPENDED && s->idle_suspended) {
		s->idle_suspended = false; /* from now on it sleeps because it was told to */
		*ret_ticket = show(s, "sandbox.suspended", NULL, true);
		return 0;
	}
	if (s->state != SBX_RUNNING)
		return err_set(e, ERR_CONFLICT, "sandbox is %s, not running",
			sandbox_state_words[s->state]);
	if (s->running_procs > 0)
		return err_set(e, ERR_CONFLICT,
			"%u of its processes run; a sandbox is suspended when none does",
			s->running_procs);
	return sleep_now(s, false, ret_ticket, e);
}

/* Lock held. Who asked while it was being woken has got what was asked for. */
static int resume_locked(struct sandbox *s, uint64_t *ret_ticket, struct err *e)
{
	bool woken = s->turn == TURN_WAKE;

	while (s->turn)
		if (join_turn(s, true, e) < 0)
			return -1;
	if (woken && s->state == SBX_RUNNING)
		return 0;
	if (s->state != SBX_SUSPENDED)
		return err_set(e, ERR_CONFLICT, "sandbox is %s, not suspended",
			sandbox_state_words[s->state]);
	return wake(s, NULL, ret_ticket, e);
}

static int locked(
	struct sandbox *s, int (*fn)(struct sandbox *, uint64_t *, struct err *), struct err *e)
{
	uint64_t ticket = 0;
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = fn(s, &ticket, e);
	pthread_mutex_unlock(&s->lock);
	if (rc < 0 || !ticket)
		return rc;
	return lifetime_wait_saved(s, ticket, e);
}

int sandbox_suspend(struct sandbox *s, struct err *e)
{
	return locked(s, suspend_locked, e);
}

int sandbox_resume(struct sandbox *s, struct err *e)
{
	return locked(s, resume_locked, e);
}

bool suspend_idle(struct sandbox *s)
{
	struct err e = ERR_NULL;
	uint64_t ticket;
	bool mine;

	pthread_mutex_lock(&s->lock);
	mine = s->idle_suspend && s->core->ops->freeze;
	if (mine && lifetime_is_idle(s) && sleep_now(s, true, &ticket, &e) < 0 &&
		s->state == SBX_RUNNING) {
		log_warn(
			"an idle sandbox could not be suspended id=%s reason=\"%s\"", s->id, e.msg);
		s->idle_since_ms = clock_mono_ms(); /* tried again after another timeout */
	}
	pthread_mutex_unlock(&s->lock);
	return mine;
}
