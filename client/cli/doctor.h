/* SPDX-License-Identifier: MIT */
/* What one check of `sbx doctor` found. */
#ifndef CLIENT_CLI_DOCTOR_H
#define CLIENT_CLI_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>

struct finding {
	bool ok;
	bool optional; /* not ok, but only less comfort or fewer limits */
	char detail[240];
	char mend[240]; /* one line */
};
void say(struct finding *f, bool ok, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void mend(struct finding *f, const char *text);

void try_openat2(struct finding *f);
void try_clone3(struct finding *f);
void try_pidfd(struct finding *f);
void try_userns(struct finding *f);
void try_overlay_idmap(struct finding *f);
void try_cgroup(struct finding *f);
void try_loop(struct finding *f);
void try_seccomp(struct finding *f);
void try_cores(struct finding *f);
void try_fuse_device(struct finding *f);
void try_fusermount(struct finding *f);
void try_btrfs(struct finding *f);
void try_sk_lookup(struct finding *f);
void try_skopeo(struct finding *f);
void try_watch(struct finding *f);
void try_mounts(struct finding *f);

struct cli;
/* Asks the server; its node record, NULL without an answer. Caller drops it. */
json_t *try_server(struct cli *c, struct finding *f);
/* The nth capability by the record; its name, NULL behind the last. */
const char *try_capability(json_t *node, size_t nth, struct finding *f);

#endif
