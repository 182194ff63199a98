/* SPDX-License-Identifier: MIT */
/* The system call filter of guest processes, compiled once at start into a plain program. It is kept
 * short, because the kernel translates it for every sandbox anew, and keeps that in memory. */
#ifndef SANDBOXD_PRIV_FILTER_H
#define SANDBOXD_PRIV_FILTER_H

#include "sandboxd/priv/sys.h"

#include <linux/filter.h>
#include <stdbool.h>

#define FILTER_MAX 1024

struct filter {
	bool apart; /* no file of one disk gets data of another by sharing them */
	unsigned short len;
	struct sock_filter code[FILTER_MAX];
};

/* apart: for sandboxes with several volumes. Where disks are parts of one file system, data that two of them share is
 * charged to the first as long as the other holds it: a reader could use up the volume that he reads. */
int filter_compile(struct filter *ret, bool apart, struct fail *f);
/* no_new_privs, then the filter, on the calling process. */
int filter_install(const struct filter *flt);

#endif
