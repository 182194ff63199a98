/* SPDX-License-Identifier: MIT */
/* sbx-priv, the broker: the one process of the product that stays root. It starts, tests what the
 * host can do, and then serves the closed table of ops.def to sandboxd and to nobody else. */
#include "sandboxd/priv/broker.h"
#include "sandboxd/priv/egress.h"
#include "sandboxd/priv/root.h"

#include "common/sys/core.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "common/sys/mounts.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#define PROGRAM_MAX (16 * 1024 * 1024)

struct args {
	const char *libexec, *state, *provider;
	uid_t uid;
	gid_t gid;
};

static int usage(void)
{
	fprintf(stderr,
		"usage: sbx-priv LIBEXEC_DIR STATE_DIR FRONT_UID FRONT_GID DISK_PROVIDER|-\n"
		"sbx-priv is started by sandboxd; it is not run by hand.\n");
	return 2;
}

static int parse(int argc, char **argv, struct args *a)
{
	char *end1, *end2;

	if (argc != 6)
		return -1;
	a->libexec = argv[1];
	a->state = argv[2];
	a->uid = (uid_t)strtoul(argv[3], &end1, 10);
	a->gid = (gid_t)strtoul(argv[4], &end2, 10);
	a->provider = strcmp(argv[5], "-") == 0 ? NULL : argv[5];
	return *argv[3] && *argv[4] && !*end1 && !*end2 ? 0 : -1;
}

/* A program that runs in or next to a sandbox runs from memory: /proc/…/exe leads to no file. */
static int seal_program(const char *dir, const char *name, struct fail *f)
{
	char path[4096];
	struct stat st;
	int mem;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return fail_set(f, errno, "open %s", path);
	if (st.st_size <= 0 || st.st_size > PROGRAM_MAX)
		return fail_set(f, ENOEXEC, "%s", path);
	_cleanup_free_ char *buf = malloc((size_t)st.st_size);
	mem = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (!buf || mem < 0 || fd_read_full(fd, buf, (size_t)st.st_size) < 0 ||
		fd_write_full(mem, buf, (size_t)st.st_size) < 0 || fchmod(mem, 0555) < 0 ||
		fcntl(mem, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) <
			0)
		return fail_set(f, errno ? errno : ENOMEM, "copy %s", path);
	return mem;
}

static int seal_programs(struct build_env *env, const char *dir, struct fail *f)
{
	static const char *const names[PROG_COUNT] = { "sbx-shim", "sbx-init", "sbx-worker",
		"sbx-egress" };

	for (int i = 0; i < PROG_COUNT; i++) {
		env->program[i] = seal_program(dir, names[i], f);
		if (env->program[i] < 0)
			return env->program[i];
	}
	return 0;
}

/* An own mount namespace: helper mounts stay out of the host's, and what the host mounts or takes
 * off still comes through. The state directory is opened again, as this namespace sees it. Of the host's
 * other mounts none stays: where mounts are not shared, no unmounting would come through. */
static int own_mounts(struct build_env *env, const char *libexec, struct fail *f)
{
	_cleanup_free_ char *state = NULL, *programs = NULL;

	if (fchdir(PRIV_FD_STATE) < 0)
		return fail_set(f, errno, "enter the state directory");
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return fail_set(f, errno, "make an own mount namespace");
	env->uts = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);
	env->state = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	state = getcwd(NULL, 0);
	programs = realpath(libexec, NULL);
	if (env->state < 0 || !state || chdir("/") < 0)
		return fail_set(f, errno, "open the state directory");
	mounts_leave((const char *const[]){ state, programs, NULL });
	return 0;
}

static int make_folders(struct build_env *env, struct fail *f)
{
	struct stat st;

	env->priv = dir_make(env->state, "priv", 0700);
	if (env->priv < 0 || fstat(env->priv, &st) < 0)
		return fail_set(f, env->priv < 0 ? env->priv : errno, "make priv");
	if (st.st_uid != 0 || (st.st_mode & 077))
		return fail_set(f, EPERM, "priv in the state directory must be root's alone");
	env->layers = dir_make(env->priv, "layers", 0700);
	env->boxes = dir_make(env->priv, "boxes", 0700);
	if (env->layers < 0 || env->boxes < 0)
		return fail_set(
			f, env->layers < 0 ? env->layers : env->boxes, "make folders in priv");
	return 0;
}

#define LOCK_WAIT_MS 60000

/* Builders and the janitor of an earlier broker hold this too: when we get it, nothing is half-made
 * any more, and the sweep sees all there is. Held until the last process that has it is gone. */
static int lock_alone(const struct build_env *env, struct fail *f)
{
	int fd = openat(env->priv, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	int64_t end = broker_now_ms() + LOCK_WAIT_MS;
	struct timespec pause = { .tv_nsec = 2000000 };

	if (fd < 0)
		return fail_set(f, errno, "open priv/lock");
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return fail_set(f, errno, "lock priv");
		if (broker_now_ms() > end)
			return fail_set(f, EBUSY, "another broker works on this state directory");
		nanosleep(&pause, NULL);
	}
	return 0;
}

static int probe_layer(const struct build_env *env, struct fail *f)
{
	static const char *const dirs[] = { "proc", "dev", "sys", "tmp", "run" };
	_cleanup_close_ int dir = dir_make(env->layers, BUILD_PROBE_LAYER, 0755);

	if (dir < 0)
		return fail_set(f, dir, "make the probe's layer");
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		if (mkdirat(dir, dirs[i], 0755) < 0 && errno != EEXIST)
			return fail_set(f, errno, "make the probe's layer");
	return 0;
}

static void remove_unclaimed(void *arg, const char *name)
{
	const struct area_store *s = arg;

	if (strncmp(name, "pool-", 5) == 0 || strncmp(name, "test-", 5) == 0)
		(void)area_remove(s, name);
}

static void load_blocks(void *arg, const char *id)
{
	struct broker *b = arg;
	struct record box;

	if (record_read(b->env.boxes, id, &box) == 0)
		box_block_mark(&b->blocks, box.block);
}

static void load_group(void *arg, uint32_t block)
{
	struct broker *b = arg;

	if (block < BOX_BLOCKS)
		box_block_mark(&b->blocks, block);
}

static int set_up(struct broker *b, const struct args *a, struct fail *f)
{
	struct build_env *env = &b->env;
	int r;

	env->front_uid = a->uid;
	env->front_gid = a->gid;
	r = box_boot_id(env->boot);
	if (r < 0)
		return fail_set(f, r, "read the boot id");
	if ((r = own_mounts(env, a->libexec, f)) < 0 || (r = make_folders(env, f)) < 0 ||
		(r = lock_alone(env, f)) < 0 || (r = root_statics(env->priv, f)) < 0 ||
		(r = seal_programs(env, a->libexec, f)) < 0 || (r = probe_layer(env, f)) < 0 ||
		(r = cg_open(&env->cg, env->priv, a->state, f)) < 0 ||
		(r = area_open(&env->areas, env->priv, a->provider, f)) < 0 ||
		(r = filter_compile(&env->filter, FILTER_GUEST, f)) < 0 ||
		(r = filter_compile(&env->apart, FILTER_APART, f)) < 0 ||
		(r = filter_compile(&env->jail_filter, FILTER_JAIL, f)) < 0 || (r = egress_jail(env, f)) < 0)
		return r;
	area_each(&env->areas, remove_unclaimed, &env->areas);
	b->blocks.next = (uint32_t)strtoul(env->cg.base + strlen(CG_BASE), NULL, 16) % BOX_BLOCKS;
	r = box_each(env->boxes, load_blocks, b);
	if (r < 0)
		return fail_set(f, r, "read priv/boxes");
	cg_each(&env->cg, load_group, b);
	seal_recover_all(env);
	limits_find(b);
	signal(SIGCHLD, SIG_IGN); /* children end by themselves; their sockets tell us */
	signal(SIGPIPE, SIG_IGN);
	return janitor_start(b, f);
}

int main(int argc, char **argv)
{
	static struct broker b = {
		.front = PRIV_FD_FRONT, .janitor = -1, .env = { .cg = CG_NULL }
	};
	static const char *const modes[] = { "none", "v2", "hybrid", "v1" };
	struct fail f = { 0 };
	struct args a;

	if (parse(argc, argv, &a) < 0)
		return usage();
	if (fcntl(PRIV_FD_FRONT, F_SETFD, FD_CLOEXEC) < 0 ||
		fcntl(PRIV_FD_STATE, F_SETFD, FD_CLOEXEC) < 0)
		return usage();
	if (geteuid() != 0) {
		fprintf(stderr, "<error> sbx-priv: needs root\n");
		return 1;
	}
	umask(077);
	/* For all that is started from here on; a 0 that we were born with could not be changed later. */
	(void)setrlimit(RLIMIT_CORE, &(struct rlimit){ CORE_NEVER, CORE_NEVER });
	if (set_up(&b, &a, &f) < 0) {
		fprintf(stderr, "<error> sbx-priv: %s\n", f.text);
		cg_close(&b.env.cg);
		return 1;
	}
	fprintf(stderr, "<info> sbx-priv: control groups %s, disk areas %s\n", modes[b.env.cg.mode],
		b.env.areas.provider->name);
	return broker_run(&b);
}
