/* SPDX-License-Identifier: MIT */
/* Unpacking an image's tar where it can hurt nobody: a process of its own with the new layer as its
 * whole world, no network, few capabilities, a system call filter and limits. */
#ifndef SANDBOXD_PRIV_UNPACK_H
#define SANDBOXD_PRIV_UNPACK_H

#include "sandboxd/priv/filter.h"

#include <sys/stat.h>

struct unpack_env {
	int priv, layers;
	const struct filter *filter;
};
/* "<image>.<16 hex>": the same file gives the same name, a replaced file another. */
void unpack_layer_name(char *buf, size_t size, const char *image, const struct stat *st);
/* In a child of the broker: fills layers/<layer>, all of it or nothing, synced. */
int unpack_import(const struct unpack_env *env, int tar, const char *layer, struct fail *f);
/* unpack_fixup.c, inside the jail: what every sandbox needs, whatever the image brought along. */
int unpack_fixup(int root, struct fail *f);

#endif
