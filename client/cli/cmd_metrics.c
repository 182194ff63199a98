/* SPDX-License-Identifier: MIT */
/* What a sandbox uses. The server samples by its own clock; following looks once a second for what
 * is new, which does not keep the sandbox awake. */
#include "client/cli/cmds.h"

#include "common/sys/mem.h"

#include <string.h>

#define LOOK_MS 1000

static char *show_percent(json_t *row, const char *key)
{
	char *out;

	return asprintf(&out, "%.1f", json_number_value(json_object_get(row, key))) < 0 ? NULL
											: out;
}

static const struct column cols[] = {
	{ "TIME", "time", NULL },
	{ "CPU%", "cpu_percent", show_percent },
	{ "MEMORY", "memory_bytes", show_bytes },
	{ "LIMIT", "memory_limit_bytes", show_bytes },
	{ "NET IN", "net_rx_bytes", show_bytes },
	{ "NET OUT", "net_tx_bytes", show_bytes },
	{ "READ", "disk_read_bytes", show_bytes },
	{ "WRITTEN", "disk_write_bytes", show_bytes },
	{ "PROCESSES", "processes", NULL },
};

static void show_latest(json_t *v)
{
	_cleanup_json_ json_t *one = json_array();
	json_t *samples = json_object_get(v, "samples");
	size_t n = json_array_size(samples);

	if (n)
		json_array_append(one, json_array_get(samples, n - 1));
	put_table(one, cols, ARRAY_LEN(cols));
}

/* Rows come one by one, so the columns' widths are fixed. */
static void put_row(json_t *sample)
{
	for (size_t i = 0; i < ARRAY_LEN(cols); i++) {
		_cleanup_free_ char *text =
			sample ? (cols[i].show ? cols[i].show : show_value)(sample, cols[i].key)
			       : strdup(cols[i].title);
		int room = i == 0 ? 32 : i + 1 < ARRAY_LEN(cols) ? 9 : 0;
		put_padded(text && *text ? text : "-", (size_t)room);
	}
	putchar('\n');
}

static void put_sample(struct cli *c, json_t *sample)
{
	if (c->json) {
		_cleanup_free_ char *text = json_text(sample);
		puts(text ? text : "{}");
	} else {
		put_row(sample);
	}
}

/* Samples behind the time `last`, which moves on. Times of one server compare as text. */
static void put_new(struct cli *c, json_t *samples, char *last, size_t size)
{
	json_t *v;
	size_t i;

	json_array_foreach (samples, i, v) {
		const char *time = json_string_value(json_object_get(v, "time"));
		if (!time || strcmp(time, last) <= 0)
			continue;
		/* The first look shows the newest alone. */
		if (last[0] || i + 1 == json_array_size(samples))
			put_sample(c, v);
		if (last[0] || i + 1 == json_array_size(samples))
			snprintf(last, size, "%s", time);
	}
}

static int follow(struct cli *c)
{
	struct sbx_sandbox box;
	char last[64] = "";
	struct sbx_error e;
	bool begun = c->json;

	for (;;) {
		_cleanup_json_ json_t *v = NULL;
		/* Its state first, so that the last samples of one that ended are still shown. */
		if (sbx_get(c->s, c->pos[0], &box, &e) < 0)
			return fail(&e);
		if (ask_json(c, "GET", sbx_path("/v1/sandboxes/%s/metrics", box.id), NULL, &v) < 0)
			return 1;
		if (!begun)
			put_row(NULL);
		begun = true;
		put_new(c, json_object_get(v, "samples"), last, sizeof(last));
		if (!strcmp(box.state, "terminated"))
			return 0;
		if (fflush(stdout) != 0)
			return 1;
		ask_pause(LOOK_MS);
	}
}

int cmd_metrics(struct cli *c)
{
	if (opt_has(c, OPT_FOLLOW))
		return follow(c);
	return ask_show(
		c, "GET", sbx_path("/v1/sandboxes/%s/metrics", c->pos[0]), NULL, show_latest);
}
