/* SPDX-License-Identifier: MIT */
/* What btrfs is asked for by ioctl: subvolumes, their snapshots, and simple quotas, in which a
 * subvolume is charged for what it has written itself. `dir` is any folder of the file system. All
 * >= 0 or -errno. */
#ifndef SANDBOXD_PRIV_BTRFS_H
#define SANDBOXD_PRIV_BTRFS_H

#include "sandboxd/priv/sys.h"

#include <stdbool.h>

#define BTRFS_FSID_MAX 40
bool btrfs_is(int dir);
int btrfs_fsid(int dir, char fsid[BTRFS_FSID_MAX]);
int btrfs_quota_on(int dir); /* simple quotas, unless there are quotas already */
int btrfs_subvol_make(int dir, const char *name);
int btrfs_snapshot(int dir, const char *name, int of, bool read_only);
/* Its space comes back in the background; -ENOTTY or -EINVAL when it is no subvolume. */
int btrfs_subvol_delete(int dir, const char *name);
int btrfs_subvol_id(int subvol, uint64_t *ret);
int btrfs_limit(int subvol, uint64_t bytes);
/* Bytes charged to the subvolume, not yet written ones among them, and its limit (0: none). */
int btrfs_charged(const char *fsid, int subvol, int64_t *used, int64_t *limit);
/* When anything in it changed last, ns. */
int btrfs_changed(int subvol, int64_t *ret);
/* Counters of subvolumes that are gone; those of data that a snapshot still holds stay. */
void btrfs_quota_clean(int dir);
int btrfs_no_sums(int dir); /* an empty folder: nor for what is made in it; nor is any of it compressed then */
int btrfs_resize_max(int dir);
int btrfs_sync(int dir); /* all of it; and what was deleted is cleared away next */
/* Bytes of the device that are given to nothing yet. */
int btrfs_unallocated(int dir, int64_t *ret);
/* fd: the device. 1: its first superblock was damaged, and is whole again, of its first sector and a copy, or of the
 * newest sound copy where that sector says nothing (then what was synced after the copy's commit may be missing); 0: it was
 * not, or there is nothing to make it of; -errno. */
int btrfs_mend_super(int fd);

#endif
