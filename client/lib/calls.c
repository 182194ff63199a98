/* SPDX-License-Identifier: MIT */
/* The common calls: a struct to JSON, one request, JSON to a struct. What the server answers is
 * checked member by member; a wrong type or a value that does not fit is EPROTO. */
#include "client/lib/internal.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <string.h>

static int no_memory(struct sbx_error *e)
{
	return sbx_fail(e, "internal", ENOMEM, "out of memory");
}

/* Sends `body` (taken, may be NULL) and parses a JSON answer into *ret when that is given. */
static int call_json(struct sbx *s, const char *method, char *path, json_t *body, int timeout_ms,
	json_t **ret, struct sbx_error *e)
{
	_cleanup_free_ char *own_path = path;
	_cleanup_json_ json_t *own_body = body;
	_cleanup_free_ char *text = own_body ? json_text(own_body) : NULL;
	struct sbx_request q = { .method = method,
		.path = own_path,
		.body = text,
		.body_len = text ? strlen(text) : 0,
		.timeout_ms = timeout_ms };
	struct sbx_response r;
	int bad;

	if (!own_path || (own_body && !text))
		return no_memory(e);
	if (sbx_call(s, &q, &r, e) < 0)
		return -1;
	bad = ret && json_parse_any(r.body, r.len, SBX_JSON_MAX, ret, NULL) < 0;
	sbx_response_free(&r);
	return bad ? sbx_fail_shape(e, "no JSON") : 0;
}

static bool take_str(json_t *o, const char *key, char *out, size_t size, bool required)
{
	json_t *v = json_object_get(o, key);

	if (!v || json_is_null(v))
		return !required;
	if (!json_is_string(v) || json_string_length(v) >= size ||
		strlen(json_string_value(v)) != json_string_length(v))
		return false;
	strcpy(out, json_string_value(v));
	return true;
}

static int64_t take_int(json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static bool take_sandbox(json_t *o, struct sbx_sandbox *b)
{
	*b = (struct sbx_sandbox){
		.cpus = json_number_value(json_object_get(o, "cpus")),
		.memory_mb = take_int(o, "memory_mb"),
		.disk_mb = take_int(o, "disk_mb"),
		.idle_timeout_secs = take_int(o, "idle_timeout_secs"),
		.lifetime_secs = take_int(o, "lifetime_secs"),
	};
	return json_is_object(o) && take_str(o, "id", b->id, sizeof(b->id), true) &&
	       take_str(o, "name", b->name, sizeof(b->name), false) &&
	       take_str(o, "state", b->state, sizeof(b->state), true) &&
	       take_str(o, "image", b->image, sizeof(b->image), true) &&
	       take_str(o, "created_at", b->created_at, sizeof(b->created_at), true);
}

/* "key=value" strings as an object; NULL when one has no '='. */
static json_t *pairs(const char *const *list)
{
	json_t *o = json_object();

	for (; o && *list; list++) {
		const char *eq = strchr(*list, '=');
		_cleanup_free_ char *key = eq ? strndup(*list, (size_t)(eq - *list)) : NULL;
		if (!key || json_object_set_new(o, key, json_string(eq + 1)) < 0) {
			json_decref(o);
			return NULL;
		}
	}
	return o;
}

static void put_str(json_t *o, const char *key, const char *v)
{
	if (v)
		json_object_set_new(o, key, json_string(v));
}

static void put_int(json_t *o, const char *key, int64_t v)
{
	if (v)
		json_object_set_new(o, key, json_integer(v));
}

static int put_pairs(json_t *o, const char *key, const char *const *list, struct sbx_error *e)
{
	json_t *v = list ? pairs(list) : NULL;

	if (list && !v)
		return sbx_fail(
			e, "invalid_request", EINVAL, "%s: NAME=value in UTF-8 is expected", key);
	if (v)
		json_object_set_new(o, key, v);
	return 0;
}

int sbx_create(
	struct sbx *s, const struct sbx_spec *spec, struct sbx_sandbox *ret, struct sbx_error *e)
{
	static const struct sbx_spec none;
	_cleanup_json_ json_t *o = json_object(), *answer = NULL;

	spec = spec ? spec : &none;
	put_str(o, "name", spec->name);
	put_str(o, "image", spec->image);
	if (spec->cpus != 0)
		json_object_set_new(o, "cpus", json_real(spec->cpus));
	put_int(o, "memory_mb", spec->memory_mb);
	put_int(o, "disk_mb", spec->disk_mb);
	put_int(o, "idle_timeout_secs", spec->idle_timeout_secs);
	put_int(o, "lifetime_secs", spec->lifetime_secs);
	if (spec->network)
		json_object_set_new(o, "network", json_pack("{s:s}", "mode", spec->network));
	if (put_pairs(o, "env", spec->env, e) < 0 || put_pairs(o, "labels", spec->labels, e) < 0 ||
		call_json(s, "POST", sbx_path("/v1/sandboxes"), steal(o), -1, &answer, e) < 0)
		return -1;
	return take_sandbox(answer, ret) ? 0 : sbx_fail_shape(e, "no sandbox");
}

int sbx_get(struct sbx *s, const char *ref, struct sbx_sandbox *ret, struct sbx_error *e)
{
	_cleanup_json_ json_t *answer = NULL;

	if (call_json(s, "GET", sbx_path("/v1/sandboxes/%s", ref), NULL, 0, &answer, e) < 0)
		return -1;
	return take_sandbox(answer, ret) ? 0 : sbx_fail_shape(e, "no sandbox");
}

int sbx_list(struct sbx *s, const char *label, struct sbx_sandbox **ret, size_t *ret_n,
	struct sbx_error *e)
{
	_cleanup_json_ json_t *answer = NULL;
	_cleanup_free_ struct sbx_sandbox *all = NULL;
	char *path = label ? sbx_path("/v1/sandboxes?label=%s", label) : sbx_path("/v1/sandboxes");
	json_t *list;
	size_t n;

	if (call_json(s, "GET", path, NULL, 0, &answer, e) < 0)
		return -1;
	list = json_object_get(answer, "sandboxes");
	if (!json_is_array(list))
		return sbx_fail_shape(e, "no list");
	n = json_array_size(list);
	all = n ? calloc(n, sizeof(*all)) : NULL;
	if (n && !all)
		return no_memory(e);
	for (size_t i = 0; i < n; i++)
		if (!take_sandbox(json_array_get(list, i), &all[i]))
			return sbx_fail_shape(e, "no sandbox");
	*ret = steal(all);
	*ret_n = n;
	return 0;
}

int sbx_delete(struct sbx *s, const char *ref, struct sbx_error *e)
{
	return call_json(s, "DELETE", sbx_path("/v1/sandboxes/%s", ref), NULL, 0, NULL, e);
}

int sbx_rename(struct sbx *s, const char *ref, const char *name, struct sbx_error *e)
{
	return call_json(s, "PATCH", sbx_path("/v1/sandboxes/%s", ref),
		json_pack("{s:s}", "name", name), 0, NULL, e);
}

static json_t *command_body(const struct sbx_command *c, struct sbx_error *e)
{
	_cleanup_json_ json_t *o = json_object(), *argv = json_array();

	for (const char *const *a = c->argv; *a; a++)
		if (json_array_append_new(argv, json_string(*a)) < 0) {
			sbx_fail(e, "invalid_request", EINVAL, "an argument is not UTF-8 text");
			return NULL;
		}
	json_object_set(o, "argv", argv);
	put_str(o, "cwd", c->cwd);
	put_int(o, "timeout_secs", c->timeout_secs);
	if (put_pairs(o, "env", c->env, e) < 0)
		return NULL;
	if (c->input_len) {
		_cleanup_free_ char *b64 = base64_encode(c->input, c->input_len);
		put_str(o, "stdin", b64);
	}
	return steal(o);
}

static bool take_bytes(json_t *o, const char *key, char **ret, size_t *ret_len)
{
	json_t *v = json_object_get(o, key);
	void *p = NULL;
	char *text;
	size_t n = 0;

	if (v && !json_is_null(v) &&
		(!json_is_string(v) ||
			base64_decode(json_string_value(v), json_string_length(v), &p, &n) < 0))
		return false;
	text = realloc(p, n + 1);
	if (!text) {
		free(p);
		return false;
	}
	text[n] = '\0';
	*ret = text;
	*ret_len = n;
	return true;
}

int sbx_run(struct sbx *s, const char *ref, const struct sbx_command *c, struct sbx_result *ret,
	struct sbx_error *e)
{
	_cleanup_json_ json_t *answer = NULL;
	struct sbx_result r = { 0 };
	json_t *body = command_body(c, e), *code;

	if (!body || call_json(s, "POST", sbx_path("/v1/sandboxes/%s/run", ref), body, -1, &answer,
			     e) < 0)
		return -1;
	code = json_object_get(answer, "exit_code");
	r.exit_code = (int)json_integer_value(code);
	r.truncated = json_is_true(json_object_get(answer, "truncated"));
	r.timed_out = json_is_true(json_object_get(answer, "timed_out"));
	if (!json_is_integer(code) || !take_bytes(answer, "stdout", &r.out, &r.out_len) ||
		!take_bytes(answer, "stderr", &r.err, &r.err_len)) {
		sbx_result_free(&r);
		return sbx_fail_shape(e, "no result of a run");
	}
	*ret = r;
	return 0;
}

void sbx_result_free(struct sbx_result *r)
{
	if (!r)
		return;
	free(r->out);
	free(r->err);
	*r = (struct sbx_result){ 0 };
}

int sbx_start(struct sbx *s, const char *ref, const struct sbx_command *c, int64_t *ret_pid,
	struct sbx_error *e)
{
	_cleanup_json_ json_t *answer = NULL;
	json_t *body = command_body(c, e), *pid;

	if (!body)
		return -1;
	if (c->tty) {
		json_object_set_new(body, "tty", json_true());
		put_int(body, "rows", c->rows);
		put_int(body, "cols", c->cols);
	}
	if (call_json(s, "POST", sbx_path("/v1/sandboxes/%s/processes", ref), body, 0, &answer, e) <
		0)
		return -1;
	pid = json_object_get(answer, "pid");
	if (!json_is_integer(pid) || json_integer_value(pid) < 1)
		return sbx_fail_shape(e, "no process");
	*ret_pid = json_integer_value(pid);
	return 0;
}

int sbx_signal(struct sbx *s, const char *ref, int64_t pid, const char *signal, struct sbx_error *e)
{
	return call_json(s, "POST",
		sbx_path("/v1/sandboxes/%s/processes/%lld/signal", ref, (long long)pid),
		json_pack("{s:s}", "signal", signal), 0, NULL, e);
}

int sbx_file_get(struct sbx *s, const char *ref, const char *path, char **ret, size_t *ret_len,
	struct sbx_error *e)
{
	_cleanup_free_ char *url = sbx_path("/v1/sandboxes/%s/files?path=%S", ref, path);
	struct sbx_request q = { .method = "GET", .path = url };
	struct sbx_response r;

	if (!url)
		return no_memory(e);
	if (sbx_call(s, &q, &r, e) < 0)
		return -1;
	*ret = r.body;
	*ret_len = r.len;
	return 0;
}

int sbx_file_put(struct sbx *s, const char *ref, const char *path, const void *buf, size_t len,
	struct sbx_error *e)
{
	_cleanup_free_ char *url = sbx_path("/v1/sandboxes/%s/files?path=%S", ref, path);
	struct sbx_request q = { .method = "PUT",
		.path = url,
		.body = buf,
		.body_len = len,
		.body_type = "application/octet-stream" };

	return url ? sbx_call(s, &q, NULL, e) : no_memory(e);
}
