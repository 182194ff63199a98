/* SPDX-License-Identifier: MIT */
/* What the outside sees: the sandbox object, the capabilities, the node. Values of the environment
 * and secrets are not within reach of these functions' output. */
#include "sandboxd/core/core_internal.h"

#include "common/sys/mem.h"
#include "sandboxd/core/clock.h"
#include "sandboxd/core/pools.h"
#include "sandboxd/core/export.h"
#include "sandboxd/core/snapshots.h"
#include "sandboxd/core/images.h"
#include "sandboxd/core/strs.h"
#include "sandboxd/core/volumes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void put_time(json_t *o, const char *key, int64_t wall_ns)
{
	char text[CLOCK_TEXT_LEN];

	clock_text(wall_ns, text);
	json_object_set_new(o, key, json_string(text));
}

/* A whole number is printed as one: 1, not 1.0. */
static json_t *number(double v)
{
	if (v == floor(v) && fabs(v) < 1e15)
		return json_integer((json_int_t)v);
	return json_real(v);
}

static void put_timeouts(json_t *o, const struct sandbox *s)
{
	json_object_set_new(o, "idle_timeout_secs", json_integer(s->idle_timeout_secs));
	if (s->idle_suspend)
		json_object_set_new(o, "idle_action", json_string("suspend"));
	if (s->idle_suspended && s->state == SBX_SUSPENDED)
		json_object_set_new(o, "idle_suspended", json_true());
	if (s->lifetime_secs > 0) {
		json_object_set_new(o, "lifetime_secs", json_integer(s->lifetime_secs));
		put_time(o, "expires_at", s->created_ns + s->lifetime_secs * 1000000000);
	}
}

static void put_snapshots(json_t *o, const struct sandbox *s)
{
	if (s->snapshot_every_secs) {
		json_object_set_new(
			o, "snapshot_every_secs", json_integer(s->snapshot_every_secs));
		json_object_set_new(o, "snapshot_keep", json_integer(s->snapshot_keep));
	}
	if (s->taking.started_ns)
		json_object_set_new(o, "snapshotting", snapshotting_json(s));
}

/* Lock held. */
static json_t *build(const struct sandbox *s)
{
	json_t *o = json_object();

	json_object_set_new(o, "id", json_string(s->id));
	if (s->name)
		json_object_set_new(o, "name", json_string(s->name));
	json_object_set_new(o, "state", json_string(sandbox_state_words[s->state]));
	json_object_set_new(o, "image", json_string(s->image));
	json_object_set_new(o, "cpus", number(s->cpus));
	json_object_set_new(o, "memory_mb", json_integer(s->memory_mb));
	json_object_set_new(o, "disk_mb", json_integer(s->disk_mb));
	if (s->env.n)
		json_object_set_new(o, "env_names", map_names_json(&s->env));
	json_object_set_new(o, "network", net_policy_json(&s->network));
	put_time(o, "created_at", s->created_ns);
	put_timeouts(o, s);
	put_snapshots(o, s);
	if (s->labels.n)
		json_object_set_new(o, "labels", map_json(&s->labels));
	if (s->metrics_export)
		json_object_set_new(o, "metrics_export", export_json(s->metrics_export));
	if (s->nvolumes)
		json_object_set_new(o, "volumes", mounts_json(s, false));
	return o;
}

json_t *sandbox_json(struct sandbox *s)
{
	json_t *o;

	pthread_mutex_lock(&s->lock);
	o = build(s);
	pthread_mutex_unlock(&s->lock);
	return o;
}

/* A listing of many is mostly the same as the one before. */
char *sandbox_text(struct sandbox *s)
{
	char *copy;

	pthread_mutex_lock(&s->lock);
	if (!s->text || s->text_version != __atomic_load_n(&s->version, __ATOMIC_ACQUIRE)) {
		_cleanup_json_ json_t *o = build(s);
		free(s->text);
		s->text = json_text(o);
		s->text_version = __atomic_load_n(&s->version, __ATOMIC_ACQUIRE);
	}
	copy = s->text ? strdup(s->text) : NULL;
	pthread_mutex_unlock(&s->lock);
	return copy;
}

static json_t *limits_json(const struct core *c)
{
	const struct limits *l = &c->policy->limits;
	json_t *o = json_object();

	json_object_set_new(o, "max_cpus", number(l->max_cpus));
	json_object_set_new(o, "max_memory_mb", json_integer(l->max_memory_mb));
	json_object_set_new(o, "max_disk_mb", json_integer(l->max_disk_mb));
	json_object_set_new(o, "max_idle_timeout_secs", json_integer(l->max_idle_timeout_secs));
	json_object_set_new(o, "max_lifetime_secs", json_integer(l->max_lifetime_secs));
	json_object_set_new(o, "min_snapshot_every_secs", json_integer(l->min_snapshot_every_secs));
	json_object_set_new(o, "max_snapshot_keep", json_integer(l->max_snapshot_keep));
	json_object_set_new(o, "min_metrics_export_secs", json_integer(l->min_metrics_export_secs));
	if (core_cap(c, CAP_GPU))
		json_object_set_new(o, "max_gpus", json_integer(l->max_gpus));
	return o;
}

static json_t *network_json(const struct server_policy *p)
{
	json_t *o = json_object(), *may = json_array();
	struct net_policy shown;

	for (size_t i = 0; i < p->may_allow.n; i++)
		json_array_append_new(may, json_string(p->may_allow.v[i]));
	if (net_policy_resolve(p, NULL, &shown, NULL) == 0) {
		json_object_set_new(o, "default", net_policy_json(&shown));
		net_policy_free(&shown);
	}
	json_object_set_new(o, "ceiling", json_string(net_mode_words[p->net_ceiling]));
	json_object_set_new(o, "may_allow", may);
	return o;
}

json_t *core_capabilities_json(struct core *c)
{
	json_t *o = json_object(), *caps = json_object();

	for (int i = CAP_SNAPSHOT + 1; i < CAP_COUNT; i++)
		json_object_set_new(
			caps, cap_word((enum cap)i), json_boolean(core_cap(c, (enum cap)i)));
	json_object_set_new(o, "api_version", json_string("v1"));
	json_object_set_new(o, "backend", json_string(c->ops->name));
	json_object_set_new(o, "capabilities", caps);
	json_object_set_new(o, "limits", limits_json(c));
	json_object_set_new(o, "network", network_json(c->policy));
	json_object_set_new(o, "instance", json_string(c->instance));
	return o;
}

static json_t *amounts(double cpus, int64_t memory_mb, int64_t disk_mb)
{
	json_t *o = json_object();

	json_object_set_new(o, "cpus", number(cpus > 0 ? cpus : 0));
	json_object_set_new(o, "memory_mb", json_integer(memory_mb > 0 ? memory_mb : 0));
	json_object_set_new(o, "disk_mb", json_integer(disk_mb > 0 ? disk_mb : 0));
	return o;
}

/* What live sandboxes run from is ready without a pull; the default image is made ready at start.
 */
static json_t *backend_images_json(struct core *c)
{
	struct strlist names = { NULL, 0 };
	json_t *a = json_array();
	struct sandbox **all;
	size_t n;

	if (c->default_ready)
		strs_add(&names, c->policy->default_image);
	if (registry_all(&c->reg, &all, &n) == 0) {
		for (size_t i = 0; i < n; i++) {
			pthread_mutex_lock(&all[i]->lock);
			if (all[i]->state == SBX_RUNNING && !strs_has(&names, all[i]->image))
				strs_add(&names, all[i]->image);
			pthread_mutex_unlock(&all[i]->lock);
			sandbox_unref(all[i]);
		}
		free(all);
	}
	strs_sort_unique(&names);
	for (size_t i = 0; i < names.n; i++)
		json_array_append_new(a, json_string(names.v[i]));
	strs_free(&names);
	return a;
}

void core_free_amounts(struct core *c, double *cpus, int64_t *memory_mb, int64_t *disk_mb)
{
	struct pool_figures pools = pools_sum(c);
	const struct limits *l = &c->policy->limits;
	int64_t pooled = pools.ready + pools.making;
	struct registry_figures f;

	registry_figures(&c->reg, &f);
	*cpus = c->capacity_cpus - f.cpus - (double)pooled * l->default_cpus;
	*memory_mb = c->capacity_memory_mb - f.memory_mb - pooled * l->default_memory_mb;
	*disk_mb = c->capacity_disk_mb - f.disk_mb - pooled * l->default_disk_mb;
	*cpus = *cpus > 0 ? *cpus : 0;
	*memory_mb = *memory_mb > 0 ? *memory_mb : 0;
	*disk_mb = *disk_mb > 0 ? *disk_mb : 0;
}

json_t *core_node_json(struct core *c)
{
	json_t *o = json_object(),
	       *images = c->ops->layer_import ? images_ready_json(c) : backend_images_json(c);
	json_t *pooled_now = pools_json(c);
	int64_t memory_mb, disk_mb;
	struct registry_figures f;
	double cpus;

	registry_figures(&c->reg, &f);
	core_free_amounts(c, &cpus, &memory_mb, &disk_mb);
	json_object_set_new(o, "node", json_string(c->node_id));
	json_object_set_new(o, "version", json_string(SANDBOXD_VERSION));
	json_object_set_new(o, "capabilities", core_capabilities_json(c));
	json_object_set_new(o, "capacity",
		amounts(c->capacity_cpus, c->capacity_memory_mb, c->capacity_disk_mb));
	json_object_set_new(o, "free", amounts(cpus, memory_mb, disk_mb));
	json_object_set_new(o, "running", json_integer(f.running));
	if (pooled_now)
		json_object_set_new(o, "pooled", pooled_now);
	if (json_array_size(images))
		json_object_set_new(o, "images", images);
	else
		json_decref(images);
	if (c->node_labels.n)
		json_object_set_new(o, "labels", map_json(&c->node_labels));
	json_object_set_new(o, "cordoned", json_boolean(f.cordoned));
	return o;
}
