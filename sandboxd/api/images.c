/* SPDX-License-Identifier: MIT */
/* The three routes of images (node contract, 24). */
#include "sandboxd/api/call.h"

#include "common/sys/mem.h"
#include "sandboxd/core/images.h"

int handle_image_list(struct call *c, struct err *e)
{
	(void)e;
	return reply_json(c, 200, images_json(c->core));
}

int handle_image_install(struct call *c, struct err *e)
{
	struct image_body body = { 0 };
	json_t *o = NULL;
	int rc;

	if (call_decode(c, image_fields, &body, e) < 0)
		return -1;
	rc = images_install(c->core, body.image, &o, e);
	schema_free(image_fields, &body);
	return rc < 0 ? -1 : reply_json(c, 202, o);
}

int handle_image_remove(struct call *c, struct err *e)
{
	const char *ref = NULL;
	json_t *o = NULL;
	size_t len;

	if (call_query(c, "image", &ref, &len, e) < 0)
		return -1;
	if (images_remove(c->core, ref, &o, e) < 0)
		return -1;
	return reply_json(c, 200, o);
}
