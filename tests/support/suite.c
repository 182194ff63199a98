/* SPDX-License-Identifier: MIT */
#include "tests/support/suite.h"

/* One a program: the library hands nothing to a group's set-up. */
static struct {
	const struct rig_conf *conf;
	struct rig **rig;
	const char **id;
} suite;

static int start(void **state)
{
	(void)state;
	*suite.rig = rig_new(suite.conf);
	if (suite.id)
		*suite.id = rig_sandbox(*suite.rig, NULL);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	rig_free(*suite.rig);
	return 0;
}

int suite_run(const char *name, const struct CMUnitTest *tests, size_t n,
	const struct rig_conf *conf, struct rig **ret_rig, const char **ret_id)
{
	const char *missing = conf && conf->linux_backend ? rig_linux_missing() : NULL;

	if (missing) {
		printf("ok 1 - all # SKIP %s\n", missing);
		return 0;
	}
	suite.conf = conf;
	suite.rig = ret_rig;
	suite.id = ret_id;
	cmocka_set_test_filter(getenv("T"));
	return _cmocka_run_group_tests(name, tests, n, start, stop);
}
