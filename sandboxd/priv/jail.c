/* SPDX-License-Identifier: MIT */
#include "sandboxd/priv/jail.h"

#include "common/sys/caps.h"
#include "common/sys/clock.h"
#include "common/sys/mem.h"
#include "common/sys/rlimit.h"
#include "sandboxd/priv/child.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define ERRNO_MOST 4095
#define LOOK_MS    50

static void child(void (*run)(const void *arg, int out), const void *arg, int out)
{
	struct fail f = { 0 };

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	/* The broker's terminal, and its process group: what is asked for "one's own" does not stop at a namespace. */
	if (setsid() > 0 && child_place_null(&f) == 0)
		run(arg, out);
	_exit(1);
}

/* It may have been taken over: what it says went wrong is an errno and a text, whatever they are. */
static int judge(struct fail *said, bool all, int status, const char *who, struct fail *f)
{
	said->text[sizeof(said->text) - 1] = 0;
	if (all && said->sys) {
		*f = *said;
		if (f->sys < 0 || f->sys > ERRNO_MOST)
			f->sys = EPROTO;
		return -f->sys;
	}
	if (!all || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return fail_set(f, EIO, "%s ended with status %d: out of time or memory", who, status);
	return 0;
}

static bool is_room(int dir)
{
	struct statvfs st;

	if (fstatvfs(dir, &st) < 0)
		return true;
	uint64_t bytes = (uint64_t)st.f_blocks * st.f_frsize / 16, names = st.f_files / 16; /* 0: they are not counted */
	if (bytes > JAIL_ROOM)
		bytes = JAIL_ROOM;
	if (names > JAIL_NAMES)
		names = JAIL_NAMES;
	return (uint64_t)st.f_bavail * st.f_frsize >= bytes && st.f_favail >= names;
}

/* Until it has ended: 0, or why it has to. */
static int watch(int pidfd, const struct jail_bounds *b)
{
	int64_t end = clock_mono_us() + (int64_t)b->secs * 1000000;
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	for (;;) {
		int n = poll(&p, 1, LOOK_MS);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return errno;
		if (!is_room(b->dir))
			return ENOSPC;
		if (clock_mono_us() > end)
			return ETIMEDOUT;
	}
}

int jail_run(void (*run)(const void *arg, int out), const void *arg, const struct jail_bounds *b, struct fail *ret,
	size_t size, const char *who, struct fail *f)
{
	_cleanup_close_ int pidfd = -1;
	int p[2], status = 0;
	pid_t pid;
	ssize_t n;

	signal(SIGCHLD, SIG_DFL);
	if (pipe2(p, O_CLOEXEC) < 0)
		return fail_set(f, errno, "make a pipe");
	pid = unshare(CLONE_NEWPID) < 0 ? -1 : fork();
	if (pid == 0)
		child(run, arg, p[1]);
	int sys = errno;
	close(p[1]);
	if (pid < 0) {
		close(p[0]);
		return fail_set(f, sys, "start %s", who);
	}
	/* It has ended before anything is read: what it writes is no promise to end. */
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	sys = pidfd < 0 ? errno : watch(pidfd, b);
	if (sys)
		(void)kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR) {
			close(p[0]);
			return fail_set(f, errno, "wait for %s", who);
		}
	n = read(p[0], ret, size);
	close(p[0]);
	if (sys)
		return fail_set(f, sys, "%s was ended", who);
	return judge(ret, n == (ssize_t)size, status, who, f);
}

int jail_drop(uint64_t caps, const struct jail_limit *most, size_t n, const struct filter *flt, struct fail *f)
{
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++)
		r = rlimit_lower(most[i].what, most[i].max);
	if (r < 0)
		return fail_set(f, r, "set limits");
	r = caps_keep(caps); /* the uid stays root's */
	if (r < 0)
		return fail_set(f, r, "drop capabilities");
	r = filter_install(flt);
	return r < 0 ? fail_set(f, r, "install the system call filter") : 0;
}

int jail_memory(off_t size)
{
	int fd = memfd_create("jail", MFD_CLOEXEC | MFD_ALLOW_SEALING), r;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, size) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW) == 0)
		return fd;
	r = -errno;
	close(fd);
	return r;
}
