/* SPDX-License-Identifier: MIT */
/* The builder: from a fork of the broker to a running shim. The order is the point: everything is
 * mounted by host root on mounts that only this process's namespace knows, and the guest's user
 * namespace is entered last, so that the kernel locks every mount against the guest. */
#include "sandboxd/priv/build.h"

#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/init/init.h"
#include "sandboxd/priv/drop.h"
#include "sandboxd/priv/net.h"
#include "sandboxd/priv/root.h"
#include "sandboxd/priv/userns.h"
#include "sandboxd/shim/shim.h"
#include "sandboxd/worker/worker.h"

#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>

#define GUEST_UID 1001

struct builder {
	const struct build_env *env;
	const struct build_shape *shape;
	uint32_t block;
	uint64_t start_time;    /* ours, read while the host's proc was in sight */
	int broker;             /* socket to the broker */
	int userns;
	struct root_spec root;
	pid_t first, worker;
	int first_pidfd;
	int sync;               /* socket to the first process: reports, then one byte for "go" */
	int init_fd, init_far;  /* init's control socket: ours, its */
	int worker_fd;
	struct fail fail;
};

void build_pool_name(char *buf, size_t size, uint32_t block)
{
	snprintf(buf, size, "pool-%u", block);
}

static void report(struct builder *b, enum build_state state)
{
	struct build_report r = { .state = state, .fail = b->fail };

	(void)send(b->broker, &r, sizeof(r), MSG_NOSIGNAL);
}

static int pair(int sv[2], struct fail *f)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return fail_set(f, errno, "make a socket pair");
	return 0;
}

/* Puts `fds` at 3, 4, … and the guest's own /dev/null at 0, 1, 2; the rest closes at exec. */
static int place_fds(const int *fds, int n, struct fail *f)
{
	int high[8], null;

	for (int i = 0; i < n; i++) {
		high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 32);
		if (high[i] < 0)
			return fail_set(f, errno, "duplicate a descriptor");
	}
	null = open("/dev/null", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;
	if (null < 0 || fstat(null, &st) < 0 || st.st_rdev != makedev(1, 3))
		return fail_set(f, null < 0 ? errno : EPERM, "open /dev/null");
	for (int i = 0; i < 3; i++)
		if (dup2(null, i) < 0)
			return fail_set(f, errno, "place /dev/null");
	for (int i = 0; i < n; i++)
		if (dup2(high[i], 3 + i) < 0)
			return fail_set(f, errno, "place a descriptor");
	return 0;
}

static int exec_program(int fd, const char *name, const char *a, const char *b, const char *c,
	struct fail *f)
{
	const char *argv[] = { name, a, b, c, NULL };
	char *env[] = { NULL };

	syscall(SYS_execveat, fd, "", argv, env, AT_EMPTY_PATH);
	return fail_set(f, errno, "execute %s", name);
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

static int first_prepare(struct builder *b, int *proc, struct fail *f)
{
	int r = root_build(&b->root, proc, f);

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
	r = place_fds(keep, 2, f);
	if (r < 0)
		return r;
	(void)fcntl(4, F_SETFD, FD_CLOEXEC);
	if (close_range(5, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
		return fail_set(f, errno, "close descriptors");
	r = drop_rights(DROP_INIT, &b->env->filter, f);
	return r < 0 ? r : exec_program(prog, "sbx-init", NULL, NULL, NULL, f);
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
	struct clone_args a = { .flags = CLONE_NEWPID | CLONE_PIDFD, .exit_signal = SIGCHLD,
		.pidfd = (uint64_t)(uintptr_t)&b->first_pidfd };
	int sv[2], ctl[2];

	if (pair(sv, &b->fail) < 0 || pair(ctl, &b->fail) < 0)
		return -1;
	b->init_fd = ctl[0];
	b->init_far = ctl[1];
	b->first = (pid_t)syscall(SYS_clone3, &a, sizeof(a));
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

static void worker_main(struct builder *b, int control)
{
	int prog = fcntl(b->env->program[PROG_WORKER], F_DUPFD_CLOEXEC, 64);
	struct fail f = { 0 };

	/* Guest's users and mounts, but outside its pid namespace: nothing in there sees it. */
	if (setns(b->first_pidfd, CLONE_NEWUSER | CLONE_NEWNS) < 0)
		fail_set(&f, errno, "enter the guest's mount namespace");
	else if (place_fds(&control, 1, &f) == 0 && close_range(4, ~0u, CLOSE_RANGE_CLOEXEC) == 0 &&
		drop_rights(DROP_WORKER, &b->env->filter, &f) == 0)
		exec_program(prog, "sbx-worker", "1001", "1001", "linux", &f);
	fprintf(stderr, "sbx-priv: file worker: %s\n", f.text);
	_exit(1);
}

static int start_worker(struct builder *b)
{
	int sv[2];

	if (pair(sv, &b->fail) < 0)
		return -1;
	b->worker = fork();
	if (b->worker < 0)
		return fail_set(&b->fail, errno, "start the file worker");
	if (b->worker == 0) {
		close(sv[0]);
		close(b->sync);
		close(b->init_fd);
		close(b->broker);
		worker_main(b, sv[1]);
	}
	close(sv[1]);
	b->worker_fd = sv[0];
	return 0;
}

/* --- first half ------------------------------------------------------------------------------ */

static int clone_layer(struct builder *b)
{
	b->root.lower = open_tree(b->env->layers, b->shape->layer,
		OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);
	return b->root.lower < 0 ? fail_set(&b->fail, errno, "clone the layer %s", b->shape->layer) : 0;
}

static int make_area(struct builder *b)
{
	char name[32];

	build_pool_name(name, sizeof(name), b->block);
	return area_make(&b->env->areas, name, b->shape->disk_mb, b->block, &b->root.area, &b->fail);
}

static int leave_host(struct builder *b)
{
	if (fchdir(b->env->priv) < 0 ||
		unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
		return fail_set(&b->fail, errno, "make namespaces");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return fail_set(&b->fail, errno, "make mounts private");
	return net_setup(box_uid(b->block), &b->fail);
}

static int prepare(struct builder *b)
{
	b->root.uid = box_uid(b->block);
	b->root.memory_mb = b->shape->memory_mb;
	b->userns = b->root.userns = userns_make(b->root.uid, &b->fail);
	if (b->userns < 0 || clone_layer(b) < 0 || make_area(b) < 0 || leave_host(b) < 0)
		return -1;
	if (start_first(b) < 0 || await_first(b, false) < 0)
		return -1;
	close_p(&b->root.lower);
	close_p(&b->root.area);
	return start_worker(b);
}

/* --- second half ----------------------------------------------------------------------------- */

static int write_record(struct builder *b, const struct build_claim *c)
{
	struct box box = { .magic = BOX_MAGIC, .block = b->block, .generation = c->generation,
		.shim_pid = getpid(), .shim_start = b->start_time };
	char pool[32];
	int r;

	memcpy(box.boot, b->env->boot, sizeof(box.boot));
	memcpy(box.layer, b->shape->layer, sizeof(box.layer));
	r = box_write(b->env->boxes, c->id, &box);
	if (r < 0)
		return fail_set(&b->fail, r, "write the record");
	build_pool_name(pool, sizeof(pool), b->block);
	r = area_rename(&b->env->areas, pool, c->id);
	return r < 0 ? fail_set(&b->fail, r, "name the area") : 0;
}

static int join_groups(struct builder *b, const struct build_claim *c, struct cg_box *cg)
{
	struct cg_limits lim = { c->memory_mb, c->cpu_milli, CG_PIDS_DEFAULT };
	int r = cg_make(&b->env->cg, c->id, &lim, box_shim_uid(b->block), cg, &b->fail);

	if (r < 0)
		return r;
	r = cg_join_svc(cg, 0);
	if (r == 0)
		r = cg_join_svc(cg, b->worker);
	if (r == 0)
		r = cg_join_init(cg, b->first);
	return r < 0 ? fail_set(&b->fail, r, "enter the control groups") : 0;
}

/* Made as the front's user: whatever the front has put into its own folder, it gains nothing. */
static int listen_in(int dir, uid_t uid, gid_t gid)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "sock" };
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), r;
	mode_t mask = umask(0177);

	if (s < 0 || fchdir(dir) < 0)
		return -errno;
	setfsgid(gid);
	setfsuid(uid);
	r = bind(s, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(s, 128) < 0 ? -errno : 0;
	setfsuid(0);
	setfsgid(0);
	umask(mask);
	if (r == 0 && chdir("/") < 0)
		r = -errno;
	if (r < 0)
		close(s);
	return r < 0 ? r : s;
}

static int make_socket(struct builder *b, const struct build_claim *c)
{
	char path[PRIV_ID_MAX + 8];
	int s;

	snprintf(path, sizeof(path), "run/%s", c->id);
	_cleanup_close_ int dir = open_below(b->env->state, path, O_RDONLY | O_DIRECTORY, 0);
	if (dir < 0)
		return fail_set(&b->fail, dir, "open %s", path);
	s = listen_in(dir, b->env->front_uid, b->env->front_gid);
	return s < 0 ? fail_set(&b->fail, s, "listen on %s/sock", path) : s;
}

static int start_init(struct builder *b)
{
	if (send(b->sync, "g", 1, MSG_NOSIGNAL) != 1)
		return fail_set(&b->fail, errno, "wake the first process");
	return await_first(b, true);
}

static int send_boot(const struct shim_boot *boot, struct fail *f)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0 || fd_write_full(p[1], boot, sizeof(*boot)) < 0)
		return fail_set(f, errno, "make the boot pipe");
	close(p[1]);
	return p[0];
}

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

static int become_shim(struct builder *b, const struct build_claim *c, int sock, const struct cg_box *cg)
{
	uid_t uid = box_shim_uid(b->block);
	struct shim_boot boot = { .magic = SHIM_BOOT_MAGIC, .version = SHIM_BOOT_VERSION, .uid = uid,
		.gid = uid, .guest_uid = GUEST_UID, .guest_gid = GUEST_UID,
		.generation = c->generation, .listen_fd = high(sock), .init_fd = high(b->init_fd),
		.worker_fd = high(b->worker_fd), .root_fd = -1, .cgroup_fd = high(cg->guest_dir),
		.oom_fd = high(cg->oom) };
	int prog = high(b->env->program[PROG_SHIM]), fd;
	struct rlimit nofile;

	/* The guest's own mount namespace: the one that it was built in can go. */
	if (setns(b->first_pidfd, CLONE_NEWNS) < 0)
		return fail_set(&b->fail, errno, "enter the guest's mount namespace");
	boot.devpts_fd = high(open("/dev/pts", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
	memcpy(boot.secret, c->secret, sizeof(boot.secret));
	fd = send_boot(&boot, &b->fail);
	if (fd < 0 || place_fds(&fd, 1, &b->fail) < 0)
		return -1;
	if (close_range(4, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
		return fail_set(&b->fail, errno, "close descriptors");
	pass_on(boot.listen_fd);
	pass_on(boot.init_fd);
	pass_on(boot.worker_fd);
	pass_on(boot.devpts_fd);
	pass_on(boot.cgroup_fd);
	pass_on(boot.oom_fd);
	if (getrlimit(RLIMIT_NOFILE, &nofile) == 0) {
		nofile.rlim_cur = nofile.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &nofile);
	}
	drop_signals();
	umask(077);
	report(b, BUILD_MADE);
	return exec_program(prog, "sbx-shim", NULL, NULL, NULL, &b->fail);
}

static int claim(struct builder *b, const struct build_claim *c)
{
	struct cg_box cg = CG_BOX_NULL;
	int sock;

	if (write_record(b, c) < 0 || join_groups(b, c, &cg) < 0)
		return -1;
	if (sethostname(c->hostname, strlen(c->hostname)) < 0)
		return fail_set(&b->fail, errno, "set the host name");
	sock = make_socket(b, c);
	if (sock < 0 || start_init(b) < 0)
		return -1;
	return become_shim(b, c, sock, &cg);
}

void build_run(const struct build_env *env, const struct build_shape *shape, uint32_t block, int sock)
{
	struct builder b = { .env = env, .shape = shape, .block = block, .broker = sock,
		.start_time = pid_start_time(getpid()), .userns = -1, .root = { .lower = -1, .area = -1 }, .first_pidfd = -1, .sync = -1,
		.init_fd = -1, .init_far = -1, .worker_fd = -1 };
	struct build_claim c;
	ssize_t n;

	setsid();
	drop_signals();
	if (prepare(&b) == 0) {
		report(&b, BUILD_READY);
		do
			n = recv(sock, &c, sizeof(c), 0);
		while (n < 0 && errno == EINTR);
		if (n != sizeof(c))
			_exit(0); /* the broker has gone or does not need us */
		claim(&b, &c);
	}
	report(&b, BUILD_FAILED);
	_exit(1);
}
