/* SPDX-License-Identifier: MIT */
/* sbx-shim: one per sandbox, outlives sandboxd. Reads its boot record, gives up its rights, then
 * serves the front, pumps output into spools and passes starts to init, all on one thread. */
#include "common/sys/caps.h"
#include "common/sys/core.h"
#include "common/sys/fd.h"
#include "common/sys/mark.h"
#include "common/sys/mem.h"
#include "common/sys/prompt.h"
#include "common/sys/rlimit.h"
#include "sandboxd/init/init.h"
#include "sandboxd/shim/state.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#define TURN_EVENTS 32
#define RETRY_MS 50 /* a start that found no room */
#define SWEEP_MS 1000 /* cgroups that were busy */
#define LINGER_MS 50  /* between the end of the sandbox and ours */
#define MEMORY_MAX ((rlim_t)512 << 20) /* as many starts as the front has under way, and more */

int source_watch(struct shim *s, struct source *src, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = src };

	if (epoll_ctl(s->epoll, src->polled ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, src->fd, &ev) < 0)
		return -errno;
	src->polled = true;
	return 0;
}

void source_unwatch(struct shim *s, struct source *src)
{
	/* Explicitly, because a passed or duplicated descriptor keeps the registration alive. */
	if (src->polled)
		(void)epoll_ctl(s->epoll, EPOLL_CTL_DEL, src->fd, NULL);
	src->polled = false;
}

void source_close(struct shim *s, struct source *src)
{
	if (src->fd < 0)
		return;
	source_unwatch(s, src);
	close(steal_fd(&src->fd));
}

void source_free(struct shim *s, struct source *src)
{
	source_close(s, src);
	src->next_dead = s->dead;
	s->dead = src;
}

static void bury(struct shim *s)
{
	while (s->dead) {
		struct source *d = s->dead;
		s->dead = d->next_dead;
		free(d);
	}
}

static void turn(struct shim *s)
{
	struct epoll_event ev[TURN_EVENTS];
	int timeout = s->jobs ? RETRY_MS : s->ncg_left ? SWEEP_MS : -1;
	int n = epoll_wait(s->epoll, ev, TURN_EVENTS, timeout);

	for (int i = 0; i < n; i++) {
		struct source *src = ev[i].data.ptr;
		if (src->fd >= 0)
			src->ready(s, src);
	}
	if (n == 0) {
		start_retry(s);
		cgroup_retry(s);
	}
	events_flush(s);
	bury(s);
}

/* Its id is its own, so that processes are counted by it: it makes none, nor threads. */
static int bound_all(void)
{
	return rlimit_lower(RLIMIT_NPROC, 0) < 0 || rlimit_lower(RLIMIT_AS, MEMORY_MAX) < 0 ? -1 : 0;
}

static int drop_rights(const struct shim_boot *b)
{
	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	rlimit_use_all(RLIMIT_NOFILE);
	(void)setrlimit(RLIMIT_CORE, &(struct rlimit){ CORE_NEVER, CORE_NEVER });
	if (b->uid != SHIM_ID_KEEP &&
	    (setgroups(0, NULL) < 0 || setresgid(b->gid, b->gid, b->gid) < 0 ||
		    setresuid(b->uid, b->uid, b->uid) < 0 || bound_all() < 0))
		return -1;
	if (caps_keep(0) < 0)
		return -1;
	return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

static int read_boot(struct shim_boot *b)
{
	int r = fd_read_full(SHIM_BOOT_FD, b, sizeof(*b));

	close(SHIM_BOOT_FD);
	return r == 0 && b->magic == SHIM_BOOT_MAGIC && b->version == SHIM_BOOT_VERSION ? 0 : -1;
}

static int greet_init(struct shim *s)
{
	const struct shim_boot *b = &s->boot;
	struct init_hello h = { .op = INIT_HELLO, .flags = b->flags & SHIM_FAKE ? INIT_FAKE : 0,
		.uid = b->guest_uid, .gid = b->guest_gid };

	return init_send(s, &h, sizeof(h), NULL, 0, &b->root_fd, b->root_fd >= 0 ? 1 : 0);
}

/* A worker never speaks here, so what can be read is its end. A sandbox whose files nobody can reach
 * any more ends, as one without its init does: half of one would be held and paid for unnoticed. */
static void worker_ready(struct shim *s, struct source *src)
{
	char byte;
	ssize_t n = recv(src->fd, &byte, sizeof(byte), MSG_DONTWAIT);

	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return;
	proc_exited_all(s);
	s->ended = true;
}

static int set_up(struct shim *s)
{
	const struct shim_boot *b = &s->boot;

	s->jobs_last = &s->jobs;
	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	s->listen = (struct source){ .fd = b->listen_fd, .ready = conn_accept };
	s->init = (struct source){ .fd = b->init_fd, .ready = init_ready };
	s->worker = (struct source){ .fd = b->worker_fd, .ready = worker_ready };
	if (s->epoll < 0 || fcntl(b->listen_fd, F_SETFL, O_NONBLOCK) < 0 ||
	    fcntl(b->init_fd, F_SETFL, O_NONBLOCK) < 0 ||
	    fcntl(b->worker_fd, F_SETFL, O_NONBLOCK) < 0)
		return -1;
	if (source_watch(s, &s->listen, EPOLLIN) < 0 || source_watch(s, &s->init, EPOLLIN) < 0 ||
	    source_watch(s, &s->worker, EPOLLIN) < 0)
		return -1;
	s->oom_kills = oom_count(s);
	return greet_init(s);
}

/* We hold the last of the sandbox's mounts and its network, and the kernel takes them down as we exit.
 * Who waits for the guest's end shall not wait for that, so it comes a little later; the front, if it
 * still listens, learns at once that we are gone. */
static void linger(struct shim *s)
{
	struct timespec pause = { .tv_nsec = LINGER_MS * 1000000 };

	source_close(s, &s->listen);
	while (s->conns)
		conn_close(s, s->conns);
	(void)nanosleep(&pause, NULL);
}

int main(void)
{
	static struct shim s;

	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGCHLD, SIG_IGN); /* init and worker may be our children: never zombies */
	prompt_self(true);
	if (read_boot(&s.boot) < 0 || drop_rights(&s.boot) < 0 || set_up(&s) < 0)
		return 1;
	while (!s.ended)
		turn(&s);
	if (s.boot.flags & SHIM_FAKE)
		mark_kill(mark_of((pid_t)s.boot.init_pid, 0), true);
	else
		linger(&s);
	return 0;
}
