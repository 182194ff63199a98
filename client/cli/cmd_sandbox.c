/* SPDX-License-Identifier: MIT */
#include "client/cli/cmds.h"

#include "common/sys/mem.h"

#include <string.h>

void put_ref(json_t *v)
{
	const char *name = json_string_value(json_object_get(v, "name"));
	const char *id = json_string_value(json_object_get(v, "id"));

	put_text(name ? name : id ? id : "");
	putchar('\n');
}

int cmd_sandbox_new(struct cli *c)
{
	json_t *o = spec_request(c);

	if (!o)
		return EXIT_USAGE;
	if (c->n_pos && spec_name(o, c->pos[0]) < 0)
		return EXIT_USAGE;
	return ask_show(c, "POST", strdup("/v1/sandboxes"), o, put_ref);
}

int cmd_sandbox_set(struct cli *c)
{
	json_t *o = spec_request(c);

	if (!o)
		return EXIT_USAGE;
	return ask_show(c, "PATCH", sbx_path("/v1/sandboxes/%s", c->pos[0]), o, NULL);
}

static char *list_path(struct cli *c)
{
	char *path = strdup("/v1/sandboxes");
	int at = 0;

	for (const char *v; path && (v = opt_next(c, OPT_LABEL, &at));) {
		_cleanup_free_ char *old = path, *query = sbx_path("label=%s", v);
		if (!query ||
			asprintf(&path, "%s%c%s", old, strchr(old, '?') ? '&' : '?', query) < 0)
			path = NULL;
	}
	return path;
}

static bool is_ended(json_t *box)
{
	const char *state = json_string_value(json_object_get(box, "state"));

	return state && !strcmp(state, "terminated");
}

static char *show_mode(json_t *row, const char *key)
{
	return show_value(json_object_get(row, key), "mode");
}

int cmd_sandbox_ls(struct cli *c)
{
	static const struct column cols[] = {
		{ "NAME", "name", NULL },
		{ "ID", "id", NULL },
		{ "STATE", "state", NULL },
		{ "IMAGE", "image", NULL },
		{ "CPUS", "cpus", NULL },
		{ "MEMORY", "memory_mb", NULL },
		{ "NETWORK", "network", show_mode },
		{ "AGE", "created_at", show_age },
	};
	_cleanup_json_ json_t *v = NULL, *shown = json_array();
	json_t *box;
	size_t i;

	if (c->json)
		return ask_show(c, "GET", list_path(c), NULL, NULL);
	if (ask_json(c, "GET", list_path(c), NULL, &v) < 0)
		return 1;
	json_array_foreach (json_object_get(v, "sandboxes"), i, box) {
		if (is_ended(box) && !opt_has(c, OPT_ALL))
			continue;
		json_array_append(shown, box);
		if (opt_has(c, OPT_QUIET))
			put_ref(box);
	}
	if (!opt_has(c, OPT_QUIET))
		put_table(shown, cols, ARRAY_LEN(cols));
	return 0;
}

int cmd_sandbox_show(struct cli *c)
{
	return ask_show(c, "GET", sbx_path("/v1/sandboxes/%s", c->pos[0]), NULL, put_members);
}

int cmd_sandbox_rm(struct cli *c)
{
	return ask_each(c, "DELETE", "/v1/sandboxes/%s", NULL);
}

int cmd_suspend(struct cli *c)
{
	return ask_each(c, "POST", "/v1/sandboxes/%s/suspend", NULL);
}

int cmd_resume(struct cli *c)
{
	return ask_each(c, "POST", "/v1/sandboxes/%s/resume", NULL);
}

/* The policy in force with what the options replace. The lists are kept when they are not named. */
static int change_network(struct cli *c, json_t **ret)
{
	static const char *const kept[] = { "mode", "allow", "deny" };
	_cleanup_json_ json_t *box = NULL;
	json_t *now;

	if (spec_network(c, NULL, ret) < 0)
		return -1;
	if (ask_json(c, "GET", sbx_path("/v1/sandboxes/%s", c->pos[0]), NULL, &box) < 0) {
		json_decref(*ret);
		return 1;
	}
	now = json_object_get(box, "network");
	for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
		json_t *v = json_object_get(now, kept[i]);
		if (v && !json_is_null(v) && !json_object_get(*ret, kept[i]))
			json_object_set(*ret, kept[i], v);
	}
	return 0;
}

static void show_network(json_t *box)
{
	put_members(json_object_get(box, "network"));
}

int cmd_network(struct cli *c)
{
	const char *mode = c->n_pos > 1 ? c->pos[1] : NULL;
	json_t *net = NULL;
	int r;

	if (!mode && !opt_has(c, OPT_ALLOW) && !opt_has(c, OPT_DENY))
		return ask_show(
			c, "GET", sbx_path("/v1/sandboxes/%s", c->pos[0]), NULL, show_network);
	r = mode ? spec_network(c, mode, &net) : change_network(c, &net);
	if (r != 0)
		return r < 0 ? EXIT_USAGE : r;
	return ask_show(c, "PATCH", sbx_path("/v1/sandboxes/%s", c->pos[0]),
		json_pack("{s:o}", "network", net), show_network);
}
