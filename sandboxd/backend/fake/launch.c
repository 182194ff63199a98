/* SPDX-License-Identifier: MIT */
/* Starts init, worker and shim of one sandbox, each in its own session, so that they outlive the
 * caller; the secret goes through a pipe. Ends them by pidfd, after the start time has been compared. */
#include "common/sys/fd.h"
#include "common/sys/mark.h"
#include "common/sys/mem.h"
#include "sandboxd/backend/fake/fake.h"
#include "sandboxd/shim/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#define FIRST_FD 3
#define BACKLOG 128
#define END_MS 5000

struct program {
	const char *name;
	char *const *argv;
	const int *fds; /* become 3, 4, … */
	size_t nfds;
};

/* dup2 onto targets that are also sources would overwrite them, so everything is first moved up. */
static int add_fds(posix_spawn_file_actions_t *a, const struct program *p, int *moved)
{
	int r = 0;

	for (int i = 0; i < 3 && r == 0; i++)
		r = posix_spawn_file_actions_addopen(a, i, "/dev/null", O_RDWR, 0);
	for (size_t i = 0; i < p->nfds && r == 0; i++) {
		moved[i] = fcntl(p->fds[i], F_DUPFD_CLOEXEC, 32);
		r = moved[i] < 0 ? errno
			: posix_spawn_file_actions_adddup2(a, moved[i], FIRST_FD + (int)i);
	}
	/* They outlive whoever started the server, and hold nothing of his. */
	if (r == 0)
		r = posix_spawn_file_actions_addclosefrom_np(a, FIRST_FD + (int)p->nfds);
	return r;
}

static int start(const struct backend *b, const struct program *p, pid_t *ret)
{
	static char *const no_env[] = { NULL };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int moved[8] = { -1, -1, -1, -1, -1, -1, -1, -1 };
	char path[4096];
	int r;

	snprintf(path, sizeof(path), "%s/%s", b->libexec_dir, p->name);
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setflags(&attr,
		POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	r = add_fds(&actions, p, moved);
	if (r == 0)
		r = posix_spawn(ret, path, &actions, &attr, p->argv, no_env);
	for (size_t i = 0; i < p->nfds; i++)
		close_p(&moved[i]);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	return -r;
}

static int listen_sock(int run_dirfd, int *ret_fd)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	(void)unlinkat(run_dirfd, "sock", 0);
	snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/sock", run_dirfd);
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	*ret_fd = steal_fd(&fd);
	return 0;
}

struct ends { /* ours and theirs of the two internal sockets, the boot pipe */
	int init[2], worker[2], boot[2], listen;
};

static void ends_close(const struct ends *x)
{
	const int *all[] = { &x->init[0], &x->init[1], &x->worker[0], &x->worker[1], &x->boot[0],
		&x->boot[1], &x->listen };

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		close_p(all[i]);
}

static int ends_open(struct ends *x, int run_dirfd)
{
	*x = (struct ends){ { -1, -1 }, { -1, -1 }, { -1, -1 }, -1 };
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, x->init) < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, x->worker) < 0 ||
	    pipe2(x->boot, O_CLOEXEC) < 0)
		return -errno;
	return listen_sock(run_dirfd, &x->listen);
}

static int start_init(const struct backend *b, const struct ends *x, struct fake_run *r)
{
	static char *const argv[] = { (char *)(size_t)"sbx-init", NULL };
	const struct program p = { "sbx-init", argv, &x->init[1], 1 };

	return start(b, &p, &r->pid[FAKE_INIT]);
}

static int start_worker(const struct backend *b, const struct ends *x, int root_fd, struct fake_run *r)
{
	char uid[16], gid[16];
	char *const argv[] = { (char *)(size_t)"sbx-worker", uid, gid, (char *)(size_t)"fake", NULL };
	const int fds[] = { x->worker[1], root_fd };
	const struct program p = { "sbx-worker", argv, fds, 2 };

	snprintf(uid, sizeof(uid), "%u", getuid());
	snprintf(gid, sizeof(gid), "%u", getgid());
	return start(b, &p, &r->pid[FAKE_WORKER]);
}

enum { SHIM_LISTEN = 4, SHIM_INIT, SHIM_WORKER, SHIM_ROOT };

static int start_shim(const struct backend *b, const struct backend_spec *spec, const struct ends *x,
	int root_fd, struct fake_run *r)
{
	static char *const argv[] = { (char *)(size_t)"sbx-shim", NULL };
	const int fds[] = { x->boot[0], x->listen, x->init[0], x->worker[0], root_fd };
	const struct program p = { "sbx-shim", argv, fds, ARRAY_LEN(fds) };
	struct shim_boot boot = { .magic = SHIM_BOOT_MAGIC, .version = SHIM_BOOT_VERSION,
		.flags = SHIM_FAKE, .uid = SHIM_ID_KEEP, .gid = SHIM_ID_KEEP,
		.guest_uid = SHIM_ID_KEEP, .guest_gid = SHIM_ID_KEEP,
		.init_pid = (uint32_t)r->pid[FAKE_INIT], .generation = spec->generation,
		.listen_fd = SHIM_LISTEN, .init_fd = SHIM_INIT, .worker_fd = SHIM_WORKER,
		.root_fd = SHIM_ROOT, .devpts_fd = -1, .cgroup_fd = -1, .oom_fd = -1 };
	int err;

	memcpy(boot.secret, spec->secret, sizeof(boot.secret));
	err = fd_write_full(x->boot[1], &boot, sizeof(boot)); /* fits the pipe's buffer */
	explicit_bzero(boot.secret, sizeof(boot.secret));
	return err < 0 ? err : start(b, &p, &r->pid[FAKE_SHIM]);
}

int fake_launch(const struct backend *b, const struct backend_spec *spec, int run_dirfd, int root_fd,
	struct fake_run *ret, struct err *e)
{
	struct ends x;
	int r = ends_open(&x, run_dirfd);

	*ret = (struct fake_run){ .generation = spec->generation };
	if (r == 0)
		r = start_init(b, &x, ret);
	if (r == 0)
		r = start_worker(b, &x, root_fd, ret);
	if (r == 0)
		r = start_shim(b, spec, &x, root_fd, ret);
	ends_close(&x);
	for (int i = 0; i < FAKE_PARTS; i++)
		if (ret->pid[i] > 0)
			ret->start[i] = mark_start_time(ret->pid[i]);
	if (r == 0)
		r = fake_run_write(run_dirfd, ret);
	if (r == 0)
		return 0;
	fake_end(ret);
	return err_set_sys(e, ERR_UNAVAILABLE, -r, "the programs in %s cannot be started: %s",
		b->libexec_dir, strerror(-r));
}

/* -1 unless the pid is still who we started. */
static int open_part(const struct fake_run *r, int part)
{
	if (r->pid[part] <= 0 || r->start[part] == 0)
		return -1;
	int fd = (int)syscall(SYS_pidfd_open, r->pid[part], 0);
	if (fd >= 0 && mark_start_time(r->pid[part]) != r->start[part])
		close(steal_fd(&fd));
	return fd;
}

/* Waits for the end; if we are the parent, the zombie goes too. */
static bool wait_end(int pidfd)
{
	bool ended = fd_wait(pidfd, POLLIN, END_MS);
	siginfo_t si;

	if (ended)
		(void)waitid((idtype_t)P_PIDFD, (id_t)pidfd, &si, WEXITED | WNOHANG);
	return ended;
}

/* True when it ended by itself. */
static bool end_part(const struct fake_run *r, int part, bool politely)
{
	_cleanup_close_ int fd = open_part(r, part);

	if (fd < 0) {
		if (r->pid[part] > 0 && r->start[part])
			(void)waitpid(r->pid[part], NULL, WNOHANG); /* a zombie of ours, if anything */
		return false;
	}
	if (politely && wait_end(fd))
		return true;
	(void)syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
	(void)wait_end(fd);
	return false;
}

/* The shim first: init and worker end by themselves when their sockets do, init after having killed
 * its processes. One that was killed could not, so then the marks are looked for here. */
void fake_end(const struct fake_run *r)
{
	(void)end_part(r, FAKE_SHIM, false);
	if (!end_part(r, FAKE_INIT, true) && r->pid[FAKE_INIT] > 0)
		mark_kill(mark_of(r->pid[FAKE_INIT], 0), true);
	(void)end_part(r, FAKE_WORKER, true);
}

bool fake_runs(const struct fake_run *r)
{
	for (int i = 0; i < FAKE_PARTS; i++)
		if (r->start[i] == 0 || mark_start_time(r->pid[i]) != r->start[i])
			return false;
	return true;
}

int fake_run_write(int run_dirfd, const struct fake_run *r)
{
	char buf[512];
	int n = snprintf(buf, sizeof(buf), "%llu", (unsigned long long)r->generation);

	for (int i = 0; i < FAKE_PARTS; i++)
		n += snprintf(buf + n, sizeof(buf) - (size_t)n, " %d %llu", (int)r->pid[i],
			(unsigned long long)r->start[i]);
	/* Whole or absent, but not synced: after a crash of the host nothing that it names is left. */
	_cleanup_close_ int fd = openat(run_dirfd, "pid.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int err = fd < 0 ? -errno : fd_write_full(fd, buf, (size_t)n);
	return err == 0 && renameat(run_dirfd, "pid.new", run_dirfd, "pid") < 0 ? -errno : err;
}

bool fake_run_read(int run_dirfd, struct fake_run *ret)
{
	_cleanup_close_ int fd = openat(run_dirfd, "pid", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	char buf[512], *p = buf;
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf) - 1);

	if (n <= 0)
		return false;
	buf[n] = 0;
	ret->generation = strtoull(p, &p, 10);
	for (int i = 0; i < FAKE_PARTS; i++) {
		ret->pid[i] = (pid_t)strtol(p, &p, 10);
		ret->start[i] = strtoull(p, &p, 10);
	}
	return true;
}
