/* SPDX-License-Identifier: MIT */
/* Idleness, and every way a sandbox ends. Two threads: one looks at the clocks each second and
 * never waits for anything, the other ends what the first (or the hub) has found due. */
#include "sandboxd/core/core_internal.h"

#include "common/base/log.h"
#include "common/sys/deadline.h"
#include "common/sys/fault.h"
#include "common/sys/mem.h"
#include "sandboxd/backend/guestfs.h"
#include "sandboxd/core/clock.h"
#include "sandboxd/core/egress.h"
#include "sandboxd/core/export.h"
#include "sandboxd/core/proc.h"
#include "sandboxd/core/schedule.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#define CANCEL_DIED   2  /* sandbox.cancel: the shim died while it was being made */
#define REST_AFTER_MS 15 /* so long cleaning up waits, to be out of the next request's way */
#define AGAIN_MS      1000  /* after a clean-up that could not be done */
#define AGAIN_MOST_MS 60000 /* the backend may take long to say that it could not, and others wait meanwhile */
#define GONE_MS       2000 /* a killed guest that is not gone by then is left to the backend */
#define RECORDS_LEAST (8u << 20) /* bytes for records and output, without which none is made */

static void shutdown_guest(struct sandbox *s)
{
	pthread_mutex_lock(&s->lock);
	use_cut_tunnels(s);
	pthread_mutex_unlock(&s->lock);
	if (s->fs)
		guestfs_shutdown(s->fs);
	if (s->guest)
		guest_shutdown(s->guest);
}

/* A request may sit in the sandbox for as long as its client does not read: nobody waits for that,
 * the last one out frees. */
void lifetime_free_guest(struct sandbox *s)
{
	struct guest *guest;
	struct guestfs *fs;
	struct egress *egress;

	pthread_mutex_lock(&s->lock);
	if (s->users > 0) {
		s->free_at_leave = true;
		pthread_mutex_unlock(&s->lock);
		return;
	}
	guest = steal(s->guest);
	fs = steal(s->fs);
	egress = steal(s->egress);
	/* nobody can start a process any more, so nobody reads the values */
	for (size_t i = 0; i < s->env.n; i++)
		explicit_bzero(s->env.values[i], strlen(s->env.values[i]));
	export_end(s);
	pthread_mutex_unlock(&s->lock);
	if (fs)
		guestfs_free(fs);
	if (guest)
		guest_free(guest);
	egress_close(egress);
}

bool lifetime_is_idle(const struct sandbox *s)
{
	return s->state == SBX_RUNNING && !s->turn && !use_now(s) && !s->taking.started_ns &&
	       s->idle_timeout_secs > 0 && s->idle_since_ms > 0 &&
	       (clock_mono_ms() - s->idle_since_ms) / 1000 >= s->idle_timeout_secs;
}

static bool past_lifetime(const struct sandbox *s)
{
	return s->lifetime_secs > 0 &&
	       clock_wall_ns() >= s->created_ns + s->lifetime_secs * 1000000000;
}

/* Lock held. What is to be done about this end? */
enum end_step { END_NOTHING, END_WAIT_CREATE, END_WAIT_END, END_AGAIN, END_NOW };
static enum end_step end_step(struct sandbox *s, const char *reason)
{
	bool from_reaper = !strcmp(reason, "failed");

	/* it may have been used, or been given more time, since it was found due */
	if ((!strcmp(reason, "idle") &&
		    (!lifetime_is_idle(s) || (s->idle_suspend && s->core->ops->freeze))) ||
		(!strcmp(reason, "lifetime") && !past_lifetime(s)))
		return END_NOTHING;
	if (s->state == SBX_PENDING) {
		__atomic_store_n(&s->cancel, from_reaper ? CANCEL_DIED : 1, __ATOMIC_RELEASE);
		return from_reaper ? END_NOTHING : END_WAIT_CREATE;
	}
	if (s->state != SBX_TERMINATED)
		return END_NOW;
	if (s->ended)
		return END_NOTHING;
	if (!s->end_failed)
		return from_reaper ? END_NOTHING : END_WAIT_END;
	s->end_failed = false;
	return END_AGAIN;
}

static void note_end(struct sandbox *s, bool well)
{
	pthread_mutex_lock(&s->lock);
	s->ended |= well; /* who was told that it could not end may come after who saw it end */
	s->end_failed = !s->ended;
	if (well)
		registry_free_mounts(&s->core->reg, s);
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

/* Without a spool there is no process whose reader could want the folder. */
static void close_run_dir(struct sandbox *s)
{
	pthread_mutex_lock(&s->lock);
	close_p(&s->run_dirfd);
	s->run_dirfd = -1;
	pthread_mutex_unlock(&s->lock);
}

/* What no caller has to wait for: namespaces and disk, connections, descriptors, the run folder, the
 * eldest. False: the backend could not, the rest is done. One that could not be ended at first has ended when it
 * could. */
static bool clean_up(struct sandbox *s, bool destroy, bool again)
{
	struct core *c = s->core;
	struct err e = ERR_NULL;
	bool ended, done;

	fault_point("end-answered");
	store_look(c->store);
	done = !destroy || c->ops->destroy(c->backend, s->id, &e) == 0;
	if (destroy && done)
		note_end(s, true);
	pthread_mutex_lock(&s->lock);
	ended = s->ended;
	pthread_mutex_unlock(&s->lock);
	if (!again && !done)
		log_error("what is left of a sandbox could not be removed, and is tried again"
			  " id=%s reason=\"%s\"",
			s->id, e.msg);
	if (!again) {
		lifetime_free_guest(s);
		proc_retire(s);
	}
	/* A backend may know by what lies in the run folder whom it has to end. */
	if (ended && done) {
		sandbox_drop_chain(s);
		if (!sandbox_clean_run_dir(s, false))
			close_run_dir(s);
		lifetime_forget(c);
	}
	core_spare_dirs(c);
	return done;
}

/* Takes the job; false: nobody is there any more who would do it, or one that waits saves the same record. They
 * stand in the order of their times. The reaper is woken by who tells of the end. */
static bool queue_rest(struct core *c, struct end_job *j, int64_t after_ms)
{
	struct end_job **at = &c->rests;
	bool queued = false;

	pthread_mutex_lock(&c->queue_lock);
	if (!c->stop && c->reaping && !(j->save && j->s->save_queued)) {
		j->s->save_queued |= j->save;
		j->not_before_ms = clock_mono_ms() + after_ms;
		while (*at && (*at)->not_before_ms <= j->not_before_ms)
			at = &(*at)->next;
		j->next = *at;
		*at = j;
		queued = true;
	}
	pthread_mutex_unlock(&c->queue_lock);
	return queued;
}

void core_tell_ends(struct core *c)
{
	if (!__atomic_exchange_n(&c->ends_untold, false, __ATOMIC_ACQ_REL))
		return;
	core_changed(c);
	pthread_mutex_lock(&c->queue_lock);
	if (c->rests && c->rests->not_before_ms < c->reaper_wakes_ms)
		pthread_cond_signal(&c->queue_cond);
	pthread_mutex_unlock(&c->queue_lock);
}

/* False: as of queue_rest. */
static bool queue_for(struct sandbox *s, struct end_job what, int64_t after_ms)
{
	struct end_job *j = calloc(1, sizeof(*j));

	if (!j)
		return false;
	*j = what;
	j->s = s;
	sandbox_ref(s);
	if (queue_rest(s->core, j, after_ms))
		return true;
	sandbox_unref(s);
	free(j);
	return false;
}

/* Takes the grip. */
static void queue_clean_up(struct sandbox *s, struct end_job what, int64_t after_ms)
{
	if (queue_for(s, what, after_ms))
		return;
	backend_grip_close(&what.grip);
	(void)clean_up(s, what.destroy, false);
}

static void tell_reaper(struct core *c)
{
	__atomic_store_n(&c->ends_untold, true, __ATOMIC_RELEASE);
	core_tell_ends(c);
}

void lifetime_clean_up_later(struct sandbox *s)
{
	const struct end_job what = { .destroy = true, .grip = BACKEND_GRIP_NULL };

	queue_clean_up(s, what, AGAIN_MS);
	tell_reaper(s->core);
}

int lifetime_wait_saved(struct sandbox *s, uint64_t ticket, struct err *e)
{
	const struct end_job what = { .cleaned = true, .save = true, .grip = BACKEND_GRIP_NULL };

	if (store_wait(s->core->store, ticket, e) == 0)
		return 0;
	if (queue_for(s, what, AGAIN_MS))
		tell_reaper(s->core);
	return -1;
}

/* One that has ended has a record of its own kind, or none any more. */
static bool save_again(struct sandbox *s)
{
	uint64_t ticket = 0;
	bool live;

	pthread_mutex_lock(&s->lock);
	live = s->state != SBX_TERMINATED;
	if (live)
		ticket = sandbox_save(s, true);
	pthread_mutex_unlock(&s->lock);
	return !live || store_wait(s->core->store, ticket, NULL) == 0;
}

/* On the disk that has no room values of its environment would stay until the next start. */
static bool record_end(struct sandbox *s)
{
	struct store *st = s->core->store;

	return store_wait(st, store_end_awaited(st, s->id, SBX_TERMINATED), NULL) == 0;
}

/* No guest process may run, and the record must say so, once the caller is told; what is left can
 * wait. The record is written by this thread while the guest dies; a store that has no room is no reason
 * to keep the guest, and is told again and again. Without a grip on it, or when it does not help, the
 * backend is asked, and asked again when it could not. Takes the grip. */
static int end_runtime(struct sandbox *s, struct backend_grip *grip, uint64_t ticket, struct err *e)
{
	struct core *c = s->core;
	bool gone, stored = true;
	int rc = 0;

	if (ticket)
		stored = store_wait(c->store, ticket, NULL) == 0; /* a failure is logged */
	gone = backend_grip_gone(grip, GONE_MS);
	if (!gone)
		rc = c->ops->destroy(c->backend, s->id, e);
	fault_point("end-recorded");
	note_end(s, rc == 0);
	queue_clean_up(s,
		(struct end_job){ .destroy = gone || rc < 0, .record = !stored, .grip = *grip },
		rc < 0 ? AGAIN_MS : REST_AFTER_MS);
	__atomic_store_n(&c->ends_untold, true, __ATOMIC_RELEASE);
	if (rc < 0)
		log_error(
			"a sandbox could not be ended id=%s reason=\"%s\"", s->id, e ? e->msg : "");
	return rc;
}

int sandbox_end(struct sandbox *s, const char *reason, struct err *e)
{
	struct backend_grip grip = BACKEND_GRIP_NULL;
	struct err local = ERR_NULL;
	enum end_step step;
	uint64_t ticket = 0;

	pthread_mutex_lock(&s->lock);
	step = end_step(s, reason);
	if (step == END_NOW) {
		bool was_running = s->state == SBX_RUNNING;
		s->state = SBX_TERMINATED;
		sandbox_leave_chain(s);
		/* Before its name is free: a listing must not show two that have it. Who follows the list is
		 * woken later, and does not take the processor from the end. */
		sandbox_outdated(s);
		registry_end(&s->core->reg, s, was_running);
		proc_sandbox_ended(s);
		/* As early as can be: the guest dies on another processor while the rest goes on. */
		grip = s->grip;
		s->grip = BACKEND_GRIP_NULL;
		if (s->guest)
			guest_mute(s->guest);
		backend_grip_kill(&grip);
		fault_point("end-killed");
		export_end(s);
		/* here, so that whoever sees the state finds the event */
		audit_event(s->core->audit, "sandbox.terminated", s->id,
			json_pack("{s:s}", "reason", reason));
		/* not under the lock */
		pthread_mutex_unlock(&s->lock);
		shutdown_guest(s);
		pthread_mutex_lock(&s->lock);
		ticket = store_end_awaited(s->core->store, s->id, SBX_TERMINATED);
	}
	pthread_cond_broadcast(&s->changed);
	while (step == END_WAIT_CREATE && s->state == SBX_PENDING)
		pthread_cond_wait(&s->changed, &s->lock);
	while (step == END_WAIT_END && !s->ended && !s->end_failed)
		pthread_cond_wait(&s->changed, &s->lock);
	pthread_mutex_unlock(&s->lock);
	if (step < END_AGAIN)
		return 0;
	return end_runtime(s, &grip, ticket, e ? e : &local);
}

int sandbox_terminate(struct sandbox *s, const char *reason, struct err *e)
{
	int rc = sandbox_end(s, reason, e);

	core_tell_ends(s->core);
	return rc;
}

/* Lock of the queue held. A death comes once and nothing takes it back; the other reasons are looked at again when
 * it is their turn, and found again by the next tick. */
static void put_death(struct core *c, const struct sandbox *s, const char *reason)
{
	for (struct end_job *j = c->jobs; j && !strcmp(reason, "failed"); j = j->next)
		if (j->s == s)
			j->reason = reason;
}

void lifetime_end_later(struct sandbox *s, const char *reason)
{
	struct core *c = s->core;
	struct end_job *j = calloc(1, sizeof(*j));

	if (!j)
		return; /* the next tick finds it again */
	pthread_mutex_lock(&c->queue_lock);
	if (s->end_queued || c->stop) {
		put_death(c, s, reason);
		pthread_mutex_unlock(&c->queue_lock);
		free(j);
		return;
	}
	s->end_queued = true;
	sandbox_ref(s);
	j->s = s;
	j->grip = BACKEND_GRIP_NULL;
	j->reason = reason;
	*c->jobs_tail = j;
	c->jobs_tail = &j->next;
	pthread_cond_signal(&c->queue_cond);
	pthread_mutex_unlock(&c->queue_lock);
}

void sandbox_shim_gone(struct sandbox *s)
{
	lifetime_end_later(s, "failed");
}

static void forget(struct core *c, struct sandbox *s)
{
	registry_remove(&c->reg, s);
	store_drop_sandbox(c->store, s->id, false);
	sandbox_clean_run_dir(s, true);
	core_changed(c);
}

void lifetime_forget(struct core *c)
{
	struct registry_figures f;
	struct sandbox **all;
	size_t n, ended = 0;

	registry_figures(&c->reg, &f);
	if (f.ended <= ENDED_KEPT || registry_all(&c->reg, &all, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		bool done, over;
		pthread_mutex_lock(&all[i]->lock);
		over = all[i]->state == SBX_TERMINATED;
		done = all[i]->ended;
		pthread_mutex_unlock(&all[i]->lock);
		if (over && ++ended > ENDED_KEPT && done)
			forget(c, all[i]);
		sandbox_unref(all[i]);
	}
	free(all);
}

static const char *due(struct sandbox *s)
{
	if (s->state != SBX_RUNNING && s->state != SBX_SUSPENDED)
		return NULL;
	if (past_lifetime(s))
		return "lifetime";
	if (use_now(s))
		s->idle_since_ms = 0;
	else if (!s->idle_since_ms)
		s->idle_since_ms = clock_mono_ms();
	return lifetime_is_idle(s) ? "idle" : NULL;
}

static void look_at(struct sandbox *s)
{
	const char *reason;

	pthread_mutex_lock(&s->lock);
	reason = due(s);
	schedule_look(s);
	if (s->state == SBX_PENDING && s->gone && s->gone(s->gone_arg))
		__atomic_store_n(&s->cancel, 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&s->lock);
	if (reason)
		lifetime_end_later(s, reason);
}

/* Disks may have room of their own left where records and output have none. */
static bool has_room_for_records(const struct core *c)
{
	struct statvfs st;

	return fstatvfs(c->run_dirfd, &st) < 0 ||
	       (uint64_t)st.f_bavail * st.f_frsize >= RECORDS_LEAST;
}

static void look_at_disk(struct core *c)
{
	int64_t mb = has_room_for_records(c) ? c->ops->disk_free_mb(c->backend) : 0;

	__atomic_store_n(&c->disk_free_mb, mb, __ATOMIC_RELAXED);
}

static void tick(struct core *c)
{
	struct sandbox **all;
	size_t n;

	look_at_disk(c);
	core_spare_dirs(c);
	core_tell_ends(c); /* of one whose answer nobody reads */
	if (registry_all(&c->reg, &all, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		look_at(all[i]);
		sandbox_unref(all[i]);
	}
	free(all);
}

static void *ticker(void *arg)
{
	struct core *c = arg;
	struct timespec next = deadline_ms(0);

	pthread_mutex_lock(&c->queue_lock);
	while (!c->stop) {
		next.tv_sec++;
		while (!c->stop && cond_wait_until(&c->stop_cond, &c->queue_lock, &next))
			;
		if (c->stop)
			break;
		pthread_mutex_unlock(&c->queue_lock);
		tick(c);
		pthread_mutex_lock(&c->queue_lock);
	}
	pthread_mutex_unlock(&c->queue_lock);
	return NULL;
}

static int64_t next_wait(const struct end_job *j)
{
	if (j->cleaned || !j->wait_ms)
		return AGAIN_MS;
	return j->wait_ms < AGAIN_MOST_MS / 2 ? j->wait_ms * 2 : AGAIN_MOST_MS;
}

static void run_job(struct core *c, struct end_job *j)
{
	struct err e = ERR_NULL;

	if (j->reason) {
		if (strcmp(j->reason, "idle") || !suspend_idle(j->s))
			sandbox_terminate(j->s, j->reason, &e);
	} else {
		j->cleaned = j->cleaned || clean_up(j->s, j->destroy, j->again);
		j->record = j->record && !record_end(j->s);
		j->save = j->save && !save_again(j->s);
		j->again = true;
		j->wait_ms = next_wait(j);
		if ((!j->cleaned || j->record || j->save) && queue_rest(c, j, j->wait_ms))
			return;
	}
	backend_grip_close(&j->grip);
	sandbox_unref(j->s);
	free(j);
}

/* Lock held. NULL: nothing is to be done yet; *ret_ms is when there will be, 0 without an end. */
static struct end_job *take_job(struct core *c, int64_t *ret_ms)
{
	struct end_job *j = c->jobs;

	*ret_ms = 0;
	if (j) {
		c->jobs = j->next;
		if (!c->jobs)
			c->jobs_tail = &c->jobs;
		j->s->end_queued = false; /* who comes from here on is not told by this one */
		return j;
	}
	j = c->rests;
	if (!j)
		return NULL;
	if (!c->stop && clock_mono_ms() < j->not_before_ms) {
		*ret_ms = j->not_before_ms;
		return NULL;
	}
	c->rests = j->next;
	if (j->save)
		j->s->save_queued = false;
	return j;
}

/* Lock held. */
static void wait_job(struct core *c, int64_t ms)
{
	struct timespec until = deadline_at_ms(ms);

	c->reaper_wakes_ms = ms ? ms : INT64_MAX;
	if (ms)
		(void)cond_wait_until(&c->queue_cond, &c->queue_lock, &until);
	else
		pthread_cond_wait(&c->queue_cond, &c->queue_lock);
	c->reaper_wakes_ms = 0;
}

/* Ends that have not begun when it stops are left to the one who stops it. */
static void drop_ends(struct core *c)
{
	struct end_job *j;

	while ((j = c->jobs)) {
		c->jobs = j->next;
		sandbox_unref(j->s);
		free(j);
	}
	c->jobs_tail = &c->jobs;
}

static void *reaper(void *arg)
{
	struct core *c = arg;
	struct end_job *j;
	int64_t ms;

	pthread_mutex_lock(&c->queue_lock);
	for (;;) {
		if (c->stop)
			drop_ends(c);
		j = take_job(c, &ms);
		if (!j && c->stop)
			break;
		if (!j) {
			wait_job(c, ms);
			continue;
		}
		pthread_mutex_unlock(&c->queue_lock);
		run_job(c, j);
		pthread_mutex_lock(&c->queue_lock);
	}
	pthread_mutex_unlock(&c->queue_lock);
	return NULL;
}

int lifetime_start(struct core *c, struct err *e)
{
	look_at_disk(c);
	c->ticking = pthread_create(&c->ticker, NULL, ticker, c) == 0;
	c->reaping = pthread_create(&c->reaper, NULL, reaper, c) == 0;
	if (c->ticking && c->reaping)
		return 0;
	lifetime_stop(c);
	return err_set(e, ERR_UNAVAILABLE, "no thread could be started");
}

void lifetime_stop(struct core *c)
{
	pthread_mutex_lock(&c->queue_lock);
	c->stop = true;
	pthread_cond_broadcast(&c->queue_cond);
	pthread_cond_broadcast(&c->stop_cond);
	pthread_mutex_unlock(&c->queue_lock);
	if (c->ticking)
		pthread_join(c->ticker, NULL);
	if (c->reaping)
		pthread_join(c->reaper, NULL);
	c->ticking = c->reaping = false;
}
