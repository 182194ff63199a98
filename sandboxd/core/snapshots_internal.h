/* SPDX-License-Identifier: MIT */
/* What the table of snapshots and the taking of one share. Not for others. */
#ifndef SANDBOXD_CORE_SNAPSHOTS_INTERNAL_H
#define SANDBOXD_CORE_SNAPSHOTS_INTERNAL_H

#include "sandboxd/core/core_internal.h"
#include "sandboxd/core/layers.h"
#include "sandboxd/core/snapshots.h"

struct snapshot {
	/* fixed */
	char id[SNP_ID_MAX], sandbox[SBX_ID_MAX];
	char *image, **image_env;
	struct backend_chain chain; /* referenced */
	double cpus;
	int64_t memory_mb, disk_mb, bytes, created_ns;
	bool scheduled;
	/* under the table's lock */
	bool leaving; /* a transaction without it is on its way to the disk */
	UT_hash_handle hh;
};
struct snapshots {
	pthread_mutex_t lock;
	struct snapshot *by_id; /* under lock */
};

void snapshot_free(struct snapshot *p);
json_t *snapshot_json(const struct snapshot *p);
/* Records it and shows it; with `keep` above 0 the surplus of the sandbox's scheduled ones goes in the
 * same step. Owned by the table on success, with the references to its layers. */
int snapshots_add(struct core *c, struct snapshot *p, int64_t keep, struct err *e);

#endif
