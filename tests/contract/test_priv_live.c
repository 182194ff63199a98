/* SPDX-License-Identifier: MIT */
/* The broker against a hostile front that is in no hurry to be refused: two of everything at once,
 * operations on what is just ending, floods, answers that it does not read; then requests at random for some seconds (ATTACK_SECS=3). However it goes,
 * the broker goes on, believes nothing outside the state directory, and leaves nothing. */
#include "tests/support/priv_rig.h"

#include "common/sys/fd.h"
#include "tests/support/descriptors.h"
#include "tests/support/guest_rig.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct priv_rig rig;
static uint64_t canaries;

static int open_rig(void **state)
{
	(void)state;
	rig.trace = getenv("ATTACK_TRACE");
	priv_rig_open(&rig);
	canaries = priv_rig_canaries(&rig);
	priv_rig_ready(&rig);
	return 0;
}

static int close_rig(void **state)
{
	(void)state;
	priv_rig_close(&rig);
	return 0;
}

static int nothing_outside(void **state)
{
	(void)state;
	assert_true(priv_rig_alive(&rig));
	assert_int_equal(priv_rig_canaries(&rig), canaries);
	return 0;
}

static int ask(uint32_t op, const char *id, uint32_t num)
{
	struct priv_req q = priv_rig_req(op, id);

	q.num = num;
	q.generation = 7;
	return priv_rig_ask(&rig, &q, NULL, 0);
}

static uint64_t put(struct priv_req *q)
{
	q->tag = ++rig.tag;
	assert_int_equal(priv_rig_send(&rig, q, sizeof(*q), NULL, 0), 0);
	return q->tag;
}

/* The answers to the last n requests, by their order; each comes exactly once. */
static void take_all(size_t n, int *errors)
{
	uint64_t first = rig.tag + 1 - n;
	struct priv_ans a;

	for (size_t i = 0; i < n; i++)
		errors[i] = -1;
	for (size_t i = 0; i < n; i++) {
		if (!priv_rig_next(&rig, &a, 60000))
			fail_msg("only %zu of %zu answers", i, n);
		assert_in_range(a.tag, first, rig.tag);
		assert_int_equal(errors[a.tag - first], -1);
		errors[a.tag - first] = a.error;
	}
}

/* --- two at once ----------------------------------------------------------------------------- */

static void one_id_is_made_once(void **state)
{
	int errors[8], made = 0;

	(void)state;
	priv_rig_run_dir(&rig, "sbx_twice");
	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		struct priv_req q = priv_rig_req(PRIV_CREATE, "sbx_twice");
		q.memory_mb = 128 + (int64_t)(i % 3); /* not all by a spare sandbox */
		put(&q);
	}
	take_all(ARRAY_LEN(errors), errors);
	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		made += errors[i] == 0;
		assert_true(errors[i] == 0 || errors[i] == EEXIST);
	}
	assert_int_equal(made, 1);
	assert_int_equal(ask(PRIV_ALIVE, "sbx_twice", 0), 0);
	assert_int_equal(ask(PRIV_DESTROY, "sbx_twice", 0), 0);
}

/* Created and ended in one breath: whichever way it goes, nothing stays. */
static void a_create_that_is_ended_at_once(void **state)
{
	int errors[2];

	(void)state;
	for (int i = 0; i < 6; i++) {
		char id[32];
		snprintf(id, sizeof(id), "sbx_brief%d", i);
		priv_rig_run_dir(&rig, id);
		struct priv_req c = priv_rig_req(PRIV_CREATE, id), d = priv_rig_req(PRIV_DESTROY, id);
		c.memory_mb = 128 + i % 2 * 64;
		put(&c);
		put(&d);
		take_all(2, errors);
		assert_int_equal(errors[1], 0);
		assert_int_equal(ask(PRIV_ALIVE, id, 0), ESRCH);
	}
}

/* What cannot be looked at just now is not gone. (Should it get some back meanwhile, it may answer as ever.) */
static void a_broker_without_descriptors_takes_nobody_for_gone(void **state)
{
	(void)state;
	priv_rig_box(&rig, "sbx_short");
	struct rlimit usual = descriptors_leave(rig.broker, 0);
	int alive = ask(PRIV_ALIVE, "sbx_short", 0), meter = ask(PRIV_METER, "sbx_short", 0);
	int destroyed = ask(PRIV_DESTROY, "sbx_short", 0);
	descriptors_restore(rig.broker, &usual);
	assert_true(alive == 0 || alive == EMFILE);
	assert_true(meter == 0 || meter == EMFILE);
	assert_true(destroyed == 0 || destroyed == EMFILE);
	assert_int_equal(ask(PRIV_ALIVE, "sbx_short", 0), destroyed ? 0 : ESRCH);
	assert_int_equal(ask(PRIV_DESTROY, "sbx_short", 0), 0);
}

/* One descriptor is enough to find the groups, and not to read whose they are. */
static void a_sweep_without_descriptors_ends_nobody(void **state)
{
	(void)state;
	priv_rig_restart(&rig); /* nothing was made while there were none */
	priv_rig_ready(&rig);
	priv_rig_box(&rig, "sbx_kept");
	struct rlimit usual = descriptors_leave(rig.broker, 1);
	assert_int_equal(ask(PRIV_KEEP, "sbx_kept", 0), 0);
	(void)ask(PRIV_SWEEP, "", 0);
	descriptors_restore(rig.broker, &usual);
	for (int i = 0; i < 300; i++) { /* what it had no descriptor to end, it ends when it has one */
		struct timespec pause = { .tv_nsec = 10000000 };
		assert_int_equal(ask(PRIV_ALIVE, "sbx_kept", 0), 0);
		nanosleep(&pause, NULL);
	}
	assert_int_equal(ask(PRIV_DESTROY, "sbx_kept", 0), 0);
}

static bool said_by(int pid, const char *file, const char *word)
{
	char path[64], text[256] = "";

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && strstr(text, word);
}

static bool within(int ms, bool (*is)(int pid), int pid)
{
	struct timespec pause = { .tv_nsec = 2000000 };

	for (; ms > 0 && !is(pid); ms -= 2)
		nanosleep(&pause, NULL);
	return is(pid);
}

static bool is_gone(int pid)
{
	return kill(pid, 0) < 0;
}

/* Who is traced cannot be stopped and made to go on by others. */
static void needs_stops(void)
{
	if (rig.trace)
		skip();
}

static bool is_stopped(int pid)
{
	return said_by(pid, "stat", ") T");
}

static bool is_shim(int pid)
{
	return said_by(pid, "cmdline", "sbx-shim");
}

/* A child of the broker's that is so; 0: none. */
static int a_child(bool (*is)(int pid))
{
	char path[64];
	int pid, found = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", rig.broker, rig.broker);
	FILE *f = fopen(path, "re");
	while (f && fscanf(f, "%d", &pid) == 1)
		if (is(pid))
			found = pid;
	if (f)
		fclose(f);
	return found;
}

static int a_spare(void)
{
	struct priv_req q = priv_rig_req(PRIV_POOL, "");
	struct timespec pause = { .tv_nsec = 5000000 };
	int pid = 0;

	q.num = 1;
	q.kind = 1;
	for (int i = 0; i < 4000 && !pid; i++) {
		assert_int_equal(priv_rig_ask(&rig, &q, NULL, 0), 0);
		nanosleep(&pause, NULL);
		pid = a_child(is_shim);
	}
	return pid;
}

/* A process of ours with the number of one that has ended. Those whom it had started keep its number for a moment. */
static int with_number(int pid)
{
	struct timespec pause_ = { .tv_nsec = 5000000 };
	pid_t want = pid;
	struct clone_args a = { .exit_signal = SIGCHLD, .set_tid = (uintptr_t)&want, .set_tid_size = 1 };
	int got = -1;

	for (int i = 0; i < 2000 && got < 0; i++) {
		got = (int)syscall(SYS_clone3, &a, sizeof(a));
		if (got < 0)
			nanosleep(&pause_, NULL);
	}
	if (got == 0)
		for (;;)
			pause();
	return got;
}

/* Children of the broker end and are forgotten by the kernel before it hears of that. */
static void a_number_used_again_is_not_killed(void **state)
{
	struct priv_req q = priv_rig_req(PRIV_POOL, "");
	int spare, status;

	(void)state;
	needs_stops();
	spare = a_spare();
	assert_true(spare > 0);
	assert_int_equal(kill(rig.broker, SIGSTOP), 0);
	assert_true(within(30000, is_stopped, rig.broker));
	assert_int_equal(kill(spare, SIGKILL), 0);
	assert_true(within(30000, is_gone, spare));
	int other = with_number(spare);
	assert_int_equal(kill(rig.broker, SIGCONT), 0);
	q.num = 1;
	for (int i = 0; i < 3; i++)
		assert_int_equal(priv_rig_ask(&rig, &q, NULL, 0), 0);
	if (other < 0)
		skip(); /* somebody else has it */
	assert_int_equal(waitpid(other, &status, WNOHANG), 0);
	assert_int_equal(kill(other, SIGKILL), 0);
	assert_int_equal(waitpid(other, &status, 0), other);
}

static bool is_over(int pid)
{
	return is_gone(pid) || said_by(pid, "stat", ") Z"); /* whoever it is left to has not asked yet */
}

/* Another broker, and an import whose unpacker has filled the layer and stands still: its process. */
static int a_stopped_import(uint32_t num)
{
	struct priv_req q = { .magic = PRIV_MAGIC, .op = PRIV_LAYER_IMPORT, .num = num };
	_cleanup_close_ int tar = memfd_create("empty.tar", MFD_CLOEXEC);
	struct timespec pause = { .tv_nsec = 2000000 };
	int child = 0;

	needs_stops();
	assert_int_equal(ftruncate(tar, 10240), 0);
	assert_int_equal(setenv("SBX_FAULT", "stop:layer-unpacked", 1), 0);
	priv_rig_restart(&rig);
	unsetenv("SBX_FAULT");
	priv_rig_ready(&rig);
	q.tag = ++rig.tag;
	assert_true(priv_rig_send(&rig, &q, sizeof(q), &tar, 1) >= 0);
	for (int i = 0; i < 15000 && !(child = a_child(is_stopped)); i++)
		nanosleep(&pause, NULL);
	assert_true(child > 0);
	return child;
}

/* The next broker waits for all that the last one had started: none of it goes on for its own sake. */
static void an_import_ends_with_its_broker(void **state)
{
	int child = a_stopped_import(950);

	(void)state;
	assert_int_equal(kill(rig.broker, SIGKILL), 0);
	bool gone = within(30000, is_over, child);
	if (!gone)
		(void)kill(child, SIGKILL);
	priv_rig_restart(&rig);
	priv_rig_ready(&rig);
	assert_true(gone);
}

static bool has_no_half(int num)
{
	char path[64];

	snprintf(path, sizeof(path), "priv/layers/.%d.tmp", num);
	return faccessat(rig.state_dirfd, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

static void what_is_dropped_half_unpacked_is_gone(void **state)
{
	(void)state;
	(void)a_stopped_import(951);
	assert_false(has_no_half(951));
	assert_int_equal(ask(PRIV_LAYER_DROP, "", 951), 0);
	assert_true(has_no_half(951));
	priv_rig_restart(&rig);
	priv_rig_ready(&rig);
}

/* As by the kernel, when memory runs out. */
static void an_unpacker_that_dies_leaves_nothing(void **state)
{
	int child = a_stopped_import(952);
	struct priv_ans a;

	(void)state;
	assert_false(has_no_half(952));
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_true(priv_rig_next(&rig, &a, 60000));
	assert_int_equal(a.error, ECHILD);
	assert_true(within(patience_ms(30000), has_no_half, 952));
	priv_rig_restart(&rig);
	priv_rig_ready(&rig);
}

static bool is_broker(int pid)
{
	return said_by(pid, "comm", "sbx-priv");
}

static bool has_no_record(int unused)
{
	(void)unused;
	return faccessat(rig.state_dirfd, "priv/boxes/sbx_dirt", F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

/* The janitor is killed while another cannot be started: there is one as soon as there can be. */
static void what_ended_is_cleared_away_without_the_first_janitor(void **state)
{
	struct rlimit usual, none;
	int janitor;

	(void)state;
	priv_rig_restart(&rig);
	(void)ask(PRIV_DISK_FREE, "", 0);
	janitor = a_child(is_broker); /* it has no other yet */
	priv_rig_ready(&rig);
	priv_rig_box(&rig, "sbx_dirt");
	assert_true(janitor > 0);
	assert_int_equal(prlimit(rig.broker, RLIMIT_NOFILE, NULL, &usual), 0);
	none = (struct rlimit){ 3, usual.rlim_max };
	assert_int_equal(prlimit(rig.broker, RLIMIT_NOFILE, &none, NULL), 0);
	assert_int_equal(kill(janitor, SIGKILL), 0);
	bool gone = within(patience_ms(30000), is_gone, janitor);
	(void)ask(PRIV_DISK_FREE, "", 0); /* it has looked */
	assert_int_equal(prlimit(rig.broker, RLIMIT_NOFILE, &usual, NULL), 0);
	assert_true(gone);
	assert_int_equal(ask(PRIV_DESTROY, "sbx_dirt", 0), 0);
	assert_true(within(patience_ms(30000), has_no_record, 0));
}

static const uint32_t questions[] = { PRIV_ALIVE, PRIV_METER, PRIV_FREEZE, PRIV_SNAPSHOT,
	PRIV_EGRESS_ADD, PRIV_USAGE, PRIV_CREATE };

/* Everything that can be asked of a sandbox, while it ends. */
static void questions_about_one_that_is_ending(void **state)
{
	int errors[64 + 4 * ARRAY_LEN(questions)];
	size_t n = 0;

	(void)state;
	priv_rig_box(&rig, "sbx_ends");
	for (int i = 0; i < 64; i++, n++) {
		struct priv_req q = priv_rig_req(PRIV_DESTROY, "sbx_ends");
		put(&q);
	}
	for (size_t i = 0; i < 4 * ARRAY_LEN(questions); i++, n++) {
		struct priv_req q = priv_rig_req(questions[i % ARRAY_LEN(questions)], "sbx_ends");
		q.generation = 7;
		q.num = q.op == PRIV_SNAPSHOT ? 990 + (uint32_t)i : 0;
		q.kind = q.op == PRIV_FREEZE;
		put(&q);
	}
	take_all(n, errors);
	for (int i = 0; i < 64; i++)
		assert_int_equal(errors[i], 0);
	/* It may have been gone already, and the create made another one. */
	(void)ask(PRIV_DESTROY, "sbx_ends", 0);
	assert_int_equal(ask(PRIV_ALIVE, "sbx_ends", 0), ESRCH);
}

static void one_number_is_a_layer_once(void **state)
{
	int errors[4], made = 0;

	(void)state;
	priv_rig_box(&rig, "sbx_seal1");
	priv_rig_box(&rig, "sbx_seal2");
	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		struct priv_req q = priv_rig_req(PRIV_SNAPSHOT, i % 2 ? "sbx_seal2" : "sbx_seal1");
		q.num = 880;
		put(&q);
	}
	take_all(ARRAY_LEN(errors), errors);
	for (size_t i = 0; i < ARRAY_LEN(errors); i++)
		made += errors[i] == 0;
	assert_in_range(made, 0, 1); /* 0: this host's disks have no snapshots */
	assert_int_equal(ask(PRIV_ALIVE, "sbx_seal1", 0), 0);
	assert_int_equal(ask(PRIV_DESTROY, "sbx_seal1", 0), 0);
	assert_int_equal(ask(PRIV_DESTROY, "sbx_seal2", 0), 0);
	assert_int_equal(ask(PRIV_LAYER_DROP, "", 880), 0);
}

static void one_egress_process_at_a_time(void **state)
{
	int errors[6], started = 0;

	(void)state;
	priv_rig_box(&rig, "sbx_out");
	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		struct priv_req q = priv_rig_req(PRIV_EGRESS_ADD, "sbx_out");
		q.generation = 7;
		put(&q);
	}
	take_all(ARRAY_LEN(errors), errors);
	for (size_t i = 0; i < ARRAY_LEN(errors); i++)
		started += errors[i] == 0;
	assert_in_range(started, 0, 1); /* 0: this host cannot do it */
	assert_int_equal(ask(PRIV_DESTROY, "sbx_out", 0), 0);
}

/* --- floods ---------------------------------------------------------------------------------- */

/* Sends without waiting, takes answers as they come; how many were refused. */
static size_t flood(struct priv_req *q, size_t n)
{
	size_t sent = 0, got = 0, refused = 0;
	struct priv_ans a;

	while (got < n) {
		while (sent < n && sent - got < 16) {
			put(q);
			sent++;
		}
		assert_true(priv_rig_next(&rig, &a, 60000));
		refused += a.error != 0;
		got++;
	}
	return refused;
}

/* What it is told to remember has an end. */
#ifdef __SANITIZE_THREAD__ /* which remembers several words for each */
#define GROWTH_KIB (128 * 1024)
#else
#define GROWTH_KIB (16 * 1024)
#endif
static void it_does_not_grow_by_what_it_is_told(void **state)
{
	struct priv_req keep = priv_rig_req(PRIV_KEEP, "sbx_a"), nums = priv_rig_req(PRIV_KEEP_LAYERS, "");
	long before = priv_rig_rss_kib(&rig);
	size_t refused;

	(void)state;
	refused = flood(&keep, 60000);
	assert_true(refused > 0);
	nums.nchain = PRIV_CHAIN_MAX;
	nums.chain[0] = PRIV_RIG_LAYER;
	refused = flood(&nums, 12000);
	assert_true(refused > 0);
	assert_true(priv_rig_rss_kib(&rig) - before < GROWTH_KIB);
	assert_int_equal(ask(PRIV_SWEEP, "", 0), 0); /* forgets them */
}

/* Answers that nobody reads fill a socket; what was asked for is done all the same, once it is read
 * on, and each has its answer. */
static void answers_that_are_not_read(void **state)
{
	struct priv_req q = priv_rig_req(PRIV_DISK_FREE, "");
	struct priv_ans a;
	size_t n = 0;

	(void)state;
	while (fd_wait(rig.fd, POLLOUT, 500)) { /* later it waits for us */
		q.tag = rig.tag + 1;
		if (send(rig.fd, &q, sizeof(q), MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof(q))
			continue;
		rig.tag++;
		n++;
	}
	for (size_t i = 0; i < n; i++)
		assert_true(priv_rig_next(&rig, &a, 60000));
	assert_int_equal(ask(PRIV_DISK_FREE, "", 0), 0);
}

/* --- at random ------------------------------------------------------------------------------- */

static uint32_t seed;

static uint32_t rnd(uint32_t below)
{
	seed = seed * 1664525u + 1013904223u;
	return below ? (seed >> 8) % below : 0;
}

static const uint32_t few[] = { 0, 1, 2, 3, 5, 63, 64, PRIV_RIG_LAYER, 0x7fffffff, 0x80000000u,
	0xfffffffeu, 0xffffffffu };
static const int64_t sizes[] = { 64, 128, 1, 0, -1, 1 << 24, INT64_MAX, INT64_MIN };

static void spoil(struct priv_req *q)
{
	uint32_t *nums[] = { &q->num, &q->kind, &q->flags, &q->nchain, &q->nvolumes, &q->chain[0],
		&q->volumes[0].num, &q->volumes[0].read_only };
	int64_t *wide[] = { &q->cpu_milli, &q->memory_mb, &q->disk_mb };

	switch (rnd(6)) {
	case 0:
		*nums[rnd(ARRAY_LEN(nums))] = few[rnd(ARRAY_LEN(few))];
		break;
	case 1:
		*wide[rnd(ARRAY_LEN(wide))] = sizes[rnd(ARRAY_LEN(sizes))];
		break;
	case 2:
		((uint8_t *)q)[rnd(sizeof(*q))] ^= (uint8_t)(1 + rnd(255));
		break;
	case 3:
		q->nvolumes = 1;
		strcpy(q->volumes[0].path, rnd(2) ? "/data" : "/etc/../..");
		break;
	default: /* as it is */
		break;
	}
}

static struct priv_req at_random(void)
{
	static const char *const ids[] = { "sbx_f0", "sbx_f1", "sbx_f2", "sbx_f3", "", "sbx_none" };
	/* more of those that make something; a SWEEP now and then */
	static const uint32_t often[] = { PRIV_CREATE, PRIV_CREATE, PRIV_DESTROY, PRIV_SNAPSHOT,
		PRIV_LAYER_IMPORT, PRIV_VOLUME_MAKE, PRIV_FREEZE, PRIV_EGRESS_ADD };
	uint32_t op = rnd(3) ? often[rnd(ARRAY_LEN(often))] : 1 + rnd(PRIV_OP_COUNT - 1);
	struct priv_req q;

	if (op == PRIV_SWEEP && rnd(20))
		op = PRIV_USAGE;
	q = priv_rig_req(op, ids[rnd(ARRAY_LEN(ids))]);
	q.generation = 7;
	if (op == PRIV_LAYER_DROP || op == PRIV_SNAPSHOT || op == PRIV_LAYER_IMPORT)
		q.num = 1 + rnd(4);
	if (op == PRIV_VOLUME_MAKE || op == PRIV_VOLUME_DROP) {
		q.num = 1 + rnd(3);
		q.disk_mb = 16;
	}
	if (op == PRIV_FREEZE)
		q.kind = rnd(2);
	if (op == PRIV_POOL)
		q.kind = rnd(3);
	if (rnd(4) == 0)
		spoil(&q);
	return q;
}

static size_t some_fds(int *fds, const int *stock, size_t n)
{
	size_t k = rnd(8) ? rnd(2) : rnd(5);

	for (size_t i = 0; i < k; i++)
		fds[i] = stock[rnd((uint32_t)n)];
	return k;
}

static void requests_at_random(void **state)
{
	const char *secs = getenv("ATTACK_SECS"), *given = getenv("ATTACK_SEED");
	int64_t end = mono_ms() + 1000 * (secs ? atoi(secs) : 3);
	unsigned long sent = 0, answered = 0;
	struct priv_ans a;
	int stock[5], p[2];

	(void)state;
	seed = given ? (uint32_t)atol(given) : (uint32_t)getpid() * 2654435761u;
	printf("# seed %u\n", seed);
	for (int i = 0; i < 4; i++)
		priv_rig_run_dir(&rig, (const char *[]){ "sbx_f0", "sbx_f1", "sbx_f2", "sbx_f3" }[i]);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	stock[0] = p[0];
	stock[1] = memfd_create("x", MFD_CLOEXEC);
	stock[2] = openat(rig.canary_dirfd, "file", O_RDWR | O_CLOEXEC);
	stock[3] = openat(rig.canary_dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	stock[4] = openat(rig.canary_dirfd, "file", O_PATH | O_CLOEXEC);
	while (mono_ms() < end) {
		struct priv_req q = at_random();
		int fds[8];
		size_t n = some_fds(fds, stock, ARRAY_LEN(stock));
		q.tag = ++rig.tag;
		size_t len = rnd(50) ? sizeof(q) : rnd(sizeof(q)) + 1;
		assert_int_equal(priv_rig_send(&rig, &q, len, fds, n), 0);
		sent++;
		/* never more than a few behind: it is to be busy, not idle, and we to see its end */
		while (priv_rig_next(&rig, &a, sent - answered > 24 ? 200 : 0)) {
			assert_in_range(a.tag, 1, rig.tag);
			answered++;
		}
		answered = sent - answered > 24 ? sent - 12 : answered;
	}
	for (size_t i = 0; i < ARRAY_LEN(stock); i++)
		close(stock[i]);
	close(p[1]);
	printf("# %lu requests\n", sent);
	/* the first forgets what was kept, the second ends it; the layers may be gone by then */
	for (int i = 0; i < 2; i++) {
		int r, tries = 600;
		while ((r = ask(PRIV_SWEEP, "", 0)) == EBUSY && tries-- > 0)
			(void)poll(NULL, 0, 100);
		assert_int_equal(r, 0);
	}
	assert_int_equal(ask(PRIV_ALIVE, "sbx_f0", 0), ESRCH);
	priv_rig_ready(&rig);
}

/* The front goes while spares are being made: a builder may be killed at any point of its work, and what it was about
 * to make must not come after what clears it away. */
static void what_is_half_made_goes_with_the_front(void **state)
{
	struct priv_req q = priv_rig_req(PRIV_EXPECT, "");

	(void)state;
	for (int i = 0; i < 12; i++) {
		struct timespec pause = { .tv_nsec = i * 400000 };
		q.memory_mb = 128 + i;
		assert_int_equal(priv_rig_ask(&rig, &q, NULL, 0), 0);
		nanosleep(&pause, NULL);
		priv_rig_again(&rig);
		assert_int_equal(ask(PRIV_SWEEP, "", 0), 0);
	}
}

int main(void)
{
	const char *why = priv_rig_missing();
#define ROW(f) cmocka_unit_test_teardown(f, nothing_outside)
	static const struct CMUnitTest tests[] = {
		ROW(one_id_is_made_once),
		ROW(a_create_that_is_ended_at_once),
		ROW(a_broker_without_descriptors_takes_nobody_for_gone),
		ROW(a_sweep_without_descriptors_ends_nobody),
		ROW(a_number_used_again_is_not_killed),
		ROW(an_import_ends_with_its_broker),
		ROW(what_is_dropped_half_unpacked_is_gone),
		ROW(an_unpacker_that_dies_leaves_nothing),
		ROW(what_ended_is_cleared_away_without_the_first_janitor),
		ROW(questions_about_one_that_is_ending),
		ROW(one_number_is_a_layer_once),
		ROW(one_egress_process_at_a_time),
		ROW(it_does_not_grow_by_what_it_is_told),
		ROW(answers_that_are_not_read),
		ROW(what_is_half_made_goes_with_the_front),
		ROW(requests_at_random),
	};

	if (why) {
		printf("# SKIP broker: %s\n", why);
		return 0;
	}
	cmocka_set_test_filter(getenv("T"));
	return cmocka_run_group_tests(tests, open_rig, close_rig);
}
