/* SPDX-License-Identifier: MIT */
#include "common/sys/mounts.h"

#include <mntent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>

/* Where programs, their libraries and settings are (hier(7)), and what the kernel shows: with all below. */
static const char *const system_trees[] = { "/bin", "/dev", "/etc", "/gnu", "/lib", "/lib32", "/lib64",
	"/libx32", "/nix", "/opt", "/proc", "/sbin", "/sys", "/usr", NULL };
/* Only themselves: users' and other programs' mounts lie below. */
static const char *const system_dirs[] = { "/run", "/tmp", "/var", NULL };
static const char *const system_types[] = { "cgroup", "cgroup2", NULL };

static bool is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	while (n && dir[n - 1] == '/')
		n--;
	return !strncmp(path, dir, n) && (!path[n] || path[n] == '/');
}

static bool is_in(const char *word, const char *const *list)
{
	while (*list && strcmp(*list, word) != 0)
		list++;
	return *list;
}

bool mounts_needed(const char *dir, const char *type, const char *const *need)
{
	if (is_in(dir, system_dirs) || is_in(type, system_types))
		return true;
	for (const char *const *p = system_trees; *p; p++)
		if (is_below(dir, *p))
			return true;
	for (; *need; need++)
		if (is_below(*need, dir) || is_below(dir, *need))
			return true;
	return false;
}

struct dirs {
	char **v;
	size_t n;
};

static void dirs_add(struct dirs *d, const char *dir)
{
	char **v = reallocarray(d->v, d->n + 1, sizeof(*v));

	if (!v)
		return;
	d->v = v;
	d->v[d->n] = strdup(dir);
	if (d->v[d->n])
		d->n++;
}

void mounts_leave(const char *const *need)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	struct dirs d = { .n = 0 };
	const struct mntent *m;

	if (!f)
		return;
	while ((m = getmntent(f)))
		if (!mounts_needed(m->mnt_dir, m->mnt_type, need))
			dirs_add(&d, m->mnt_dir);
	endmntent(f);
	/* What was mounted last lies on top, or below another. */
	while (d.n) {
		(void)umount2(d.v[--d.n], MNT_DETACH | UMOUNT_NOFOLLOW);
		free(d.v[d.n]);
	}
	free(d.v);
}
