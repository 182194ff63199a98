/* SPDX-License-Identifier: MIT */
/* Calls about sandboxes as such: their making, changing and end. */
#include "client/lib/values.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <string.h>

static const struct member members[] = {
	MEMBER(sbx_sandbox, id, MEMBER_STR, true),
	MEMBER(sbx_sandbox, name, MEMBER_STR, false),
	MEMBER(sbx_sandbox, state, MEMBER_STR, true),
	MEMBER(sbx_sandbox, image, MEMBER_STR, true),
	MEMBER(sbx_sandbox, cpus, MEMBER_NUM, false),
	MEMBER(sbx_sandbox, memory_mb, MEMBER_INT, false),
	MEMBER(sbx_sandbox, disk_mb, MEMBER_INT, false),
	MEMBER(sbx_sandbox, idle_timeout_secs, MEMBER_INT, false),
	MEMBER(sbx_sandbox, lifetime_secs, MEMBER_INT, false),
	MEMBER(sbx_sandbox, created_at, MEMBER_STR, true),
	MEMBER(sbx_sandbox, expires_at, MEMBER_STR, false),
	MEMBER(sbx_sandbox, idle_action, MEMBER_STR, false),
	MEMBER(sbx_sandbox, idle_suspended, MEMBER_BOOL, false),
	MEMBER(sbx_sandbox, snapshot_every_secs, MEMBER_INT, false),
	MEMBER(sbx_sandbox, snapshot_keep, MEMBER_INT, false),
};

static bool take_sandbox(json_t *o, void *out)
{
	static const struct member mode[] = {
		MEMBER_AS(sbx_sandbox, network, "mode", MEMBER_STR, false),
	};
	struct sbx_sandbox *b = out;
	json_t *net = json_object_get(o, "network");

	*b = (struct sbx_sandbox){ .idle_action = "terminate" }; /* which the API leaves out */
	b->snapshotting = json_is_object(json_object_get(o, "snapshotting"));
	return values_take(o, members, ARRAY_LEN(members), b) &&
	       (!net || values_take(net, mode, ARRAY_LEN(mode), b));
}

int values_call_sandbox(struct sbx *s, const char *method, char *path, json_t *body, int timeout_ms,
	struct sbx_sandbox *ret, struct sbx_error *e)
{
	_cleanup_json_ json_t *answer = NULL;
	struct sbx_sandbox b;

	if (values_call(s, method, path, body, timeout_ms, &answer, e) < 0)
		return -1;
	if (!take_sandbox(answer, &b))
		return sbx_fail_shape(e, "no sandbox");
	if (ret)
		*ret = b;
	return 0;
}

static int put_network(json_t *o, const char *mode, const char *const *allow,
	const char *const *deny, struct sbx_error *e)
{
	_cleanup_json_ json_t *net = json_object();

	if (!mode && !allow && !deny)
		return 0;
	values_put_str(net, "mode", mode);
	if (values_put_list(net, "allow", allow, e) < 0 ||
		values_put_list(net, "deny", deny, e) < 0)
		return -1;
	json_object_set(o, "network", net);
	return 0;
}

static int put_export(json_t *o, const struct sbx_metrics_export *x, struct sbx_error *e)
{
	_cleanup_json_ json_t *v = x ? json_object() : NULL;

	if (!x)
		return 0;
	values_put_str(v, "endpoint", x->endpoint);
	values_put_int(v, "interval_secs", x->interval_secs);
	if (values_put_pairs(v, "headers", x->headers, e) < 0)
		return -1;
	json_object_set(o, "metrics_export", v);
	return 0;
}

static void put_volumes(json_t *o, const struct sbx_spec *spec)
{
	json_t *list = spec->n_volumes ? json_array() : NULL;

	for (size_t i = 0; i < spec->n_volumes; i++) {
		const struct sbx_volume_mount *m = &spec->volumes[i];
		json_t *v = json_object();
		values_put_str(v, "name", m->name);
		values_put_str(v, "path", m->path);
		if (m->read_only)
			json_object_set_new(v, "read_only", json_true());
		json_array_append_new(list, v);
	}
	if (list)
		json_object_set_new(o, "volumes", list);
}

static void put_login(json_t *o, const struct sbx_registry_login *l)
{
	json_t *v = l ? json_object() : NULL;

	if (!l)
		return;
	values_put_str(v, "registry", l->registry);
	values_put_str(v, "username", l->username);
	values_put_str(v, "password", l->password);
	json_object_set_new(o, "registry_login", v);
}

static json_t *create_body(const struct sbx_spec *spec, struct sbx_error *e)
{
	_cleanup_json_ json_t *o = json_object();

	values_put_str(o, "name", spec->name);
	values_put_str(o, "image", spec->image);
	if (spec->cpus != 0)
		json_object_set_new(o, "cpus", json_real(spec->cpus));
	values_put_int(o, "memory_mb", spec->memory_mb);
	values_put_int(o, "disk_mb", spec->disk_mb);
	values_put_int(o, "idle_timeout_secs", spec->idle_timeout_secs);
	values_put_int(o, "lifetime_secs", spec->lifetime_secs);
	values_put_str(o, "idle_action", spec->idle_action);
	values_put_str(o, "snapshot_id", spec->snapshot_id);
	values_put_int(o, "snapshot_every_secs", spec->snapshot_every_secs);
	values_put_int(o, "snapshot_keep", spec->snapshot_keep);
	values_put_int(o, "gpus", spec->gpus);
	put_volumes(o, spec);
	put_login(o, spec->registry_login);
	if (values_put_pairs(o, "env", spec->env, e) < 0 ||
		values_put_pairs(o, "labels", spec->labels, e) < 0 ||
		put_network(o, spec->network, spec->allow, spec->deny, e) < 0 ||
		put_export(o, spec->metrics_export, e) < 0)
		return NULL;
	return steal(o);
}

int sbx_create(
	struct sbx *s, const struct sbx_spec *spec, struct sbx_sandbox *ret, struct sbx_error *e)
{
	static const struct sbx_spec none;
	json_t *body = create_body(spec ? spec : &none, e);

	if (!body)
		return -1;
	return values_call_sandbox(s, "POST", sbx_path("/v1/sandboxes"), body, -1, ret, e);
}

int sbx_get(struct sbx *s, const char *ref, struct sbx_sandbox *ret, struct sbx_error *e)
{
	return values_call_sandbox(s, "GET", sbx_path("/v1/sandboxes/%s", ref), NULL, 0, ret, e);
}

int sbx_list(struct sbx *s, const char *label, struct sbx_sandbox **ret, size_t *ret_n,
	struct sbx_error *e)
{
	static const struct list_shape shape = { "sandboxes", sizeof(struct sbx_sandbox),
		take_sandbox };

	return values_list(s,
		label ? sbx_path("/v1/sandboxes?label=%s", label) : sbx_path("/v1/sandboxes"),
		&shape, ret, ret_n, e);
}

int sbx_delete(struct sbx *s, const char *ref, struct sbx_error *e)
{
	return values_call(s, "DELETE", sbx_path("/v1/sandboxes/%s", ref), NULL, 0, NULL, e);
}

int sbx_rename(struct sbx *s, const char *ref, const char *name, struct sbx_error *e)
{
	struct sbx_update u = { .name = name };

	return sbx_update(s, ref, &u, NULL, e);
}

int sbx_update(struct sbx *s, const char *ref, const struct sbx_update *u, struct sbx_sandbox *ret,
	struct sbx_error *e)
{
	_cleanup_json_ json_t *o = json_object();

	values_put_str(o, "name", u->name);
	values_put_str(o, "idle_action", u->idle_action);
	values_put_int(o, "lifetime_secs", u->lifetime_secs);
	if (u->idle_timeout_secs)
		json_object_set_new(o, "idle_timeout_secs",
			json_integer(u->idle_timeout_secs < 0 ? 0 : u->idle_timeout_secs));
	if (values_put_pairs(o, "labels", u->labels, e) < 0 ||
		put_network(o, u->network, u->allow, u->deny, e) < 0 ||
		put_export(o, u->metrics_export, e) < 0)
		return -1;
	return values_call_sandbox(
		s, "PATCH", sbx_path("/v1/sandboxes/%s", ref), steal(o), 0, ret, e);
}

int sbx_suspend(struct sbx *s, const char *ref, struct sbx_sandbox *ret, struct sbx_error *e)
{
	return values_call_sandbox(
		s, "POST", sbx_path("/v1/sandboxes/%s/suspend", ref), NULL, 0, ret, e);
}

int sbx_resume(struct sbx *s, const char *ref, struct sbx_sandbox *ret, struct sbx_error *e)
{
	return values_call_sandbox(
		s, "POST", sbx_path("/v1/sandboxes/%s/resume", ref), NULL, 0, ret, e);
}
