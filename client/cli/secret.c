/* SPDX-License-Identifier: MIT */
/* Secrets that a command needs: from a private file or standard input, never from the command line,
 * which every user of the machine can read. At a terminal they are asked for without an echo. */
#include "client/cli/cli.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#define SECRET_MAX 65536

static int read_all(int fd, const char *shown, char *buf, size_t size)
{
	size_t len = 0;
	ssize_t n;

	while ((n = read(fd, buf + len, size - 1 - len)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return complain(-1, "%s: %s", shown, strerrordesc_np(errno));
		len += (size_t)n;
		if (len == size - 1)
			return complain(-1, "%s: more than %zu bytes", shown, size - 2);
	}
	if (memchr(buf, '\0', len))
		return complain(-1, "%s: text without zero bytes is expected", shown);
	buf[len] = '\0';
	return 0;
}

static volatile sig_atomic_t caught;

static void on_signal(int sig)
{
	caught = sig;
}

static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };

struct held {
	struct sigaction was[ARRAY_LEN(ends)];
	sigset_t old;
};

/* From now on a signal that would end us waits, and is only noted where a line is waited for. */
static void hold_ends(struct held *h)
{
	struct sigaction sa = { .sa_handler = on_signal };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_LEN(ends); i++)
		sigaddset(&set, ends[i]);
	sigprocmask(SIG_BLOCK, &set, &h->old);
	for (size_t i = 0; i < ARRAY_LEN(ends); i++)
		if (sigaction(ends[i], NULL, &h->was[i]) == 0 && h->was[i].sa_handler != SIG_IGN)
			sigaction(ends[i], &sa, NULL);
}

static void let_ends(const struct held *h)
{
	for (size_t i = 0; i < ARRAY_LEN(ends); i++)
		sigaction(ends[i], &h->was[i], NULL);
	sigprocmask(SIG_SETMASK, &h->old, NULL);
	if (caught)
		raise(caught);
}

/* A line, or -1 when a signal came. */
static ssize_t read_line(const struct held *h, char *buf, size_t max)
{
	struct pollfd f = { STDIN_FILENO, POLLIN, 0 };

	while (!caught && ppoll(&f, 1, NULL, &h->old) < 0 && errno == EINTR)
		;
	return caught ? -1 : read(STDIN_FILENO, buf, max);
}

/* Whatever ends us, the terminal has its echo back before. */
static int ask_terminal(const char *prompt, char *buf, size_t size)
{
	struct termios old, quiet;
	struct held h;
	ssize_t n;
	int error;

	if (tcgetattr(STDIN_FILENO, &old) < 0)
		return complain(-1, "the terminal: %s", strerrordesc_np(errno));
	quiet = old;
	quiet.c_lflag &= ~(tcflag_t)ECHO;
	fprintf(stderr, "%s: ", prompt);
	hold_ends(&h);
	tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
	n = read_line(&h, buf, size - 1);
	error = errno;
	tcsetattr(STDIN_FILENO, TCSAFLUSH, &old);
	fputc('\n', stderr);
	let_ends(&h);
	if (n < 0)
		return complain(-1, "the terminal: %s", strerrordesc_np(error));
	buf[n] = '\0';
	return 0;
}

static int read_file(const char *path, char *buf, size_t size)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return complain(-1, "%s: %s", path, strerrordesc_np(errno));
	if (S_ISREG(st.st_mode) && (st.st_mode & 077))
		return complain(-1, "%s can be read by others; chmod 600 it", path);
	return read_all(fd, path, buf, size);
}

char *secret_read(const char *path, const char *what)
{
	_cleanup_free_ char *buf = malloc(SECRET_MAX);
	bool in = !path || !strcmp(path, "-");
	int r;

	if (!buf) {
		complain(-1, "out of memory");
		return NULL;
	}
	if (in && isatty(STDIN_FILENO))
		r = ask_terminal(what, buf, SECRET_MAX);
	else
		r = in ? read_all(STDIN_FILENO, "standard input", buf, SECRET_MAX)
		       : read_file(path, buf, SECRET_MAX);
	if (r < 0)
		return NULL;
	size_t len = strlen(buf);
	if (len && buf[len - 1] == '\n')
		buf[len - 1] = '\0';
	return steal(buf);
}

void secret_free(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}
