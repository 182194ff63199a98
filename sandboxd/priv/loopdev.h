/* SPDX-License-Identifier: MIT */
/* Loop devices: attaching an image file, and finding the device that already carries it. A device
 * clears itself when its last user goes, so nothing is left to detach. */
#ifndef SANDBOXD_PRIV_LOOPDEV_H
#define SANDBOXD_PRIV_LOOPDEV_H

#include "sandboxd/priv/sys.h"

#define LOOPDEV_PATH_MAX 32
/* Both: a descriptor that keeps the device, and its path. `name` is the file's own name, by which
 * foreign devices are passed over. */
int loopdev_attach(int image, char path[LOOPDEV_PATH_MAX], struct fail *f);
int loopdev_find(int image, const char *name, char path[LOOPDEV_PATH_MAX]); /* -ENOENT: none */
/* The device that carries the image, attached if there is none. Two who ask at the same time get
 * the same one. */
int loopdev_get(int image, const char *name, char path[LOOPDEV_PATH_MAX], struct fail *f);
/* A mount of the device's file system, detached; flags: NULL-terminated. */
int loopdev_mount(const char *type, const char *path, const char *const *flags, struct fail *f);

#endif
