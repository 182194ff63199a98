/* SPDX-License-Identifier: MIT */
/* Control groups: what a sandbox uses.
 *
 *   figure      cgroup2 with controllers       hybrid, v1
 *   cpu         cpu.stat, which cgroup2 has without a controller too; else cpuacct.usage
 *   memory      memory.current                 memory.usage_in_bytes
 *   disk        io.stat: what has reached it   /proc/PID/io of each process: what was made dirty
 *   processes   pids.current, without sbx-init
 *
 * Memory is without what only caches files and can be had back at once; what the file worker has put into
 * memory, in /tmp for one, is added to it. The v1 controller of disks sees neither pages that are written back nor, on
 * newer kernels, anything.
 *
 * The others are of the guest's processes alone; the shim and the file worker are in other groups. */
#include "sandboxd/priv/cg.h"

#include "common/sys/mem.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX   16384
#define LOOP_MAJOR 7
#define SHORT_READ 2048

enum figure { CPU_NS, MEMORY, MEMORY_LIMIT, DISK_READ, DISK_WRITE, PROCESSES };
_Static_assert(PROCESSES + 1 == CG_FIGURES, "the order of struct backend_meter");

/* The whole of a small file, or as much as fits. These files come in lines, and the kernel fills a
 * page with them while there are more: what is much shorter is the end. */
static int text_of(int dir, const char *group, const char *file, char *buf, size_t size)
{
	char path[PATH_MAX];
	ssize_t n, len = 0;

	if (dir < 0)
		return -ENOENT;
	snprintf(path, sizeof(path), "%s/%s", group, file);
	_cleanup_close_ int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	do {
		n = read(fd, buf + len, size - 1 - (size_t)len);
		len += n > 0 ? n : 0;
	} while (n >= SHORT_READ);
	buf[len] = 0;
	return n < 0 ? -errno : 0;
}

static int64_t number_of(int dir, const char *group, const char *file)
{
	char buf[64], *end;
	long long v;

	if (text_of(dir, group, file, buf, sizeof(buf)) < 0)
		return -1;
	errno = 0;
	v = strtoll(buf, &end, 10);
	return end == buf || errno || v < 0 ? -1 : v;
}

/* The value of "key value", a line of its own; -1: not there. */
static int64_t value_of(const char *text, const char *key)
{
	size_t len = strlen(key);

	for (const char *p = text; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
		if (strncmp(p, key, len) == 0 && p[len] == ' ')
			return strtoll(p + len + 1, NULL, 10);
	return -1;
}

static int64_t value_in(int dir, const char *group, const char *file, const char *key)
{
	char buf[TEXT_MAX];

	return text_of(dir, group, file, buf, sizeof(buf)) < 0 ? -1 : value_of(buf, key);
}

static int64_t without(int64_t used, int64_t cache)
{
	if (used < 0 || cache < 0)
		return used;
	return used > cache ? used - cache : 0;
}

static int64_t cpu_ns(const struct cg *cg, const char *name, const char *guest)
{
	int64_t us;

	if (cg->base2 >= 0) {
		us = value_in(cg->base2, guest, "cpu.stat", "usage_usec");
		return us < 0 ? -1 : us * 1000;
	}
	return number_of(
		cg->base1[cg->base1[CG_CPUACCT] >= 0 ? CG_CPUACCT : CG_CPU], name, "cpuacct.usage");
}

/* Never more than the limit, which is the guest's: what is beyond it takes from others of the sandbox. */
static int64_t together(int64_t guest, int64_t worker, int64_t limit)
{
	int64_t all = guest < 0 || worker < 0 ? guest : guest + worker;

	return limit > 0 && all > limit ? limit : all;
}

static void memory_v2(int dir, const char *name, const char *guest, int64_t *ret)
{
	char svc[64];
	int64_t own = without(number_of(dir, guest, "memory.current"),
		value_in(dir, guest, "memory.stat", "inactive_file"));

	snprintf(svc, sizeof(svc), "%s/svc", name);
	ret[MEMORY_LIMIT] = number_of(dir, guest, "memory.max");
	ret[MEMORY] = together(own, value_in(dir, svc, "memory.stat", "shmem"), ret[MEMORY_LIMIT]);
}

static void memory_v1(int dir, const char *name, const char *guest, int64_t *ret)
{
	bool apart = dir >= 0 && faccessat(dir, guest, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	const char *group = apart ? guest : name; /* made by a broker that had no group for the worker */
	int64_t own = without(number_of(dir, group, "memory.usage_in_bytes"),
		value_in(dir, group, "memory.stat", "total_inactive_file"));

	ret[MEMORY_LIMIT] = number_of(dir, group, "memory.limit_in_bytes");
	ret[MEMORY] = together(own, apart ? value_in(dir, name, "memory.stat", "shmem") : 0, ret[MEMORY_LIMIT]);
}

/* "8:0 rbytes=1 wbytes=2 …" for each disk. What goes through a loop device comes again at the disk
 * below it. */
static void sum_io(char *text, int64_t *ret)
{
	char *rest = NULL;

	ret[DISK_READ] = ret[DISK_WRITE] = 0;
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		const char *r = strstr(line, " rbytes="), *w = strstr(line, " wbytes=");
		if (strtol(line, NULL, 10) == LOOP_MAJOR || !r || !w)
			continue;
		ret[DISK_READ] += strtoll(r + 8, NULL, 10);
		ret[DISK_WRITE] += strtoll(w + 8, NULL, 10);
	}
}

/* Of those that have ended their parents have the account, in the end sbx-init. The sum falls when
 * one ends whom nobody waited for; it is for the reader to not believe that. */
static void sum_processes(char *procs, int64_t *ret)
{
	_cleanup_close_ int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char *rest = NULL, buf[512];

	ret[DISK_READ] = ret[DISK_WRITE] = 0;
	for (char *pid = strtok_r(procs, "\n", &rest); pid; pid = strtok_r(NULL, "\n", &rest)) {
		int64_t r, w;
		if (text_of(proc, pid, "io", buf, sizeof(buf)) < 0)
			continue; /* it has just ended */
		r = value_of(buf, "read_bytes:");
		w = value_of(buf, "write_bytes:");
		ret[DISK_READ] += r > 0 ? r : 0;
		ret[DISK_WRITE] += w > 0 ? w : 0;
	}
}

static void disk(const struct cg *cg, const char *name, const char *guest, int64_t *ret)
{
	char text[TEXT_MAX];

	if (cg->mode == CG_V2) {
		if (text_of(cg->base2, guest, "io.stat", text, sizeof(text)) == 0)
			sum_io(text, ret);
		return;
	}
	if (text_of(cg->base1[CG_PIDS], name, "cgroup.procs", text, sizeof(text)) == 0)
		sum_processes(text, ret);
}

int cg_meter(const struct cg *cg, const char *name, int64_t ret[CG_FIGURES])
{
	char guest[64];
	int64_t tasks;

	for (int i = 0; i < CG_FIGURES; i++)
		ret[i] = -1;
	snprintf(guest, sizeof(guest), "%s/guest", name);
	ret[CPU_NS] = cpu_ns(cg, name, guest);
	if (cg->mode == CG_V2)
		memory_v2(cg->base2, name, guest, ret);
	else
		memory_v1(cg->base1[CG_MEMORY], name, guest, ret);
	disk(cg, name, guest, ret);
	tasks = cg->mode == CG_V2 ? number_of(cg->base2, guest, "pids.current")
				  : number_of(cg->base1[CG_PIDS], name, "pids.current");
	ret[PROCESSES] = tasks > 0 ? tasks - 1 : tasks;
	return ret[CPU_NS] < 0 && ret[MEMORY] < 0 ? -ENOENT : 0;
}
