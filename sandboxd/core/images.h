/* SPDX-License-Identifier: MIT */
/* Images (node contract, 24): a name, its digest, the chain of layers, the environment that its processes
 * get. Names are compared as text, never resolved. NAME without a registry is NAME.tar in the image folder
 * when that exists; everything else is pulled through sbx-pull. */
#ifndef SANDBOXD_CORE_IMAGES_H
#define SANDBOXD_CORE_IMAGES_H

#include "common/api/types.h"
#include "sandboxd/core/layers.h"

struct images;

struct image_use {
	struct backend_chain chain; /* referenced: layers_unref when done */
	char **env;                 /* "K=V", NULL-terminated, HOME and USER replaced; image_use_free */
};
int images_open(struct core *c, struct images **ret, struct err *e); /* after layers_open */
void images_close(struct images *i); /* ends installs under way */

/* What a create needs. Installs the image first when it is not there; many who ask share one install.
 * With a login the image is pulled with it for this use alone, and nobody else is served what it fetched
 * (22). gone(arg) is asked now and then; true gives up with conflict. */
int images_use(struct core *c, const char *ref, const struct registry_login_body *login,
	bool (*gone)(void *), void *arg, struct image_use *ret, struct err *e);
void image_use_free(struct core *c, struct image_use *u); /* drops the references, too */

json_t *images_json(struct core *c);               /* {"images": […]} */
int images_install(struct core *c, const char *ref, json_t **ret, struct err *e);
int images_remove(struct core *c, const char *ref, json_t **ret, struct err *e);
/* For GET /v1/node: names that need no pull, sorted. */
json_t *images_ready_json(struct core *c);
bool images_is_ready(struct core *c, const char *ref);

#endif
