/* SPDX-License-Identifier: MIT */
/* The front's side of the shim protocol: a pool of call connections, used by one thread at a time.
 * A connection on which anything unexpected happened is closed, never used again. */
#include "sandboxd/backend/guest.h"

#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/backend/hub.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#define CALL_MS 10000
#define IDLE_MAX 4
#define STDIN_CHUNK (64 * 1024)
#define SMALL 8192

struct call { /* lives on the caller's stack */
	struct call *next, *prev;
	int fd;
};
struct guest {
	struct guest_hub *hub;
	struct hub_entry events;
	int run_dirfd;
	uint8_t secret[PROTO_SECRET_LEN];
	uint64_t generation;
	pthread_mutex_t lock;
	/* under lock */
	int idle[IDLE_MAX];
	size_t nidle;
	struct call *calls;
	bool ended;
};

static int set_ended(struct err *e)
{
	return err_set(e, ERR_CONFLICT, "sandbox has ended");
}

static int set_short(struct err *e)
{
	return err_set(e, ERR_UNAVAILABLE, "the server has no descriptor or memory left for this");
}

/* What a broken or silent connection means; every cause ends the call, none is retried, because the
 * shim may have done it already. What we are short of says nothing about the sandbox. */
static int set_broken(struct err *e, int r)
{
	if (r == -ETIMEDOUT)
		return err_set_sys(e, ERR_UNAVAILABLE, ETIMEDOUT, "the sandbox does not answer");
	if (r == -EMFILE || r == -ENFILE || r == -ENOMEM || r == -ENOBUFS)
		return set_short(e);
	return set_ended(e);
}

static int dial_sock(int run_dirfd, int *ret_fd)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const struct timeval limit = { .tv_sec = CALL_MS / 1000 };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/sock", run_dirfd);
	/* A full backlog makes connect wait. */
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	*ret_fd = steal_fd(&fd);
	return 0;
}

static int greet(const struct guest *g, uint32_t kind, int fd)
{
	struct proto_hello h = { .magic = PROTO_MAGIC, .version = PROTO_VERSION, .kind = kind,
		.generation = g->generation };
	struct proto_hello_ok ok;
	int r;

	memcpy(h.secret, g->secret, sizeof(h.secret));
	r = fd_send_full(fd, &h, sizeof(h), CALL_MS);
	if (r == 0)
		r = fd_recv_full(fd, &ok, sizeof(ok), CALL_MS);
	if (r < 0)
		return r;
	if (ok.magic != PROTO_MAGIC || ok.version != PROTO_VERSION)
		return -EPROTO;
	return ok.error < 0 ? ok.error : ok.generation == g->generation ? 0 : -ESTALE;
}

static int open_conn(const struct guest *g, uint32_t kind, int *ret_fd)
{
	_cleanup_close_ int fd = -1;
	int r = dial_sock(g->run_dirfd, &fd);

	if (r == 0)
		r = greet(g, kind, fd);
	if (r == 0)
		*ret_fd = steal_fd(&fd);
	return r;
}

int guest_connect(struct guest_hub *h, int run_dirfd, const uint8_t secret[PROTO_SECRET_LEN],
	uint64_t generation, const struct guest_watch *watch, void *arg, struct guest **ret,
	struct err *e)
{
	struct guest *g = calloc(1, sizeof(*g));
	int r;

	if (!g)
		return err_oom(e);
	pthread_mutex_init(&g->lock, NULL);
	g->hub = h;
	g->generation = generation;
	memcpy(g->secret, secret, sizeof(g->secret));
	g->events = (struct hub_entry){ .fd = -1, .watch = watch, .arg = arg };
	g->run_dirfd = fcntl(run_dirfd, F_DUPFD_CLOEXEC, 3);
	r = g->run_dirfd < 0 ? -errno : open_conn(g, PROTO_EVENTS, &g->events.fd);
	if (r < 0)
		(void)err_set_sys(e, ERR_UNAVAILABLE, -r, "the sandbox's shim cannot be reached: %s",
			strerror(-r));
	else
		r = hub_add(h, &g->events, e);
	if (r == 0) {
		*ret = g;
		return 0;
	}
	close_p(&g->events.fd);
	close_p(&g->run_dirfd);
	pthread_mutex_destroy(&g->lock);
	free(g);
	return -1;
}

void guest_free(struct guest *g)
{
	if (!g)
		return;
	hub_remove(g->hub, &g->events);
	while (g->nidle)
		close(g->idle[--g->nidle]);
	close_p(&g->run_dirfd);
	pthread_mutex_destroy(&g->lock);
	explicit_bzero(g->secret, sizeof(g->secret));
	free(g);
}

void guest_shutdown(struct guest *g)
{
	pthread_mutex_lock(&g->lock);
	g->ended = true;
	for (struct call *c = g->calls; c; c = c->next)
		(void)shutdown(c->fd, SHUT_RDWR);
	pthread_mutex_unlock(&g->lock);
	guest_mute(g);
}

void guest_mute(struct guest *g)
{
	hub_mute(g->hub, &g->events);
}

static void call_unlink(struct guest *g, struct call *c)
{
	if (c->next)
		c->next->prev = c->prev;
	*(c->prev ? &c->prev->next : &g->calls) = c->next;
}

/* Registers the call, so that a shutdown finds its descriptor. */
static int call_link(struct guest *g, struct call *c, bool *ret_ended)
{
	pthread_mutex_lock(&g->lock);
	*ret_ended = g->ended;
	if (!g->ended && c->fd < 0 && g->nidle)
		c->fd = g->idle[--g->nidle];
	if (!g->ended && c->fd >= 0) {
		c->prev = NULL;
		c->next = g->calls;
		if (c->next)
			c->next->prev = c;
		g->calls = c;
	}
	pthread_mutex_unlock(&g->lock);
	return c->fd;
}

static int call_begin(struct guest *g, struct call *c, struct err *e)
{
	bool ended;

	*c = (struct call){ .fd = -1 };
	if (call_link(g, c, &ended) < 0 && !ended) {
		int r = open_conn(g, PROTO_CALLS, &c->fd);
		if (r < 0)
			return set_broken(e, r);
		(void)call_link(g, c, &ended);
	}
	if (ended) {
		close_p(&c->fd);
		return set_ended(e);
	}
	return 0;
}

static void call_end(struct guest *g, struct call *c, bool usable)
{
	int fd = c->fd;

	pthread_mutex_lock(&g->lock);
	call_unlink(g, c);
	if (usable && !g->ended && g->nidle < IDLE_MAX)
		g->idle[g->nidle++] = steal_fd(&fd);
	pthread_mutex_unlock(&g->lock);
	close_p(&fd);
}

/* One message: frame, a fixed part, bytes; descriptors ride on the first byte. */
struct request {
	struct proto_frame f;
	const void *part[2];
	size_t len[2];
	int fds[2];
	size_t nfds;
};

static int send_request(int fd, struct request *q)
{
	char buf[SMALL], *p = buf + sizeof(q->f);
	size_t body = q->len[0] + q->len[1];
	bool small = body <= sizeof(buf) - sizeof(q->f);
	int r;

	q->f.len = (uint32_t)body;
	memcpy(buf, &q->f, sizeof(q->f));
	/* In one piece if it is short: the shim then wakes up once. */
	for (int i = 0; small && i < 2; i++)
		if (q->len[i])
			p = mempcpy(p, q->part[i], q->len[i]);
	r = fd_send_msg(fd, buf, (size_t)(p - buf), q->fds, q->nfds);
	for (int i = 0; !small && r == 0 && i < 2; i++)
		if (q->len[i])
			r = fd_send_full(fd, q->part[i], q->len[i], CALL_MS);
	return r;
}

static int check_answer(const struct request *q, const struct proto_frame *a)
{
	return a->op == q->f.op && a->tag == q->f.tag && a->len == 0 ? 0 : -EPROTO;
}

static int recv_answer(int fd, const struct request *q, struct proto_frame *a, int *ret_fd)
{
	int fds[1];
	size_t nfds = ret_fd ? 1 : 0;

	if (!fd_wait(fd, POLLIN, CALL_MS))
		return -ETIMEDOUT;
	ssize_t n = fd_recv_msg(fd, a, sizeof(*a), fds, &nfds);
	if (nfds)
		*ret_fd = fds[0];
	if (n <= 0)
		return n < 0 ? (int)n : -EPIPE;
	int r = (size_t)n < sizeof(*a)
		? fd_recv_full(fd, (char *)a + n, sizeof(*a) - (size_t)n, CALL_MS) : 0;
	return r < 0 ? r : check_answer(q, a);
}

/* Sends, waits, answers; -1 with e when there was no answer. ret_fd: NULL or a descriptor that the
 * answer may bring (-1 when it did not). */
static int call(struct guest *g, struct request *q, struct proto_frame *a, int *ret_fd, struct err *e)
{
	struct call c;
	int r;

	if (ret_fd)
		*ret_fd = -1;
	if (call_begin(g, &c, e) < 0)
		return -1;
	r = send_request(c.fd, q);
	if (r == 0)
		r = recv_answer(c.fd, q, a, ret_fd);
	call_end(g, &c, r == 0);
	if (r == 0)
		return 0;
	if (ret_fd) {
		close_p(ret_fd);
		*ret_fd = -1; /* the caller closes it, too */
	}
	return set_broken(e, r);
}

/* START */

struct message {
	enum proto_stage stage;
	int sys; /* 0: any other */
	const char *fmt;
};
static const struct message messages[] = {
	{ PROTO_AT_CWD, EACCES, "cwd \"%s\": permission denied" },
	{ PROTO_AT_CWD, 0, "cwd \"%s\": no such directory" },
	{ PROTO_AT_EXEC, ENOENT, "command \"%s\": not found" },
	{ PROTO_AT_EXEC, ENOTDIR, "command \"%s\": not found" },
	{ PROTO_AT_EXEC, ELOOP, "command \"%s\": not found" },
	{ PROTO_AT_EXEC, ENAMETOOLONG, "command \"%s\": not found" },
	{ PROTO_AT_EXEC, ELIBBAD, "command \"%s\": not executable, its interpreter was not found" },
	{ PROTO_AT_EXEC, E2BIG, "command \"%s\": argv and env are too long" },
	{ PROTO_AT_EXEC, ETXTBSY, "command \"%s\": not executable while it is open for writing" },
	{ PROTO_AT_EXEC, EACCES, "command \"%s\": not executable" },
	{ PROTO_AT_EXEC, ENOEXEC, "command \"%s\": not executable" },
	{ PROTO_AT_EXEC, EISDIR, "command \"%s\": not executable" },
	{ PROTO_AT_EXEC, EPERM, "command \"%s\": not executable" },
	{ PROTO_AT_EXEC, EINVAL, "command \"%s\": not executable" },
	{ PROTO_AT_EXEC, ELIBACC, "command \"%s\": not executable" },
};

static int start_error(const struct guest_start *s, const struct proto_frame *a, struct err *e)
{
	int sys = a->value < 0 && a->value > -4096 ? (int)-a->value : EPROTO;
	char name[200];

	for (size_t i = 0; i < ARRAY_LEN(messages); i++) {
		const struct message *m = &messages[i];
		if (m->stage != (enum proto_stage)a->flags || (m->sys && m->sys != sys))
			continue;
		snprintf(name, sizeof(name), "%s", m->stage == PROTO_AT_CWD ? s->cwd : s->argv[0]);
		return err_set_sys(e, ERR_INVALID_REQUEST, sys, m->fmt, name);
	}
	if (sys == EAGAIN || sys == ENOMEM)
		return err_set_sys(e, ERR_CONFLICT, sys,
			"no further process can be started: a limit of the sandbox is reached");
	return err_set_sys(e, ERR_UNAVAILABLE, sys, "the process could not be started: %s",
		strerror(sys));
}

static size_t add_size(const char *const *v, uint32_t *count)
{
	size_t n = 0;

	for (*count = 0; v[*count]; (*count)++)
		n += strlen(v[*count]) + 1;
	return n;
}

static char *add_all(char *p, const char *const *v)
{
	for (; *v; v++)
		p = stpcpy(p, *v) + 1;
	return p;
}

static int pack_strings(const struct guest_start *s, struct proto_start *m, char **ret, struct err *e)
{
	size_t len = strlen(s->cwd) + 1 + add_size(s->argv, &m->argc) + add_size(s->env, &m->envc);

	if (m->argc == 0 || !s->argv[0][0])
		return err_set(e, ERR_INVALID_REQUEST, "argv must name a command");
	if (len > PROTO_START_MAX)
		return err_set_sys(e, ERR_INVALID_REQUEST, E2BIG,
			"argv and env together may have at most 1 MiB");
	m->len = (uint32_t)len;
	char *buf = malloc(len);
	if (!buf)
		return err_set(e, ERR_INTERNAL, "out of memory");
	add_all(add_all(stpcpy(buf, s->cwd) + 1, s->argv), s->env);
	*ret = buf;
	return 0;
}

static int stdin_file(const struct guest_start *s, struct err *e)
{
	_cleanup_close_ int fd = memfd_create("stdin", MFD_CLOEXEC);
	int r = fd < 0 ? -errno : fd_write_full(fd, s->stdin_data, s->stdin_len);

	if (r < 0)
		return err_set_sys(e, ERR_UNAVAILABLE, -r, "no room for the input");
	return steal_fd(&fd);
}

int guest_start(struct guest *g, const struct guest_start *s, struct err *e)
{
	struct proto_start m = { .rows = s->rows, .cols = s->cols,
		.flags = (s->tty ? PROTO_START_TTY : 0) | (s->stdin_open ? PROTO_START_OPEN : 0) };
	struct request q = { .f = { .op = PROTO_START, .value = s->num }, .fds = { s->spool_fd },
		.nfds = 1 };
	_cleanup_free_ char *strings = NULL;
	_cleanup_close_ int in = -1;
	struct proto_frame a;

	if (pack_strings(s, &m, &strings, e) < 0)
		return -1;
	if (s->stdin_len) {
		if ((in = stdin_file(s, e)) < 0)
			return -1;
		m.flags |= PROTO_START_STDIN;
		q.fds[q.nfds++] = in;
	}
	q.part[0] = &m;
	q.len[0] = sizeof(m);
	q.part[1] = strings;
	q.len[1] = m.len;
	if (call(g, &q, &a, NULL, e) < 0)
		return -1;
	return a.value > 0 ? 0 : start_error(s, &a, e);
}

/* The small ones */

static int simple(struct guest *g, struct request *q, const char *what, struct err *e)
{
	struct proto_frame a;

	if (call(g, q, &a, NULL, e) < 0)
		return -1;
	/* Unknown to the shim: exited and forgotten. */
	if (a.value >= 0 || a.value == -ESRCH)
		return 0;
	return err_set_sys(e, ERR_CONFLICT, a.value > -4096 ? (int)-a.value : EPROTO, "%s failed", what);
}

int guest_signal(struct guest *g, uint32_t num, int sig, bool tree, struct err *e)
{
	struct request q = { .f = { .op = tree ? PROTO_KILLTREE : PROTO_SIGNAL, .value = num,
		.flags = (uint16_t)sig } };

	return simple(g, &q, "the signal", e);
}

int guest_resize(struct guest *g, uint32_t num, uint16_t rows, uint16_t cols, struct err *e)
{
	struct proto_size size = { rows, cols };
	struct request q = { .f = { .op = PROTO_RESIZE, .value = num }, .part = { &size },
		.len = { sizeof(size) } };

	return simple(g, &q, "the new terminal size", e);
}

int guest_forget(struct guest *g, uint32_t num, struct err *e)
{
	struct request q = { .f = { .op = PROTO_FORGET, .value = num } };

	return simple(g, &q, "forgetting a process", e);
}

/* Until the answer comes, for ever; but not longer than the client that asked is there. */
static int wait_stdin(int fd, int watch_fd)
{
	struct pollfd p[2] = { { .fd = fd, .events = POLLIN },
		{ .fd = watch_fd, .events = POLLRDHUP } };

	for (;;) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return -errno;
		if (p[0].revents)
			return 0;
		if (p[1].revents)
			return -ECANCELED;
	}
}

static int stdin_answer(int64_t value, struct err *e)
{
	if (value >= 0)
		return 0;
	return err_set_sys(e, ERR_CONFLICT, EPIPE, "%s",
		value == -ESRCH ? "the process has exited" : "stdin is closed or the process has exited");
}

static int send_chunk(int fd, struct request *q, int watch_fd, int64_t *ret_value)
{
	struct proto_frame a;
	int r = send_request(fd, q);

	if (r == 0)
		r = wait_stdin(fd, watch_fd);
	if (r == 0)
		r = recv_answer(fd, q, &a, NULL);
	if (r == 0)
		*ret_value = a.value;
	return r;
}

int guest_stdin(struct guest *g, uint32_t num, const void *buf, size_t len, bool close_after,
	int watch_fd, struct err *e)
{
	const char *p = buf;
	int64_t value = 0;
	struct call c;
	int r;

	if (call_begin(g, &c, e) < 0)
		return -1;
	do {
		size_t n = len < STDIN_CHUNK ? len : STDIN_CHUNK;
		bool last = n == len && close_after;
		struct request q = { .f = { .op = PROTO_STDIN, .value = num,
			.flags = last ? PROTO_STDIN_CLOSE : 0 }, .part = { p }, .len = { n } };
		r = send_chunk(c.fd, &q, watch_fd, &value);
		p += n;
		len -= n;
	} while (r == 0 && value >= 0 && len > 0);
	call_end(g, &c, r == 0);
	if (r == -ECANCELED)
		return err_set_sys(e, ERR_CONFLICT, ECANCELED, "the client has left");
	return r < 0 ? set_broken(e, r) : stdin_answer(value, e);
}

int guest_dial(struct guest *g, uint16_t port, int *ret_fd, struct err *e)
{
	struct request q = { .f = { .op = PROTO_DIAL, .value = port } };
	_cleanup_close_ int fd = -1;
	struct proto_frame a;

	if (call(g, &q, &a, &fd, e) < 0)
		return -1;
	if (a.value >= 0 && fd < 0)
		return set_short(e); /* it was lost on its way */
	if (a.value < 0)
		return err_set_sys(e, ERR_NOT_FOUND, a.value > -4096 ? (int)-a.value : EPROTO,
			"nothing listens on port %u in the sandbox", port);
	*ret_fd = steal_fd(&fd);
	return 0;
}

int guest_files_connect(struct guest *g, int *ret_fd, struct err *e)
{
	pthread_mutex_lock(&g->lock);
	bool ended = g->ended;
	pthread_mutex_unlock(&g->lock);
	if (ended)
		return set_ended(e);
	int r = open_conn(g, PROTO_FILES, ret_fd);
	return r < 0 ? set_broken(e, r) : 0;
}
