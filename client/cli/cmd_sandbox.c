/* SPDX-License-Identifier: MIT */
#include "client/cli/cmds.h"

#include "common/sys/mem.h"

#include <string.h>

/* Options that become a member of the request as they are. */
static const struct {
	enum opt id;
	const char *key;
	enum { TEXT, WHOLE, DECIMAL } kind;
} members[] = {
	{ OPT_NAME, "name", TEXT },
	{ OPT_IMAGE, "image", TEXT },
	{ OPT_CPUS, "cpus", DECIMAL },
	{ OPT_MEMORY, "memory_mb", WHOLE },
	{ OPT_DISK, "disk_mb", WHOLE },
	{ OPT_IDLE, "idle_timeout_secs", WHOLE },
	{ OPT_LIFETIME, "lifetime_secs", WHOLE },
};

static int add_member(json_t *o, size_t i, const char *v)
{
	json_t *j;
	char *end;

	if (members[i].kind == WHOLE) {
		long long n = number_of(v, INT64_MAX / 2, option_rows[members[i].id].name);
		if (n < 0)
			return -1;
		j = json_integer(n);
	} else if (members[i].kind == DECIMAL) {
		double d = strtod(v, &end);
		if (end == v || *end)
			return complain(-1, "--cpus: a number is expected, not %s", v);
		j = json_real(d);
	} else {
		j = json_string(v);
	}
	return json_object_set_new(o, members[i].key, j) < 0
		       ? complain(-1, "--%s is not UTF-8 text", option_rows[members[i].id].name)
		       : 0;
}

static int add_pairs(struct cli *c, json_t *o, enum opt id, const char *key)
{
	json_t *map = json_object();
	int at = 0, n = 0;

	for (const char *v; (v = opt_next(c, id, &at)); n++) {
		const char *eq = strchrnul(v, '='), *value = *eq             ? eq + 1
							     : id == OPT_ENV ? getenv(v)
									     : "";
		_cleanup_free_ char *name = strndup(v, (size_t)(eq - v));
		/* A variable that is not set here is left out. An empty label word clears the set.
		 */
		if (*v && value &&
			json_object_set_new(map, name ? name : "", json_string(value)) < 0) {
			json_decref(map);
			return complain(-1, "--%s %s is not UTF-8 text", option_rows[id].name, v);
		}
	}
	if (n)
		json_object_set(o, key, map);
	json_decref(map);
	return 0;
}

static void add_network(struct cli *c, json_t *o)
{
	const char *mode = opt_get(c, OPT_NETWORK);
	json_t *net, *allow;
	int at = 0;

	if (!mode && !opt_has(c, OPT_ALLOW))
		return;
	net = json_object();
	json_object_set_new(net, "mode", json_string(mode ? mode : "allowlist"));
	if (opt_has(c, OPT_ALLOW)) {
		allow = json_array();
		for (const char *v; (v = opt_next(c, OPT_ALLOW, &at));)
			json_array_append_new(allow, json_string(v));
		json_object_set_new(net, "allow", allow);
	}
	json_object_set_new(o, "network", net);
}

static json_t *request(struct cli *c)
{
	_cleanup_json_ json_t *o = json_object();

	for (size_t i = 0; i < ARRAY_LEN(members); i++) {
		const char *v = opt_get(c, members[i].id);
		if (v && add_member(o, i, v) < 0)
			return NULL;
	}
	if (add_pairs(c, o, OPT_ENV, "env") < 0 || add_pairs(c, o, OPT_LABEL, "labels") < 0)
		return NULL;
	add_network(c, o);
	return steal(o);
}

static void print_ref(json_t *v)
{
	const char *name = json_string_value(json_object_get(v, "name"));
	const char *id = json_string_value(json_object_get(v, "id"));

	put_text(name ? name : id ? id : "");
	putchar('\n');
}

int cmd_sandbox_new(struct cli *c)
{
	json_t *o = request(c);

	if (!o)
		return EXIT_USAGE;
	if (c->n_pos)
		json_object_set_new(o, "name", json_string(c->pos[0]));
	return ask_show(c, "POST", strdup("/v1/sandboxes"), o, print_ref);
}

int cmd_sandbox_set(struct cli *c)
{
	json_t *o = request(c);

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
			print_ref(box);
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
	int code = 0;

	for (int i = 0; i < c->n_pos; i++)
		code |= ask_show(c, "DELETE", sbx_path("/v1/sandboxes/%s", c->pos[i]), NULL, NULL);
	return code;
}
