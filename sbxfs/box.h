/* SPDX-License-Identifier: MIT */
/* What the server says about its sandboxes and other records, kept for a moment or until something
 * changes. JSON values are shared and must not be changed; callers drop their reference. */
#ifndef SBXFS_BOX_H
#define SBXFS_BOX_H

#include "sbxfs/mount.h"

int boxes_new(struct boxes **ret);
void boxes_free(struct boxes *b);

/* The object by id or name. */
int box_get(struct req *q, const char *ref, json_t **ret);
/* The same, when it lives: -ESTALE tells a shell in its directory that it has ended. */
int box_live(struct req *q, const char *id, json_t **ret);
/* All of them, an array, newest first. */
int box_all(struct req *q, json_t **ret);
/* Any other record or list, by its encoded path, which is taken. */
int record_get(struct req *q, char *path, json_t **ret);
/* It ended: what this mount keeps about it goes. */
void box_ended(struct mount *m, const char *id);
/* Who reads what a sandbox has, changes a part of it and sends the whole is alone with it from the reading to the
 * answer, which box_edited() says is there. -EINTR: who waits wants to wait no longer. On threads of the pool only. */
int box_edit(struct req *q, const char *id);
void box_edited(struct req *q, const char *id);
/* PATCH with a body that is taken. */
int box_patch(struct req *q, const char *id, json_t *body);
/* The list's watch told of that record. False: it is what is kept, and believed, already. */
bool box_heard(struct mount *m, json_t *o);

/* Members of an object, checked; "" when absent or not fit. */
const char *box_id(const json_t *o);
const char *box_name(const json_t *o);
bool box_is_live(const json_t *o);
/* The name of its directory: its name, or its id when it has none or a word of the root has it. */
const char *box_entry(const json_t *o);
/* The same while it lives; else "": the root has no directory of it. */
const char *box_listed(const json_t *o);

/* The directory's name of an id as it was last heard, for people; the id when nothing was. */
void box_shown(struct mount *m, const char *id, char *out, size_t size);

#endif
