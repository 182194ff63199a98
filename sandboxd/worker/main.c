/* SPDX-License-Identifier: MIT */
/* sbx-worker: start-up and threads. Two threads wait on one epoll; the one that gets a readable
 * connection reads a whole request, works, answers and gives the connection back. So one slow disk
 * does not stop the other thread, and memory is two buffers whatever the number of connections.
 * While there are streams (stream.c) more threads come as they are needed, and go when idle. */
#include "sandboxd/worker/state.h"
#include "sandboxd/worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/securebits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define CONNECTIONS_MAX 256
#define SWEEP_MS        1000
#define SHRINK_MS       5000
#define LARGE           (256 * 1024)
#define STACK_BYTES     (160 * 1024)
#define IN_BYTES        (FILES_DATA_MAX + 2 * FS_PATH_MAX)

static int make_buffers(struct buffers *b)
{
	int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;

	b->in = mmap(NULL, IN_BYTES, prot, flags, -1, 0);
	b->out = mmap(NULL, FILES_DATA_MAX, prot, flags, -1, 0);
	return b->in == MAP_FAILED || b->out == MAP_FAILED ? -1 : 0;
}

int wait_for(struct worker *w, int op, int fd, enum event_kind kind, const struct stream *s)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT };

	ev.data.u64 = s ? (uint64_t)kind << 32 | (uint64_t)s->gen << 8 | s->slot : (uint64_t)fd;
	return epoll_ctl(w->epoll_fd, op, fd, &ev);
}

void end_connection(struct worker *w, int fd)
{
	close(fd);
	__atomic_sub_fetch(&w->nconns, 1, __ATOMIC_RELAXED);
}

/* True: `fd` is now the stream's. */
static bool adopt(struct worker *w, int fd, struct job *j, int given, int64_t *ret)
{
	*ret = given < 0 ? -EINVAL : stream_adopt(w, j, given, fd);
	if (*ret < 0 && given >= 0)
		close(given);
	return *ret == 0;
}

static void serve(struct worker *w, int fd, struct buffers *b)
{
	struct job j = { .w = w, .held = -1, .out = b->out };
	int given = -1;
	int64_t value;
	bool ok = wire_read(fd, &j, b->in, &given) == 1;

	if (ok && j.f.op == FILES_ADOPT) {
		if (adopt(w, fd, &j, given, &value))
			return;
	} else {
		if (given >= 0)
			close(given);
		value = ok ? job_run(&j) : 0;
	}
	if (!ok || !wire_answer(fd, &j, value, NULL) || wait_for(w, EPOLL_CTL_MOD, fd, EVENT_FD, NULL) < 0)
		end_connection(w, fd);
	b->large |= j.q.data_len > LARGE || j.out_len > LARGE;
}

/* A large transfer must not keep its memory for ever: the sandbox pays for it. */
static void release(struct buffers *b)
{
	if (!b->large)
		return;
	(void)madvise(b->in, IN_BYTES, MADV_DONTNEED);
	(void)madvise(b->out, FILES_DATA_MAX, MADV_DONTNEED);
	b->large = false;
}

/* One byte with one connection. False at the end of the control socket. */
static bool accept_connection(struct worker *w)
{
	char byte;
	int fd = -1;
	size_t nfds = 1;
	ssize_t n = fd_recv_msg(w->control_fd, &byte, 1, &fd, &nfds);

	if (n == 0 || (n < 0 && n != -EAGAIN))
		return false;
	if (n > 0 && nfds == 1) {
		unsigned conns = __atomic_add_fetch(&w->nconns, 1, __ATOMIC_RELAXED);
		if (conns > CONNECTIONS_MAX || wait_for(w, EPOLL_CTL_ADD, fd, EVENT_FD, NULL) < 0)
			end_connection(w, fd);
	}
	return wait_for(w, EPOLL_CTL_MOD, w->control_fd, EVENT_FD, NULL) == 0;
}

static void sweep_now_and_then(struct worker *w)
{
	pthread_mutex_lock(&w->lock);
	bool due = now_ms() - w->swept_ms >= SWEEP_MS;
	if (due)
		w->swept_ms = now_ms();
	pthread_mutex_unlock(&w->lock);
	if (!due)
		return;
	streams_heard(w);
	handle_sweep(w);
}

static bool any_handles(struct worker *w)
{
	pthread_mutex_lock(&w->lock);
	bool any = w->nhandles > 0;
	pthread_mutex_unlock(&w->lock);
	return any;
}

/* File-system ids are a thread's own: files then are made as UID:GID, while the capabilities, kept
 * by the secure bit, still open everything. */
static bool take_fsids(const struct worker *w)
{
	setfsgid(w->gid);
	setfsuid(w->uid);
	return (uid_t)setfsuid((uid_t)-1) == w->uid && (gid_t)setfsgid((gid_t)-1) == w->gid;
}

static bool dispatch(struct worker *w, uint64_t data, struct buffers *b)
{
	if (data >> 32)
		stream_event(w, data, b);
	else if ((int)data == __atomic_load_n(&w->locks.timer_fd, __ATOMIC_RELAXED))
		wait_tick(w);
	else if ((int)data != w->control_fd)
		serve(w, (int)data, b);
	else
		return accept_connection(w);
	return true;
}

/* -1: the kernel's wait has failed. */
static int next_event(struct worker *w, struct epoll_event *ev, int timeout_ms)
{
	int n;

	__atomic_add_fetch(&w->idle, 1, __ATOMIC_RELAXED);
	n = epoll_wait(w->epoll_fd, ev, 1, timeout_ms);
	__atomic_sub_fetch(&w->idle, 1, __ATOMIC_RELAXED);
	return n < 0 && errno == EINTR ? 0 : n;
}

/* True: the control socket has ended; false: `extra` and idle for a while. */
static bool loop(struct worker *w, bool extra)
{
	struct buffers b = { .large = false };
	int64_t worked_ms = now_ms();

	if (make_buffers(&b) < 0)
		_exit(1);
	if (w->by_fsid && !take_fsids(w))
		_exit(1);
	for (;;) {
		struct epoll_event ev;
		int most = b.large || any_handles(w) ? SWEEP_MS : extra ? SHRINK_MS : -1;
		int n = next_event(w, &ev, most);
		if (n < 0)
			_exit(1);
		sweep_now_and_then(w);
		if (n > 0) {
			if (!dispatch(w, ev.data.u64, &b))
				return true;
			worked_ms = extra ? now_ms() : 0;
			continue;
		}
		release(&b);
		if (extra && now_ms() - worked_ms >= SHRINK_MS)
			break;
	}
	munmap(b.in, IN_BYTES);
	munmap(b.out, FILES_DATA_MAX);
	return false;
}

/* The control socket has ended: whichever thread sees it ends all. */
static _Noreturn void finish(struct worker *w)
{
	handle_close_all(w);
	_exit(0);
}

static void *second_thread(void *arg)
{
	struct worker *w = arg;

	(void)loop(w, false);
	finish(w);
}

static void *extra_thread(void *arg)
{
	struct worker *w = arg;

	if (loop(w, true))
		finish(w);
	pthread_mutex_lock(&w->streams_lock);
	w->nthreads--;
	pthread_mutex_unlock(&w->streams_lock);
	return NULL;
}

static int start_thread(void *(*fn)(void *), struct worker *w)
{
	pthread_attr_t attr;
	pthread_t t;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	r = pthread_create(&t, &attr, fn, w);
	pthread_attr_destroy(&attr);
	return -r;
}

void thread_wanted(struct worker *w)
{
	if (__atomic_load_n(&w->idle, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&w->streams_lock);
	if (w->nthreads < THREADS_MAX && start_thread(extra_thread, w) == 0)
		w->nthreads++;
	pthread_mutex_unlock(&w->streams_lock);
}

static int open_root(void)
{
	struct stat st;
	int fd = WORKER_ROOT_FD;

	if (fstat(fd, &st) < 0) {
		fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
		return fd;
	}
	(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	return S_ISDIR(st.st_mode) ? fd : -1;
}

static bool number(const char *s, unsigned *ret)
{
	char *end;
	unsigned long n;

	errno = 0;
	n = strtoul(s, &end, 10);
	*ret = (unsigned)n;
	return *s >= '0' && *s <= '9' && !*end && !errno && n < 0xffffffffUL;
}

static int configure(struct worker *w, int argc, char **argv)
{
	unsigned uid, gid, secs = FILES_EXPIRE_SECS;

	if (argc < 4 || argc > 5 || !number(argv[1], &uid) || !number(argv[2], &gid) ||
		(strcmp(argv[3], "linux") && strcmp(argv[3], "fake")) ||
		(argc == 5 && !number(argv[4], &secs)))
		return -1;
	w->uid = uid;
	w->gid = gid;
	w->fake = !strcmp(argv[3], "fake");
	w->expire_ms = (int64_t)secs * 1000;
	w->control_fd = WORKER_CONTROL_FD;
	w->root_fd = open_root();
	w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	pthread_mutex_init(&w->lock, NULL);
	pthread_mutex_init(&w->inplace, NULL);
	pthread_mutex_init(&w->cwd, NULL);
	pthread_mutex_init(&w->streams_lock, NULL);
	pthread_mutex_init(&w->locks.lock, NULL);
	w->locks.timer_fd = -1;
	w->nthreads = THREADS_BASE;
	if (w->root_fd < 0 || w->epoll_fd < 0 ||
		wait_for(w, EPOLL_CTL_ADD, w->control_fd, EVENT_FD, NULL) < 0)
		return -1;
	return 0;
}

/* Each open file of a client is one of ours. */
static void allow_files(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur >= FILES_HANDLES_MAX + 512)
		return;
	l.rlim_cur = l.rlim_max < 16384 ? l.rlim_max : 16384;
	(void)setrlimit(RLIMIT_NOFILE, &l); /* fewer then */
}

static void settle(void)
{
	umask(0);
	allow_files();
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	(void)fcntl(WORKER_CONTROL_FD, F_SETFD, FD_CLOEXEC);
	(void)syscall(SYS_close_range, WORKER_FD_MIN, ~0u, 0);
}

/* A fake worker keeps its rights: it is an ordinary process of the user. */
static int harden(struct worker *w)
{
	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (w->fake) {
		(void)narrow(); /* where the kernel can */
		return 0;
	}
	(void)prctl(PR_SET_DUMPABLE, 0);
	w->by_fsid = prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) == 0 && take_fsids(w);
	return narrow();
}

int main(int argc, char **argv)
{
	struct worker *w = calloc(1, sizeof(*w));

	settle();
	if (!w || configure(w, argc, argv) < 0)
		return 1;
	if (harden(w) < 0 || start_thread(second_thread, w) < 0)
		return 1;
	(void)loop(w, false);
	finish(w);
}
