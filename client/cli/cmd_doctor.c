/* SPDX-License-Identifier: MIT */
/* sbx doctor: tries what server and mount need on this host, and says how to mend what fails. Every
 * answer is a trial, never a version number. */
#include "client/cli/doctor.h"

#include "client/cli/cmds.h"
#include "common/sys/mem.h"

#include <string.h>

static const struct {
	const char *name;
	void (*try)(struct finding *f);
} checks[] = {
	{ "openat2", try_openat2 },
	{ "clone3", try_clone3 },
	{ "pidfd", try_pidfd },
	{ "user namespaces", try_userns },
	{ "overlay with shifted ids", try_overlay_idmap },
	{ "cgroup", try_cgroup },
	{ "loop device", try_loop },
	{ "seccomp", try_seccomp },
	{ "/dev/fuse", try_fuse_device },
	{ "fusermount3", try_fusermount },
};

static json_t *finding_json(const char *name, const struct finding *f)
{
	return json_pack("{s:s,s:s,s:s,s:s}", "check", name, "result",
		f->ok         ? "ok"
		: f->optional ? "limited"
			      : "missing",
		"detail", f->detail, "mend", f->mend);
}

static void put_finding(const char *name, const struct finding *f)
{
	printf("%-8s %-26s ", f->ok ? "ok" : f->optional ? "limited" : "MISSING", name);
	put_text(f->detail);
	putchar('\n');
	if (!f->ok && f->mend[0])
		printf("%-8s mend: %s\n", "", f->mend);
}

static void try_server(struct cli *c, struct finding *f)
{
	_cleanup_json_ json_t *v = NULL;
	struct sbx_response r = { 0 };
	struct sbx_error e;
	const char *version, *backend;

	if (cli_connect(c, &e) < 0 || ask(c, "GET", strdup("/v1/node"), NULL, &r, &e) < 0) {
		say(f, false, "%s", e.message);
		mend(f, e.status == 401
				? "name the token's file with SBX_TOKEN_FILE"
				: "start it with `make up` or `sandboxd`, or set SBX_ENDPOINT");
		return;
	}
	if (json_parse_any(r.body, r.len, 1 << 20, &v, NULL) < 0)
		v = NULL;
	version = json_string_value(json_object_get(v, "version"));
	backend = json_string_value(json_object_get(json_object_get(v, "capabilities"), "backend"));
	say(f, v != NULL, "%s, sandboxd %s, backend %s, %lld running, this is sbx %s",
		sbx_endpoint(c->s), version ? version : "?", backend ? backend : "?",
		(long long)json_integer_value(json_object_get(v, "running")), SBX_VERSION);
	if (backend && !strcmp(backend, "fake")) {
		f->ok = false;
		f->optional = true;
		mend(f, "sandboxes run WITHOUT isolation; start sandboxd as root for the linux backend");
	}
	sbx_response_free(&r);
}

int cmd_doctor(struct cli *c)
{
	_cleanup_json_ json_t *list = json_array(), *all = NULL;
	struct finding f;
	int missing = 0;

	for (size_t i = 0; i <= ARRAY_LEN(checks); i++) {
		const char *name = i < ARRAY_LEN(checks) ? checks[i].name : "server";
		f = (struct finding){ .ok = true };
		if (i < ARRAY_LEN(checks))
			checks[i].try(&f);
		else
			try_server(c, &f);
		missing += !f.ok && !f.optional;
		if (c->json)
			json_array_append_new(list, finding_json(name, &f));
		else
			put_finding(name, &f);
	}
	if (c->json) {
		all = json_pack("{s:b,s:O}", "ok", missing == 0, "checks", list);
		_cleanup_free_ char *text = json_text(all);
		puts(text ? text : "{}");
	}
	return missing ? 1 : 0;
}
