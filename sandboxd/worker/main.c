/* SPDX-License-Identifier: MIT */
/* sbx-worker: start-up and connections. Two threads wait on one epoll; the one that gets a readable
 * connection reads a whole request, works, answers and gives the connection back. So one slow disk
 * does not stop the other thread, and memory is two buffers whatever the number of connections. */
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
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOVE_MS         30000 /* a request or answer that does not move for so long ends its connection */
#define CONNECTIONS_MAX 256
#define SWEEP_MS        1000
#define LARGE           (256 * 1024)

struct buffers {
	char *in, *out;
	bool large; /* much of them is in use: given back when there is nothing to do */
};

static int make_buffers(struct buffers *b)
{
	int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;

	b->in = mmap(NULL, FILES_DATA_MAX + 2 * FILES_PATH_MAX, prot, flags, -1, 0);
	b->out = mmap(NULL, FILES_DATA_MAX, prot, flags, -1, 0);
	return b->in == MAP_FAILED || b->out == MAP_FAILED ? -1 : 0;
}

static bool lengths_ok(const struct job *j)
{
	const struct files_req *q = &j->q;
	uint64_t sum = sizeof(*q) + (uint64_t)q->path_len + q->path2_len + q->data_len;

	return q->path_len < FILES_PATH_MAX && q->path2_len < FILES_PATH_MAX &&
	       q->data_len <= FILES_DATA_MAX && sum == j->f.len;
}

static bool take_path(char *to, const char *from, uint32_t len)
{
	memcpy(to, from, len);
	to[len] = '\0';
	return strlen(to) == len;
}

/* False: the connection is of no use any more. */
static bool read_job(int fd, struct job *j, char *in)
{
	if (fd_recv_full(fd, &j->f, sizeof(j->f), MOVE_MS) < 0 || j->f.len < sizeof(j->q) ||
		fd_recv_full(fd, &j->q, sizeof(j->q), MOVE_MS) < 0 || !lengths_ok(j) ||
		fd_recv_full(fd, in, j->f.len - sizeof(j->q), MOVE_MS) < 0)
		return false;
	j->data = in + j->q.path_len + j->q.path2_len;
	return take_path(j->path, in, j->q.path_len) &&
	       take_path(j->path2, in + j->q.path_len, j->q.path2_len);
}

/* One call takes it all nearly always; what it did not take follows piece by piece. */
static bool send_all(int fd, struct iovec *v, size_t n)
{
	struct msghdr m = { .msg_iov = v, .msg_iovlen = n };
	ssize_t sent;
	size_t done;

	do
		sent = sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (sent < 0 && errno == EINTR);
	if (sent < 0 && errno != EAGAIN)
		return false;
	done = sent > 0 ? (size_t)sent : 0;
	for (size_t i = 0; i < n; i++) {
		size_t skip = done < v[i].iov_len ? done : v[i].iov_len;
		done -= skip;
		if (fd_send_full(fd, (char *)v[i].iov_base + skip, v[i].iov_len - skip, MOVE_MS) <
			0)
			return false;
	}
	return true;
}

static bool answer(int fd, struct job *j, int64_t value)
{
	if (value < 0) {
		j->out_len = 0;
		j->rep.handle = 0;
	}
	if (__atomic_load_n(&j->w->nclosed, __ATOMIC_RELAXED))
		j->rep.flags |= FILES_REP_EXPIRED;
	j->rep.data_len = (uint32_t)j->out_len;
	j->f.len = (uint32_t)(sizeof(j->rep) + j->out_len);
	j->f.flags = 0;
	j->f.value = value;
	struct iovec v[3] = {
		{ &j->f, sizeof(j->f) },
		{ &j->rep, sizeof(j->rep) },
		{ j->out, j->out_len },
	};
	return send_all(fd, v, ARRAY_LEN(v));
}

static void end_connection(struct worker *w, int fd)
{
	close(fd);
	__atomic_sub_fetch(&w->nconns, 1, __ATOMIC_RELAXED);
}

static void serve(struct worker *w, int fd, struct buffers *b)
{
	struct job j = { .w = w, .out = b->out };
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, .data.fd = fd };

	if (!read_job(fd, &j, b->in) || !answer(fd, &j, job_run(&j)) ||
		epoll_ctl(w->epoll_fd, EPOLL_CTL_MOD, fd, &ev) < 0)
		end_connection(w, fd);
	b->large |= j.q.data_len > LARGE || j.out_len > LARGE;
}

/* A large transfer must not keep its memory for ever: the sandbox pays for it. */
static void release(struct buffers *b)
{
	if (!b->large)
		return;
	(void)madvise(b->in, FILES_DATA_MAX, MADV_DONTNEED);
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
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT };

	if (n == 0 || (n < 0 && n != -EAGAIN))
		return false;
	if (n > 0 && nfds == 1) {
		ev.data.fd = fd;
		__atomic_add_fetch(&w->nconns, 1, __ATOMIC_RELAXED);
		if (w->nconns > CONNECTIONS_MAX ||
			epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
			end_connection(w, fd);
	}
	ev = (struct epoll_event){ .events = EPOLLIN | EPOLLONESHOT, .data.fd = w->control_fd };
	return epoll_ctl(w->epoll_fd, EPOLL_CTL_MOD, w->control_fd, &ev) == 0;
}

static void sweep_now_and_then(struct worker *w)
{
	pthread_mutex_lock(&w->lock);
	bool due = now_ms() - w->swept_ms >= SWEEP_MS;
	if (due)
		w->swept_ms = now_ms();
	pthread_mutex_unlock(&w->lock);
	if (due)
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

static void loop(struct worker *w)
{
	struct buffers b = { .large = false };

	if (make_buffers(&b) < 0)
		_exit(1);
	if (w->by_fsid && !take_fsids(w))
		_exit(1);
	for (;;) {
		struct epoll_event ev;
		int n = epoll_wait(w->epoll_fd, &ev, 1, b.large || any_handles(w) ? SWEEP_MS : -1);
		if (n < 0 && errno != EINTR)
			_exit(1);
		sweep_now_and_then(w);
		if (n <= 0) {
			release(&b);
			continue;
		}
		if (ev.data.fd != w->control_fd)
			serve(w, ev.data.fd, &b);
		else if (!accept_connection(w))
			return;
	}
}

static void *second_thread(void *arg)
{
	struct worker *w = arg;

	loop(w);
	/* The control socket has ended: whichever thread sees it ends both. */
	handle_close_all(w);
	_exit(0);
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
	struct epoll_event ev = { .events = EPOLLIN | EPOLLONESHOT, .data.fd = w->control_fd };
	if (w->root_fd < 0 || w->epoll_fd < 0 ||
		epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->control_fd, &ev) < 0)
		return -1;
	return 0;
}

static void settle(void)
{
	umask(0);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	(void)fcntl(WORKER_CONTROL_FD, F_SETFD, FD_CLOEXEC);
	(void)syscall(SYS_close_range, WORKER_FD_MIN, ~0u, 0);
}

/* A fake worker stays as it is: it is an ordinary process of the user. */
static void harden(struct worker *w)
{
	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (w->fake)
		return;
	(void)prctl(PR_SET_DUMPABLE, 0);
	w->by_fsid = prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) == 0 && take_fsids(w);
}

int main(int argc, char **argv)
{
	struct worker *w = calloc(1, sizeof(*w));
	pthread_t t;

	settle();
	if (!w || configure(w, argc, argv) < 0)
		return 1;
	harden(w);
	if (pthread_create(&t, NULL, second_thread, w) != 0)
		return 1;
	loop(w);
	handle_close_all(w);
	_exit(0);
}
