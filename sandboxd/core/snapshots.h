/* SPDX-License-Identifier: MIT */
/* Snapshots of a sandbox's files and what grows from them (node contract, 16): the sandbox's own changes
 * become a layer, and the snapshot is the chain of that layer above those that the sandbox was made from,
 * with what a new sandbox needs to know of the old one. A fork is a create on that chain.
 * Any thread. The snapshots' lock comes after a sandbox's, before the layers' and the store's. */
#ifndef SANDBOXD_CORE_SNAPSHOTS_H
#define SANDBOXD_CORE_SNAPSHOTS_H

#include "sandboxd/core/sandbox.h"

#include <jansson.h>

struct snapshots;

/* Reads the records; after layers_open. */
int snapshots_open(struct core *c, struct snapshots **ret, struct err *e);
void snapshots_close(struct snapshots *p);
/* The server stops, or starts, and keeps nothing (26.3). Not before all records are loaded. */
void snapshots_forget(struct core *c);

/* Takes one and answers when it is there, whether the client is still there or not. `use`: of a request
 * that counts as use; a sandbox that went to sleep by itself is woken by it. */
int snapshot_take(struct sandbox *s, bool use, json_t **ret, struct err *e);
/* The same by the schedule: the surplus goes in the step in which the new one comes. */
int snapshot_take_scheduled(struct sandbox *s, struct err *e);
/* Keeps the newest `keep` of the scheduled ones of this sandbox. */
int snapshots_prune(struct core *c, const char *sandbox, int64_t keep, struct err *e);
json_t *snapshots_json(struct core *c); /* an array, newest first; NULL: out of memory */
int snapshot_delete(struct core *c, const char *id, struct err *e);

/* What a fork begins with. */
struct snapshot_use {
	char id[SNP_ID_MAX];
	char *image, **image_env;
	struct backend_chain chain; /* referenced */
	double cpus;
	int64_t memory_mb, disk_mb;
};
int snapshot_use(struct core *c, const char *id, struct snapshot_use *ret, struct err *e);
void snapshot_use_free(struct core *c, struct snapshot_use *u); /* and what it refers to */

json_t *snapshotting_json(const struct sandbox *s); /* 16.4; its lock held */

#endif
