/* SPDX-License-Identifier: MIT */
/* Choosing a provider, and what is the same for all of them. */
#include "sandboxd/priv/area.h"

#include "common/sys/mem.h"
#include "common/sys/tree.h"
#include "sandboxd/priv/pool.h"

#include <dirent.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

static int tmpfs_test(struct area_store *s, struct fail *f)
{
	(void)s;
	(void)f;
	return 0;
}

static int tmpfs_make(
	const struct area_store *s, const struct area_spec *a, int *ret, struct fail *f)
{
	_cleanup_close_ int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
	char size[32];

	(void)s;
	snprintf(size, sizeof(size), "%lldm", (long long)a->disk_mb);
	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "size", size, 0) < 0 ||
		fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0755", 0) < 0 ||
		fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return fail_set(f, errno, "make a memory area");
	*ret = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	return *ret < 0 ? fail_set(f, errno, "mount a memory area") : 0;
}

const struct area_provider area_tmpfs = {
	.name = "tmpfs",
	.test = tmpfs_test,
	.make = tmpfs_make,
};

static const struct area_provider *const providers[] = { &area_btrfs, &area_xfs, &area_ext4,
	&area_loop, &area_tmpfs };

static int try_provider(struct area_store *s, const struct area_provider *p, struct fail *f)
{
	int r = p->test(s, f);

	if (r == 0)
		s->provider = p;
	return r;
}

static int choose(struct area_store *s, struct fail *f)
{
	struct fail each[ARRAY_LEN(providers)] = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(providers); i++) {
		if (providers[i]->automatic && try_provider(s, providers[i], &each[i]) == 0)
			return 0;
		/* What lies there is not given up because something is wrong today. */
		if (providers[i] == &area_btrfs && pool_exists(s->priv))
			return fail_set(f, each[i].sys,
				"priv/pool.btrfs cannot be used (%.80s; --disk-provider goes on without it)",
				each[i].text);
	}
	for (size_t i = ARRAY_LEN(providers); i-- > 0;)
		if (each[i].sys) {
			*f = each[i];
			break;
		}
	return -f->sys;
}

int area_open(struct area_store *s, int priv_fd, const char *want, struct fail *f)
{
	*s = (struct area_store){
		.priv = priv_fd, .sealed = -1, .pool = -1, .image = -1, .loop = -1
	};
	s->areas = s->plain = dir_make(priv_fd, "areas", 0700);
	s->templates = dir_make(priv_fd, "templates", 0700);
	if (s->areas < 0 || s->templates < 0)
		return fail_set(f, s->areas < 0 ? s->areas : s->templates, "make priv/areas");
	if (!want)
		return choose(s, f);
	for (size_t i = 0; i < ARRAY_LEN(providers); i++)
		if (strcmp(providers[i]->name, want) == 0)
			return try_provider(s, providers[i], f);
	return fail_set(f, EINVAL, "disk provider \"%.32s\"", want);
}

int area_make(const struct area_store *s, const struct area_spec *a, int *ret, struct fail *f)
{
	return s->provider->make(s, a, ret, f);
}

int area_reopen(const struct area_store *s, const char *name, int *ret, struct fail *f)
{
	if (!s->provider->reopen)
		return fail_set(f, ENOTSUP, "areas of the provider %s cannot be opened again",
			s->provider->name);
	return s->provider->reopen(s, name, ret, f);
}

int area_rename(const struct area_store *s, const char *from, const char *to)
{
	if (renameat(s->areas, from, s->areas, to) < 0 && errno != ENOENT)
		return -errno; /* memory areas have no name here */
	return 0;
}

/* What another provider has left is removed, too. */
int area_remove(const struct area_store *s, const char *name)
{
	int r = s->provider->remove ? s->provider->remove(s, name)
				    : tree_remove(s->areas, name);

	if (r == 0 && s->plain != s->areas)
		r = tree_remove(s->plain, name);
	return r;
}

static void each_in(int dir, void (*fn)(void *arg, const char *name), void *arg)
{
	_cleanup_dir_ DIR *d = dir_read(dir, ".");
	struct dirent *de;

	while (d && (de = readdir(d)))
		if (de->d_name[0] != '.')
			fn(arg, de->d_name);
}

void area_each(const struct area_store *s, void (*fn)(void *arg, const char *name), void *arg)
{
	each_in(s->areas, fn, arg);
	if (s->plain != s->areas)
		each_in(s->plain, fn, arg);
}

int area_usage(const struct area_store *s, const char *name, struct area_usage *ret)
{
	return s->provider->usage ? s->provider->usage(s, name, ret) : -ENOTSUP;
}

static int space_of(int dir, int64_t *avail, int64_t *total)
{
	struct statvfs st;

	if (fstatvfs(dir, &st) < 0)
		return -errno;
	*avail = (int64_t)((uint64_t)st.f_bavail * st.f_frsize);
	*total = (int64_t)((uint64_t)st.f_blocks * st.f_frsize);
	return 0;
}

/* The pool's file lies on the same disk: its free space is beside what it has not taken yet. */
int area_space(const struct area_store *s, int64_t *avail, int64_t *total)
{
	int64_t inside = 0, size;
	int r = space_of(s->plain, avail, total);

	if (r == 0 && s->pool >= 0)
		r = space_of(s->pool, &inside, &size);
	*avail += inside;
	return r;
}
