/* SPDX-License-Identifier: MIT */
/* Control files: one table a file, read as help, written as commands. */
#include "sbxfs/verbs.h"

#include "sbxfs/nodes_fn.h"
#include "sbxfs/remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 8

static const struct verb *table_of(enum node_id id)
{
	static const struct {
		enum node_id id;
		const struct verb *table;
	} rows[] = { { N_ROOT_CTL, root_verbs }, { N_BOX_CTL, box_verbs }, { N_PROC_CTL, proc_verbs },
		{ N_PORT_CTL, port_verbs }, { N_IMAGE_CTL, image_verbs } };

	for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++)
		if (rows[n].id == id)
			return rows[n].table;
	return NULL;
}

int read_verbs(struct req *q, const struct spot *s, struct text *t)
{
	const struct verb *v = table_of(s->node->id);

	if (!v)
		txt_str(t, "write a command line for sh; the write returns when it has ended. "
			"See last/ for its output and exit code\n");
	for (; v && v->word; v++)
		if (v->help && remote_has(q, v->cap))
			txt_printf(t, "%-14s %s\n", v->word, v->help);
	return 0;
}

static int unknown(struct req *q, const struct verb *table, const char *word)
{
	_cleanup_text_ struct text words = TEXT_NULL;

	for (; table->word; table++)
		if (table->help && remote_has(q, table->cap))
			txt_printf(&words, "%s%s", words.len ? ", " : "", table->word);
	return refuse(q, EINVAL, "%.60s is not a verb here; these are: %s", word,
		words.p ? words.p : "");
}

static int miscounted(struct req *q, const struct verb *v)
{
	if (!v->args_max)
		return refuse(q, EINVAL, "%s stands alone: no word behind it", v->word);
	if (v->args_min == v->args_max)
		return refuse(q, EINVAL, "%s needs %u word%s behind it", v->word, v->args_min,
			v->args_min == 1 ? "" : "s");
	return refuse(q, EINVAL, "%s takes %u to %u words behind it", v->word, v->args_min,
		v->args_max);
}

int verb_run(struct req *q, const struct spot *s, const struct verb *table, const char *line)
{
	char *copy = strdup(line), *at = copy, *word, *words[WORDS_MAX + 1];
	unsigned n = 0;
	int rc = 0;

	if (!copy)
		return -ENOMEM;
	while (n <= WORDS_MAX && (word = strsep(&at, " \t")))
		if (*word)
			words[n++] = word;
	if (n) {
		const struct verb *v = table;

		while (v->word && strcmp(v->word, words[0]))
			v++;
		if (!v->word)
			rc = unknown(q, table, words[0]);
		else if (n - 1 < v->args_min || n - 1 > v->args_max)
			rc = miscounted(q, v);
		else
			rc = v->run(q, s, words + 1, n - 1);
	}
	free(copy);
	return rc;
}

int apply_root_ctl(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	(void)len;
	(void)append;
	return verb_run(q, s, root_verbs, value);
}

int apply_box_ctl(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	(void)len;
	(void)append;
	return verb_run(q, s, box_verbs, value);
}

int apply_proc_ctl(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	(void)len;
	(void)append;
	return verb_run(q, s, proc_verbs, value);
}
