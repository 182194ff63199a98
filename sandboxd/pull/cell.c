/* SPDX-License-Identifier: MIT */
/* A cell is a process that has namespaces of its own and is the first in its process namespace: whatever a run of the
 * tool leaves running is its child in the end, and cannot signal or trace it. It was made as root and then became
 * the front's user for good, before it read anything. */
#include "sandboxd/pull/parts.h"

#include "common/sys/core.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "common/sys/rlimit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SOCK = 3, LENT, FDS }; /* what a cell begins with: its end, and its part of the file system */
#define DISK_MAX  ((rlim_t)66 << 30) /* a file of an image, and what is around it */
#define TASKS_MAX 1024              /* of a cell's user */
#define TASKS_ALL 16384             /* of the front's, all of its programs together, where it is that */
#define FILES_MAX 1024
#define SIGNALS_MAX 256 /* waiting ones, counted like the tasks */

enum cell_op { CELL_LISTEN = 1, CELL_RUN, CELL_STOP };
struct cell_req {
	uint32_t op;
	struct sockaddr_in at;
	struct tool_run run;
};
struct cell_ans {
	int32_t err;    /* errno; 0: it went well */
	int32_t status; /* CELL_RUN: as wait(2) has it */
};

/* --- the tool -------------------------------------------------------------------------------- */

static rlim_t tasks_max; /* of this cell */

/* When memory runs out, it is what goes first. The file is one's own only for who may be traced, which the program
 * will be, and until then nobody else is here. */
static void first_to_go(void)
{
	_cleanup_close_ int fd = -1;

	(void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		(void)!write(fd, "1000", 4);
}

static void child(const struct tool *t, int err, int out)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	setsid();
	if (dup2(null, 0) < 0 || dup2(out >= 0 ? out : null, 1) < 0 || dup2(err, 2) < 0)
		_exit(126);
	close_range(3, ~0u, 0);
	first_to_go();
	if (rlimit_lower(RLIMIT_CORE, CORE_NEVER) < 0 || rlimit_lower(RLIMIT_NPROC, tasks_max) < 0 ||
		rlimit_lower(RLIMIT_NOFILE, FILES_MAX) < 0 || rlimit_lower(RLIMIT_SIGPENDING, SIGNALS_MAX) < 0 ||
		rlimit_lower(RLIMIT_FSIZE, out >= 0 ? PULL_MANIFEST_MAX + 1 : DISK_MAX) < 0)
		_exit(126);
	if (tool_filter() < 0)
		_exit(126);
	execve(PULL_TOOL, (char *const *)(uintptr_t)t->argv, (char *const *)(uintptr_t)t->env);
	_exit(127);
}

/* All that there is beside this process itself: it is the first. */
static void end_all(void)
{
	(void)kill(-1, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
}

/* True: to be stopped, or the other side has gone. */
static bool told_to_stop(void)
{
	struct cell_req q;
	ssize_t n = fd_recv_msg(SOCK, &q, sizeof(q), NULL, NULL);

	return n != sizeof(q) || q.op == CELL_STOP;
}

static int wait_for(pid_t pid, int pidfd, int *status)
{
	struct pollfd p[2] = { { .fd = pidfd, .events = POLLIN },
		{ .fd = SOCK, .events = POLLIN } };

	while (!p[0].revents) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return errno;
		if (p[1].revents && told_to_stop()) {
			(void)kill(pid, SIGKILL);
			p[1].fd = -1; /* what comes now is for the next run */
		}
	}
	return waitpid(pid, status, 0) == pid ? 0 : ECHILD;
}

static struct cell_ans run(int port, const struct tool_run *r, const int *fds, size_t nfds)
{
	static struct tool tool;
	struct cell_ans a = { .err = EINVAL };
	_cleanup_close_ int pidfd = -1;
	pid_t pid;

	if (nfds == 0)
		return a;
	tool_command(port, r, &tool);
	pid = fork();
	if (pid == 0)
		child(&tool, fds[0], nfds > 1 ? fds[1] : -1);
	if (pid > 0)
		pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	a.err = pidfd < 0 ? errno : wait_for(pid, pidfd, &a.status);
	end_all();
	return a;
}

/* --- its network ------------------------------------------------------------------------------ */

static int listen_at(struct sockaddr_in *at)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
	socklen_t len = sizeof(*at);

	if (fd < 0)
		return -errno;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (const struct sockaddr *)at, len) == 0 && listen(fd, 64) == 0 &&
		getsockname(fd, (struct sockaddr *)at, &len) == 0)
		return fd;
	int r = -errno;
	close(fd);
	return r;
}

static int loopback_up(void)
{
	_cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq r = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };

	return fd < 0 || ioctl(fd, SIOCSIFFLAGS, &r) < 0 ? -1 : 0;
}

/* So that a forward of a low port needs no right later, and finds no port held by what a run has closed. */
static void open_ports(void)
{
	static const char *const zero[] = { "/proc/sys/net/ipv4/ip_unprivileged_port_start",
		"/proc/sys/net/ipv4/tcp_max_tw_buckets" };

	for (size_t i = 0; i < ARRAY_LEN(zero); i++) {
		_cleanup_close_ int fd = open(zero[i], O_WRONLY | O_CLOEXEC);
		if (fd >= 0)
			(void)!write(fd, "0", 1);
	}
}

/* --- the process ------------------------------------------------------------------------------ */

static int say(const struct cell_ans *a, int fd)
{
	return fd_send_msg(SOCK, a, sizeof(*a), &fd, fd >= 0);
}

static void serve(int port)
{
	for (;;) {
		struct cell_req q;
		int fds[2] = { -1, -1 };
		size_t nfds = 2;
		ssize_t n = fd_recv_msg(SOCK, &q, sizeof(q), fds, &nfds);
		struct cell_ans a = { .err = 0 };
		_cleanup_close_ int listener = -1;

		if (n != sizeof(q))
			return;
		if (q.op == CELL_STOP) /* what it was for has ended by itself */
			continue;
		if (q.op == CELL_RUN) {
			a = run(port, &q.run, fds, nfds);
		} else {
			listener = listen_at(&q.at);
			a.err = listener < 0 ? -listener : 0;
		}
		close_p(&fds[0]);
		close_p(&fds[1]);
		if (say(&a, listener) < 0)
			return;
	}
}

static int fail(const char *what)
{
	fprintf(stderr, "<error> sbx-pull: a cell: %s: %s\n", what, strerror(errno));
	return 1;
}

static int place_fds(int sock, int lent)
{
	int from[FDS] = { [SOCK] = fcntl(sock, F_DUPFD, FDS), [LENT] = fcntl(lent, F_DUPFD, FDS) };

	for (int i = SOCK; i < FDS; i++)
		if (from[i] < 0 || dup3(from[i], i, O_CLOEXEC) < 0)
			return -1;
	return close_range(FDS, ~0u, 0);
}

static int live(const struct cell_user *u, int sock, int lent)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	const struct cell_ans ready = { .err = 0 };
	const char *what;
	int listener;

	if (place_fds(sock, lent) < 0)
		return fail("place descriptors");
	signal(SIGPIPE, SIG_IGN);
	if (loopback_up() < 0)
		return fail("make a network");
	open_ports();
	if (cell_root(LENT, &what) < 0)
		return fail(what);
	close(LENT);
	tasks_max = u->own ? TASKS_MAX : TASKS_ALL;
	listener = listen_at(&at);
	if (listener < 0)
		return fail("listen for the tool");
	if (pull_prepare_drop() < 0 || pull_drop(u->uid, u->gid) < 0)
		return fail("give up rights");
	umask(077);
	if (say(&ready, listener) < 0)
		return 0;
	close(listener);
	serve(ntohs(at.sin_port));
	return 0;
}

/* --- from outside ----------------------------------------------------------------------------- */

/* *ret_fd: NULL where no descriptor may come. */
static int hear(const struct cell *c, struct cell_ans *a, int *ret_fd)
{
	size_t nfds = ret_fd ? 1 : 0;
	ssize_t n = fd_recv_msg(c->sock, a, sizeof(*a), ret_fd, &nfds);

	if (n == sizeof(*a) && a->err == 0 && ret_fd && nfds != 1)
		return -EPROTO;
	if (n == sizeof(*a))
		return a->err ? -a->err : 0;
	return n < 0 && n != -ECONNRESET ? (int)n : -EPIPE;
}

int cell_start(int num, const struct cell_user *u, int lent, struct cell *ret, int *ret_listener)
{
	const struct clone_args args = { .flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC |
						  CLONE_NEWNET,
		.exit_signal = SIGCHLD };
	struct cell_ans a;
	int pair[2], r;
	long pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid == 0)
		_exit(live(u, pair[1], lent));
	close(pair[1]);
	*ret = (struct cell){ .num = num, .sock = pair[0], .dirfd = -1 };
	r = pid < 0 ? -errno : hear(ret, &a, ret_listener);
	if (r == 0)
		return 0;
	close_p(&ret->sock);
	errno = -r;
	return -1;
}

static int ask(const struct cell *c, const struct cell_req *q, const int *fds, size_t nfds)
{
	int r = fd_send_msg(c->sock, q, sizeof(*q), fds, nfds);

	return r == -ECONNRESET ? -EPIPE : r;
}

int cell_listen(const struct cell *c, const struct sockaddr_in *at)
{
	const struct cell_req q = { .op = CELL_LISTEN, .at = *at };
	struct cell_ans a;
	int fd = -1, r = ask(c, &q, NULL, 0);

	if (r == 0)
		r = hear(c, &a, &fd);
	return r < 0 ? r : fd;
}

int cell_run(const struct cell *c, const struct tool_run *run, int err, int out)
{
	const struct cell_req q = { .op = CELL_RUN, .run = *run };
	const int fds[2] = { err, out };

	return ask(c, &q, fds, out >= 0 ? 2 : 1);
}

int cell_stop(const struct cell *c)
{
	const struct cell_req q = { .op = CELL_STOP };

	return ask(c, &q, NULL, 0);
}

int cell_ended(const struct cell *c, int *ret)
{
	struct cell_ans a;
	int r = hear(c, &a, NULL);

	if (r == 0)
		*ret = a.status;
	return r;
}
