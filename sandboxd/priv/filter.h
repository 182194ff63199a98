/* SPDX-License-Identifier: MIT */
/* The system call filter of guest processes, compiled once at start into a plain program. It is kept
 * short, because the kernel translates it for every sandbox anew, and keeps that in memory. */
#ifndef SANDBOXD_PRIV_FILTER_H
#define SANDBOXD_PRIV_FILTER_H

#include "sandboxd/priv/sys.h"

#include <linux/filter.h>

#define FILTER_MAX 1024

struct filter {
	unsigned short len;
	struct sock_filter code[FILTER_MAX];
};

int filter_compile(struct filter *ret, struct fail *f);
/* no_new_privs, then the filter, on the calling process. */
int filter_install(const struct filter *flt);

#endif
