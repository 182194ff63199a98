/* SPDX-License-Identifier: MIT */
/* Filling a layer of an image where it can hurt nobody: a process of its own with the new layer as its
 * whole world, no network, few capabilities, a system call filter and limits.
 *   unpack.c       the jail, and what has to be done outside of it
 *   unpack_tar.c   the archive: names, whiteouts, bounds
 *   unpack_fixup.c what every sandbox needs, whatever the image brought along */
#ifndef SANDBOXD_PRIV_UNPACK_H
#define SANDBOXD_PRIV_UNPACK_H

#include "sandboxd/priv/filter.h"
#include "sandboxd/priv/sys.h"

#include <stdbool.h>

enum unpack_kind {
	UNPACK_ROOTFS, /* a tar of a whole root, with the fixup in it */
	UNPACK_OCI,    /* one layer of several; .wh. entries delete from those below */
	UNPACK_FINISH, /* no archive: the fixup of a whole chain, as a layer on top of it */
	UNPACK_KINDS
};
struct unpack_env {
	int priv, layers;
	const struct filter *filter;
};
struct unpack_job {
	enum unpack_kind kind;
	int in;       /* the archive, a regular file; -1 for FINISH */
	const char *name; /* of the layer to be made, below layers/ */
	uint32_t nchain;
	const uint32_t *chain; /* FINISH: what lies below, top first */
};
struct unpack_result {
	struct fail fail; /* first, as jail_run reads it */
	int64_t bytes;  /* about what it takes on the disk */
	int32_t covers; /* its root hides all that lies below it */
	int32_t pad;
};
/* In a child of the broker: fills layers/<name>, all of it or nothing, synced. */
int unpack_import(const struct unpack_env *env, const struct unpack_job *job,
	struct unpack_result *ret);

/* --- inside the jail --- */
/* Loads the library; before the jail, as there are no libraries in it. */
struct unpack_lib;
const struct unpack_lib *unpack_load(struct fail *f);
/* The archive behind `in` into the tree `root`, which is also "/". Names of folders that hide what lies
 * below them are written to `opaque`, each with a final NUL. */
int unpack_tar(const struct unpack_lib *l, const struct unpack_job *job, int in, int root,
	int opaque, struct unpack_result *ret);
/* view: the tree as a sandbox would see it; out: where changes go, the same or the layer on top. */
int unpack_fixup(int view, int out, struct fail *f);

#endif
