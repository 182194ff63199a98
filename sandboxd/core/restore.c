/* SPDX-License-Identifier: MIT */
/* Taking sandboxes back at start. A record is believed only as far as the runtime proves it: same
 * boot, the backend still sees it, and its shim answers with the secret of the record. Everything
 * else ends with reason "restart": files of a sandbox whose shim died are not kept. What cannot be found out, for
 * lack of descriptors or memory, ends nobody: the start fails, and the next one looks again. */
#include "sandboxd/core/core_internal.h"

#include "common/base/log.h"
#include "common/sys/fault.h"
#include "common/sys/mem.h"
#include "sandboxd/backend/guestfs.h"
#include "sandboxd/core/clock.h"
#include "sandboxd/core/egress.h"
#include "sandboxd/core/export.h"
#include "sandboxd/core/proc.h"
#include "sandboxd/core/layers.h"
#include "sandboxd/core/schedule.h"
#include "sandboxd/core/volumes.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct item { /* one record, read before anything is written */
	struct sandbox *s;
	int state; /* enum sandbox_state or RECORD_LANDED */
	bool same_boot;
};
struct restore {
	struct core *c;
	struct item *items;
	size_t n, room;
	const char **kept; /* ids, borrowed from the sandboxes in the registry */
	size_t nkept;
	unsigned taken_back, lost;
};

/* Its processes are stopped, or set going, as the record says: a crash may have come between the two. One
 * that has a process running was awake, whatever an older record says. */
static bool is_asleep(struct sandbox *s, int recorded)
{
	struct core *c = s->core;
	bool asleep = recorded == SBX_SUSPENDED && s->running_procs == 0;
	struct err e = ERR_NULL;

	if (!c->ops->freeze)
		return false;
	if (c->ops->freeze(c->backend, s->id, asleep, &e) == 0)
		return asleep;
	log_warn("a sandbox could not be %s id=%s reason=\"%s\"", asleep ? "suspended" : "resumed",
		s->id, e.msg);
	return false;
}

/* A name that another has as well (a record that could not be written may be older than what was true) is no
 * reason to end anybody. */
static int claim(struct sandbox *s, struct err *e)
{
	struct registry *reg = &s->core->reg;

	if (registry_claim(reg, s, s->name, true, e) == 0)
		return 0;
	if (!s->name || e->code != ERR_CONFLICT)
		return -1;
	log_warn("a sandbox loses its name, which another has id=%s name=%s", s->id, s->name);
	free(s->name);
	s->name = NULL;
	*e = (struct err)ERR_NULL;
	return registry_claim(reg, s, NULL, true, e);
}

/* Its create may have been cut between the record and the log. */
static void tell_created(struct sandbox *s)
{
	struct audit *a = s->core->audit;
	json_t *events = NULL;
	bool truncated = false;

	if (!a || audit_read(a, s->id, &events, &truncated, NULL) < 0)
		return;
	if (!json_array_size(events))
		audit_event(a, "sandbox.created", s->id, created_event(s, false));
	json_decref(events);
}

static int take_back(struct sandbox *s, int recorded, struct err *e)
{
	struct core *c = s->core;
	bool asleep;

	if (guest_connect(c->hub, s->run_dirfd, s->secret, s->generation, &proc_watch, s, &s->guest,
		    e) < 0)
		return -1;
	if (guestfs_new(s->guest, &s->fs, e) < 0 || proc_restore(s, true, e) < 0 ||
		claim(s, e) < 0) {
		if (s->fs)
			guestfs_free(s->fs);
		guest_free(s->guest);
		s->fs = NULL;
		s->guest = NULL;
		proc_free_all(s);
		return -1;
	}
	asleep = is_asleep(s, recorded);
	if (recorded == RECORD_LANDED)
		tell_created(s);
	pthread_mutex_lock(&s->lock);
	s->state = asleep ? SBX_SUSPENDED : SBX_RUNNING;
	if (!s->lifetime_secs) /* the operator may have set a longest one since */
		s->lifetime_secs = c->policy->limits.max_lifetime_secs;
	s->idle_suspended = asleep && s->idle_suspended;
	s->idle_since_ms = clock_mono_ms();
	schedule_arm(s);
	sandbox_hold_chain(s);
	sandbox_changed(s);
	sandbox_save(s, false);
	pthread_mutex_unlock(&s->lock);
	egress_resume(s);
	if (!asleep)
		registry_land(&c->reg, s, NULL);
	return 0;
}

/* What we are short of, or the broker, says nothing about the sandbox. (A shim that cannot be reached is unavailable
 * as well, with another number.) */
static bool is_shortage(const struct err *e)
{
	return e->code == ERR_UNAVAILABLE && (!e->sys || err_is_short(e->sys));
}

static int not_now(struct err *e, const struct err *why, const char *id)
{
	return err_set(e, ERR_UNAVAILABLE, "sandbox %s cannot be looked at: %s", id, why->msg);
}

static bool may_be_alive(const struct item *it, struct err *e)
{
	struct sandbox *s = it->s;
	struct core *c = s->core;

	if (!c->keep || !it->same_boot)
		return false;
	if (s->run_dirfd < 0) {
		log_warn("a sandbox ends because run/%s in the state directory cannot be opened", s->id);
		return false;
	}
	if (!net_policy_still_allowed(c->policy, &s->network)) {
		log_warn("a sandbox ends because its network is not allowed any more id=%s", s->id);
		return false;
	}
	return c->ops->alive(c->backend, s->id, s->generation, &s->grip, e) > 0;
}

static int keep_as_ended(struct restore *re, struct sandbox *s, bool was_live, struct err *e)
{
	struct core *c = s->core;
	struct err why = ERR_NULL;

	s->ended = true;
	backend_grip_close(&s->grip);
	if (s->run_dirfd >= 0 && proc_restore(s, false, &why) < 0 && is_shortage(&why))
		return not_now(e, &why, s->id);
	pthread_mutex_lock(&s->lock);
	proc_sandbox_ended(s);
	for (size_t i = 0; i < s->env.n; i++)
		explicit_bzero(s->env.values[i], strlen(s->env.values[i]));
	export_end(s);
	if (was_live)
		sandbox_save(s, true);
	pthread_mutex_unlock(&s->lock);
	registry_add_ended(&c->reg, s, s->name);
	if (!was_live)
		return 0;
	re->lost++;
	audit_event(c->audit, "sandbox.terminated", s->id, json_pack("{s:s}", "reason", "restart"));
	return 0;
}

static int each_record(void *arg, const struct store_sandbox *r, struct err *e)
{
	struct restore *re = arg;
	struct item it = { .state = r->state,
		.same_boot = r->boot && !strcmp(r->boot, re->c->boot) };
	struct err why = ERR_NULL;

	if (re->n == re->room) {
		struct item *v = realloc(re->items, (re->room * 2 + 16) * sizeof(*v));
		if (!v)
			return err_oom(e);
		re->items = v;
		re->room = re->room * 2 + 16;
	}
	if (sandbox_load(re->c, r, &it.s, &why) == 0)
		re->items[re->n++] = it;
	else if (is_shortage(&why))
		return not_now(e, &why, r->id);
	else
		log_warn("a record cannot be understood and is skipped");
	return 0;
}

static int settle(struct restore *re, const struct item *it, struct err *e)
{
	struct sandbox *s = it->s;
	struct err why = ERR_NULL;

	if (it->state == SBX_TERMINATED)
		return keep_as_ended(re, s, false, e);
	if (it->state == SBX_PENDING && it->same_boot) {
		/* Its create was never answered: as if it had not been asked. What had been made of it is swept;
		 * a fork may have been left with the identity of another. */
		store_drop_sandbox(re->c->store, s->id, false);
	} else if (may_be_alive(it, &why) && take_back(s, it->state, &why) == 0) {
		re->taken_back++;
		re->kept[re->nkept++] = s->id;
	} else if (is_shortage(&why)) {
		return not_now(e, &why, s->id);
	} else {
		if (why.code)
			log_warn("a sandbox could not be taken back id=%s reason=\"%s\"", s->id,
				why.msg);
		return keep_as_ended(re, s, true, e);
	}
	return 0;
}

/* The server may have gone between an end and the cleaning up after it. */
static void clean_ended(struct sandbox *s)
{
	if (sandbox_clean_run_dir(s, false))
		return;
	pthread_mutex_lock(&s->lock);
	close_p(&s->run_dirfd);
	s->run_dirfd = -1;
	pthread_mutex_unlock(&s->lock);
}

/* Folders without a record, and what an ended sandbox may not keep. After the sweep only: what still
 * runs is found by what lies there. */
static void clean_run_folders(struct core *c)
{
	int fd = openat(c->run_dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct dirent *d;
	DIR *dir;

	if (fd < 0)
		return;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return;
	}
	while ((d = readdir(dir))) {
		struct sandbox *s, *stub;
		if (!strncmp(d->d_name, RUN_SPARE, strlen(RUN_SPARE)))
			unlinkat(c->run_dirfd, d->d_name, AT_REMOVEDIR);
		if (!id_is_sandbox(d->d_name))
			continue;
		s = registry_find(&c->reg, d->d_name);
		stub = s ? NULL : sandbox_new(c, d->d_name);
		if (stub)
			sandbox_clean_run_dir(stub, true);
		else if (s && s->state == SBX_TERMINATED)
			clean_ended(s);
		sandbox_unref(stub);
		sandbox_unref(s);
	}
	closedir(dir);
}

static int settle_all(struct restore *re, struct err *e)
{
	re->kept = calloc(re->n + 1, sizeof(*re->kept));
	if (!re->kept)
		return err_oom(e);
	for (size_t i = 0; i < re->n; i++)
		if (settle(re, &re->items[i], e) < 0)
			return -1;
	fault_point("restore-settled");
	if (layers_keep(re->c, e) < 0 || volumes_keep(re->c, e) < 0)
		return -1;
	return re->c->ops->sweep(re->c->backend, re->kept, re->nkept, e);
}

int restore_all(struct core *c, struct err *e)
{
	struct restore re = { .c = c };
	int rc = store_load_sandboxes(c->store, each_record, &re, e);

	if (rc == 0)
		rc = settle_all(&re, e);
	for (size_t i = 0; i < re.n; i++)
		sandbox_unref(re.items[i].s);
	free(re.items);
	free(re.kept);
	if (rc < 0)
		return -1;
	fault_point("restore-swept");
	clean_run_folders(c);
	if (re.taken_back || re.lost)
		log_info("sandboxes of an earlier run taken_back=%u ended=%u", re.taken_back,
			re.lost);
	lifetime_forget(c);
	return 0;
}
