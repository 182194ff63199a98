/* SPDX-License-Identifier: MIT */
/* Disk areas: where a sandbox's own files live, and what a volume is, with a size that holds. A
 * provider makes them:
 *   btrfs      a subvolume with a quota, on the state's own file system or in a pool that is one
 * file xfs, ext4  a folder with a project quota, where the state's file system has these switched
 * on loop       a sparse ext4 image per area, mounted through a loop device with direct I/O tmpfs
 * memory; only when the operator asks for it by name Self-tests choose; a provider that does not
 * hold its limit is not used. */
#ifndef SANDBOXD_PRIV_AREA_H
#define SANDBOXD_PRIV_AREA_H

#include "sandboxd/priv/sys.h"

#include <stdbool.h>

struct area_store;
struct area_spec {
	const char *name;
	int64_t disk_mb;
	uint32_t num; /* unique among living areas; quota providers use it as the project */
	bool volume;  /* outlives sandboxes: consistent after a power loss */
};
#define AREA_VOLUME_NUM 0x00100000u /* added to a volume's number: above all id blocks */

struct area_usage {
	int64_t used, size; /* bytes */
	int64_t changed;    /* a stamp that differs once anything in it has changed */
};
struct area_provider {
	const char *name;
	bool automatic; /* may be chosen without being named */
	int (*test)(struct area_store *s, struct fail *f);
	/* *ret: a detached mount whose root is the empty area */
	int (*make)(
		const struct area_store *s, const struct area_spec *a, int *ret, struct fail *f);
	/* The following may be NULL. */
	/* Another mount of an area that may be in use: the same super block. Without it an area can
	 * neither be a snapshot's source nor a volume. */
	int (*reopen)(const struct area_store *s, const char *name, int *ret, struct fail *f);
	int (*remove)(const struct area_store *s, const char *name); /* else the tree is removed */
	/* The area as it is now becomes s->sealed/<layer>, on the disk; else it is copied. */
	int (*seal)(
		const struct area_store *s, const char *name, const char *layer, struct fail *f);
	int (*drop)(const struct area_store *s, const char *layer);
	/* Where the file system's own figures are those of all areas together. */
	int (*usage)(const struct area_store *s, const char *name, struct area_usage *ret);
	int (*limit)(const struct area_store *s, const char *name, int64_t bytes);
};
struct area_store {
	const struct area_provider *provider;
	int priv;
	int areas, templates; /* folders */
	int plain;            /* priv/areas; the same as areas unless these lie in a pool */
	int sealed;           /* snapshots' layers where the provider makes them, or -1 */
	/* the pool, pool.c */
	int pool;        /* its root, -1 */
	int image, loop; /* the file, the device */
	int64_t unit;    /* it grows by that much */
	char fsid[40];   /* btrfs: where its figures are in sysfs */
};
extern const struct area_provider area_btrfs, area_loop, area_xfs, area_ext4, area_tmpfs;

/* want: a provider's name, or NULL for the first that passes its test. */
int area_open(struct area_store *s, int priv_fd, const char *want, struct fail *f);
int area_make(const struct area_store *s, const struct area_spec *a, int *ret, struct fail *f);
int area_reopen(const struct area_store *s, const char *name, int *ret, struct fail *f);
int area_rename(const struct area_store *s, const char *from, const char *to);
int area_remove(const struct area_store *s, const char *name);
void area_each(const struct area_store *s, void (*fn)(void *arg, const char *name), void *arg);
/* Bytes that sandboxes may still write, and of the disk. */
int area_space(const struct area_store *s, int64_t *avail, int64_t *total);
int area_usage(const struct area_store *s, const char *name, struct area_usage *ret);

#endif
