/* SPDX-License-Identifier: MIT */
/* The builder: from a fork of the broker to a running shim. The order is the point: everything is
 * mounted by host root on mounts that only this process's namespace knows, and the guest's user
 * namespace is entered last, so that the kernel locks every mount against the guest. */
#include "sandboxd/priv/build.h"

#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "common/sys/rlimit.h"
#include "sandboxd/init/init.h"
#include "sandboxd/priv/child.h"
#include "sandboxd/priv/drop.h"
#include "sandboxd/priv/egress.h"
#include "sandboxd/priv/layers.h"
#include "sandboxd/priv/net.h"
#include "sandboxd/priv/root.h"
#include "sandboxd/priv/userns.h"
#include "sandboxd/priv/works.h"
#include "sandboxd/shim/shim.h"
#include "sandboxd/worker/worker.h"

#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#ifndef GUEST_UID /* the hardening tests build one that gives the guest more */
#define GUEST_UID 1001
#endif

#define WORKER_STACK 65536
#define GUEST_OOM    900

struct builder {
	const struct build_env *env;
	const struct build_shape *shape;
	uint32_t block;
	int broker; /* socket to the broker */
	int userns;
	struct root_spec root;
	pid_t first, worker;
	int first_pidfd;
	int sync;              /* socket to the first process: reports, then one byte for "go" */
	int init_fd, init_far; /* init's control socket: ours, its */
	int worker_fd;
	int uts; /* our host name's namespace, for the claim */
	int trees;  /* the guest's control group, for the shim; -1: not to be had, or not worth it */
	int egress; /* socket to the egress process, for the claim; -1: none */
	struct fail no_egress;
	struct cg_box cg;
	struct fail fail;
};

static int pair(int sv[2], struct fail *f)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return fail_set(f, errno, "make a socket pair");
	return 0;
}

static const struct filter *filter_of(const struct builder *b)
{
	return b->shape->nvolumes > 1 ? &b->env->apart : &b->env->filter;
}

/* --- the first process: pid 1 of the sandbox ------------------------------------------------- */

/* Even with every barrier in front of it gone, no further namespace can be made in here. */
static int forbid_namespaces(int proc, struct fail *f)
{
	static const char *const kinds[] = { "user", "pid", "net", "mnt", "ipc", "uts", "cgroup",
		"time" };
	char path[64];

	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		snprintf(path, sizeof(path), "sys/user/max_%s_namespaces", kinds[i]);
		int r = file_write(proc, path, "0");
		if (r < 0 && (r != -ENOENT || i == 0))
			return fail_set(f, r, "forbid %s namespaces", kinds[i]);
	}
	return 0;
}

/* Where memory ends, of the sandbox or of the machine, the guest's processes go before its file worker and shim, and
 * before what else runs here. Raising takes no right. */
static int first_to_go(struct fail *f)
{
	static const char file[] = "/proc/self/oom_score_adj";
	char now[16];
	int r = file_read(AT_FDCWD, file, now, sizeof(now));

	if (r == 0 && strtol(now, NULL, 10) < GUEST_OOM)
		r = file_write(AT_FDCWD, file, "%d", GUEST_OOM);
	return r < 0 ? fail_set(f, r, "set %s", file) : 0;
}

static int join_guest(const struct builder *b, struct fail *f)
{
	int r = cg_join_guest(&b->cg);

	return r < 0 ? fail_set(f, r, "enter the guest's control groups") : 0;
}

static int first_prepare(struct builder *b, int *proc, struct fail *f)
{
	int r = join_guest(b, f);

	if (r == 0)
		r = first_to_go(f);
	if (r == 0)
		r = root_build(&b->root, proc, f);
	if (r < 0)
		return r;
	if (setns(b->userns, CLONE_NEWUSER) < 0)
		return fail_set(f, errno, "enter the user namespace");
	/* The copies belong to a lesser owner: from here on they cannot be taken off or changed. */
	if (unshare(CLONE_NEWNS) < 0)
		return fail_set(f, errno, "make the guest's mount namespace");
	return 0;
}

static int first_become_init(struct builder *b, int proc, int sync, struct fail *f)
{
	int keep[] = { b->init_far, sync }, r, prog;

	if (unshare(CLONE_NEWCGROUP) < 0)
		return fail_set(f, errno, "make the cgroup namespace");
	r = forbid_namespaces(proc, f);
	if (r < 0)
		return r;
	prog = fcntl(b->env->program[PROG_INIT], F_DUPFD_CLOEXEC, 64);
	r = child_place_fds(keep, 2, f);
	if (r < 0)
		return r;
	(void)fcntl(4, F_SETFD, FD_CLOEXEC);
	if (close_range(5, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
		return fail_set(f, errno, "close descriptors");
	r = drop_rights(DROP_INIT, filter_of(b), f);
	return r < 0 ? r : child_exec(prog, "sbx-init", NULL, NULL, NULL, f);
}

static void first_main(struct builder *b, int sync)
{
	struct fail f = { 0 };
	int proc = -1;
	char go;

	if (first_prepare(b, &proc, &f) == 0) {
		(void)send(sync, &f, sizeof(f), MSG_NOSIGNAL);
		if (recv(sync, &go, 1, 0) != 1)
			_exit(1); /* never claimed */
		first_become_init(b, proc, sync, &f);
		/* place_fds has moved it */
		(void)send(4, &f, sizeof(f), MSG_NOSIGNAL);
		_exit(1);
	}
	(void)send(sync, &f, sizeof(f), MSG_NOSIGNAL);
	_exit(1);
}

static int start_first(struct builder *b)
{
	int sv[2], ctl[2];

	if (pair(sv, &b->fail) < 0 || pair(ctl, &b->fail) < 0)
		return -1;
	b->init_fd = ctl[0];
	b->init_far = ctl[1];
	b->first = cg_fork_into(b->cg.init_dir, CLONE_NEWPID | CLONE_PIDFD, &b->first_pidfd);
	if (b->first < 0)
		return fail_set(&b->fail, errno, "start the first process");
	if (b->first == 0) {
		close(sv[0]);
		close(b->init_fd);
		close(b->broker);
		first_main(b, sv[1]);
	}
	close(sv[1]);
	close(b->init_far);
	b->sync = sv[0];
	return 0;
}

/* Waits for the first process's word: 0 when all is well. at_exec: the socket's end is the word. */
static int await_first(struct builder *b, bool at_exec)
{
	struct fail f;
	ssize_t n;

	do
		n = recv(b->sync, &f, sizeof(f), 0);
	while (n < 0 && errno == EINTR);
	if (n == sizeof(f) && f.sys) {
		b->fail = f;
		return -f.sys;
	}
	if ((n == sizeof(f)) == !at_exec)
		return 0;
	return fail_set(&b->fail, ECHILD, "the first process ended early");
}

/* --- the file worker ------------------------------------------------------------------------- */

struct worker_args {
	struct builder *b;
	int far, near;
};

/* Runs in the builder's memory until it executes (vfork): copying that would cost more than all the
 * rest of this. The descriptors are its own. */
static int worker_main(void *arg)
{
	struct worker_args *a = arg;
	struct builder *b = a->b;
	int prog = fcntl(b->env->program[PROG_WORKER], F_DUPFD_CLOEXEC, 64);
	struct fail f = { 0 };

	close(a->near);
	close(b->sync);
	close(b->init_fd);
	close(b->broker);
	int r = cg_join_files(&b->cg);
	/* Guest's users and mounts, but outside its pid namespace: nothing in there sees it. */
	if (r < 0)
		fail_set(&f, r, "enter the file worker's control group");
	else if (setns(b->first_pidfd, CLONE_NEWUSER | CLONE_NEWNS) < 0)
		fail_set(&f, errno, "enter the guest's mount namespace");
	else if (child_place_fds(&a->far, 1, &f) == 0 && close_range(4, ~0u, CLOSE_RANGE_CLOEXEC) == 0 &&
		 drop_rights(DROP_WORKER, filter_of(b), &f) == 0)
		child_exec(prog, "sbx-worker", "1001", "1001", "linux", &f);
	b->fail = f;
	_exit(1);
}

static int start_worker(struct builder *b)
{
	_Alignas(16) char stack[WORKER_STACK];
	struct worker_args a = { .b = b };
	int sv[2];

	if (pair(sv, &b->fail) < 0)
		return -1;
	a.near = sv[0];
	a.far = sv[1];
	b->worker = clone(worker_main, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, &a);
	forget_stack(stack);
	if (b->worker < 0)
		return fail_set(&b->fail, errno, "start the file worker");
	close(sv[1]);
	b->worker_fd = sv[0];
	return b->fail.sys ? -b->fail.sys : 0;
}

/* --- first half ------------------------------------------------------------------------------ */

static int add_lower(struct builder *b, int dir)
{
	int mnt = dir < 0 ? dir : root_clone_of(dir, "");

	if (mnt < 0)
		return mnt;
	b->root.lowers[b->root.nlowers++] = mnt;
	return 0;
}

static int clone_layers(struct builder *b)
{
	const struct build_shape *s = b->shape;
	int r = 0;

	if (!build_shape_known(s)) {
		_cleanup_close_ int dir =
			open_below(b->env->layers, BUILD_PROBE_LAYER, O_PATH | O_DIRECTORY, 0);
		r = add_lower(b, dir);
		return r < 0 ? fail_set(&b->fail, r, "clone the probe's layer") : 0;
	}
	for (uint32_t i = 0; i < s->nchain && r == 0; i++) {
		_cleanup_close_ int dir = layer_open(b->env, s->chain[i]);
		r = add_lower(b, dir);
		if (r < 0)
			fail_set(&b->fail, r, "clone the layer %u", s->chain[i]);
	}
	return r;
}

static void close_root(struct builder *b)
{
	for (uint32_t i = 0; i < b->root.nlowers; i++)
		close_p(&b->root.lowers[i]);
	b->root.nlowers = 0;
	for (uint32_t i = 0; i < b->root.nvolumes; i++)
		close_p(&b->root.volumes[i].mnt);
	b->root.nvolumes = 0;
	close_p(&b->root.area);
	b->root.area = -1;
}

static int make_area(struct builder *b)
{
	char name[BOX_NAME_MAX];
	struct area_spec a = {
		.name = name, .disk_mb = b->shape->disk_mb, .num = b->block
	};

	box_pool(name, b->block);
	return area_make(&b->env->areas, &a, &b->root.area, &b->fail);
}

static int open_volumes(struct builder *b)
{
	const struct build_shape *s = b->shape;

	for (uint32_t i = 0; i < s->nvolumes; i++) {
		struct root_volume *v = &b->root.volumes[b->root.nvolumes];
		*v = (struct root_volume){ .path = s->volumes[i].path,
			.read_only = s->volumes[i].read_only,
			.mnt = volume_open(b->env, s->volumes[i].num, &b->fail) };
		if (v->mnt < 0)
			return -1;
		b->root.nvolumes++;
	}
	return 0;
}

/* A group for each process ends its tree with one write, but moving the process there makes a start
 * wait for the kernel's grace period, ten milliseconds where two are normal. Without it init finds
 * trees by their mark; ending the sandbox never depends on either. */
static int open_trees(struct builder *b)
{
	if (!b->env->cg.cheap_moves || b->cg.guest_dir < 0)
		return 0;
	b->trees = root_alone(b->cg.guest_dir, "");
	return b->trees < 0 ? fail_set(&b->fail, b->trees, "open the guest's control group") : 0;
}

static int make_groups(struct builder *b)
{
	char name[BOX_NAME_MAX];

	box_group(name, b->block);
	if (cg_make(&b->env->cg, name, box_shim_uid(b->block), &b->cg, &b->fail) < 0 ||
		cg_limit(&b->env->cg, name, b->shape->memory_mb, &b->fail) < 0)
		return -1;
	return open_trees(b);
}

static int leave_host(struct builder *b)
{
	if (fchdir(b->env->priv) < 0 ||
		unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
		return fail_set(&b->fail, errno, "make namespaces");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return fail_set(&b->fail, errno, "make mounts private");
	b->uts = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);
	if (b->uts < 0)
		return fail_set(&b->fail, errno, "open the host name's namespace");
	return net_setup(box_uid(b->block), &b->fail);
}

static int start_init(struct builder *b)
{
	if (send(b->sync, "g", 1, MSG_NOSIGNAL) != 1)
		return fail_set(&b->fail, errno, "wake the first process");
	return await_first(b, true);
}

/* Before the first process, which takes /proc and /dev of this mount namespace away. */
static int start_egress(struct builder *b)
{
	bool probe = b->shape->flags & BUILD_PROBE;

	if (!(b->shape->flags & PRIV_EGRESS))
		return 0;
	_cleanup_close_ int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (self < 0)
		return fail_set(&b->fail, errno, "open a pidfd");
	if (egress_start(b->env, b->block, self, probe, &b->egress, &b->no_egress) == 0 || probe)
		return 0;
	b->fail = b->no_egress;
	return -1;
}

static int prepare(struct builder *b)
{
	b->root.uid = box_uid(b->block);
	b->root.memory_mb = b->shape->memory_mb;
	b->userns = b->root.userns = userns_make(b->root.uid, &b->fail);
	if (b->userns < 0 || clone_layers(b) < 0 || make_area(b) < 0 || open_volumes(b) < 0 ||
		make_groups(b) < 0)
		return -1;
	if (leave_host(b) < 0 || start_egress(b) < 0 || start_first(b) < 0 || await_first(b, false) < 0)
		return -1;
	close_root(b);
	return start_worker(b) < 0 ? -1 : start_init(b);
}

/* --- and the shim ---------------------------------------------------------------------------- */

static void pass_on(int fd)
{
	if (fd >= 0)
		(void)fcntl(fd, F_SETFD, 0);
}

/* Descriptors that the shim gets keep their numbers; they are all above the ones being placed. */
static int high(int fd)
{
	return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 96);
}

static int send_ready(struct builder *b, const struct shim_boot *boot, int boot_pipe, int sock)
{
	struct build_report r = { .state = BUILD_READY, .boot = *boot, .fail = b->no_egress };
	int fds[BUILD_FDS] = { [BUILD_FD_BOOT] = boot_pipe,
		[BUILD_FD_LISTEN] = sock,
		[BUILD_FD_UTS] = b->uts,
		[BUILD_FD_EGRESS] = b->egress };
	int n = fd_send_msg(b->broker, &r, sizeof(r), fds,
		b->egress < 0 ? BUILD_FD_EGRESS : BUILD_FDS);

	return n < 0 ? fail_set(&b->fail, n, "report") : 0;
}

static int become_shim(struct builder *b)
{
	uid_t uid = box_shim_uid(b->block);
	int prog = high(b->env->program[PROG_SHIM]), p[2];
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); /* named at the claim */
	struct shim_boot boot = { .magic = SHIM_BOOT_MAGIC,
		.version = SHIM_BOOT_VERSION,
		.uid = uid,
		.gid = uid,
		.guest_uid = GUEST_UID,
		.guest_gid = GUEST_UID,
		.listen_fd = high(sock),
		.init_fd = high(b->init_fd),
		.worker_fd = high(b->worker_fd),
		.root_fd = -1,
		.cgroup_fd = high(b->trees),
		.oom_fd = high(b->cg.oom) };

	if (sock < 0 || pipe2(p, O_CLOEXEC) < 0)
		return fail_set(&b->fail, errno, "make the shim's sockets");
	/* The guest's own mount namespace: the one that it was built in can go. */
	if (setns(b->first_pidfd, CLONE_NEWNS) < 0)
		return fail_set(&b->fail, errno, "enter the guest's mount namespace");
	boot.devpts_fd = high(open("/dev/pts", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
	if (send_ready(b, &boot, p[1], sock) < 0 || child_place_fds(&p[0], 1, &b->fail) < 0)
		return -1;
	if (close_range(4, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
		return fail_set(&b->fail, errno, "close descriptors");
	pass_on(boot.listen_fd);
	pass_on(boot.init_fd);
	pass_on(boot.worker_fd);
	pass_on(boot.devpts_fd);
	pass_on(boot.cgroup_fd);
	pass_on(boot.oom_fd);
	rlimit_use_all(RLIMIT_NOFILE);
	umask(077);
	return child_exec(prog, "sbx-shim", NULL, NULL, NULL, &b->fail);
}

int build_refuse(int sock, const struct fail *f)
{
	struct build_report failed = { .state = BUILD_FAILED, .fail = *f };

	return send(sock, &failed, sizeof(failed), MSG_NOSIGNAL) < 0 ? -errno : 0;
}

void build_run(
	const struct build_env *env, const struct build_shape *shape, uint32_t block, int sock)
{
	struct builder b = { .env = env,
		.shape = shape,
		.block = block,
		.broker = sock,
		.userns = -1,
		.root = { .area = -1 },
		.first_pidfd = -1,
		.sync = -1,
		.init_fd = -1,
		.init_far = -1,
		.worker_fd = -1,
		.uts = -1,
		.trees = -1,
		.egress = -1,
		.cg = CG_BOX_NULL };

	setsid();
	drop_signals();
	if (prepare(&b) == 0)
		become_shim(&b);
	(void)build_refuse(sock, &b.fail);
	_exit(1);
}
