/* SPDX-License-Identifier: MIT */
/* Pools (node contract, 26.4): sandboxes made ahead, of the policy's images with the default
 * resources and the default network. The backend keeps them; they have no record, no name and no id
 * until a create that fits takes one. Any thread; the pools' lock comes after a sandbox's and the
 * registry's. */
#ifndef SANDBOXD_CORE_POOLS_H
#define SANDBOXD_CORE_POOLS_H

#include "sandboxd/core/sandbox.h"

struct pools;
struct pool_figures {      /* of one pool, or of all together */
	const char *image; /* as long as the pools are open; NULL for all */
	unsigned ready, making, target;
};

/* After the images. A policy with pools needs a backend that keeps them; the daemon has seen to
 * that. */
int pools_open(struct core *c, struct pools **ret, struct err *e);
void pools_close(struct pools *p); /* NULL is fine */
bool pools_has_image(struct core *c, const char *image);
/* Does a sandbox of this kind, without snapshot and volumes, come from a pool? Lock held; its fixed
 * fields and its network are looked at. */
bool pools_fit(struct core *c, const struct sandbox *s);
/* One that was ready has been taken by such a create. */
void pools_taken(struct core *c, const char *image);
struct pool_figures pools_sum(struct core *c);
/* Pool number i; false: there are not so many. */
bool pools_figures(struct core *c, size_t i, struct pool_figures *ret);
json_t *pools_json(struct core *c); /* {image: ready}; NULL when there is none */

#endif
