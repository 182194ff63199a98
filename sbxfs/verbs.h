/* SPDX-License-Identifier: MIT */
/* Control files: words written a line at a time, each a row of a table. */
#ifndef SBXFS_VERBS_H
#define SBXFS_VERBS_H

#include "sbxfs/nodes.h"

struct verb {
	const char *word;
	unsigned args_min, args_max;
	int (*run)(struct req *q, const struct spot *s, char **args, unsigned n);
	const char *help; /* NULL: not shown */
	enum cap cap;     /* shown where the server has it */
};
extern const struct verb root_verbs[], box_verbs[], proc_verbs[], port_verbs[], image_verbs[];
/* Splits one line and runs its row. */
int verb_run(struct req *q, const struct spot *s, const struct verb *table, const char *line);

#endif
