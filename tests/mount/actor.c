/* SPDX-License-Identifier: MIT */
/* One process that works on the model's file: it carries out what its standard input asks and answers on
 * standard output, each time in one piece. The same program runs beside a mount and inside the guest. */
#include "tests/mount/model.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef FALLOC_FL_KEEP_SIZE
#define FALLOC_FL_KEEP_SIZE 1
#define FALLOC_FL_PUNCH_HOLE 2
#endif
#ifndef FALLOC_FL_ZERO_RANGE
#define FALLOC_FL_ZERO_RANGE 16
#endif
#ifndef SEEK_DATA
#define SEEK_DATA 3
#define SEEK_HOLE 4
#endif
#define PAGE 4096u
#define STEPS 60
#define RECORDS 40

struct actor {
	const char *dir;
	int ro, rw, app;
	unsigned char *map;
	size_t map_len;
	unsigned char *buf; /* FILE_MAX */
	size_t out;         /* so much of it is the answer */
};
static sigjmp_buf out_of_file;

static void on_bus(int sig)
{
	(void)sig;
	siglongjmp(out_of_file, 1);
}

static const char *path_of(const struct actor *a, unsigned name, char path[512])
{
	static const char *const names[] = { "f0", "f1", "storm", "log" };

	snprintf(path, 512, "%s/%s", a->dir, names[name & 3]);
	return path;
}

static int64_t result(int64_t rc)
{
	return rc < 0 ? -errno : rc;
}

static void unmap(struct actor *a)
{
	if (a->map)
		munmap(a->map, a->map_len);
	a->map = NULL;
}

static int64_t do_close(struct actor *a, const struct ask *q)
{
	int fds[] = { a->ro, a->rw, a->app };
	int64_t rc = 0;

	a->ro = a->rw = a->app = -1;
	if (q->flags & UNMAP)
		unmap(a);
	for (size_t n = 0; n < 3; n++)
		if (fds[n] >= 0 && close(fds[n]) < 0)
			rc = -errno;
	return rc;
}

static int64_t do_open(struct actor *a, const struct ask *q)
{
	int64_t rc = do_close(a, q);
	char path[512];

	if (rc == 0)
		a->rw = open(path_of(a, q->name, path), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	/* A page fault of a mapping goes by the size that the kernel knows: it has to be told before. */
	return rc ? rc : result(a->rw < 0 ? -1 : fstat(a->rw, &(struct stat){ .st_size = 0 }));
}

/* Descriptors are opened when they are first needed. */
static int need(struct actor *a, const struct ask *q, int *fd, int flags)
{
	char path[512];

	if (*fd < 0)
		*fd = open(path_of(a, q->name, path), flags | O_CLOEXEC);
	return *fd;
}

/* All of it, however the kernel splits it. */
static int64_t read_all(int fd, unsigned char *p, size_t len, uint64_t off)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, p + done, len - done, (off_t)(off + done));

		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (int64_t)done;
}

static int64_t write_all(int fd, const unsigned char *p, size_t len, uint64_t off, size_t step)
{
	for (size_t done = 0; done < len;) {
		size_t want = len - done < step ? len - done : step;
		ssize_t n = pwrite(fd, p + done, want, (off_t)(off + done));

		if (n <= 0)
			return n < 0 ? -errno : -ENOSPC;
		done += (size_t)n;
	}
	return (int64_t)len;
}

static int64_t do_read(struct actor *a, const struct ask *q)
{
	int fd = q->flags & BY_READER ? need(a, q, &a->ro, O_RDONLY) : need(a, q, &a->rw, O_RDWR);
	int64_t n = fd < 0 ? -errno : read_all(fd, a->buf, q->len, q->off);

	a->out = n > 0 ? (size_t)n : 0;
	return n;
}

/* As cp does: pieces one after the other, so that the mount reads ahead. off2: size of a piece. */
static int64_t do_seqread(struct actor *a, const struct ask *q)
{
	int fd = need(a, q, &a->ro, O_RDONLY);
	size_t done = 0;

	while (fd >= 0 && done < q->len) {
		size_t want = q->len - done < q->off2 ? q->len - done : q->off2;
		ssize_t n = pread(fd, a->buf + done, want, (off_t)(q->off + done));

		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	a->out = done;
	return fd < 0 ? -errno : (int64_t)done;
}

static int64_t do_write(struct actor *a, const struct ask *q)
{
	int fd = need(a, q, &a->rw, O_RDWR);

	fill(a->buf, q->len, q->tag);
	return fd < 0 ? -errno : write_all(fd, a->buf, q->len, q->off, q->len);
}

static int64_t do_seqwrite(struct actor *a, const struct ask *q)
{
	int fd = need(a, q, &a->rw, O_RDWR);

	fill(a->buf, q->len, q->tag);
	return fd < 0 ? -errno : write_all(fd, a->buf, q->len, q->off, q->off2);
}

static int64_t do_append(struct actor *a, const struct ask *q)
{
	int fd = need(a, q, &a->app, O_WRONLY | O_APPEND);

	fill(a->buf, q->len, q->tag);
	return fd < 0 ? -errno : result(write(fd, a->buf, q->len));
}

static bool map(struct actor *a, int fd, uint64_t end)
{
	size_t len = (end + PAGE - 1) & ~(size_t)(PAGE - 1);

	if (a->map && a->map_len >= len)
		return true;
	unmap(a);
	a->map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	a->map_len = len;
	if (a->map == MAP_FAILED)
		a->map = NULL;
	return a->map != NULL;
}

static int64_t by_map(struct actor *a, int fd, const struct ask *q, bool write)
{
	if (fd < 0 || !map(a, fd, q->off + q->len))
		return -errno;
	if (sigsetjmp(out_of_file, 1))
		return -EFAULT;
	if (write) {
		fill(a->map + q->off, q->len, q->tag);
	} else {
		memcpy(a->buf, a->map + q->off, q->len);
		a->out = q->len;
	}
	if (q->flags & UNMAP)
		unmap(a);
	return (int64_t)q->len;
}

static int64_t do_mread(struct actor *a, const struct ask *q)
{
	return by_map(a, need(a, q, &a->rw, O_RDWR), q, false);
}

static int64_t do_mwrite(struct actor *a, const struct ask *q)
{
	return by_map(a, need(a, q, &a->rw, O_RDWR), q, true);
}

static int64_t do_truncate(struct actor *a, const struct ask *q)
{
	int fd = need(a, q, &a->rw, O_RDWR);

	return result(fd < 0 ? -1 : ftruncate(fd, (off_t)q->len));
}

static int64_t do_pathtrunc(struct actor *a, const struct ask *q)
{
	char path[512];

	return result(truncate(path_of(a, q->name, path), (off_t)q->len));
}

static int64_t do_empty(struct actor *a, const struct ask *q)
{
	char path[512];
	int fd = open(path_of(a, q->name, path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	return result(fd < 0 ? -1 : close(fd));
}

static int64_t by_mode(struct actor *a, const struct ask *q, int mode)
{
	int fd = need(a, q, &a->rw, O_RDWR);

	return result(fd < 0 ? -1 : fallocate(fd, mode, (off_t)q->off, (off_t)q->len));
}

static int64_t do_alloc(struct actor *a, const struct ask *q)
{
	return by_mode(a, q, 0);
}

static int64_t do_keep(struct actor *a, const struct ask *q)
{
	return by_mode(a, q, FALLOC_FL_KEEP_SIZE);
}

static int64_t do_punch(struct actor *a, const struct ask *q)
{
	return by_mode(a, q, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
}

static int64_t do_zero(struct actor *a, const struct ask *q)
{
	return by_mode(a, q, FALLOC_FL_ZERO_RANGE);
}

static int64_t do_copy(struct actor *a, const struct ask *q)
{
	off_t from = (off_t)q->off, to = (off_t)q->off2;
	int fd = need(a, q, &a->rw, O_RDWR);
	size_t left = q->len;

	while (fd >= 0 && left) {
		ssize_t n = copy_file_range(fd, &from, fd, &to, left, 0);

		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		left -= (size_t)n;
	}
	return fd < 0 ? -errno : (int64_t)(q->len - left);
}

static int64_t do_size(struct actor *a, const struct ask *q)
{
	int fd = need(a, q, &a->rw, O_RDWR);
	struct stat st;

	return fd < 0 || fstat(fd, &st) < 0 ? -errno : (int64_t)st.st_size;
}

static int64_t do_stat(struct actor *a, const struct ask *q)
{
	char path[512];
	struct stat st;

	return stat(path_of(a, q->name, path), &st) < 0 ? -errno : (int64_t)st.st_size;
}

/* A seek asks the server, and the kernel does not write what a mapping holds before. */
static int64_t seek_to(struct actor *a, const struct ask *q, int whence)
{
	int fd = need(a, q, &a->rw, O_RDWR);

	return result(fd < 0 || fdatasync(fd) < 0 ? -1 : lseek(fd, (off_t)q->off, whence));
}

static int64_t do_data(struct actor *a, const struct ask *q)
{
	return seek_to(a, q, SEEK_DATA);
}

static int64_t do_hole(struct actor *a, const struct ask *q)
{
	return seek_to(a, q, SEEK_HOLE);
}

static int64_t do_sync(struct actor *a, const struct ask *q)
{
	int fd = need(a, q, &a->rw, O_RDWR);

	/* A mapping is synced by the descriptor, too: one file has one set of pages. */
	return result(fd < 0 ? -1 : q->flags & BY_READER ? fdatasync(fd) : fsync(fd));
}

static int64_t do_rename(struct actor *a, const struct ask *q)
{
	char from[512], to[512];

	return result(rename(path_of(a, q->name, from), path_of(a, q->name ^ 1, to)));
}

/* Another file under the name: what is open lives on without one. */
static int64_t do_replace(struct actor *a, const struct ask *q)
{
	char path[512];
	int fd;

	if (unlink(path_of(a, q->name, path)) < 0)
		return -errno;
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	return result(fd < 0 ? -1 : close(fd));
}

static int64_t wrong(struct actor *a, const char *what, const struct step *s, int64_t got)
{
	a->out = (size_t)snprintf((char *)a->buf, FILE_MAX, "%s at %llu, %llu bytes: %lld", what,
		(unsigned long long)s->off, (unsigned long long)s->len, (long long)got);
	return -EILSEQ;
}

/* `mine`: what my zone holds. `*top`: what was written so far reaches to here. */
static int64_t storm_one(struct actor *a, int fd, const struct step *s, unsigned char *mine, uint64_t *top)
{
	unsigned char *want = mine + s->off;
	int64_t n;

	if (s->op == OP_read) {
		if (s->off + s->len > *top)
			return 0;
		n = read_all(fd, a->buf, s->len, s->off);
		if (n != (int64_t)s->len)
			return wrong(a, "short read of what I wrote", s, n);
		for (size_t i = 0; i < s->len; i++)
			if (a->buf[i] != want[i])
				return wrong(a, "not what I wrote", s, (int64_t)i);
		return 0;
	}
	if (!s->len || (s->op == OP_mwrite && s->off + s->len > *top))
		return 0;
	fill(want, s->len, s->tag);
	if (s->op == OP_mwrite) {
		const struct ask q = { .off = s->off, .len = s->len, .tag = s->tag, .flags = UNMAP };

		n = by_map(a, fd, &q, true);
	} else {
		n = write_all(fd, want, s->len, s->off, s->len);
	}
	if (s->op == OP_write && s->off + s->len > *top)
		*top = s->off + s->len;
	return n == (int64_t)s->len ? 0 : wrong(a, "a write failed", s, n);
}

/* Lines of one log from all at once, and each in its own zone of one file. */
static int64_t do_storm(struct actor *a, const struct ask *q)
{
	char line[RECORD], path[512];
	int fd = open(path_of(a, 2, path), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	int log = open(path_of(a, 3, path), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	uint64_t x = q->tag + q->zone, top = q->flags & GROWING ? 0 : UINT64_MAX;
	unsigned char *mine = calloc(ZONES_MAX, ZONE_SIZE);
	int64_t rc = fd < 0 || log < 0 || !mine ? -errno : 0;

	unmap(a);
	for (unsigned n = 0; rc == 0 && n < STEPS; n++) {
		struct step s = storm_step(&x, q->zone);

		rc = storm_one(a, fd, &s, mine, &top);
		if (rc < 0 || n >= RECORDS)
			continue;
		memset(line, '.', RECORD);
		line[snprintf(line, 30, "%u %u ", q->zone, n)] = '.';
		line[RECORD - 1] = '\n';
		if (write(log, line, RECORD) != RECORD)
			rc = wrong(a, "an append failed", &s, -errno);
	}
	unmap(a);
	free(mine);
	if ((fd >= 0 && close(fd) < 0) || (log >= 0 && close(log) < 0))
		rc = rc ? rc : -errno;
	return rc;
}

static int64_t (*const functions[OP_COUNT])(struct actor *a, const struct ask *q) = {
#define X(name, often, changes) [OP_##name] = do_##name,
	OPS(X)
#undef X
};

static bool move(int fd, void *buf, size_t len, bool out)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = out ? write(fd, (char *)buf + done, len - done) :
				  read(fd, (char *)buf + done, len - done);

		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return true;
}

int actor_main(const char *dir)
{
	struct actor a = { .dir = dir, .ro = -1, .rw = -1, .app = -1, .buf = malloc(FILE_MAX) };
	struct sigaction bus = { .sa_handler = on_bus };
	struct ask q;

	if (!a.buf || sigaction(SIGBUS, &bus, NULL) < 0)
		return 1;
	while (move(0, &q, sizeof(q), false)) {
		struct told t;

		a.out = 0;
		t.value = q.op < OP_COUNT && q.len <= FILE_MAX ? functions[q.op](&a, &q) : -EINVAL;
		t.len = a.out;
		if (!move(1, &t, sizeof(t), true) || !move(1, a.buf, t.len, true))
			return 1;
	}
	return 0;
}
