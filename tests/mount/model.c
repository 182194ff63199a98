/* SPDX-License-Identifier: MIT */
/* A file under random operations of several processes, held against an array of bytes. Each process is an
 * actor on a side: one mount, another mount, the guest itself. Within a side everything must be seen at
 * once; between two sides after the writer closed or synced and the reader opened anew. In between all
 * actors work at the same time, each in its own zone of one file, and append to one log.
 *
 * model [-s SEED] [-n OPS] [-t SECONDS] [-l LOG] SIDE=COMMAND... ; model actor DIR
 * COMMAND runs `model actor DIR` where the side is. The first mismatch ends it with 1, and with the seed
 * and what was done in LOG. */
#include "tests/mount/model.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ACTORS_MAX 8
#define ANSWER_MS 120000
/* A server passes on 8 MiB of one process's output; the longest answer (5 MB) has to fit in after this. */
#define TOLD_MAX (3u << 20)
#define SHOWN 40 /* operations that are printed; the log has all */
#define STEPS 60
#define RECORDS 40

static const char *const names[] = {
#define X(name, often, changes) #name,
	OPS(X)
#undef X
};
static const bool changes[] = {
#define X(name, often, changes) changes,
	OPS(X)
#undef X
};
static const unsigned often[] = {
#define X(name, often, changes) often,
	OPS(X)
#undef X
};

struct actor {
	const char *side, *cmd;
	uint64_t told; /* bytes of its answers */
	pid_t pid;
	int to, from;
	bool dirty; /* may hold what its side has and others cannot see */
	bool stale; /* another side changed the file since this one opened it */
	bool storms; /* takes part in the present storm */
};
static struct {
	struct actor actors[ACTORS_MAX];
	unsigned nactors;
	bool lacks[OP_COUNT]; /* not to be had here */
	unsigned char *bytes, *got;
	uint64_t size, most;
	unsigned name;
	uint64_t seed, x;
	const char *log_path;
	FILE *log;
	unsigned long done;
} m;

__attribute__((noreturn)) static void quit(int code)
{
	for (unsigned n = 0; n < m.nactors; n++) {
		close(m.actors[n].to);
		close(m.actors[n].from);
	}
	for (unsigned n = 0; n < m.nactors; n++) {
		kill(-m.actors[n].pid, SIGKILL);
		waitpid(m.actors[n].pid, NULL, 0);
	}
	exit(code);
}

static void show_log(void)
{
	char line[256];
	unsigned long lines = 0, at = 0;

	fflush(m.log);
	rewind(m.log);
	while (fgets(line, sizeof(line), m.log))
		lines++;
	rewind(m.log);
	while (fgets(line, sizeof(line), m.log))
		if (at++ + SHOWN >= lines)
			printf("    %s", line);
}

__attribute__((format(printf, 1, 2), noreturn)) static void mismatch(const char *fmt, ...)
{
	va_list ap;

	printf("model: MISMATCH after %lu operations, SEED=%llu: ", m.done, (unsigned long long)m.seed);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\nmodel: the last operations (all: %s):\n", m.log_path);
	show_log();
	quit(1);
}

static uint64_t below(uint64_t n)
{
	return n ? next_random(&m.x) % n : 0;
}

static void move(struct actor *a, void *buf, size_t len, bool out)
{
	struct pollfd p = { .fd = out ? a->to : a->from, .events = out ? POLLOUT : POLLIN };

	for (size_t done = 0; done < len;) {
		ssize_t n;

		if (poll(&p, 1, ANSWER_MS) <= 0)
			mismatch("actor %ld (%s) does not answer", (long)(a - m.actors), a->side);
		n = out ? write(p.fd, (char *)buf + done, len - done) :
			  read(p.fd, (char *)buf + done, len - done);
		if (n <= 0)
			mismatch("actor %ld (%s) is gone", (long)(a - m.actors), a->side);
		done += (size_t)n;
	}
}

static void say(struct actor *a, struct ask *q)
{
	fprintf(m.log, "%lu %ld %s %s off=%llu len=%llu off2=%llu flags=%u name=%u size=%llu\n", m.done,
		(long)(a - m.actors), a->side, names[q->op], (unsigned long long)q->off,
		(unsigned long long)q->len, (unsigned long long)q->off2, q->flags, q->name,
		(unsigned long long)m.size);
	move(a, q, sizeof(*q), true);
}

static int64_t hear(struct actor *a, size_t *ret_len)
{
	struct told t;

	move(a, &t, sizeof(t), false);
	if (t.len > FILE_MAX)
		mismatch("actor %ld (%s) speaks nonsense", (long)(a - m.actors), a->side);
	move(a, m.got, t.len, false);
	a->told += t.len;
	*ret_len = t.len;
	return t.value;
}

static int64_t ask(struct actor *a, struct ask *q, size_t *ret_len)
{
	say(a, q);
	return hear(a, ret_len);
}

/* What must simply succeed. */
static void must(struct actor *a, struct ask q)
{
	size_t len;
	int64_t rc = ask(a, &q, &len);

	if (rc < 0)
		mismatch("%s by %s failed: %s", names[q.op], a->side, strerror((int)-rc));
}

static bool same_side(const struct actor *a, const struct actor *b)
{
	return !strcmp(a->side, b->side);
}

/* What others hold goes out, then `a` opens anew: one open is enough for its whole side. */
static void catch_up(struct actor *a)
{
	unsigned drop = below(2) ? UNMAP : 0;

	if (!a->stale)
		return;
	for (unsigned n = 0; n < m.nactors; n++) {
		struct actor *o = &m.actors[n];

		if (!o->dirty || same_side(a, o))
			continue;
		if (below(2))
			must(o, (struct ask){ .op = OP_close, .flags = below(2) ? UNMAP : 0, .name = m.name });
		else
			must(o, (struct ask){ .op = OP_sync, .name = m.name, .flags = 0 });
		o->dirty = false;
	}
	must(a, (struct ask){ .op = OP_open, .name = m.name, .flags = drop });
	for (unsigned n = 0; n < m.nactors; n++)
		if (same_side(a, &m.actors[n]))
			m.actors[n].stale = false;
}

static void changed(struct actor *a)
{
	a->dirty = true;
	for (unsigned n = 0; n < m.nactors; n++)
		if (!same_side(a, &m.actors[n]))
			m.actors[n].stale = true;
}

static void compare(const struct actor *a, const struct ask *q, size_t len)
{
	uint64_t want = q->off >= m.size ? 0 : m.size - q->off < q->len ? m.size - q->off : q->len;
	size_t i = 0;

	if (len != want)
		mismatch("%s by %s gave %zu bytes, not %llu", names[q->op], a->side, len,
			(unsigned long long)want);
	while (i < len && m.got[i] == m.bytes[q->off + i])
		i++;
	if (i < len)
		mismatch("%s by %s: byte %llu is %02x, not %02x", names[q->op], a->side,
			(unsigned long long)(q->off + i), m.got[i], m.bytes[q->off + i]);
}

static void resize(uint64_t size)
{
	if (size < m.size)
		memset(m.bytes + size, 0, m.size - size);
	m.size = size;
}

static void put(uint64_t off, uint64_t len, uint64_t tag)
{
	fill(m.bytes + off, len, tag);
	if (off + len > m.size)
		m.size = off + len;
}

/* Near the borders of pages more often than anywhere else. */
static uint64_t place(uint64_t limit)
{
	uint64_t at = below(limit + 1), page = at & ~4095ull;

	switch (below(4)) {
	case 0: return page;
	case 1: return page + below(3) <= limit ? page + below(3) % (limit - page + 1) : page;
	case 2: return page ? page - 1 : page;
	default: return at;
	}
}

static uint64_t length(uint64_t room)
{
	static const unsigned most[] = { 16, 300, 4096, 4096, 9000, 70000 };
	uint64_t n = 1 + below(below(40) ? most[below(6)] : m.most);

	return n < room ? n : room;
}

/* Chooses where, or gives false: that operation makes no sense now. */
static bool choose(struct ask *q)
{
	bool inside = q->op == OP_mread || q->op == OP_mwrite || q->op == OP_copy;
	uint64_t limit = inside || below(3) ? m.size : m.most - 1;

	q->tag = next_random(&m.x) | 1;
	q->name = m.name;
	q->flags = (below(2) ? BY_READER : 0) | (below(2) ? UNMAP : 0);
	q->off = place(limit);
	q->len = length((inside ? m.size : m.most) - q->off);
	switch (q->op) {
	case OP_seqread:
	case OP_seqwrite:
		q->off2 = 1 + below(below(2) ? 20000 : 200000);
		q->len = length(m.most - q->off) * 4;
		if (q->len > m.most - q->off)
			q->len = m.most - q->off;
		if (q->len / q->off2 > 400)
			q->off2 = q->len / 400 + 1;
		return q->len > 0;
	case OP_append:
		q->off = m.size;
		q->len = length(m.most - m.size);
		return q->len > 0;
	case OP_truncate:
	case OP_pathtrunc: q->len = place(below(2) ? m.size : m.most); return true;
	case OP_copy:
		q->off2 = place(m.most - q->len);
		return q->len > 0 && (q->off + q->len <= q->off2 || q->off2 + q->len <= q->off);
	case OP_data:
	case OP_hole: return m.size > 0;
	case OP_replace: return below(4) == 0;
	default: return q->len > 0;
	}
}

static void check_seek(const struct actor *a, const struct ask *q, int64_t rc)
{
	uint64_t end = rc < 0 ? m.size : (uint64_t)rc;

	if (rc == -ENXIO ? q->op == OP_hole && q->off < m.size : rc < 0)
		mismatch("seek by %s: %s", a->side, strerror((int)-rc));
	if (rc >= 0 && (end < q->off || end > m.size))
		mismatch("seek by %s leads to %lld", a->side, (long long)rc);
	for (uint64_t i = q->off; q->op == OP_data && i < end; i++)
		if (m.bytes[i])
			mismatch("seek by %s leaps over data at %llu", a->side, (unsigned long long)i);
}

/* The file as it has to be after it; -EOPNOTSUPP: it is not to be had, and not asked for again. */
static void apply(struct actor *a, const struct ask *q, int64_t rc, size_t len)
{
	uint64_t end = q->off + q->len;

	switch (q->op) {
	case OP_read:
	case OP_mread:
	case OP_seqread: compare(a, q, len); return;
	case OP_write:
	case OP_append:
	case OP_mwrite:
	case OP_seqwrite:
		if (rc != (int64_t)q->len)
			mismatch("%s by %s wrote %lld", names[q->op], a->side, (long long)rc);
		put(q->off, q->len, q->tag);
		return;
	case OP_truncate:
	case OP_pathtrunc: resize(q->len); return;
	case OP_empty:
	case OP_replace: resize(0); return;
	case OP_alloc:
		if (end > m.size)
			resize(end);
		return;
	case OP_zero:
		if (end > m.size)
			resize(end);
		memset(m.bytes + q->off, 0, q->len);
		return;
	case OP_punch:
		if (q->off < m.size)
			memset(m.bytes + q->off, 0, end > m.size ? m.size - q->off : q->len);
		return;
	case OP_copy:
		if (rc != (int64_t)q->len)
			mismatch("copy by %s: %lld of %llu", a->side, (long long)rc,
				(unsigned long long)q->len);
		memcpy(m.bytes + q->off2, m.bytes + q->off, q->len);
		if (q->off2 + q->len > m.size)
			m.size = q->off2 + q->len;
		return;
	case OP_size:
	case OP_stat:
		if (rc != (int64_t)m.size)
			mismatch("%s by %s is %lld, not %llu", names[q->op], a->side, (long long)rc,
				(unsigned long long)m.size);
		return;
	case OP_rename: m.name ^= 1; return;
	default: return;
	}
}

static enum op any_op(void)
{
	unsigned sum = 0, n;

	for (n = 0; n < OP_COUNT; n++)
		sum += often[n];
	sum = (unsigned)below(sum);
	for (n = 0; sum >= often[n]; n++)
		sum -= often[n];
	return (enum op)n;
}

static void turn(void)
{
	struct actor *a = &m.actors[below(m.nactors)];
	struct ask q = { .op = any_op() };
	size_t len;
	int64_t rc;

	if (m.lacks[q.op] || !choose(&q))
		return;
	catch_up(a);
	rc = ask(a, &q, &len);
	m.done++;
	if (rc == -EOPNOTSUPP && (q.op == OP_alloc || q.op == OP_keep || q.op == OP_punch || q.op == OP_zero)) {
		m.lacks[q.op] = true;
		fprintf(m.log, "%s is not supported\n", names[q.op]);
		return;
	}
	if (q.op == OP_data || q.op == OP_hole) {
		check_seek(a, &q, rc);
		return;
	}
	if (rc < 0)
		mismatch("%s by %s failed: %s", names[q.op], a->side, strerror((int)-rc));
	apply(a, &q, rc, len);
	if (changes[q.op])
		changed(a);
	if (q.op == OP_replace) /* nobody goes on with the old one, not even by a mapping */
		for (unsigned n = 0; n < m.nactors; n++)
			must(&m.actors[n], (struct ask){ .op = OP_open, .name = m.name, .flags = UNMAP });
}

/* What the actors did at once, from the same numbers. */
static uint64_t storm_result(uint64_t tag, bool growing, unsigned char *bytes)
{
	uint64_t size = growing ? 0 : (uint64_t)ZONE_SIZE * m.nactors;

	memset(bytes, 0, (size_t)ZONE_SIZE * m.nactors);
	for (unsigned zone = 0; zone < m.nactors; zone++) {
		uint64_t x = tag + zone, top = growing ? 0 : UINT64_MAX;

		for (unsigned n = 0; m.actors[zone].storms && n < STEPS; n++) {
			struct step s = storm_step(&x, zone);

			if (s.op == OP_read || !s.len || (s.op == OP_mwrite && s.off + s.len > top))
				continue;
			fill(bytes + s.off, s.len, s.tag);
			if (s.op == OP_write && s.off + s.len > top)
				top = s.off + s.len;
			if (growing && s.off + s.len > size)
				size = s.off + s.len;
		}
	}
	return size;
}

/* One of each side. Two on one mount would meet a rule of the kernel: while the write of one is under way,
 * the attributes that the other asked for drop the page, and what is then read into it is older than the
 * write (doc/limits.md). */
static unsigned choose_storming(void)
{
	unsigned first = (unsigned)below(m.nactors), sum = 0;

	for (unsigned n = 0; n < m.nactors; n++)
		m.actors[n].storms = false;
	for (unsigned n = 0; n < m.nactors; n++) {
		struct actor *a = &m.actors[(first + n) % m.nactors];

		a->storms = true;
		for (unsigned o = 0; o < m.nactors; o++)
			if (&m.actors[o] != a && m.actors[o].storms && same_side(a, &m.actors[o]))
				a->storms = false;
		sum += a->storms;
	}
	return sum;
}

static void check_log(const struct actor *a, size_t len, unsigned storming)
{
	unsigned next[ACTORS_MAX] = { 0 }, zone, n;

	if (len != (size_t)storming * RECORDS * RECORD)
		mismatch("the log of all is %zu bytes long for %s", len, a->side);
	for (size_t at = 0; at < len; at += RECORD) {
		char line[RECORD];

		memcpy(line, m.got + at, RECORD);
		line[RECORD - 1] = '\0';
		if (m.got[at + RECORD - 1] != '\n' || sscanf(line, "%u %u ", &zone, &n) != 2 ||
			zone >= m.nactors || n != next[zone]++)
			mismatch("line %zu of the log of all for %s: %s", at / RECORD, a->side, line);
	}
}

static void check_storm(struct actor *a, uint64_t size, unsigned storming)
{
	unsigned char *want = m.bytes;
	uint64_t was = m.size;
	struct ask q = { .op = OP_open, .name = 2, .flags = UNMAP };
	size_t len;

	must(a, q);
	q = (struct ask){ .op = OP_read, .name = 2, .len = FILE_MAX };
	(void)ask(a, &q, &len);
	m.bytes = want + FILE_MAX;
	m.size = size;
	compare(a, &q, len);
	m.bytes = want;
	m.size = was;
	must(a, (struct ask){ .op = OP_open, .name = 3, .flags = UNMAP });
	q.name = 3;
	(void)ask(a, &q, &len);
	check_log(a, len, storming);
	must(a, (struct ask){ .op = OP_open, .name = m.name, .flags = UNMAP });
}

static void storm(void)
{
	unsigned storming = choose_storming();
	struct ask q = { .op = OP_storm, .tag = next_random(&m.x), .flags = below(2) ? GROWING : 0 };
	uint64_t size = storm_result(q.tag, q.flags & GROWING, m.bytes + FILE_MAX);
	struct actor *first = &m.actors[below(m.nactors)];

	/* Opening brings every side up to date with the other file first. */
	for (unsigned n = 0; n < m.nactors; n++)
		catch_up(&m.actors[n]);
	for (unsigned name = 2; name < 4; name++)
		must(first, (struct ask){ .op = OP_empty, .name = name });
	if (!(q.flags & GROWING))
		must(first, (struct ask){ .op = OP_pathtrunc, .name = 2, .len = size });
	for (unsigned n = 0; n < m.nactors; n++) {
		q.zone = n;
		if (m.actors[n].storms)
			say(&m.actors[n], &q);
	}
	for (unsigned n = 0; n < m.nactors; n++) {
		size_t len = 0;
		int64_t rc = m.actors[n].storms ? hear(&m.actors[n], &len) : 0;

		if (rc < 0)
			mismatch("all at once, %s: %.*s (%s)", m.actors[n].side, (int)len, (char *)m.got,
				strerror((int)-rc));
	}
	for (unsigned n = 0; n < m.nactors; n++)
		check_storm(&m.actors[n], size, storming);
	m.done++;
}

static void launch(struct actor *a)
{
	int to[2], from[2];

	if (pipe(to) < 0 || pipe(from) < 0)
		exit(2);
	a->told = 0;
	a->pid = fork();
	if (a->pid == 0) {
		setpgid(0, 0);
		dup2(to[0], 0);
		dup2(from[1], 1);
		for (int fd = 3; fd < 256; fd++)
			close(fd);
		execl("/bin/sh", "sh", "-c", a->cmd, (char *)NULL);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	a->to = to[1];
	a->from = from[0];
}

/* Another process takes its place. */
static void relaunch(struct actor *a)
{
	must(a, (struct ask){ .op = OP_close, .name = m.name, .flags = UNMAP });
	close(a->to);
	close(a->from);
	waitpid(a->pid, NULL, 0);
	launch(a);
}

static void start(const char *word)
{
	struct actor *a = &m.actors[m.nactors];
	const char *eq = strchr(word, '=');

	if (!eq)
		exit(2);
	a->side = strndup(word, (size_t)(eq - word));
	a->cmd = eq + 1;
	launch(a);
	m.nactors++;
}

static int usage(void)
{
	fputs("usage: model [-s SEED] [-n OPS] [-t SECONDS] [-l LOG] SIDE=COMMAND...\n", stderr);
	return 2;
}

int main(int argc, char **argv)
{
	static const uint64_t mosts[] = { 20000, 130000, 300000, 300000, 5000000 };
	unsigned long ops = 0;
	time_t until = 0, now = time(NULL);
	int opt;

	if (argc == 3 && !strcmp(argv[1], "actor"))
		return actor_main(argv[2]);
	m.log_path = "/dev/null";
	m.seed = (uint64_t)now * 1000 + (uint64_t)getpid() % 1000;
	while ((opt = getopt(argc, argv, "s:n:t:l:")) > 0) {
		if (opt == 's')
			m.seed = strtoull(optarg, NULL, 10);
		else if (opt == 'n')
			ops = strtoul(optarg, NULL, 10);
		else if (opt == 't')
			until = now + strtol(optarg, NULL, 10);
		else if (opt == 'l')
			m.log_path = optarg;
		else
			return usage();
	}
	m.bytes = calloc(2, FILE_MAX);
	m.got = malloc(FILE_MAX + 1);
	m.log = fopen(m.log_path, "w+");
	if (optind == argc || argc - optind > ACTORS_MAX || (!ops && !until) || !m.bytes || !m.got || !m.log)
		return usage();
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdout, NULL, _IOLBF, 0);
	m.x = m.seed;
	m.most = mosts[below(5)];
	printf("model: SEED=%llu, %d actors, a file of up to %llu bytes\n", (unsigned long long)m.seed,
		argc - optind, (unsigned long long)m.most);
	while (optind < argc)
		start(argv[optind++]);
	must(&m.actors[0], (struct ask){ .op = OP_empty });
	must(&m.actors[0], (struct ask){ .op = OP_open });
	for (unsigned n = 1; n < m.nactors; n++)
		m.actors[n].stale = !same_side(&m.actors[0], &m.actors[n]);
	/* Turns that make no sense do not count, so that there is always an end by time as well. */
	while (until ? time(NULL) < until : m.done < ops) {
		for (unsigned n = 0; n < m.nactors; n++)
			if (m.actors[n].told > TOLD_MAX)
				relaunch(&m.actors[n]);
		if (below(250) == 0)
			storm();
		else
			turn();
	}
	printf("model: %lu operations, all as they should be\n", m.done);
	quit(0);
}
