/* SPDX-License-Identifier: MIT */
/* An sbx-worker that somebody has taken over: the real one, but for requests about /lie/NAME, whose
 * answers are lies, and for what it tells by itself once it has been asked about /lie/set/NAME. */
#include "sandboxd/worker/state.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

bool real_wire_answer(int fd, struct job *j, int64_t value, struct push *before);

struct answer {
	struct proto_frame f;
	struct files_rep rep;
	char data[2048];
} __attribute__((packed));

static char set[32]; /* what it says by itself */

static bool put(int fd, const void *p, size_t n)
{
	return send(fd, p, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static struct answer sound(const struct job *j)
{
	struct answer a = { .f = j->f };

	a.f.flags = 0;
	a.f.value = 0;
	a.f.len = sizeof(a.rep);
	a.rep.attr.mode = S_IFREG | 0644;
	a.rep.attr.size = 3;
	a.rep.flags = FILES_REP_END;
	if (j->f.op == FILES_OPEN && !(j->q.flags & FILES_INLINE_CLOSE))
		a.rep.handle = 77;
	if (j->f.op == FILES_PUT_BEGIN)
		a.rep.handle = 77;
	return a;
}

static size_t size_of(const struct answer *a)
{
	return sizeof(a->f) + sizeof(a->rep) + a->rep.data_len;
}

static bool send_it(int fd, struct answer *a)
{
	a->f.len = (uint32_t)(sizeof(a->rep) + a->rep.data_len);
	return put(fd, a, size_of(a));
}

/* One entry of a listing with this name. */
static bool entry(int fd, const struct job *j, const char *name, size_t said, size_t target)
{
	struct answer a = sound(j);
	struct files_entry e = { .attr = a.rep.attr, .name_len = (uint32_t)said,
		.target_len = (uint32_t)target };
	size_t n = strlen(name);

	memcpy(a.data, &e, sizeof(e));
	memcpy(a.data + sizeof(e), name, n);
	a.rep.data_len = (uint32_t)(sizeof(e) + n);
	return send_it(fd, &a);
}

static bool lie_op(int fd, const struct job *j)
{
	struct answer a = sound(j);

	a.f.op++;
	return send_it(fd, &a);
}

static bool lie_tag(int fd, const struct job *j)
{
	struct answer a = sound(j);

	a.f.tag++;
	return send_it(fd, &a);
}

static bool lie_len(int fd, const struct job *j)
{
	struct answer a = sound(j);

	a.f.len = 0xffffffff;
	return put(fd, &a, size_of(&a));
}

static bool lie_short(int fd, const struct job *j)
{
	struct answer a = sound(j);

	a.f.len = 3;
	return put(fd, &a, sizeof(a.f) + 3);
}

static bool lie_data_len(int fd, const struct job *j)
{
	struct answer a = sound(j);

	a.rep.data_len = 0x7fffffff;
	return put(fd, &a, sizeof(a.f) + sizeof(a.rep));
}

static bool lie_more(int fd, const struct job *j)
{
	struct answer a = sound(j);

	a.rep.data_len = sizeof(a.data); /* where none, or less, is expected */
	return send_it(fd, &a);
}

static bool lie_value(int fd, const struct job *j)
{
	struct answer a = sound(j);

	a.f.value = INT64_MIN;
	return send_it(fd, &a);
}

static bool lie_errno(int fd, const struct job *j)
{
	struct answer a = sound(j);

	a.f.value = -4000;
	return send_it(fd, &a);
}

static bool lie_attr(int fd, const struct job *j)
{
	struct answer a = sound(j);

	memset(&a.rep.attr, 0xff, sizeof(a.rep.attr));
	return send_it(fd, &a);
}

static bool lie_size(int fd, const struct job *j)
{
	struct answer a = sound(j);

	a.rep.attr.size = INT64_MAX;
	a.rep.handle = 77;
	return send_it(fd, &a);
}

static bool lie_twice(int fd, const struct job *j)
{
	struct answer a = sound(j);

	return send_it(fd, &a) && send_it(fd, &a);
}

static bool lie_dots(int fd, const struct job *j)
{
	return entry(fd, j, "..", 2, 0);
}

static bool lie_slash(int fd, const struct job *j)
{
	return entry(fd, j, "../../etc/passwd", 16, 0);
}

static bool lie_name_len(int fd, const struct job *j)
{
	return entry(fd, j, "abc", 0xffffffff, 0);
}

static bool lie_target_len(int fd, const struct job *j)
{
	return entry(fd, j, "abc", 3, 0xfffffff0);
}

static bool lie_escape(int fd, const struct job *j)
{
	return entry(fd, j, "\033]0;owned\a\n\"},{\"", 16, 0);
}

/* A page that says there are more, for ever. */
static bool lie_endless(int fd, const struct job *j)
{
	struct answer a = sound(j);
	struct files_entry e = { .attr = a.rep.attr, .name_len = 3 };
	size_t one = sizeof(e) + 3;

	for (a.rep.data_len = 0; a.rep.data_len + one <= sizeof(a.data); a.rep.data_len += one) {
		memcpy(a.data + a.rep.data_len, &e, sizeof(e));
		memcpy(a.data + a.rep.data_len + sizeof(e), "abc", 3);
	}
	a.rep.flags = 0;
	a.rep.handle = 78;
	return send_it(fd, &a);
}

/* Each with as many descriptors as fit. */
static bool lie_descriptors(int fd, const struct job *j)
{
	union {
		char buf[CMSG_SPACE(200 * sizeof(int))];
		struct cmsghdr align;
	} ctl;
	struct answer a = sound(j);
	struct iovec v = { &a, size_of(&a) };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &ctl,
		.msg_controllen = sizeof(ctl) };
	int fds[200];

	for (int i = 0; i < 200; i++)
		fds[i] = j->w->root_fd;
	memset(&ctl, 0, sizeof(ctl));
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(c), fds, sizeof(fds));
	return sendmsg(fd, &m, MSG_NOSIGNAL) > 0;
}

static bool lie_flood(int fd, const struct job *j)
{
	static char b[65536];
	struct answer a = sound(j);

	if (!send_it(fd, &a))
		return false;
	for (int i = 0; i < 400 && put(fd, b, sizeof(b)); i++)
		;
	return false;
}

static bool lie_cut(int fd, const struct job *j)
{
	struct answer a = sound(j);

	(void)put(fd, &a, size_of(&a) / 2);
	return false;
}

static bool lie_close(int fd, const struct job *j)
{
	(void)fd;
	(void)j;
	return false;
}

/* A byte each fifty milliseconds: always something, never all of it. */
static bool lie_trickle(int fd, const struct job *j)
{
	struct answer a = sound(j);

	a.rep.data_len = j->f.op == FILES_LIST ? sizeof(a.data) : 0;
	a.f.len = (uint32_t)(sizeof(a.rep) + a.rep.data_len);
	for (size_t i = 0; i < size_of(&a); i++) {
		if (!put(fd, (char *)&a + i, 1))
			return false;
		(void)poll(NULL, 0, i < 24 ? 50 : 5000);
	}
	return true;
}

static bool lie_stall(int fd, const struct job *j)
{
	(void)fd;
	(void)j;
	pause();
	return false;
}

/* The process is not one, or none of its own. */
static long begun(long pid)
{
	if (pid == 0)
		_exit(0);
	return pid;
}

/* What its own filter refuses it, upon the connection that it is asked by; with arguments to which the kernel would
 * say something else, or yes. An entry that has the names of all that were not refused. */
static bool lie_calls(int fd, const struct job *j)
{
	static const int on = 1;
	char got[200] = "";
	size_t n = 0;

#define TRY(name, call, wrong)                                                                             \
	do {                                                                                               \
		errno = 0;                                                                                 \
		if ((call) >= 0 || errno != (wrong))                                                       \
			n += (size_t)snprintf(got + n, sizeof(got) - n, "%s.", name);                      \
	} while (0)
	TRY("socket", syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0), EPERM);
	TRY("socketpair", syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, NULL), EPERM);
	TRY("connect", syscall(SYS_connect, fd, NULL, 0), EPERM);
	TRY("bind", syscall(SYS_bind, fd, NULL, 0), EPERM);
	TRY("listen", syscall(SYS_listen, fd, 1), EPERM);
	TRY("accept", syscall(SYS_accept, fd, NULL, NULL), EPERM);
	TRY("accept4", syscall(SYS_accept4, fd, NULL, NULL, 0), EPERM);
	TRY("setsockopt", syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), EPERM);
	TRY("interfaces", syscall(SYS_ioctl, fd, 0x8912 /* SIOCGIFCONF */, NULL), EPERM);
	TRY("execve", syscall(SYS_execve, "/nonexistent", NULL, NULL), EPERM);
	TRY("execveat", syscall(SYS_execveat, -1, "", NULL, NULL, 0), EPERM);
	TRY("ptrace", syscall(SYS_ptrace, -1, -1, 0, 0), EPERM);
	TRY("readv", syscall(SYS_process_vm_readv, -1, NULL, 0, NULL, 0, 0), EPERM);
	TRY("writev", syscall(SYS_process_vm_writev, -1, NULL, 0, NULL, 0, 0), EPERM);
	TRY("getfd", syscall(SYS_pidfd_getfd, -1, -1, 0), EPERM);
#ifdef SYS_fork
	TRY("fork", begun(syscall(SYS_fork)), EPERM);
#endif
	TRY("clone", begun(syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL)), EPERM);
	TRY("clone3", syscall(SYS_clone3, NULL, 0), ENOSYS);
#undef TRY
	return entry(fd, j, n ? got : "nothing", n ? strlen(got) : 7, 0);
}

/* The size that is told is how many there are. */
static bool tell_count(int fd, const struct job *j, uint64_t n)
{
	struct answer a = sound(j);

	a.rep.attr.size = n;
	return send_it(fd, &a);
}

#define THREADS 4000
#define TOUCHED ((size_t)1 << 30)

static void *stay(void *arg)
{
	(void)arg;
	while (pause() < 0)
		;
	return NULL;
}

static bool lie_threads(int fd, const struct job *j)
{
	pthread_attr_t attr;
	pthread_t t;
	uint64_t n = 0;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 16384);
	while (n < THREADS && pthread_create(&t, &attr, stay, NULL) == 0)
		n++;
	return tell_count(fd, j, n);
}

static bool lie_touch(int fd, const struct job *j)
{
	char *p = mmap(NULL, TOUCHED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t n = 0;

	for (; p != MAP_FAILED && n < TOUCHED; n += 4096)
		p[n] = 1;
	return tell_count(fd, j, n);
}

/* Nor does it end as its shim does. */
static bool lie_deaf(int fd, const struct job *j)
{
	(void)epoll_ctl(j->w->epoll_fd, EPOLL_CTL_DEL, j->w->control_fd, NULL);
	return tell_count(fd, j, 0);
}

static const struct {
	const char *name;
	bool (*fn)(int fd, const struct job *j);
} lies[] = {
	{ "op", lie_op }, { "tag", lie_tag }, { "len", lie_len }, { "short", lie_short },
	{ "data-len", lie_data_len }, { "more", lie_more }, { "value", lie_value },
	{ "errno", lie_errno }, { "attr", lie_attr }, { "size", lie_size }, { "twice", lie_twice },
	{ "dots", lie_dots }, { "slash", lie_slash }, { "name-len", lie_name_len },
	{ "target-len", lie_target_len }, { "escape", lie_escape }, { "endless", lie_endless },
	{ "descriptors", lie_descriptors }, { "flood", lie_flood }, { "cut", lie_cut },
	{ "close", lie_close }, { "trickle", lie_trickle }, { "stall", lie_stall }, { "calls", lie_calls },
	{ "threads", lie_threads }, { "touch", lie_touch }, { "deaf", lie_deaf },
};

/* What happened to files, as nobody did it: as many things as fit, again and again. */
static bool tell_endlessly(int fd, struct job *j)
{
	size_t one = sizeof(struct files_closed) + 4;
	struct files_closed c = { .bytes_read = 1, .path_len = 4 };

	for (j->out_len = 0; j->out_len + one <= FILES_EXPIRED_MAX; j->out_len += one) {
		memcpy(j->out + j->out_len, &c, sizeof(c));
		memcpy(j->out + j->out_len + sizeof(c), "/lie", 4);
	}
	return real_wire_answer(fd, j, ++j->w->uses, NULL);
}

bool wire_answer(int fd, struct job *j, int64_t value, struct push *before)
{
	if (j->f.op == FILES_ACTIVITY && !strcmp(set, "endless"))
		return tell_endlessly(fd, j);
	if (strncmp(j->path, "/lie/", 5))
		return real_wire_answer(fd, j, value, before);
	if (!strncmp(j->path, "/lie/set/", 9))
		snprintf(set, sizeof(set), "%s", j->path + 9);
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++)
		if (!strcmp(j->path + 5, lies[i].name))
			return lies[i].fn(fd, j);
	return real_wire_answer(fd, j, value, before);
}
