/* SPDX-License-Identifier: MIT */
/* sbx-init: starts what the shim asks for, reaps everything, reports what it started. One loop over
 * the shim's socket and a signalfd; no handler, no allocation that lasts, no guest data ever parsed. */
#include "common/sys/fd.h"
#include "common/sys/mark.h"
#include "common/sys/mem.h"
#include "common/sys/prompt.h"
#include "sandboxd/init/init.h"
#include "sandboxd/init/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define MAX_FDS 6
#define BUCKETS 64

struct child {
	struct child *next;
	uint32_t num;
	pid_t pid;
};
struct init {
	struct spawn_ids ids;
	bool fake, greeted;
	int root_fd; /* O_PATH: cwd is resolved below it */
	char root[4096];
	struct child *children[BUCKETS]; /* by pid */
};

static void send_event(struct init_event ev)
{
	/* Waiting for room is right: the shim reads always, and without it nothing is left to do. */
	(void)send(INIT_FD, &ev, sizeof(ev), MSG_NOSIGNAL);
}

static struct child **find_pid(struct init *in, pid_t pid)
{
	struct child **p = &in->children[(unsigned)pid % BUCKETS];

	while (*p && (*p)->pid != pid)
		p = &(*p)->next;
	return p;
}

static struct child *find_num(struct init *in, uint32_t num)
{
	for (int i = 0; i < BUCKETS; i++)
		for (struct child *c = in->children[i]; c; c = c->next)
			if (c->num == num)
				return c;
	return NULL;
}

static void reap(struct init *in)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		struct child **p = find_pid(in, pid), *c = *p;
		if (!c)
			continue;
		*p = c->next;
		send_event((struct init_event){ .op = INIT_EXITED, .num = c->num, .pid = pid,
			.status = status });
		free(c);
	}
}

/* Cuts `count` strings out of the payload; NULL when they do not fit it. */
static char **take_strings(char **pos, const char *end, uint32_t count)
{
	char **v = calloc((size_t)count + 1, sizeof(*v));

	for (uint32_t i = 0; v && i < count; i++) {
		char *nul = *pos < end ? memchr(*pos, 0, (size_t)(end - *pos)) : NULL;
		if (!nul) {
			free(v);
			return NULL;
		}
		v[i] = *pos;
		*pos = nul + 1;
	}
	return v;
}

/* The fake backend's home lies below its folder; everything else of the environment is as asked. */
static void fake_home(struct init *in, char **env, char *buf, size_t size)
{
	for (; *env; env++)
		if (strcmp(*env, "HOME=/sandbox/home") == 0 &&
		    strlen(in->root) + sizeof("HOME=/sandbox/home") <= size) {
			strcpy(buf, "HOME=");
			strcat(buf, in->root);
			strcat(buf, "/sandbox/home");
			*env = buf;
		}
}

static int spawn_payload(struct init *in, const struct init_start *m, char *payload, const int *fds,
	struct init_event *ev)
{
	char *pos = payload;
	const char *end = payload + m->len;
	char home[sizeof(in->root) + 32];
	struct spawn s = { .ids = in->ids, .mark = mark_of(getpid(), m->num), .root_fd = in->root_fd,
		.fake_root = in->fake ? in->root : NULL, .tty = m->flags & INIT_TTY,
		.cgroup_fd = m->flags & INIT_CGROUP ? fds[m->flags & INIT_TTY ? 1 : 3] : -1 };

	for (int i = 0; i < 3; i++)
		s.stdio[i] = fds[s.tty ? 0 : i];
	char **cwd = take_strings(&pos, end, 1);
	_cleanup_free_ char **argv = cwd ? take_strings(&pos, end, m->argc) : NULL;
	_cleanup_free_ char **env = argv ? take_strings(&pos, end, m->envc) : NULL;
	s.cwd = cwd ? cwd[0] : NULL;
	free(cwd);
	if (!env) {
		ev->stage = INIT_AT_SPAWN;
		ev->error = EPROTO;
		return -1;
	}
	if (in->fake)
		fake_home(in, env, home, sizeof(home));
	s.argv = argv;
	s.env = env;
	ev->pid = spawn(&s);
	ev->stage = s.stage;
	ev->error = s.error;
	return ev->pid;
}

static void start(struct init *in, char *msg, size_t len, const int *fds, size_t nfds)
{
	struct init_start m;
	struct init_event ev = { .op = INIT_STARTED, .stage = INIT_AT_SPAWN, .error = EPROTO };
	struct child *c = malloc(sizeof(*c));
	char *payload = msg + sizeof(m), *map = NULL;
	size_t want;

	if (len < sizeof(m))
		return free(c);
	memcpy(&m, msg, sizeof(m));
	ev.num = m.num;
	want = (m.flags & INIT_TTY ? 1 : 3) + !!(m.flags & INIT_CGROUP) + !!(m.flags & INIT_MEMFD);
	if (!c || nfds != want || m.argc < 1 || m.argc > m.len || m.envc > m.len ||
	    m.len > INIT_PAYLOAD_MAX)
		goto out;
	if (m.flags & INIT_MEMFD) {
		map = mmap(NULL, m.len, PROT_READ | PROT_WRITE, MAP_PRIVATE, fds[want - 1], 0);
		if (map == MAP_FAILED) {
			map = NULL;
			goto out;
		}
		payload = map;
	} else if (m.len != len - sizeof(m)) {
		goto out;
	}
	if (spawn_payload(in, &m, payload, fds, &ev) > 0) {
		c->num = m.num;
		c->pid = ev.pid;
		struct child **p = &in->children[(unsigned)c->pid % BUCKETS];
		c->next = *p;
		*p = c;
		c = NULL;
	} else {
		ev.pid = 0;
	}
out:
	if (map)
		munmap(map, m.len);
	free(c);
	send_event(ev);
}

static void hello(struct init *in, const char *msg, size_t len, int *fd)
{
	struct init_hello m;

	if (len != sizeof(m) || in->greeted)
		return;
	memcpy(&m, msg, sizeof(m));
	in->greeted = true;
	in->fake = m.flags & INIT_FAKE;
	in->ids = (struct spawn_ids){ .uid = m.uid, .gid = m.gid,
		.change = m.uid != SPAWN_ID_KEEP && geteuid() == 0 };
	if (in->fake) {
		(void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
		in->root_fd = steal_fd(fd);
	} else {
		in->root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
	/* /proc/self/fd is not ours to read when non-dumpable, so ask the kernel for the path. */
	if (in->fake && (fchdir(in->root_fd) < 0 || !getcwd(in->root, sizeof(in->root)) ||
		chdir("/") < 0))
		in->root[0] = 0;
}

static void signal_child(struct init *in, const char *msg, size_t len, bool tree)
{
	struct init_signal m;
	const struct child *c;

	if (len != sizeof(m))
		return;
	memcpy(&m, msg, sizeof(m));
	/* Ours and not reaped: the pid cannot belong to anybody else. */
	if (!(c = find_num(in, m.num)))
		return;
	(void)kill(-c->pid, tree ? SIGKILL : (int)m.signal);
	if (tree)
		mark_kill(mark_of(getpid(), m.num), false);
}

static void dispatch(struct init *in, char *msg, size_t len, int *fds, size_t nfds)
{
	uint32_t op;

	if (len < sizeof(op))
		return;
	memcpy(&op, msg, sizeof(op));
	switch (op) {
	case INIT_HELLO:
		return hello(in, msg, len, &fds[0]);
	case INIT_START:
		return start(in, msg, len, fds, nfds);
	case INIT_SIGNAL:
	case INIT_KILLTREE:
		return signal_child(in, msg, len, op == INIT_KILLTREE);
	default:
		return;
	}
}

/* One message; false at the end of the socket. */
static bool receive(struct init *in)
{
	static char msg[INIT_INLINE_MAX + sizeof(struct init_start)];
	int fds[MAX_FDS] = { -1, -1, -1, -1, -1, -1 };
	size_t nfds = MAX_FDS;
	ssize_t n = fd_recv_msg(INIT_FD, msg, sizeof(msg), fds, &nfds);

	if (n <= 0)
		return false;
	dispatch(in, msg, (size_t)n, fds, nfds);
	for (size_t i = 0; i < MAX_FDS; i++)
		close_p(&fds[i]);
	return true;
}

static void end(const struct init *in)
{
	/* Only as the first process of a namespace: before the hello `fake` is not known yet, and on a
	 * host -1 is everybody. */
	if (getpid() == 1)
		(void)kill(-1, SIGKILL); /* and the kernel ends the namespace with us */
	else if (in->fake && waitpid(-1, NULL, WNOHANG) >= 0) /* orphans are our children: none left? */
		mark_kill(mark_of(getpid(), 0), true);
	_exit(0);
}

/* Whatever the caller ignored or blocked must not reach the guests (a server ignores SIGPIPE). */
static int reset_signals(void)
{
	static const char dfl[64]; /* the kernel's struct sigaction: SIG_DFL, no flags, no mask */
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	/* Not through libc, which keeps some numbers to itself; another libc left them ignored. */
	for (int s = 1; s <= 64; s++)
		(void)syscall(SYS_rt_sigaction, s, dfl, NULL, 8);
	sigemptyset(&all);
	sigaddset(&all, SIGCHLD);
	return signalfd(-1, &all, SFD_NONBLOCK | SFD_CLOEXEC);
}

int main(void)
{
	static struct init in = { .root_fd = -1 };
	struct signalfd_siginfo si[8];

	(void)syscall(SYS_close_range, INIT_FD + 1, ~0u, 0);
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	(void)fcntl(INIT_FD, F_SETFD, FD_CLOEXEC);
	prompt_self(true);
	struct pollfd p[2] = { { .fd = INIT_FD, .events = POLLIN },
		{ .fd = reset_signals(), .events = POLLIN } };
	if (p[1].fd < 0)
		return 1;
	for (;;) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return 1;
		if (p[1].revents) {
			(void)!read(p[1].fd, si, sizeof(si));
			reap(&in);
		}
		if (p[0].revents && !receive(&in))
			end(&in);
	}
}
