/* SPDX-License-Identifier: MIT */
/* Requests from the front. Each is a thread that starts the tool once, looks after it, and says
 * what came of it. All of these threads are in the tool's network namespace, as whoever starts a
 * program must be. */
#include "sandboxd/pull/parts.h"

#include "common/sys/core.h"
#include "common/sys/deadline.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "common/sys/thread.h"
#include "common/sys/tree.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RUNNING_MAX 4
#define LOOK_MS     200
#define LAST_MS     ((int64_t)65 * 60 * 1000) /* the front gives up after an hour */
#define WORDS_MAX   8192                      /* of the tool's standard error, the last ones */

struct job {
	struct job *next;
	struct pull_req req;
	int cancel; /* atomic */
};
static struct {
	const struct pull_conf *conf;
	pthread_mutex_t lock;
	pthread_cond_t room;
	/* under lock */
	struct job *all;
	int running;
	struct sockaddr_in forwards[32]; /* that have a listener */
	size_t nforwards;
} jobs = { .lock = PTHREAD_MUTEX_INITIALIZER, .room = PTHREAD_COND_INITIALIZER };

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static bool cancelled(const struct job *j)
{
	return __atomic_load_n(&j->cancel, __ATOMIC_ACQUIRE) != 0;
}

/* --- registries on the host's loopback ------------------------------------------------------- */

/* Lock held. */
static int forward(const struct sockaddr_in *to)
{
	int fd, one = 1;

	for (size_t i = 0; i < jobs.nforwards; i++)
		if (jobs.forwards[i].sin_port == to->sin_port &&
			jobs.forwards[i].sin_addr.s_addr == to->sin_addr.s_addr)
			return 0;
	if (jobs.nforwards == sizeof(jobs.forwards) / sizeof(jobs.forwards[0]))
		return -EMFILE;
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (const struct sockaddr *)to, sizeof(*to)) < 0 || listen(fd, 64) < 0) {
		int r = -errno;
		close(fd);
		return r;
	}
	jobs.forwards[jobs.nforwards++] = *to;
	return proxy_forward(fd, to);
}

/* The tool goes past the proxy for names of the loopback: what it reaches there is a listener of
 * ours. */
static int open_loopback(struct sockaddr_in to)
{
	static const uint16_t usual[] = { 443, 80 };
	int r = 0;

	pthread_mutex_lock(&jobs.lock);
	if (to.sin_port)
		r = forward(&to);
	for (size_t i = 0; !to.sin_port && r == 0 && i < 2; i++) {
		struct sockaddr_in one = to;
		one.sin_port = htons(usual[i]);
		r = forward(&one);
	}
	pthread_mutex_unlock(&jobs.lock);
	return r;
}

/* --- one run --------------------------------------------------------------------------------- */

struct run {
	const struct job *job;
	struct tool tool;
	int dirfd; /* the job's folder */
	int err[2], out;
	bool had_login;
	char words[WORDS_MAX + 1];
	size_t nwords;
};

static void limit(int what, rlim_t max)
{
	const struct rlimit l = { max, max };

	(void)setrlimit(what, &l);
}

static void child(const struct run *r)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int out = r->out >= 0 ? r->out : null;

	setpgid(0, 0);
	if (dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(r->err[1], 2) < 0)
		_exit(126);
	close_range(3, ~0u, 0);
	limit(RLIMIT_CORE, CORE_NEVER);
	limit(RLIMIT_FSIZE, r->out >= 0 ? PULL_MANIFEST_MAX + 1 : (rlim_t)66 << 30);
	execve(PULL_TOOL, (char *const *)(uintptr_t)r->tool.argv,
		(char *const *)(uintptr_t)r->tool.env);
	_exit(127);
}

static void read_words(struct run *r)
{
	char buf[1024];
	ssize_t n = read(r->err[0], buf, sizeof(buf));

	if (n <= 0)
		return;
	if (r->nwords + (size_t)n > WORDS_MAX) { /* the end is what counts */
		size_t keep = WORDS_MAX / 2;
		memmove(r->words, r->words + r->nwords - keep, keep);
		r->nwords = keep;
	}
	memcpy(r->words + r->nwords, buf, (size_t)n);
	r->nwords += (size_t)n;
}

/* Why the tool has to be stopped, PULL_OK: it need not. */
static enum pull_result look(const struct run *r, int64_t since, int64_t *moved, int64_t *size)
{
	int64_t now = now_ms(), bytes = tree_size(r->dirfd, r->out >= 0 ? "manifest" : "image");

	if (bytes != *size) {
		*size = bytes;
		*moved = now;
	}
	if (cancelled(r->job))
		return PULL_CANCELLED;
	if (now - *moved > (int64_t)jobs.conf->stall_secs * 1000 || now - since > LAST_MS)
		return PULL_STALLED;
	return PULL_OK;
}

static enum pull_result watch(struct run *r, pid_t pid, int *status)
{
	int64_t since = now_ms(), moved = since, size = 0;
	enum pull_result stopped = PULL_OK;
	struct pollfd p = { .fd = r->err[0], .events = POLLIN };

	for (;;) {
		int n = poll(&p, 1, LOOK_MS);
		if (n > 0 && (p.revents & POLLIN))
			read_words(r);
		else if (n > 0)
			(void)usleep(1000); /* its end is closed: it is about to end */
		if (waitpid(pid, status, WNOHANG) == pid)
			break;
		if (stopped == PULL_OK && (stopped = look(r, since, &moved, &size)) != PULL_OK)
			(void)kill(-pid, SIGKILL);
	}
	while (p.revents & POLLIN) {
		read_words(r);
		if (poll(&p, 1, 0) <= 0)
			break;
	}
	return stopped;
}

static int open_files(struct run *r, const struct pull_req *q)
{
	static const char none[] = "{\"auths\":{}}";
	struct stat st;
	char name[16];
	int fd;

	snprintf(name, sizeof(name), "%u", q->tag);
	r->dirfd = openat(jobs.conf->dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (r->dirfd < 0)
		return -errno;
	r->had_login = fstatat(r->dirfd, "auth.json", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		       st.st_size > (off_t)sizeof(none);
	fd = openat(r->dirfd, "auth.json", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0) {
		int rc = fd_write_full(fd, none, sizeof(none) - 1);
		close(fd);
		if (rc < 0)
			return rc;
	}
	if (q->op == PULL_MANIFEST)
		r->out = openat(r->dirfd, "manifest",
			O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (q->op == PULL_MANIFEST && r->out < 0)
		return -errno;
	return pipe2(r->err, O_CLOEXEC) < 0 ? -errno : 0;
}

static enum pull_result run_tool(struct run *r, char text[PULL_TEXT_MAX])
{
	enum pull_result stopped;
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		child(r);
	close(r->err[1]);
	r->err[1] = -1;
	if (pid < 0)
		return PULL_FAILED;
	stopped = watch(r, pid, &status);
	r->words[r->nwords] = '\0';
	if (stopped != PULL_OK)
		return stopped;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return PULL_OK;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
		snprintf(text, PULL_TEXT_MAX, "%s cannot be started (package skopeo)", PULL_TOOL);
		return PULL_FAILED;
	}
	return tool_verdict(r->words, r->had_login, text);
}

static enum pull_result work(const struct job *j, char text[PULL_TEXT_MAX])
{
	const struct pull_req *q = &j->req;
	struct tool_run t = { (enum pull_op)q->op, (enum pull_source)q->source, q->tag, q->ref,
		true };
	struct run *r = calloc(1, sizeof(*r));
	enum pull_result result = PULL_FAILED;
	struct sockaddr_in to;

	if (!r)
		return PULL_FAILED;
	r->job = j;
	r->dirfd = r->out = r->err[0] = r->err[1] = -1;
	if (q->source == PULL_REGISTRY && tool_loopback(q->ref, &to)) {
		t.verify_tls = false;
		if (!jobs.conf->allow_private)
			result = PULL_REFUSED;
		else if (open_loopback(to) < 0)
			result = PULL_UNREACHABLE;
	}
	if (result == PULL_FAILED && open_files(r, q) == 0) {
		tool_command(jobs.conf, &t, &r->tool);
		result = run_tool(r, text);
	}
	close_p(&r->dirfd);
	close_p(&r->out);
	close_p(&r->err[0]);
	close_p(&r->err[1]);
	free(r);
	return result;
}

/* --- requests -------------------------------------------------------------------------------- */

static void take_turn(const struct job *j)
{
	pthread_mutex_lock(&jobs.lock);
	while (jobs.running >= RUNNING_MAX && !cancelled(j))
		(void)cond_wait_ms(&jobs.room, &jobs.lock, 1000);
	jobs.running++;
	pthread_mutex_unlock(&jobs.lock);
}

static void leave(struct job *j)
{
	struct job **p;

	pthread_mutex_lock(&jobs.lock);
	jobs.running--;
	for (p = &jobs.all; *p && *p != j; p = &(*p)->next)
		;
	if (*p)
		*p = j->next;
	pthread_cond_signal(&jobs.room);
	pthread_mutex_unlock(&jobs.lock);
}

static void answer(uint32_t tag, enum pull_result result, const char *text)
{
	struct pull_ans a = { .magic = PULL_MAGIC, .tag = tag, .result = (int32_t)result };

	snprintf(a.text, sizeof(a.text), "%s", text);
	(void)fd_send_msg(PULL_FD_FRONT, &a, sizeof(a), NULL, 0);
}

static void *run_job(void *arg)
{
	struct job *j = arg;
	char text[PULL_TEXT_MAX] = "";
	enum pull_result result = PULL_CANCELLED;

	take_turn(j);
	if (!cancelled(j))
		result = work(j, text);
	leave(j);
	answer(j->req.tag, result, text);
	free(j);
	return NULL;
}

/* A reference goes into a command line: nothing that could be taken for anything else. */
static bool ref_ok(const struct pull_req *q)
{
	size_t n = strnlen(q->ref, sizeof(q->ref));

	if (n == sizeof(q->ref))
		return false;
	if (q->source != PULL_REGISTRY)
		return n == 0 && q->op == PULL_COPY;
	return n > 0 && q->ref[0] != '-' && q->ref[0] != '/' &&
	       strspn(q->ref, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
			      "._/:@-") == n;
}

static void start(const struct pull_req *q)
{
	struct job *j = calloc(1, sizeof(*j));

	if (j && ref_ok(q) && q->source < PULL_SOURCES) {
		j->req = *q;
		pthread_mutex_lock(&jobs.lock);
		j->next = jobs.all;
		jobs.all = j;
		pthread_mutex_unlock(&jobs.lock);
		if (thread_detached(run_job, j, 0) == 0)
			return;
		pthread_mutex_lock(&jobs.lock);
		jobs.all = j->next;
		pthread_mutex_unlock(&jobs.lock);
	}
	free(j);
	answer(q->tag, PULL_FAILED, "the request cannot be done");
}

static void cancel(uint32_t tag)
{
	pthread_mutex_lock(&jobs.lock);
	for (struct job *j = jobs.all; j; j = j->next)
		if (j->req.tag == tag)
			__atomic_store_n(&j->cancel, 1, __ATOMIC_RELEASE);
	pthread_cond_broadcast(&jobs.room);
	pthread_mutex_unlock(&jobs.lock);
}

void jobs_serve(const struct pull_conf *conf)
{
	struct pull_req q;
	ssize_t n;

	jobs.conf = conf;
	while ((n = fd_recv_msg(PULL_FD_FRONT, &q, sizeof(q), NULL, NULL)) != 0) {
		if (n < 0 && n != -EINTR && n != -EAGAIN)
			return;
		if (n != sizeof(q) || q.magic != PULL_MAGIC)
			continue;
		if (q.op == PULL_CANCEL)
			cancel(q.tag);
		else if (q.op == PULL_MANIFEST || q.op == PULL_COPY)
			start(&q);
	}
}
