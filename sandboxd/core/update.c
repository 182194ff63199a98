/* SPDX-License-Identifier: MIT */
/* PATCH, 8.6: everything is checked first, under the sandbox's lock; one bad field and nothing has
 * changed. Copies are made before the first field is touched, so that memory cannot fail in
 * between. */
#include "sandboxd/core/core_internal.h"

#include "common/sys/mem.h"
#include "sandboxd/core/clock.h"
#include "sandboxd/core/egress.h"
#include "sandboxd/core/export.h"
#include "sandboxd/core/strs.h"

#include <stdlib.h>
#include <string.h>

bool update_body_empty(const struct update_body *b)
{
	return !b->has_name && !b->has_labels && !b->has_network && !b->has_idle_timeout_secs &&
	       !b->has_idle_action && !b->has_lifetime_secs && !b->has_metrics_export;
}

/* A network is changed in a running sandbox only; one that sleeps by its idle timeout is woken for it. */
static bool network_may_change(const struct sandbox *s, bool background)
{
	return s->state == SBX_RUNNING ||
	       (s->state == SBX_SUSPENDED && s->idle_suspended && !background);
}

static int check_state(
	const struct sandbox *s, const struct update_body *b, bool background, struct err *e)
{
	if (s->state == SBX_PENDING || s->state == SBX_TERMINATED ||
		(b->has_network && !network_may_change(s, background)))
		return err_set(e, ERR_CONFLICT, "sandbox is %s", sandbox_state_words[s->state]);
	return 0;
}

static int check_numbers(const struct limits *l, const struct update_body *b, struct err *e)
{
	int64_t life = b->lifetime_secs;

	/* 0, never, only where there is no bound */
	if (b->has_idle_timeout_secs && check_idle_timeout(l, b->idle_timeout_secs,
					       l->max_idle_timeout_secs > 0, e) < 0)
		return -1;
	if (b->has_lifetime_secs &&
		(life < 1 || life > INT32_MAX ||
			(l->max_lifetime_secs > 0 && life > l->max_lifetime_secs)))
		return err_set(e, ERR_INVALID_REQUEST, "lifetime_secs must be from 1 to %lld",
			(long long)(l->max_lifetime_secs > 0 ? l->max_lifetime_secs : INT32_MAX));
	return 0;
}

/* unsupported comes after "name taken", so what only lacks a capability passes here. */
static int syntax_only(int rc, struct err *e)
{
	if (rc == 0 || (e && e->code == ERR_UNSUPPORTED))
		return 0;
	return -1;
}

static int check_fields(const struct sandbox *s, const struct update_body *b, struct err *e)
{
	const struct core *c = s->core;

	if (b->has_name && *b->name && !name_ok(b->name))
		return err_set(e, ERR_INVALID_REQUEST,
			"name must be 1 to 63 lower-case letters, digits and "
			"dashes, and not start with a dash");
	if (b->has_labels && check_labels(&b->labels, e) < 0)
		return -1;
	if (check_numbers(&c->policy->limits, b, e) < 0)
		return -1;
	if (b->has_idle_action && !*b->idle_action)
		return err_set(
			e, ERR_INVALID_REQUEST, "idle_action must be \"terminate\" or \"suspend\"");
	if (b->has_idle_action && syntax_only(check_idle_action(c, b->idle_action, e), e) < 0)
		return -1;
	if (b->has_metrics_export &&
		syntax_only(check_metrics_export(c, &b->metrics_export, true, e), e) < 0)
		return -1;
	if (b->has_name && registry_name_free(&s->core->reg, s, b->name, e) < 0)
		return -1;
	return 0;
}

static int check_capabilities(const struct sandbox *s, const struct update_body *b, struct err *e)
{
	if (b->has_network && !core_cap(s->core, CAP_NETWORK_POLICY_UPDATE))
		return err_set(e, ERR_UNSUPPORTED,
			"this server lacks the capability to change the network of a running sandbox");
	if (b->has_idle_action && check_idle_action(s->core, b->idle_action, e) < 0)
		return -1;
	if (b->has_metrics_export && check_metrics_export(s->core, &b->metrics_export, true, e) < 0)
		return -1;
	return 0;
}

static json_t *updated_event(const struct sandbox *s, const struct update_body *b)
{
	json_t *o = json_object();

	if (b->has_name)
		json_object_set_new(o, "name", json_string(b->name));
	if (b->has_labels)
		json_object_set_new(o, "labels", map_json(&b->labels));
	if (b->has_idle_timeout_secs)
		json_object_set_new(o, "idle_timeout_secs", json_integer(b->idle_timeout_secs));
	if (b->has_idle_action)
		json_object_set_new(o, "idle_action", json_string(b->idle_action));
	if (b->has_lifetime_secs)
		json_object_set_new(o, "lifetime_secs", json_integer(b->lifetime_secs));
	if (b->has_metrics_export)
		json_object_set_new(o, "metrics_export", export_plain_json(s->metrics_export));
	return o;
}

struct prepared {
	char *name;
	struct strmap labels;
	struct export *metrics_export;
};

static void prepared_free(struct prepared *p)
{
	free(p->name);
	map_free(&p->labels);
	export_free(p->metrics_export);
}

static int prepare(struct core *c, const struct update_body *b, struct prepared *p, struct err *e)
{
	*p = (struct prepared){ 0 };
	if (b->has_metrics_export &&
		export_new(c, &b->metrics_export, &p->metrics_export, e) < 0)
		return -1;
	if ((!b->has_name || !*b->name || (p->name = strdup(b->name))) &&
		(!b->has_labels || map_copy(&b->labels, &p->labels) == 0))
		return 0;
	prepared_free(p);
	return err_oom(e);
}

static void apply(struct sandbox *s, const struct update_body *b, struct prepared *p)
{
	if (b->has_name) {
		free(s->name);
		s->name = steal(p->name);
	}
	if (b->has_labels) {
		map_free(&s->labels);
		s->labels = p->labels;
		p->labels = (struct strmap){ NULL, NULL, 0 };
	}
	if (b->has_idle_timeout_secs)
		s->idle_timeout_secs = b->idle_timeout_secs;
	if (b->has_idle_action)
		s->idle_suspend = !strcmp(b->idle_action, "suspend");
	if (b->has_lifetime_secs)
		s->lifetime_secs = b->lifetime_secs;
	if (b->has_metrics_export)
		export_set(s, steal(p->metrics_export));
}

/* The rule of 9.3 comes last of all checks. */
static int check_network(const struct sandbox *s, const struct update_body *b, struct net_policy *ret,
	struct err *e)
{
	if (!b->has_network)
		return 0;
	if (net_policy_resolve(s->core->policy, &b->network, ret, e) < 0)
		return -1;
	if (check_network_mode(s->core, ret->mode, e) == 0)
		return 0;
	net_policy_free(ret);
	return -1;
}

static int check(const struct sandbox *s, const struct update_body *b, bool background, struct err *e)
{
	struct net_policy net = { .mode = NET_NONE };

	if (check_state(s, b, background, e) < 0 || check_fields(s, b, e) < 0 ||
		check_capabilities(s, b, e) < 0 || check_network(s, b, &net, e) < 0)
		return -1;
	net_policy_free(&net);
	return 0;
}

/* Lock held; given up while the sandbox is woken, which happens when nothing else is wrong, and while
 * another update, that may have come in meanwhile, is under way. */
static int awake(struct sandbox *s, const struct update_body *b, bool background, struct err *e)
{
	while (b->has_network && (s->state != SBX_RUNNING || s->turn || s->updating)) {
		if (s->updating)
			pthread_cond_wait(&s->changed, &s->lock);
		else if (suspend_settle(s, !background, e) < 0)
			return -1;
		if (check(s, b, background, e) < 0)
			return -1;
	}
	return 0;
}

/* Lock held, and given up meanwhile: nobody else updates this sandbox until it is over. */
static int change_network(struct sandbox *s, struct net_policy *net, struct err *e)
{
	struct err why = ERR_NULL;
	int rc;

	s->updating = true;
	s->users++;
	pthread_mutex_unlock(&s->lock);
	rc = egress_change(s, net, &why);
	sandbox_leave(s, false);
	pthread_mutex_lock(&s->lock);
	s->updating = false;
	pthread_cond_broadcast(&s->changed);
	/* One that ends meanwhile takes its egress process with it. */
	if (s->state == SBX_TERMINATED)
		return err_set(e, ERR_CONFLICT, "sandbox is %s", sandbox_state_words[s->state]);
	if (rc < 0 && e)
		*e = why;
	return rc;
}

/* The name is taken first, because others may want it; it goes back when the network cannot be had. */
static int apply_all(struct sandbox *s, const struct update_body *b, struct prepared *p,
	struct net_policy *net, struct err *e)
{
	struct err ignored = ERR_NULL;

	if (b->has_name && registry_rename(&s->core->reg, s, b->name, e) < 0)
		return -1;
	if (b->has_network && change_network(s, net, e) < 0) {
		if (b->has_name)
			(void)registry_rename(&s->core->reg, s, s->name ? s->name : "", &ignored);
		return -1;
	}
	apply(s, b, p);
	return 0;
}

/* Lock held. */
static int update_locked(
	struct sandbox *s, const struct update_body *b, bool background, struct err *e)
{
	struct net_policy net = { .mode = NET_NONE };
	struct prepared p;
	int rc;

	while (s->updating)
		pthread_cond_wait(&s->changed, &s->lock);
	if (check(s, b, background, e) < 0 || prepare(s->core, b, &p, e) < 0)
		return -1;
	rc = check_network(s, b, &net, e);
	if (rc == 0)
		rc = awake(s, b, background, e);
	if (rc == 0)
		rc = apply_all(s, b, &p, &net, e);
	net_policy_free(&net);
	prepared_free(&p);
	return rc;
}

static void tell(struct sandbox *s, const struct update_body *b)
{
	struct audit *a = s->core->audit;

	if (b->has_network)
		audit_event(a, "sandbox.network_updated", s->id,
			json_pack("{s:o}", "network", net_policy_json(&s->network)));
	if (b->has_name || b->has_labels || b->has_idle_timeout_secs || b->has_idle_action ||
		b->has_lifetime_secs || b->has_metrics_export)
		audit_event(a, "sandbox.updated", s->id, updated_event(s, b));
}

int sandbox_update(struct sandbox *s, const struct update_body *b, bool background, struct err *e)
{
	uint64_t ticket = 0;
	bool over = false;
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = update_locked(s, b, background, e);
	if (rc == 0) {
		ticket = sandbox_save(s, true);
		tell(s, b);
		if (!background && s->idle_since_ms)
			s->idle_since_ms = clock_mono_ms();
		over = s->lifetime_secs > 0 &&
		       clock_wall_ns() >= s->created_ns + s->lifetime_secs * 1000000000;
		sandbox_changed(s);
		pthread_cond_broadcast(&s->changed);
	}
	pthread_mutex_unlock(&s->lock);
	if (rc < 0)
		return -1;
	*e = (struct err)ERR_NULL;
	if (over)
		return sandbox_terminate(s, "lifetime", e);
	return lifetime_wait_saved(s, ticket, e);
}
