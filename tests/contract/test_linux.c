/* SPDX-License-Identifier: MIT */
/* The guest contract on the linux backend with a real broker, and what is special about it: nothing
 * stays behind, whatever fails or is killed. Skipped with a reason when not root. */
#include "tests/support/descriptors.h"
#include "tests/support/linux_rig.h"
#include "tests/support/patience.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct linux_rig rig;

static void pause_ms(int ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

	nanosleep(&ts, NULL);
}

static void spec_for(struct backend_spec *s, const char *id, int64_t memory_mb, int64_t disk_mb)
{
	*s = (struct backend_spec){ .generation = 3,
		.image = "base",
		.chain = &guest_rig_base,
		.hostname = "box",
		.cpus = 1,
		.memory_mb = memory_mb,
		.disk_mb = disk_mb };
	snprintf(s->id, sizeof(s->id), "%s", id);
}

static void make_run_dir(const char *id)
{
	char path[128];

	snprintf(path, sizeof(path), "run/%s", id);
	assert_int_equal(mkdirat(rig.rig.state_dirfd, path, 0700), 0);
}

static void assert_output(struct box *b, const char *script, const char *want)
{
	_cleanup_(spooled_free_p) struct spooled o = { 0 };

	box_run(b, script, &o);
	if (strcmp(o.out[0], want) != 0)
		fail_msg("%s: got \"%s\" \"%s\", wanted \"%s\"", script, o.out[0], o.out[1], want);
}

/* --- inside ---------------------------------------------------------------------------------- */

static const struct {
	const char *script, *want;
} inside[] = {
	{ "id -u; id -g; id -un; pwd; echo $HOME $USER", "1001\n1001\nsandbox\n/sandbox/home\n"
							 "/sandbox/home sandbox\n" },
	{ "hostname", "box\n" },
	{ "touch /sandbox/home/x /tmp/x /dev/shm/x && echo ok", "ok\n" },
	{ "cat /etc/resolv.conf", "nameserver 127.0.0.53\n" },
	{ "grep -c 127.0.0.1 /etc/hosts", "1\n" },
	{ "[ $(ls -d /proc/[0-9]* | wc -l) -le 5 ] && echo few", "few\n" },
	{ "cat /proc/1/comm", "memfd:sbx-init\n" },
	{ "grep -E 'SigIgn|SigBlk' /proc/self/status | tr -d '\\t'",
		"SigBlk:0000000000000000\nSigIgn:0000000000000000\n" },
	{ "umask", "0022\n" },
	{ "ls /proc/self/fd | wc -l", "4\n" }, /* 0, 1, 2 and ls's own */
	{ "ifconfig lo | grep -c 'UP LOOPBACK'", "1\n" },
	{ "(echo hi | nc -l -p 80 & sleep 0.3; nc 127.0.0.1 80 </dev/null)", "hi\n" },
	{ "cat /proc/self/cgroup | grep -v '/$' | grep -c sandboxd", "0\n" },
	{ "stat -c %a /tmp", "1777\n" },
	{ "stat -c '%u %a' /sandbox/home", "1001 755\n" },
	{ "yes | head -n1", "y\n" },
	{ "ls -d /workspace 2>&1", "ls: /workspace: No such file or directory\n" },
	{ "nproc >/dev/null && cat /sys/devices/system/cpu/online | grep -c 0", "1\n" },
};

static void a_sandbox_looks_as_promised(void **state)
{
	struct box *b = box_new(&rig.rig);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(inside); i++)
		assert_output(b, inside[i].script, inside[i].want);
	box_free(b);
}

/* --- limits ---------------------------------------------------------------------------------- */

static void the_disk_limit_holds(void **state)
{
	struct box *b = box_new(&rig.rig);
	_cleanup_(spooled_free_p) struct spooled o = { 0 };

	(void)state;
	box_run(b,
		"dd if=/dev/zero of=big bs=1M count=200; ls -l big | awk '{print ($5 <= 67108864)}'",
		&o);
	assert_true(strstr(o.out[1], "No space left") || strstr(o.out[1], "quota exceeded"));
	assert_string_equal(o.out[0], "1\n");
	assert_output(b, "rm big; echo still here > small && cat small", "still here\n");
	box_free(b);
}

static void the_memory_limit_ends_one_process_and_not_the_sandbox(void **state)
{
	struct box *b = box_new(&rig.rig);
	_cleanup_(spooled_free_p) struct spooled o = { 0 };

	(void)state;
	const char *const argv[] = { "tail", "-c", "600000000", "/dev/zero", NULL };
	struct guest_start s = box_cmd(b, argv);
	struct err e = ERR_NULL;
	uint32_t num = box_start(b, &s, &e);
	assert_true(num && box_wait_exit(b, num, 20000));
	box_read(b, num, &o);
	assert_int_equal(o.exit_code, 137);
	assert_int_equal(o.flags & 1, 1); /* and it is known why */
	assert_output(b, "echo alive", "alive\n");
	box_free(b);
}

static void folders_in_memory_have_a_size(void **state)
{
	static const char *const paths[] = { "/tmp", "/dev/shm" };
	struct box *b = box_new(&rig.rig); /* 256 MiB of memory */
	char script[128];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		_cleanup_(spooled_free_p) struct spooled o = { 0 };
		snprintf(script, sizeof(script), "dd if=/dev/zero of=%s/x bs=1M count=200; rm %s/x",
			paths[i], paths[i]);
		box_run(b, script, &o);
		assert_non_null(strstr(o.out[1], "No space left"));
	}
	assert_output(b, "echo alive", "alive\n");
	box_free(b);
}

/* Names run out, or, where their number is not limited, take space that is. */
static void many_empty_files_are_their_own_sandboxs_trouble(void **state)
{
	struct box *b = box_new(&rig.rig), *other = box_new(&rig.rig);
	_cleanup_(spooled_free_p) struct spooled o = { 0 };
	int64_t used = 0, size;

	(void)state;
	box_run(b, "i=0; while [ $i -lt 20000 ]; do : > f$i || break; i=$((i+1)); done; echo $i", &o);
	/* a disk may count only what it has committed */
	for (int ms = 0; atol(o.out[0]) == 20000 && used <= 20000 * 200; ms += 100) {
		assert_true(ms < patience_ms(60000));
		usleep(100000);
		assert_int_equal(
			rig.rig.ops->disk_usage(rig.rig.backend, b->id, 0, &used, &size, NULL), 0);
	}
	assert_output(other, ": > mine && echo fine", "fine\n");
	box_free(b);
	box_free(other);
}

/* One of the first two numbers in a group's file, from 0; -1: it is not there. */
static long number_in(const char *group, const char *file, int which)
{
	char path[400], line[128] = "";
	long n[2] = { -1, -1 };
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", group, file);
	f = fopen(path, "re");
	if (f && fgets(line, sizeof(line), f))
		(void)sscanf(line, "%ld %ld", &n[0], &n[1]);
	if (f)
		fclose(f);
	return n[which];
}

/* What the group of init may use in a period, and how long that is, in microseconds; -1: no controller here. */
static void share_of(const char *id, long *quota, long *period)
{
	char path[400], group[300], line[128];
	FILE *f;

	*quota = *period = -1;
	snprintf(path, sizeof(path), "/proc/%d/cgroup", rig.rig.part(&rig.rig, id, RIG_INIT));
	f = fopen(path, "re");
	while (f && *quota < 0 && fgets(line, sizeof(line), f)) {
		char *v1 = strstr(line, ":cpu:");
		line[strcspn(line, "\n")] = 0;
		if (v1) {
			snprintf(group, sizeof(group), "/sys/fs/cgroup/cpu%s", v1 + 5);
			*quota = number_in(group, "cpu.cfs_quota_us", 0);
			*period = number_in(group, "cpu.cfs_period_us", 0);
		} else if (strncmp(line, "0::", 3) == 0) {
			snprintf(group, sizeof(group), "/sys/fs/cgroup%s/..", line + 3);
			*quota = number_in(group, "cpu.max", 0);
			*period = number_in(group, "cpu.max", 1);
		}
	}
	if (f)
		fclose(f);
}

/* In short pieces, so that nobody beside it stands still for long; the smallest shares in longer ones. */
static void the_processor_limit_holds(void **state)
{
	static const struct {
		double cpus;
		long quota, period;
	} rows[] = { { 0.5, 5000, 10000 }, { 2, 20000, 10000 }, { 0.1, 1000, 10000 }, { 0.05, 1000, 20000 },
		{ 0.001, 1000, 1000000 } };
	struct backend_spec s;
	struct err e = ERR_NULL;
	long quota, period;
	char id[32];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		snprintf(id, sizeof(id), "sbx_00000000000c0de%zu", i);
		make_run_dir(id);
		spec_for(&s, id, 64, 64);
		s.cpus = rows[i].cpus;
		assert_int_equal(linux_backend.create(rig.rig.backend, &s, NULL, &e), 0);
		share_of(id, &quota, &period);
		if (quota >= 0) {
			assert_int_equal(quota, rows[i].quota);
			assert_int_equal(period, rows[i].period);
		}
		assert_int_equal(linux_backend.destroy(rig.rig.backend, id, &e), 0);
	}
}

static void a_fork_bomb_meets_the_process_limit(void **state)
{
	struct box *b = box_new(&rig.rig);
	uint32_t num;

	(void)state;
	num = box_sh(b, "b() { b | b & }; b; sleep 1");
	assert_true(box_wait_exit(b, num, 20000));
	box_free(b); /* and all of it can be ended */
}

/* --- nothing stays ---------------------------------------------------------------------------- */

static void ended_sandboxes_leave_nothing(void **state)
{
	struct leftovers before, after;
	struct box *b[8];

	(void)state;
	linux_rig_count(&rig, &before);
	for (size_t i = 0; i < ARRAY_LEN(b); i++)
		b[i] = box_new(&rig.rig);
	for (size_t i = 0; i < ARRAY_LEN(b); i++)
		box_sh(b[i], "setsid sleep 1000 & sleep 1000");
	for (size_t i = 0; i < ARRAY_LEN(b); i++)
		box_free(b[i]);
	assert_true(linux_rig_wait_clean(&rig, &before, 20000));
	linux_rig_count(&rig, &after);
	assert_int_equal(after.mounts, before.mounts);
}

static void destroy_returns_when_no_guest_process_runs(void **state)
{
	struct box *b = box_new(&rig.rig);
	char mark[64];

	(void)state;
	snprintf(mark, sizeof(mark), "sleep 9%05d", (int)getpid() % 100000);
	box_sh(b, mark);
	assert_true(wait_count(mark, 1, 5000));
	box_free(b);
	assert_int_equal(host_count(mark), 0);
}

static void a_failed_create_leaves_nothing(void **state)
{
	static const char id[] = "sbx_00000000000fa11d";
	struct backend_spec s;
	struct err e = ERR_NULL;
	struct leftovers before;

	(void)state;
	linux_rig_count(&rig, &before);
	spec_for(&s, id, 64, 64); /* its run folder does not exist: fails at the last step */
	assert_int_equal(linux_backend.create(rig.rig.backend, &s, NULL, &e), -1);
	assert_int_equal(e.code, ERR_INTERNAL);
	assert_true(linux_rig_wait_clean(&rig, &before, 10000));
	make_run_dir(id);
	e = (struct err)ERR_NULL;
	assert_int_equal(linux_backend.create(rig.rig.backend, &s, NULL, &e), 0);
	assert_int_equal(linux_backend.destroy(rig.rig.backend, id, &e), 0);
}

static void what_the_front_sends_is_checked(void **state)
{
	static const char *const ids[] = { "sbx_../x", "sbx_", "sb_x", "sbx_A", "sbx_a/b", "", "..",
		"sbx_a b" };
	struct backend_spec s;
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		e = (struct err)ERR_NULL;
		spec_for(&s, ids[i], 64, 64);
		assert_int_equal(linux_backend.create(rig.rig.backend, &s, NULL, &e), -1);
		e = (struct err)ERR_NULL;
		assert_int_equal(linux_backend.destroy(rig.rig.backend, ids[i], &e), -1);
		assert_false(linux_backend.alive(rig.rig.backend, ids[i], 0, NULL, NULL));
	}
}

static void a_run_folder_that_is_a_link_is_refused(void **state)
{
	static const char id[] = "sbx_0000000000001196";
	char path[64];
	struct backend_spec s;
	struct err e = ERR_NULL;
	struct stat st;

	(void)state;
	snprintf(path, sizeof(path), "run/%s", id);
	assert_int_equal(symlinkat("/tmp", rig.rig.state_dirfd, path), 0);
	spec_for(&s, id, 64, 64);
	assert_int_equal(linux_backend.create(rig.rig.backend, &s, NULL, &e), -1);
	assert_int_equal(lstat("/tmp/sock", &st), -1);
	assert_int_equal(unlinkat(rig.rig.state_dirfd, path, 0), 0);
}

struct racer {
	char id[40];
	int r;
	struct err e;
};

static void *create_in_thread(void *arg)
{
	struct racer *k = arg;
	struct backend_spec s;

	spec_for(&s, k->id, 80, 64);
	k->r = linux_backend.create(rig.rig.backend, &s, NULL, &k->e);
	return NULL;
}

/* Whichever comes first, afterwards there is no such sandbox. */
static void a_destroy_during_a_create_wins(void **state)
{
	struct leftovers before;

	(void)state;
	linux_rig_count(&rig, &before);
	for (int i = 0; i < 8; i++) {
		struct racer k = { .e = ERR_NULL };
		struct err e = ERR_NULL;
		pthread_t t;
		snprintf(k.id, sizeof(k.id), "sbx_%016x", 0x7000 + i);
		make_run_dir(k.id);
		assert_int_equal(pthread_create(&t, NULL, create_in_thread, &k), 0);
		pause_ms(i);
		assert_int_equal(linux_backend.destroy(rig.rig.backend, k.id, &e), 0);
		pthread_join(t, NULL);
		if (k.r == 0) /* it came after the destroy */
			assert_int_equal(linux_backend.destroy(rig.rig.backend, k.id, &e), 0);
		assert_false(linux_backend.alive(rig.rig.backend, k.id, 3, NULL, NULL));
	}
	assert_true(linux_rig_wait_clean(&rig, &before, 10000));
}

static void destroy_is_idempotent(void **state)
{
	struct err e = ERR_NULL;

	(void)state;
	assert_int_equal(linux_backend.destroy(rig.rig.backend, "sbx_00000000deadbeef", &e), 0);
	assert_int_equal(linux_backend.destroy(rig.rig.backend, "sbx_00000000deadbeef", &e), 0);
}

/* --- the grip: how the front ends a guest by itself ------------------------------------------- */

static void a_grip_ends_the_guest_alone(void **state)
{
	enum { RUNS, SLEEPS, ADOPTED, WAYS };
	struct leftovers before;

	(void)state;
	linux_rig_count(&rig, &before);
	for (int way = RUNS; way < WAYS; way++) {
		struct backend_grip g = BACKEND_GRIP_NULL;
		struct err e = ERR_NULL;
		struct backend_spec s;
		char id[40];
		snprintf(id, sizeof(id), "sbx_%016x", 0x9000 + way);
		make_run_dir(id);
		spec_for(&s, id, 64, 64);
		s.grip = way == ADOPTED ? NULL : &g;
		if (linux_backend.create(rig.rig.backend, &s, NULL, &e) < 0)
			fail_msg("%s", e.msg);
		if (way == ADOPTED) /* as after a restart */
			(void)linux_backend.alive(rig.rig.backend, id, 3, &g, NULL);
		if (g.kill < 0) { /* no cgroup2 */
			assert_int_equal(linux_backend.destroy(rig.rig.backend, id, &e), 0);
			continue;
		}
		if (way == SLEEPS)
			assert_int_equal(linux_backend.freeze(rig.rig.backend, id, true, &e), 0);
		assert_false(backend_grip_gone(&g, 0));
		assert_true(linux_backend.alive(rig.rig.backend, id, 3, NULL, NULL));
		backend_grip_kill(&g);
		assert_true(backend_grip_gone(&g, 30000));
		struct backend_grip none;
		assert_false(linux_backend.alive(rig.rig.backend, id, 3, &none, NULL));
		assert_int_equal(none.kill, -1);
		assert_int_equal(linux_backend.destroy(rig.rig.backend, id, &e), 0);
		backend_grip_close(&g);
	}
	assert_true(linux_rig_wait_clean(&rig, &before, 10000));
}

/* What it may do is write into one file and read another: neither leads to anything else. */
static void a_grip_is_good_for_nothing_else(void **state)
{
	struct backend_grip g = BACKEND_GRIP_NULL;
	static const char id[] = "sbx_0000000000009100";
	struct err e = ERR_NULL;
	struct backend_spec s;
	char byte;

	(void)state;
	make_run_dir(id);
	spec_for(&s, id, 64, 64);
	s.grip = &g;
	if (linux_backend.create(rig.rig.backend, &s, NULL, &e) < 0)
		fail_msg("%s", e.msg);
	if (g.kill >= 0) {
		assert_int_equal(fcntl(g.kill, F_GETFL) & O_ACCMODE, O_WRONLY);
		assert_int_equal(fcntl(g.events, F_GETFL) & O_ACCMODE, O_RDONLY);
		assert_int_equal(fcntl(g.kill, F_GETFD), FD_CLOEXEC);
		assert_int_equal(fcntl(g.events, F_GETFD), FD_CLOEXEC);
		assert_int_equal(read(g.kill, &byte, 1), -1);
		assert_int_equal(write(g.events, "1", 1), -1);
		assert_int_equal(openat(g.kill, "..", O_PATH), -1);
		assert_int_equal(openat(g.events, "..", O_PATH), -1);
	}
	assert_int_equal(linux_backend.destroy(rig.rig.backend, id, &e), 0);
	backend_grip_close(&g);
}

/* --- many ------------------------------------------------------------------------------------ */

static void *make_and_end(void *arg)
{
	int n = *(int *)arg;
	struct backend_spec s;
	struct err e = ERR_NULL;
	char id[40];

	for (int i = 0; i < 6; i++) {
		snprintf(id, sizeof(id), "sbx_%08x%08x", n, i);
		make_run_dir(id);
		spec_for(&s, id, 256, 64);
		if (linux_backend.create(rig.rig.backend, &s, NULL, &e) < 0 ||
			!linux_backend.alive(rig.rig.backend, id, 3, NULL, NULL) ||
			linux_backend.destroy(rig.rig.backend, id, &e) < 0 ||
			linux_backend.alive(rig.rig.backend, id, 3, NULL, NULL))
			return strdup(e.msg);
	}
	return NULL;
}

static void many_threads_make_and_end_sandboxes_at_once(void **state)
{
	pthread_t t[8];
	int n[8];
	struct leftovers before;

	(void)state;
	linux_rig_count(&rig, &before);
	for (int i = 0; i < 8; i++) {
		n[i] = 100 + i;
		assert_int_equal(pthread_create(&t[i], NULL, make_and_end, &n[i]), 0);
	}
	for (int i = 0; i < 8; i++) {
		void *r = NULL;
		pthread_join(t[i], &r);
		if (r)
			fail_msg("%s", (char *)r);
	}
	assert_true(linux_rig_wait_clean(&rig, &before, 20000));
}

static void fifty_sandboxes_live_at_once(void **state)
{
	enum { MANY = 50 };
	struct box *b[MANY];
	struct leftovers before;

	(void)state;
	linux_rig_count(&rig, &before);
	for (int i = 0; i < MANY; i++)
		b[i] = box_new(&rig.rig);
	for (int i = 0; i < MANY; i += 7)
		assert_output(b[i], "echo here", "here\n");
	for (int i = 0; i < MANY; i++)
		box_free(b[i]);
	assert_true(linux_rig_wait_clean(&rig, &before, 30000));
}

/* --- the broker dies ---------------------------------------------------------------------------
 */

static void sandboxes_outlive_the_broker(void **state)
{
	struct box *b = box_new(&rig.rig), *gone = box_new(&rig.rig);
	const char *keep[] = { b->id };
	struct err e = ERR_NULL;
	struct leftovers before;

	(void)state;
	linux_rig_count(&rig, &before);
	linux_rig_kill_broker(&rig);
	assert_output(b, "echo alone", "alone\n");
	linux_rig_restart(&rig);
	assert_true(linux_backend.alive(rig.rig.backend, b->id, b->generation, NULL, NULL));
	assert_false(linux_backend.alive(rig.rig.backend, b->id, b->generation + 1, NULL, NULL));
	if (linux_backend.sweep(rig.rig.backend, keep, 1, &e) < 0)
		fail_msg("%s", e.msg);
	assert_true(linux_backend.alive(rig.rig.backend, b->id, b->generation, NULL, NULL));
	assert_false(linux_backend.alive(rig.rig.backend, gone->id, gone->generation, NULL, NULL));
	assert_true(box_wait_gone(gone, 5000));
	assert_output(b, "echo again", "again\n");
	box_free(gone);
	box_free(b);
	assert_true(linux_rig_wait_clean(&rig, &before, 10000));
}

/* Whoever asks it whether one is there learns that it cannot say. (It may have got one back meanwhile.) */
static void a_broker_without_descriptors_says_of_nobody_that_he_is_gone(void **state)
{
	struct box *b = box_new(&rig.rig);
	struct rlimit usual = descriptors_leave(rig.broker, 0);
	struct err e = ERR_NULL;
	int alive;

	(void)state;
	alive = linux_backend.alive(rig.rig.backend, b->id, b->generation, NULL, &e);
	descriptors_restore(rig.broker, &usual);
	assert_true(alive == 1 || (alive == -1 && e.code == ERR_UNAVAILABLE));
	assert_int_equal(linux_backend.alive(rig.rig.backend, b->id, b->generation, NULL, NULL), 1);
	assert_int_equal(linux_backend.alive(rig.rig.backend, b->id, b->generation + 1, NULL, NULL), 0);
	box_free(b);
}

/* The group that the shim of a sandbox makes groups in, below a mount of cgroup2. */
static bool guest_group(struct box *b, const char *mount, char *buf, size_t size)
{
	char path[64], line[256], *end = NULL;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)rig.rig.part(&rig.rig, b->id, RIG_SHIM));
	FILE *f = fopen(path, "re");
	while (f && !end && fgets(line, sizeof(line), f))
		if (strncmp(line, "0::/", 4) == 0)
			end = strstr(line, "/svc\n");
	if (f)
		fclose(f);
	assert_non_null(end);
	*end = '\0';
	snprintf(buf, size, "%s%s/guest", mount, line + 3);
	return access(buf, F_OK) == 0;
}

static void a_sandbox_has_one_level_of_control_groups(void **state)
{
	struct box *b = box_new(&rig.rig);
	char group[400], below[410], deeper[420];

	(void)state;
	if (!guest_group(b, "/sys/fs/cgroup", group, sizeof(group)) &&
		!guest_group(b, "/sys/fs/cgroup/unified", group, sizeof(group))) {
		box_free(b);
		skip(); /* no cgroup2 */
	}
	snprintf(below, sizeof(below), "%s/one", group);
	snprintf(deeper, sizeof(deeper), "%s/two", below);
	assert_return_code(mkdir(below, 0755), errno);
	assert_int_equal(mkdir(deeper, 0755), -1);
	assert_int_equal(errno, EAGAIN);
	assert_return_code(rmdir(below), errno);
	box_free(b);
}

static void *create_quietly(void *arg)
{
	struct backend_spec s;
	struct err e = ERR_NULL;

	spec_for(&s, arg, 96, 64);
	(void)linux_backend.create(rig.rig.backend, &s, NULL, &e);
	return NULL;
}

/* A sweep is answered before the files are gone. */
static void rig_wait_empty(void)
{
	struct leftovers l;

	for (int ms = patience_ms(10000); ms > 0; ms -= 20) {
		linux_rig_count(&rig, &l);
		if (!l.areas && !l.records && !l.groups)
			return;
		pause_ms(20);
	}
	fail_msg("%u areas, %u records, %u groups", l.areas, l.records, l.groups);
}

static void a_broker_killed_in_the_middle_leaves_nothing(void **state)
{
	struct err e = ERR_NULL;

	(void)state;
	for (int round = 0; round < 12; round++) {
		char id[40];
		pthread_t t;
		snprintf(id, sizeof(id), "sbx_%016x", 0x5000 + round);
		make_run_dir(id);
		assert_int_equal(pthread_create(&t, NULL, create_quietly, id), 0);
		pause_ms(round * 3);
		kill(rig.broker, SIGKILL);
		pthread_join(t, NULL);
		linux_rig_kill_broker(&rig);
		linux_rig_restart(&rig);
		if (linux_backend.sweep(rig.rig.backend, NULL, 0, &e) < 0)
			fail_msg("%s", e.msg);
		rig_wait_empty();
	}
}

static void an_idle_sandbox_is_small(void **state)
{
	struct box *b = box_new(&rig.rig);
	long kib = 0;

	(void)state;
	for (int part = RIG_SHIM; part <= RIG_INIT; part++) {
		char path[64], line[256];
		snprintf(path, sizeof(path), "/proc/%d/smaps_rollup",
			rig.rig.part(&rig.rig, b->id, part));
		FILE *f = fopen(path, "re");
		long one;
		while (f && fgets(line, sizeof(line), f))
			if (sscanf(line, "Pss: %ld", &one) == 1)
				kib += one;
		if (f)
			fclose(f);
	}
	box_free(b);
	assert_in_range(kib, 1, 512);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_sandbox_looks_as_promised),
	cmocka_unit_test(the_disk_limit_holds),
	cmocka_unit_test(the_memory_limit_ends_one_process_and_not_the_sandbox),
	cmocka_unit_test(folders_in_memory_have_a_size),
	cmocka_unit_test(many_empty_files_are_their_own_sandboxs_trouble),
	cmocka_unit_test(the_processor_limit_holds),
	cmocka_unit_test(a_fork_bomb_meets_the_process_limit),
	cmocka_unit_test(ended_sandboxes_leave_nothing),
	cmocka_unit_test(destroy_returns_when_no_guest_process_runs),
	cmocka_unit_test(a_failed_create_leaves_nothing),
	cmocka_unit_test(what_the_front_sends_is_checked),
	cmocka_unit_test(a_run_folder_that_is_a_link_is_refused),
	cmocka_unit_test(destroy_is_idempotent),
	cmocka_unit_test(a_grip_ends_the_guest_alone),
	cmocka_unit_test(a_grip_is_good_for_nothing_else),
	cmocka_unit_test(a_destroy_during_a_create_wins),
	cmocka_unit_test(many_threads_make_and_end_sandboxes_at_once),
	cmocka_unit_test(fifty_sandboxes_live_at_once),
	cmocka_unit_test(an_idle_sandbox_is_small),
	cmocka_unit_test(a_broker_without_descriptors_says_of_nobody_that_he_is_gone),
	cmocka_unit_test(sandboxes_outlive_the_broker),
	cmocka_unit_test(a_sandbox_has_one_level_of_control_groups),
	cmocka_unit_test(a_broker_killed_in_the_middle_leaves_nothing),
};

int main(void)
{
	const char *why = linux_rig_missing();
	int failed;

	if (why) {
		printf("# SKIP linux backend: %s\n", why);
		return 0;
	}
	linux_rig_open(&rig);
	failed = guest_cases_run(&rig.rig, "guest on linux");
	failed += run_table(tests);
	linux_rig_close(&rig);
	return failed;
}
