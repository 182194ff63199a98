/* SPDX-License-Identifier: MIT */
/* Who is inside a sandbox, and what counts as use of it (node contract, 10.1): requests that work
 * in it, streams for as long as they are open, processes for as long as they run. A request that
 * finds the sandbox asleep wakes it in suspend.c. */
#include "sandboxd/core/core_internal.h"

#include "sandboxd/core/clock.h"

#include <sys/socket.h>

bool use_now(const struct sandbox *s)
{
	return s->uses > 0 || s->running_procs > 0;
}

static void begin_use(struct sandbox *s)
{
	s->uses++;
	s->idle_since_ms = 0;
}

static void end_use(struct sandbox *s)
{
	s->uses--;
	s->idle_since_ms = use_now(s) ? 0 : clock_mono_ms();
}

int sandbox_enter(struct sandbox *s, bool use, struct err *e)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = suspend_settle(s, use, e);
	if (rc == 0 && s->state != SBX_RUNNING)
		rc = err_set(e, ERR_CONFLICT, "sandbox is %s, not running",
			sandbox_state_words[s->state]);
	if (rc == 0) {
		s->users++;
		if (use)
			begin_use(s);
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}

void sandbox_leave(struct sandbox *s, bool use)
{
	bool last;

	pthread_mutex_lock(&s->lock);
	if (use)
		end_use(s);
	last = --s->users == 0;
	if (last)
		pthread_cond_broadcast(&s->changed);
	last = last && s->free_at_leave;
	if (last)
		s->free_at_leave = false;
	pthread_mutex_unlock(&s->lock);
	if (last)
		lifetime_free_guest(s);
}

bool sandbox_hold(struct sandbox *s, bool use)
{
	bool held;

	pthread_mutex_lock(&s->lock);
	held = use && s->state == SBX_RUNNING;
	if (held)
		begin_use(s);
	pthread_mutex_unlock(&s->lock);
	return held;
}

void sandbox_release(struct sandbox *s, bool held)
{
	if (!held)
		return;
	pthread_mutex_lock(&s->lock);
	end_use(s);
	pthread_mutex_unlock(&s->lock);
}

/* --- tunnels --------------------------------------------------------------------------------- */

void sandbox_tunnel_open(struct sandbox *s, struct sandbox_tunnel *t)
{
	pthread_mutex_lock(&s->lock);
	t->next = s->tunnels;
	s->tunnels = t;
	/* it may have fallen asleep, or ended, since the guest was dialled */
	if (s->state != SBX_RUNNING || s->turn == TURN_SLEEP)
		shutdown(t->guest_fd, SHUT_RDWR);
	pthread_mutex_unlock(&s->lock);
}

void sandbox_tunnel_close(struct sandbox *s, struct sandbox_tunnel *t)
{
	struct sandbox_tunnel **p;

	pthread_mutex_lock(&s->lock);
	for (p = &s->tunnels; *p && *p != t; p = &(*p)->next)
		;
	if (*p)
		*p = t->next;
	pthread_mutex_unlock(&s->lock);
}

void use_cut_tunnels(struct sandbox *s)
{
	for (const struct sandbox_tunnel *t = s->tunnels; t; t = t->next) {
		shutdown(t->client_fd, SHUT_RDWR);
		shutdown(t->guest_fd, SHUT_RDWR);
	}
}
