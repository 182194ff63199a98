/* SPDX-License-Identifier: MIT */
/* A front that was taken over: what its filter leaves it. Every call has arguments to which the kernel would say
 * something else, so that the answer is the filter's. */
#include "common/sys/core.h"
#include "sandboxd/drop.h"
#include "tests/support/test.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_LATER 463 /* of calls that came after the list was made */
#define LAST_LATER  1024

static long nonsense(long nr) { return syscall(nr, -1L, -1L, -1L, -1L, -1L, -1L); }
static long begun(long pid)
{
	if (pid == 0)
		_exit(0);
	return pid;
}
static long a_program(void) { return nonsense(SYS_execve); }
static long traced(void) { return nonsense(SYS_ptrace); }
static long read_from(void) { return nonsense(SYS_process_vm_readv); }
static long bpf(void) { return nonsense(SYS_bpf); }
static long counted(void) { return nonsense(SYS_perf_event_open); }
static long faults(void) { return nonsense(SYS_userfaultfd); }
static long ring(void) { return nonsense(SYS_io_uring_setup); }
static long mounted(void) { return nonsense(SYS_mount); }
static long key(void) { return nonsense(SYS_add_key); }
static long entered(void) { return nonsense(SYS_setns); }
static long left(void) { return nonsense(SYS_unshare); }
static long quota(void) { return nonsense(SYS_quotactl); }
static long quota_of(void) { return nonsense(443 /* quotactl_fd */); }
static long process(void) { return begun(syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL)); }
static long another_way(void) { return nonsense(SYS_clone3); }

static long a_later_call(void)
{
	for (long nr = FIRST_LATER; nr < LAST_LATER; nr++)
		if (nonsense(nr) != -1 || errno != ENOSYS) {
			errno = (int)nr;
			return -1;
		}
	return -1;
}

static void *nothing(void *arg) { return arg; }
static long a_thread(void)
{
	pthread_t t;

	return pthread_create(&t, NULL, nothing, NULL) == 0 && pthread_join(t, NULL) == 0 ? 0 : -1;
}

/* The host's program for cores is started for a crash of who has 0. */
static long cores(void)
{
	static const struct rlimit none = { 0, 0 };
	struct rlimit l = { 9, 9 };

	if (setrlimit(RLIMIT_CORE, &none) < 0 || syscall(SYS_setrlimit, RLIMIT_CORE, &none) < 0 ||
		prlimit(0, RLIMIT_CORE, &none, NULL) < 0 || prlimit(0, RLIMIT_CORE, NULL, &l) < 0)
		return -1;
	return l.rlim_cur == CORE_NEVER && l.rlim_max == CORE_NEVER ? 0 : -1;
}

static const struct {
	const char *name;
	long (*fn)(void);
	int want; /* 0: it is done */
} rows[] = {
	{ "a program", a_program, EPERM },
	{ "tracing", traced, EPERM },
	{ "another's memory", read_from, EPERM },
	{ "a program for the kernel", bpf, EPERM },
	{ "counters", counted, EPERM },
	{ "faults", faults, EPERM },
	{ "a ring of requests", ring, EPERM },
	{ "a mount", mounted, EPERM },
	{ "a key", key, EPERM },
	{ "another's namespace", entered, EPERM },
	{ "a namespace", left, EPERM },
	{ "quotas", quota, EPERM },
	{ "a file's quotas", quota_of, EPERM },
	{ "a process", process, EPERM },
	{ "a process in another way", another_way, ENOSYS },
	{ "a call of a later kernel", a_later_call, ENOSYS },
	{ "a thread", a_thread, 0 },
	{ "the limit of core files", cores, 0 },
};

static void a_front_gets_nothing_by_its_calls(void **state)
{
	int got[ARRAY_LEN(rows)] = { 0 }, io[2], status = 0;
	struct err e = { 0 };

	(void)state;
	if (geteuid() != 0)
		skip();
	assert_int_equal(pipe(io), 0);
	pid_t pid = fork();
	if (pid == 0) {
		if (drop_privileges(DROP_OWN_ID, DROP_OWN_ID, &e) < 0)
			_exit(1);
		for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
			errno = 0;
			got[i] = rows[i].fn() < 0 ? errno ? errno : -1 : 0;
		}
		_exit(write(io[1], got, sizeof(got)) == sizeof(got) ? 0 : 2);
	}
	close(io[1]);
	assert_int_equal(read(io[0], got, sizeof(got)), sizeof(got));
	close(io[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (got[i] != rows[i].want)
			fail_msg("%s: %d, not %d", rows[i].name, got[i], rows[i].want);
}

int main(void)
{
	static const struct CMUnitTest tests[] = { cmocka_unit_test(a_front_gets_nothing_by_its_calls) };

	return run_table(tests);
}
