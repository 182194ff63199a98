/* SPDX-License-Identifier: MIT */
#include "sandboxd/priv/btrfs.h"

#include "common/sys/mem.h"

#include <dirent.h>
#include <limits.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>

#ifndef BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA
#define BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA 4
#endif
#define FIRST_SUBVOL 256

bool btrfs_is(int dir)
{
	struct statfs st;

	return fstatfs(dir, &st) == 0 && (unsigned long)st.f_type == BTRFS_SUPER_MAGIC;
}

static bool has_device(int top, const char *fsid, const char *device)
{
	char path[NAME_MAX + 300];

	snprintf(path, sizeof(path), "%s/devices/%.255s", fsid, device);
	return faccessat(top, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A copy of a file system, mounted beside the original, goes by a name of the kernel's; mounted once more it says the
 * original's, whose figures are not its own. Its device tells. */
static void by_device(int dir, char fsid[BTRFS_FSID_MAX])
{
	struct btrfs_ioctl_dev_info_args a = { .devid = 1 };
	const char *path = (const char *)a.path, *device;
	_cleanup_dir_ DIR *d = dir_read(AT_FDCWD, "/sys/fs/btrfs");
	const struct dirent *de;

	if (!d || ioctl(dir, BTRFS_IOC_DEV_INFO, &a) < 0 || !(device = strrchr(path, '/')) ||
		has_device(dirfd(d), fsid, device + 1))
		return;
	while ((de = readdir(d)))
		if (strlen(de->d_name) == strlen(fsid) && has_device(dirfd(d), de->d_name, device + 1))
			memcpy(fsid, de->d_name, strlen(fsid));
}

int btrfs_fsid(int dir, char fsid[BTRFS_FSID_MAX])
{
	struct btrfs_ioctl_fs_info_args a = { 0 };
	const unsigned char *u = a.fsid;
	size_t n = 0;

	if (ioctl(dir, BTRFS_IOC_FS_INFO, &a) < 0)
		return -errno;
	for (size_t i = 0; i < sizeof(a.fsid); i++)
		n += (size_t)snprintf(fsid + n, BTRFS_FSID_MAX - n, "%s%02x",
			i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
	by_device(dir, fsid);
	return 0;
}

int btrfs_quota_on(int dir)
{
	struct btrfs_ioctl_quota_ctl_args a = { .cmd = BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA };

	return ioctl(dir, BTRFS_IOC_QUOTA_CTL, &a) < 0 && errno != EEXIST ? -errno : 0;
}

int btrfs_no_sums(int dir)
{
	int flags = 0;

	if (ioctl(dir, FS_IOC_GETFLAGS, &flags) < 0)
		return -errno;
	flags |= FS_NOCOW_FL;
	return ioctl(dir, FS_IOC_SETFLAGS, &flags) < 0 ? -errno : 0;
}

static int set_name(char *to, size_t size, const char *name)
{
	return snprintf(to, size, "%s", name) < (int)size ? 0 : -ENAMETOOLONG;
}

int btrfs_subvol_make(int dir, const char *name)
{
	struct btrfs_ioctl_vol_args_v2 a = { 0 };
	int r = set_name(a.name, sizeof(a.name), name);

	if (r < 0)
		return r;
	return ioctl(dir, BTRFS_IOC_SUBVOL_CREATE_V2, &a) < 0 ? -errno : 0;
}

int btrfs_snapshot(int dir, const char *name, int of, bool read_only)
{
	struct btrfs_ioctl_vol_args_v2 a = { .fd = of,
		.flags = read_only ? BTRFS_SUBVOL_RDONLY : 0 };
	int r = set_name(a.name, sizeof(a.name), name);

	if (r < 0)
		return r;
	return ioctl(dir, BTRFS_IOC_SNAP_CREATE_V2, &a) < 0 ? -errno : 0;
}

int btrfs_subvol_delete(int dir, const char *name)
{
	struct btrfs_ioctl_vol_args_v2 a = { 0 };
	int r = set_name(a.name, sizeof(a.name), name);

	if (r < 0)
		return r;
	return ioctl(dir, BTRFS_IOC_SNAP_DESTROY_V2, &a) < 0 ? -errno : 0;
}

int btrfs_subvol_id(int subvol, uint64_t *ret)
{
	struct btrfs_ioctl_ino_lookup_args a = { .objectid = BTRFS_FIRST_FREE_OBJECTID };

	if (ioctl(subvol, BTRFS_IOC_INO_LOOKUP, &a) < 0)
		return -errno;
	*ret = a.treeid;
	return 0;
}

int btrfs_limit(int subvol, uint64_t bytes)
{
	struct btrfs_ioctl_qgroup_limit_args a = { .lim = { .flags = BTRFS_QGROUP_LIMIT_MAX_RFER,
							   .max_rfer = bytes } };

	/* qgroupid 0: that of the subvolume itself */
	return ioctl(subvol, BTRFS_IOC_QGROUP_LIMIT, &a) < 0 ? -errno : 0;
}

/* --- figures --------------------------------------------------------------------------------- */

static int figure(const char *fsid, uint64_t id, const char *name, int64_t *ret)
{
	char path[160], buf[40];
	int r;

	snprintf(path, sizeof(path), "/sys/fs/btrfs/%s/qgroups/0_%llu/%s", fsid,
		(unsigned long long)id, name);
	r = file_read(AT_FDCWD, path, buf, sizeof(buf));
	if (r == 0)
		*ret = strtoll(buf, NULL, 10);
	return r;
}

int btrfs_charged(const char *fsid, int subvol, int64_t *used, int64_t *limit)
{
	int64_t waiting = 0;
	uint64_t id = 0;
	int r = btrfs_subvol_id(subvol, &id);

	if (r == 0)
		r = figure(fsid, id, "referenced", used);
	if (r == 0)
		r = figure(fsid, id, "rsv_data", &waiting);
	if (r == 0)
		r = figure(fsid, id, "max_referenced", limit);
	*used += waiting;
	return r;
}

int btrfs_changed(int subvol, int64_t *ret)
{
	struct btrfs_ioctl_get_subvol_info_args a;

	if (ioctl(subvol, BTRFS_IOC_GET_SUBVOL_INFO, &a) < 0)
		return -errno;
	*ret = (int64_t)a.ctime.sec * 1000000000 + a.ctime.nsec;
	return 0;
}

int btrfs_unallocated(int dir, int64_t *ret)
{
	struct btrfs_ioctl_dev_info_args a = { .devid = 1 };

	if (ioctl(dir, BTRFS_IOC_DEV_INFO, &a) < 0)
		return -errno;
	*ret = (int64_t)(a.total_bytes - a.bytes_used);
	return 0;
}

int btrfs_sync(int dir)
{
	return ioctl(dir, BTRFS_IOC_SYNC) < 0 ? -errno : 0;
}

int btrfs_resize_max(int dir)
{
	struct btrfs_ioctl_vol_args a = { .name = "1:max" };

	return ioctl(dir, BTRFS_IOC_RESIZE, &a) < 0 ? -errno : 0;
}

/* --- counters that nobody needs -------------------------------------------------------------- */

/* The next item of the tree at or after (objectid, type, offset), of that type only. */
static int next_item(int dir, uint64_t tree, uint64_t objectid, uint32_t type, uint64_t *offset)
{
	struct btrfs_ioctl_search_args a = { .key = { .tree_id = tree,
						     .min_objectid = objectid,
						     .max_objectid = objectid,
						     .min_type = type,
						     .max_type = type,
						     .min_offset = *offset,
						     .max_offset = UINT64_MAX,
						     .max_transid = UINT64_MAX,
						     .nr_items = 1 } };
	struct btrfs_ioctl_search_header h;

	if (ioctl(dir, BTRFS_IOC_TREE_SEARCH, &a) < 0)
		return -errno;
	if (a.key.nr_items == 0)
		return -ENOENT;
	memcpy(&h, a.buf, sizeof(h));
	*offset = h.offset;
	return 0;
}

static bool subvol_exists(int dir, uint64_t id)
{
	uint64_t offset = 0;

	return next_item(dir, BTRFS_ROOT_TREE_OBJECTID, id, BTRFS_ROOT_ITEM_KEY, &offset) !=
	       -ENOENT;
}

void btrfs_quota_clean(int dir)
{
	uint64_t id = FIRST_SUBVOL;

	/* Numbers of higher levels are larger than any subvolume's. */
	for (; next_item(dir, BTRFS_QUOTA_TREE_OBJECTID, 0, BTRFS_QGROUP_INFO_KEY, &id) == 0 &&
		id >> 48 == 0;
		id++) {
		struct btrfs_ioctl_qgroup_create_args a = { .create = 0, .qgroupid = id };
		if (!subvol_exists(dir, id))
			(void)ioctl(dir, BTRFS_IOC_QGROUP_CREATE, &a);
	}
}
