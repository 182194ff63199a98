/* SPDX-License-Identifier: MIT */
/* Snapshots, what is forked from them, and their schedule. */
#include "client/cli/cmds.h"

#include "common/sys/mem.h"

#include <signal.h>
#include <string.h>

static void show_id(json_t *v)
{
	const char *id = json_string_value(json_object_get(v, "id"));

	put_text(id ? id : "");
	putchar('\n');
}

int cmd_snapshot_take(struct cli *c)
{
	return ask_show(
		c, "POST", sbx_path("/v1/sandboxes/%s/snapshots", c->pos[0]), NULL, show_id);
}

static void show_snapshots(json_t *list)
{
	static const struct column cols[] = {
		{ "ID", "id", NULL },
		{ "SANDBOX", "sandbox", NULL },
		{ "IMAGE", "image", NULL },
		{ "KIND", "kind", NULL },
		{ "SIZE", "bytes", show_bytes },
		{ "SCHEDULED", "scheduled", NULL },
		{ "AGE", "created_at", show_age },
	};

	put_table(list, cols, ARRAY_LEN(cols));
}

/* Those of one sandbox. One that the server has forgotten is still named by its id. */
static int keep_of(struct cli *c, const char *ref, json_t *list)
{
	struct sbx_sandbox box;
	struct sbx_error e;
	size_t i = 0;

	if (sbx_get(c->s, ref, &box, &e) < 0) {
		if (e.status != 404 || strncmp(ref, "sbx_", 4) != 0)
			return fail(&e);
		snprintf(box.id, sizeof(box.id), "%s", ref);
	}
	while (i < json_array_size(list)) {
		const char *of =
			json_string_value(json_object_get(json_array_get(list, i), "sandbox"));
		if (of && !strcmp(of, box.id))
			i++;
		else
			json_array_remove(list, i);
	}
	return 0;
}

int cmd_snapshot_ls(struct cli *c)
{
	_cleanup_json_ json_t *v = NULL;
	json_t *list;

	if (c->json && !c->n_pos)
		return ask_show(c, "GET", strdup("/v1/snapshots"), NULL, NULL);
	if (ask_json(c, "GET", strdup("/v1/snapshots"), NULL, &v) < 0)
		return 1;
	list = json_object_get(v, "snapshots");
	if (c->n_pos && keep_of(c, c->pos[0], list) != 0)
		return 1;
	if (c->json) {
		_cleanup_free_ char *text = json_text(v);
		puts(text ? text : "{}");
	} else if (opt_has(c, OPT_QUIET)) {
		put_names(list, "id");
	} else {
		show_snapshots(list);
	}
	return 0;
}

int cmd_snapshot_rm(struct cli *c)
{
	return ask_each(c, "DELETE", "/v1/snapshots/%s", NULL);
}

static bool is_snapshot(const char *ref)
{
	return !strncmp(ref, "snp_", 4); /* no name of a sandbox has an underscore */
}

/* What would end us waits while there is something that only we know of. */
static void hold_signals(sigset_t *old)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, old);
}

static bool signal_waits(void *arg)
{
	sigset_t set;

	(void)arg;
	return sigpending(&set) == 0 &&
	       (sigismember(&set, SIGINT) == 1 || sigismember(&set, SIGTERM) == 1 ||
		       sigismember(&set, SIGHUP) == 1);
}

/* A fork of a sandbox as it is now takes a snapshot for itself alone, and does not leave it behind.
 */
int cmd_fork(struct cli *c)
{
	json_t *spec = spec_request(c);
	struct sbx_snapshot own = { .id = "" };
	const char *id = c->pos[0];
	struct sbx_error e;
	sigset_t old;
	int code;

	if (!spec)
		return EXIT_USAGE;
	if (c->n_pos > 1 && spec_name(spec, c->pos[1]) < 0)
		return EXIT_USAGE;
	sigprocmask(SIG_SETMASK, NULL, &old);
	if (!is_snapshot(id)) {
		hold_signals(&old);
		c->cancelled = signal_waits;
		if (sbx_snapshot_take(c->s, id, &own, &e) < 0) {
			json_decref(spec);
			return fail(&e);
		}
		id = own.id;
	}
	json_object_set_new(spec, "snapshot_id", json_string(id));
	code = ask_show(c, "POST", strdup("/v1/sandboxes"), spec, put_ref);
	if (own.id[0] && sbx_snapshot_delete(c->s, own.id, &e) < 0)
		complain(0, "the snapshot %s stays: %s", own.id, e.message);
	sigprocmask(SIG_SETMASK, &old, NULL);
	return code;
}

static void show_schedule(json_t *box)
{
	json_t *every = json_object_get(box, "snapshot_every_secs");
	json_t *keep = json_object_get(box, "snapshot_keep");

	if (!every)
		puts("no schedule");
	else
		printf("every %lld seconds, the newest %lld stay\n",
			(long long)json_integer_value(every), (long long)json_integer_value(keep));
}

int cmd_schedule(struct cli *c)
{
	const char *every = opt_get(c, OPT_EVERY), *keep = opt_get(c, OPT_KEEP);
	long long n_every = every ? number_of(every, INT64_MAX / 2, "--every") : 0;
	long long n_keep = keep ? number_of(keep, INT64_MAX / 2, "--keep") : 0;

	if (n_every < 0 || n_keep < 0)
		return EXIT_USAGE;
	if (!every && keep)
		return complain(EXIT_USAGE, "--keep needs --every");
	if (!every)
		return ask_show(
			c, "GET", sbx_path("/v1/sandboxes/%s", c->pos[0]), NULL, show_schedule);
	return ask_show(c, "PUT", sbx_path("/v1/sandboxes/%s/snapshot-schedule", c->pos[0]),
		json_pack(
			"{s:I,s:I}", "every_secs", (json_int_t)n_every, "keep", (json_int_t)n_keep),
		show_schedule);
}
