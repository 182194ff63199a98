/* SPDX-License-Identifier: MIT */
/* The broker against a front that hostile code has taken the place of: every operation of its table
 * outside its phase, with wrong ids, numbers, names and descriptors, in frames of the wrong size.
 * Each is refused as its row says, and afterwards the broker is the same process with the same
 * descriptors, its sandbox still stands, and nothing outside the state directory has changed. */
#include "tests/support/priv_rig.h"

#include "sandboxd/priv/area.h"
#include "tests/support/guest_rig.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BOX "sbx_stands"

static struct priv_rig rig;
static uint64_t canaries;
static unsigned fds_before;

enum phase { SETUP, RUN };
static const struct op {
	const char *name;
	enum phase phase;
	bool takes_fd;
} ops[PRIV_OP_COUNT] = {
#define OP(n, p, fds, fn) [PRIV_##n] = { #n, p, (fds) > 0 },
#include "sandboxd/priv/ops.def"
#undef OP
};

/* Those that name a sandbox. */
static const uint32_t of_a_box[] = { PRIV_KEEP, PRIV_ALIVE, PRIV_DESTROY, PRIV_FREEZE, PRIV_METER,
	PRIV_SNAPSHOT, PRIV_EGRESS_ADD, PRIV_USAGE, PRIV_CREATE };

static struct priv_req good(uint32_t op, const char *id)
{
	struct priv_req q = priv_rig_req(op, id);

	if (op == PRIV_SNAPSHOT)
		q.num = 77;
	if (op == PRIV_EGRESS_ADD || op == PRIV_ALIVE)
		q.generation = 7;
	return q;
}

static int ask(struct priv_req *q)
{
	return priv_rig_ask(&rig, q, NULL, 0);
}

static void refused(struct priv_req *q, int want, const char *what)
{
	int r = ask(q);

	if (r != want)
		fail_msg("%s of %s: %d, not %d", what, ops[q->op % PRIV_OP_COUNT].name, r, want);
}

/* --- before the first sweep ------------------------------------------------------------------ */

static void nothing_is_made_before_the_first_sweep(void **state)
{
	(void)state;
	for (uint32_t op = 1; op < PRIV_OP_COUNT; op++) {
		struct priv_req q = good(op, BOX);
		if (ops[op].phase == RUN)
			refused(&q, EAGAIN, "before the sweep");
	}
}

/* A tag of nothing cannot be answered, so such a request does nothing: not even a sweep. */
static void a_request_that_nobody_waits_for_does_nothing(void **state)
{
	struct priv_req q = good(PRIV_SWEEP, ""), create = good(PRIV_CREATE, BOX);

	(void)state;
	assert_int_equal(priv_rig_send(&rig, &q, sizeof(q), NULL, 0), 0);
	refused(&create, EAGAIN, "after a sweep without a tag");
}

static int open_rig(void **state)
{
	(void)state;
	priv_rig_open(&rig);
	canaries = priv_rig_canaries(&rig);
	return 0;
}

/* Whichever row comes first after the first phase. */
static int make_ready(void **state)
{
	static bool done;

	(void)state;
	if (!done) {
		priv_rig_ready(&rig);
		priv_rig_box(&rig, BOX);
		fds_before = priv_rig_fds(&rig);
	}
	done = true;
	return 0;
}

/* --- requests that no table knows ------------------------------------------------------------ */

static void unknown_operations_and_another_magic(void **state)
{
	static const uint32_t none[] = { PRIV_NONE, PRIV_OP_COUNT, PRIV_OP_COUNT + 1, 0x7fffffff,
		0x80000000u, 0xffffffffu };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(none); i++) {
		struct priv_req q = good(none[i], "");
		refused(&q, EINVAL, "an unknown operation");
	}
	for (uint32_t op = 1; op < PRIV_OP_COUNT; op++) {
		struct priv_req q = good(op, "");
		q.magic ^= 1u << op % 32;
		refused(&q, EINVAL, "another magic");
	}
}

/* What is not exactly a request has no answer, and is not taken for the next one either. */
static void frames_of_another_size(void **state)
{
	static char big[65536];
	struct priv_req q = good(PRIV_DESTROY, BOX), ping = good(PRIV_DISK_FREE, "");
	size_t sizes[] = { 1, 4, 24, 88, sizeof(q) - 1, sizeof(q) + 1, sizeof(q) + 8, 2 * sizeof(q),
		sizeof(big) };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct priv_ans a;
		q.tag = ++rig.tag;
		memcpy(big, &q, sizeof(q));
		assert_int_equal(priv_rig_send(&rig, big, sizes[i], NULL, 0), 0);
		ping.tag = ++rig.tag;
		assert_int_equal(priv_rig_send(&rig, &ping, sizeof(ping), NULL, 0), 0);
		assert_true(priv_rig_next(&rig, &a, 60000));
		assert_int_equal(a.tag, ping.tag);
	}
	struct priv_req alive = good(PRIV_ALIVE, BOX);
	refused(&alive, 0, "after frames of another size, ALIVE");
}

/* --- ids and names --------------------------------------------------------------------------- */

static const char *const bad_ids[] = { "..", "../canary", "sbx_/../canary", "/etc", "sbx_", "sbx",
	"SBX_A", "sbx_A", "sbx_a/b", "sbx_.", "sbx_..", ".sbx_a", ".seal-sbx_a", "pool-1", "vol-1",
	"sbx_a b", "sbx_a\n", "sbx_\xc3\xa9", "sbx_%s%n", "-sbx_a", "n0", "svc" };

static void wrong_ids(void **state)
{
	(void)state;
	for (size_t o = 0; o < ARRAY_LEN(of_a_box); o++) {
		struct priv_req q;
		for (size_t i = 0; i < ARRAY_LEN(bad_ids); i++) {
			q = good(of_a_box[o], bad_ids[i]);
			refused(&q, EINVAL, bad_ids[i]);
		}
		q = good(of_a_box[o], "");
		refused(&q, EINVAL, "no id");
		memset(q.id, 'a', sizeof(q.id));
		memcpy(q.id, "sbx_", 4);
		refused(&q, EINVAL, "an id without an end");
	}
}

static void ids_of_nobody(void **state)
{
	static const struct {
		uint32_t op;
		int want;
	} rows[] = { { PRIV_ALIVE, ESRCH }, { PRIV_FREEZE, ESRCH }, { PRIV_METER, ESRCH },
		{ PRIV_SNAPSHOT, ESRCH }, { PRIV_EGRESS_ADD, ESRCH }, { PRIV_DESTROY, 0 } };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct priv_req q = good(rows[i].op, "sbx_nobody");
		refused(&q, rows[i].want, "an id of nobody");
	}
	struct priv_req u = good(PRIV_USAGE, "sbx_nobody");
	assert_true(ask(&u) > 0);
	/* another life of the one that stands */
	for (uint32_t i = 0; i < 2; i++) {
		struct priv_req q = good(i ? PRIV_ALIVE : PRIV_EGRESS_ADD, BOX);
		q.generation = 8;
		refused(&q, ESRCH, "another generation");
	}
}

static void wrong_host_names(void **state)
{
	static const char *const bad[] = { "", "A", "a.b", "a/b", "..", "a b", "a\n", "\xc3\xa9", "-",
		"_", "%n" };
	struct priv_req q = good(PRIV_CREATE, "sbx_never");

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		strcpy(q.hostname, bad[i]);
		refused(&q, EINVAL, bad[i]);
	}
	memset(q.hostname, 'a', sizeof(q.hostname));
	refused(&q, EINVAL, "a host name without an end");
}

static void wrong_places_of_volumes(void **state)
{
	static const char *const bad[] = { "", "a", "/", "//", "/a/", "/a//b", "/..", "/a/../b", "/.",
		"/a/.", "/proc", "/proc/sys", "/sys/fs", "/dev", "/dev/shm", "/a\n", "/a b",
		"/\xc3\xa9", "/a\\b", "../canary" };
	struct priv_req q;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		q = good(PRIV_CREATE, "sbx_never");
		q.nvolumes = 1;
		q.volumes[0].num = 1;
		strcpy(q.volumes[0].path, bad[i]);
		refused(&q, EINVAL, bad[i]);
	}
	q = good(PRIV_CREATE, "sbx_never");
	q.nvolumes = 1;
	memset(q.volumes[0].path, 'a', sizeof(q.volumes[0].path));
	q.volumes[0].path[0] = '/';
	refused(&q, EINVAL, "a path without an end");
	strcpy(q.volumes[0].path, "/data");
	q.volumes[0].read_only = 2;
	refused(&q, EINVAL, "read-only of two");
}

/* --- numbers --------------------------------------------------------------------------------- */

/* For every operation, also for those that do not look there. */
static void counts_beyond_their_tables(void **state)
{
	static const uint32_t chains[] = { PRIV_CHAIN_MAX + 1, 0x10000, 0x40000000, 0xffffffff };
	static const uint32_t volumes[] = { PRIV_VOLS_MAX + 1, 0x1000, 0x0f83e100, 0xffffffff };

	(void)state;
	for (uint32_t op = 1; op < PRIV_OP_COUNT; op++)
		for (size_t i = 0; i < ARRAY_LEN(chains); i++) {
			struct priv_req q = good(op, "");
			q.nchain = chains[i];
			refused(&q, EINVAL, "a chain too long");
			q = good(op, "");
			q.nvolumes = volumes[i];
			refused(&q, EINVAL, "too many volumes");
		}
}

struct number {
	uint32_t op;
	size_t at;
	int64_t value;
	bool wide;
};
#define N32(o, field, v) { PRIV_##o, offsetof(struct priv_req, field), (v), false }
#define N64(o, field, v) { PRIV_##o, offsetof(struct priv_req, field), (v), true }
#define SHAPE(o)                                                                                   \
	N64(o, memory_mb, 0), N64(o, memory_mb, -1), N64(o, memory_mb, INT64_MIN),                 \
		N64(o, memory_mb, INT64_MAX), N64(o, disk_mb, 0), N64(o, disk_mb, -1),             \
		N64(o, disk_mb, INT64_MAX), N64(o, cpu_milli, 0), N64(o, cpu_milli, -1),           \
		N64(o, cpu_milli, INT64_MAX), N32(o, nchain, 0), N32(o, flags, 0x80000000u),       \
		N32(o, flags, 2), N32(o, flags, 0xffffffffu)
static const struct number numbers[] = { SHAPE(CREATE), SHAPE(EXPECT), SHAPE(POOL),
	N32(POOL, num, 64), N32(POOL, num, 0xffffffffu), N32(POOL, kind, 33),
	N32(POOL, kind, 0xffffffffu), N32(POOL, nvolumes, 1), N32(FREEZE, kind, 2),
	N32(FREEZE, kind, 0xffffffffu), N32(SNAPSHOT, num, 0), N32(EGRESS_ADD, num, 1),
	N32(LAYER_DROP, num, 0), N32(VOLUME_DROP, num, 0), N32(VOLUME_MAKE, num, 0),
	N32(VOLUME_MAKE, num, AREA_VOLUME_NUM), N32(VOLUME_MAKE, num, 0xffffffffu),
	N64(VOLUME_MAKE, disk_mb, 0), N64(VOLUME_MAKE, disk_mb, -1),
	N64(VOLUME_MAKE, disk_mb, INT64_MAX), N32(LAYER_IMPORT, kind, 3),
	N32(LAYER_IMPORT, kind, 0xffffffffu), N32(LAYER_IMPORT, num, 0), N32(USAGE, num, 1) };

static void numbers_out_of_bounds(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
		const struct number *n = &numbers[i];
		struct priv_req q = good(n->op, BOX);
		if (n->op == PRIV_CREATE)
			strcpy(q.id, "sbx_never");
		if (n->op == PRIV_POOL) {
			q.kind = 1;
			q.id[0] = '\0';
		}
		if (n->op == PRIV_VOLUME_MAKE || n->op == PRIV_LAYER_IMPORT) {
			q.num = 5;
			q.disk_mb = 16;
		}
		if (n->wide)
			memcpy((char *)&q + n->at, &n->value, 8);
		else
			memcpy((char *)&q + n->at, &(uint32_t){ (uint32_t)n->value }, 4);
		refused(&q, EINVAL, "a number");
	}
}

/* Layers and volumes that do not exist, and a finish on them. */
static void numbers_of_nothing(void **state)
{
	struct priv_req q = good(PRIV_CREATE, "sbx_never");

	(void)state;
	priv_rig_run_dir(&rig, "sbx_never");
	q.chain[0] = 0xfffffffe;
	assert_true(ask(&q) > 0);
	q = good(PRIV_CREATE, "sbx_never");
	q.nvolumes = 1;
	q.volumes[0].num = 4242;
	strcpy(q.volumes[0].path, "/data");
	assert_true(ask(&q) > 0);
	q = good(PRIV_LAYER_IMPORT, "");
	q.num = 5;
	q.kind = 2;
	q.nchain = 1;
	q.chain[0] = 0xfffffffe;
	refused(&q, ENOENT, "a finish on nothing");
	q.chain[0] = 0;
	refused(&q, ENOENT, "a finish on layer 0");
	q = good(PRIV_USAGE, "");
	q.num = 4242;
	assert_true(ask(&q) > 0);
}

/* --- descriptors ----------------------------------------------------------------------------- */

static int a_pipe(void)
{
	int p[2];

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	close(p[1]);
	return p[0];
}

static int a_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static int a_folder(void)
{
	return open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int a_device(void)
{
	return open("/dev/zero", O_RDONLY | O_CLOEXEC);
}

static int a_name(void)
{
	return open("/etc/passwd", O_PATH | O_CLOEXEC);
}

static int a_link(void)
{
	return open("/proc/self/exe", O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

static int for_writing(void)
{
	return openat(rig.canary_dirfd, "file", O_WRONLY | O_CLOEXEC);
}

static int of_proc(void)
{
	return open("/proc/self/status", O_RDONLY | O_CLOEXEC);
}

static int of_sys(void)
{
	return open("/sys/kernel/uevent_seqnum", O_RDONLY | O_CLOEXEC);
}

static int an_epoll(void)
{
	return epoll_create1(EPOLL_CLOEXEC);
}

static const struct {
	const char *name;
	int (*make)(void);
} kinds[] = { { "a pipe", a_pipe }, { "a socket", a_socket }, { "a folder", a_folder },
	{ "a device", a_device }, { "a name", a_name }, { "a link", a_link },
	{ "for writing", for_writing }, { "of procfs", of_proc }, { "of sysfs", of_sys },
	{ "an epoll", an_epoll } };

static void descriptors_of_the_wrong_kind(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		struct priv_req q = good(PRIV_LAYER_IMPORT, "");
		_cleanup_close_ int fd = kinds[i].make();
		if (fd < 0)
			continue; /* this kernel has no such file */
		q.num = 5;
		int r = priv_rig_ask(&rig, &q, &fd, 1);
		if (r != EINVAL)
			fail_msg("%s: %d", kinds[i].name, r);
	}
}

static void too_few_and_too_many_descriptors(void **state)
{
	static const size_t counts[] = { 2, 3, 8, 9, 100 };
	struct priv_req q = good(PRIV_LAYER_IMPORT, "");
	int fds[100];

	(void)state;
	q.num = 5;
	refused(&q, EINVAL, "no archive");
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		fds[i] = memfd_create("x", MFD_CLOEXEC);
	for (size_t i = 0; i < ARRAY_LEN(counts); i++)
		assert_int_equal(priv_rig_ask(&rig, &q, fds, counts[i]), EINVAL);
	q.kind = 2;
	q.nchain = 1;
	q.chain[0] = PRIV_RIG_LAYER;
	assert_int_equal(priv_rig_ask(&rig, &q, fds, 1), EINVAL);
	for (uint32_t op = 1; op < PRIV_OP_COUNT; op++) {
		q = good(op, "");
		if (!ops[op].takes_fd)
			assert_int_equal(priv_rig_ask(&rig, &q, fds, 1), EINVAL);
	}
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		close(fds[i]);
}

/* A regular file, so it is unpacked, and fails there; nothing of it becomes a layer. */
static void archives_that_are_none(void **state)
{
	static const char *const texts[] = { "", "no archive", "\x1f\x8b\x08", "\x28\xb5\x2f\xfd" };
	struct priv_req q = good(PRIV_LAYER_IMPORT, "");

	(void)state;
	q.num = 5;
	for (size_t i = 0; i < 2 * ARRAY_LEN(texts); i++) {
		_cleanup_close_ int fd = memfd_create("x", MFD_CLOEXEC);
		const char *t = texts[i / 2];
		assert_int_equal(write(fd, t, strlen(t)), strlen(t));
		if (strlen(t)) /* what follows is a hole */
			assert_int_equal(ftruncate(fd, 1 << 20), 0);
		q.kind = i % 2;
		(void)lseek(fd, 0, SEEK_SET);
		assert_true(priv_rig_ask(&rig, &q, &fd, 1) > 0);
	}
	assert_int_equal(faccessat(rig.state_dirfd, "priv/layers/5", F_OK, 0), -1);
}

/* --- and afterwards -------------------------------------------------------------------------- */

static void the_broker_is_as_it_was(void **state)
{
	struct priv_req alive = good(PRIV_ALIVE, BOX);
	const struct timespec pause = { .tv_nsec = 20000000 };
	int64_t end = mono_ms() + patience_ms(30000);

	(void)state;
	assert_true(priv_rig_alive(&rig));
	refused(&alive, 0, "ALIVE");
	/* spare sandboxes have descriptors too: they are made again meanwhile */
	while (priv_rig_fds(&rig) > fds_before + 16 && mono_ms() < end)
		nanosleep(&pause, NULL);
	assert_in_range(priv_rig_fds(&rig), 3, fds_before + 16);
	assert_int_equal(faccessat(rig.state_dirfd, "priv/boxes/sbx_never", F_OK, 0), -1);
	assert_int_equal(priv_rig_canaries(&rig), canaries);
}

static int close_rig(void **state)
{
	(void)state;
	priv_rig_close(&rig);
	return 0;
}

int main(void)
{
	const char *why = priv_rig_missing();
#define ROW(f) cmocka_unit_test_setup(f, make_ready)
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_made_before_the_first_sweep),
		cmocka_unit_test(a_request_that_nobody_waits_for_does_nothing),
		ROW(unknown_operations_and_another_magic),
		ROW(frames_of_another_size),
		ROW(wrong_ids),
		ROW(ids_of_nobody),
		ROW(wrong_host_names),
		ROW(wrong_places_of_volumes),
		ROW(counts_beyond_their_tables),
		ROW(numbers_out_of_bounds),
		ROW(numbers_of_nothing),
		ROW(descriptors_of_the_wrong_kind),
		ROW(too_few_and_too_many_descriptors),
		ROW(archives_that_are_none),
		ROW(the_broker_is_as_it_was),
	};

	if (why) {
		printf("# SKIP broker: %s\n", why);
		return 0;
	}
	cmocka_set_test_filter(getenv("T"));
	return cmocka_run_group_tests(tests, open_rig, close_rig);
}
