/* SPDX-License-Identifier: MIT */
/* The system call filter of guest processes, compiled once at start into a plain program. It is kept
 * short, because the kernel translates it for every sandbox anew, and keeps that in memory. */
#ifndef SANDBOXD_PRIV_FILTER_H
#define SANDBOXD_PRIV_FILTER_H

#include "sandboxd/priv/sys.h"

#include <linux/filter.h>

#define FILTER_MAX 1024

/* APART: for sandboxes with several volumes. Where disks are parts of one file system, data that two of them share is
 * charged to the first as long as the other holds it: a reader could use up the volume that he reads. So no file gets
 * data by sharing. JAIL: for our own children in jails, which start, signal, trace and call nobody. */
enum filter_kind { FILTER_GUEST, FILTER_APART, FILTER_JAIL };
struct filter {
	enum filter_kind kind;
	unsigned short len;
	struct sock_filter code[FILTER_MAX];
};

int filter_compile(struct filter *ret, enum filter_kind kind, struct fail *f);
/* no_new_privs, then the filter, on the calling process. */
int filter_install(const struct filter *flt);

#endif
