/* SPDX-License-Identifier: MIT */
/* Slow operations, each in a child of the broker that does it, says how it went, and goes: sealing
 * a running sandbox's files into a layer, making and removing volumes, removing layers. The
 * broker's loop never waits for them. */
#ifndef SANDBOXD_PRIV_WORKS_H
#define SANDBOXD_PRIV_WORKS_H

#include "sandboxd/priv/build.h"

enum {
	WORK_CLEAR = PRIV_OP_COUNT, /* what a sweep has taken out of sight is removed */
	WORK_UNMADE,                /* num: what an unpacker that died has left of a layer */
	WORK_GROW,                  /* the pool */
	WORK_RECLAIM,               /* what was removed from it */
	WORK_LIMIT, /* id: its disk is given its size anew */
};
struct work {
	uint32_t op;  /* of the request, or one of the broker's own */
	uint32_t num; /* of the layer or volume */
	int64_t disk_mb;
	char id[PRIV_ID_MAX];
	uint8_t secret[16]; /* EGRESS_ADD */
	uint64_t generation;
};
struct work_result {
	struct fail fail;
	int64_t bytes;
};
/* In the child. */
void seal_work(const struct build_env *env, const struct work *w, struct work_result *ret);
void layer_drop_work(const struct build_env *env, const struct work *w, struct work_result *ret);
void volume_make_work(const struct build_env *env, const struct work *w, struct work_result *ret);
void egress_add_work(const struct build_env *env, const struct work *w, struct work_result *ret);
void limit_work(const struct build_env *env, const struct work *w, struct work_result *ret);
void volume_drop_work(const struct build_env *env, const struct work *w, struct work_result *ret);

/* A tree of a sandbox's own changes, copied as it is: owners, modes, times, extended attributes,
 * hard links, holes, deletions. `from`: the tree; `to`: an empty folder. Not more than a
 * disk of that size can hold. In a jail; seal_copy.c. */
int seal_copy(const struct build_env *env, int from, int to, int64_t disk_mb, struct fail *f);
/* Bytes on the disk of a tree that nobody changes; hard links count once. */
int seal_measure(int dir, int64_t *bytes);

/* Added to the limit of every disk that has been sealed: a new broker knows them by that. */
#define LIMIT_MARK 4096
/* The limit, in bytes, of a disk of that size of whose data snapshots hold `held`, and cannot hold more than `most`; a negative
 * most is 0. limits.c. */
int64_t limit_of(int64_t size, int64_t held, int64_t most);

/* What a helper that died has left standing still goes on. */
void seal_recover(const struct build_env *env, const char *id);
void seal_recover_all(const struct build_env *env);

#define VOLUME_NAME_MAX 24
void volume_name(char name[VOLUME_NAME_MAX], uint32_t num);
/* In a builder: a detached mount of the volume. */
int volume_open(const struct build_env *env, uint32_t num, struct fail *f);

#endif
