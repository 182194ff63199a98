/* SPDX-License-Identifier: MIT */
#include "tests/support/linux_rig.h"

#include "common/sys/fnv.h"
#include "sandboxd/priv/box.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* --- broker ---------------------------------------------------------------------------------- */

static void exec_broker(const struct linux_rig *l, int sock, int dir, const char *state_dir)
{
	char program[4200];
	int s = fcntl(sock, F_DUPFD, 16), d = fcntl(dir, F_DUPFD, 16);

	if (dup2(s, PRIV_FD_FRONT) < 0 || dup2(d, PRIV_FD_STATE) < 0)
		_exit(126);
	close_range(PRIV_FD_STATE + 1, ~0u, 0);
	if (l->fault)
		setenv("SBX_FAULT", l->fault, 1);
	else
		unsetenv("SBX_FAULT");
	snprintf(program, sizeof(program), "%s/sbx-priv", guest_rig_libexec());
	execl(program, "sbx-priv", guest_rig_libexec(), state_dir, "0", "0",
		l->provider ? l->provider : "-", NULL);
	_exit(127);
}

static struct linux_rig *opening; /* the vtable's open has no room for it */

static void start_broker(struct linux_rig *l, int state_dirfd, const char *state_dir)
{
	int sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
	l->broker = fork();
	assert_true(l->broker >= 0);
	if (l->broker == 0)
		exec_broker(l, sv[1], state_dirfd, state_dir);
	close(sv[1]);
	l->broker_fd = sv[0];
}

static int open_with_broker(const struct backend_conf *conf, struct backend **ret, struct err *e)
{
	struct backend_conf c = *conf;

	start_broker(opening, conf->state_dirfd, conf->state_dir);
	c.broker_fd = opening->broker_fd;
	if (linux_backend.open(&c, ret, e) < 0)
		return -1;
	return linux_backend.sweep(*ret, NULL, 0, e);
}

static pid_t shim_of(struct linux_rig *l, const char *id)
{
	char path[128];
	struct record rec;

	snprintf(path, sizeof(path), "priv/boxes/%s", id);
	_cleanup_close_ int fd = openat(l->rig.state_dirfd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, &rec, sizeof(rec)) != sizeof(rec))
		return 0;
	return rec.shim_pid;
}

static pid_t linux_part(struct guest_rig *r, const char *id, enum rig_part part)
{
	pid_t shim = shim_of((struct linux_rig *)r, id);
	char path[64], buf[128] = "";

	if (part == RIG_SHIM || shim == 0)
		return shim;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", shim, shim);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, buf, sizeof(buf) - 1) <= 0)
		return 0;
	return (pid_t)strtol(buf, NULL, 10); /* init is the shim's first child */
}

const char *linux_rig_missing(void)
{
	if (geteuid() != 0)
		return "needs root";
	if (access("/dev/loop-control", F_OK) < 0)
		return "needs /dev/loop-control";
	return NULL;
}

static void reap_broker(struct linux_rig *l)
{
	while (waitpid(l->broker, NULL, 0) < 0 && errno == EINTR)
		;
}

/* The caller says what that means. The broker leaves as little as one that has worked. */
static void cannot_open(struct linux_rig *l)
{
	char name[RIG_GROUPS_NAME];

	l->rig.backend = NULL;
	reap_broker(l);
	rig_groups_name(name, l->rig.state_dir);
	rig_groups_gone(name);
}

void linux_rig_open(struct linux_rig *l)
{
	static struct backend_ops ops;
	struct backend_conf conf = { .libexec_dir = guest_rig_libexec() };

	ops = linux_backend;
	ops.open = open_with_broker;
	opening = l;
	l->rig.part = linux_part;
	l->rig.isolated = true;
	if (guest_rig_open(&l->rig, &ops, &conf))
		guest_rig_import_base(&l->rig);
	else
		cannot_open(l);
}

void linux_rig_kill_broker(struct linux_rig *l)
{
	kill(l->broker, SIGKILL);
	linux_backend.close(l->rig.backend);
	reap_broker(l);
}

void linux_rig_restart(struct linux_rig *l)
{
	struct backend_conf c = { .libexec_dir = guest_rig_libexec(),
		.state_dirfd = l->rig.state_dirfd,
		.state_dir = l->rig.state_dir };
	struct err e = ERR_NULL;

	start_broker(l, l->rig.state_dirfd, l->rig.state_dir);
	c.broker_fd = l->broker_fd;
	if (linux_backend.open(&c, &l->rig.backend, &e) < 0)
		fail_msg("%s", e.msg);
}

void linux_rig_close(struct linux_rig *l)
{
	char name[RIG_GROUPS_NAME];

	rig_groups_name(name, l->rig.state_dir);
	guest_rig_close(&l->rig); /* its end of the socket is closed: the broker ends */
	reap_broker(l);
	rig_groups_gone(name);
}

/* --- leftovers ------------------------------------------------------------------------------- */

void rig_groups_name(char name[RIG_GROUPS_NAME], const char *state_dir)
{
	uint64_t h = fnv64(1469598103934665603u, state_dir, strlen(state_dir));

	snprintf(name, RIG_GROUPS_NAME, "sandboxd-%08x", (unsigned int)(h ^ (h >> 32)));
}

/* Calls fn for the folder of that name in each hierarchy; the sum of what it says. */
static unsigned each_groups(const char *name, unsigned (*fn)(const char *path))
{
	char line[4096], point[256], path[400];
	FILE *f = fopen("/proc/self/mountinfo", "re");
	unsigned n = 0;

	while (f && fgets(line, sizeof(line), f)) {
		if (!strstr(line, " - cgroup") || sscanf(line, "%*s %*s %*s %*s %255s", point) != 1)
			continue;
		snprintf(path, sizeof(path), "%s/%s", point, name);
		n += fn(path);
	}
	if (f)
		fclose(f);
	return n;
}

static unsigned is_there(const char *path)
{
	return access(path, F_OK) == 0;
}

void rig_groups_gone(const char *name)
{
	struct timespec pause = { .tv_nsec = 5000000 };
	int64_t end = mono_ms() + patience_ms(30000);

	while (each_groups(name, is_there) > 0) {
		if (mono_ms() > end)
			fail_msg("control groups %s are left", name);
		nanosleep(&pause, NULL);
	}
}

static unsigned count_dir(int at, const char *path, const char *prefix)
{
	int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;
	unsigned n = 0;

	while (d && (de = readdir(d)))
		n += strncmp(de->d_name, prefix, strlen(prefix)) == 0 &&
		     strcmp(de->d_name, "notify_on_release") != 0;
	if (d)
		closedir(d);
	return n;
}

static unsigned count_below(const char *path)
{
	return count_dir(AT_FDCWD, path, "n");
}

static unsigned count_groups(struct linux_rig *l)
{
	char base[RIG_GROUPS_NAME];

	rig_groups_name(base, l->rig.state_dir);
	return each_groups(base, count_below);
}

static unsigned count_lines(const char *file, const char *text)
{
	FILE *f = fopen(file, "re");
	char line[4096];
	unsigned n = 0;

	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, text) != NULL;
	if (f)
		fclose(f);
	return n;
}

static unsigned count_loops(struct linux_rig *l)
{
	DIR *d = opendir("/sys/block");
	struct dirent *de;
	char path[400];
	unsigned n = 0;

	while (d && (de = readdir(d))) {
		if (strncmp(de->d_name, "loop", 4) != 0)
			continue;
		snprintf(path, sizeof(path), "/sys/block/%s/loop/backing_file", de->d_name);
		n += count_lines(path, l->rig.state_dir);
	}
	if (d)
		closedir(d);
	return n;
}

/* Everything of this broker sits in its groups, or is the broker. */
static unsigned count_processes(struct linux_rig *l)
{
	DIR *d = opendir("/proc");
	char path[300], base[RIG_GROUPS_NAME];
	struct dirent *de;
	unsigned n = 0;

	rig_groups_name(base, l->rig.state_dir);
	while (d && (de = readdir(d))) {
		if (de->d_name[0] < '0' || de->d_name[0] > '9' || atoi(de->d_name) == l->broker)
			continue;
		snprintf(path, sizeof(path), "/proc/%s/cgroup", de->d_name);
		n += count_lines(path, base) > 0;
	}
	if (d)
		closedir(d);
	return n;
}

/* The pool is mounted where only the broker sees it. */
static unsigned count_areas(struct linux_rig *l)
{
	char path[400];

	snprintf(path, sizeof(path), "/proc/%d/root%s/priv/pool/areas", l->broker, l->rig.state_dir);
	return count_dir(AT_FDCWD, path, "sbx_") +
	       count_dir(l->rig.state_dirfd, "priv/areas", "sbx_");
}

void linux_rig_count(struct linux_rig *l, struct leftovers *ret)
{
	*ret = (struct leftovers){
		.groups = count_groups(l),
		.areas = count_areas(l),
		.records = count_dir(l->rig.state_dirfd, "priv/boxes", "sbx_"),
		.loops = count_loops(l),
		.mounts = count_lines("/proc/self/mountinfo", " - overlay ") +
			  count_lines("/proc/self/mountinfo", " /dev/loop") +
			  count_lines("/proc/self/mountinfo", l->rig.state_dir),
		.processes = count_processes(l),
	};
}

bool linux_rig_wait_clean(struct linux_rig *l, const struct leftovers *before, int ms)
{
	int64_t end = mono_ms() + patience_ms(ms);
	struct timespec ts = { .tv_nsec = 10000000 };
	struct leftovers now;

	do {
		linux_rig_count(l, &now);
		if (now.areas <= before->areas && now.records <= before->records)
			return true;
		nanosleep(&ts, NULL);
	} while (mono_ms() < end);
	return false;
}
