/* SPDX-License-Identifier: MIT */
/* Does inside of a sandbox what it is told over a port, one line a command, fields between tabs, and
 * answers 0 or -errno when the change is made. So a test on the host knows what has happened inside before
 * it looks. Each connection is a process of its own. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIELDS 4
typedef int command(char *const *f);

static int all(int fd, const char *text, size_t len)
{
	while (len) {
		ssize_t n = write(fd, text, len);
		if (n < 0)
			return -errno;
		text += n;
		len -= (size_t)n;
	}
	return 0;
}

static int with(const char *path, int flags, const char *text)
{
	int fd = open(path, flags, 0644), r;

	if (fd < 0)
		return -errno;
	r = all(fd, text, strlen(text));
	return close(fd) < 0 ? -errno : r;
}

static int cmd_write(char *const *f) { return with(f[1], O_WRONLY | O_CREAT | O_TRUNC, f[2]); }
static int cmd_append(char *const *f) { return with(f[1], O_WRONLY | O_CREAT | O_APPEND, f[2]); }
static int cmd_cut(char *const *f) { return truncate(f[1], atol(f[2])) < 0 ? -errno : 0; }
static int cmd_mv(char *const *f) { return rename(f[1], f[2]) < 0 ? -errno : 0; }
static int cmd_rm(char *const *f) { return unlink(f[1]) < 0 ? -errno : 0; }
static int cmd_mkdir(char *const *f) { return mkdir(f[1], 0755) < 0 ? -errno : 0; }
static int cmd_rmdir(char *const *f) { return rmdir(f[1]) < 0 ? -errno : 0; }
static int cmd_chmod(char *const *f) { return chmod(f[1], (mode_t)strtol(f[2], NULL, 8)) < 0 ? -errno : 0; }

static int cmd_put(char *const *f)
{
	int fd = open(f[1], O_WRONLY), r = 0;

	if (fd < 0)
		return -errno;
	if (pwrite(fd, f[3], strlen(f[3]), atol(f[2])) < 0)
		r = -errno;
	close(fd);
	return r;
}

static int cmd_mmap(char *const *f)
{
	int fd = open(f[1], O_RDWR);
	size_t off = (size_t)atol(f[2]), len = strlen(f[3]);
	char *p;

	if (fd < 0)
		return -errno;
	p = mmap(NULL, off + len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	memcpy(p + off, f[3], len);
	munmap(p, off + len);
	close(fd);
	return 0;
}

/* Many files, so that a queue of changes overflows. */
static int cmd_flood(char *const *f)
{
	char path[300];
	int r = 0;

	for (long n = atol(f[2]); n > 0 && r == 0; n--) {
		snprintf(path, sizeof(path), "%s/flood%ld", f[1], n % 512);
		r = with(path, O_WRONLY | O_CREAT | O_TRUNC, f[2]);
	}
	return r;
}

static int held = -1; /* what `lock` has locked */

static int set_lock(const char *how, int fd, bool on, bool wait)
{
	struct flock l = { .l_type = on ? F_WRLCK : F_UNLCK, .l_whence = SEEK_SET };

	if (!strcmp(how, "flock"))
		return flock(fd, (on ? LOCK_EX : LOCK_UN) | (wait ? 0 : LOCK_NB)) < 0 ? -errno : 0;
	return fcntl(fd, wait ? F_SETLKW : F_SETLK, &l) < 0 ? -errno : 0;
}

static int cmd_lock(char *const *f)
{
	int r;

	if (held >= 0)
		close(held);
	held = open(f[2], O_RDWR);
	if (held < 0)
		return -errno;
	r = set_lock(f[1], held, true, false);
	if (r < 0) {
		close(held);
		held = -1;
	}
	return r;
}

static int cmd_unlock(char *const *f)
{
	(void)f;
	if (held >= 0)
		close(held);
	held = -1;
	return 0;
}

/* Adds one to the number in a file, so many times, each under a lock of its own. */
static int cmd_count(char *const *f)
{
	int fd = open(f[2], O_RDWR), r = 0;
	char text[32];

	if (fd < 0)
		return -errno;
	for (long n = atol(f[3]); n > 0 && r == 0; n--) {
		ssize_t len;
		r = set_lock(f[1], fd, true, true);
		len = pread(fd, text, sizeof(text) - 1, 0);
		text[len > 0 ? len : 0] = '\0';
		len = snprintf(text, sizeof(text), "%ld\n", atol(text) + 1);
		if (r == 0 && pwrite(fd, text, (size_t)len, 0) != len)
			r = -EIO;
		if (r == 0)
			r = set_lock(f[1], fd, false, false);
	}
	close(fd);
	return r;
}

static int cmd_lines(char *const *f)
{
	int fd = open(f[1], O_WRONLY | O_CREAT | O_APPEND, 0644), r = fd < 0 ? -errno : 0;
	char text[200];

	for (long i = 0, n = atol(f[3]); i < n && r == 0; i++)
		r = all(fd, text, (size_t)snprintf(text, sizeof(text), "%s %ld %064ld\n", f[2], i, i));
	close(fd);
	return r;
}

/* A name that always is, and always another file. */
static int cmd_replace(char *const *f)
{
	char tmp[300], text[32];
	int r = 0;

	snprintf(tmp, sizeof(tmp), "%s.tmp", f[1]);
	for (long i = 1, n = atol(f[2]); i <= n && r == 0; i++) {
		snprintf(text, sizeof(text), "%ld\n", i);
		r = with(tmp, O_WRONLY | O_CREAT | O_TRUNC, text);
		if (r == 0 && rename(tmp, f[1]) < 0)
			r = -errno;
	}
	return r;
}

static const struct {
	const char *word;
	command *run;
	int fields;
} commands[] = {
	{ "write", cmd_write, 3 }, { "append", cmd_append, 3 }, { "cut", cmd_cut, 3 }, { "mv", cmd_mv, 3 },
	{ "rm", cmd_rm, 2 }, { "mkdir", cmd_mkdir, 2 }, { "rmdir", cmd_rmdir, 2 }, { "chmod", cmd_chmod, 3 },
	{ "put", cmd_put, 4 }, { "mmap", cmd_mmap, 4 }, { "flood", cmd_flood, 3 }, { "lock", cmd_lock, 3 },
	{ "unlock", cmd_unlock, 1 }, { "count", cmd_count, 4 }, { "lines", cmd_lines, 4 },
	{ "replace", cmd_replace, 3 },
};

static int carry_out(char *line)
{
	char *f[FIELDS] = { NULL };
	int n = 0;

	for (char *p = line; p && n < FIELDS; n++)
		f[n] = strsep(&p, "\t");
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(commands[i].word, f[0]) && commands[i].fields == n)
			return commands[i].run(f);
	return -ENOSYS;
}

static void serve(int fd)
{
	FILE *in = fdopen(fd, "r");
	char *line = NULL, answer[16];
	size_t room = 0;
	ssize_t len;

	while (in && (len = getline(&line, &room, in)) > 0) {
		if (line[len - 1] == '\n')
			line[len - 1] = '\0';
		if (all(fd, answer, (size_t)snprintf(answer, sizeof(answer), "%d\n", carry_out(line))) < 0)
			break;
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), c, on = 1;

	a.sin_port = htons((uint16_t)(argc > 1 ? atoi(argv[1]) : 7000));
	signal(SIGCHLD, SIG_IGN);
	(void)setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(s, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(s, 8) < 0)
		return 1;
	while ((c = accept(s, NULL, NULL)) >= 0) {
		if (fork() == 0)
			serve(c);
		close(c);
	}
	return 1;
}
