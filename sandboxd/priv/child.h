/* SPDX-License-Identifier: MIT */
/* The last steps of a child of the broker that becomes one of the programs beside a sandbox. */
#ifndef SANDBOXD_PRIV_CHILD_H
#define SANDBOXD_PRIV_CHILD_H

#include "sandboxd/priv/sys.h"

/* Puts at most 8 `fds` at 3, 4, … and /dev/null at 0, 1, 2; the rest closes at exec. */
int child_place_fds(const int *fds, int n, struct fail *f);
/* Executes the sealed program behind fd with an empty environment; returns only on failure. */
int child_exec(
	int fd, const char *name, const char *a, const char *b, const char *c, struct fail *f);

#endif
