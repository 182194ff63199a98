/* SPDX-License-Identifier: MIT */
/* Space on a sandbox's disk, for disks whose file system knows only what all sandboxes use together. */
#include "sandboxd/core/core_internal.h"
#include "sandboxd/proto/files.h"

#include <linux/magic.h>
#include <string.h>

static bool inside(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && (path[n] == 0 || path[n] == '/');
}

/* The volume that `path` is in, or 0. A link that leads into one is not seen here. */
static uint32_t volume_of(const struct sandbox *s, const char *path)
{
	for (size_t i = 0; i < s->nvolumes; i++)
		if (inside(path, s->volumes[i].at.path))
			return s->volumes[i].at.num;
	return 0;
}

void sandbox_space(struct core *c, const struct sandbox *s, const char *path, struct files_statfs *st)
{
	uint32_t volume = st->type == OVERLAYFS_SUPER_MAGIC ? 0 : volume_of(s, path);
	uint64_t left;
	int64_t used, size;

	/* Folders in memory tell the truth. */
	if (!c->ops->disk_usage || (st->type != OVERLAYFS_SUPER_MAGIC && !volume) || !st->bsize ||
		c->ops->disk_usage(c->backend, volume ? NULL : s->id, volume, &used, &size, NULL) < 0 ||
		size <= 0)
		return;
	left = used < size ? (uint64_t)(size - used) / st->bsize : 0;
	st->blocks = (uint64_t)size / st->bsize;
	st->bfree = left < st->bfree ? left : st->bfree;
	st->bavail = left < st->bavail ? left : st->bavail;
}
