/* SPDX-License-Identifier: MIT */
/* What people write into files of the mount: control lines, numbers, lists, environments. The
 * mount's own parsers are compiled in here; the verbs behind them only look at their words. */
#include "sbxfs/text.c"
#include "sbxfs/value.c"
#include "sbxfs/verbs.c"

#include "tests/fuzz/fuzz.h"

int refuse(struct req *q, int sys, const char *fmt, ...)
{
	(void)q;
	promise(sys > 0 && *fmt);
	return -sys;
}

bool remote_has(struct req *q, enum cap c)
{
	(void)q;
	return c == CAP_NONE;
}

static int look_at_words(struct req *q, const struct spot *s, char **args, unsigned n)
{
	(void)q;
	(void)s;
	promise(n <= WORDS_MAX);
	for (unsigned i = 0; i < n; i++)
		promise(args[i][0] && !strpbrk(args[i], " \t"));
	return 0;
}

const struct verb root_verbs[] = {
	{ "end", 0, 0, look_at_words, "", CAP_NONE },
	{ "name", 1, 2, look_at_words, "", CAP_NONE },
	{ "many", 0, 8, look_at_words, "", CAP_NONE },
	{ .word = NULL },
};
const struct verb box_verbs[] = { { .word = NULL } }, proc_verbs[] = { { .word = NULL } },
		  port_verbs[] = { { .word = NULL } }, image_verbs[] = { { .word = NULL } };

static void control(const char *text)
{
	int rc = verb_run(NULL, NULL, root_verbs, text);

	promise(rc == 0 || rc == -EINVAL || rc == -ENOMEM);
}

static void values(const char *p, size_t len)
{
	_cleanup_text_ struct text shown = TEXT_NULL;
	json_t *list = NULL, *object = json_object();
	int64_t n = 0;

	if (value_int(NULL, "n", p, len, -5, 1000, &n) == 0)
		promise(n >= -5 && n <= 1000);
	if (value_lines(NULL, p, len, &list) == 0) {
		value_text(&shown, list);
		for (size_t i = 0; i < shown.len; i++)
			promise((unsigned char)shown.p[i] >= 0x20 || shown.p[i] == '\n');
		json_decref(list);
	}
	if (value_env(NULL, p, len, object) == 0)
		value_keys(&shown, object);
	json_decref(object);
}

int fuzz_control(const uint8_t *data, size_t size)
{
	char *text = supply_text(data, size), *line;

	control(text);
	values(text, size);
	line = value_line(text, size);
	promise(!line || strlen(line) <= size);
	free(line);
	free(text);
	return 0;
}
