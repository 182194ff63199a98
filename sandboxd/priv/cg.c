/* SPDX-License-Identifier: MIT */
/* Control groups: making, limiting and emptying the groups. */
#include "sandboxd/priv/cg.h"

#include "common/sys/mem.h"

#include <dirent.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

/* Writes a limit and looks whether the kernel took it. */
static int limit(int dir, const char *name, int64_t value, struct fail *f)
{
	char got[64];
	int r = file_write(dir, name, "%lld", (long long)value);

	if (r < 0)
		return fail_set(f, r, "set %s", name);
	r = file_read(dir, name, got, sizeof(got));
	if (r < 0 || strtoll(got, NULL, 10) != value)
		return fail_set(f, r < 0 ? r : ERANGE, "%s reads back as %s", name, got);
	return 0;
}

/* In how short pieces processor time is given. The kernel's own 100 ms let a sandbox with one processor take all of two
 * for 50 ms, in which a neighbour stood still, and then stood still itself for as long. What a group gets in one period
 * must be a millisecond at least and the period a second at most, so that the smallest shares have longer ones; less
 * than a thousandth of a processor cannot be said. */
#define CPU_PERIOD_US     10000
#define CPU_PERIOD_US_MAX 1000000
#define CPU_QUOTA_US_MIN  1000

struct cpu_share {
	int64_t quota, period; /* us */
};

static struct cpu_share cpu_share(int64_t milli)
{
	struct cpu_share s = { .period = CPU_PERIOD_US };

	if (milli * s.period < CPU_QUOTA_US_MIN * 1000)
		s.period = milli > 0 ? CPU_QUOTA_US_MIN * 1000 / milli : CPU_PERIOD_US_MAX;
	s.quota = milli * s.period / 1000;
	if (s.quota < CPU_QUOTA_US_MIN)
		s.quota = CPU_QUOTA_US_MIN;
	return s;
}

static int cpu_v2(int dir, int64_t milli, struct fail *f)
{
	struct cpu_share s = cpu_share(milli);
	char got[64] = "", want[64];
	int r;

	snprintf(want, sizeof(want), "%lld %lld", (long long)s.quota, (long long)s.period);
	r = file_write(dir, "cpu.max", "%s", want);
	if (r == 0)
		r = file_read(dir, "cpu.max", got, sizeof(got));
	if (r < 0 || strcmp(got, want) != 0)
		return fail_set(f, r < 0 ? r : ERANGE, "cpu.max reads back as %s", got);
	return 0;
}

static int cpu_v1(int dir, int64_t milli, struct fail *f)
{
	struct cpu_share s = cpu_share(milli);
	int r = limit(dir, "cpu.cfs_period_us", s.period, f);

	return r < 0 ? r : limit(dir, "cpu.cfs_quota_us", s.quota, f);
}

static int memory_v2(int dir, int64_t bytes, struct fail *f)
{
	int r = limit(dir, "memory.max", bytes, f);

	if (r == 0 && faccessat(dir, "memory.swap.max", F_OK, 0) == 0)
		r = limit(dir, "memory.swap.max", 0, f);
	return r;
}

static int limit_v2(int dir, int64_t bytes, struct fail *f)
{
	int r = memory_v2(dir, bytes, f);

	if (r == 0)
		r = limit(dir, "memory.high", (bytes / 100 * 95) & ~(int64_t)4095, f);
	if (r == 0)
		r = limit(dir, "pids.max", CG_PIDS_DEFAULT, f);
	return r;
}

static int memory_v1(int dir, int64_t bytes, struct fail *f)
{
	int r = limit(dir, "memory.limit_in_bytes", bytes, f);

	if (r == 0 && faccessat(dir, "memory.memsw.limit_in_bytes", F_OK, 0) == 0)
		r = limit(dir, "memory.memsw.limit_in_bytes", bytes, f);
	return r;
}

static int guest_memory_v1(int dir, int64_t bytes, struct fail *f)
{
	int r = memory_v1(dir, bytes, f);

	/* What lies in sockets is not in the figures above; v2 counts it by itself. */
	if (r == 0 && faccessat(dir, "memory.kmem.tcp.limit_in_bytes", F_OK, 0) == 0)
		r = limit(dir, "memory.kmem.tcp.limit_in_bytes", bytes / 4, f);
	return r;
}

/* A v1 group's `tasks`, and not its cgroup.procs: who writes "0" there moves itself alone, for which the kernel does
 * not stop every fork of the machine, as it does for a whole process (cgroup_procs_write_start, since 5.6). */
static int tasks_of(int dir, int *ret, struct fail *f)
{
	static const char path[] = "tasks";

	*ret = openat(dir, path, O_WRONLY | O_CLOEXEC);
	return *ret < 0 ? fail_set(f, errno, "open %s", path) : 0;
}

/* The shim makes p<n> and moves processes there: what that takes and no more. One level, so that whoever had taken it
 * over could make no chain of groups that takes the broker a descriptor a level to remove; and not more of them than
 * processes can be in, and as many that are about to go. */
static int delegate(int guest, uid_t uid, struct fail *f)
{
	static const char *const files[] = { "cgroup.procs", "init/cgroup.procs", "" };
	int r = limit(guest, "cgroup.max.depth", 1, f);

	if (r == 0)
		r = limit(guest, "cgroup.max.descendants", 2 * CG_PIDS_DEFAULT, f);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		if (fchownat(guest, files[i], uid, uid, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) < 0)
			return fail_set(f, errno, "hand over the control group");
	return 0;
}

static int open_dir(int base, const char *name, const char *below, struct fail *f)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s%s", name, below);
	fd = open_below(base, path, O_RDONLY | O_DIRECTORY, 0);
	return fd < 0 ? fail_set(f, fd, "open control group") : fd;
}

static int make_v2(
	const struct cg *cg, const char *name, uid_t shim_uid, struct cg_box *box, struct fail *f)
{
	_cleanup_close_ int top = open_dir(cg->base2, name, "", f);

	if (top < 0)
		return -1;
	if (mkdirat(top, "guest", 0755) < 0)
		return fail_set(f, errno, "make control group");
	box->guest_dir = open_below(top, "guest", O_RDONLY | O_DIRECTORY, 0);
	if (box->guest_dir < 0)
		return fail_set(f, box->guest_dir, "open control group");
	if (cg->mode == CG_V2)
		box->oom = openat(box->guest_dir, "memory.events", O_RDONLY | O_CLOEXEC);
	if (mkdirat(box->guest_dir, "init", 0755) < 0)
		return fail_set(f, errno, "make control group");
	if (delegate(box->guest_dir, shim_uid, f) < 0)
		return -1;
	box->init_dir = open_below(box->guest_dir, "init", O_RDONLY | O_DIRECTORY, 0);
	return box->init_dir < 0 ? fail_set(f, box->init_dir, "open control group") : 0;
}

static int make_memory_v1(int dir, struct cg_box *box, struct fail *f)
{
	_cleanup_close_ int guest = dir_make(dir, "guest", 0755);

	if (guest < 0)
		return fail_set(f, guest, "make the guest's memory control group");
	box->oom = openat(guest, "memory.oom_control", O_RDONLY | O_CLOEXEC);
	if (tasks_of(dir, &box->files1, f) < 0)
		return -1;
	return tasks_of(guest, &box->guest1[CG_MEMORY], f);
}

static int make_v1(
	const struct cg *cg, enum cg_ctrl c, const char *name, struct cg_box *box, struct fail *f)
{
	_cleanup_close_ int dir = dir_make(cg->base1[c], name, 0755);

	if (dir < 0)
		return fail_set(f, dir, "make %s control group", cg_ctrl_name[c]);
	return c == CG_MEMORY ? make_memory_v1(dir, box, f) : tasks_of(dir, &box->guest1[c], f);
}

int cg_make_svc(const struct cg *cg, const char *name, int *ret_dir, struct fail *f)
{
	int r;

	*ret_dir = -1;
	if (cg->base2 < 0)
		return 0;
	_cleanup_close_ int top = dir_make(cg->base2, name, 0755);
	if (top < 0)
		return fail_set(f, top, "make the control group %s", name);
	/* While nobody is in it: whoever were would be moved. */
	r = cg->mode == CG_V2 ? cg_enable_v2(top, f) : 0;
	if (r < 0)
		return r;
	*ret_dir = dir_make(top, "svc", 0755);
	return *ret_dir < 0 ? fail_set(f, *ret_dir, "make the control group %s/svc", name) : 0;
}

int cg_make(
	const struct cg *cg, const char *name, uid_t shim_uid, struct cg_box *box, struct fail *f)
{
	int r = cg->base2 >= 0 ? make_v2(cg, name, shim_uid, box, f) : 0;

	for (int c = 0; c < CG_CTRLS && r == 0; c++)
		if (cg->base1[c] >= 0)
			r = make_v1(cg, c, name, box, f);
	return r;
}

/* All of the sandbox, then the guest in it. */
static int limit_memory(const struct cg *cg, const char *name, int64_t memory_mb, struct fail *f)
{
	bool v2 = cg->mode == CG_V2;
	int base = v2 ? cg->base2 : cg->base1[CG_MEMORY];
	int64_t bytes = memory_mb << 20, all = (memory_mb + CG_BESIDE_MB) << 20;
	_cleanup_close_ int top = open_dir(base, name, "", f);
	_cleanup_close_ int guest = top < 0 ? -1 : open_dir(base, name, "/guest", f);

	if (top < 0 || guest < 0)
		return -1;
	if ((v2 ? memory_v2(top, all, f) : memory_v1(top, all, f)) < 0)
		return -1;
	return v2 ? limit_v2(guest, bytes, f) : guest_memory_v1(guest, bytes, f);
}

int cg_limit(const struct cg *cg, const char *name, int64_t memory_mb, struct fail *f)
{
	int r = limit_memory(cg, name, memory_mb, f);

	if (r < 0 || cg->mode == CG_V2)
		return r;
	_cleanup_close_ int pids = open_dir(cg->base1[CG_PIDS], name, "", f);
	return pids < 0 ? pids : limit(pids, "pids.max", CG_PIDS_DEFAULT, f);
}

int cg_limit_cpu(const struct cg *cg, const char *name, int64_t milli, struct fail *f)
{
	bool v2 = cg->mode == CG_V2;
	_cleanup_close_ int dir = open_dir(v2 ? cg->base2 : cg->base1[CG_CPU], name, v2 ? "/guest" : "", f);

	if (dir < 0)
		return dir;
	return v2 ? cpu_v2(dir, milli, f) : cpu_v1(dir, milli, f);
}

pid_t cg_fork_into(int dir, uint64_t flags, int *ret_pidfd)
{
	struct clone_args a = { .flags = flags | (dir < 0 ? 0 : CLONE_INTO_CGROUP),
		.exit_signal = SIGCHLD,
		.pidfd = (uint64_t)(uintptr_t)ret_pidfd,
		.cgroup = dir < 0 ? 0 : (uint64_t)dir };

	return (pid_t)syscall(SYS_clone3, &a, sizeof(a));
}

static int join(int group)
{
	return group < 0 || write(group, "0", 1) == 1 ? 0 : -errno;
}

int cg_join_guest(const struct cg_box *box)
{
	int r = 0;

	for (int c = 0; c < CG_CTRLS && r == 0; c++)
		r = join(box->guest1[c]);
	return r;
}

int cg_join_files(const struct cg_box *box)
{
	return join(box->files1);
}

int cg_join_svc_of(const struct cg *cg, uint32_t block)
{
	char path[64];

	if (cg->base2 < 0)
		return 0;
	snprintf(path, sizeof(path), "n%u/svc/cgroup.procs", block);
	_cleanup_close_ int fd = open_below(cg->base2, path, O_WRONLY, 0);
	return fd < 0 ? fd : join(fd);
}

static void kill_each(int dir)
{
	_cleanup_close_ int procs = openat(dir, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	FILE *fp = procs < 0 ? NULL : fdopen(steal_fd(&procs), "r");
	int pid;

	while (fp && fscanf(fp, "%d", &pid) == 1)
		kill(pid, SIGKILL);
	if (fp)
		fclose(fp);
}

/* Pure v1: no single switch. Freeze, so that nothing forks away, signal each, thaw. */
static int kill_v1(const struct cg *cg, const char *name)
{
	_cleanup_close_ int dir =
		open_below(cg->base1[CG_FREEZER], name, O_RDONLY | O_DIRECTORY, 0);

	if (dir < 0)
		return dir;
	(void)file_write(dir, "freezer.state", "FROZEN");
	kill_each(dir);
	return file_write(dir, "freezer.state", "THAWED");
}

int cg_kill(const struct cg *cg, const char *name)
{
	char path[PATH_MAX];

	if (cg->base2 < 0)
		return kill_v1(cg, name);
	snprintf(path, sizeof(path), "%s/cgroup.kill", name);
	return file_write(cg->base2, path, "1");
}

static int open_of(const struct cg *cg, const char *name, const char *file, int flags)
{
	char path[PATH_MAX];

	if (cg->base2 < 0)
		return -ENOENT;
	snprintf(path, sizeof(path), "%s/%s", name, file);
	return open_below(cg->base2, path, flags, 0);
}

int cg_events(const struct cg *cg, const char *name)
{
	return open_of(cg, name, "cgroup.events", O_RDONLY);
}

int cg_killer(const struct cg *cg, const char *name)
{
	return open_of(cg, name, "cgroup.kill", O_WRONLY);
}

void cg_events_read(int fd)
{
	char buf[64];
	ssize_t n = pread(fd, buf, sizeof(buf), 0);

	(void)n;
}

/* Only what the kernel says is believed: a broker without descriptors or memory takes nobody for gone. */
static bool is_gone(int r)
{
	return r == -ENOENT || r == -ENODEV;
}

static int populated_v1(const struct cg *cg, const char *name)
{
	char path[PATH_MAX], buf[32];
	int r;

	snprintf(path, sizeof(path), "%s/cgroup.procs", name);
	r = file_read(cg->base1[CG_PIDS], path, buf, sizeof(buf));
	return r < 0 ? !is_gone(r) : buf[0] != 0;
}

int cg_populated(const struct cg *cg, const char *name)
{
	char path[PATH_MAX], buf[64];
	int r;

	if (cg->base2 < 0)
		return populated_v1(cg, name);
	snprintf(path, sizeof(path), "%s/cgroup.events", name);
	r = file_read(cg->base2, path, buf, sizeof(buf));
	if (r < 0)
		return !is_gone(r);
	return strncmp(buf, "populated 1", 11) == 0;
}

/* rmdir says EBUSY for a moment after the last process has gone. */
static int rmdir_patiently(int parent, const char *name)
{
	for (int ms = 1;; ms *= 2) {
		if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
			return 0;
		if (errno != EBUSY || ms > 1024)
			return -errno;
		struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
		nanosleep(&ts, NULL);
	}
}

static int remove_groups(int parent, const char *name)
{
	int fd = open_below(parent, name, O_RDONLY | O_DIRECTORY, 0);
	struct dirent *de;
	DIR *d;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	d = fdopendir(fd);
	while (d && (de = readdir(d)))
		if (de->d_type == DT_DIR && de->d_name[0] != '.')
			(void)remove_groups(fd, de->d_name);
	if (d)
		closedir(d);
	return rmdir_patiently(parent, name);
}

/* Pure v1: the worker is in no group that is killed, and ends as its shim does. One that somebody has taken over need
 * not. */
static void end_worker(const struct cg *cg, const char *name)
{
	_cleanup_close_ int dir = open_below(cg->base1[CG_MEMORY], name, O_RDONLY | O_DIRECTORY, 0);

	if (dir >= 0)
		kill_each(dir);
}

int cg_remove(const struct cg *cg, const char *name)
{
	if (cg->base2 < 0)
		end_worker(cg, name);
	int r = cg->base2 >= 0 ? remove_groups(cg->base2, name) : 0;

	for (int c = 0; c < CG_CTRLS; c++) {
		int one = cg->base1[c] >= 0 ? remove_groups(cg->base1[c], name) : 0;
		if (one < 0 && r == 0)
			r = one;
	}
	return r;
}

static void each_in(int base, void (*fn)(void *arg, uint32_t block), void *arg)
{
	_cleanup_dir_ DIR *d = base < 0 ? NULL : dir_read(base, ".");
	struct dirent *de;
	unsigned int n;
	char rest;

	while (d && (de = readdir(d)))
		if (de->d_type == DT_DIR && sscanf(de->d_name, "n%u%c", &n, &rest) == 1)
			fn(arg, n);
}

void cg_each(const struct cg *cg, void (*fn)(void *arg, uint32_t block), void *arg)
{
	each_in(cg->base2, fn, arg);
	for (int c = 0; c < CG_CTRLS; c++)
		each_in(cg->base1[c], fn, arg);
}

bool cg_elsewhere(const struct cg *cg, const char *name)
{
	_cleanup_dir_ DIR *d = cg->held < 0 ? NULL : dir_read(cg->held, "..");
	char path[sizeof(((struct dirent *)0)->d_name) + 32];
	struct dirent *de;
	bool found = false;

	while (d && !found && (de = readdir(d))) {
		if (strncmp(de->d_name, CG_BASE, strlen(CG_BASE)) != 0 || strcmp(de->d_name, cg->base) == 0)
			continue;
		snprintf(path, sizeof(path), "%s/%.23s", de->d_name, name);
		found = faccessat(dirfd(d), path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	}
	return found;
}

void cg_leave(const struct cg *cg)
{
	for (int c = 0; c < CG_CTRLS; c++)
		if (cg->base1[c] >= 0)
			(void)file_write(cg->base1[c], "../cgroup.procs", "0");
}

static void note_one(void *arg, uint32_t block)
{
	(void)block;
	*(bool *)arg = true;
}

void cg_close(struct cg *cg)
{
	bool left = false, begun = cg->base2 >= 0 || cg->base1[CG_PIDS] >= 0;
	char self[40];

	/* While a sandbox is left they stay. Without one, who is in svc is on his way out: children of a broker
	 * that has just ended, or the broker itself. */
	snprintf(self, sizeof(self), "../%s", cg->base);
	cg_each(cg, note_one, &left);
	cg_leave(cg);
	for (int c = 0; c < CG_CTRLS; c++)
		if (cg->base1[c] >= 0) {
			if (!left && rmdir_patiently(cg->base1[c], "svc") == 0)
				(void)rmdir_patiently(cg->base1[c], self);
			close_p(&cg->base1[c]);
			cg->base1[c] = -1;
		}
	if (cg->base2 >= 0 && !left)
		(void)rmdir_patiently(cg->base2, self);
	if (cg->held >= 0 && !begun)
		(void)rmdir_patiently(cg->held, self);
	close_p(&cg->base2);
	close_p(&cg->held);
	cg->base2 = cg->held = -1;
}
