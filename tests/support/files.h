/* SPDX-License-Identifier: MIT */
/* A file worker of its own on a temporary folder, without a shim: the test hands it connections. */
#ifndef TESTS_SUPPORT_FILES_H
#define TESTS_SUPPORT_FILES_H

#include "sandboxd/backend/guestfs.h"

#include <sys/types.h>

struct files_rig {
	char dir[64]; /* the guest's root */
	char out[64]; /* a folder beside it, to which nothing may lead */
	int control;
	pid_t pid;
	struct guestfs *fs;
};
/* Fails the test when the worker does not start. mode: "fake" or "linux". expire_secs 0: the
 * worker's own. */
void files_rig_init(struct files_rig *r, const char *mode, unsigned expire_secs);
void files_rig_fini(struct files_rig *r);
/* Formats a path below the root into one of eight rotating buffers. */
const char *files_rig_path(struct files_rig *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* What the host sees: writes and reads whole files, fails the test on errors. */
void files_rig_write(const char *path, const void *buf, size_t len);
char *files_rig_read(const char *path, size_t *ret_len); /* NULL: cannot be read; caller frees */
/* Removes a folder and what is in it. */
void files_rig_remove(const char *dir);
/* Entries of a host folder, without . and .. */
int files_rig_count(const char *dir);

/* Set-up and tear-down of a cmocka test: *state is a rig in fake mode. */
int files_rig_up(void **state);
int files_rig_down(void **state);

/* Carries out, expects success. */
struct guestfs_result must(struct files_rig *r, enum files_op op, struct guestfs_args a);
#define MUST(r, op, ...)                                                                           \
	do {                                                                                       \
		struct guestfs_result res_ = must(r, op, (struct guestfs_args){ __VA_ARGS__ });    \
		guestfs_result_free(&res_);                                                        \
	} while (0)
/* Expects this refusal; sys 0: any. */
void refuses(
	struct files_rig *r, enum files_op op, struct guestfs_args a, enum err_code code, int sys);
#define REFUSES(r, op, code, sys, ...)                                                             \
	refuses(r, op, (struct guestfs_args){ __VA_ARGS__ }, code, sys)
/* A handle, following links, made 0644. */
uint64_t opened(struct files_rig *r, const char *path, unsigned flags);
void put(struct files_rig *r, const char *path, const char *text); /* whole file */
void assert_file(const char *host_path, const char *want);

#endif
