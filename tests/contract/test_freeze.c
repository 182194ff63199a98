/* SPDX-License-Identifier: MIT */
/* Freezing by control group where the kernel offers it: cgroup2's switch and the v1 freezer, on a
 * real process that would rather go on. Skipped for a hierarchy that is not mounted, and without
 * root. */
#include "tests/support/test.h"

#include "sandboxd/priv/cg_freeze.c" /* the broker is no part of what tests are linked with */
#include "sandboxd/priv/sys.c"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The mount point of a hierarchy: by type, and by a word of its options for v1. */
static bool find_mount(const char *type, const char *word, char point[256])
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[4096], at[256], kind[32], super[256];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		const char *dash = strstr(line, " - ");
		if (!dash || sscanf(line, "%*s %*s %*s / %255s", at) != 1 ||
			sscanf(dash, " - %31s %*s %255s", kind, super) != 2)
			continue;
		found = !strcmp(kind, type) && (!word || strstr(super, word));
	}
	if (f)
		fclose(f);
	snprintf(point, 256, "%s", at);
	return found;
}

struct group {
	char path[300];
	struct cg cg;
	pid_t child;
	volatile unsigned long *beats; /* of the child */
};

static void join(const struct group *g, pid_t pid)
{
	char path[340];
	FILE *f;

	snprintf(path, sizeof(path), "%s/one/cgroup.procs", g->path);
	f = fopen(path, "we");
	assert_non_null(f);
	assert_true(fprintf(f, "%d", (int)pid) > 0);
	assert_int_equal(fclose(f), 0);
}

static void open_group(struct group *g, const char *mount, bool v2)
{
	char path[340];
	int fd;

	*g = (struct group){ .cg = CG_NULL };
	snprintf(g->path, sizeof(g->path), "%s/sbx-test-freeze-%d", mount, (int)getpid());
	assert_return_code(mkdir(g->path, 0755), errno);
	snprintf(path, sizeof(path), "%s/one", g->path);
	assert_return_code(mkdir(path, 0755), errno);
	fd = open(g->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_return_code(fd, errno);
	if (v2)
		g->cg.base2 = fd;
	else
		g->cg.base1[CG_FREEZER] = fd;
	g->beats = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(g->beats, MAP_FAILED);
	g->child = fork();
	assert_true(g->child >= 0);
	if (g->child == 0)
		for (;;) {
			++*g->beats;
			usleep(1000);
		}
	join(g, g->child);
}

static void close_group(struct group *g)
{
	char path[340];

	(void)cg_freeze(&g->cg, "one", false);
	kill(g->child, SIGKILL);
	waitpid(g->child, NULL, 0);
	snprintf(path, sizeof(path), "%s/one", g->path);
	for (int i = 0; i < 200 && rmdir(path) < 0 && errno == EBUSY; i++)
		usleep(10000);
	rmdir(g->path);
	close(g->cg.base2 >= 0 ? g->cg.base2 : g->cg.base1[CG_FREEZER]);
	munmap((void *)(uintptr_t)g->beats, 4096);
}

static int reached(const struct group *g, int want)
{
	int r = -1;

	for (int i = 0; i < 5000 && (r = cg_frozen(&g->cg, "one")) != want && r >= 0; i++)
		(void)poll(NULL, 0, 1);
	return r;
}

static bool beats(const struct group *g, int ms)
{
	unsigned long before = *g->beats;

	for (int i = 0; i < ms && *g->beats == before; i++)
		usleep(1000);
	return *g->beats != before;
}

static void try_both_ways(bool v2)
{
	struct group g;
	char mount[256];

	if (geteuid() != 0 || !find_mount(v2 ? "cgroup2" : "cgroup", v2 ? NULL : "freezer", mount))
		skip();
	open_group(&g, mount, v2);
	for (int round = 0; round < 3; round++) {
		int on = cg_freeze(&g.cg, "one", true), r = reached(&g, 1);
		bool stood = on == 0 && r == 1 && !beats(&g, 150);
		int off = cg_freeze(&g.cg, "one", false), s = reached(&g, 0);
		bool went = off == 0 && s == 0 && beats(&g, 5000);
		if (!stood || !went) {
			close_group(&g);
			fail_msg("round %d: freeze %d, %d, stood %d; thaw %d, %d, went %d", round,
				on, r, stood, off, s, went);
		}
	}
	close_group(&g);
}

static void cgroup2_stops_and_sets_going(void **state)
{
	(void)state;
	try_both_ways(true);
}

static void the_v1_freezer_does_too(void **state)
{
	(void)state;
	try_both_ways(false);
}

static void a_group_that_is_not_there_is_an_error(void **state)
{
	struct cg none = CG_NULL, tmp = CG_NULL;

	(void)state;
	assert_int_equal(cg_freeze(&none, "one", true), -EOPNOTSUPP);
	assert_int_equal(cg_frozen(&none, "one"), -EOPNOTSUPP);
	tmp.base2 = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(cg_freeze(&tmp, "sbx-no-such-group", true), -ENOENT);
	assert_int_equal(cg_frozen(&tmp, "sbx-no-such-group"), -ENOENT);
	close(tmp.base2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cgroup2_stops_and_sets_going),
		cmocka_unit_test(the_v1_freezer_does_too),
		cmocka_unit_test(a_group_that_is_not_there_is_an_error),
	};
	return run_table(tests);
}
