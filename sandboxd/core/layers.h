/* SPDX-License-Identifier: MIT */
/* The layer store's rules: which trees there are, and for whom. A layer is a number, kept by the backend;
 * its record is written before the tree is made, and goes before the tree goes, so that a tree without a
 * record is garbage by definition. Who needs a layer is computed: images and snapshots from their records,
 * sandboxes from theirs, and leases of work under way; a layer that nobody needs is dropped in the
 * background.
 * Any thread; the layers' lock comes after a sandbox's, the registry's and the images'. */
#ifndef SANDBOXD_CORE_LAYERS_H
#define SANDBOXD_CORE_LAYERS_H

#include "sandboxd/backend/backend.h"

#include <jansson.h>

struct core;
struct layers;

enum layer_source { LAYER_OF_IMAGE, LAYER_OF_SNAPSHOT };

/* Reads the records, kind "layer"; those of halves go. Nothing is referenced yet: the owners do that as
 * they load. */
int layers_open(struct core *c, struct layers **ret, struct err *e);
/* Before the backend's sweep: tells it which layers have a record. */
int layers_keep(struct core *c, struct err *e);
/* All owners have loaded: what nobody has referenced is dropped from now on. */
int layers_started(struct core *c, struct err *e);
/* From here on nothing is dropped any more, as the owners let go of what they have in memory. What nobody
 * needs is left to the next start. NULL is fine. */
void layers_stop(struct layers *l);
void layers_close(struct layers *l);

/* A new number with a durable record, leased once (layers_unref_one ends it). `key`: the content's digest
 * ("sha256:…"), verified by who calls, under which it is found again; NULL: it is found by nobody. */
int layers_new(struct core *c, enum layer_source source, const char *key, uint32_t *ret, struct err *e);
/* The tree is complete and on the disk. The record follows with the next durable one, which is the
 * owner's. `covers`: nothing of the layers below it can be seen. */
int layers_ready(struct core *c, uint32_t num, int64_t bytes, bool covers, struct err *e);
/* A complete layer with this content, leased once; false: there is none. */
bool layers_find(struct core *c, const char *key, uint32_t *ret);
bool layers_covers(struct core *c, uint32_t num);
/* Every layer of the chain is there and complete. */
bool layers_whole(struct core *c, const struct backend_chain *chain);
/* One reference on each of the chain; every ref is paired with one unref. */
void layers_ref(struct core *c, const struct backend_chain *chain);
void layers_unref(struct core *c, const struct backend_chain *chain);
void layers_unref_one(struct core *c, uint32_t num);
/* These references go as soon as somebody who has ended is cleaned up; layers_left in place of the unref. */
void layers_leave(struct core *c, const struct backend_chain *chain);
void layers_left(struct core *c, const struct backend_chain *chain);
int64_t layers_bytes(struct core *c, const struct backend_chain *chain);
/* What would be freed if this chain lost one reference, and all that leave were gone. */
int64_t layers_freeable(struct core *c, const struct backend_chain *chain);

/* Chains in records: [3,1]. */
json_t *chain_json(const struct backend_chain *chain);
int chain_load(const json_t *a, struct backend_chain *ret);

#endif
