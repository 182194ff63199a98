/* SPDX-License-Identifier: MIT */
/* The fake backend: the same shim, init and worker, without namespaces, on a folder <state>/fake/<id>.
 * No isolation whatsoever: commands are the host's and run as the caller, root included. It carries
 * tests and demos and needs no privilege. */
#include "sandboxd/backend/fake/fake.h"

#include "common/base/log.h"
#include "common/sys/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>

#define MIB (1024 * 1024)

static void fake_close(struct backend *b)
{
	if (!b)
		return;
	close_p(&b->state_dirfd);
	free(b->state_dir);
	free(b->libexec_dir);
	free(b);
}

static int fake_open(const struct backend_conf *conf, struct backend **ret, struct err *e)
{
	struct backend *b = calloc(1, sizeof(*b));

	if (!b)
		return err_set(e, ERR_INTERNAL, "out of memory");
	b->state_dirfd = fcntl(conf->state_dirfd, F_DUPFD_CLOEXEC, 3);
	b->state_dir = strdup(conf->state_dir);
	b->libexec_dir = strdup(conf->libexec_dir);
	if (b->state_dirfd < 0 || !b->state_dir || !b->libexec_dir) {
		fake_close(b);
		return err_set(e, ERR_INTERNAL, "out of memory or descriptors");
	}
	for (const char *const *d = (const char *const[]){ "fake", "run", NULL }; *d; d++)
		if (mkdirat(b->state_dirfd, *d, 0700) < 0 && errno != EEXIST) {
			int sys = errno;
			fake_close(b);
			return err_sys(e, sys, "%s/%s", conf->state_dir, *d);
		}
	*ret = b;
	return 0;
}

/* Nothing of what the flags promise comes from here: no limit, no network mode, no freezer. */
static int fake_probe(struct backend *b, bool caps[CAP_COUNT], struct err *e)
{
	static const char *const programs[] = { "sbx-shim", "sbx-init", "sbx-worker" };

	(void)caps;
	for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
		char path[4096];
		snprintf(path, sizeof(path), "%s/%s", b->libexec_dir, programs[i]);
		if (access(path, X_OK) < 0)
			return err_set_sys(e, ERR_UNAVAILABLE, errno, "%s: %s", path, strerror(errno));
	}
	return 0;
}

static int open_dir(int at, const char *name)
{
	return openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* <state>/<kind>/<id>; the id's syntax leaves no room for a path. */
static int open_of(const struct backend *b, const char *kind, const char *id)
{
	_cleanup_close_ int dir = open_dir(b->state_dirfd, kind);

	if (dir < 0 || !id_is_sandbox(id))
		return -1;
	return open_dir(dir, id);
}

static bool known_image(const char *image)
{
	return image && strcmp(image, "base") == 0;
}

static int fake_create(struct backend *b, const struct backend_spec *spec, const volatile int *cancel,
	struct err *e)
{
	_cleanup_close_ int run = open_of(b, "run", spec->id), root = -1;
	_cleanup_close_ int dir = open_dir(b->state_dirfd, "fake");
	struct fake_run r;

	if (!known_image(spec->image))
		return err_set(e, ERR_NOT_FOUND, "image \"%s\" is not installed", spec->image);
	if (run < 0 || dir < 0)
		return err_set_sys(e, ERR_INTERNAL, errno, "run folder of %s", spec->id);
	if (tree_make(dir, spec->id, spec->hostname, &root, e) < 0)
		return -1;
	int ret = fake_launch(b, spec, run, root, &r, e);
	if (ret == 0 && cancel && __atomic_load_n(cancel, __ATOMIC_ACQUIRE)) {
		fake_end(&r);
		ret = err_set(e, ERR_CONFLICT, "sandbox has ended");
	}
	if (ret < 0) {
		(void)unlinkat(run, "pid", 0);
		(void)unlinkat(run, "sock", 0);
		(void)fake_tree_remove(dir, spec->id);
	}
	return ret;
}

static int fake_destroy(struct backend *b, const char *id, struct err *e)
{
	_cleanup_close_ int run = open_of(b, "run", id);
	_cleanup_close_ int dir = open_dir(b->state_dirfd, "fake");
	struct fake_run r;

	if (run >= 0 && fake_run_read(run, &r))
		fake_end(&r);
	if (run >= 0) {
		(void)unlinkat(run, "sock", 0);
		(void)unlinkat(run, "pid", 0);
	}
	int sys = id_is_sandbox(id) && dir >= 0 ? fake_tree_remove(dir, id) : 0;
	return sys < 0 ? err_sys(e, -sys, "folder of sandbox %s", id) : 0;
}

static int fake_alive(struct backend *b, const char *id, uint64_t generation,
	struct backend_grip *grip, struct err *e)
{
	_cleanup_close_ int run = -1;
	struct fake_run r;
	bool alive;

	if (grip)
		*grip = BACKEND_GRIP_NULL;
	errno = 0;
	run = open_of(b, "run", id);
	alive = run >= 0 && fake_run_read(run, &r) && r.generation == generation && fake_runs(&r);
	if (alive || !err_is_short(errno))
		return alive;
	return err_sys(e, errno, "sandbox %s", id);
}

static bool listed(const char *id, const char *const *keep, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(keep[i], id) == 0)
			return true;
	return false;
}

static void sweep_kind(struct backend *b, const char *kind, const char *const *keep, size_t n)
{
	int fd = open_dir(b->state_dirfd, kind);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct err e = ERR_NULL;
	struct dirent *de;

	if (!d)
		return close_p(&fd);
	while ((de = readdir(d)))
		if (id_is_sandbox(de->d_name) && !listed(de->d_name, keep, n) &&
		    fake_destroy(b, de->d_name, &e) < 0)
			log_warn("left over sandbox not removed: %s", e.msg);
	closedir(d);
}

static int fake_sweep(struct backend *b, const char *const *keep, size_t n, struct err *e)
{
	(void)e;
	sweep_kind(b, "run", keep, n);
	sweep_kind(b, "fake", keep, n);
	return 0;
}

/* HOME is the guest's word for it; init turns it into the folder's. */
static int fake_image_ensure(struct backend *b, const char *image, struct backend_image *ret,
	struct err *e)
{
	static const char *const env[] = {
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/sandbox/home",
		"USER=sandbox",
	};

	(void)b;
	if (!known_image(image))
		return err_set(e, ERR_NOT_FOUND, "image \"%s\" is not installed", image);
	ret->env = calloc(ARRAY_LEN(env) + 1, sizeof(*ret->env));
	for (size_t i = 0; ret->env && i < ARRAY_LEN(env); i++)
		if (!(ret->env[i] = strdup(env[i]))) {
			backend_image_free(ret);
			ret->env = NULL;
		}
	return ret->env ? 0 : err_set(e, ERR_INTERNAL, "out of memory");
}

static void fake_capacity(struct backend *b, double *cpus, int64_t *memory_mb, int64_t *disk_mb)
{
	struct sysinfo si = { 0 };
	struct statvfs v = { 0 };

	(void)sysinfo(&si);
	(void)fstatvfs(b->state_dirfd, &v);
	*cpus = (double)sysconf(_SC_NPROCESSORS_ONLN);
	*memory_mb = (int64_t)((uint64_t)si.totalram * si.mem_unit / MIB);
	*disk_mb = (int64_t)((uint64_t)v.f_blocks * v.f_frsize / MIB);
}

static int64_t fake_disk_free_mb(struct backend *b)
{
	struct statvfs v = { 0 };

	(void)fstatvfs(b->state_dirfd, &v);
	return (int64_t)((uint64_t)v.f_bavail * v.f_frsize / MIB);
}

const struct backend_ops fake_backend = {
	.name = "fake",
	.open = fake_open,
	.close = fake_close,
	.probe = fake_probe,
	.create = fake_create,
	.destroy = fake_destroy,
	.alive = fake_alive,
	.sweep = fake_sweep,
	.image_ensure = fake_image_ensure,
	.capacity = fake_capacity,
	.disk_free_mb = fake_disk_free_mb,
};
