/* SPDX-License-Identifier: MIT */
/* The system call filters of guest processes, compiled once at start into plain programs: putting
 * them on costs two calls and nothing is computed for a sandbox. */
#ifndef SANDBOXD_PRIV_FILTER_H
#define SANDBOXD_PRIV_FILTER_H

#include "sandboxd/priv/sys.h"

#include <linux/filter.h>

enum filter_kind { FILTER_CALLS, FILTER_ARGS, FILTER_KINDS };
struct filter {
	struct sock_fprog
		prog[FILTER_KINDS]; /* the list of calls; what their arguments may not be */
};

/* Compiles in a child process, so that the memory that takes is not carried by every fork. */
int filter_compile(struct filter *ret, struct fail *f);
/* no_new_privs, then both filters, on the calling process. */
int filter_install(const struct filter *flt);

#endif
