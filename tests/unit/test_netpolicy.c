/* SPDX-License-Identifier: MIT */
/* The network rule as rows: a server's policy, a request, the resolved policy or the refusal. The
 * rows are the worked examples of the node contract and the field case about patterns. */
#include "tests/support/test.h"

#include "common/api/types.h"
#include "sandboxd/core/core.h"
#include "sandboxd/core/strs.h"

struct row {
	const char *may_allow; /* NULL: the examples' own */
	const char *request;   /* NULL: none */
	const char *want;      /* JSON text, or an error word */
};
static const struct row examples[] = {
	{ NULL, NULL, "{\"allow\":[\"github.com\",\"pypi.org\"],\"mode\":\"allowlist\"}" },
	{ NULL, "{}", "{\"allow\":[\"github.com\",\"pypi.org\"],\"mode\":\"allowlist\"}" },
	{ NULL, "{\"mode\":\"none\"}", "{\"allow\":null,\"mode\":\"none\"}" },
	{ NULL, "{\"mode\":\"none\",\"deny\":[\"x.example.com\"]}",
		"{\"allow\":null,\"mode\":\"none\"}" },
	{ NULL, "{\"mode\":\"none\",\"allow\":[]}", "{\"allow\":null,\"mode\":\"none\"}" },
	{ NULL, "{\"mode\":\"none\",\"allow\":[\"github.com\"]}", "invalid_request" },
	{ NULL, "{\"mode\":\"open\"}", "refused" },
	{ NULL, "{\"mode\":\"all\"}", "invalid_request" },
	{ NULL, "{\"mode\":\"Open\"}", "invalid_request" },
	{ NULL, "{\"mode\":\"allowlist\"}",
		"{\"allow\":[\"github.com\",\"pypi.org\"],\"mode\":\"allowlist\"}" },
	{ NULL, "{\"mode\":\"allowlist\",\"allow\":null,\"deny\":[\"Gist.GitHub.com.\",\"gist.github.com\"]}",
		"{\"allow\":[\"github.com\",\"pypi.org\"],\"deny\":[\"gist.github.com\"],"
		"\"mode\":\"allowlist\"}" },
	{ NULL, "{\"mode\":\"allowlist\",\"allow\":[]}", "refused" },
	{ NULL, "{\"mode\":\"allowlist\",\"allow\":[\"github.com\"]}",
		"{\"allow\":[\"github.com\"],\"mode\":\"allowlist\"}" },
	{ NULL, "{\"mode\":\"allowlist\",\"allow\":[\"GitHub.com.\"]}",
		"{\"allow\":[\"github.com\"],\"mode\":\"allowlist\"}" },
	{ NULL, "{\"mode\":\"allowlist\",\"allow\":[\"registry.npmjs.org\"]}",
		"{\"allow\":[\"registry.npmjs.org\"],\"mode\":\"allowlist\"}" },
	{ NULL, "{\"mode\":\"allowlist\",\"allow\":[\"api.example.com\"]}",
		"{\"allow\":[\"api.example.com\"],\"mode\":\"allowlist\"}" },
	{ NULL, "{\"mode\":\"allowlist\",\"allow\":[\"*.a.example.com\"]}",
		"{\"allow\":[\"*.a.example.com\"],\"mode\":\"allowlist\"}" },
	{ NULL, "{\"mode\":\"allowlist\",\"allow\":[\"*.example.com\"]}",
		"{\"allow\":[\"*.example.com\"],\"mode\":\"allowlist\"}" },
	{ NULL, "{\"mode\":\"allowlist\",\"allow\":[\"example.com\"]}", "refused" },
	{ NULL, "{\"mode\":\"allowlist\",\"allow\":[\"*.com\"]}", "refused" },
	{ NULL, "{\"mode\":\"allowlist\",\"allow\":[\"evil-example.com\"]}", "refused" },
	{ NULL, "{\"mode\":\"allowlist\",\"allow\":[\"attacker.net\"]}", "refused" },
	{ NULL, "{\"mode\":\"allowlist\",\"allow\":[\"*\"]}", "invalid_request" },
	{ NULL, "{\"mode\":\"allowlist\",\"allow\":[\"https://github.com\"]}", "invalid_request" },
	{ NULL, "{\"mode\":\"allowlist\",\"deny\":[\"https://example.com/path\"]}",
		"invalid_request" },
	{ NULL, "{\"mode\":\"\",\"allow\":[\"pypi.org\"]}",
		"{\"allow\":[\"pypi.org\"],\"mode\":\"allowlist\"}" },
	{ NULL, "{\"allow\":[\"pypi.org\"]}", "{\"allow\":[\"pypi.org\"],\"mode\":\"allowlist\"}" },
	{ NULL, "{\"mode\":\"allowlist\",\"groups\":[\"web\"]}", "invalid_request" },
	{ NULL, "{\"mode\":\"allowlist\",\"groups\":null}",
		"{\"allow\":[\"github.com\",\"pypi.org\"],\"mode\":\"allowlist\"}" },
	{ "[\"*\"]", "{\"mode\":\"allowlist\",\"allow\":[\"anything.dev\"]}",
		"{\"allow\":[\"anything.dev\"],\"mode\":\"allowlist\"}" },
	{ "[\"*\"]", "{\"mode\":\"open\"}", "refused" },
	{ "[]", "{\"mode\":\"allowlist\",\"allow\":[\"api.example.com\"]}", "refused" },
	{ "[]", "{\"mode\":\"allowlist\",\"allow\":[\"github.com\"]}",
		"{\"allow\":[\"github.com\"],\"mode\":\"allowlist\"}" },
	{ "[\"a.example.com\"]", "{\"mode\":\"allowlist\",\"allow\":[\"*.example.com\"]}",
		"refused" },
	/* a pattern ends at a label, and nothing is quietly changed or dropped */
	{ "[\"*\"]", "{\"allow\":[\"*example.com\"]}", "invalid_request" },
	{ "[\"*\"]", "{\"allow\":[\"a.*.com\"]}", "invalid_request" },
	{ "[\"*\"]", "{\"allow\":[\"*.\"]}", "invalid_request" },
	{ "[\"*\"]", "{\"allow\":[\"*.*.com\"]}", "invalid_request" },
	{ "[\"*\"]", "{\"allow\":[\"a.com:443\"]}", "invalid_request" },
	{ "[\"*\"]", "{\"allow\":[\"a.com/x\"]}", "invalid_request" },
	{ "[\"*\"]", "{\"allow\":[\"10.0.0.1\"]}", "invalid_request" },
	{ "[\"*\"]", "{\"allow\":[\"[::1]\"]}", "invalid_request" },
	{ "[\"*\"]", "{\"allow\":[\"a..com\"]}", "invalid_request" },
	{ "[\"*\"]", "{\"allow\":[\"-a.com\"]}", "invalid_request" },
	{ "[\"*\"]", "{\"allow\":[\"a b.com\"]}", "invalid_request" },
	{ "[\"*\"]", "{\"allow\":[\"\"]}", "invalid_request" },
	{ "[\"*\"]", "{\"allow\":[\".\"]}", "invalid_request" },
	{ "[\"*\"]", "{\"allow\":[\"a.com\\u0000.b\"]}", "invalid_request" },
	{ "[\"*\"]", "{\"allow\":[7]}", "invalid_request" },
	{ "[\"*\"]", "{\"allow\":[null]}", "invalid_request" },
	{ "[\"*\"]", "{\"allow\":[\"A.EXAMPLE.Com.\"]}",
		"{\"allow\":[\"a.example.com\"],\"mode\":\"allowlist\"}" },
};

static void set_names(const char *text, struct strlist *l)
{
	json_t *a = json_loads(text, 0, NULL), *v;
	size_t i;

	strs_free(l);
	json_array_foreach (a, i, v)
		assert_int_equal(strs_add(l, json_string_value(v)), 0);
	json_decref(a);
}

static void example_policy(struct server_policy *p, const char *may_allow)
{
	assert_int_equal(server_policy_load(NULL, p, NULL), 0);
	p->net_default.mode = NET_ALLOWLIST;
	p->net_ceiling = NET_ALLOWLIST;
	set_names("[\"github.com\",\"pypi.org\"]", &p->net_default.allow);
	set_names(may_allow ? may_allow : "[\"*.example.com\",\"registry.npmjs.org\"]",
		&p->may_allow);
}

/* The answer as text with sorted keys, or the error's word. Caller frees. */
static char *answer(const struct server_policy *p, const char *request)
{
	struct network_body b = { 0 };
	struct net_policy got;
	struct err e = ERR_NULL;
	json_t *o = NULL, *j;
	char *text;
	int rc = 0;

	if (request)
		rc = json_parse_object(request, strlen(request), &o, &e) < 0 ||
				     schema_decode(network_fields, o, &b, &e) < 0
			     ? -1
			     : 0;
	if (rc == 0)
		rc = net_policy_resolve(p, request ? &b : NULL, &got, &e);
	json_decref(o);
	schema_free(network_fields, &b);
	if (rc < 0)
		return strdup(err_word(e.code));
	j = net_policy_json(&got);
	text = json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(j);
	net_policy_free(&got);
	return text;
}

static void the_worked_examples_hold(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(examples); i++) {
		struct server_policy p;
		char *got;
		example_policy(&p, examples[i].may_allow);
		got = answer(&p, examples[i].request);
		if (strcmp(got, examples[i].want))
			fail_msg("row %zu: %s gives %s, not %s", i,
				examples[i].request ? examples[i].request : "(none)", got,
				examples[i].want);
		free(got);
		server_policy_free(&p);
	}
}

static void the_operators_deny_list_stays_in_force(void **state)
{
	struct server_policy p;
	char *got;

	(void)state;
	example_policy(&p, "[\"*\"]");
	set_names("[\"bad.example.com\"]", &p.net_default.deny);
	got = answer(&p, "{\"mode\":\"allowlist\",\"allow\":[\"a.dev\"],\"deny\":[\"x.dev\"]}");
	assert_string_equal(got, "{\"allow\":[\"a.dev\"],\"deny\":[\"bad.example.com\",\"x.dev\"],"
				 "\"mode\":\"allowlist\"}");
	free(got);
	server_policy_free(&p);
}

static void a_policy_is_fitted_to_what_the_host_can_enforce(void **state)
{
	static const struct {
		bool filter, open;
		enum net_mode dflt, ceiling, want_dflt, want_ceiling;
		size_t want_may;
	} rows[] = {
		{ false, true, NET_OPEN, NET_OPEN, NET_OPEN, NET_OPEN, 0 },
		{ false, true, NET_ALLOWLIST, NET_OPEN, NET_NONE, NET_OPEN, 0 },
		{ false, true, NET_ALLOWLIST, NET_ALLOWLIST, NET_NONE, NET_NONE, 0 },
		{ false, false, NET_OPEN, NET_OPEN, NET_NONE, NET_NONE, 0 },
		{ false, false, NET_NONE, NET_NONE, NET_NONE, NET_NONE, 1 },
		{ true, false, NET_OPEN, NET_OPEN, NET_ALLOWLIST, NET_ALLOWLIST, 1 },
		{ true, false, NET_NONE, NET_OPEN, NET_NONE, NET_ALLOWLIST, 1 },
		{ true, true, NET_OPEN, NET_OPEN, NET_OPEN, NET_OPEN, 1 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct server_policy p;
		example_policy(&p, "[\"*\"]");
		p.net_default.mode = rows[i].dflt;
		p.net_ceiling = rows[i].ceiling;
		if (rows[i].dflt != NET_ALLOWLIST)
			strs_free(&p.net_default.allow);
		server_policy_fit(&p, rows[i].filter, rows[i].open);
		assert_int_equal(p.net_default.mode, rows[i].want_dflt);
		assert_int_equal(p.net_ceiling, rows[i].want_ceiling);
		assert_int_equal(p.may_allow.n, rows[i].want_may);
		assert_int_equal(p.net_default.allow.n > 0, p.net_default.mode == NET_ALLOWLIST);
		server_policy_free(&p);
	}
}

static void an_old_sandbox_goes_on_only_where_todays_policy_allows_it(void **state)
{
	struct net_policy open = { .mode = NET_OPEN }, none = { .mode = NET_NONE };
	struct server_policy p;

	(void)state;
	example_policy(&p, "[]");
	assert_true(net_policy_still_allowed(&p, &none));
	assert_false(net_policy_still_allowed(&p, &open));
	p.net_ceiling = NET_OPEN;
	assert_true(net_policy_still_allowed(&p, &open));
	set_names("[\"x.dev\"]", &p.net_default.deny);
	assert_false(net_policy_still_allowed(&p, &open));
	server_policy_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_worked_examples_hold),
		cmocka_unit_test(the_operators_deny_list_stays_in_force),
		cmocka_unit_test(a_policy_is_fitted_to_what_the_host_can_enforce),
		cmocka_unit_test(an_old_sandbox_goes_on_only_where_todays_policy_allows_it),
	};
	return run_table(tests);
}
