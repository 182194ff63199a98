/* SPDX-License-Identifier: MIT */
/* Images (node contract, 24): a name, its digest, the chain of layers, the environment that its processes
 * get. Names are compared as text, never resolved. NAME without a registry is taken from the image folder
 * when a file of that name is there; everything else is pulled through sbx-pull.
 * Any thread; the images' lock comes after a sandbox's and the registry's, before the layers'. */
#ifndef SANDBOXD_CORE_IMAGES_H
#define SANDBOXD_CORE_IMAGES_H

#include "common/api/types.h"
#include "sandboxd/core/layers.h"

struct images;

struct images_conf {
	const char *image_dir; /* NULL: none */
	const char *image_dir_name; /* as people know it */
	int state_dirfd;       /* below it pull/, where sbx-pull works */
	int pull_fd;           /* socket to sbx-pull, taken over; -1: nothing is pulled */
};
struct image_use {
	struct backend_chain chain; /* referenced: layers_unref when done */
	char **env;                 /* "K=V", NULL-terminated, HOME and USER replaced; image_use_free */
};
/* After layers_open. Reads the records, kind "image", and references their chains. */
int images_open(struct core *c, const struct images_conf *conf, struct images **ret, struct err *e);
void images_close(struct images *i); /* ends installs under way, waits for them */

/* What a create needs. Installs the image first when it is not there; many who ask share one install.
 * With a login the image is pulled with it for this use alone, and nobody else is served what it fetched
 * (22). gone(arg), which may be NULL, is asked now and then; true gives up with conflict. */
int images_use(struct core *c, const char *ref, const struct registry_login_body *login,
	bool (*gone)(void *), void *arg, struct image_use *ret, struct err *e);
void image_use_free(struct core *c, struct image_use *u); /* drops the references, too */

json_t *images_json(struct core *c);               /* {"images": […]} */
int images_install(struct core *c, const char *ref, json_t **ret, struct err *e);
int images_remove(struct core *c, const char *ref, json_t **ret, struct err *e);
/* For GET /v1/node: names that need no pull, sorted. */
json_t *images_ready_json(struct core *c);
bool images_is_ready(struct core *c, const char *ref);
bool images_is_local(struct core *c, const char *ref); /* the image folder has one of this name */
bool images_can_pull(const struct core *c);

#endif
