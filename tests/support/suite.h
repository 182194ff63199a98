/* SPDX-License-Identifier: MIT */
/* The main of a program whose rows share one server. */
#ifndef TESTS_SUPPORT_SUITE_H
#define TESTS_SUPPORT_SUITE_H

#include "tests/support/rig.h"
#include "tests/support/test.h"

/* Runs the array `tests` with *ret_rig as its server, made from conf (NULL: the fake backend), and, when
 * ret_id is not NULL, one sandbox in it. T=pattern selects rows. Where the linux backend cannot run all is
 * skipped, saying so. Gives the program's exit status. */
#define run_suite(tests, conf, ret_rig, ret_id)                                                    \
	suite_run(#tests, (tests), ARRAY_LEN(tests), (conf), (ret_rig), (ret_id))
int suite_run(const char *name, const struct CMUnitTest *tests, size_t n,
	const struct rig_conf *conf, struct rig **ret_rig, const char **ret_id);

#endif
