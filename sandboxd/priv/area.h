/* SPDX-License-Identifier: MIT */
/* Disk areas: where a sandbox's own files live, with a size that holds. A provider makes them:
 *   xfs, ext4  a folder with a project quota, where the state's file system has these switched on
 *   loop       a sparse ext4 image per area, mounted through a loop device with direct I/O
 *   tmpfs      memory; only when the operator asks for it by name
 * Self-tests choose; a provider that does not hold its limit is not used. */
#ifndef SANDBOXD_PRIV_AREA_H
#define SANDBOXD_PRIV_AREA_H

#include "sandboxd/priv/sys.h"

struct area_store;
struct area_provider {
	const char *name;
	int automatic; /* may be chosen without being named */
	int (*test)(struct area_store *s, struct fail *f);
	/* *ret: a detached mount whose root is the empty area */
	int (*make)(const struct area_store *s, const char *name, int64_t disk_mb, uint32_t num,
		int *ret, struct fail *f);
};
struct area_store {
	const struct area_provider *provider;
	int areas, templates; /* folders below priv/ */
};
extern const struct area_provider area_loop, area_xfs, area_ext4, area_tmpfs;

/* want: a provider's name, or NULL for the first that passes its test. */
int area_open(struct area_store *s, int priv_fd, const char *want, struct fail *f);
/* num: unique among living areas (the id block); quota providers use it as the project. */
int area_make(const struct area_store *s, const char *name, int64_t disk_mb, uint32_t num, int *ret,
	struct fail *f);
int area_rename(const struct area_store *s, const char *from, const char *to);
int area_remove(const struct area_store *s, const char *name);
void area_each(const struct area_store *s, void (*fn)(void *arg, const char *name), void *arg);

#endif
