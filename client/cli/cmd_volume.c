/* SPDX-License-Identifier: MIT */
/* Volumes: folders that outlive sandboxes. */
#include "client/cli/cmds.h"

#include "common/sys/mem.h"

#include <string.h>

static void show_name(json_t *v)
{
	const char *name = json_string_value(json_object_get(v, "name"));

	put_text(name ? name : "");
	putchar('\n');
}

int cmd_volume_create(struct cli *c)
{
	const char *size = opt_get(c, OPT_SIZE);
	long long n = size ? number_of(size, INT64_MAX / 2, "--size") : 0;
	json_t *body;

	if (n < 0)
		return EXIT_USAGE;
	body = json_pack("{s:s}", "name", c->pos[0]);
	if (!body)
		return complain(EXIT_USAGE, "the name is not UTF-8 text");
	if (n)
		json_object_set_new(body, "size_mb", json_integer(n));
	return ask_show(c, "POST", strdup("/v1/volumes"), body, show_name);
}

static void show_volumes(json_t *v)
{
	static const struct column cols[] = {
		{ "NAME", "name", NULL },
		{ "MIB", "size_mb", NULL },
		{ "ATTACHED TO", "attached_to", NULL },
		{ "AGE", "created_at", show_age },
	};

	put_table(json_object_get(v, "volumes"), cols, ARRAY_LEN(cols));
}

static void show_names(json_t *v)
{
	put_names(json_object_get(v, "volumes"), "name");
}

int cmd_volume_ls(struct cli *c)
{
	return ask_show(c, "GET", strdup("/v1/volumes"), NULL,
		opt_has(c, OPT_QUIET) ? show_names : show_volumes);
}

int cmd_volume_rm(struct cli *c)
{
	return ask_each(c, "DELETE", "/v1/volumes/%s", NULL);
}
