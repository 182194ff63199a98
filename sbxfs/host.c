/* SPDX-License-Identifier: MIT */
/* The few things that concern this machine. */
#include "sbxfs/host.h"

#include "common/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define READ_AHEAD_KB 4096
#define NOSYMFOLLOW 256ul /* MS_NOSYMFOLLOW, which older headers lack */

static void run_fusermount(const char *mountpoint)
{
	pid_t pid = fork();

	if (pid == 0) {
		execlp("fusermount3", "fusermount3", "-u", "-z", "-q", mountpoint, (char *)NULL);
		_exit(127);
	}
	if (pid > 0)
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
}

void host_detach_dead(const char *mountpoint)
{
	struct stat st;

	/* Only the kernel says this, and only when the program behind the mount is gone. */
	if (stat(mountpoint, &st) == 0 || (errno != ENOTCONN && errno != ECONNABORTED))
		return;
	if (umount2(mountpoint, MNT_DETACH) < 0)
		run_fusermount(mountpoint);
}

/* The line begins with the number of the mount; its type stands behind the dash. */
static bool is_sbxfs(unsigned long long mnt_id)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	unsigned long long id;
	char *line = NULL;
	size_t cap = 0;
	bool is = false;

	while (f && !is && getline(&line, &cap, f) > 0)
		is = sscanf(line, "%llu", &id) == 1 && id == mnt_id && strstr(line, " - fuse.sbxfs ");
	free(line);
	if (f)
		fclose(f);
	return is;
}

int host_mountpoint(const char *path)
{
	struct statx st;

	if (statx(AT_FDCWD, path, 0, STATX_TYPE | STATX_MNT_ID, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.stx_mode))
		return -ENOTDIR;
	return (st.stx_attributes & STATX_ATTR_MOUNT_ROOT) && is_sbxfs(st.stx_mnt_id) ? -EBUSY : 0;
}

/* "36 25 0:34 / /mnt ..." : the device of the last mount at that place. */
static int device_of(const char *mountpoint, char *out, size_t size)
{
	char *real = NULL, *line = NULL, dev[32], at[4096];
	FILE *f = fopen("/proc/self/mountinfo", "re");
	size_t cap = 0;
	int found = -1;

	if (!f)
		return -1;
	/* realpath would ask the mount itself; its parent is enough. */
	real = strdup(mountpoint);
	while (real && getline(&line, &cap, f) > 0) {
		if (sscanf(line, "%*d %*d %31s %*s %4095s", dev, at) != 2 || strcmp(at, real))
			continue;
		(void)snprintf(out, size, "%s", dev);
		found = 0;
	}
	fclose(f);
	free(line);
	free(real);
	return found;
}

void host_read_ahead(const char *mountpoint)
{
	char dev[32], path[128];
	FILE *f;

	if (device_of(mountpoint, dev, sizeof(dev)) < 0)
		return;
	(void)snprintf(path, sizeof(path), "/sys/class/bdi/%s/read_ahead_kb", dev);
	f = fopen(path, "we");
	if (!f)
		return;
	fprintf(f, "%d\n", READ_AHEAD_KB);
	if (fclose(f) != 0)
		log_debug("read-ahead stays as it is: %s", strerror(errno));
}

int host_no_symfollow(const char *mountpoint, bool read_only)
{
	const unsigned long flags = MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | NOSYMFOLLOW;

	return mount(NULL, mountpoint, NULL, flags | (read_only ? MS_RDONLY : 0), NULL) < 0 ? -errno : 0;
}

static unsigned long long mask_of(int sig)
{
	return 1ull << (sig - 1);
}

bool host_is_signalled(pid_t thread)
{
	const unsigned long long benign = mask_of(SIGCHLD) | mask_of(SIGURG) | mask_of(SIGWINCH) |
		mask_of(SIGCONT) | mask_of(SIGALRM) | mask_of(SIGVTALRM) | mask_of(SIGPROF) |
		mask_of(SIGIO);
	unsigned long long pending = 0, one;
	char path[64], line[256];
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)thread);
	f = thread > 0 ? fopen(path, "re") : NULL;
	if (!f)
		return true;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "SigPnd: %llx", &one) == 1 || sscanf(line, "ShdPnd: %llx", &one) == 1)
			pending |= one;
	fclose(f);
	return pending & ~benign;
}
