/* SPDX-License-Identifier: MIT */
/* The btrfs provider: an area is a subvolume with a quota, a snapshot of it is a read-only
 * snapshot. Making, sealing and removing take a few small writes each, whatever is inside. Where
 * the state directory is on btrfs, they lie there; elsewhere in the pool. A subvolume is charged
 * for what it wrote until nothing uses that any more, snapshots included: limits are set anew when
 * one is taken (seal.c). Files have no sums, neither there nor there: where they are, a guest can have the kernel compress
 * a file, in threads that no limit counts. */
#include "common/sys/mem.h"
#include "common/sys/tree.h"
#include "sandboxd/priv/area.h"
#include "sandboxd/priv/btrfs.h"
#include "sandboxd/priv/pool.h"
#include "sandboxd/priv/root.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PROBE_MB 2

static int open_area(const struct area_store *s, const char *name)
{
	return open_below(s->areas, name, O_RDONLY | O_DIRECTORY, 0);
}

static int clone_area(int dir, int *ret, struct fail *f)
{
	*ret = root_clone_of(dir, "");
	return *ret < 0 ? fail_set(f, *ret, "clone the area") : 0;
}

static int remove_area(const struct area_store *s, const char *name)
{
	int r = btrfs_subvol_delete(s->areas, name);

	return r == -ENOENT ? 0 : r == 0 ? 0 : tree_remove(s->areas, name);
}

static int make_subvol(const struct area_store *s, const struct area_spec *a, struct fail *f)
{
	int r = btrfs_subvol_make(s->areas, a->name), dir;

	if (r == -EEXIST && remove_area(s, a->name) == 0)
		r = btrfs_subvol_make(s->areas, a->name);
	if (r < 0)
		return fail_set(f, r, "make the area's subvolume");
	dir = open_area(s, a->name);
	if (dir < 0)
		return fail_set(f, dir, "open the area");
	r = btrfs_limit(dir, (uint64_t)a->disk_mb << 20);
	if (r == 0 && s->pool < 0)
		r = btrfs_no_sums(dir);
	if (r == 0 && fchmod(dir, 0755) < 0)
		r = -errno;
	if (r == 0)
		return dir;
	close(dir);
	(void)remove_area(s, a->name);
	return fail_set(f, r, "limit the area");
}

static int make(const struct area_store *s, const struct area_spec *a, int *ret, struct fail *f)
{
	_cleanup_close_ int dir = make_subvol(s, a, f);

	return dir < 0 ? dir : clone_area(dir, ret, f);
}

static int reopen(const struct area_store *s, const char *name, int *ret, struct fail *f)
{
	_cleanup_close_ int dir = open_area(s, name);

	return dir < 0 ? fail_set(f, dir, "open the area %s", name) : clone_area(dir, ret, f);
}

static int seal(const struct area_store *s, const char *name, const char *layer, struct fail *f)
{
	_cleanup_close_ int dir = open_area(s, name);
	int r = dir < 0 ? dir : btrfs_snapshot(s->sealed, layer, dir, true);

	return r < 0 ? fail_set(f, r, "snapshot the area %s", name) : 0;
}

static int drop(const struct area_store *s, const char *layer)
{
	int r = btrfs_subvol_delete(s->sealed, layer);

	return r == -ENOENT ? 0 : r;
}

static int usage(const struct area_store *s, const char *name, struct area_usage *ret)
{
	_cleanup_close_ int dir = open_area(s, name);
	int r = dir < 0 ? dir : btrfs_charged(s->fsid, dir, &ret->used, &ret->size);

	return r < 0 ? r : btrfs_changed(dir, &ret->changed);
}

static int limit(const struct area_store *s, const char *name, int64_t bytes)
{
	_cleanup_close_ int dir = open_area(s, name);

	return dir < 0 ? dir : btrfs_limit(dir, (uint64_t)bytes);
}

/* --- choosing -------------------------------------------------------------------------------- */

/* Does a limit hold? Twice as much as is allowed is written. */
static int holds(int dir)
{
	static const char block[65536];
	_cleanup_close_ int fd = openat(dir, "probe", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	for (size_t n = 0; n < ((size_t)2 * PROBE_MB << 20); n += sizeof(block))
		if (write(fd, block, sizeof(block)) < 0)
			return errno == EDQUOT || errno == ENOSPC ? 0 : -errno;
	return -ENOTSUP;
}

static int try_area(struct area_store *s, struct fail *f)
{
	struct area_usage u = { 0 };
	char name[40];
	struct area_spec a = { .name = name, .disk_mb = PROBE_MB };
	int r;

	snprintf(name, sizeof(name), "test-%d", (int)getpid());
	_cleanup_close_ int dir = make_subvol(s, &a, f);
	if (dir < 0)
		return dir;
	r = holds(dir);
	if (r == 0)
		r = usage(s, name, &u);
	if (r == 0 && u.size != (int64_t)PROBE_MB << 20)
		r = -ENOTSUP;
	(void)remove_area(s, name);
	return r < 0 ? fail_set(f, r, "the quota does not hold") : 0;
}

static int open_folders(struct area_store *s, int top, struct fail *f)
{
	int r = btrfs_fsid(top, s->fsid);

	if (r == 0)
		r = btrfs_quota_on(top);
	if (r < 0)
		return fail_set(f, r, "switch simple quotas on");
	s->sealed = dir_make(top, "sealed", 0700);
	if (s->sealed < 0)
		return fail_set(f, s->sealed, "make the folder of sealed layers");
	if (top == s->priv)
		return 0;
	r = dir_make(top, "areas", 0700);
	if (r < 0)
		return fail_set(f, r, "make the folder of areas");
	s->areas = r;
	return 0;
}

/* Where the module is loaded it says what it can; else the attempt will tell. */
static bool has_simple_quotas(void)
{
	return access("/sys/fs/btrfs/features", F_OK) < 0 ||
	       access("/sys/fs/btrfs/features/simple_quota", F_OK) == 0;
}

static void give_up(struct area_store *s, bool forget)
{
	if (s->areas != s->plain)
		close_p(&s->areas);
	s->areas = s->plain;
	close_p(&s->sealed);
	s->sealed = -1;
	pool_close(s, forget);
}

static int test(struct area_store *s, struct fail *f)
{
	bool native = btrfs_is(s->priv), fresh = !native && !pool_exists(s->priv);
	int r;

	if (!has_simple_quotas())
		return fail_set(f, ENOTSUP, "simple quotas of btrfs (Linux 6.7)");
	r = native ? 0 : pool_open(s, f);
	if (r == 0)
		r = open_folders(s, native ? s->priv : s->pool, f);
	if (r == 0)
		r = try_area(s, f);
	if (r < 0)
		give_up(s, fresh);
	else
		btrfs_quota_clean(s->areas);
	return r;
}

const struct area_provider area_btrfs = {
	.name = "btrfs",
	.automatic = true,
	.test = test,
	.make = make,
	.reopen = reopen,
	.remove = remove_area,
	.seal = seal,
	.drop = drop,
	.usage = usage,
	.limit = limit,
};
