/* SPDX-License-Identifier: MIT */
/* The linux backend's part for images: layers are unpacked by the broker. */
#ifndef SANDBOXD_BACKEND_LINUX_IMAGES_H
#define SANDBOXD_BACKEND_LINUX_IMAGES_H

#include "sandboxd/backend/backend.h"
#include "sandboxd/backend/linux/ask.h"

int images_layer_import(struct ask *a, uint32_t num, enum backend_layer_kind kind,
	const struct backend_chain *below, int fd, int64_t *bytes, bool *covers, struct err *e);
void images_expect(struct ask *a, const struct backend_spec *shape);

#endif
