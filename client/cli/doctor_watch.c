/* SPDX-License-Identifier: MIT */
/* How a mount hears of changes that others make inside: what this kernel permits in a user namespace, as a
 * sandbox's is, and what the mounts of this host have. */
#include "client/cli/doctor.h"

#include "common/sys/clock.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATS_SECS 3
#define STATS_MAX  65536

static long number_in(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[32] = "";

	return fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 ? strtol(text, NULL, 10) : -1;
}

/* In a child: 0 a file system may be watched as a whole, 1 folders one by one, else neither. */
static int watch_trial(void)
{
	int fan, ino;

	if (unshare(CLONE_NEWUSER) < 0)
		return 2;
	fan = fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_REPORT_FID | FAN_REPORT_DIR_FID | FAN_REPORT_NAME,
		O_RDONLY);
	if (fan >= 0 && fanotify_mark(fan, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_CREATE | FAN_ONDIR, AT_FDCWD,
				"/") == 0)
		return 0;
	ino = inotify_init1(IN_CLOEXEC);
	return ino >= 0 && inotify_add_watch(ino, "/", IN_CREATE) >= 0 ? 1 : 2;
}

void try_watch(struct finding *f)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(watch_trial());
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) > 1) {
		f->optional = true;
		say(f, false, "none: mounts ask again and again, after short times");
		mend(f, "raise fs.inotify.max_user_watches and fs.inotify.max_user_instances");
		return;
	}
	say(f, true, "inotify, %ld folders and %ld mounts at most%s",
		number_in("/proc/sys/fs/inotify/max_user_watches"),
		number_in("/proc/sys/fs/inotify/max_user_instances"),
		WEXITSTATUS(status) ? "; fanotify is not permitted in a sandbox" : "");
}

/* The text of a mount's stats; a mount that does not answer is not waited for. */
static size_t read_stats(const char *dir, char *buf, size_t size)
{
	size_t len = 0;
	int64_t until;
	ssize_t n;
	int p[2];
	pid_t pid;

	if (pipe2(p, O_CLOEXEC) < 0)
		return 0;
	pid = fork();
	if (pid == 0) {
		char path[4096], piece[4096];
		alarm(STATS_SECS);
		snprintf(path, sizeof(path), "%s/stats", dir);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		while (fd >= 0 && (n = read(fd, piece, sizeof(piece))) > 0)
			if (write(p[1], piece, (size_t)n) != n)
				break;
		_exit(0);
	}
	close(p[1]);
	until = clock_mono_us() + STATS_SECS * 1000000;
	while (len < size - 1 && clock_mono_us() < until && fd_wait(p[0], POLLIN, STATS_SECS * 1000) &&
		(n = read(p[0], buf + len, size - 1 - len)) > 0)
		len += (size_t)n;
	buf[len] = '\0';
	close(p[0]);
	/* One that the mount holds, whoever is behind it, ends when the kernel lets it. */
	if (pid > 0 && kill(pid, SIGKILL) == 0)
		waitpid(pid, NULL, WNOHANG);
	return len;
}

static void add_mount(struct finding *f, const char *dir)
{
	_cleanup_free_ char *text = malloc(STATS_MAX);
	json_t *o = text && read_stats(dir, text, STATS_MAX) ? json_loads(text, 0, NULL) : NULL;
	json_t *files = json_object_get(o, "files");
	const char *watch = json_string_value(json_object_get(files, "watch"));
	long long n = json_integer_value(json_object_get(files, "watches"));
	size_t len = strlen(f->detail), room = sizeof(f->detail) - len;

	if (!watch)
		(void)snprintf(f->detail + len, room, "%s%s does not answer", len ? "; " : "", dir);
	else
		(void)snprintf(f->detail + len, room, "%s%s: %s, %lld folders", len ? "; " : "", dir, watch, n);
	json_decref(o);
}

void try_mounts(struct finding *f)
{
	FILE *mounts = setmntent("/proc/self/mounts", "re");
	struct mntent *m;

	f->ok = true;
	while (mounts && (m = getmntent(mounts)))
		if (!strcmp(m->mnt_type, "fuse.sbxfs"))
			add_mount(f, m->mnt_dir);
	if (mounts)
		endmntent(mounts);
	if (!f->detail[0])
		say(f, true, "none on this host");
}
