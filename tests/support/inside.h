/* SPDX-License-Identifier: MIT */
/* Attacks from inside as tables: a static program is put into a sandbox and prints one line for
 * each attempt, "name how-it-ended"; a row says which ends are right. One row, one test. */
#ifndef TESTS_SUPPORT_INSIDE_H
#define TESTS_SUPPORT_INSIDE_H

#include "tests/support/linux_rig.h"
#include "tests/support/test.h"

/* want: the answers that are right, between bars */
struct inside_row {
	const char *name, *want;
};
struct inside_plan {
	const char *title;
	const char *broker;  /* folder below tests/linux; NULL: the product's */
	const char *program; /* below tests of the build folder */
	bool as_root;        /* that broker starts guest processes as guest root */
	const struct inside_row *rows;
	size_t nrows;
	const struct CMUnitTest *more; /* NULL: none; they find the rig by inside_rig */
	size_t nmore;
};
/* For `more`: the rig of the plan that runs, and its program as ./attack of a sandbox's home. */
struct linux_rig *inside_rig(void);
void inside_put(struct box *b);
/* Runs the plans one after the other; how many tests failed. Skipped with a reason where not root.
 */
int inside_run(const struct inside_plan *plans, size_t n);

#endif
