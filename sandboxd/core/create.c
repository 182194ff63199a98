/* SPDX-License-Identifier: MIT */
/* Making a sandbox, 8.3. The record is written while the backend works and both are awaited before
 * anybody is told. Until it lands every step can be taken back, and is. */
#include "sandboxd/core/core_internal.h"

#include "common/sys/fault.h"
#include "common/sys/mem.h"
#include "sandboxd/backend/guestfs.h"
#include "sandboxd/core/clock.h"
#include "sandboxd/core/egress.h"
#include "sandboxd/core/export.h"
#include "sandboxd/core/identity.h"
#include "sandboxd/core/images.h"
#include "sandboxd/core/pools.h"
#include "sandboxd/core/proc.h"
#include "sandboxd/core/prometheus.h"
#include "sandboxd/core/schedule.h"
#include "sandboxd/core/snapshots.h"
#include "sandboxd/core/strs.h"
#include "sandboxd/core/volumes.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#define DISK_FREE_LEAST_MB 64
#define CANCEL_DIED        2

static bool given(const char *s)
{
	return s && *s;
}

static int fill_numbers(
	struct sandbox *s, const struct create_body *b, const struct snapshot_use *from)
{
	const struct limits *l = &s->core->policy->limits;

	s->cpus = b->cpus > 0 ? b->cpus : from ? from->cpus : l->default_cpus;
	s->memory_mb = b->memory_mb ? b->memory_mb : from ? from->memory_mb : l->default_memory_mb;
	s->disk_mb = b->disk_mb ? b->disk_mb : from ? from->disk_mb : l->default_disk_mb;
	s->snapshot_every_secs = b->snapshot_every_secs;
	s->snapshot_keep = b->snapshot_every_secs && !b->snapshot_keep ? 1 : b->snapshot_keep;
	s->idle_timeout_secs =
		b->idle_timeout_secs ? b->idle_timeout_secs : l->default_idle_timeout_secs;
	s->lifetime_secs = b->lifetime_secs ? b->lifetime_secs : l->max_lifetime_secs;
	s->idle_suspend = given(b->idle_action) && !strcmp(b->idle_action, "suspend");
	s->created_ns = clock_wall_ns();
	s->generation = 1;
	return getrandom(s->secret, sizeof(s->secret), 0) == sizeof(s->secret) ? 0 : -1;
}

static int build_export(struct sandbox *s, const struct create_body *b)
{
	struct export *x = NULL;

	if (b->has_metrics_export && export_new(s->core, &b->metrics_export, &x, NULL) < 0)
		return -1;
	if (x)
		export_set(s, x);
	return 0;
}

/* Takes the network. */
static struct sandbox *build(struct core *c, const struct create_body *b,
	const struct snapshot_use *from, struct net_policy *net)
{
	const char *image = from            ? from->image
			    : given(b->image) ? b->image
					      : c->policy->default_image;
	char id[SBX_ID_MAX];
	struct sandbox *s;

	id_new_sandbox(c->node_id, id);
	s = sandbox_new(c, id);
	if (!s) {
		net_policy_free(net);
		return NULL;
	}
	s->network = *net;
	s->state = SBX_PENDING;
	s->image = strdup(image);
	s->name = given(b->name) ? strdup(b->name) : NULL;
	if (from)
		memcpy(s->from, from->id, sizeof(s->from));
	if (fill_numbers(s, b, from) == 0 && s->image && (s->name || !given(b->name)) &&
		map_copy(&b->env, &s->env) == 0 && map_copy(&b->labels, &s->labels) == 0 &&
		build_export(s, b) == 0)
		return s;
	sandbox_unref(s);
	return NULL;
}

struct progress { /* what would have to be taken back */
	struct sandbox *s;
	const struct snapshot_use *from;
	const struct registry_login_body *login; /* NULL: none */
	uint64_t ticket; /* of the record */
	bool waited;     /* for it, and this came of it: */
	int stored;
	struct err store_err;
	bool run_dir, runtime;
	bool landed; /* the record says so */
	bool was_ready; /* the backend had made it ahead */
};

/* The record goes to the disk on this thread, while the backend works. */
static void await_record(void *arg)
{
	struct progress *p = arg;

	if (p->waited)
		return;
	p->waited = true;
	p->stored = store_wait(p->s->core->store, p->ticket, &p->store_err);
}

static int make_runtime(struct sandbox *s, struct progress *p, struct err *e)
{
	struct core *c = s->core;
	struct backend_volume volumes[BACKEND_VOLUMES_MAX];
	struct backend_spec spec = { .generation = s->generation,
		.image = s->image,
		.chain = s->chain.n ? &s->chain : NULL,
		.volumes = volumes,
		.nvolumes = s->nvolumes,
		.egress = s->network.mode != NET_NONE,
		.hostname = s->name ? s->name : s->id,
		.cpus = s->cpus,
		.memory_mb = s->memory_mb,
		.disk_mb = s->disk_mb,
		.was_ready = &p->was_ready,
		.grip = &s->grip, /* nobody ends it before it has landed */
		.meanwhile = await_record,
		.meanwhile_arg = p };

	for (size_t i = 0; i < s->nvolumes; i++)
		volumes[i] = s->volumes[i].at;
	memcpy(spec.id, s->id, sizeof(spec.id));
	memcpy(spec.secret, s->secret, sizeof(spec.secret));
	return c->ops->create(c->backend, &spec, &s->cancel, e);
}

static int connect_runtime(struct sandbox *s, struct err *e)
{
	struct guest *guest = NULL;
	struct guestfs *fs = NULL;

	if (guest_connect(s->core->hub, s->run_dirfd, s->secret, s->generation, &proc_watch, s,
		    &guest, e) < 0)
		return -1;
	if (guestfs_new(guest, &fs, e) < 0) {
		guest_free(guest);
		return -1;
	}
	pthread_mutex_lock(&s->lock);
	s->guest = guest;
	s->fs = fs;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

json_t *created_event(const struct sandbox *s, bool pooled)
{
	json_t *o = json_object();

	if (s->name)
		json_object_set_new(o, "name", json_string(s->name));
	json_object_set_new(o, "image", json_string(s->image));
	if (s->labels.n)
		json_object_set_new(o, "labels", map_json(&s->labels));
	json_object_set_new(o, "network", net_policy_json(&s->network));
	if (s->env.n)
		json_object_set_new(o, "env_names", map_names_json(&s->env));
	if (pooled)
		json_object_set_new(o, "reason", json_string("pool"));
	if (s->from[0])
		json_object_set_new(o, "snapshot", json_string(s->from));
	if (s->nvolumes)
		json_object_set_new(o, "volumes", mounts_json(s, false));
	return o;
}

static int cancelled(struct sandbox *s, struct err *e)
{
	if (__atomic_load_n(&s->cancel, __ATOMIC_ACQUIRE) == CANCEL_DIED)
		return err_set(e, ERR_INTERNAL, "the sandbox died while it was being made");
	return err_set(e, ERR_CONFLICT, "the create was cancelled");
}

/* From here on it is there: first in the log, then for everybody. */
static int land(struct sandbox *s, const struct progress *p, struct err *e)
{
	bool pooled = p->was_ready && !p->from && pools_fit(s->core, s);
	int rc = 0;

	if (pooled)
		pools_taken(s->core, s->image);
	pthread_mutex_lock(&s->lock);
	if (__atomic_load_n(&s->cancel, __ATOMIC_ACQUIRE) || (s->gone && s->gone(s->gone_arg))) {
		rc = cancelled(s, e);
	} else if (registry_land(&s->core->reg, s, e) < 0) {
		rc = -1;
	} else {
		audit_event(s->core->audit, "sandbox.created", s->id, created_event(s, pooled));
		s->state = SBX_RUNNING;
		s->idle_since_ms = clock_mono_ms();
		schedule_arm(s);
		export_begin(s);
		s->gone = NULL;
		sandbox_save(s, false);
		sandbox_changed(s);
		pthread_cond_broadcast(&s->changed);
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}

static int make_fork(struct sandbox *s, const struct snapshot_use *from, struct err *e)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = image_env_copy(from->image_env, &s->image_env);
	if (rc == 0) {
		s->chain = from->chain;
		sandbox_hold_chain(s);
	}
	pthread_mutex_unlock(&s->lock);
	return rc < 0 ? err_oom(e) : 0;
}

static bool has_gone(void *arg)
{
	struct sandbox *s = arg;

	return __atomic_load_n(&s->cancel, __ATOMIC_ACQUIRE) || (s->gone && s->gone(s->gone_arg));
}

static int make_image(struct sandbox *s, const struct registry_login_body *login, struct err *e)
{
	struct image_use use = { .env = NULL };

	if (images_use(s->core, s->image, login, has_gone, s, &use, e) < 0)
		return -1;
	pthread_mutex_lock(&s->lock);
	s->image_env = steal(use.env);
	s->chain = use.chain;
	sandbox_hold_chain(s);
	pthread_mutex_unlock(&s->lock);
	image_use_free(s->core, &use); /* the sandbox has its own */
	return 0;
}

/* Home exists whatever the image is (8.4), and whatever lies over it. */
static int make_home(struct sandbox *s, struct err *e)
{
	struct guestfs_args a = { .path = "/sandbox/home", .mode = 0755 };
	struct guestfs_result r = { 0 };
	struct err why = ERR_NULL;
	bool hidden = false;
	int rc;

	for (size_t i = 0; i < s->nvolumes; i++)
		hidden |= !strcmp(s->volumes[i].at.path, "/sandbox") && !s->volumes[i].at.read_only;
	if (!hidden)
		return 0;
	rc = guestfs_call(s->fs, FILES_MKDIR, &a, &r, &why);
	guestfs_result_free(&r);
	if (rc == 0 || why.sys == EEXIST)
		return 0;
	if (e)
		*e = why;
	return err_prefix(e, "the home folder: ");
}

/* A full disk is the host's trouble here, not the guest's. */
static int no_run_dir(int sys, struct err *e)
{
	if (sys == ENOSPC || sys == EDQUOT)
		return err_set_sys(
			e, ERR_UNAVAILABLE, sys, "the host's disk is too full for another sandbox");
	return err_sys(e, sys, "the sandbox's run folder");
}

/* What is recorded as pending is dropped by the next start, so nobody may have been told of it. */
static int mark_landed(struct sandbox *s, struct progress *p, struct err *e)
{
	struct store *st = s->core->store;

	p->landed = true;
	return store_wait(st, store_mark_awaited(st, s->id, RECORD_LANDED), e);
}

static int make(struct sandbox *s, struct progress *p, struct err *e)
{
	if ((p->from ? make_fork(s, p->from, e) : make_image(s, p->login, e)) < 0)
		return -1;
	if (sandbox_make_run_dir(s) < 0)
		return no_run_dir(errno, e);
	p->run_dir = true;
	pthread_mutex_lock(&s->lock);
	p->ticket = sandbox_save_awaited(s);
	pthread_mutex_unlock(&s->lock);
	if (!p->ticket)
		return err_oom(e);
	if (make_runtime(s, p, e) < 0)
		return -1;
	fault_point("create-made");
	p->runtime = true;
	if (connect_runtime(s, e) < 0 || egress_begin(s, e) < 0 ||
		(p->from && identity_renew(s->fs, e) < 0) || make_home(s, e) < 0)
		return -1;
	await_record(p);
	fault_point("create-recorded");
	if (p->stored < 0) {
		p->ticket = 0;
		if (e)
			*e = p->store_err;
		return -1;
	}
	if (mark_landed(s, p, e) < 0)
		return -1;
	fault_point("create-landed");
	return land(s, p, e);
}

/* Nothing may remain, and a DELETE that waits for this must find nothing when it returns. */
static void take_back(struct sandbox *s, const struct progress *p)
{
	struct core *c = s->core;
	uint64_t ticket = 0;
	bool gone;

	if (p->ticket && !p->waited)
		(void)store_wait(c->store, p->ticket, NULL);
	gone = !p->runtime || c->ops->destroy(c->backend, s->id, NULL) == 0;
	lifetime_free_guest(s); /* nobody could enter */
	if (gone)
		sandbox_drop_chain(s);
	/* A backend may know by what lies in the run folder whom it has to end. */
	if (gone && p->run_dir)
		sandbox_clean_run_dir(s, true);
	if (p->ticket)
		ticket = store_drop_sandbox(c->store, s->id, p->landed);
	/* a start that finds one that has landed believes that it was answered */
	if (p->landed)
		(void)store_wait(c->store, ticket, NULL);
	registry_remove(&c->reg, s);
	pthread_mutex_lock(&s->lock);
	s->gone = NULL;
	s->state = SBX_TERMINATED;
	s->ended = true;
	sandbox_changed(s);
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	if (!gone)
		lifetime_clean_up_later(s);
}

int core_check_disk(struct core *c, const char *what, struct err *e)
{
	/* looked at once a second: asking costs as much as a tenth of a create */
	if (__atomic_load_n(&c->disk_free_mb, __ATOMIC_RELAXED) >= DISK_FREE_LEAST_MB)
		return 0;
	return err_set(e, ERR_UNAVAILABLE, "the host's disk is too full for another %s", what);
}

/* A create that a DELETE or a hang-up cut short reports just that, whatever broke on the way. */
static int fail(struct sandbox *s, const struct progress *p, struct err *e)
{
	if (__atomic_load_n(&s->cancel, __ATOMIC_ACQUIRE))
		cancelled(s, e);
	take_back(s, p);
	sandbox_unref(s);
	return -1;
}

static int create_from(struct core *c, const struct create_body *body,
	const struct snapshot_use *from, bool (*gone)(void *), void *arg, struct sandbox **ret,
	struct err *e)
{
	struct progress p = { .from = from,
		.login = body->has_registry_login ? &body->registry_login : NULL };
	struct net_policy net;
	struct sandbox *s;

	if (check_create(c, body, from, &net, e) < 0)
		return -1;
	s = build(c, body, from, &net);
	if (!s)
		return err_oom(e);
	if (body->volumes.n &&
		volumes_resolve(c, &body->volumes, &s->volumes, &s->nvolumes, e) < 0) {
		sandbox_unref(s);
		return -1;
	}
	p.s = s;
	s->gone = gone;
	s->gone_arg = arg;
	if (registry_claim(&c->reg, s, s->name, false, e) < 0) {
		sandbox_unref(s);
		return -1;
	}
	sandbox_changed(s);
	if (core_check_disk(c, "sandbox", e) < 0 || make(s, &p, e) < 0)
		return fail(s, &p, e);
	*ret = s;
	return 0;
}

static int create(struct core *c, const struct create_body *body, bool (*gone)(void *), void *arg,
	struct sandbox **ret, struct err *e)
{
	struct snapshot_use from = { .image = NULL };
	int rc;

	if (!given(body->snapshot_id))
		return create_from(c, body, NULL, gone, arg, ret, e);
	if (!core_cap(c, CAP_SNAPSHOT))
		return err_set(
			e, ERR_UNSUPPORTED, "this server lacks the capability for snapshots");
	if (snapshot_use(c, body->snapshot_id, &from, e) < 0)
		return -1;
	rc = create_from(c, body, &from, gone, arg, ret, e);
	snapshot_use_free(c, &from);
	return rc;
}

static int64_t mono_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int sandbox_create(struct core *c, const struct create_body *body, bool (*gone)(void *), void *arg,
	struct sandbox **ret, struct err *e)
{
	struct err why = ERR_NULL;
	int64_t start = mono_ns();
	int rc = create(c, body, gone, arg, ret, &why);

	create_counted(c, rc < 0 ? why.code : ERR_NONE, mono_ns() - start);
	if (rc < 0 && e)
		*e = why;
	return rc;
}
