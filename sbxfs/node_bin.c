/* SPDX-License-Identifier: MIT */
/* Programs in the tree: bin/PROGRAM hands the call to sbx, exec does the same with sh alone. */
#include "sbxfs/nodes_fn.h"
#include "sbxfs/remote.h"
#include "sbxfs/treefs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const path_dirs[] = { "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin",
	"/sbin", "/bin" };

static int bin_find(struct req *q, const struct spot *d, const char *name, struct found *ret)
{
	(void)q;
	return found_set(ret, N_BOX_PROGRAM, d->box, name);
}

struct names {
	struct lister *l;
	const char *box;
};

static int bin_entry(void *arg, const char *name, struct tree_attr *attr)
{
	struct names *x = arg;

	if (!S_ISDIR(attr->st.st_mode))
		lister_add(x->l, name, N_BOX_PROGRAM, x->box);
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct listed *)a)->name, ((const struct listed *)b)->name);
}

static void drop_doubles(struct lister *l)
{
	size_t out = 0;

	if (l->n)
		qsort(l->v, l->n, sizeof(l->v[0]), by_name);
	for (size_t n = 0; n < l->n; n++) {
		if (out && !strcmp(l->v[out - 1].name, l->v[n].name))
			free(l->v[n].name);
		else
			l->v[out++] = l->v[n];
	}
	l->n = out;
}

static int bin_list(struct req *q, const struct spot *d, struct lister *l)
{
	struct names x = { .l = l, .box = d->box };

	for (size_t n = 0; n < sizeof(path_dirs) / sizeof(path_dirs[0]); n++) {
		int rc = wire_list(q, d->box, path_dirs[n], bin_entry, &x, NULL);

		/* Not every image has all of them. */
		if (rc < 0 && rc != -ENOENT && rc != -ENOTDIR && rc != -EINVAL)
			return rc;
	}
	drop_doubles(l);
	return 0;
}

const struct dir dir_bin = { .id = N_BOX_BIN, .find = bin_find, .list = bin_list };

int read_program(struct req *q, const struct spot *s, struct text *t)
{
	txt_printf(t, "#!%s --bin\n# sbx %s %s\n", q->m->opt.sbx, sbx_endpoint(q->m->sbx), s->box);
	return 0;
}

static const char exec_text[] =
	"#!/bin/sh\n"
	"# exec CMD ARG...: runs CMD in this sandbox with these arguments, this input and these\n"
	"# outputs; ends with its exit code. Inside fs/ the directory you are in is the command's.\n"
	"[ $# -gt 0 ] || { echo 'usage: exec CMD ARG...' >&2; exit 125; }\n"
	"box=$(cd -P \"$(dirname \"$0\")\" && pwd -P) || exit 125\n"
	"here=$(pwd -P 2>/dev/null)\n"
	"p=$box/processes/exec-$$\n"
	"mkdir \"$p\" || exit 125\n"
	"trap 'rmdir \"$p\" 2>/dev/null' EXIT\n"
	"case $here/ in \"$box\"/fs/*) d=${here#\"$box\"/fs}\n"
	"\t( printf '%s\\n' \"${d:-/}\" > \"$p/cwd\" ) 2>/dev/null || { cat \"$box/error\" >&2; exit 125; } ;; esac\n"
	"printf '%s\\0' \"$@\" > \"$p/argv\"\n"
	"( echo start > \"$p/ctl\" ) 2>/dev/null || { cat \"$box/error\" >&2; exit 127; }\n"
	"for s in INT TERM HUP; do trap \"echo $s > \\\"\\$p/ctl\\\"\" $s; done\n"
	"exec 3<&0\n"
	"{ cat <&3 > \"$p/stdin\"; echo eof > \"$p/ctl\"; } 2>/dev/null & in=$!\n"
	"cat \"$p/stderr.follow\" 3<&- >&2 & e=$!\n"
	"cat \"$p/stdout.follow\" 3<&- & o=$!\n"
	"ended() { while kill -0 $1 2>/dev/null; do wait $1; done; wait $1; }\n"
	"ended $o; [ $? -lt 128 ] || ( echo HUP > \"$p/ctl\" ) 2>/dev/null\n"
	"ended $e\n"
	"code=$(cat \"$p/wait\")\n"
	"kill $in 2>/dev/null\n"
	"exit $((code & 255))\n";

int read_exec(struct req *q, const struct spot *s, struct text *t)
{
	(void)q;
	(void)s;
	txt_add(t, exec_text, sizeof(exec_text) - 1);
	return 0;
}
