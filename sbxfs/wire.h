/* SPDX-License-Identifier: MIT */
/* What wire.c and wire_attr.c share. */
#ifndef SBXFS_WIRE_H
#define SBXFS_WIRE_H

#include <jansson.h>

/* The bytes of `key`, or of `key`_b64 when it is there; the caller frees. NULL: neither, or a NUL. */
char *wire_bytes(const json_t *o, const char *key);

#endif
