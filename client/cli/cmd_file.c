/* SPDX-License-Identifier: MIT */
#include "client/cli/cmds.h"

#include "common/api/ids.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>

int cmd_file_get(struct cli *c)
{
	const char *local = c->n_pos > 2 && strcmp(c->pos[2], "-") != 0 ? c->pos[2] : NULL;
	_cleanup_close_ int fd = local ? -1 : dup(STDOUT_FILENO);
	int code;

	if (local)
		return fetch_to(c, c->pos[0], c->pos[1], local, -1);
	if (fd < 0)
		return complain(1, "standard output: %s", strerrordesc_np(errno));
	code = fetch_out(c, c->pos[0], c->pos[1], fd);
	if (close_whole(&fd) < 0 && code == 0)
		return complain(1, "standard output: %s", strerrordesc_np(errno));
	return code;
}

int cmd_file_put(struct cli *c)
{
	const char *local = c->n_pos > 2 && strcmp(c->pos[2], "-") != 0 ? c->pos[2] : NULL;
	_cleanup_close_ int fd = local ? open(local, O_RDONLY | O_CLOEXEC) : dup(STDIN_FILENO);
	struct sbx_error e;

	if (fd < 0)
		return complain(
			1, "%s: %s", local ? local : "standard input", strerrordesc_np(errno));
	return file_upload(c, c->pos[0], c->pos[1], fd, &e) < 0 ? fail(&e) : 0;
}

static char *show_mode(json_t *row, const char *key)
{
	json_t *v = json_object_get(row, key);
	char *text;

	if (json_is_string(v))
		return strdup(json_string_value(v));
	if (!json_is_integer(v))
		return strdup("");
	return asprintf(&text, "%04llo", (unsigned long long)json_integer_value(v) & 07777) < 0
		       ? NULL
		       : text;
}

static char *show_time(json_t *row, const char *key)
{
	const char *text = json_string_value(json_object_get(row, key));
	time_t secs = text ? (time_t)strtoll(text, NULL, 10) : 0;
	char out[32];
	struct tm tm;

	if (!text || !gmtime_r(&secs, &tm) ||
		!strftime(out, sizeof(out), "%Y-%m-%dT%H:%M:%SZ", &tm))
		return strdup("");
	return strdup(out);
}

static char *show_name(json_t *row, const char *key)
{
	const char *name = json_string_value(json_object_get(row, key));
	const char *target = json_string_value(json_object_get(row, "target"));
	char *text;

	if (!target)
		return strdup(name ? name : "");
	return asprintf(&text, "%s -> %s", name ? name : "", target) < 0 ? NULL : text;
}

static void put_long(json_t *list)
{
	static const struct column cols[] = {
		{ "TYPE", "type", NULL },
		{ "MODE", "mode", show_mode },
		{ "UID", "uid", NULL },
		{ "GID", "gid", NULL },
		{ "SIZE", "size", NULL },
		{ "CHANGED", "mtime", show_time },
		{ "NAME", "name", show_name },
	};

	put_table(list, cols, ARRAY_LEN(cols));
}

int cmd_file_ls(struct cli *c)
{
	const char *path = c->n_pos > 1 ? c->pos[1] : "/sandbox/home";
	_cleanup_json_ json_t *list = NULL;
	struct sbx_error e;
	json_t *v;
	size_t i;

	if (c->json)
		return ask_show(c, "GET",
			sbx_path("/v1/sandboxes/%s/dirs?path=%S", c->pos[0], path), NULL, NULL);
	if (dir_entries(c, c->pos[0], path, &list, &e) < 0)
		return fail(&e);
	if (opt_has(c, OPT_LONG)) {
		put_long(list);
		return 0;
	}
	json_array_foreach (list, i, v) {
		const char *name = json_string_value(json_object_get(v, "name"));
		const char *type = json_string_value(json_object_get(v, "type"));
		put_text(name ? name : "");
		puts(type && !strcmp(type, "dir") ? "/" : "");
	}
	return 0;
}

static int remove_one(struct cli *c, const char *path, struct sbx_error *e)
{
	return ask(c, "DELETE", sbx_path("/v1/sandboxes/%s/files?path=%S", c->pos[0], path), NULL,
		NULL, e);
}

static int path_too_long(struct sbx_error *e)
{
	*e = (struct sbx_error){ .sys = ENAMETOOLONG, .code = "invalid_request",
		.message = "what lies further down has too long a path" };
	return -1;
}

/* Depth first. Links are removed, never followed, and a listing would follow one: only what cannot
 * be removed as it is, since it is a folder with something in it, is entered. */
static int remove_tree(struct cli *c, const char *path, struct sbx_error *e)
{
	_cleanup_json_ json_t *list = NULL;
	json_t *v;
	size_t i;

	if (remove_one(c, path, e) == 0)
		return 0;
	if (e->sys != ENOTEMPTY && e->sys != EEXIST && e->sys != EBUSY) /* busy: a mount point */
		return -1;
	if (dir_entries(c, c->pos[0], path, &list, e) < 0)
		return -1;
	json_array_foreach (list, i, v) {
		const char *type = json_string_value(json_object_get(v, "type"));
		_cleanup_free_ char *name = entry_bytes(v, "name"), *below = NULL;
		if (!name || strchr(name, '/') || asprintf(&below, "%s/%s", path, name) < 0)
			continue;
		/* No path is longer, whatever a listing says. */
		if (strlen(below) >= GUEST_PATH_MAX)
			return path_too_long(e);
		if ((type && !strcmp(type, "dir") ? remove_tree : remove_one)(c, below, e) < 0)
			return -1;
	}
	return remove_one(c, path, e);
}

int cmd_file_rm(struct cli *c)
{
	struct sbx_error e;
	int code = 0;

	for (int i = 1; i < c->n_pos; i++) {
		_cleanup_free_ char *path = strdup(c->pos[i]);
		size_t n = path ? strlen(path) : 0;

		if (!path)
			return complain(1, "out of memory");
		/* Behind a link's name a slash would mean what it leads to. */
		while (n > 1 && path[n - 1] == '/')
			path[--n] = '\0';
		if ((opt_has(c, OPT_RECURSE) ? remove_tree : remove_one)(c, path, &e) < 0)
			code = fail(&e);
	}
	return code;
}
