/* SPDX-License-Identifier: MIT */
/* The policy file: what is absent is built in, what contradicts itself prevents the start. */
#include "tests/support/test.h"

#include "sandboxd/core/core.h"

#include <unistd.h>

static int load(const char *text, struct server_policy *p, struct err *e)
{
	char path[] = "/tmp/policy-XXXXXX";
	int fd = mkstemp(path), rc;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	rc = server_policy_load(path, p, e);
	unlink(path);
	return rc;
}

static void without_a_file_everything_is_built_in(void **state)
{
	struct server_policy p;

	(void)state;
	assert_int_equal(server_policy_load(NULL, &p, NULL), 0);
	assert_string_equal(p.default_image, "base");
	assert_false(p.has_images);
	assert_true(p.limits.max_cpus == 8);
	assert_int_equal(p.limits.max_memory_mb, 16384);
	assert_int_equal(p.limits.max_disk_mb, 102400);
	assert_int_equal(p.limits.max_idle_timeout_secs, 604800);
	assert_int_equal(p.limits.max_lifetime_secs, 0);
	assert_int_equal(p.limits.default_memory_mb, 1024);
	assert_int_equal(p.limits.default_disk_mb, 10240);
	assert_int_equal(p.limits.default_idle_timeout_secs, 1800);
	assert_int_equal(p.net_default.mode, NET_OPEN);
	assert_int_equal(p.net_ceiling, NET_OPEN);
	assert_int_equal(p.may_allow.n, 1);
	server_policy_free(&p);
}

static const char *const refused[] = {
	"{\"unknown\":1}",
	"{\"limits\":{\"max_cpu\":1}}",
	"{\"limits\":{\"max_cpus\":0}}",
	"{\"limits\":{\"max_cpus\":-1}}",
	"{\"limits\":{\"max_memory_mb\":0}}",
	"{\"limits\":{\"max_disk_mb\":\"1\"}}",
	"{\"limits\":{\"min_snapshot_every_secs\":0}}",
	"{\"limits\":{\"max_snapshot_keep\":-1}}",
	"{\"limits\":{\"max_memory_mb\":512}}",
	"{\"limits\":{\"max_idle_timeout_secs\":60}}",
	"{\"defaults\":{\"cpus\":9}}",
	"{\"defaults\":{\"cpus\":0}}",
	"{\"defaults\":{\"idle_timeout_secs\":0}}",
	"{\"defaults\":{\"idle_timeout_secs\":604801}}",
	"{\"default_image\":\"-x\"}",
	"{\"images\":[\"a\"],\"default_image\":\"b\"}",
	"{\"images\":[\"a\"]}",
	"{\"images\":[\"a b\"]}",
	"{\"limits\":{\"max_lifetime_secs\":2147483648}}",
	"{\"limits\":{\"max_lifetime_secs\":9223372036854775807}}",
	"{\"limits\":{\"min_snapshot_every_secs\":9223372036854775807}}",
	"{\"limits\":{\"min_metrics_export_secs\":9223372036854775807}}",
	"{\"limits\":{\"max_memory_mb\":9223372036854775807}}",
	"{\"limits\":{\"max_disk_mb\":1099511627777}}",
	"{\"limits\":{\"max_cpus\":1e300}}",
	"{\"network\":{\"ceiling\":\"none\"}}",
	"{\"network\":{\"ceiling\":\"maybe\"}}",
	"{\"network\":{\"default\":{\"mode\":\"open\"},\"ceiling\":\"allowlist\"}}",
	"{\"network\":{\"default\":{\"mode\":\"open\",\"allow\":[\"a.dev\"]}}}",
	"{\"network\":{\"default\":{\"mode\":\"allowlist\",\"allow\":[]}}}",
	"{\"network\":{\"default\":{\"mode\":\"allowlist\",\"allow\":[\"http://a.dev\"]}}}",
	"{\"network\":{\"default\":{\"mode\":\"none\",\"deny\":[\"10.0.0.1\"]}}}",
	"{\"network\":{\"may_allow\":[\"a b\"]}}",
	"{\"network\":{\"groups\":[]}}",
	"{\"pools\":[{\"size\":0}]}",
	"{\"pools\":[{\"size\":33}]}",
	"{\"pools\":[{}]}",
	"{\"pools\":[{\"size\":1},{\"image\":\"base\",\"size\":1}]}",
	"{\"images\":[\"base\"],\"pools\":[{\"image\":\"x\",\"size\":1}]}",
	"{} {}",
	"[1]",
	"{\"default_image\":\"a\",\"default_image\":\"b\"}",
	"{",
};

static void a_file_that_is_wrong_prevents_the_start(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
		struct err e = ERR_NULL;
		struct server_policy p;
		if (load(refused[i], &p, &e) == 0)
			fail_msg("accepted: %s", refused[i]);
		assert_non_null(strstr(e.msg, "policy file"));
		assert_null(p.default_image);
	}
}

static void a_good_file_is_taken_and_normalised(void **state)
{
	struct server_policy p;
	struct err e = ERR_NULL;

	(void)state;
	if (load("{\"default_image\":\"debian:12\",\"images\":[\"debian:12\",\"base\"],"
		 "\"defaults\":{\"cpus\":0.5,\"idle_timeout_secs\":60},"
		 "\"limits\":{\"max_cpus\":2,\"max_idle_timeout_secs\":600,\"max_lifetime_secs\":7200},"
		 "\"network\":{\"default\":{\"mode\":\"allowlist\",\"allow\":[\"PyPI.org.\",\"pypi.org\"],"
		 "\"deny\":[\"X.dev\"]},\"ceiling\":\"allowlist\",\"may_allow\":[\"*.Example.com\"]}}",
		    &p, &e) < 0)
		fail_msg("%s", e.msg);
	assert_string_equal(p.default_image, "debian:12");
	assert_int_equal(p.images.n, 2);
	assert_true(p.limits.default_cpus == 0.5);
	assert_int_equal(p.limits.max_lifetime_secs, 7200);
	assert_int_equal(p.net_default.allow.n, 1);
	assert_string_equal(p.net_default.allow.v[0], "pypi.org");
	assert_string_equal(p.net_default.deny.v[0], "x.dev");
	assert_string_equal(p.may_allow.v[0], "*.example.com");
	server_policy_free(&p);
}

static void pools_are_taken_as_they_are_written(void **state)
{
	struct server_policy p;
	struct err e = ERR_NULL;

	(void)state;
	if (load("{\"pools\":[{\"size\":32},{\"image\":\"debian:12\",\"size\":1}]}", &p, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(p.npools, 2);
	assert_null(p.pools[0].image); /* whatever the default image is, the flag's even */
	assert_int_equal(p.pools[0].size, 32);
	assert_string_equal(p.pools[1].image, "debian:12");
	assert_int_equal(p.pools[1].size, 1);
	server_policy_free(&p);
}

static void an_allowlist_without_a_list_gets_the_built_in_one(void **state)
{
	struct server_policy p;

	(void)state;
	assert_int_equal(load("{\"network\":{\"default\":{\"mode\":\"allowlist\"}}}", &p, NULL), 0);
	assert_true(p.net_default.allow.n >= 7);
	server_policy_free(&p);
}

static void a_missing_file_is_named(void **state)
{
	struct server_policy p;
	struct err e = ERR_NULL;

	(void)state;
	assert_int_equal(server_policy_load("/nonexistent/policy.json", &p, &e), -1);
	assert_non_null(strstr(e.msg, "/nonexistent/policy.json"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_file_everything_is_built_in),
		cmocka_unit_test(a_file_that_is_wrong_prevents_the_start),
		cmocka_unit_test(a_good_file_is_taken_and_normalised),
		cmocka_unit_test(pools_are_taken_as_they_are_written),
		cmocka_unit_test(an_allowlist_without_a_list_gets_the_built_in_one),
		cmocka_unit_test(a_missing_file_is_named),
	};
	return run_table(tests);
}
