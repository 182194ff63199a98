/* SPDX-License-Identifier: MIT */
/* Everything between clone and execve. It runs in init's memory with all signals blocked: only system
 * calls and the stack, no library state, raw calls for ids (libc would look for its threads). */
#include "sandboxd/init/spawn.h"

#include "common/sys/mark.h"
#include "sandboxd/init/init.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACK (64 * 1024)

static int enter_cgroup(const struct spawn *s)
{
	return s->cgroup_fd < 0 || write(s->cgroup_fd, "0", 1) == 1 ? 0 : -1;
}

/* From uid 0 to another the kernel clears every capability; without the right it must not go on. */
static int change_ids(const struct spawn *s)
{
	const struct spawn_ids *i = &s->ids;

	if (!i->change)
		return 0;
	if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, i->gid, i->gid, i->gid) < 0 ||
	    syscall(SYS_setresuid, i->uid, i->uid, i->uid) < 0)
		return -1;
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	return 0;
}

static int set_stdio(const struct spawn *s)
{
	for (int i = 0; i < 3; i++)
		if (dup2(s->stdio[i], i) < 0)
			return -1;
	return s->tty ? ioctl(0, TIOCSCTTY, 0) : 0;
}

/* With the process's own rights, below the root, never through a magic link of /proc; and the result
 * must have a name, else it lies outside what the process may see. */
static int enter_cwd(const struct spawn *s)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	char name[PATH_MAX];
	int fd = (int)syscall(SYS_openat2, s->root_fd, s->cwd, &how, sizeof(how));

	if (fd < 0 || fchdir(fd) < 0)
		return -1;
	if (syscall(SYS_getcwd, name, sizeof(name)) < 0)
		return errno == ERANGE ? 0 : -1;
	if (name[0] != '/') {
		errno = ENOENT;
		return -1;
	}
	return 0;
}

/* A file that is there although execve says ENOENT: what it asks for (interpreter, loader) is not. */
static int exec_one(const struct spawn *s, const char *path)
{
	(void)execve(path, s->argv, s->env);
	if (errno == ENOENT && faccessat(AT_FDCWD, path, F_OK, 0) == 0)
		errno = ELIBBAD;
	return errno;
}

static const char *path_of(char *const *env)
{
	for (; *env; env++)
		if (strncmp(*env, "PATH=", 5) == 0)
			return *env + 5;
	return "/usr/local/bin:/bin:/usr/bin";
}

static bool join(char *buf, const char *dir, size_t dir_len, const char *sep, const char *file)
{
	size_t len = strlen(file);

	if (dir_len + strlen(sep) + len >= PATH_MAX)
		return false;
	memcpy(buf, dir, dir_len);
	memcpy(buf + dir_len, sep, strlen(sep));
	memcpy(buf + dir_len + strlen(sep), file, len + 1);
	return true;
}

/* The rules of execvp, but a file that is no program is an error: nothing is handed to a shell. */
static int exec_search(const struct spawn *s)
{
	const char *file = s->argv[0], *p = path_of(s->env), *end;
	char buf[PATH_MAX];
	int seen = ENOENT;

	for (;; p = end + 1) {
		end = strchrnul(p, ':');
		if (join(buf, p, (size_t)(end - p), end > p ? "/" : "", file)) {
			int r = exec_one(s, buf);
			if (r == EACCES)
				seen = EACCES;
			else if (r != ENOENT && r != ENOTDIR && r != ENODEV && r != ESTALE &&
				r != ELOOP && r != ENAMETOOLONG)
				return r;
		}
		if (!*end)
			return seen;
	}
}

static int exec_command(const struct spawn *s)
{
	const char *file = s->argv[0];
	char buf[PATH_MAX];

	if (!*file)
		return ENOENT;
	if (!strchr(file, '/'))
		return exec_search(s);
	if (s->fake_root && file[0] == '/' &&
	    join(buf, s->fake_root, strlen(s->fake_root), "", file) &&
	    faccessat(AT_FDCWD, buf, F_OK, 0) == 0)
		return exec_one(s, buf);
	return exec_one(s, file);
}

static void fail(struct spawn *s, int stage, int error)
{
	s->error = error;
	s->stage = stage;
	_exit(127);
}

static int child(void *arg)
{
	struct spawn *s = arg;
	sigset_t none;

	if (enter_cgroup(s) < 0)
		fail(s, INIT_AT_SPAWN, errno);
	(void)mark_self(s->mark);
	(void)setsid();
	(void)umask(022);
	if (set_stdio(s) < 0)
		fail(s, INIT_AT_TTY, errno);
	if (change_ids(s) < 0)
		fail(s, INIT_AT_IDS, errno);
	if (enter_cwd(s) < 0)
		fail(s, INIT_AT_CWD, errno);
	sigemptyset(&none);
	(void)syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	fail(s, INIT_AT_EXEC, exec_command(s));
	return 127;
}

pid_t spawn(struct spawn *s)
{
	static char stack[STACK] __attribute__((aligned(16)));

	s->stage = s->error = 0;
	pid_t pid = clone(child, stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, s);
	if (pid < 0) {
		s->stage = INIT_AT_SPAWN;
		s->error = errno;
		return -1;
	}
	return s->stage ? -1 : pid; /* a failed one is reaped with all the others */
}
