/* SPDX-License-Identifier: MIT */
/* Ids, names and what is given away, under one lock that comes after a sandbox's own. The registry
 * holds one reference to each of its sandboxes; what it returns is referenced for the caller. */
#ifndef SANDBOXD_CORE_REGISTRY_H
#define SANDBOXD_CORE_REGISTRY_H

#include "sandboxd/core/sandbox.h"

struct registry {
	pthread_mutex_t lock;
	/* under lock */
	struct sandbox *by_id, *by_name; /* by_name: live ones only */
	bool cordoned;
	uint64_t last_seq;
	unsigned live, running, ended;
	double cpus;                     /* given to live sandboxes */
	int64_t memory_mb, disk_mb;
};
struct registry_figures {
	bool cordoned;
	unsigned live, running, ended;
	double cpus;
	int64_t memory_mb, disk_mb;
};

void registry_init(struct registry *r);
void registry_fini(struct registry *r); /* drops every reference */

/* 8.3 step 8: unavailable when cordoned, conflict when the name is taken or a volume held by another; else
 * it is listed, name and volumes are claimed and s->seq is set. `restored`: only the name is asked for. */
int registry_claim(struct registry *r, struct sandbox *s, const char *name, bool restored, struct err *e);
/* A create lands: unavailable when a cordon came in between, then nothing is changed. */
int registry_land(struct registry *r, struct sandbox *s, struct err *e);
/* An ended sandbox that is listed again after a restart. */
void registry_add_ended(struct registry *r, struct sandbox *s, const char *name);
/* It has ended: name and resources are free at once, volumes when no process of it runs any more. */
void registry_end(struct registry *r, struct sandbox *s, bool was_running);
void registry_free_mounts(struct registry *r, struct sandbox *s);
/* One has fallen asleep (-1) or woken (1); it stays live. */
void registry_running(struct registry *r, int change);
/* It was never there (failed create); drops the registry's reference. */
void registry_remove(struct registry *r, struct sandbox *s);
/* Would registry_rename say that the name is taken? It may be, a moment later. */
int registry_name_free(struct registry *r, const struct sandbox *s, const char *name, struct err *e);
/* One that has ended can be given back the name that it had, whoever has it now. */
int registry_rename(struct registry *r, struct sandbox *s, const char *name_or_empty, struct err *e);
void registry_cordon(struct registry *r, bool on);

struct sandbox *registry_find(struct registry *r, const char *ref); /* NULL: none */
/* All, newest first (created_at, then id). Caller unrefs each and frees. -1: out of memory. */
int registry_all(struct registry *r, struct sandbox ***ret, size_t *ret_n);
void registry_figures(struct registry *r, struct registry_figures *ret);

#endif
