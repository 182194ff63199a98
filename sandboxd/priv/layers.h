/* SPDX-License-Identifier: MIT */
/* Trees of the layer store by their number: those of images lie in priv/layers, those of snapshots
 * there, too, or where the disk provider makes them. Nobody else has to know which is which. Only
 * the front's records decide which layers and volumes there are; a sweep removes the rest. */
#ifndef SANDBOXD_PRIV_LAYERS_H
#define SANDBOXD_PRIV_LAYERS_H

#include "sandboxd/priv/build.h"

#define LAYER_NAME_MAX 16
void layer_name(char name[LAYER_NAME_MAX], uint32_t num);
/* O_PATH of the folder that goes below an overlay; -ENOENT when there is no such layer. */
int layer_open(const struct build_env *env, uint32_t num);

/* Numbers that the front has named since the start. */
struct keep_nums {
	bool named; /* at all: without it nothing of the kind is removed */
	uint32_t *nums;
	size_t n, room;
};
int keep_nums_add(struct keep_nums *k, const uint32_t *nums, size_t n);
void keep_nums_free(struct keep_nums *k);
/* Takes layers and volumes that were not kept, and halves of them, out of sight. Quick, and before
 * anything new is made; */
void layers_sweep(const struct build_env *env, struct keep_nums *layers, struct keep_nums *volumes);
/* then removes what is out of sight. Slow. */
void layers_clear(const struct build_env *env);

#endif
