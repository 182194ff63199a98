/* SPDX-License-Identifier: MIT */
/* Images of the server. */
#include "client/cli/cmds.h"

#include "common/sys/mem.h"

#include <string.h>

#define PULL_LOOK_MS 250
#define DIGEST_SHOWN 19 /* "sha256:" and the first dozen digits */

static char *show_digest(json_t *row, const char *key)
{
	const char *text = json_string_value(json_object_get(row, key));

	return strndup(text ? text : "", DIGEST_SHOWN);
}

static void show_images(json_t *v)
{
	static const struct column cols[] = {
		{ "IMAGE", "image", NULL },
		{ "STATE", "state", NULL },
		{ "SIZE", "bytes", show_bytes },
		{ "IN USE", "in_use", NULL },
		{ "DEFAULT", "default", NULL },
		{ "AGE", "installed_at", show_age },
		{ "DIGEST", "digest", show_digest },
	};

	put_table(json_object_get(v, "images"), cols, ARRAY_LEN(cols));
}

/* A server without image management still says on its node page which images are ready. */
static void show_node_images(json_t *v)
{
	json_t *name;
	size_t i;

	json_array_foreach (json_object_get(v, "images"), i, name) {
		put_text(json_string_value(name) ? json_string_value(name) : "");
		putchar('\n');
	}
}

static void show_names(json_t *v)
{
	put_names(json_object_get(v, "images"), "image");
}

int cmd_image_ls(struct cli *c)
{
	if (!c->json && !server_can(c, "images"))
		return ask_show(c, "GET", strdup("/v1/node"), NULL, show_node_images);
	return ask_show(c, "GET", strdup("/v1/images"), NULL,
		opt_has(c, OPT_QUIET) ? show_names : show_images);
}

/* How far an install is, for a terminal. */
static void show_install(const struct sbx_image *v)
{
	_cleanup_json_ json_t *o =
		json_pack("{s:I,s:I}", "done", (json_int_t)v->done, "total", (json_int_t)v->total);
	_cleanup_free_ char *done = show_bytes(o, "done"), *total = show_bytes(o, "total");
	char line[400];

	snprintf(line, sizeof(line), "%s: %s %s%s%s", v->image,
		v->phase[0] ? v->phase : "installing", v->done && done ? done : "",
		v->total ? " of " : "", v->total && total ? total : "");
	put_progress(line);
}

static int find_image(struct cli *c, const char *ref, struct sbx_image *ret, struct sbx_error *e)
{
	struct sbx_image *all = NULL;
	size_t n, i;

	if (sbx_image_list(c->s, &all, &n, e) < 0)
		return -1;
	for (i = 0; i < n && strcmp(all[i].image, ref) != 0; i++)
		;
	if (i < n)
		*ret = all[i];
	free(all);
	if (i < n)
		return 0;
	*e = (struct sbx_error){ .status = 404, .code = "not_found" };
	snprintf(e->message, sizeof(e->message),
		"the server no longer lists the image; it was removed meanwhile");
	return -1;
}

/* Its record once more as the API has it. */
static int print_image(struct cli *c, const char *ref)
{
	_cleanup_json_ json_t *v = NULL;
	json_t *row;
	size_t i;

	if (!c->json) {
		put_text(ref);
		putchar('\n');
		return 0;
	}
	if (ask_json(c, "GET", strdup("/v1/images"), NULL, &v) < 0)
		return 1;
	json_array_foreach (json_object_get(v, "images"), i, row) {
		const char *name = json_string_value(json_object_get(row, "image"));
		_cleanup_free_ char *text = name && !strcmp(name, ref) ? json_text(row) : NULL;
		if (text)
			puts(text);
	}
	return 0;
}

/* An install goes on without us: an interrupted sbx cancels nothing. */
int cmd_image_pull(struct cli *c)
{
	const char *ref = c->pos[0];
	struct sbx_image v;
	struct sbx_error e;
	int bad = sbx_image_install(c->s, ref, &v, &e);

	while (bad == 0 && !strcmp(v.state, "installing") && !opt_has(c, OPT_DETACH)) {
		show_install(&v);
		ask_pause(PULL_LOOK_MS);
		bad = find_image(c, ref, &v, &e);
	}
	put_progress("");
	if (bad < 0)
		return fail(&e);
	if (!strcmp(v.state, "failed")) {
		complain(0, "%s was not installed:", ref);
		put_complaint(v.error[0] ? v.error : "the server does not say why");
		return 1;
	}
	return print_image(c, ref);
}

static void show_freed(json_t *v)
{
	_cleanup_free_ char *freed = show_bytes(v, "freed_bytes");

	printf("freed ");
	put_text(freed ? freed : "?");
	putchar('\n');
}

int cmd_image_rm(struct cli *c)
{
	return ask_each(c, "DELETE", "/v1/images?image=%s", show_freed);
}
