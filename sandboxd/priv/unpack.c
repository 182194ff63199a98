/* SPDX-License-Identifier: MIT */
/* The jail: a child whose root is the new layer. What it is not trusted to do is done after its
 * end, by the parent, on a tree in which nobody moves any more: the marks of opaque folders, which
 * only root may write, and the layer's name, which says that it is complete. */
#include "sandboxd/priv/unpack.h"

#include "common/sys/fault.h"
#include "common/sys/fd.h"
#include "common/sys/core.h"
#include "common/sys/mem.h"
#include "common/sys/tree.h"
#include "sandboxd/priv/drop.h"
#include "sandboxd/priv/jail.h"
#include "sandboxd/priv/root.h"

#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define SECONDS_MAX 1800 /* of a processor */
#define WAIT_MAX    3600 /* seconds on the clock, for which the front waits */
#define FILE_MAX    ((rlim_t)64 << 30)
#define OPAQUE_LIST ((off_t)16 << 20)
#define NAME_ROOM   16
#define LOWERS_ROOM 4096 /* the kernel takes one page of options */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_MAX RLIM_INFINITY /* a sanitizer reserves terabytes */
#else
#define MEMORY_MAX ((rlim_t)1 << 30)
#endif

/* What the jail holds on to, by number. */
enum { JAIL_IN = 3, JAIL_ANSWER, JAIL_OPAQUE, JAIL_OUT, JAIL_FDS };

struct jail {
	const struct unpack_env *env;
	const struct unpack_job *job;
	const struct unpack_lib *lib;
	char dir[120]; /* the layer's while it is made, below layers/ */
	int answer, opaque;
};

/* --- inside ---------------------------------------------------------------------------------- */

/* By names below the current folder, layers/: a descriptor from before the new mount namespace
 * would lead to the old one's mounts. */
static int clone_onto(const char *from, const char *onto, uint64_t attr)
{
	_cleanup_close_ int mnt = root_clone_of(AT_FDCWD, from);
	int r = mnt < 0 ? mnt : root_set_attr(mnt, attr, -1);

	if (r == 0 && move_mount(mnt, "", AT_FDCWD, onto, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		r = -errno;
	return r;
}

/* The chain as a sandbox would see it, read-only, on the new layer's folder. Names are numbers
 * relative to layers/, so that even a long chain fits into the kernel's page. */
static int mount_view(const struct jail *j)
{
	const struct unpack_job *job = j->job;
	char opts[LOWERS_ROOM] = "lowerdir=", name[NAME_ROOM];
	size_t n = strlen(opts);

	if (job->nchain == 1) {
		snprintf(name, sizeof(name), "%u", job->chain[0]);
		return clone_onto(name, j->dir, MOUNT_ATTR_RDONLY | ROOT_SAFE);
	}
	for (uint32_t i = 0; i < job->nchain; i++) {
		n += (size_t)snprintf(
			opts + n, sizeof(opts) - n, "%s%u", i ? ":" : "", job->chain[i]);
		if (n >= sizeof(opts))
			return -E2BIG;
	}
	return mount("overlay", j->dir, "overlay", MS_RDONLY | MS_NOSUID | MS_NODEV, opts) < 0
		       ? -errno
		       : 0;
}

static int mount_tree(const struct jail *j)
{
	return j->job->kind == UNPACK_FINISH ? mount_view(j) : clone_onto(j->dir, j->dir, ROOT_SAFE);
}

static int enter(const struct jail *j, struct fail *f)
{
	int r;

	if (fchdir(j->env->layers) < 0 ||
		unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0 ||
		mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return fail_set(f, errno, "make the jail");
	r = mount_tree(j);
	if (r < 0)
		return fail_set(f, r, "mount the layer");
	/* The folder again, now as what is mounted on it. */
	_cleanup_close_ int root = open(j->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (root < 0 || fchdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
		umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return fail_set(f, errno, "enter the jail");
	return 0;
}

static int give_up_rights(const struct unpack_env *env, struct fail *f)
{
	static const struct jail_limit limits[] = { { RLIMIT_CPU, SECONDS_MAX }, { RLIMIT_AS, MEMORY_MAX },
		{ RLIMIT_FSIZE, FILE_MAX }, { RLIMIT_CORE, CORE_NEVER }, { RLIMIT_NPROC, 0 } };

	return jail_drop(CAP(CHOWN) | CAP(DAC_OVERRIDE) | CAP(DAC_READ_SEARCH) | CAP(FOWNER) |
				    CAP(FSETID) | CAP(SETFCAP),
		limits, ARRAY_LEN(limits), env->filter, f);
}

/* Everything but what the jail is to hold is closed; these get their numbers. */
static int place_fds(const struct jail *j, int out, struct fail *f)
{
	int fds[JAIL_FDS] = { [JAIL_IN] = j->job->in,
		[JAIL_ANSWER] = j->answer,
		[JAIL_OPAQUE] = j->opaque,
		[JAIL_OUT] = out };

	for (int i = JAIL_IN; i < JAIL_FDS; i++)
		if (fds[i] >= 0 && (fds[i] = fcntl(fds[i], F_DUPFD, 32)) < 0)
			return fail_set(f, errno, "place descriptors");
	for (int i = JAIL_IN; i < JAIL_FDS; i++)
		if (fds[i] < 0)
			close(i);
		else if (dup2(fds[i], i) < 0)
			return fail_set(f, errno, "place descriptors");
	close_range(JAIL_FDS, ~0u, 0);
	return 0;
}

static int work(const struct jail *j, struct unpack_result *ret)
{
	const struct unpack_job *job = j->job;
	int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (root < 0 || give_up_rights(j->env, &ret->fail) < 0)
		return fail_set(&ret->fail, errno, "open the layer");
	if (job->kind == UNPACK_FINISH)
		return unpack_fixup(root, JAIL_OUT, &ret->fail);
	if (unpack_tar(j->lib, job, JAIL_IN, root, JAIL_OPAQUE, ret) < 0)
		return -1;
	return job->kind == UNPACK_ROOTFS ? unpack_fixup(root, root, &ret->fail) : 0;
}

static void jailed(const void *arg, int answer)
{
	struct jail here = *(const struct jail *)arg;
	const struct jail *j = &here;
	struct unpack_result ret = { 0 };
	bool apart = j->job->kind == UNPACK_FINISH; /* else it writes below its root */
	int out = apart ? root_alone(j->env->layers, j->dir) : -1;

	here.answer = answer;
	umask(022); /* of folders that the archive does not name */
	if (apart && out < 0)
		fail_set(&ret.fail, out, "open the layer");
	else if (enter(j, &ret.fail) == 0 && place_fds(j, out, &ret.fail) == 0) {
		answer = JAIL_ANSWER;
		(void)work(j, &ret);
	}
	ssize_t n = write(answer, &ret, sizeof(ret));
	_exit(n == sizeof(ret) && !ret.fail.sys ? 0 : 1);
}

/* --- outside --------------------------------------------------------------------------------- */

static int run_jail(const struct jail *j, struct unpack_result *ret)
{
	struct unpack_result got = { 0 };
	const struct jail_bounds b = { j->env->layers, WAIT_MAX };
	int r = jail_run(jailed, j, &b, &got.fail, sizeof(got), "the unpacker", &ret->fail);

	if (r == 0)
		*ret = got;
	return r;
}

static int mark_opaque(int dir, const char *path, struct fail *f)
{
	_cleanup_close_ int fd = sys_openat2(dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
		RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV);

	/* what the archive has replaced by something else since then */
	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
		return 0;
	if (fd < 0)
		return fail_set(f, fd, "mark an opaque folder");
	if (fsetxattr(fd, "trusted.overlay.opaque", "y", 1, 0) < 0)
		return fail_set(f, errno, "mark an opaque folder");
	return 0;
}

static int mark_all_opaque(int dir, int list, struct fail *f)
{
	off_t size = lseek(list, 0, SEEK_HOLE);
	int r = 0;

	if (size <= 0)
		return 0;
	_cleanup_free_ char *names = calloc(1, (size_t)size + 1);
	if (!names)
		return fail_set(f, ENOMEM, "opaque folders");
	if (pread(list, names, (size_t)size, 0) != (ssize_t)size)
		return fail_set(f, EIO, "opaque folders");
	for (const char *p = names; p < names + size && *p && r == 0; p += strlen(p) + 1)
		r = mark_opaque(dir, p, f);
	return r;
}

static int fill(struct jail *j, int dir, struct unpack_result *ret)
{
	int r;

	if (fchmod(dir, 0755) < 0)
		return fail_set(&ret->fail, errno, "make the layer's folder");
	r = run_jail(j, ret);
	if (r == 0)
		r = mark_all_opaque(dir, j->opaque, &ret->fail);
	if (r == 0 && syncfs(dir) < 0)
		r = fail_set(&ret->fail, errno, "sync the layer");
	return r;
}

int unpack_import(
	const struct unpack_env *env, const struct unpack_job *job, struct unpack_result *ret)
{
	struct jail j = { .env = env, .job = job, .answer = -1 };
	int r;

	j.lib = job->kind == UNPACK_FINISH ? NULL : unpack_load(&ret->fail);
	if (ret->fail.sys)
		return -ret->fail.sys;
	snprintf(j.dir, sizeof(j.dir), ".%s.tmp", job->name);
	(void)tree_remove(env->layers, j.dir);
	_cleanup_close_ int dir = dir_make(env->layers, j.dir, 0755);
	_cleanup_close_ int opaque = jail_memory(OPAQUE_LIST);
	j.opaque = opaque;
	if (dir < 0 || opaque < 0)
		return fail_set(&ret->fail, dir < 0 ? dir : opaque, "make the layer's folder");
	r = fill(&j, dir, ret);
	fault_point("layer-unpacked");
	if (r == 0 && renameat2(env->layers, j.dir, env->layers, job->name, RENAME_NOREPLACE) < 0)
		r = fail_set(&ret->fail, errno, "name the layer");
	if (r < 0)
		(void)tree_remove(env->layers, j.dir);
	else
		(void)fsync(env->layers);
	return r;
}
