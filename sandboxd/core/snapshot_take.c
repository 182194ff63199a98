/* SPDX-License-Identifier: MIT */
/* Taking a snapshot, 16.2. The layer's record is durable before its tree is begun and the
 * snapshot's after the tree is complete: killed anywhere in between, the next start finds a layer
 * that nobody needs and drops it. While it is taken the sandbox may end; the backend keeps its
 * files until this is over. */
#include "sandboxd/core/snapshots_internal.h"

#include "common/base/log.h"
#include "common/sys/fault.h"
#include "common/sys/mem.h"
#include "sandboxd/core/clock.h"

#include <errno.h>
#include <string.h>

/* Lock held. */
static int may_take(const struct sandbox *s, struct err *e)
{
	if (s->state != SBX_RUNNING)
		return err_set(e, ERR_CONFLICT, "sandbox is %s, not running",
			sandbox_state_words[s->state]);
	if (s->nvolumes)
		return err_set(e, ERR_CONFLICT, "a sandbox with volumes has no snapshots");
	if (s->taking.started_ns)
		return err_set(e, ERR_CONFLICT, "a snapshot of this sandbox is being taken");
	if (s->chain.n >= BACKEND_CHAIN_MAX)
		return err_set(e, ERR_CONFLICT,
			"its files lie in %u layers already, and more cannot be mounted: copy them "
			"into a sandbox made from the image",
			s->chain.n);
	return 0;
}

/* Lock held. One reference on each layer of the chain is its own from here on: the sandbox may end.
 */
static struct snapshot *new_snapshot(const struct sandbox *s, bool scheduled)
{
	struct snapshot *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	id_new_snapshot(p->id);
	memcpy(p->sandbox, s->id, sizeof(p->sandbox));
	p->image = strdup(s->image);
	p->cpus = s->cpus;
	p->memory_mb = s->memory_mb;
	p->disk_mb = s->disk_mb;
	p->scheduled = scheduled;
	p->created_ns = clock_wall_ns();
	if (!p->image || image_env_copy(s->image_env, &p->image_env) < 0) {
		snapshot_free(p);
		return NULL;
	}
	p->chain = s->chain;
	layers_ref(s->core, &p->chain);
	return p;
}

static void give_up(struct core *c, struct snapshot *p)
{
	layers_unref(c, &p->chain);
	snapshot_free(p);
}

static int begin(struct sandbox *s, bool scheduled, struct snapshot **ret, struct err *e)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	(void)suspend_settle(s, false, NULL); /* one that is falling asleep does so first */
	rc = may_take(s, e);
	if (rc == 0 && !(*ret = new_snapshot(s, scheduled)))
		rc = err_oom(e);
	if (rc == 0) {
		s->taking =
			(struct taking){ .started_ns = (*ret)->created_ns, .scheduled = scheduled };
		sandbox_changed(s);
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}

static void stored_now(struct sandbox *s, int64_t bytes)
{
	pthread_mutex_lock(&s->lock);
	s->taking.storing = true;
	s->taking.bytes = bytes;
	sandbox_changed(s);
	pthread_mutex_unlock(&s->lock);
}

static void end(struct sandbox *s)
{
	pthread_mutex_lock(&s->lock);
	s->taking.started_ns = 0;
	sandbox_changed(s);
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

static bool has_ended(struct sandbox *s)
{
	bool ended;

	pthread_mutex_lock(&s->lock);
	ended = s->state == SBX_TERMINATED;
	pthread_mutex_unlock(&s->lock);
	return ended;
}

/* A full disk is the host's trouble here, not the guest's. */
static int explain(struct sandbox *s, struct err *why, struct err *e)
{
	if (has_ended(s))
		return err_set(e, ERR_CONFLICT, "the sandbox ended before its snapshot was taken");
	if (why->sys == ENOSPC || why->sys == EDQUOT)
		return err_set_sys(e, ERR_UNAVAILABLE, why->sys,
			"the host's disk is too full for the snapshot");
	if (e)
		*e = *why;
	return -1;
}

static int seal(struct sandbox *s, uint32_t num, int64_t *bytes, struct err *e)
{
	struct core *c = s->core;
	struct err why = ERR_NULL;

	if (c->ops->snapshot(c->backend, s->id, num, bytes, &why) < 0)
		return explain(s, &why, e);
	fault_point("snapshot-sealed");
	stored_now(s, *bytes);
	if (layers_ready(c, num, *bytes, false, e) < 0)
		return -1;
	fault_point("snapshot-stored");
	return 0;
}

static int64_t keep_of(struct sandbox *s)
{
	int64_t keep;

	pthread_mutex_lock(&s->lock);
	keep = s->snapshot_keep;
	pthread_mutex_unlock(&s->lock);
	return keep;
}

/* Owned by the table when it is there. */
static int store_it(struct sandbox *s, struct snapshot *p, json_t **ret, struct err *e)
{
	struct core *c = s->core;
	bool scheduled = p->scheduled;
	int64_t keep = scheduled ? keep_of(s) : 0, now;

	*ret = snapshot_json(p); /* once it is shown somebody may delete it */
	if (snapshots_add(c, p, keep, e) < 0) {
		json_decref(*ret);
		return -1;
	}
	now = keep_of(s);
	if (scheduled && now > 0 && now < keep)
		(void)snapshots_prune(c, s->id, now, NULL); /* made smaller meanwhile */
	return 0;
}

/* The new layer's lease becomes the snapshot's reference. */
static int number_it(struct core *c, struct snapshot *p, struct err *e)
{
	uint32_t num;

	if (core_check_disk(c, "snapshot", e) < 0 ||
		layers_new(c, LAYER_OF_SNAPSHOT, NULL, &num, e) < 0)
		return -1;
	memmove(p->chain.layers + 1, p->chain.layers, p->chain.n * sizeof(p->chain.layers[0]));
	p->chain.layers[0] = num;
	p->chain.n++;
	fault_point("snapshot-numbered");
	return 0;
}

static int take(struct sandbox *s, bool scheduled, json_t **ret, struct err *e)
{
	struct snapshot *p;
	int rc;

	if (begin(s, scheduled, &p, e) < 0)
		return -1;
	rc = number_it(s->core, p, e);
	if (rc == 0)
		rc = seal(s, p->chain.layers[0], &p->bytes, e);
	if (rc == 0)
		rc = store_it(s, p, ret, e);
	if (rc < 0)
		give_up(s->core, p);
	end(s);
	return rc;
}

int snapshot_take(struct sandbox *s, bool use, json_t **ret, struct err *e)
{
	int rc;

	if (sandbox_enter(s, use, e) < 0)
		return -1;
	rc = take(s, false, ret, e);
	sandbox_leave(s, use);
	return rc;
}

int snapshot_take_scheduled(struct sandbox *s, struct err *e)
{
	json_t *ignored = NULL;
	int rc = take(s, true, &ignored, e);

	json_decref(ignored);
	return rc;
}

json_t *snapshotting_json(const struct sandbox *s)
{
	json_t *o = json_object();
	char text[CLOCK_TEXT_LEN];

	clock_text(s->taking.started_ns, text);
	json_object_set_new(o, "started_at", json_string(text));
	if (s->taking.scheduled)
		json_object_set_new(o, "scheduled", json_true());
	json_object_set_new(o, "phase", json_string(s->taking.storing ? "store" : "capture"));
	json_object_set_new(o, "bytes", json_integer(s->taking.bytes));
	return o;
}
