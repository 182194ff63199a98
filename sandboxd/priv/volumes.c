/* SPDX-License-Identifier: MIT */
/* Volumes: areas with a number instead of a sandbox. Nothing is mounted for one that nobody uses.
 */
#include "sandboxd/priv/works.h"

#include "common/sys/fault.h"
#include "common/sys/mem.h"

#include <stdio.h>
#include <sys/stat.h>

#define OWNER 1001 /* the sandbox user, as on every disk */

void volume_name(char name[VOLUME_NAME_MAX], uint32_t num)
{
	snprintf(name, VOLUME_NAME_MAX, "vol-%u", num);
}

/* Its root is the sandbox user's, and shows nothing that belongs to the file system. */
static int prepare(int mnt)
{
	_cleanup_close_ int root = openat(mnt, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (root < 0 || (unlinkat(root, "lost+found", AT_REMOVEDIR) < 0 && errno != ENOENT) ||
		fchown(root, OWNER, OWNER) < 0 ||
		fchmod(root, 0755) < 0) /* where it is a folder, the umask was at work */
		return -errno;
	fault_point("volume-prepared");
	return syncfs(root) < 0 ? -errno : 0;
}

/* The names of areas are on the disk, too, before anybody is told. */
static int sync_names(const struct build_env *env)
{
	return syncfs(env->areas.areas) < 0 ? -errno : 0;
}

void volume_make_work(const struct build_env *env, const struct work *w, struct work_result *ret)
{
	char name[VOLUME_NAME_MAX];
	struct area_spec a = {
		.name = name, .disk_mb = w->disk_mb, .num = AREA_VOLUME_NUM + w->num, .volume = true
	};
	_cleanup_close_ int mnt = -1;
	int r;

	volume_name(name, w->num);
	if (!env->areas.provider->reopen) {
		fail_set(&ret->fail, ENOTSUP, "volumes of the disk provider %s",
			env->areas.provider->name);
		return;
	}
	r = area_make(&env->areas, &a, &mnt, &ret->fail);
	if (r == 0)
		fault_point("volume-made");
	if (r == 0 && ((r = prepare(mnt)) < 0 || (r = sync_names(env)) < 0))
		fail_set(&ret->fail, r, "make the volume %u", w->num);
	if (r < 0)
		(void)area_remove(&env->areas, name);
}

void volume_drop_work(const struct build_env *env, const struct work *w, struct work_result *ret)
{
	char name[VOLUME_NAME_MAX];
	int r;

	volume_name(name, w->num);
	fault_point("volume-drop");
	r = area_remove(&env->areas, name);
	if (r < 0)
		fail_set(&ret->fail, r, "remove the volume %u", w->num);
}

int volume_open(const struct build_env *env, uint32_t num, struct fail *f)
{
	char name[VOLUME_NAME_MAX];
	int mnt = -1, r;

	volume_name(name, num);
	r = area_reopen(&env->areas, name, &mnt, f);
	return r < 0 ? r : mnt;
}
