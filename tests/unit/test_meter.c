/* SPDX-License-Identifier: MIT */
/* What is read from control groups, on folders that look like the three layouts: v2, hybrid, v1.
 * The account of processes is read from this test's own. */
#include "tests/support/test.h"

#include "sandboxd/priv/cg_meter.c" /* the broker is no part of what tests are linked with */

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GROUP "n7"

static char dir[64];
static struct cg cg;

static void write_text(int at, const char *path, const char *text)
{
	int fd = openat(at, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static int base(const char *name)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	assert_int_equal(mkdir(path, 0700), 0);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(mkdirat(fd, GROUP, 0700), 0);
	return fd;
}

static int open_folder(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/meter-XXXXXX");
	assert_non_null(mkdtemp(dir));
	cg = (struct cg)CG_NULL;
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static int drop_folder(void **state)
{
	(void)state;
	for (int c = 0; c < CG_CTRLS; c++)
		if (cg.base1[c] >= 0)
			close(cg.base1[c]);
	if (cg.base2 >= 0)
		close(cg.base2);
	return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void make_v2(void)
{
	cg.mode = CG_V2;
	cg.base2 = base("v2");
	assert_int_equal(mkdirat(cg.base2, GROUP "/guest", 0700), 0);
	write_text(cg.base2, GROUP "/guest/cpu.stat",
		"usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n");
	write_text(cg.base2, GROUP "/guest/memory.current", "10485760\n");
	write_text(cg.base2, GROUP "/guest/memory.max", "1073741824\n");
	write_text(cg.base2, GROUP "/guest/memory.stat",
		"anon 4096\nfile 8192\ninactive_anon 1\nactive_file 2\ninactive_file 485760\n");
	write_text(cg.base2, GROUP "/guest/io.stat",
		"8:0 rbytes=100 wbytes=2000 rios=1 wios=2 dbytes=0 dios=0\n"
		"7:3 rbytes=90 wbytes=1900 rios=1 wios=2 dbytes=0 dios=0\n"
		"259:1 rbytes=5 wbytes=7 rios=1 wios=2 dbytes=0 dios=0\n");
	write_text(cg.base2, GROUP "/guest/pids.current", "4\n");
	assert_int_equal(mkdirat(cg.base2, GROUP "/svc", 0700), 0);
	write_text(cg.base2, GROUP "/svc/memory.stat", "anon 7000\nfile 9000\nshmem 4096\n");
}

/* Guest and file worker have taken more together than the guest may. */
static void make_v2_full(void)
{
	make_v2();
	write_text(cg.base2, GROUP "/svc/memory.stat", "shmem 1073741824\n");
}

/* The controllers of v1; processor time is not among these. */
static void make_controllers(void)
{
	char self[32];

	cg.base1[CG_MEMORY] = base("memory");
	cg.base1[CG_CPU] = base("cpu");
	cg.base1[CG_PIDS] = base("pids");
	assert_int_equal(mkdirat(cg.base1[CG_MEMORY], GROUP "/guest", 0700), 0);
	write_text(cg.base1[CG_MEMORY], GROUP "/guest/memory.usage_in_bytes", "20971520\n");
	write_text(cg.base1[CG_MEMORY], GROUP "/guest/memory.limit_in_bytes", "536870912\n");
	write_text(cg.base1[CG_MEMORY], GROUP "/guest/memory.stat",
		"cache 1\ninactive_file 999\ntotal_cache 2\ntotal_inactive_file 971520\n");
	write_text(cg.base1[CG_MEMORY], GROUP "/memory.usage_in_bytes", "99999999\n");
	write_text(cg.base1[CG_MEMORY], GROUP "/memory.stat", "shmem 8192\ntotal_shmem 77777\n");
	write_text(cg.base1[CG_PIDS], GROUP "/pids.current", "3\n");
	snprintf(self, sizeof(self), "%d\n", (int)getpid());
	write_text(cg.base1[CG_PIDS], GROUP "/cgroup.procs", self);
}

static void make_hybrid(void)
{
	make_controllers();
	cg.mode = CG_HYBRID;
	cg.base2 = base("v2");
	assert_int_equal(mkdirat(cg.base2, GROUP "/guest", 0700), 0);
	write_text(cg.base2, GROUP "/guest/cpu.stat", "usage_usec 42\n");
}

static void make_v1(void)
{
	make_controllers();
	cg.mode = CG_V1;
	write_text(cg.base1[CG_CPU], GROUP "/cpuacct.usage", "123456789\n");
}

static void make_v1_apart(void)
{
	make_controllers();
	cg.mode = CG_V1;
	cg.base1[CG_CPUACCT] = base("cpuacct");
	write_text(cg.base1[CG_CPUACCT], GROUP "/cpuacct.usage", "987654321\n");
}

/* A sandbox that a broker made which had no group for the worker. */
static void make_hybrid_old(void)
{
	make_hybrid();
	write_text(cg.base1[CG_MEMORY], GROUP "/memory.limit_in_bytes", "268435456\n");
	write_text(cg.base1[CG_MEMORY], GROUP "/memory.stat", "shmem 8192\ntotal_inactive_file 99\n");
	assert_int_equal(renameat(cg.base1[CG_MEMORY], GROUP "/guest", cg.base1[CG_MEMORY], "elsewhere"), 0);
}

static void make_hybrid_bare(void)
{
	make_hybrid();
	assert_int_equal(unlinkat(cg.base1[CG_MEMORY], GROUP "/memory.stat", 0), 0);
	assert_int_equal(unlinkat(cg.base1[CG_MEMORY], GROUP "/guest/memory.stat", 0), 0);
	assert_int_equal(unlinkat(cg.base1[CG_PIDS], GROUP "/pids.current", 0), 0);
	write_text(cg.base1[CG_PIDS], GROUP "/cgroup.procs", "");
}

/* Numbers that are no numbers. */
static void make_nonsense(void)
{
	make_v2();
	write_text(cg.base2, GROUP "/guest/memory.current", "max\n");
	write_text(cg.base2, GROUP "/guest/memory.max", "max\n");
	write_text(cg.base2, GROUP "/guest/io.stat", "8:0 \n\nrbytes=\n8:16 rbytes=x wbytes=9\n");
	write_text(cg.base2, GROUP "/guest/pids.current", "");
}

#define OWN -2 /* at least what this process has read or written */

static const struct row {
	const char *name;
	void (*make)(void);
	int64_t want[CG_FIGURES];
} rows[] = {
	{ "v2 has all in one folder; loop devices are counted at the disk below", make_v2,
		{ 1500000000, 10004096, 1073741824, 105, 2007, 3 } },
	{ "what the file worker took counts, up to the limit", make_v2_full,
		{ 1500000000, 1073741824, 1073741824, 105, 2007, 3 } },
	{ "hybrid takes the time from cgroup2, the rest from v1", make_hybrid,
		{ 42000, 20008192, 536870912, OWN, OWN, 2 } },
	{ "where the worker has no group the guest's is the sandbox's", make_hybrid_old,
		{ 42000, 99999900, 268435456, OWN, OWN, 2 } },
	{ "v1 takes the time from cpuacct in the folder of cpu", make_v1,
		{ 123456789, 20008192, 536870912, OWN, OWN, 2 } },
	{ "v1 takes the time from cpuacct where it is apart", make_v1_apart,
		{ 987654321, 20008192, 536870912, OWN, OWN, 2 } },
	{ "what is not there is unknown, not zero", make_hybrid_bare,
		{ 42000, 20971520, 536870912, 0, 0, -1 } },
	{ "what cannot be understood is unknown", make_nonsense, { 1500000000, -1, -1, 0, 9, -1 } },
};

static int64_t own_io(const char *key)
{
	FILE *f = fopen("/proc/self/io", "re");
	char line[128];
	long long v = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, key, strlen(key)))
			v = strtoll(line + strlen(key), NULL, 10);
	fclose(f);
	return v;
}

static void check_row(void **state)
{
	const struct row *row = *state;
	int64_t got[CG_FIGURES], before[CG_FIGURES] = {
		[DISK_READ] = own_io("read_bytes: "), [DISK_WRITE] = own_io("write_bytes: ")
	};

	row->make();
	assert_int_equal(cg_meter(&cg, GROUP, got), 0);
	for (int i = 0; i < CG_FIGURES; i++)
		if (row->want[i] == OWN)
			assert_true(got[i] >= before[i]);
		else if (got[i] != row->want[i])
			fail_msg("figure %d is %lld, wanted %lld", i, (long long)got[i],
				(long long)row->want[i]);
}

static void a_group_that_is_gone_says_so(void **state)
{
	int64_t got[CG_FIGURES];

	(void)state;
	make_hybrid();
	assert_int_equal(cg_meter(&cg, "n8", got), -ENOENT);
}

int main(void)
{
	struct CMUnitTest tests[ARRAY_LEN(rows) + 1];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		tests[i] = (struct CMUnitTest){ .name = rows[i].name,
			.test_func = check_row,
			.setup_func = open_folder,
			.teardown_func = drop_folder,
			.initial_state = (void *)(uintptr_t)&rows[i] };
	tests[ARRAY_LEN(rows)] = (struct CMUnitTest)cmocka_unit_test_setup_teardown(
		a_group_that_is_gone_says_so, open_folder, drop_folder);
	cmocka_set_test_filter(getenv("T"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
