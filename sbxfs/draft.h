/* SPDX-License-Identifier: MIT */
/* Sandboxes that are not made yet: new/NAME, a spec in the making. */
#ifndef SBXFS_DRAFT_H
#define SBXFS_DRAFT_H

#include "sbxfs/mount.h"

int drafts_new(struct drafts **ret);
void drafts_free(struct drafts *d);
bool draft_exists(struct mount *m, const char *name);
int draft_make(struct req *q, const char *name);
int draft_drop(struct mount *m, const char *name);
/* n-th name; false: no more. */
bool draft_nth(struct mount *m, size_t n, char *ret_name, size_t size);
/* A deep copy of the spec; NULL: no such draft. */
json_t *draft_spec(struct mount *m, const char *name);
/* Changes the spec where it is, under the lock: fn gives 0 or -errno, and does not wait. -ESTALE: no such draft. */
int draft_edit(struct mount *m, const char *name, int (*fn)(json_t *spec, void *arg), void *arg);

/* POST /v1/sandboxes; the spec is taken. Remembers the id as the user's last. */
int sandbox_make(struct req *q, json_t *spec);
void created_get(struct mount *m, uid_t uid, char *out, size_t size);

#endif
