/* SPDX-License-Identifier: MIT */
/* One reader function a type, chosen by a table. Paths of nested fields are built on the way down, so
 * that a message can name "volumes[1].path". */
#include "common/json/schema.h"

#include "common/sys/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PATH_MAX_LEN 160

typedef int read_fn(const struct field *f, const json_t *v, const char *path, void *dst, struct err *e);

static int decode_at(const struct field *fields, const json_t *object, const char *prefix, void *st,
	struct err *e);

static int bad(struct err *e, const char *path, const char *want)
{
	return err_set(e, ERR_INVALID_REQUEST, "field \"%s\": %s", path, want);
}

static int read_str(const struct field *f, const json_t *v, const char *path, void *dst, struct err *e)
{
	if (!json_is_string(v))
		return bad(e, path, "must be a string");
	if (strlen(json_string_value(v)) != json_string_length(v))
		return bad(e, path, "must not hold a NUL character");
	if (f->max && json_string_length(v) > (size_t)f->max)
		return bad(e, path, "is too long");
	*(char **)dst = strdup(json_string_value(v));
	return *(char **)dst ? 0 : err_oom(e);
}

static int read_int(const struct field *f, const json_t *v, const char *path, void *dst, struct err *e)
{
	char want[96];

	if (!json_is_integer(v))
		return bad(e, path, "must be a whole number");
	if (f->max > f->min && (json_integer_value(v) < f->min || json_integer_value(v) > f->max)) {
		snprintf(want, sizeof(want), "must be from %lld to %lld", (long long)f->min,
			(long long)f->max);
		return bad(e, path, want);
	}
	*(int64_t *)dst = json_integer_value(v);
	return 0;
}

static int read_num(const struct field *f, const json_t *v, const char *path, void *dst, struct err *e)
{
	(void)f;
	if (!json_is_number(v) || !isfinite(json_number_value(v)))
		return bad(e, path, "must be a number");
	*(double *)dst = json_number_value(v);
	return 0;
}

static int read_bool(const struct field *f, const json_t *v, const char *path, void *dst, struct err *e)
{
	(void)f;
	if (!json_is_boolean(v))
		return bad(e, path, "must be true or false");
	*(bool *)dst = json_is_true(v);
	return 0;
}

static int read_b64(const struct field *f, const json_t *v, const char *path, void *dst, struct err *e)
{
	struct blob *b = dst;

	(void)f;
	if (!json_is_string(v) ||
		base64_decode(json_string_value(v), json_string_length(v), &b->data, &b->len) < 0)
		return bad(e, path, "must be base64 with padding");
	return 0;
}

static int read_strs(const struct field *f, const json_t *v, const char *path, void *dst, struct err *e)
{
	static const struct field item = { .name = "" };
	struct strlist *l = dst;

	if (!json_is_array(v))
		return bad(e, path, "must be a list of strings");
	if (f->max && json_array_size(v) > (size_t)f->max)
		return bad(e, path, "has too many entries");
	l->v = calloc(json_array_size(v) + 1, sizeof(*l->v));
	if (!l->v)
		return err_oom(e);
	for (size_t i = 0; i < json_array_size(v); i++) {
		char at[PATH_MAX_LEN];
		snprintf(at, sizeof(at), "%.120s[%zu]", path, i);
		if (read_str(&item, json_array_get(v, i), at, &l->v[l->n], e) < 0)
			return -1;
		l->n++;
	}
	return 0;
}

/* Keys are the client's: at most 32 printable bytes of one are shown, the rest is not repeated. */
static void member_path(const char *prefix, const char *key, char *out, size_t size)
{
	size_t n = (size_t)snprintf(out, size, "%.100s%s", prefix, *prefix ? "." : "");

	for (size_t i = 0; i < 32 && key[i] && n + 2 < size; i++)
		out[n++] = (unsigned char)key[i] < 0x20 || (unsigned char)key[i] == 0x7f ? '?' : key[i];
	out[n] = '\0';
}

static int read_map(const struct field *f, const json_t *v, const char *path, void *dst, struct err *e)
{
	static const struct field item = { .name = "" };
	struct strmap *m = dst;
	const char *key;
	json_t *val;

	if (!json_is_object(v))
		return bad(e, path, "must be an object of strings");
	if (f->max && json_object_size(v) > (size_t)f->max)
		return bad(e, path, "has too many entries");
	m->keys = calloc(json_object_size(v) + 1, sizeof(*m->keys));
	m->values = calloc(json_object_size(v) + 1, sizeof(*m->values));
	if (!m->keys || !m->values)
		return err_oom(e);
	json_object_foreach((json_t *)(size_t)v, key, val) {
		char at[PATH_MAX_LEN];
		member_path(path, key, at, sizeof(at));
		m->keys[m->n] = strdup(key);
		if (!m->keys[m->n])
			return err_oom(e);
		if (read_str(&item, val, at, &m->values[m->n], e) < 0) {
			free(m->keys[m->n]);
			m->keys[m->n] = NULL;
			return -1;
		}
		m->n++;
	}
	return 0;
}

static int read_obj(const struct field *f, const json_t *v, const char *path, void *dst, struct err *e)
{
	if (!json_is_object(v))
		return bad(e, path, "must be an object");
	return decode_at(f->sub, v, path, dst, e);
}

static int read_objs(const struct field *f, const json_t *v, const char *path, void *dst, struct err *e)
{
	struct objlist *l = dst;

	if (!json_is_array(v))
		return bad(e, path, "must be a list of objects");
	if (f->max && json_array_size(v) > (size_t)f->max)
		return bad(e, path, "has too many entries");
	l->v = calloc(json_array_size(v) + 1, f->size);
	if (!l->v)
		return err_oom(e);
	for (size_t i = 0; i < json_array_size(v); i++) {
		char at[PATH_MAX_LEN];
		snprintf(at, sizeof(at), "%.120s[%zu]", path, i);
		l->n = i + 1; /* a half-read element is freed with the rest */
		if (read_obj(f, json_array_get(v, i), at, (char *)l->v + i * f->size, e) < 0)
			return -1;
	}
	return 0;
}

static int read_any(const struct field *f, const json_t *v, const char *path, void *dst, struct err *e)
{
	(void)f, (void)path, (void)e;
	*(json_t **)dst = json_incref((json_t *)(size_t)v);
	return 0;
}

static int read_mode(const struct field *f, const json_t *v, const char *path, void *dst, struct err *e)
{
	json_int_t n = -1;

	(void)f;
	if (json_is_integer(v)) {
		n = json_integer_value(v);
	} else if (json_is_string(v) && json_string_length(v) > 0 && json_string_length(v) <= 6) {
		char *end;
		n = strtol(json_string_value(v), &end, 8);
		if (*end)
			n = -1;
	}
	if (n < 0 || n > 07777)
		return bad(e, path, "must be a file mode such as \"0644\"");
	*(uint32_t *)dst = (uint32_t)n;
	return 0;
}

static read_fn *const readers[] = {
	[F_STR] = read_str, [F_INT] = read_int, [F_NUM] = read_num, [F_BOOL] = read_bool,
	[F_B64] = read_b64, [F_STRS] = read_strs, [F_MAP] = read_map, [F_OBJ] = read_obj,
	[F_OBJS] = read_objs, [F_ANY] = read_any, [F_MODE] = read_mode,
};

static const struct field *find(const struct field *fields, const char *key)
{
	for (; fields->name; fields++)
		if (!strcmp(fields->name, key))
			return fields;
	return NULL;
}

static int decode_at(const struct field *fields, const json_t *object, const char *prefix, void *st,
	struct err *e)
{
	char path[PATH_MAX_LEN];
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)(size_t)object, key, v) {
		const struct field *f = find(fields, key);
		member_path(prefix, key, path, sizeof(path));
		if (!f)
			return err_set(e, ERR_INVALID_REQUEST, "unknown field \"%s\"", path);
		if (json_is_null(v))
			continue;
		if (readers[f->type](f, v, path, (char *)st + f->offset, e) < 0)
			return -1;
		if (f->has != SIZE_MAX)
			*(bool *)((char *)st + f->has) = true;
	}
	for (const struct field *f = fields; f->name; f++) {
		if (!f->required || (json_object_get(object, f->name) &&
					!json_is_null(json_object_get(object, f->name))))
			continue;
		member_path(prefix, f->name, path, sizeof(path));
		return bad(e, path, "is required");
	}
	return 0;
}

int schema_decode(const struct field *fields, json_t *object, void *ret_struct, struct err *e)
{
	if (decode_at(fields, object, "", ret_struct, e) == 0)
		return 0;
	schema_free(fields, ret_struct);
	return -1;
}

static void free_strs(char **v, size_t n)
{
	for (size_t i = 0; v && i < n; i++)
		free(v[i]);
	free(v);
}

static void free_member(const struct field *f, void *p)
{
	struct strlist *l = p;
	struct strmap *m = p;
	struct objlist *o = p;

	switch (f->type) {
	case F_STR:
		free(*(char **)p);
		*(char **)p = NULL;
		break;
	case F_B64:
		free(((struct blob *)p)->data);
		*(struct blob *)p = (struct blob){ NULL, 0 };
		break;
	case F_STRS:
		free_strs(l->v, l->n);
		*l = (struct strlist){ NULL, 0 };
		break;
	case F_MAP:
		free_strs(m->keys, m->n);
		free_strs(m->values, m->n);
		*m = (struct strmap){ NULL, NULL, 0 };
		break;
	case F_OBJ:
		schema_free(f->sub, p);
		break;
	case F_OBJS:
		for (size_t i = 0; i < o->n; i++)
			schema_free(f->sub, (char *)o->v + i * f->size);
		free(o->v);
		*o = (struct objlist){ NULL, 0 };
		break;
	case F_ANY:
		json_decref(*(json_t **)p);
		*(json_t **)p = NULL;
		break;
	case F_INT:
	case F_NUM:
	case F_BOOL:
	case F_MODE:
		break;
	}
}

void schema_free(const struct field *fields, void *st)
{
	for (; fields->name; fields++)
		free_member(fields, (char *)st + fields->offset);
}
