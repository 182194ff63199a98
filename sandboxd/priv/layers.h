/* SPDX-License-Identifier: MIT */
/* Trees of the layer store by their number: those of images lie in priv/layers, those of snapshots
 * where the disk provider keeps them. Nobody else has to know which is which. */
#ifndef SANDBOXD_PRIV_LAYERS_H
#define SANDBOXD_PRIV_LAYERS_H

#include "sandboxd/priv/build.h"

#define LAYER_NAME_MAX 16
void layer_name(char name[LAYER_NAME_MAX], uint32_t num);
/* O_PATH of the folder that goes below an overlay; -ENOENT when there is no such layer. */
int layer_open(const struct build_env *env, uint32_t num);

#endif
