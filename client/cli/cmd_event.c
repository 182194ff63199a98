/* SPDX-License-Identifier: MIT */
#include "client/cli/cmds.h"

#include "common/api/ids.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <string.h>

/* One event a line: time, type, sandbox, then its other members. */
static void put_event(json_t *v)
{
	static const char *const first[] = { "time", "type", "sandbox", NULL };
	const char *key;
	json_t *m;

	for (const char *const *f = first; *f; f++) {
		const char *text = json_string_value(json_object_get(v, *f));
		put_text(text ? text : "-");
		putchar(' ');
	}
	json_object_foreach (v, key, m) {
		if (!strcmp(key, "time") || !strcmp(key, "type") || !strcmp(key, "sandbox") ||
			!strcmp(key, "seq"))
			continue;
		_cleanup_free_ char *text =
			json_is_string(m) ? strdup(json_string_value(m)) : json_text(m);
		if (!text)
			text = json_dumps(m, JSON_ENCODE_ANY);
		put_text(key);
		putchar('=');
		put_text(text ? text : "");
		putchar(' ');
	}
	putchar('\n');
}

static void show_events(json_t *v)
{
	json_t *event;
	size_t i;

	json_array_foreach (json_object_get(v, "events"), i, event)
		put_event(event);
}

int cmd_event_ls(struct cli *c)
{
	return ask_show(
		c, "GET", sbx_path("/v1/sandboxes/%s/events", c->pos[0]), NULL, show_events);
}

struct watch {
	struct cli *c;
	char id[SBX_ID_MAX]; /* "": all */
	long long seq;       /* the last that was seen */
};

static bool on_event(void *arg, const char *text, size_t len)
{
	struct watch *w = arg;
	_cleanup_json_ json_t *line = NULL;
	json_t *v;
	const char *of;

	if (json_parse_any(text, len, 1 << 20, &line, NULL) < 0)
		return false;
	if (json_is_true(json_object_get(line, "lost")))
		complain(0, "earlier events are no longer kept");
	v = json_object_get(line, "event");
	if (json_is_integer(json_object_get(line, "seq")))
		w->seq = json_integer_value(json_object_get(line, "seq"));
	of = json_string_value(json_object_get(v, "sandbox"));
	if (!json_object_get(v, "type") || (w->id[0] && (!of || strcmp(of, w->id) != 0)))
		return true; /* a heartbeat, or another sandbox's */
	if (w->c->json)
		put_json(text, len);
	else
		put_event(v);
	return fflush(stdout) == 0;
}

static int ask_log(struct watch *w, bool follow, bool after, struct sbx_error *e)
{
	struct lines l = { .line = on_event, .arg = w };
	char *path = after ? sbx_path(follow ? "/v1/events?follow=1&after=%lld" :
					       "/v1/events?after=%lld", w->seq)
			   : strdup(follow ? "/v1/events?follow=1" : "/v1/events");

	return ask_lines(w->c, path, &l, e);
}

/* The server's own log, of all sandboxes; what is not of the named one is left out here. */
static int logged_events(struct cli *c, bool follow)
{
	struct watch w = { .c = c };
	const char *after = opt_get(c, OPT_AFTER);
	bool any = after;
	int r;
	long long seq = after ? number_of(after, INT64_MAX / 2, "--after") : 0;
	struct sbx_sandbox box;
	struct sbx_error e;

	if (seq < 0)
		return EXIT_USAGE;
	if (c->n_pos) {
		if (sbx_get(c->s, c->pos[0], &box, &e) < 0)
			return fail(&e);
		snprintf(w.id, sizeof(w.id), "%s", box.id);
	}
	w.seq = seq;
	do {
		r = ask_log(&w, follow, any, &e);
		any = any || w.seq > 0;
	} while (r < 0 && follow && any && !ferror(stdout) && server_came_back(c, &e));
	return r < 0 ? fail(&e) : 0;
}

int cmd_event_follow(struct cli *c)
{
	return logged_events(c, true);
}

int cmd_events(struct cli *c)
{
	if (opt_has(c, OPT_FOLLOW) || opt_has(c, OPT_AFTER) || !c->n_pos)
		return logged_events(c, opt_has(c, OPT_FOLLOW));
	return cmd_event_ls(c);
}
