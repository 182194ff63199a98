/* SPDX-License-Identifier: MIT */
/* Parts of the fake backend: folders, programs, records of what runs. */
#ifndef SANDBOXD_BACKEND_FAKE_FAKE_H
#define SANDBOXD_BACKEND_FAKE_FAKE_H

#include "sandboxd/backend/backend.h"

#include <sys/types.h>

struct backend {
	int state_dirfd;
	char *state_dir, *libexec_dir;
};
enum fake_part { FAKE_SHIM, FAKE_INIT, FAKE_WORKER, FAKE_PARTS };
struct fake_run { /* contents of run/<id>/pid */
	uint64_t generation;
	pid_t pid[FAKE_PARTS];
	uint64_t start[FAKE_PARTS];
};

/* tree.c */
int tree_make(int dirfd, const char *name, const char *hostname, int *ret_root_fd, struct err *e);
int fake_tree_remove(int dirfd, const char *name); /* 0 or -errno; follows nothing, leaves no mount */

/* launch.c: starts the three programs; they outlive the caller. */
int fake_launch(const struct backend *b, const struct backend_spec *spec, int run_dirfd, int root_fd,
	struct fake_run *ret, struct err *e);
/* Ends what `r` names, if it is still the same; returns when nothing of it runs. */
void fake_end(const struct fake_run *r);
bool fake_runs(const struct fake_run *r);
int fake_run_write(int run_dirfd, const struct fake_run *r);
bool fake_run_read(int run_dirfd, struct fake_run *ret);

#endif
