/* SPDX-License-Identifier: MIT */
/* cmocka with its headers in the order it needs, and the main of a table-driven program: T=pattern
 * selects tests by name. */
#ifndef TESTS_SUPPORT_TEST_H
#define TESTS_SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/sys/mem.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Runs an array of struct CMUnitTest. */
#define run_table(tests)                              \
	(cmocka_set_test_filter(getenv("T")),         \
	 cmocka_run_group_tests((tests), NULL, NULL))

#endif
