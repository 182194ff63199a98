/* SPDX-License-Identifier: MIT */
/* Small containers; the sizes here are bounded by a 1 MiB body, so plain arrays do. */
#include "sandboxd/core/strs.h"

#include <stdlib.h>
#include <string.h>

void strs_free(struct strlist *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i]);
	free(l->v);
	*l = (struct strlist){ NULL, 0 };
}

int strs_copy(const struct strlist *from, struct strlist *ret)
{
	*ret = (struct strlist){ calloc(from->n + 1, sizeof(char *)), 0 };
	if (!ret->v)
		return -1;
	for (; ret->n < from->n; ret->n++) {
		ret->v[ret->n] = strdup(from->v[ret->n]);
		if (!ret->v[ret->n]) {
			strs_free(ret);
			return -1;
		}
	}
	return 0;
}

int strs_add(struct strlist *l, const char *s)
{
	char **v = realloc(l->v, (l->n + 2) * sizeof(*v));

	if (!v)
		return -1;
	l->v = v;
	v[l->n] = strdup(s);
	if (!v[l->n])
		return -1;
	v[++l->n] = NULL;
	return 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void strs_sort_unique(struct strlist *l)
{
	size_t n = 0;

	if (!l->n)
		return;
	qsort(l->v, l->n, sizeof(*l->v), by_text);
	for (size_t i = 0; i < l->n; i++) {
		if (n && !strcmp(l->v[n - 1], l->v[i]))
			free(l->v[i]);
		else
			l->v[n++] = l->v[i];
	}
	l->n = n;
	l->v[n] = NULL;
}

bool strs_has(const struct strlist *l, const char *s)
{
	for (size_t i = 0; i < l->n; i++)
		if (!strcmp(l->v[i], s))
			return true;
	return false;
}

bool strs_equal(const struct strlist *a, const struct strlist *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (strcmp(a->v[i], b->v[i]))
			return false;
	return true;
}

json_t *strs_json(const struct strlist *l)
{
	json_t *a = json_array();

	for (size_t i = 0; i < l->n; i++)
		json_array_append_new(a, json_string(l->v[i]));
	return a;
}

int strs_from_json(const json_t *a, struct strlist *ret)
{
	*ret = (struct strlist){ NULL, 0 };
	for (size_t i = 0; i < json_array_size(a); i++)
		if (!json_is_string(json_array_get(a, i)) ||
			strs_add(ret, json_string_value(json_array_get(a, i))) < 0) {
			strs_free(ret);
			return -1;
		}
	return 0;
}

void map_free(struct strmap *m)
{
	for (size_t i = 0; i < m->n; i++) {
		free(m->keys[i]);
		explicit_bzero(m->values[i], strlen(m->values[i]));
		free(m->values[i]);
	}
	free(m->keys);
	free(m->values);
	*m = (struct strmap){ NULL, NULL, 0 };
}

static int map_reserve(struct strmap *m, size_t n)
{
	*m = (struct strmap){ calloc(n + 1, sizeof(char *)), calloc(n + 1, sizeof(char *)), 0 };
	if (m->keys && m->values)
		return 0;
	map_free(m);
	return -1;
}

static int map_push(struct strmap *m, const char *key, const char *value)
{
	char *k = strdup(key), *v = strdup(value);

	if (!k || !v) {
		free(k);
		free(v);
		return -1;
	}
	m->keys[m->n] = k;
	m->values[m->n++] = v;
	return 0;
}

int map_copy(const struct strmap *from, struct strmap *ret)
{
	if (map_reserve(ret, from->n) < 0)
		return -1;
	for (size_t i = 0; i < from->n; i++)
		if (map_push(ret, from->keys[i], from->values[i]) < 0) {
			map_free(ret);
			return -1;
		}
	return 0;
}

void map_sort(struct strmap *m)
{
	/* insertion sort: keeps both arrays together; maps are short */
	for (size_t i = 1; i < m->n; i++) {
		char *k = m->keys[i], *v = m->values[i];
		size_t j = i;
		for (; j > 0 && strcmp(m->keys[j - 1], k) > 0; j--) {
			m->keys[j] = m->keys[j - 1];
			m->values[j] = m->values[j - 1];
		}
		m->keys[j] = k;
		m->values[j] = v;
	}
}

const char *map_get(const struct strmap *m, const char *key)
{
	for (size_t i = 0; i < m->n; i++)
		if (!strcmp(m->keys[i], key))
			return m->values[i];
	return NULL;
}

json_t *map_json(const struct strmap *m)
{
	json_t *o = json_object();

	for (size_t i = 0; i < m->n; i++)
		json_object_set_new(o, m->keys[i], json_string(m->values[i]));
	return o;
}

int map_from_json(const json_t *o, struct strmap *ret)
{
	const char *key;
	json_t *v;

	if (map_reserve(ret, json_object_size(o)) < 0)
		return -1;
	json_object_foreach ((json_t *)(size_t)o, key, v) {
		if (json_is_string(v) && map_push(ret, key, json_string_value(v)) == 0)
			continue;
		map_free(ret);
		return -1;
	}
	return 0;
}

json_t *map_names_json(const struct strmap *m)
{
	struct strlist l = { NULL, 0 };
	json_t *a = json_array();

	for (size_t i = 0; i < m->n; i++)
		if (strs_add(&l, m->keys[i]) < 0)
			break;
	strs_sort_unique(&l);
	for (size_t i = 0; i < l.n; i++)
		json_array_append_new(a, json_string(l.v[i]));
	strs_free(&l);
	return a;
}
