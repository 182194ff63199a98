/* SPDX-License-Identifier: MIT */
/* The guest's file tree: an overlay of id-mapped layers and an id-mapped area, with its own proc,
 * dev, tmp, run and sys, everything on mounts that are attached only in the builder's namespace. */
#ifndef SANDBOXD_PRIV_ROOT_H
#define SANDBOXD_PRIV_ROOT_H

#include "sandboxd/priv/sys.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define ROOT_LOWERS_MAX 200
#define ROOT_VOLUMES_MAX 8
struct root_volume {
	int mnt; /* detached; mapped here */
	bool read_only;
	const char *path; /* in the guest, absolute */
};
struct root_spec {
	uid_t uid;  /* first host id of the block */
	int userns; /* maps 0..65535 to uid.. */
	/* detached clones of the layers, top first; mapped here */
	uint32_t nlowers;
	int lowers[ROOT_LOWERS_MAX];
	int area;   /* detached mount of the area; mapped here */
	int64_t memory_mb;
	uint32_t nvolumes;
	struct root_volume volumes[ROOT_VOLUMES_MAX];
};
/* In the broker, once: the mounts that every sandbox gets a read-only clone of (masks, sys),
 * attached at priv/static in the broker's own mount namespace. */
int root_statics(int priv, struct fail *f);
/* In pid 1 of the new pid namespace, in a private mount namespace, current directory priv/, as host
 * root. Afterwards "/" is the guest's root. *proc: an unmasked clone of the new proc. */
int root_build(const struct root_spec *s, int *proc, struct fail *f);

/* Shared by root.c and root_overlay.c; all >= 0 or -errno. */
#define ROOT_SAFE (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
int root_open_in(
	int root, const char *path, int flags); /* O_PATH, links refused, never leaves root */
int root_move_onto(int mnt, int target);
int root_set_attr(int mnt, uint64_t set, int userns); /* userns >= 0: and maps ids */
int root_clone_of(int dir, const char *path);         /* detached; "" is dir itself */
/* The folder, to be read, on a detached mount of its own: for somebody who may be taken over. A root bounds only walks
 * that meet it; from a descriptor that begins on a mount of the host's ".." leads up through all of them. In the mount
 * namespace that dir is of. */
int root_alone(int dir, const char *path);
/* A new file system of `type` with options "k=v", NULL-terminated: a detached mount. */
int root_make_fs(const char *type, const char *const *opts, uint64_t attr, struct fail *f);
int root_overlay(const struct root_spec *s, struct fail *f);
int root_volumes(const struct root_spec *s, int root, struct fail *f); /* root_volumes.c */

#endif
