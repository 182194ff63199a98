/* SPDX-License-Identifier: MIT */
/* posix NATIVE MOUNT KNOWN: runs all rows in both directories and prints where they differ. A difference
 * that KNOWN names, with its reason, is not one of ours; every other one ends it with 1. Lines of KNOWN:
 * row, TAB, beginning of the expression, TAB, what the mount gives, TAB, reason. `posix -p DIR` prints. */
#include "tests/mount/posix.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOTES_MAX 4000
#define KNOWN_MAX 200

struct noted {
	const char *row, *what;
	char got[32];
};
struct sheet {
	struct noted v[NOTES_MAX];
	size_t n;
};
struct known {
	char *row, *what, *got;
	unsigned seen;
};
static struct sheet sheets[2], *sheet;
static const char *row_name;

void note(const char *what, long long rc, bool number)
{
	struct noted *n = &sheet->v[sheet->n];
	const char *err = rc == -1 ? strerrorname_np(errno) : NULL;

	if (sheet->n + 1 < NOTES_MAX)
		sheet->n++;
	n->row = row_name;
	n->what = what;
	if (rc == -1)
		(void)snprintf(n->got, sizeof(n->got), "%s", err ? err : "?");
	else if (number)
		(void)snprintf(n->got, sizeof(n->got), "%lld", rc);
	else
		(void)snprintf(n->got, sizeof(n->got), "ok");
}

int opened(const char *path, int flags, mode_t mode)
{
	int fd = open(path, flags | O_CLOEXEC, mode);

	return fd < 0 ? -1 : close(fd);
}

int made(const char *path)
{
	return opened(path, O_CREAT | O_WRONLY | O_EXCL, 0644);
}

int holds(const char *path, const char *text)
{
	int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		return -1;
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
		close(fd);
		return -1;
	}
	return close(fd);
}

int text_is(const char *path, const char *text)
{
	char buf[256];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf));

	if (fd >= 0)
		close(fd);
	return n < 0 ? -1 : (size_t)n == strlen(text) && !memcmp(buf, text, (size_t)n);
}

long long size_of(const char *path)
{
	struct stat st;

	return lstat(path, &st) < 0 ? -1 : (long long)st.st_size;
}

mode_t mode_of(const char *path)
{
	struct stat st;

	return stat(path, &st) < 0 ? (mode_t)-1 : st.st_mode & 07777;
}

long long links_of(const char *path)
{
	struct stat st;

	return lstat(path, &st) < 0 ? -1 : (long long)st.st_nlink;
}

int kind_of(const char *path)
{
	struct stat st;

	return lstat(path, &st) < 0 ? -1 : (int)((st.st_mode & S_IFMT) >> 12);
}

const char *name_of(size_t n)
{
	static char names[4][5000];
	static unsigned turn;
	char *s = names[turn++ % 4];

	memset(s, 'n', n);
	s[n] = '\0';
	return s;
}

void tick(void)
{
	const struct timespec pause = { .tv_nsec = 4000000 };
	struct timespec from, now;

	clock_gettime(CLOCK_REALTIME_COARSE, &from);
	do {
		nanosleep(&pause, NULL);
		clock_gettime(CLOCK_REALTIME_COARSE, &now);
	} while ((now.tv_sec - from.tv_sec) * 1000000000ll + now.tv_nsec - from.tv_nsec < 11000000);
}

int elsewhere(int (*fn)(void))
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		int rc = fn();

		_exit(rc < 0 ? 128 + (errno & 127) : rc);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return -1;
	if (!WIFEXITED(status)) {
		errno = ECHILD;
		return -1;
	}
	if (WEXITSTATUS(status) < 128)
		return WEXITSTATUS(status);
	errno = WEXITSTATUS(status) - 128;
	return -1;
}

static void run_row(const struct row *r, const char *dir)
{
	char sub[300];

	(void)snprintf(sub, sizeof(sub), "%s/%s", dir, r->name);
	row_name = r->name;
	umask(022);
	if (mkdir(sub, 0755) < 0 || chdir(sub) < 0)
		note("the row's directory", -1, false);
	else
		r->run();
	if (chdir("/") < 0)
		abort();
	for (int fd = 3; fd < 100; fd++)
		close(fd);
}

static void run_rows(const char *dir, struct sheet *into)
{
	static const struct row *const all[] = { rows_names, rows_attrs, rows_io, rows_more,
		rows_paths, rows_rules };

	sheet = into;
	for (size_t n = 0; n < sizeof(all) / sizeof(all[0]); n++)
		for (const struct row *r = all[n]; r->name; r++)
			run_row(r, dir);
}

static size_t read_known(const char *path, struct known *ret)
{
	char line[1024];
	FILE *f = fopen(path, "re");
	size_t n = 0;

	while (f && n < KNOWN_MAX && fgets(line, sizeof(line), f)) {
		char *save = NULL, *row = line[0] == '#' ? NULL : strtok_r(line, "\t\n", &save);
		char *what = row ? strtok_r(NULL, "\t\n", &save) : NULL;
		char *got = what ? strtok_r(NULL, "\t\n", &save) : NULL;

		if (got)
			ret[n++] = (struct known){ strdup(row), strdup(what), strdup(got), 0 };
	}
	if (f)
		fclose(f);
	return n;
}

static bool is_known(struct known *k, size_t n, const struct noted *a)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(k[i].row, a->row) &&
			(!strcmp(k[i].what, "*") || !strncmp(k[i].what, a->what, strlen(k[i].what))) &&
			(!strcmp(k[i].got, a->got) || !strcmp(k[i].got, "*"))) {
			k[i].seen++;
			return true;
		}
	return false;
}

static int compare(struct known *k, size_t nk)
{
	const struct sheet *a = &sheets[0], *b = &sheets[1];
	unsigned bad = 0, listed = 0;

	if (a->n != b->n)
		printf("native noted %zu results, the mount %zu\n", a->n, b->n);
	for (size_t n = 0; n < a->n && n < b->n; n++) {
		if (!strcmp(a->v[n].got, b->v[n].got))
			continue;
		if (is_known(k, nk, &b->v[n])) {
			listed++;
			continue;
		}
		bad++;
		printf("%s\t%s\tnative %s, mount %s\n", b->v[n].row, b->v[n].what, a->v[n].got, b->v[n].got);
	}
	for (size_t n = 0; n < nk; n++)
		if (!k[n].seen)
			printf("note: not different here: %s\t%s\n", k[n].row, k[n].what);
	printf("posix: %zu results, %u differ as doc/limits.md says, %u otherwise\n", a->n, listed, bad);
	return bad || a->n != b->n;
}

int main(int argc, char **argv)
{
	static struct known known[KNOWN_MAX];

	signal(SIGXFSZ, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	if (argc == 3 && !strcmp(argv[1], "-p")) {
		run_rows(argv[2], &sheets[0]);
		for (size_t n = 0; n < sheets[0].n; n++)
			printf("%s\t%s\t%s\n", sheets[0].v[n].row, sheets[0].v[n].what, sheets[0].v[n].got);
		return 0;
	}
	if (argc != 4) {
		fputs("usage: posix NATIVE MOUNT KNOWN\n", stderr);
		return 2;
	}
	run_rows(argv[1], &sheets[0]);
	run_rows(argv[2], &sheets[1]);
	return compare(known, read_known(argv[3], known));
}
