/* SPDX-License-Identifier: MIT */
/* Requests from the front. Each is a thread that has the tool run once in a cell of its own, looks after it, and
 * says what came of it. The folder of the work lies in the cell's folder meanwhile. */
#include "sandboxd/pull/parts.h"

#include "common/sys/core.h"
#include "common/sys/deadline.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "common/sys/thread.h"
#include "common/sys/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS     200
#define MANIFEST_MAX ((int64_t)64 << 20) /* bytes around a manifest */
#define WORK_MAX     ((int64_t)200 << 30) /* an archive, what is unpacked of it, the image */
#define DISK_LEFT    ((uint64_t)128 << 20) /* of the disk, for others */
#define LAST_MS     ((int64_t)65 * 60 * 1000) /* the front gives up after an hour */
#define WORDS_MAX   8192                      /* of the tool's standard error, the last ones */

struct job {
	struct job *next;
	struct pull_req req;
	int cancel; /* atomic */
};
struct place {
	struct cell cell;
	bool busy, lost; /* under the lock */
	bool dead;       /* for whose it is */
};
static struct {
	const struct pull_conf *conf;
	pthread_mutex_t lock;
	pthread_cond_t room;
	/* under lock */
	struct job *all;
	struct place places[PULL_CELLS];
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

static int forward(const struct cell *c, const struct sockaddr_in *to)
{
	int fd = cell_listen(c, to);

	return fd < 0 ? fd : proxy_forward(c->num, fd, to);
}

/* The tool goes past the proxy for names of the loopback: what it reaches there is a listener of
 * ours. */
static int open_loopback(const struct cell *c, struct sockaddr_in to)
{
	static const uint16_t usual[PULL_FORWARDS] = { 443, 80 };
	int r = 0;

	if (to.sin_port)
		return forward(c, &to);
	for (size_t i = 0; r == 0 && i < PULL_FORWARDS; i++) {
		to.sin_port = htons(usual[i]);
		r = forward(c, &to);
	}
	return r;
}

/* --- what the cell is lent --------------------------------------------------------------------- */

static int lend(const struct place *p, const char *name)
{
	return renameat(jobs.conf->dirfd, name, p->cell.dirfd, name) < 0 ? -errno : 0;
}

/* workfd: the folder itself, whose mode is as the run liked. In the cell's folder it could do nothing. */
static int take_back(const struct place *p, const char *name, int workfd)
{
	(void)fchmod(workfd, 0700);
	return renameat(p->cell.dirfd, name, jobs.conf->dirfd, name) < 0 ? -errno : 0;
}

/* --- one run --------------------------------------------------------------------------------- */

struct run {
	const struct job *job;
	struct place *place;
	struct tool_run what;
	int dirfd; /* the job's folder */
	int err[2], out;
	bool had_login;
	char words[WORDS_MAX + 1];
	size_t nwords;
};

/* False: there will be no more. */
static bool read_words(struct run *r)
{
	char buf[1024];
	ssize_t n = read(r->err[0], buf, sizeof(buf));

	if (n <= 0)
		return false;
	if (r->nwords + (size_t)n > WORDS_MAX) { /* the end is what counts */
		size_t keep = WORDS_MAX / 2;
		memmove(r->words, r->words + r->nwords - keep, keep);
		r->nwords = keep;
	}
	memcpy(r->words + r->nwords, buf, (size_t)n);
	r->nwords += (size_t)n;
	return true;
}

/* Of all that is in the work's folder, whatever it is called. */
static enum pull_result look_at_disk(const struct run *r, int64_t bytes)
{
	struct statvfs disk;

	if (bytes > (r->out >= 0 ? MANIFEST_MAX : WORK_MAX))
		return PULL_MORE;
	if (fstatvfs(r->dirfd, &disk) == 0 && (uint64_t)disk.f_bavail * disk.f_frsize < DISK_LEFT)
		return PULL_FULL;
	return PULL_OK;
}

/* Why the tool has to be stopped, PULL_OK: it need not. */
static enum pull_result look(const struct run *r, int64_t since, int64_t *moved, int64_t *size)
{
	int64_t bytes = tree_size(r->dirfd, ".", PULL_FILES_MAX), now = now_ms();

	if (bytes != *size) {
		*size = bytes;
		*moved = now;
	}
	if (cancelled(r->job))
		return PULL_CANCELLED;
	if (now - *moved > (int64_t)jobs.conf->stall_secs * 1000 || now - since > LAST_MS)
		return PULL_STALLED;
	return look_at_disk(r, bytes);
}

static enum pull_result watch(struct run *r, int *status)
{
	const struct cell *c = &r->place->cell;
	int64_t since = now_ms(), moved = since, looked = since, size = 0;
	enum pull_result stopped = PULL_OK;
	struct pollfd p[2] = { { .fd = r->err[0], .events = POLLIN },
		{ .fd = c->sock, .events = POLLIN } };

	while (poll(p, 2, LOOK_MS) < 0 || !p[1].revents) {
		if (p[0].revents && !read_words(r))
			p[0].fd = -1;
		if (stopped != PULL_OK || now_ms() - looked < LOOK_MS)
			continue;
		stopped = look(r, since, &moved, &size);
		looked = now_ms();
		if (stopped != PULL_OK)
			(void)cell_stop(c);
	}
	r->place->dead = cell_ended(c, status) == -EPIPE;
	while (fd_wait(r->err[0], POLLIN, 0) && read_words(r))
		;
	return stopped;
}

static int open_files(struct run *r, const struct pull_req *q, const char *name)
{
	static const char none[] = "{\"auths\":{}}";
	struct stat st;
	int fd;

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

static enum pull_result run_tool(struct run *r, bool *ran, char text[PULL_TEXT_MAX])
{
	enum pull_result stopped;
	int status = -1, sent = cell_run(&r->place->cell, &r->what, r->err[1], r->out);

	close(r->err[1]);
	r->err[1] = -1;
	*ran = sent == 0;
	r->place->dead = sent == -EPIPE;
	if (sent < 0)
		return PULL_FAILED;
	stopped = watch(r, &status);
	if (r->place->dead) {
		snprintf(text, PULL_TEXT_MAX, "what ran it has ended; another try may go well");
		return PULL_FAILED;
	}
	r->words[r->nwords] = '\0';
	if (stopped != PULL_OK)
		return stopped;
	if (status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return PULL_OK;
	if (status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 127) {
		snprintf(text, PULL_TEXT_MAX, "%s cannot be started (package skopeo)", PULL_TOOL);
		return PULL_FAILED;
	}
	return tool_verdict(r->words, r->had_login, text);
}

static enum pull_result prepare(struct run *r, const struct pull_req *q)
{
	struct sockaddr_in to;
	int got;

	r->what = (struct tool_run){ .op = (enum pull_op)q->op,
		.source = (enum pull_source)q->source, .tag = q->tag, .verify_tls = true };
	memcpy(r->what.ref, q->ref, sizeof(r->what.ref));
	if (q->source != PULL_REGISTRY || !tool_loopback(q->ref, &to))
		return PULL_OK;
	r->what.verify_tls = false;
	if (!jobs.conf->allow_private)
		return PULL_REFUSED;
	got = open_loopback(&r->place->cell, to);
	r->place->dead = got == -EPIPE;
	return got < 0 ? PULL_UNREACHABLE : PULL_OK;
}

/* *ran: the tool may have begun. */
static enum pull_result work(const struct job *j, struct place *p, bool *ran, char text[PULL_TEXT_MAX])
{
	struct run *r = calloc(1, sizeof(*r));
	enum pull_result result;
	char name[16];

	if (!r)
		return PULL_FAILED;
	snprintf(name, sizeof(name), "%u", j->req.tag);
	r->job = j;
	r->place = p;
	r->dirfd = r->out = r->err[0] = r->err[1] = -1;
	result = prepare(r, &j->req);
	if (result == PULL_OK) {
		result = PULL_FAILED;
		if (open_files(r, &j->req, name) == 0 && lend(p, name) == 0) {
			result = run_tool(r, ran, text);
			p->dead |= take_back(p, name, r->dirfd) < 0;
		}
	}
	close_p(&r->dirfd);
	close_p(&r->out);
	close_p(&r->err[0]);
	close_p(&r->err[1]);
	free(r);
	return result;
}

/* --- requests -------------------------------------------------------------------------------- */

/* Lock held. NULL: all are taken. */
static struct place *free_place(void)
{
	for (size_t i = 0; i < PULL_CELLS; i++)
		if (!jobs.places[i].busy && !jobs.places[i].lost)
			return &jobs.places[i];
	return NULL;
}

/* NULL: cancelled. */
static struct place *take_place(const struct job *j)
{
	struct place *p = NULL;

	pthread_mutex_lock(&jobs.lock);
	while (!cancelled(j) && !(p = free_place()))
		(void)cond_wait_ms(&jobs.room, &jobs.lock, 1000);
	if (p)
		p->busy = true;
	pthread_mutex_unlock(&jobs.lock);
	return p;
}

/* Lock held. Namespaces cannot be made any more, so what has ended stays so. The front tells everybody what to do when
 * we have. */
static void lose(struct place *lost)
{
	int left = 0;

	lost->lost = true;
	for (size_t i = 0; i < PULL_CELLS; i++)
		left += !jobs.places[i].lost;
	fprintf(stderr, "<warning> sbx-pull: the cell %d has ended; until the server is started again %d of %d are left\n",
		lost->cell.num, left, PULL_CELLS);
	if (left == 0)
		_exit(1);
}

static void leave_place(struct place *p)
{
	pthread_mutex_lock(&jobs.lock);
	p->busy = false;
	if (p->dead)
		lose(p);
	pthread_cond_broadcast(&jobs.room);
	pthread_mutex_unlock(&jobs.lock);
}

static void leave(const struct job *j)
{
	struct job **p;

	pthread_mutex_lock(&jobs.lock);
	for (p = &jobs.all; *p && *p != j; p = &(*p)->next)
		;
	if (*p)
		*p = j->next;
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
	struct place *p;

	while ((p = take_place(j))) {
		bool ran = false;
		result = work(j, p, &ran, text);
		if (ran || !p->dead)
			break;
		leave_place(p); /* that had ended before: another does it */
		result = PULL_CANCELLED;
	}
	answer(j->req.tag, result, text);
	if (p) {
		proxy_clear(p->cell.num);
		leave_place(p);
	}
	leave(j);
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

void jobs_serve(const struct pull_conf *conf, const struct cell cells[PULL_CELLS])
{
	struct pull_req q;
	ssize_t n;

	jobs.conf = conf;
	for (size_t i = 0; i < PULL_CELLS; i++)
		jobs.places[i].cell = cells[i];
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
