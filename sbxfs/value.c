/* SPDX-License-Identifier: MIT */
/* Texts that people write into files, as values. Only one newline at the end is taken off. */
#include "sbxfs/value.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

char *value_line(const char *value, size_t len)
{
	if (len && value[len - 1] == '\n')
		len--;
	if (memchr(value, '\0', len))
		return NULL;
	return strndup(value, len);
}

int value_int(struct req *q, const char *what, const char *value, size_t len, int64_t min,
	int64_t max, int64_t *ret)
{
	char *s = value_line(value, len), *end;
	long long n = 0;
	bool ok;

	errno = 0;
	ok = s && ((s[0] >= '0' && s[0] <= '9') || (s[0] == '-' && s[1])) &&
		(n = strtoll(s, &end, 10), !errno && !*end) && n >= min && n <= max;
	free(s);
	if (!ok)
		return refuse(q, EINVAL, "%s: a whole number from %lld to %lld is needed", what,
			(long long)min, (long long)max);
	*ret = n;
	return 0;
}

int value_lines(struct req *q, const char *value, size_t len, json_t **ret)
{
	json_t *list = json_array();
	const char *end = value + len;

	while (list && value < end) {
		const char *nl = memchr(value, '\n', (size_t)(end - value));
		size_t n = nl ? (size_t)(nl - value) : (size_t)(end - value);
		json_t *s = n && !memchr(value, '\0', n) ? json_stringn(value, n) : NULL;

		if (n && (!s || json_array_append_new(list, s) < 0)) {
			json_decref(list);
			return refuse(q, EINVAL, "a line is not text");
		}
		value += n + 1;
	}
	*ret = list;
	return list ? 0 : -ENOMEM;
}

int value_env(struct req *q, const char *value, size_t len, json_t *object)
{
	json_t *lines, *line;
	size_t n;
	int rc = value_lines(q, value, len, &lines);

	if (rc < 0)
		return rc;
	json_array_foreach (lines, n, line) {
		const char *s = json_string_value(line), *eq = strchr(s, '=');
		char name[256];

		if (!eq || eq == s || (size_t)(eq - s) >= sizeof(name)) {
			rc = refuse(q, EINVAL, "env: lines of the form NAME=VALUE are needed");
			break;
		}
		memcpy(name, s, (size_t)(eq - s));
		name[eq - s] = '\0';
		json_object_set_new(object, name, json_string(eq + 1));
	}
	json_decref(lines);
	return rc;
}

void value_text(struct text *t, const json_t *v)
{
	const json_t *item;
	size_t n;

	switch (v ? json_typeof(v) : JSON_NULL) {
	case JSON_STRING:
		txt_safe(t, json_string_value(v), SIZE_MAX);
		txt_str(t, "\n");
		break;
	case JSON_ARRAY:
		json_array_foreach ((json_t *)(uintptr_t)v, n, item)
			value_text(t, item);
		break;
	case JSON_OBJECT:
		txt_json(t, v);
		break;
	case JSON_REAL:
		txt_printf(t, "%.15g\n", json_real_value(v));
		break;
	case JSON_TRUE:
	case JSON_FALSE:
		txt_str(t, json_is_true(v) ? "1\n" : "0\n");
		break;
	case JSON_INTEGER:
		txt_printf(t, "%lld\n", (long long)json_integer_value(v));
		break;
	case JSON_NULL:
		break;
	}
}

void value_keys(struct text *t, json_t *object)
{
	const char *key;
	json_t *v;

	json_object_foreach (object, key, v) {
		txt_safe(t, key, SIZE_MAX);
		txt_str(t, "\n");
	}
}
