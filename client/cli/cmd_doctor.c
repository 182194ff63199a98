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
	{ "btrfs", try_btrfs },
	{ "connections by sk_lookup", try_sk_lookup },
	{ "skopeo", try_skopeo },
	{ "seccomp", try_seccomp },
	{ "cores", try_cores },
	{ "/dev/fuse", try_fuse_device },
	{ "fusermount3", try_fusermount },
	{ "news of changed files", try_watch },
	{ "mounts", try_mounts },
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
	if (f->ok || !f->mend[0])
		return;
	printf("%-8s mend: ", "");
	put_text(f->mend);
	putchar('\n');
}

/* Where findings go: lines for people, or an array. */
struct report {
	json_t *list; /* NULL: print */
	int missing;
};

static void put_check(struct report *r, const char *name, const struct finding *f)
{
	r->missing += !f->ok && !f->optional;
	if (r->list)
		json_array_append_new(r->list, finding_json(name, f));
	else
		put_finding(name, f);
}

int cmd_doctor(struct cli *c)
{
	_cleanup_json_ json_t *list = json_array(), *node = NULL, *all = NULL;
	struct report r = { .list = c->json ? list : NULL };
	struct finding f;

	for (size_t i = 0; i < ARRAY_LEN(checks); i++) {
		f = (struct finding){ .ok = true };
		checks[i].try(&f);
		put_check(&r, checks[i].name, &f);
	}
	f = (struct finding){ .ok = true };
	node = try_server(c, &f);
	put_check(&r, "server", &f);
	for (size_t i = 0; node; i++) {
		const char *name = try_capability(node, i, &f);
		if (!name)
			break;
		put_check(&r, name, &f);
	}
	if (c->json) {
		all = json_pack("{s:b,s:O}", "ok", r.missing == 0, "checks", list);
		_cleanup_free_ char *text = json_text(all);
		puts(text ? text : "{}");
	}
	return r.missing ? 1 : 0;
}
