/* SPDX-License-Identifier: MIT */
/* The last steps of a child of the broker that becomes one of the programs beside a sandbox. */
#ifndef SANDBOXD_PRIV_CHILD_H
#define SANDBOXD_PRIV_CHILD_H

#include "sandboxd/priv/sys.h"

#include <sys/types.h>

/* Puts at most 8 `fds` at 3, 4, … and /dev/null at 0, 1, 2; the rest closes at exec. */
int child_place_fds(const int *fds, int n, struct fail *f);
/* Just /dev/null: nothing is read from, or written to, whatever the server was started with. */
int child_place_null(struct fail *f);
/* Executes the sealed program behind fd with an empty environment; returns only on failure. */
int child_exec(
	int fd, const char *name, const char *a, const char *b, const char *c, struct fail *f);

/* In a child of the broker: it ends with it. Nobody would record what it makes, and the next broker waits for it. */
void child_bind(pid_t broker);
/* A child of ours as a descriptor, or -1. They are reaped by themselves, so that a number soon means somebody else. */
int child_watch(int pid);
/* Ends it, if it still is there. */
void child_kill(int pidfd);

#endif
