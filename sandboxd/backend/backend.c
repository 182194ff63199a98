/* SPDX-License-Identifier: MIT */
#include "sandboxd/backend/backend.h"

#include "common/sys/mem.h"

void backend_image_free(struct backend_image *img)
{
	char **env = steal(img->env);

	for (size_t i = 0; env && env[i]; i++)
		free(env[i]);
	free(env);
}
