/* SPDX-License-Identifier: MIT */
/* Images and volumes, as others need them. */
#ifndef SBXFS_RES_H
#define SBXFS_RES_H

#include "sbxfs/mount.h"

/* The array `key` of a list of the server's, shared; -EPROTO when it is none. */
int list_get(struct req *q, const char *path, const char *key, json_t **ret);
/* The reference that a directory's name stands for; false: none. */
bool image_ref(const char *name, char *out, size_t size);
/* The server's object by a directory's name. */
int image_get(struct req *q, const char *name, json_t **ret);
/* size: MiB, NULL: the server's default. */
int volume_make(struct req *q, const char *name, json_t *size);

#endif
