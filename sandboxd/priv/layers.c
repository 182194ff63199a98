/* SPDX-License-Identifier: MIT */
/* Finding layers, and removing what no record names. */
#include "sandboxd/priv/layers.h"

#include <stdio.h>

void layer_name(char name[LAYER_NAME_MAX], uint32_t num)
{
	snprintf(name, LAYER_NAME_MAX, "%u", num);
}

int layer_open(const struct build_env *env, uint32_t num)
{
	char name[LAYER_NAME_MAX];

	layer_name(name, num);
	return open_below(env->layers, name, O_PATH | O_DIRECTORY, 0);
}
