/* SPDX-License-Identifier: MIT */
/* What this mount keeps about snapshots: names that it gave, and views. The server knows snapshots by
 * id only. A view is a sandbox of its own, without a network, forked from a snapshot to read it. */
#ifndef SBXFS_SNAPS_H
#define SBXFS_SNAPS_H

#include "sbxfs/mount.h"

int snaps_new(struct mount *m, struct snaps **ret);
/* Ends the views. */
void snaps_stop(struct mount *m);
void snaps_free(struct snaps *s); /* NULL is fine */

/* Takes a snapshot and names it; `name` may be "". Fills ret_id (SBX_ID_MAX bytes). */
int snap_take(struct req *q, const char *box, const char *name, char *ret_id);
/* The server has it no more: its name is free. */
void snap_forget(struct mount *m, const char *id);
int snap_delete(struct req *q, const char *id);
/* The id behind a name of that sandbox's, and the name of an id; false: none. */
bool snap_by_name(struct mount *m, const char *box, const char *name, char *ret_id);
bool snap_name(struct mount *m, const char *box, const char *id, char *ret_name, size_t size);
/* The server's object; -ENOENT. Shared, not to be changed. */
int snap_get(struct req *q, const char *id, json_t **ret);
/* All of them; an array. */
int snap_all(struct req *q, json_t **ret);
bool snap_id_ok(const char *id); /* snp_ + 16 hex */

/* The sandbox that shows a snapshot's files; -ENOENT: there is none. */
int view_get(struct req *q, const char *id, char *ret_box);
int view_make(struct req *q, const char *id);
int view_end(struct req *q, const char *id);

#endif
