/* SPDX-License-Identifier: MIT */
/* The network rule: tighten, never loosen (node contract, 9.3). Pure functions: a policy and a
 * request in, a resolved policy or the refusal out. */
#include "sandboxd/core/core.h"

#include "common/sys/mem.h"
#include "sandboxd/core/strs.h"

#include <stdlib.h>
#include <string.h>

const char *const net_mode_words[] = { "none", "allowlist", "open" };

/* What an allowlist holds when the operator did not say otherwise. */
static const char *const baseline[] = { "codeload.github.com", "files.pythonhosted.org",
	"github.com", "objects.githubusercontent.com", "pypi.org", "raw.githubusercontent.com",
	"registry.npmjs.org" };

int net_mode_of(const char *word)
{
	for (size_t i = 0; i < ARRAY_LEN(net_mode_words); i++)
		if (!strcmp(net_mode_words[i], word))
			return (int)i;
	return -1;
}

void net_policy_free(struct net_policy *p)
{
	strs_free(&p->allow);
	strs_free(&p->deny);
	*p = (struct net_policy){ .mode = NET_NONE };
}

int net_policy_copy(const struct net_policy *from, struct net_policy *ret, struct err *e)
{
	*ret = (struct net_policy){ .mode = from->mode };
	if (strs_copy(&from->allow, &ret->allow) == 0 && strs_copy(&from->deny, &ret->deny) == 0)
		return 0;
	net_policy_free(ret);
	return err_oom(e);
}

int net_names_clean(const struct strlist *in, const char *what, struct strlist *ret, struct err *e)
{
	*ret = (struct strlist){ NULL, 0 };
	for (size_t i = 0; i < in->n; i++) {
		_cleanup_free_ char *name = NULL;
		if (host_name_clean(in->v[i], &name, e) < 0) {
			strs_free(ret);
			return err_prefix(e, "%s[%zu]: ", what, i);
		}
		if (strs_add(ret, name) < 0) {
			strs_free(ret);
			return err_oom(e);
		}
	}
	strs_sort_unique(ret);
	return 0;
}

int net_default_list(const struct server_policy *p, struct strlist *ret, struct err *e)
{
	struct strlist built_in = { (char **)(size_t)baseline, ARRAY_LEN(baseline) };
	const struct strlist *from =
		p->net_default.mode == NET_ALLOWLIST ? &p->net_default.allow : &built_in;

	if (strs_copy(from, ret) == 0)
		return 0;
	return err_oom(e);
}

static bool may_allow(const struct server_policy *p, const char *entry)
{
	for (size_t i = 0; i < p->may_allow.n; i++)
		if (!strcmp(p->may_allow.v[i], "*") ||
			host_pattern_covers(p->may_allow.v[i], entry))
			return true;
	return false;
}

/* Step 7: each entry stands in the default list or is permitted beyond it. */
static int check_entries(const struct server_policy *p, const struct strlist *allow, struct err *e)
{
	struct strlist base;

	if (net_default_list(p, &base, e) < 0)
		return -1;
	for (size_t i = 0; i < allow->n; i++) {
		if (strs_has(&base, allow->v[i]) || may_allow(p, allow->v[i]))
			continue;
		strs_free(&base);
		return err_set(e, ERR_REFUSED,
			"network.allow: \"%s\" is neither in this server's default "
			"list nor permitted by may_allow",
			allow->v[i]);
	}
	strs_free(&base);
	return 0;
}

/* The operator's deny list stays in force whatever a request says. */
static int add_operator_deny(const struct server_policy *p, struct net_policy *ret, struct err *e)
{
	for (size_t i = 0; i < p->net_default.deny.n; i++)
		if (strs_add(&ret->deny, p->net_default.deny.v[i]) < 0)
			return err_oom(e);
	strs_sort_unique(&ret->deny);
	return 0;
}

static int finish_allowlist(
	const struct server_policy *p, bool named, struct net_policy *ret, struct err *e)
{
	if (!named && net_default_list(p, &ret->allow, e) < 0)
		return -1;
	if (named && check_entries(p, &ret->allow, e) < 0)
		return -1;
	if (!ret->allow.n)
		return err_set(
			e, ERR_REFUSED, "network.allow is empty; mode \"none\" cuts the network");
	return 0;
}

static int resolve(const struct server_policy *p, const struct network_body *b, int mode,
	struct net_policy *ret, struct err *e)
{
	if (net_names_clean(&b->deny, "network.deny", &ret->deny, e) < 0 ||
		net_names_clean(&b->allow, "network.allow", &ret->allow, e) < 0)
		return -1;
	ret->mode = (enum net_mode)mode;
	if (mode != NET_ALLOWLIST && ret->allow.n)
		return err_set(e, ERR_INVALID_REQUEST, "network.allow needs mode \"allowlist\"");
	if (mode == NET_ALLOWLIST && finish_allowlist(p, b->has_allow, ret, e) < 0)
		return -1;
	if (mode == NET_NONE)
		strs_free(&ret->deny);
	return mode == NET_NONE ? 0 : add_operator_deny(p, ret, e);
}

bool net_body_empty(const struct network_body *b)
{
	return (!b->mode || !*b->mode) && !b->has_allow && !b->deny.n && !b->groups;
}

int net_policy_resolve(const struct server_policy *p, const struct network_body *b,
	struct net_policy *ret, struct err *e)
{
	int mode = (int)p->net_default.mode;

	*ret = (struct net_policy){ .mode = NET_NONE };
	if (!b || net_body_empty(b)) {
		if (net_policy_copy(&p->net_default, ret, e) < 0)
			return -1;
		if (ret->mode == NET_NONE)
			strs_free(&ret->deny);
		return 0;
	}
	if (b->groups)
		return err_set(e, ERR_INVALID_REQUEST, "network.groups: this server has no groups");
	if (b->mode && *b->mode)
		mode = net_mode_of(b->mode);
	if (mode < 0)
		return err_set(e, ERR_INVALID_REQUEST,
			"network.mode must be \"none\", \"allowlist\" or \"open\"");
	if (mode > (int)p->net_ceiling)
		return err_set(e, ERR_REFUSED,
			"network.mode \"%s\" is above this server's ceiling \"%s\"",
			net_mode_words[mode], net_mode_words[p->net_ceiling]);
	if (resolve(p, b, mode, ret, e) == 0)
		return 0;
	net_policy_free(ret);
	return -1;
}

bool net_policy_still_allowed(const struct server_policy *p, const struct net_policy *n)
{
	struct network_body b = { .mode = (char *)(size_t)net_mode_words[n->mode],
		.has_allow = n->mode == NET_ALLOWLIST,
		.allow = n->allow,
		.deny = n->deny };
	struct net_policy again;
	bool same;

	if (net_policy_resolve(p, &b, &again, NULL) < 0)
		return false;
	/* a name denied since then is a rule this sandbox was not built with */
	same = strs_equal(&again.deny, &n->deny);
	net_policy_free(&again);
	return same;
}

json_t *net_policy_json(const struct net_policy *p)
{
	json_t *o = json_object();

	json_object_set_new(o, "mode", json_string(net_mode_words[p->mode]));
	json_object_set_new(
		o, "allow", p->mode == NET_ALLOWLIST ? strs_json(&p->allow) : json_null());
	if (p->deny.n)
		json_object_set_new(o, "deny", strs_json(&p->deny));
	return o;
}
