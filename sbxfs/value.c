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

int value_pair(struct req *q, const char *what, const char *value, size_t len, int64_t *ret_first,
	int64_t *ret_second)
{
	char *line = value_line(value, len), *second = line ? strchr(line, ' ') : NULL;
	int rc = line ? 0 : refuse(q, EINVAL, "%s: two whole numbers are needed", what);

	if (second)
		*second++ = '\0';
	if (rc == 0)
		rc = value_int(q, what, line, strlen(line), 0, INT32_MAX, ret_first);
	*ret_second = 0;
	if (rc == 0 && second)
		rc = value_int(q, what, second, strlen(second), 0, INT32_MAX, ret_second);
	free(line);
	return rc;
}

void value_schedule(struct text *t, const json_t *o)
{
	const json_t *every = json_object_get(o, "snapshot_every_secs");

	if (json_is_integer(every))
		txt_printf(t, "%lld %lld\n", (long long)json_integer_value(every),
			(long long)json_integer_value(json_object_get(o, "snapshot_keep")));
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

void value_mounts(struct text *t, const json_t *list)
{
	json_t *o;
	size_t n;

	json_array_foreach ((json_t *)(uintptr_t)list, n, o) {
		const char *name = json_string_value(json_object_get(o, "name"));
		const char *path = json_string_value(json_object_get(o, "path"));

		txt_safe(t, name ? name : "?", SIZE_MAX);
		txt_str(t, " ");
		txt_safe(t, path ? path : "?", SIZE_MAX);
		txt_str(t, json_is_true(json_object_get(o, "read_only")) ? " ro\n" : " rw\n");
	}
}

/* Neither a volume's name nor its path can have a space. */
static json_t *mount_of(char *line)
{
	char *name = strsep(&line, " "), *path = strsep(&line, " ");

	if (!path || path[0] != '/' || !name[0] || (line && strcmp(line, "ro") && strcmp(line, "rw")))
		return NULL;
	return line && line[1] == 'o' ?
		json_pack("{s:s,s:s,s:b}", "name", name, "path", path, "read_only", 1) :
		json_pack("{s:s,s:s}", "name", name, "path", path);
}

int value_to_mounts(struct req *q, const char *value, size_t len, json_t **ret)
{
	json_t *lines, *line, *list = json_array();
	size_t n;
	int rc = value_lines(q, value, len, &lines);

	if (rc < 0) {
		json_decref(list);
		return rc;
	}
	json_array_foreach (lines, n, line) {
		char *copy = strdup(json_string_value(line));
		json_t *m = copy ? mount_of(copy) : NULL;

		free(copy);
		if (!m)
			rc = refuse(q, EINVAL, "volumes: lines of the form NAME /PATH [ro] are needed");
		if (!m || json_array_append_new(list, m) < 0)
			break;
	}
	json_decref(lines);
	if (rc < 0)
		json_decref(list);
	else
		*ret = list;
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
