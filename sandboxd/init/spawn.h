/* SPDX-License-Identifier: MIT */
/* Starts one guest process, vfork-style: the child borrows init's memory until it has executed, so
 * that its failure is a plain store, and nothing is copied. */
#ifndef SANDBOXD_INIT_SPAWN_H
#define SANDBOXD_INIT_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SPAWN_ID_KEEP 0xffffffffu

struct spawn_ids {
	uint32_t uid, gid;
	bool change;
};
struct spawn {
	struct spawn_ids ids;
	uint64_t mark;
	int root_fd;             /* cwd is resolved below it */
	const char *fake_root;   /* NULL, or the path behind root_fd */
	int stdio[3];            /* all above 2; tty: the same one */
	int cgroup_fd;           /* cgroup.procs, or -1 */
	bool tty;
	const char *cwd;
	char *const *argv, *const *env;
	int stage, error;        /* out: enum init_stage and errno of a failure */
};
/* The pid, or -1 with stage and error. */
pid_t spawn(struct spawn *s);

#endif
