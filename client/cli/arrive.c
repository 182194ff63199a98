/* SPDX-License-Identifier: MIT */
/* A file that comes out of a sandbox: it takes its name here when it is whole, and what was there
 * before stays until then, whether the sandbox has no such file, the server goes away or a signal
 * ends us. */
#include "client/cli/cmds.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

/* What a signal has to take away. The name is set before the folder. */
static char half_name[64];
static volatile sig_atomic_t half_dir, has_half;

static void on_signal(int sig)
{
	if (has_half)
		unlinkat(half_dir, half_name, 0);
	raise(sig); /* for good: SA_RESETHAND */
}

/* What our parent has us ignore stays ignored. */
static void watch_signals(void)
{
	static const int all[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
	static bool done;
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESETHAND }, was;

	for (size_t i = 0; !done && i < ARRAY_LEN(all); i++)
		if (sigaction(all[i], NULL, &was) == 0 && was.sa_handler == SIG_DFL)
			sigaction(all[i], &sa, NULL);
	done = true;
}

static int local_error(const char *what)
{
	return complain(1, "%s: %s", what, strerrordesc_np(errno));
}

static int begin_half(int dir)
{
	watch_signals();
	has_half = false;
	(void)snprintf(half_name, sizeof(half_name), ".sbx-cp-%d", (int)getpid());
	half_dir = dir;
	unlinkat(dir, half_name, 0);
	has_half = true;
	return openat(dir, half_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

static int end_half(int dir, const char *name)
{
	if (name && renameat(dir, half_name, dir, name) == 0) {
		has_half = false;
		return 0;
	}
	if (name)
		local_error(name);
	unlinkat(dir, half_name, 0);
	has_half = false;
	return 1;
}

/* A new file has the guest's execute bits alone, under our own umask; one that is replaced keeps its
 * mode and owner, as with cp(1). */
static void set_rights(int fd, int dir, const char *name, int mode)
{
	struct stat st, old;

	if (fstatat(dir, name, &old, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(old.st_mode)) {
		if (old.st_uid != geteuid() || old.st_gid != getegid())
			(void)!fchown(fd, old.st_uid, old.st_gid);
		(void)fchmod(fd, old.st_mode & 0777);
	}
	if (mode >= 0 && (mode & 0111) && fstat(fd, &st) == 0)
		(void)fchmod(fd, (st.st_mode & 0777) | ((st.st_mode & 0444) >> 2 & (mode_t)mode));
}

int close_whole(int *fd)
{
	return close(steal_fd(fd)) < 0 && errno != EINTR ? -1 : 0;
}

int fetch_file(
	struct cli *c, const char *ref, const char *path, int dir, const char *name, int mode)
{
	_cleanup_close_ int fd = begin_half(dir);
	struct sbx_error e;

	if (fd < 0) {
		has_half = false;
		return local_error(name);
	}
	set_rights(fd, dir, name, mode);
	if (file_download(c, ref, path, fd, &e) < 0) {
		end_half(dir, NULL);
		return fail(&e);
	}
	if (close_whole(&fd) < 0) {
		local_error(name);
		return end_half(dir, NULL);
	}
	return end_half(dir, name);
}

int fetch_out(struct cli *c, const char *ref, const char *path, int fd)
{
	struct sbx_error e;

	if (file_download(c, ref, path, fd, &e) == 0)
		return 0;
	/* Ours, not the server's: whoever read went away and has what it wanted. */
	return e.status == 0 && e.sys == EPIPE ? 128 + SIGPIPE : fail(&e);
}

/* A device or a pipe is written to; nothing takes its place. */
static int fetch_into(struct cli *c, const char *ref, const char *path, const char *local)
{
	_cleanup_close_ int fd = open(local, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	int code = fd < 0 ? local_error(local) : fetch_out(c, ref, path, fd);

	return fd >= 0 && close_whole(&fd) < 0 && code == 0 ? local_error(local) : code;
}

int fetch_to(struct cli *c, const char *ref, const char *path, const char *local, int mode)
{
	_cleanup_free_ char *real = NULL, *folder = NULL;
	_cleanup_close_ int dir = -1;
	const char *slash;
	struct stat st;

	if (stat(local, &st) == 0) {
		if (!S_ISREG(st.st_mode))
			return fetch_into(c, ref, path, local);
		/* The user's own link leads to the file that is meant. */
		real = realpath(local, NULL);
		local = real ? real : local;
	}
	slash = strrchr(local, '/');
	folder = slash ? strndup(local, (size_t)(slash - local + 1)) : strdup(".");
	if (!folder)
		return complain(1, "out of memory");
	dir = open(folder, O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return local_error(folder);
	return fetch_file(c, ref, path, dir, slash ? slash + 1 : local, mode);
}
