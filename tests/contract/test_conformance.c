/* SPDX-License-Identifier: MIT */
/* The contract's acceptance list, seen from outside: what a sandbox is, what it is called, what may
 * be set, how it ends, what is recorded of it. The numbers are those of the list; the rest of it is
 * in test_conformance_work.c and test_conformance_keep.c. */
#include "tests/support/conform.h"

#include <openssl/sha.h>
#include <time.h>

static const char *const modes[] = { "none", "allowlist", "open" };

static int rank(const char *mode)
{
	for (int i = 0; i < (int)ARRAY_LEN(modes); i++)
		if (!strcmp(modes[i], mode))
			return i;
	fail_msg("unknown network mode \"%s\"", mode);
	return -1;
}

static json_t *network(void)
{
	return json_object_get(conform_caps(), "network");
}

static int ceiling(void)
{
	return rank(str(network(), "ceiling"));
}

static const char *mode_of(const json_t *sandbox)
{
	return str(json_object_get(sandbox, "network"), "mode");
}

static json_t *policy(const char *mode)
{
	return J("{s:{s:s}}", "network", "mode", mode);
}

static bool holds(const json_t *list, const char *text)
{
	const json_t *v;
	size_t i;

	json_array_foreach (list, i, v)
		if (!strcmp(json_string_value(v), text))
			return true;
	return false;
}

/* 1 */
static void capabilities_describe_the_endpoint(void **state)
{
	static const char *const limits[] = { "max_cpus", "max_memory_mb", "max_disk_mb" };
	const json_t *l = json_object_get(conform_caps(), "limits");

	(void)state;
	assert_string_equal(str(conform_caps(), "api_version"), "v1");
	assert_true(*str(conform_caps(), "backend"));
	for (size_t i = 0; i < ARRAY_LEN(limits); i++)
		assert_true(json_number_value(json_object_get(l, limits[i])) > 0);
	assert_true(rank(str(json_object_get(network(), "default"), "mode")) <= ceiling());
}

static bool is_listed(const char *path, const char *id, size_t *ret_n)
{
	json_t *list = json_object_get(ask("GET", path, NULL), "sandboxes"), *s;
	bool found = false;
	size_t i;

	json_array_foreach (list, i, s)
		found |= !strcmp(str(s, "id"), id);
	if (ret_n)
		*ret_n = json_array_size(list);
	return found;
}

/* 2 */
static void a_sandbox_lives_from_create_to_delete(void **state)
{
	const char *name = unused_name();
	json_t *s = box_made(J("{s:s}", "name", name));
	const char *id = str(s, "id");

	(void)state;
	assert_string_equal(str(s, "state"), "running");
	assert_int_equal(strncmp(id, "sbx_", 4), 0);
	assert_string_equal(str(box_get(id), "id"), id);
	assert_string_equal(str(box_get(name), "id"), id);
	assert_true(is_listed("/v1/sandboxes", id, NULL));
	box_end(id);
	assert_string_equal(str(box_get(id), "state"), "terminated");
}

/* 3 */
static void ending_is_idempotent(void **state)
{
	const char *id = box(NULL);

	(void)state;
	box_end(id);
	box_end(id);
}

/* 4 */
static void names_are_unique_among_live_sandboxes(void **state)
{
	const char *name = unused_name(), *first = box(J("{s:s}", "name", name)), *second;

	(void)state;
	refused("conflict", "POST", "/v1/sandboxes", J("{s:s}", "name", name));
	box_end(first);
	second = box(J("{s:s}", "name", name));
	assert_string_not_equal(first, second);
	assert_string_equal(str(box_get(name), "id"), second);
}

/* 5 */
static void invalid_names_are_refused(void **state)
{
	static const char *const names[] = { "Upper", "has space", "sbx_lookslikeanid", "-lead",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };

	(void)state;
	assert_int_equal(strlen(names[4]), 64);
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		refused("invalid_request", "POST", "/v1/sandboxes", J("{s:s}", "name", names[i]));
}

/* 6 */
static void an_unknown_sandbox_is_not_found(void **state)
{
	(void)state;
	refused("not_found", "GET", at("/v1/sandboxes/%s", unused_name()), NULL);
	refused("not_found", "POST", "/v1/sandboxes/sbx_0000000000000000/run",
		argv_of("true", NULL));
}

/* 7 */
static void values_of_the_environment_are_never_returned(void **state)
{
	static const char secret[] = "s3cret-7f1b2c-value";
	json_t *s = box_made(J("{s:{s:s}}", "env", "API_TOKEN", secret));
	json_t *shown[] = { s, box_get(str(s, "id")) };
	struct ran r;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(shown); i++) {
		_cleanup_free_ char *text = json_dumps(shown[i], 0);
		json_t *names = json_object_get(shown[i], "env_names");
		assert_null(strstr(text, secret));
		assert_int_equal(json_array_size(names), 1);
		assert_true(holds(names, "API_TOKEN"));
	}
	r = run_in(str(s, "id"), argv_of("printenv", "API_TOKEN", NULL));
	assert_int_equal(r.len, sizeof(secret)); /* and its line's end */
	assert_memory_equal(r.out, secret, sizeof(secret) - 1);
}

/* 8 */
static void reserved_names_of_the_environment_are_refused(void **state)
{
	(void)state;
	refused("refused", "POST", "/v1/sandboxes", J("{s:{s:s}}", "env", "LD_PRELOAD", "/x.so"));
	refused("refused", "POST", at("/v1/sandboxes/%s/run", box(NULL)),
		with(argv_of("true", NULL), "env", J("{s:s}", "BASH_ENV", "/x")));
}

/* 21 */
static void an_ended_sandbox_refuses_work(void **state)
{
	const char *id = box(NULL);

	(void)state;
	box_end(id);
	refused("conflict", "POST", at("/v1/sandboxes/%s/run", id), argv_of("true", NULL));
	refused_bytes("conflict", "PUT", path_in(id, "files", "/tmp/x", 6), "x");
}

/* 22 */
static void the_networks_default_applies(void **state)
{
	(void)state;
	assert_string_equal(
		mode_of(box_made(NULL)), str(json_object_get(network(), "default"), "mode"));
}

/* 23 */
static void a_network_above_the_ceiling_is_refused(void **state)
{
	(void)state;
	if (ceiling() == rank("open"))
		skip();
	refused("refused", "POST", "/v1/sandboxes", policy("open"));
	refused("invalid_request", "POST", "/v1/sandboxes", policy("wide-open"));
	assert_string_equal(mode_of(box_made(policy("none"))), "none");
}

static void need_allowlist(void)
{
	if (ceiling() < rank("allowlist") || !conform_can("egress_allowlist"))
		skip();
}

/* 24 */
static void an_empty_allowlist_is_refused(void **state)
{
	(void)state;
	need_allowlist();
	refused("refused", "POST", "/v1/sandboxes",
		J("{s:{s:s,s:[]}}", "network", "mode", "allowlist", "allow"));
}

/* 25 */
static void denied_names_are_kept_and_normalised(void **state)
{
	json_t *n;

	(void)state;
	need_allowlist();
	n = json_object_get(box_made(J("{s:{s:s,s:n,s:[s,s]}}", "network", "mode", "allowlist",
				    "allow", "deny", "Gist.GitHub.com.", "gist.github.com")),
		"network");
	assert_int_equal(json_array_size(json_object_get(n, "deny")), 1);
	assert_true(holds(json_object_get(n, "deny"), "gist.github.com"));
	assert_true(json_array_size(json_object_get(n, "allow")) > 0);
	refused("invalid_request", "POST", "/v1/sandboxes",
		J("{s:{s:s,s:[s]}}", "network", "mode", "allowlist", "deny",
			"https://example.com/path"));
}

/* 26 */
static void a_name_that_may_not_be_allowed_is_refused(void **state)
{
	(void)state;
	if (ceiling() < rank("allowlist") || holds(json_object_get(network(), "may_allow"), "*"))
		skip();
	refused("refused", "POST", "/v1/sandboxes",
		J("{s:{s:s,s:[s]}}", "network", "mode", "allowlist", "allow",
			"not-permitted.conformance.invalid"));
}

/* 27 */
static void a_change_of_the_network_follows_the_same_rules(void **state)
{
	const char *path = at("/v1/sandboxes/%s", box(NULL));

	(void)state;
	if (!conform_can("network_policy_update")) {
		refused("unsupported", "PATCH", path, policy("none"));
		return;
	}
	assert_string_equal(mode_of(ask("PATCH", path, policy("none"))), "none");
	if (ceiling() == rank("open"))
		return;
	refused("refused", "PATCH", path, policy("open"));
	assert_string_equal(mode_of(ask("GET", path, NULL)), "none");
}

/* Labels without those that a gateway gives. */
static json_t *own_labels(json_t *sandbox)
{
	json_t *labels = json_object_get(sandbox, "labels");
	const char *key;
	void *next;
	json_t *v;

	json_object_foreach_safe(labels, next, key, v) if (!strncmp(key, "gateway.", 8))
		json_object_del(labels, key);
	return labels;
}

static void has_only(json_t *sandbox, const char *name, const char *key, const char *value)
{
	json_t *labels = own_labels(sandbox);

	assert_string_equal(str(sandbox, "name"), name);
	assert_int_equal(json_object_size(labels), 1);
	assert_string_equal(str(labels, key), value);
}

/* 28.5, 28.7: nothing changes when one field is bad */
static void bad_changes(const char *path, const char *name, const char *mark)
{
	long limit = conform_limit("max_idle_timeout_secs");
	json_t *bad[] = {
		J("{s:s,s:{s:s}}", "name", "Upper Case", "labels", "suite.other", "fine"),
		J("{s:s,s:{s:s}}", "name", "fine-name", "labels", "suite.mark", "a\033b"),
		J("{s:s,s:i}", "name", "fine-name", "idle_timeout_secs", -1),
		json_object(),
		limit > 0 ? J("{s:i}", "idle_timeout_secs", (int)limit + 1) : NULL,
		limit > 0 ? J("{s:i}", "idle_timeout_secs", 0) : NULL,
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (!bad[i])
			continue;
		refused("invalid_request", "PATCH", path, bad[i]);
		has_only(ask("GET", path, NULL), name, "suite.mark", mark);
	}
}

/* 28 */
static void a_live_sandbox_can_be_renamed_relabelled_and_retimed(void **state)
{
	const char *before = unused_name(), *name = unused_name(), *mark = unused_name();
	const char *id = box(J(
		"{s:s,s:{s:s,s:s}}", "name", before, "labels", "suite.one", "1", "suite.two", "2"));
	const char *path = at("/v1/sandboxes/%s", id), *other = box(NULL);
	json_t *s;
	size_t n;

	(void)state;
	s = ask("PATCH", path, J("{s:s,s:{s:s}}", "name", name, "labels", "suite.mark", mark));
	has_only(s, name, "suite.mark", mark);
	assert_string_equal(str(box_get(name), "id"), id);
	assert_true(is_listed(at("/v1/sandboxes?label=suite.mark=%s", mark), id, &n));
	assert_int_equal(n, 1);
	refused("conflict", "PATCH", at("/v1/sandboxes/%s", other), J("{s:s}", "name", name));
	bad_changes(path, name, mark);
	s = ask("PATCH", path, J("{s:i}", "idle_timeout_secs", 120));
	assert_int_equal(num(s, "idle_timeout_secs"), 120);
	s = ask("PATCH", path, J("{s:s,s:{}}", "name", "", "labels"));
	assert_string_equal(str(s, "name"), "");
	assert_int_equal(json_object_size(own_labels(s)), 0);
	box_end(id);
	refused("conflict", "PATCH", path, J("{s:{s:s}}", "labels", "suite.mark", "late"));
}

/* 30 */
static void an_idle_sandbox_is_ended(void **state)
{
	json_t *s = box_made(J("{s:i}", "idle_timeout_secs", 2));

	(void)state;
	assert_int_equal(num(s, "idle_timeout_secs"), 2);
	box_wait_ended(str(s, "id"), 250, true);
}

/* 31 */
static void an_idle_timeout_above_the_limit_is_invalid(void **state)
{
	long limit = conform_limit("max_idle_timeout_secs");

	(void)state;
	if (limit <= 0)
		skip();
	refused("invalid_request", "POST", "/v1/sandboxes",
		J("{s:I}", "idle_timeout_secs", (json_int_t)limit + 1));
}

/* Nanoseconds since the epoch. */
static long long time_of(const char *text)
{
	struct tm tm = { 0 };
	const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	long long ns = 0, digit = 100000000;

	assert_non_null(rest);
	if (*rest == '.')
		for (rest++; *rest >= '0' && *rest <= '9'; rest++, digit /= 10)
			ns += (*rest - '0') * digit;
	assert_string_equal(rest, "Z");
	return (long long)timegm(&tm) * 1000000000 + ns;
}

/* 32 */
static void a_busy_sandbox_ends_at_its_lifetime(void **state)
{
	json_t *s = box_made(J("{s:i}", "lifetime_secs", 3));

	(void)state;
	assert_int_equal(num(s, "lifetime_secs"), 3);
	assert_true(time_of(str(s, "expires_at")) - time_of(str(s, "created_at")) == 3000000000LL);
	start_in(str(s, "id"), argv_of("sleep", "600", NULL));
	box_wait_ended(str(s, "id"), 250, false);
}

/* 33 */
static void a_lifetime_above_the_limit_is_invalid(void **state)
{
	long limit = conform_limit("max_lifetime_secs");
	json_t *s;

	(void)state;
	if (limit <= 0)
		skip();
	refused("invalid_request", "POST", "/v1/sandboxes",
		J("{s:I}", "lifetime_secs", (json_int_t)limit + 1));
	s = box_made(NULL);
	assert_int_equal(num(s, "lifetime_secs"), limit);
	assert_true(*str(s, "expires_at"));
}

/* 40 */
static void labels_are_kept_and_filter_the_listing(void **state)
{
	const char *mark = unused_name();
	char longer[80], value[258];
	json_t *s, *bad[4];
	size_t n;

	(void)state;
	snprintf(longer, sizeof(longer), "%s-other", mark);
	memset(value, 'v', 257);
	value[257] = '\0';
	s = box_made(J("{s:{s:s,s:s}}", "labels", "suite.mark", mark, "suite.kind", "first"));
	box(J("{s:{s:s}}", "labels", "suite.mark", longer));
	assert_string_equal(str(json_object_get(s, "labels"), "suite.mark"), mark);
	assert_string_equal(str(json_object_get(s, "labels"), "suite.kind"), "first");
	assert_true(is_listed(at("/v1/sandboxes?label=suite.mark=%s", mark), str(s, "id"), &n));
	assert_int_equal(n, 1);
	bad[0] = J("{s:s}", "Upper", "x");
	bad[1] = J("{s:s}", "-lead", "x");
	bad[2] = J("{s:s}", "suite.mark", "a\033b");
	bad[3] = J("{s:s}", "suite.mark", value);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		refused("invalid_request", "POST", "/v1/sandboxes", J("{s:o}", "labels", bad[i]));
}

static json_t *events(const char *id)
{
	return json_object_get(ask("GET", at("/v1/sandboxes/%s/events", id), NULL), "events");
}

/* The last event of a type. */
static json_t *event(const json_t *list, const char *type)
{
	json_t *v, *last = NULL;
	size_t i;

	json_array_foreach (list, i, v)
		if (!strcmp(str(v, "type"), type))
			last = v;
	if (!last)
		fail_msg("no event %s", type);
	return last;
}

/* All events up to the end, which may be recorded after the answer. */
static json_t *events_until_ended(const char *id)
{
	for (int i = 0; i < 100; i++) {
		json_t *all = events(id);
		const json_t *last = json_array_get(all, json_array_size(all) - 1);
		if (!strcmp(str(last, "type"), "sandbox.terminated"))
			return all;
		pause_ms(100);
	}
	fail_msg("the end was not recorded within 10 s");
	return NULL;
}

/* 41 */
static void the_audit_log_records_what_happened(void **state)
{
	static const char secret[] = "audit-secret-value-91";
	_cleanup_free_ char *text = NULL;
	const char *id;
	json_t *all, *e;
	size_t i;

	(void)state;
	if (!conform_can("audit"))
		skip();
	id = box(
		J("{s:{s:s},s:{s:s}}", "env", "AUDIT_TOKEN", secret, "labels", "suite.mark", "41"));
	assert_int_equal(run_in(id, argv_of("false", NULL)).code, 1);
	file_put_in(id, "/tmp/audited.txt", "bytes", 5);
	box_end(id);
	all = events_until_ended(id);
	text = json_dumps(all, 0);
	assert_null(strstr(text, secret));
	json_array_foreach (all, i, e)
		assert_string_equal(str(e, "sandbox"), id);
	e = event(all, "sandbox.created");
	assert_string_equal(str(json_object_get(e, "labels"), "suite.mark"), "41");
	assert_true(holds(json_object_get(e, "env_names"), "AUDIT_TOKEN"));
	e = event(all, "process.started");
	assert_string_equal(str(e, "program"), "false");
	assert_null(json_object_get(e, "arg_count"));
	assert_null(json_object_get(e, "args_sha256"));
	assert_int_equal(num(event(all, "process.exited"), "exit_code"), 1);
	e = event(all, "file.written");
	assert_string_equal(str(e, "path"), "/tmp/audited.txt");
	assert_int_equal(num(e, "bytes"), 5);
	assert_string_equal(str(event(all, "sandbox.terminated"), "reason"), "request");
	refused("not_found", "GET", "/v1/sandboxes/sbx_0000000000000000/events", NULL);
}

/* 42 */
static void the_audit_log_never_keeps_arguments(void **state)
{
	static const char token[] = "argument-token-5d", hashed[] = "-n\0argument-token-5d";
	unsigned char sum[SHA256_DIGEST_LENGTH];
	_cleanup_free_ char *text = NULL;
	char hex[2 * sizeof(sum) + 1];
	const char *id;
	json_t *all;

	(void)state;
	if (!conform_can("audit"))
		skip();
	id = box(NULL);
	run_in(id, argv_of("echo", "-n", token, NULL));
	all = events(id);
	text = json_dumps(all, 0);
	assert_null(strstr(text, token));
	assert_string_equal(str(event(all, "process.started"), "program"), "echo");
	assert_int_equal(num(event(all, "process.started"), "arg_count"), 2);
	SHA256((const unsigned char *)hashed, sizeof(hashed), sum);
	for (size_t i = 0; i < sizeof(sum); i++)
		snprintf(hex + 2 * i, 3, "%02x", sum[i]);
	assert_string_equal(str(event(all, "process.started"), "args_sha256"), hex);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		conform_test(capabilities_describe_the_endpoint),
		conform_test(a_sandbox_lives_from_create_to_delete),
		conform_test(ending_is_idempotent),
		conform_test(names_are_unique_among_live_sandboxes),
		conform_test(invalid_names_are_refused),
		conform_test(an_unknown_sandbox_is_not_found),
		conform_test(values_of_the_environment_are_never_returned),
		conform_test(reserved_names_of_the_environment_are_refused),
		conform_test(an_ended_sandbox_refuses_work),
		conform_test(the_networks_default_applies),
		conform_test(a_network_above_the_ceiling_is_refused),
		conform_test(an_empty_allowlist_is_refused),
		conform_test(denied_names_are_kept_and_normalised),
		conform_test(a_name_that_may_not_be_allowed_is_refused),
		conform_test(a_change_of_the_network_follows_the_same_rules),
		conform_test(a_live_sandbox_can_be_renamed_relabelled_and_retimed),
		conform_test(an_idle_sandbox_is_ended),
		conform_test(an_idle_timeout_above_the_limit_is_invalid),
		conform_test(a_busy_sandbox_ends_at_its_lifetime),
		conform_test(a_lifetime_above_the_limit_is_invalid),
		conform_test(labels_are_kept_and_filter_the_listing),
		conform_test(the_audit_log_records_what_happened),
		conform_test(the_audit_log_never_keeps_arguments),
	};

	return conform_run("conformance: sandboxes", tests, ARRAY_LEN(tests));
}
