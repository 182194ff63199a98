/* SPDX-License-Identifier: MIT */
/* sbx-init is pid 1. It holds the control socket to the shim, so whoever gets at its memory or its
 * descriptors speaks as the sandbox's own first process. */
#include "tests/attack/inside/inside.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static void try_path(const char *name, const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK);
	char b[8];

	/* some files let themselves be opened and refuse to be read */
	result(name, fd < 0 || flags != O_RDONLY ? fd : read(fd, b, sizeof(b)) > 0 ? 0 : -1);
	if (fd >= 0)
		close(fd);
}

/* To see that there are some is not yet to have one: any that opens? */
static void try_folder(const char *name, const char *path)
{
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), got = -1, e = errno;
	DIR *d = dir < 0 ? NULL : fdopendir(dir);
	const struct dirent *de;

	while (d && got < 0 && (de = readdir(d))) {
		if (de->d_name[0] == '.')
			continue;
		got = openat(dir, de->d_name, O_RDWR | O_CLOEXEC | O_NONBLOCK);
		e = errno;
	}
	errno = e;
	result(name, got);
	if (d)
		closedir(d);
}

static void try_write(const char *name, const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	result(name, fd < 0 ? -1 : write(fd, text, strlen(text)));
	if (fd >= 0)
		close(fd);
}

static void try_link(const char *name, const char *path)
{
	char b[64];

	result(name, readlink(path, b, sizeof(b)));
}

/* Every signal there is, in three ways; then it must still be there and take work. */
static void signals(void)
{
	char line[512] = "", *end;
	union sigval v = { .sival_int = 1 };
	int fd;

	for (int s = 1; s <= 64; s++) {
		(void)kill(1, s);
		(void)syscall(SYS_tgkill, 1, 1, s);
		(void)sigqueue(1, s, v);
	}
	fd = open("/proc/1/stat", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, line, sizeof(line) - 1) <= 0) {
		say("signals-to-init", "gone");
		return;
	}
	close(fd);
	end = strrchr(line, ')');
	say("signals-to-init", end && strchr("SRD", end[2]) ? "alive" : "stopped");
}

static void by_pidfd(void)
{
	char b[8];
	struct iovec there = { (void *)0x400000, sizeof(b) };
	int fd = (int)syscall(SYS_pidfd_open, 1, 0);

	for (int n = 0; n < 16; n++) {
		long got = syscall(SYS_pidfd_getfd, fd, n, 0);
		if (got >= 0 || n == 15 || errno == EPERM) {
			result("descriptor-of-init", got);
			break;
		}
	}
	/* MADV_COLD: 6.1 refuses any stronger advice before it looks who asks */
	result("advise-init", syscall(SYS_process_madvise, fd, &there, 1, 20, 0));
	result("compare-init", syscall(SYS_kcmp, getpid(), 1, 0, 0, 0));
	close(fd);
}

void try_first_process(void)
{
	char b[8] = "attack";
	struct iovec here = { b, sizeof(b) }, there = { (void *)0x400000, sizeof(b) };

	try_path("maps-of-init", "/proc/1/maps", O_RDONLY);
	try_path("auxv-of-init", "/proc/1/auxv", O_RDONLY);
	try_path("pagemap-of-init", "/proc/1/pagemap", O_RDONLY);
	try_path("stack-of-init", "/proc/1/stack", O_RDONLY);
	try_path("thread-mem-of-init", "/proc/1/task/1/mem", O_RDWR);
	try_write("oom-of-init", "/proc/1/oom_score_adj", "-1000");
	try_write("attr-of-init", "/proc/1/attr/current", "x");
	try_folder("descriptors-of-init", "/proc/1/fd");
	try_folder("map-files-of-init", "/proc/1/map_files");
	try_link("exe-of-init", "/proc/1/exe");
	try_link("mnt-namespace-of-init", "/proc/1/ns/mnt");
	try_link("root-link-of-init", "/proc/1/root");
	result("write-init", process_vm_writev(1, &here, 1, &there, 1, 0));
	result("seize-init", ptrace(PTRACE_SEIZE, 1, NULL, NULL));
	by_pidfd();
	signals();
}
