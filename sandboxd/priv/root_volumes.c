/* SPDX-License-Identifier: MIT */
/* Volumes in the guest's tree. Their mount points are made when they are missing; a link on the
 * way, or something that is no folder, refuses the create. Read-only is an attribute of the mount,
 * which the kernel locks when the guest's user namespace is entered. */
#include "sandboxd/priv/root.h"

#include "common/sys/mem.h"

#include <linux/securebits.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

/* One step down: the folder `name` in dir, made when it is missing. */
static int step(int dir, const char *name)
{
	int fd = root_open_in(dir, name, O_DIRECTORY);

	if (fd != -ENOENT)
		return fd;
	if (mkdirat(dir, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	return root_open_in(dir, name, O_DIRECTORY);
}

static int open_target(int root, const char *path)
{
	int dir = root_open_in(root, ".", O_DIRECTORY);
	char name[256];

	while (dir >= 0 && *path) {
		path += strspn(path, "/");
		size_t n = strcspn(path, "/");
		if (n == 0 || n >= sizeof(name)) {
			close(dir);
			return -ENAMETOOLONG;
		}
		memcpy(name, path, n);
		name[n] = 0;
		int next = step(dir, name);
		close(dir);
		dir = next;
		path += n;
	}
	return dir;
}

static int attach(const struct root_spec *s, int root, const struct root_volume *v)
{
	uint64_t attr = ROOT_SAFE | (v->read_only ? MOUNT_ATTR_RDONLY : 0);
	int r = root_set_attr(v->mnt, attr, s->userns);

	if (r < 0)
		return r;
	_cleanup_close_ int target = open_target(root, v->path);
	return target < 0 ? target : root_move_onto(v->mnt, target);
}

int root_volumes(const struct root_spec *s, int root, struct fail *f)
{
	int r = 0;

	if (s->nvolumes == 0)
		return 0;
	if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0)
		return fail_set(f, errno, "keep capabilities");
	/* Folders made on the way belong to the guest's root. */
	setfsgid(s->uid);
	setfsuid(s->uid);
	for (uint32_t i = 0; i < s->nvolumes && r == 0; i++) {
		r = attach(s, root, &s->volumes[i]);
		if (r < 0)
			fail_set(f, r, "mount a volume at %.100s%s", s->volumes[i].path,
				r == -ELOOP ? ", where the image has a link" : "");
	}
	setfsuid(0);
	setfsgid(0);
	(void)prctl(PR_SET_SECUREBITS, 0, 0, 0, 0);
	return r;
}
