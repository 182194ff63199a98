/* SPDX-License-Identifier: MIT */
/* The server's part of `sbx doctor`: is it there, and which of its capabilities are missing and
 * why. The reasons are those of our own server; another one may have others. */
#include "client/cli/cli.h"
#include "client/cli/doctor.h"

#include "common/sys/mem.h"

#include <string.h>

static const struct {
	const char *flag, *means, *lack;
} rows[] = {
	{ "network_policy_update", "the network of a running sandbox can be changed",
		"egress processes are needed: run sandboxd as root with sbx-egress beside sbx-priv" },
	{ "egress_allowlist", "sandboxes may reach what an allowlist names",
		"egress processes are needed: run sandboxd as root with sbx-egress beside sbx-priv" },
	{ "egress_open", "sandboxes may reach all public addresses",
		"start sandboxd with --egress-open; it needs what egress_allowlist needs" },
	{ "suspend", "sandboxes can sleep",
		"the freezer of control groups is needed, see cgroup above" },
	{ "disk_snapshot", "snapshots and forks of a sandbox's files",
		"areas of disk for sandboxes are needed, see loop device and btrfs above" },
	{ "memory_snapshot", "snapshots with running processes",
		"nothing mends it: this backend keeps files only, which disk_snapshot is" },
	{ "tunnel", "ports of a sandbox can be reached",
		"run sandboxd as root for the linux backend" },
	{ "volumes", "folders that outlive sandboxes",
		"areas of disk for sandboxes are needed, see loop device and btrfs above" },
	{ "audit", "a log of what happened", "start sandboxd without --audit-log none" },
	{ "metrics", "usage of sandboxes", "control groups are needed, see cgroup above" },
	{ "metrics_export", "usage is pushed to a collector",
		"control groups are needed, see cgroup above" },
	{ "images", "images can be installed and removed",
		"apt-get install skopeo, then start sandboxd again" },
	{ "registry_login", "images of private registries",
		"apt-get install skopeo, then start sandboxd again" },
	{ "gpu", "whole GPUs for sandboxes",
		"nothing mends it: this server passes no GPU through" },
};

json_t *try_server(struct cli *c, struct finding *f)
{
	json_t *v = NULL;
	struct sbx_response r = { 0 };
	struct sbx_error e;
	const char *version, *backend;

	if (cli_connect(c, &e) < 0 || ask(c, "GET", strdup("/v1/node"), NULL, &r, &e) < 0) {
		say(f, false, "%s", e.message);
		mend(f, e.status == 401
				? "name the token's file with SBX_TOKEN_FILE"
				: "start it with `make up` or `sandboxd`, or set SBX_ENDPOINT");
		return NULL;
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
	return v;
}

const char *try_capability(json_t *node, size_t nth, struct finding *f)
{
	json_t *caps = json_object_get(node, "capabilities");
	const char *backend = json_string_value(json_object_get(caps, "backend"));
	bool fake = backend && !strcmp(backend, "fake");

	if (nth >= ARRAY_LEN(rows))
		return NULL;
	*f = (struct finding){ .optional = true };
	say(f, json_is_true(json_object_get(json_object_get(caps, "capabilities"), rows[nth].flag)),
		"%s", rows[nth].means);
	mend(f, fake ? "the fake backend does without; run sandboxd as root for the linux one"
		     : rows[nth].lack);
	return rows[nth].flag;
}
