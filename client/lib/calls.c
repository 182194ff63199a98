/* SPDX-License-Identifier: MIT */
/* Calls about what happens in a sandbox: commands and whole files. */
#include "client/lib/values.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <string.h>

static json_t *command_body(const struct sbx_command *c, struct sbx_error *e)
{
	_cleanup_json_ json_t *o = json_object(), *argv = json_array();

	for (const char *const *a = c->argv; *a; a++)
		if (json_array_append_new(argv, json_string(*a)) < 0) {
			sbx_fail(e, "invalid_request", EINVAL, "an argument is not UTF-8 text");
			return NULL;
		}
	json_object_set(o, "argv", argv);
	values_put_str(o, "cwd", c->cwd);
	values_put_int(o, "timeout_secs", c->timeout_secs);
	if (values_put_pairs(o, "env", c->env, e) < 0)
		return NULL;
	if (c->input_len) {
		_cleanup_free_ char *b64 = base64_encode(c->input, c->input_len);
		values_put_str(o, "stdin", b64);
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

	if (!body || values_call(s, "POST", sbx_path("/v1/sandboxes/%s/run", ref), body, -1,
			     &answer, e) < 0)
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
		values_put_int(body, "rows", c->rows);
		values_put_int(body, "cols", c->cols);
	}
	if (values_call(s, "POST", sbx_path("/v1/sandboxes/%s/processes", ref), body, 0, &answer,
		    e) < 0)
		return -1;
	pid = json_object_get(answer, "pid");
	if (!json_is_integer(pid) || json_integer_value(pid) < 1)
		return sbx_fail_shape(e, "no process");
	*ret_pid = json_integer_value(pid);
	return 0;
}

int sbx_signal(struct sbx *s, const char *ref, int64_t pid, const char *signal, struct sbx_error *e)
{
	return values_call(s, "POST",
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
		return values_no_memory(e);
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

	return url ? sbx_call(s, &q, NULL, e) : values_no_memory(e);
}
