/* SPDX-License-Identifier: MIT */
/* The server itself: node, capabilities, version, and any request at all. */
#include "client/cli/cmds.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* The capabilities have a command of their own. */
static void show_node(json_t *v)
{
	json_object_del(v, "capabilities");
	put_members(v);
}

int cmd_node_show(struct cli *c)
{
	return ask_show(c, "GET", strdup("/v1/node"), NULL, show_node);
}

static int cordon(struct cli *c, bool on)
{
	return ask_show(
		c, "POST", strdup("/v1/node/cordon"), json_pack("{s:b}", "cordoned", on), NULL);
}

int cmd_node_cordon(struct cli *c)
{
	return cordon(c, true);
}

int cmd_node_uncordon(struct cli *c)
{
	return cordon(c, false);
}

static void show_capabilities(json_t *v)
{
	const char *key;
	json_t *on;
	const char *backend = json_string_value(json_object_get(v, "backend"));

	printf("backend ");
	put_text(backend ? backend : "?");
	putchar('\n');
	json_object_foreach (json_object_get(v, "capabilities"), key, on) {
		printf("%s  ", json_is_true(on) ? "yes" : "no ");
		put_text(key);
		putchar('\n');
	}
	puts("limits");
	json_object_foreach (json_object_get(v, "limits"), key, on) {
		_cleanup_free_ char *text = json_dumps(on, JSON_ENCODE_ANY);
		printf("  ");
		put_text(key);
		putchar(' ');
		put_text(text ? text : "");
		putchar('\n');
	}
}

int cmd_capability(struct cli *c)
{
	return ask_show(c, "GET", strdup("/v1/capabilities"), NULL, show_capabilities);
}

int cmd_version(struct cli *c)
{
	struct sbx_response r = { 0 };
	_cleanup_json_ json_t *v = NULL;
	struct sbx_error e;
	const char *server = NULL;

	if (cli_connect(c, &e) == 0 && ask(c, "GET", strdup("/v1/node"), NULL, &r, &e) == 0) {
		if (json_parse_any(r.body, r.len, 1 << 20, &v, NULL) < 0)
			v = NULL;
		server = json_string_value(json_object_get(v, "version"));
	}
	if (c->json) {
		_cleanup_json_ json_t *o =
			json_pack("{s:s,s:s?}", "sbx", SBX_VERSION, "sandboxd", server);
		_cleanup_free_ char *text = json_text(o);
		puts(text ? text : "{}");
	} else {
		puts("sbx " SBX_VERSION);
		fputs("sandboxd ", stdout);
		put_text(server ? server : e.message);
		putchar('\n');
	}
	sbx_response_free(&r);
	return 0;
}

static bool body_to_stdout(void *arg, const void *buf, size_t len)
{
	(void)arg;
	return fwrite(buf, 1, len, stdout) == len && fflush(stdout) == 0;
}

int cmd_api(struct cli *c)
{
	const char *body = c->n_pos > 2 ? c->pos[2] : NULL;
	int fd = STDIN_FILENO;
	bool in = body && !strcmp(body, "-"), json = body && strchr("{[ \t\r\n", body[0]);
	struct sbx_request q = { .method = c->pos[0],
		.path = c->pos[1],
		.timeout_ms = -1,
		.body = in ? NULL : body,
		.body_len = body && !in ? strlen(body) : 0,
		.on_read = in ? body_from_fd : NULL,
		.arg = &fd,
		.on_data = body_to_stdout };
	struct sbx_error e;

	/* Raw bodies go to a few paths only; everything else is JSON. */
	if (!json && (strstr(q.path, "/files?") || strstr(q.path, "/stdin") ||
			     strstr(q.path, "/handles/")))
		q.body_type = "application/octet-stream";
	for (const char *p = q.method; *p; p++)
		if (*p < 'A' || *p > 'Z')
			return complain(EXIT_USAGE, "METHOD is GET, POST, PUT, PATCH or DELETE");
	if (sbx_call(c->s, &q, NULL, &e) < 0) {
		if (e.status)
			complain(0, "%d %s", e.status, e.code);
		return fail(&e);
	}
	if (isatty(STDOUT_FILENO))
		putchar('\n');
	return 0;
}
