/* SPDX-License-Identifier: MIT */
/* Volumes (node contract, 18): a name, a number that the backend knows, a size. Who holds one is not
 * recorded: it is read off the sandboxes that are there, under the registry's lock, so that a holder that
 * is gone holds nothing, whatever became of it.
 * Any thread; the volumes' lock comes after the registry's. */
#ifndef SANDBOXD_CORE_VOLUMES_H
#define SANDBOXD_CORE_VOLUMES_H

#include "common/api/types.h"
#include "sandboxd/core/sandbox.h"

#include <jansson.h>

struct registry;
struct volumes;

int volumes_open(struct core *c, struct volumes **ret, struct err *e); /* before sandboxes are restored */
int volumes_keep(struct core *c, struct err *e); /* tells the backend, before its sweep */
void volumes_close(struct volumes *v);

int volumes_create(struct core *c, const struct volume_body *body, json_t **ret, struct err *e);
json_t *volumes_json(struct core *c); /* an array, by name; NULL: out of memory */
int volumes_delete(struct core *c, const char *name, struct err *e);

/* The mounts that a create asks for, 8.3 step 6; their shape has been checked. 404 for an unknown one. */
int volumes_resolve(const struct core *c, const struct objlist *asked, struct sandbox_volume **ret,
	size_t *ret_n, struct err *e);
/* Step 8, with the registry's lock held: conflict when one is held in a way that excludes this, or is
 * being deleted. */
int volumes_may_mount(struct registry *r, const struct sandbox *s, struct err *e);

json_t *mounts_json(const struct sandbox *s, bool record); /* as shown, or with the numbers */
int mounts_load(const json_t *a, struct sandbox_volume **ret, size_t *ret_n);

#endif
