/* SPDX-License-Identifier: MIT */
#include "sandboxd/options.h"

#include "common/base/log.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { KIND_STR, KIND_LIST, KIND_INT, KIND_NUM, KIND_FLAG };

static const struct row {
	const char *flag, *arg, *help;
	enum kind kind;
	size_t offset;
} rows[] = {
#define O(member, flag, kind, arg, help)                                                           \
	{ flag, arg, help, KIND_##kind, offsetof(struct options, member) },
#include "sandboxd/options.def"
#undef O
};
#define NROWS ARRAY_LEN(rows)

static int add_to_list(struct strlist *l, char *value, struct err *e)
{
	char **v = realloc(l->v, (l->n + 2) * sizeof(*v));

	if (!v)
		return err_sys(e, ENOMEM, "command line");
	l->v = v;
	l->v[l->n++] = value;
	l->v[l->n] = NULL;
	return 0;
}

static int set_int(const struct row *r, int64_t *out, const char *value, struct err *e)
{
	char *end;

	errno = 0;
	*out = strtoll(value, &end, 10);
	if (errno || !*value || *end || *out < 1)
		return err_set(
			e, ERR_INVALID_REQUEST, "--%s: a whole number above 0 is needed", r->flag);
	return 0;
}

static int set_num(const struct row *r, double *out, const char *value, struct err *e)
{
	char *end;

	*out = strtod(value, &end);
	if (!*value || *end || !isfinite(*out) || *out <= 0)
		return err_set(e, ERR_INVALID_REQUEST, "--%s: a number above 0 is needed", r->flag);
	return 0;
}

static int set(const struct row *r, struct options *o, char *value, struct err *e)
{
	void *at = (char *)o + r->offset;

	switch (r->kind) {
	case KIND_STR:
		*(char **)at = value;
		return 0;
	case KIND_LIST:
		return add_to_list(at, value, e);
	case KIND_INT:
		return set_int(r, at, value, e);
	case KIND_NUM:
		return set_num(r, at, value, e);
	case KIND_FLAG:
		*(bool *)at = true;
		return 0;
	}
	return 0;
}

int options_parse(int argc, char **argv, struct options *ret, struct err *e)
{
	struct option longs[NROWS + 1] = { 0 };
	struct options o = { 0 };
	int i = 0, c;

	for (size_t k = 0; k < NROWS; k++)
		longs[k] = (struct option){ rows[k].flag,
			rows[k].kind == KIND_FLAG ? no_argument : required_argument, NULL, 0 };
	optind = 0;
	opterr = 0;
	while ((c = getopt_long(argc, argv, ":", longs, &i)) == 0) {
		if (set(&rows[i], &o, optarg, e) < 0) {
			options_free(&o);
			return -1;
		}
	}
	if (c != -1 || optind < argc) {
		char safe[128];
		const char *word = argv[c != -1 && optind > 1 ? optind - 1 : optind];

		options_free(&o);
		return err_set(e, ERR_INVALID_REQUEST,
			c == ':'  ? "%s: a value is missing"
			: c == -1 ? "%s: not understood; sandboxd takes flags only"
				  : "%s: unknown flag; see --help",
			log_quote(word, safe, sizeof(safe)));
	}
	*ret = o;
	return 0;
}

void options_free(struct options *o)
{
	for (size_t k = 0; k < NROWS; k++)
		if (rows[k].kind == KIND_LIST)
			free(((struct strlist *)(void *)((char *)o + rows[k].offset))->v);
	*o = (struct options){ 0 };
}

void options_usage(void)
{
	puts("usage: sandboxd [flags]");
	for (size_t k = 0; k < NROWS; k++) {
		char head[64];

		snprintf(head, sizeof(head), "--%s%s%s", rows[k].flag, rows[k].arg ? " " : "",
			rows[k].arg ? rows[k].arg : "");
		printf("  %-30s %s\n", head, rows[k].help);
	}
}
