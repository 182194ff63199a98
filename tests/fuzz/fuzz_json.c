/* SPDX-License-Identifier: MIT */
/* Request bodies: the first byte picks a field table, the rest is the text. What decodes must also
 * free, and error messages must be text. */
#include "tests/fuzz/fuzz.h"

#include "common/api/ids.h"
#include "common/api/types.h"
#include "common/json/json.h"

static const struct {
	const struct field *fields;
	size_t size;
} json_tables[] = {
	{ create_fields, sizeof(struct create_body) },
	{ update_fields, sizeof(struct update_body) },
	{ process_fields, sizeof(struct process_body) },
	{ signal_fields, sizeof(struct signal_body) },
	{ cordon_fields, sizeof(struct cordon_body) },
	{ schedule_fields, sizeof(struct schedule_body) },
	{ volume_fields, sizeof(struct volume_body) },
	{ image_fields, sizeof(struct image_body) },
	{ fs_stat_fields, sizeof(struct fs_stat_body) },
	{ fs_open_fields, sizeof(struct fs_open_body) },
	{ fs_sync_fields, sizeof(struct fs_sync_body) },
	{ fs_lock_fields, sizeof(struct fs_lock_body) },
	{ fs_ops_fields, sizeof(struct fs_ops_body) },
};

static void check_refusal(const struct err *e)
{
	promise(e->code != ERR_NONE);
	promise(e->msg[0] && memchr(e->msg, 0, sizeof(e->msg)));
}

int fuzz_json(const uint8_t *data, size_t size)
{
	union {
		struct create_body create;
		struct update_body update;
		struct process_body process;
		struct fs_open_body open;
		char room[1024];
	} body;
	struct err e = ERR_NULL;
	json_t *o = NULL;
	size_t t;

	if (size == 0)
		return 0;
	t = data[0] % (sizeof(json_tables) / sizeof(json_tables[0]));
	if (json_parse_object((const char *)data + 1, size - 1, &o, &e) < 0) {
		check_refusal(&e);
		return 0;
	}
	memset(&body, 0, sizeof(body));
	promise(json_tables[t].size <= sizeof(body));
	if (schema_decode(json_tables[t].fields, o, &body, &e) == 0)
		schema_free(json_tables[t].fields, &body);
	else
		check_refusal(&e);
	/* What was parsed can be written and parsed again. */
	char *text = json_text(o);
	json_t *again = NULL;
	promise(text && (strlen(text) > JSON_BODY_MAX ||
				json_parse_object(text, strlen(text), &again, NULL) == 0));
	promise(!again || json_equal(o, again));
	free(text);
	json_decref(again);
	json_decref(o);
	return 0;
}
