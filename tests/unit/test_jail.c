/* SPDX-License-Identifier: MIT */
/* What reads archives and guests' trees keeps the uid of the host's root: nobody else who has it may feel that. */
#include "sandboxd/priv/drop.h"
#include "sandboxd/priv/jail.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROOM 8192
#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE 101
#endif

static pid_t victim; /* root's, and no jail */
static int list;     /* what it may write to */

static long signal_one(void) { return kill(victim, 0); }
static long signal_all(void) { return kill(-1, 0); }
static long trace(void) { return ptrace(PTRACE_SEIZE, victim, 0, 0); }
static long open_it(void) { return syscall(SYS_pidfd_open, victim, 0); }
static long its_limits(void) { return prlimit(victim, RLIMIT_NOFILE, NULL, &(struct rlimit){ 0 }); }
static long its_group(void) { return getpgid(victim); }
static long call(void) { return socket(AF_UNIX, SOCK_STREAM, 0); }
static long run(void) { return execl("/bin/true", "true", (char *)NULL); }
static long leave(void) { return unshare(CLONE_NEWUTS); }
static long renice(void) { return setpriority(PRIO_PGRP, 0, 19); }
static long watch(void) { return inotify_init1(IN_CLOEXEC); }
static long poll_many(void) { return epoll_create1(EPOLL_CLOEXEC); }
static long signal_later(void) { return timer_create(CLOCK_MONOTONIC, NULL, &(timer_t){ 0 }); }
static long memory(void) { return memfd_create("memory", MFD_CLOEXEC); }
static long pages(void) { return pipe((int[2]){ 0 }); }
static long a_longer_list(void) { return pwrite(list, "x", 1, ROOM); }
static long a_larger_list(void) { return ftruncate(list, ROOM * 2); }
/* By the right that the copier keeps. None of these would do anything: where nothing is, of what does not exist. */
#define NOWHERE "/nonexistent"
static void *const unmapped = (void *)4096;
static long take_a_page(void) { return madvise(unmapped, 4096, MADV_SOFT_OFFLINE); }
static long break_a_page(void) { return madvise(unmapped, 4096, MADV_HWPOISON); }
static long mount_it(void) { return mount("none", NOWHERE, "tmpfs", 0, NULL); }
static long unmount_it(void) { return umount2(NOWHERE, 0); }
static long swap_off(void) { return syscall(SYS_swapoff, NOWHERE); }
static long enter_it(void) { return setns(-1, 0); }
static long log_it(void) { return syscall(SYS_syslog, 10, NULL, -1); }
static long load_it(void) { return syscall(SYS_bpf, 0x7fff, NULL, 0); }
static long count_it(void) { return syscall(SYS_perf_event_open, &(struct perf_event_attr){ .size = 1 }, 0, -1, -1, 0); }
static long see_all(void) { return syscall(SYS_fanotify_init, ~0u, 0); }
static long quota(void) { return syscall(SYS_quotactl, -1, NULL, 0, NULL); }
static long handle(void) { return syscall(SYS_open_by_handle_at, -1, NULL, 0); }
/* Of everybody's: whose quota a file counts for. */
static long charge(void) { return ioctl(list, FS_IOC_FSSETXATTR, NULL); }
static long charge_by_call(void) { return syscall(469 /* file_setattr */, list, "", NULL, 0, 0); }
/* The number of a group whose first is not to be seen is 0. */
static long our_group(void)
{
	errno = ESRCH;
	return getpgid(0) == 0 && getsid(0) == 0 ? 0 : -1;
}
static long our_terminal(void)
{
	struct stat st;

	errno = ENOTTY;
	for (int i = 0; i < 3; i++)
		if (fstat(i, &st) < 0 || st.st_rdev != makedev(1, 3))
			return 0;
	return -1;
}
static long start(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	return pid;
}

/* jailed: with the filter; bare: what its namespace alone refuses, 0: nothing */
static const struct {
	const char *name;
	long (*fn)(void);
	int jailed, bare;
} rows[] = {
	{ "a signal to one", signal_one, EPERM, ESRCH },
	{ "a signal to all", signal_all, EPERM, ESRCH },
	{ "tracing", trace, EPERM, ESRCH },
	{ "a descriptor of one", open_it, EPERM, ESRCH },
	{ "limits of one", its_limits, ESRCH, ESRCH },
	{ "a look at one", its_group, ESRCH, ESRCH },
	{ "the group of who started it", our_group, ESRCH, ESRCH },
	{ "what he was started with", our_terminal, ENOTTY, ENOTTY },
	{ "a group's priority", renice, EPERM, 0 },
	{ "another process", start, EPERM, 0 },
	{ "a socket", call, EPERM, 0 },
	{ "a program", run, EPERM, 0 },
	{ "a namespace", leave, EPERM, 0 },
	{ "one of root's inotify instances", watch, EPERM, 0 },
	{ "some of root's watches", poll_many, EPERM, 0 },
	{ "one of root's pending signals", signal_later, EPERM, 0 },
	{ "some of root's pages in pipes", pages, EPERM, 0 },
	{ "memory without an address", memory, EPERM, 0 },
	{ "a page of the host's memory", take_a_page, EPERM, 0 },
	{ "a page that breaks", break_a_page, EPERM, 0 },
	{ "a mount", mount_it, EPERM, 0 },
	{ "the end of one", unmount_it, EPERM, 0 },
	{ "the host's swap", swap_off, EPERM, 0 },
	{ "another's namespace", enter_it, EPERM, 0 },
	{ "the kernel's log", log_it, EPERM, 0 },
	{ "a program for the kernel", load_it, EPERM, 0 },
	{ "a counter", count_it, EPERM, 0 },
	{ "all that is opened", see_all, EPERM, 0 },
	{ "quotas", quota, EPERM, 0 },
	{ "a file by its handle", handle, EPERM, 0 },
	{ "another's quota", charge, EPERM, 0 },
	{ "the same by a call", charge_by_call, ENOSYS, 0 },
	{ "memory behind its list", a_longer_list, EPERM, EPERM },
	{ "memory for its list", a_larger_list, EPERM, EPERM },
};

struct answer {
	struct fail fail;
	int got[ARRAY_LEN(rows)];
};

struct plan {
	const struct filter *filter; /* NULL: without */
	uint64_t caps;
};

static void attempts(const void *arg, int out)
{
	const struct plan *p = arg;
	struct answer a = { .got = { 0 } };
	struct fail f = { 0 };

	if (p->filter && jail_drop(p->caps, NULL, 0, p->filter, &f) < 0)
		_exit(2);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (!p->filter && !rows[i].bare)
			continue;
		errno = 0;
		a.got[i] = rows[i].fn() < 0 ? errno : -1;
	}
	_exit(write(out, &a, sizeof(a)) == sizeof(a) ? 0 : 1);
}

/* jail_run serves a process of its own. */
static void in_a_jail(const struct plan *p, int got[ARRAY_LEN(rows)])
{
	size_t size = ARRAY_LEN(rows) * sizeof(got[0]);
	struct answer a = { .got = { 0 } };
	struct fail f = { 0 };
	int io[2], status = 0;

	assert_int_equal(pipe(io), 0);
	pid_t pid = fork();
	if (pid == 0) {
		int r = jail_run(attempts, p, &(struct jail_bounds){ list, 600 }, &a.fail, sizeof(a), "it", &f);
		_exit(r == 0 && write(io[1], a.got, size) == (ssize_t)size ? 0 : 1);
	}
	close(io[1]);
	assert_int_equal(read(io[0], got, size), (ssize_t)size);
	close(io[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void a_jail_reaches_nobody(void **state)
{
	static struct filter filter;
	int jailed[ARRAY_LEN(rows)], copier[ARRAY_LEN(rows)], bare[ARRAY_LEN(rows)];
	struct fail f = { 0 };

	(void)state;
	if (geteuid() != 0)
		skip();
	victim = getpid();
	list = jail_memory(ROOM);
	assert_true(list > 0);
	assert_int_equal(filter_compile(&filter, FILTER_JAIL, &f), 0);
	in_a_jail(&(struct plan){ &filter, CAP(CHOWN) }, jailed);
	in_a_jail(&(struct plan){ &filter, JAIL_COPIER }, copier);
	in_a_jail(&(struct plan){ NULL, 0 }, bare);
	close(list);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (jailed[i] != rows[i].jailed || copier[i] != rows[i].jailed || bare[i] != rows[i].bare)
			fail_msg("%s: %d and %d, not %d and %d; the copier: %d", rows[i].name, jailed[i], bare[i],
				rows[i].jailed, rows[i].bare, copier[i]);
}

struct end {
	int signal; /* it dies of that; 0: it does not */
	bool mute;  /* it ends without a word */
	int sys;    /* what it says was wrong */
	int status;
	int want; /* what comes of it */
};

static void ends_so(const void *arg, int out)
{
	const struct end *e = arg;
	struct fail f = { .sys = e->sys };

	(void)signal(SIGILL, SIG_DFL); /* the test's library catches it */
	(void)setrlimit(RLIMIT_CORE, &(struct rlimit){ 1, 1 });
	if (e->signal == SIGILL)
		__builtin_trap(); /* what the kernel sends ends the first of a namespace, too */
	if (e->signal == SIGXCPU)
		for (;;)
			;
	memset(f.text, 'x', sizeof(f.text));
	_exit(!e->mute && write(out, &f, sizeof(f)) < 0 ? 1 : e->status);
}

/* Whatever the jail does: a failure has an errno of its own, and a text that ends. */
static void only_a_whole_answer_is_an_end(void **state)
{
	static const struct end ends[] = { { .want = 0 }, { .status = 3, .want = -EIO }, { SIGILL, .want = -EIO },
		{ SIGXCPU, .want = -EIO }, { .mute = true, .want = -EIO }, { .sys = ENOSPC, .want = -ENOSPC },
		{ .sys = ENOSPC, .status = 1, .want = -ENOSPC }, { .sys = -ENOSPC, .want = -EPROTO },
		{ .sys = 1 << 30, .want = -EPROTO } };
	const struct jail_bounds room = { open("/", O_PATH | O_CLOEXEC), 600 };

	(void)state;
	if (geteuid() != 0)
		skip();
	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		pid_t pid = fork();
		int status = 0;
		if (pid == 0) {
			struct fail answer = { 0 }, f = { 0 };
			if (ends[i].signal == SIGXCPU)
				(void)setrlimit(RLIMIT_CPU, &(struct rlimit){ 1, 1 });
			int r = jail_run(ends_so, &ends[i], &room, &answer, sizeof(answer), "it", &f);
			_exit(r == ends[i].want && f.sys == -r && memchr(f.text, 0, sizeof(f.text)) ? 0 : 1);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (status)
			fail_msg("end %zu: %x", i, (unsigned)status);
	}
	close(room.dir);
}

/* Its own counts may be gone with the rest of it: a word that is begun, and a disk that it fills. */
static void stays(const void *arg, int out)
{
	(void)!write(out, arg, 1);
	sleep(30); /* if nobody stops it */
	_exit(1);
}

static void fills(const void *arg, int out)
{
	static const char block[1 << 20];
	int fd = openat(*(const int *)arg, "f", O_WRONLY | O_CREAT, 0600);

	while (write(fd, block, sizeof(block)) > 0)
		;
	stays(arg, out);
}

static int ended(void (*fn)(const void *arg, int out), int dir, int secs)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		struct fail answer = { 0 }, f = { 0 };
		int r = jail_run(fn, &dir, &(struct jail_bounds){ dir, secs }, &answer, sizeof(answer), "it", &f);
		_exit(r == -f.sys && f.sys < 256 ? f.sys : 255);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void a_jail_that_does_not_stop_is_stopped(void **state)
{
	char path[] = "/tmp/sbx-jail.XXXXXX";

	(void)state;
	if (geteuid() != 0)
		skip();
	assert_non_null(mkdtemp(path));
	assert_int_equal(mount("none", path, "tmpfs", 0, "size=64m"), 0);
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(umount2(path, MNT_DETACH), 0);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(ended(stays, dir, 1), ETIMEDOUT);
	assert_int_equal(ended(fills, dir, 60), ENOSPC);
	close(dir);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_jail_reaches_nobody),
		cmocka_unit_test(only_a_whole_answer_is_an_end),
		cmocka_unit_test(a_jail_that_does_not_stop_is_stopped),
	};

	return run_table(tests);
}
