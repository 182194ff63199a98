/* SPDX-License-Identifier: MIT */
/* Everything the daemon is, without HTTP: configuration, policy, registry, records, audit. */
#ifndef SANDBOXD_CORE_CORE_H
#define SANDBOXD_CORE_CORE_H

#include "sandboxd/backend/backend.h"
#include "sandboxd/core/sandbox.h"

#include "common/base/version.h"

#define SANDBOXD_VERSION SBX_VERSION /* node contract, 25 */

struct limits { /* 6.2 and the policy file's defaults, 26.2 */
	double max_cpus;
	int64_t max_memory_mb, max_disk_mb, max_idle_timeout_secs, max_lifetime_secs,
		min_snapshot_every_secs, max_snapshot_keep, min_metrics_export_secs, max_gpus;
	double default_cpus;
	int64_t default_memory_mb, default_disk_mb, default_idle_timeout_secs;
};
struct policy_pool { /* 26.4 */
	char *image; /* NULL: the default image */
	unsigned size;
};
struct server_policy {
	struct limits limits;
	char *default_image;
	bool has_images;
	struct strlist images;     /* only these may be named */
	struct net_policy net_default;
	enum net_mode net_ceiling;
	struct strlist may_allow;
	struct policy_pool *pools;
	size_t npools;
};
struct egress_resolvers;
struct core_conf {
	const struct egress_resolvers *resolvers; /* of sandboxes with a network; NULL: none */
	const char *state_dir;     /* absolute */
	int state_dirfd;
	const char *node_id;       /* "" standalone */
	struct strmap node_labels;
	const char *image_dir;     /* NAME.tar and others, core/images.h; NULL: none */
	const char *image_dir_name; /* as people know it */
	int pull_fd;               /* socket to sbx-pull, taken over by a start that goes well; -1: none */
	const char *audit_log;     /* NULL: <state>/audit/events.jsonl; "none": off */
	double capacity_cpus;      /* 0: the backend's figure */
	int64_t capacity_memory_mb, capacity_disk_mb;
	bool keep_sandboxes;
	bool export_allow_private; /* metrics may be pushed to any address, and over http to loopback */
	const struct server_policy *policy; /* already fitted (9.4) */
};
struct core;
/* Opens the records, takes back or sweeps sandboxes (26.3), starts the one-second tick. */
int core_open(const struct core_conf *conf, const struct backend_ops *ops, struct backend *b,
	const bool caps[CAP_COUNT], struct core **ret, struct err *e);
/* keep: detach from running sandboxes; else end them all. Joins every thread. */
void core_close(struct core *c);

/* The server is about to stop: streams that follow the list or the events end now, so that they do not
 * use up the grace that other requests are given. Call it before the HTTP server is stopped. */
void core_stop_streams(struct core *c);
bool core_stopping(struct core *c);

bool core_cap(const struct core *c, enum cap cap);
json_t *core_capabilities_json(struct core *c);
json_t *core_node_json(struct core *c);
int core_cordon(struct core *c, bool cordoned, struct err *e);
const char *core_instance(const struct core *c); /* id of this server run */
/* Sandboxes newest first, each referenced; label filters "k=v" (8.5). Caller unrefs and frees. */
int core_list(struct core *c, const char *const *labels, size_t nlabels, struct sandbox ***ret,
	size_t *ret_n, struct err *e);
struct audit *core_audit(struct core *c); /* NULL: off */
/* Changes of the list, for watch=1: increases with each create, update, state change. Blocks until
 * it differs from `seen` or timeout_ms passed; returns the present value. */
uint64_t core_wait_change(struct core *c, uint64_t seen, int timeout_ms);
void core_changed(struct core *c);
/* After sandbox_end, and after its answer: wakes who follows the list and who cleans
 * up. They would take the processor from the answer. Left out, it comes within a second. */
void core_tell_ends(struct core *c);
struct guest_hub *core_hub(struct core *c);
struct store *core_store(struct core *c);

/* policy.c and netpolicy.c, pure: 26.2, 9.3, 9.4 */
int server_policy_load(const char *file_or_null, struct server_policy *ret, struct err *e);
void server_policy_free(struct server_policy *p);
void server_policy_fit(struct server_policy *p, bool can_filter, bool can_open);
bool net_body_empty(const struct network_body *b); /* says nothing, as if it were not there */
int net_policy_resolve(const struct server_policy *p, const struct network_body *body_or_null,
	struct net_policy *ret, struct err *e);
void net_policy_free(struct net_policy *p);
int net_policy_copy(const struct net_policy *from, struct net_policy *ret, struct err *e);
json_t *net_policy_json(const struct net_policy *p); /* as shown: allow is null but for allowlist */
/* May a sandbox that was made with `n` go on under today's policy (26.3)? */
bool net_policy_still_allowed(const struct server_policy *p, const struct net_policy *n);
extern const char *const net_mode_words[];
int net_mode_of(const char *word); /* -1: unknown */
/* 9.2 for a whole list: cleaned, sorted, unique. `what` names the field in a refusal. */
int net_names_clean(const struct strlist *in, const char *what, struct strlist *ret, struct err *e);
int net_default_list(const struct server_policy *p, struct strlist *ret, struct err *e);

#endif
