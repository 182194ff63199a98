/* SPDX-License-Identifier: MIT */
/* The pool: one file of the state directory with a btrfs inside, for hosts whose own file system
 * has no quotas that work. Its space is really taken (fallocate) and it grows in steps while the
 * host has room, so that a full host makes it refuse writes and never fail them. It is mounted in
 * the broker's own mount namespace only; a broker that is started while sandboxes run finds the
 * same device. */
#ifndef SANDBOXD_PRIV_POOL_H
#define SANDBOXD_PRIV_POOL_H

#include "sandboxd/priv/area.h"

bool pool_exists(int priv);
/* Makes the file when there is none. Sets pool, image, loop, unit. */
int pool_open(struct area_store *s, struct fail *f);
/* forget: it was made just now and is of no use. */
void pool_close(struct area_store *s, bool forget);
enum pool_state { POOL_FINE, POOL_LOW, POOL_URGENT };
enum pool_state pool_look(const struct area_store *s, int64_t *left); /* bytes */
bool pool_may_grow(const struct area_store *s); /* has the host room? */
/* What was removed is given back by the file system when it comes to it, up to half a minute later:
 * this makes it come to it. */
int pool_reclaim(const struct area_store *s);
int pool_grow(const struct area_store *s, struct fail *f);

#endif
