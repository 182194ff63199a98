/* SPDX-License-Identifier: MIT */
/* JSON and plain structs, both ways. What a server answers is checked member by member. */
#include "client/lib/values.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <string.h>

int values_no_memory(struct sbx_error *e)
{
	return sbx_fail(e, "internal", ENOMEM, "out of memory");
}

static bool take_str(json_t *v, char *out, size_t size)
{
	size_t len = json_string_length(v);

	if (!json_is_string(v) || len >= size || strlen(json_string_value(v)) != len)
		return false;
	memcpy(out, json_string_value(v), len + 1);
	return true;
}

static bool take_one(json_t *v, const struct member *m, void *at)
{
	switch (m->type) {
	case MEMBER_STR:
		return take_str(v, at, m->size);
	case MEMBER_INT:
		*(int64_t *)at = json_integer_value(v);
		return json_is_integer(v);
	case MEMBER_NUM:
		*(double *)at = json_number_value(v);
		return json_is_number(v);
	case MEMBER_BOOL:
		*(bool *)at = json_is_true(v);
		return json_is_boolean(v);
	}
	return false;
}

bool values_take(json_t *o, const struct member *m, size_t n, void *out)
{
	if (!json_is_object(o))
		return false;
	for (; n; m++, n--) {
		json_t *v = json_object_get(o, m->key);
		if (!v || json_is_null(v)) {
			if (m->required)
				return false;
			continue;
		}
		if (!take_one(v, m, (char *)out + m->off))
			return false;
	}
	return true;
}

int values_call(struct sbx *s, const char *method, char *path, json_t *body, int timeout_ms,
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
		return values_no_memory(e);
	if (sbx_call(s, &q, &r, e) < 0)
		return -1;
	bad = ret && json_parse_any(r.body, r.len, SBX_JSON_MAX, ret, NULL) < 0;
	sbx_response_free(&r);
	return bad ? sbx_fail_shape(e, "no JSON") : 0;
}

int values_of_list(
	json_t *list, const struct list_shape *shape, void *ret, size_t *ret_n, struct sbx_error *e)
{
	_cleanup_free_ char *all = NULL;
	size_t n = json_array_size(list);

	if (!json_is_array(list))
		return sbx_fail_shape(e, "no list");
	all = n ? calloc(n, shape->size) : NULL;
	if (n && !all)
		return values_no_memory(e);
	for (size_t i = 0; i < n; i++)
		if (!shape->take(json_array_get(list, i), all + i * shape->size))
			return sbx_fail_shape(e, "an entry of the list is not what it should be");
	*(void **)ret = steal(all);
	*ret_n = n;
	return 0;
}

int values_list(struct sbx *s, char *path, const struct list_shape *shape, void *ret, size_t *ret_n,
	struct sbx_error *e)
{
	_cleanup_json_ json_t *answer = NULL;

	if (values_call(s, "GET", path, NULL, 0, &answer, e) < 0)
		return -1;
	return values_of_list(json_object_get(answer, shape->key), shape, ret, ret_n, e);
}

void values_put_str(json_t *o, const char *key, const char *v)
{
	json_t *text = v ? json_string(v) : NULL;

	/* What is no UTF-8 is refused by the server for what it is, and not left out. */
	if (v)
		json_object_set_new(o, key, text ? text : json_false());
}

void values_put_int(json_t *o, const char *key, int64_t v)
{
	if (v)
		json_object_set_new(o, key, json_integer(v));
}

/* NULL when one has no '=' or is no UTF-8. */
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

int values_put_pairs(json_t *o, const char *key, const char *const *list, struct sbx_error *e)
{
	json_t *v = list ? pairs(list) : NULL;

	if (list && !v)
		return sbx_fail(
			e, "invalid_request", EINVAL, "%s: NAME=value in UTF-8 is expected", key);
	if (v)
		json_object_set_new(o, key, v);
	return 0;
}

int values_put_list(json_t *o, const char *key, const char *const *list, struct sbx_error *e)
{
	_cleanup_json_ json_t *a = list ? json_array() : NULL;

	for (; list && *list; list++)
		if (json_array_append_new(a, json_string(*list)) < 0)
			return sbx_fail(
				e, "invalid_request", EINVAL, "%s: UTF-8 text is expected", key);
	if (a)
		json_object_set(o, key, a);
	return 0;
}
