/* SPDX-License-Identifier: MIT */
/* The record comes first, so that everything that follows can be found and undone after a crash;
 * the boot struct comes last, so that the shim serves only a sandbox that is complete. */
#include "sandboxd/priv/claim.h"

#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/priv/egress.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static int write_record(const struct build_env *env, const struct claim *c,
	const struct claim_from *from, struct fail *f)
{
	struct record box = { .magic = BOX_MAGIC,
		.block = from->block,
		.generation = c->generation,
		.shim_pid = from->shim_pid,
		.disk_mb = c->disk_mb,
		.volumes = c->volumes,
		.shim_start = from->shim_start };
	char pool[BOX_NAME_MAX];
	int r;

	memcpy(box.boot, env->boot, sizeof(box.boot));
	r = record_write(env->boxes, c->id, &box);
	if (r < 0)
		return fail_set(f, r, "write the record");
	box_pool(pool, from->block);
	r = area_rename(&env->areas, pool, c->id);
	return r < 0 ? fail_set(f, r, "name the area") : 0;
}

/* The others are the shape's, and there since it was built. */
static int set_cpu(
	const struct build_env *env, const struct claim *c, uint32_t block, struct fail *f)
{
	char group[BOX_NAME_MAX];

	box_group(group, block);
	return cg_limit_cpu(&env->cg, group, c->cpu_milli, f);
}

static int set_hostname(const struct build_env *env, const char *name, int uts, struct fail *f)
{
	int r = 0;

	if (setns(uts, CLONE_NEWUTS) < 0 || sethostname(name, strlen(name)) < 0)
		r = fail_set(f, errno, "set the host name");
	if (setns(env->uts, CLONE_NEWUTS) < 0 && r == 0)
		r = fail_set(f, errno, "return to the host's name");
	return r;
}

/* Named as the front's user: whatever the front has put into its own folder, it gains nothing. */
static int listen_in(const struct build_env *env, int dir, const char *name, int sock)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int r;

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", name);
	if (fchdir(dir) < 0)
		return -errno;
	mode_t mask = umask(0177);
	setfsgid(env->front_gid);
	setfsuid(env->front_uid);
	(void)unlink(name); /* of one that has died */
	r = bind(sock, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(sock, 128) < 0 ? -errno : 0;
	setfsuid(0);
	setfsgid(0);
	umask(mask);
	return chdir("/") < 0 && r == 0 ? -errno : r;
}

int claim_listen(const struct build_env *env, const char *id, const char *name, int sock,
	struct fail *f)
{
	char path[PRIV_ID_MAX + 8];
	int r;

	snprintf(path, sizeof(path), "run/%s", id);
	_cleanup_close_ int dir = open_below(env->state, path, O_RDONLY | O_DIRECTORY, 0);
	if (dir < 0)
		return fail_set(f, dir, "open %s", path);
	r = listen_in(env, dir, name, sock);
	return r < 0 ? fail_set(f, r, "listen on %s/%s", path, name) : 0;
}

int claim(const struct build_env *env, const struct claim *c, const struct claim_from *from,
	struct fail *f)
{
	struct shim_boot boot = from->boot;
	int r = write_record(env, c, from, f);

	if (r == 0)
		r = set_cpu(env, c, from->block, f);
	if (r == 0)
		r = set_hostname(env, c->hostname, from->fds[BUILD_FD_UTS], f);
	if (r == 0)
		r = claim_listen(env, c->id, "sock", from->fds[BUILD_FD_LISTEN], f);
	if (r == 0 && from->fds[BUILD_FD_EGRESS] >= 0)
		r = egress_claim(env, c->id, c->secret, c->generation,
			from->fds[BUILD_FD_EGRESS], f);
	if (r < 0)
		return r;
	memcpy(boot.secret, c->secret, sizeof(boot.secret));
	boot.generation = c->generation;
	r = fd_write_full(from->fds[BUILD_FD_BOOT], &boot, sizeof(boot));
	explicit_bzero(&boot, sizeof(boot));
	return r < 0 ? fail_set(f, r, "start the shim") : 0;
}
