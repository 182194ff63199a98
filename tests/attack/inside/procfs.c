/* SPDX-License-Identifier: MIT */
/* Nothing of the kernel's own may be written, whatever it is called on this kernel: so not a list
 * of names, but every file there is, opened for writing. */
#include "tests/attack/inside/inside.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char found[256]; /* the first few that could be opened */

static void note(const char *path)
{
	size_t n = strlen(found);

	if (n < sizeof(found) - 2)
		snprintf(found + n, sizeof(found) - n, "%s%s", n ? "," : "", path);
}

static int open_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	int fd;

	(void)at;
	if (kind != FTW_F || !S_ISREG(st->st_mode))
		return 0;
	fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return 0;
	close(fd);
	note(path);
	return 0;
}

static void try_tree(const char *name, const char *path)
{
	found[0] = 0;
	(void)nftw(path, open_one, 32, FTW_PHYS);
	say(name, found[0] ? found : "none");
}

/* The rest of /proc, without the folders of processes and what was walked already. */
static void try_top(void)
{
	DIR *d = opendir("/proc");
	const struct dirent *de;
	char path[PATH_MAX];

	found[0] = 0;
	while (d && (de = readdir(d))) {
		struct stat st;
		if (strchr("0123456789.", de->d_name[0]) || strcmp(de->d_name, "sys") == 0)
			continue;
		snprintf(path, sizeof(path), "/proc/%s", de->d_name);
		if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
			(void)nftw(path, open_one, 32, FTW_PHYS);
		else if (lstat(path, &st) == 0)
			open_one(path, &st, FTW_F, NULL);
	}
	if (d)
		closedir(d);
	say("writable-proc", found[0] ? found : "none");
}

static void write_own(const char *name, const char *file, const char *text)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/%s", file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	result(name, fd < 0 ? -1 : write(fd, text, strlen(text)));
	if (fd >= 0)
		close(fd);
}

static void try_empty(const char *name, const char *path)
{
	char b[64];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, b, sizeof(b));

	if (n < 0)
		result(name, -1);
	else
		say(name, n ? "something" : "empty");
	if (fd >= 0)
		close(fd);
}

void try_procfs(void)
{
	try_tree("writable-sysctls", "/proc/sys");
	try_tree("writable-sysfs", "/sys");
	try_top();
	write_own("uid-map", "uid_map", "0 0 1\n");
	write_own("gid-map", "gid_map", "0 0 1\n");
	write_own("project-map", "projid_map", "0 0 1\n");
	write_own("oom-score", "oom_score_adj", "-1000");
	write_own("time-offsets", "timens_offsets", "monotonic 1000 0\n");
	try_empty("key-users", "/proc/key-users");
	try_empty("interrupts", "/proc/interrupts");
	try_empty("timer-list", "/proc/timer_list");
	try_empty("vmallocinfo", "/proc/vmallocinfo");
	try_empty("slabinfo", "/proc/slabinfo");
	try_empty("pressure", "/proc/pressure/io");
}
