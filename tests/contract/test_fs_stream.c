/* SPDX-License-Identifier: MIT */
/* sbx-fs/1 as the worker speaks it (doc/sbx-fs.md): a real worker on a temporary folder, connections
 * handed to it as the front does, and a client that also does what no client should. */
#include "common/sys/fd.h"
#include "tests/support/files.h"
#include "tests/support/fsc.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* One stream: the front's side is a thread that waits for its end. */
struct line {
	struct files_rig *r;
	struct fsc c;
	int given;
	uint64_t client;
	pthread_t thread;
	unsigned used, written, read, removed; /* what the front was told, atomic */
	int rc;                                /* of guestfs_stream */
};

static void on_use(void *arg)
{
	struct line *l = arg;

	__atomic_add_fetch(&l->used, 1, __ATOMIC_SEQ_CST);
}

static void on_done(void *arg, const char *path, uint64_t read, uint64_t written, unsigned flags)
{
	struct line *l = arg;

	assert_int_equal(path[0], '/');
	__atomic_add_fetch(&l->read, read > 0, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(
		&l->written, written || (flags & FILES_REP_CREATED), __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&l->removed, (flags & FILES_REP_REMOVED) != 0, __ATOMIC_SEQ_CST);
}

static void *front(void *arg)
{
	struct line *l = arg;
	struct guestfs_watch w = { .used = on_use, .each = on_done, .arg = l };

	l->rc = guestfs_stream(l->r->fs, l->client, l->given, &w, NULL);
	close(l->given);
	return NULL;
}

/* Without the hello. */
static void line_open(struct line *l, struct files_rig *r, uint64_t client)
{
	int pair[2];

	*l = (struct line){ .r = r, .client = client };
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	fsc_init(&l->c, pair[0]);
	l->given = pair[1];
	assert_int_equal(pthread_create(&l->thread, NULL, front, l), 0);
}

static void line_up(struct line *l, struct files_rig *r, uint64_t client)
{
	line_open(l, r, client);
	(void)fsc_hello(&l->c);
}

/* The front learns of the end. */
static void line_down(struct line *l)
{
	fsc_fini(&l->c);
	pthread_join(l->thread, NULL);
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* --- beginning ------------------------------------------------------------------------------- */

static void hello_tells_the_limits(void **state)
{
	struct line l;

	line_open(&l, *state, 7);
	struct fs_hello h = fsc_hello(&l.c);
	assert_int_equal(h.data_max, FILES_DATA_MAX);
	assert_int_equal(h.inflight_max, 128);
	assert_int_equal(h.handles_max, FILES_CLIENT_HANDLES_MAX);
	assert_int_equal(h.watch_max, FS_WATCH_MAX);
	assert_int_equal(h.watch_kind, FS_WATCH_INOTIFY);
	assert_int_equal(h.features, FS_FEATURE_WATCH | FS_FEATURE_ORDERED | FS_FEATURE_LOCKS |
					FS_FEATURE_QUIET | FS_FEATURE_SHARED | FS_FEATURE_WATCH_FIRST |
					FS_FEATURE_LONG_PATHS);
	assert_int_equal(FSC(&l.c, FILES_HELLO, .client = 0), -EINVAL);
	assert_int_equal(FSC(&l.c, FILES_STAT, .path = "/"), 0);
	line_down(&l);
	assert_int_equal(l.rc, 0);
}

/* A path that no call of the kernel takes leads there, but over no link beyond the part that one takes. */
static void far_below_is_reached(void **state)
{
	static char path[FS_PATH_MAX], more[FS_PATH_MAX];
	struct line l;
	size_t len = 0;

	line_up(&l, *state, 7);
	while (len < 6000) {
		memset(path + len, 'p', 128);
		path[len] = '/';
		path[len += 128] = '\0';
		assert_int_equal(FSC(&l.c, FILES_MKDIR, .path = path, .mode = 0755), 0);
	}
	assert_int_equal(FSC(&l.c, FILES_STAT, .path = path), 0);
	(void)snprintf(more, sizeof(more), "%.7000s/f", path);
	assert_int_equal(FSC(&l.c, FILES_SYMLINK, .path = more, .path2 = "/"), 0);
	assert_int_equal(FSC(&l.c, FILES_STAT, .path = more), 0);
	assert_int_equal(FSC(&l.c, FILES_STAT, .path = more, .flags = FILES_FOLLOW), -ELOOP);
	(void)snprintf(more, sizeof(more), "%.7000s/f/%.100s", path, path + 1);
	assert_int_equal(FSC(&l.c, FILES_STAT, .path = more), -ELOOP);
	(void)snprintf(more, sizeof(more), "%.7000s/f", path);
	assert_int_equal(FSC(&l.c, FILES_UNLINK, .path = more), 0);
	(void)snprintf(more, sizeof(more), "%.7000s/none/f", path);
	assert_int_equal(FSC(&l.c, FILES_STAT, .path = more), -ENOENT);
	for (; len; path[len] = '\0') {
		assert_int_equal(FSC(&l.c, FILES_RMDIR, .path = path), 0);
		len -= 128;
	}
	line_down(&l);
	assert_int_equal(l.rc, 0);
}

/* --- what no client should do ---------------------------------------------------------------- */

struct raw {
	const char *name;
	bool greeted;
	struct fs_frame f; /* op 0 … as given; len ~0u: the sum of the parts */
	struct files_req q;
	const char *tail;
	size_t tail_len;
	int64_t answer; /* 0: the connection ends */
};
#define SUM  ~0u
#define STAT .op = FILES_STAT, .tag = 9
static const struct raw raws[] = {
	{ "another first request", false, { SUM, STAT }, { .path_len = 1 }, "/", 1, 0 },
	{ "another version", false, { SUM, .op = FILES_HELLO, .tag = 9, .value = 2 }, { 0 }, "", 0, 0 },
	{ "tag 0", true, { SUM, .op = FILES_STAT }, { .path_len = 1 }, "/", 1, 0 },
	{ "frame flags", true, { SUM, STAT, .flags = 1 }, { .path_len = 1 }, "/", 1, 0 },
	{ "too short", true, { 10, STAT }, { 0 }, "", 0, 0 },
	{ "too long for its parts", true, { sizeof(struct files_req) + 2, STAT }, { .path_len = 1 },
		"/x", 2, 0 },
	{ "4 GiB", true, { UINT32_MAX - 1, STAT }, { .path_len = 1 }, "/", 1, 0 },
	{ "a path too long", true, { SUM, STAT }, { .path_len = FS_PATH_MAX }, "/", 1, 0 },
	{ "too much data", true, { sizeof(struct files_req) + FILES_DATA_MAX + 1, STAT },
		{ .data_len = FILES_DATA_MAX + 1 }, "", 0, 0 },
	{ "NUL in a path", true, { SUM, STAT }, { .path_len = 4 }, "/a\0b", 4, 0 },
	{ "lengths that wrap", true, { SUM, STAT },
		{ .path_len = 1, .path2_len = UINT32_MAX, .data_len = UINT32_MAX }, "/", 1, 0 },
	{ "unknown operation", true, { SUM, .op = 999, .tag = 9 }, { 0 }, "", 0, -ENOSYS },
	{ "operation 0", true, { SUM, .op = 0, .tag = 9 }, { 0 }, "", 0, -ENOSYS },
	{ "the front's", true, { SUM, .op = FILES_ACTIVITY, .tag = 9 }, { 0 }, "", 0, -ENOSYS },
	{ "the front's too", true, { SUM, .op = FILES_EXPIRED, .tag = 9 }, { 0 }, "", 0, -ENOSYS },
	{ "adopt without right", true, { SUM, .op = FILES_ADOPT, .tag = 9 }, { 0 }, "", 0, -ENOSYS },
	{ "put", true, { SUM, .op = FILES_PUT, .tag = 9 }, { .path_len = 2 }, "/x", 2, -ENOSYS },
	{ "a push from the wrong side", true, { SUM, .op = FILES_INVAL, .tag = 9 }, { 0 }, "", 0,
		-ENOSYS },
	{ "unknown flag", true, { SUM, STAT }, { .path_len = 1, .flags = 1u << 30 }, "/", 1, -EINVAL },
	{ "no path", true, { SUM, STAT }, { 0 }, "", 0, -EINVAL },
	{ "relative", true, { SUM, STAT }, { .path_len = 1 }, "x", 1, -EINVAL },
	{ "dots", true, { SUM, STAT }, { .path_len = 6 }, "/a/../", 6, -EINVAL },
	{ "dot", true, { SUM, STAT }, { .path_len = 4 }, "/./a", 4, -EINVAL },
	{ "two slashes", true, { SUM, STAT }, { .path_len = 3 }, "//a", 3, -EINVAL },
	{ "a slash at the end", true, { SUM, STAT }, { .path_len = 3 }, "/a/", 3, -EINVAL },
	{ "no handle", true, { SUM, .op = FILES_READ, .tag = 9 }, { .length = 9 }, "", 0, -EINVAL },
	{ "not a handle", true, { SUM, .op = FILES_READ, .tag = 9 }, { .handle = 77, .length = 9 }, "", 0,
		-FILES_E_HANDLE },
	{ "not a watch", true, { SUM, .op = FILES_UNWATCH, .tag = 9 }, { .handle = 77 }, "", 0, -ENOENT },
	{ "an absurd watch", true, { SUM, .op = FILES_UNWATCH, .tag = 9 }, { .handle = UINT64_MAX }, "", 0,
		-ENOENT },
	{ "three dots are a name", true, { SUM, STAT }, { .path_len = 4 }, "/...", 4, -ENOENT },
};

static void send_raw(struct fsc *c, const struct raw *w)
{
	struct fs_frame f = w->f;

	if (f.len == SUM)
		f.len = (uint32_t)(sizeof(w->q) + w->tail_len);
	(void)fd_send_full(c->fd, &f, sizeof(f), 1000);
	(void)fd_send_full(c->fd, &w->q, sizeof(w->q), 1000);
	(void)fd_send_full(c->fd, w->tail, w->tail_len, 1000);
}

static void each_broken_frame_ends_or_is_refused(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(raws); i++) {
		const struct raw *w = &raws[i];
		struct line l;
		line_open(&l, *state, 7);
		if (w->greeted)
			(void)fsc_hello(&l.c);
		send_raw(&l.c, w);
		if (!w->answer) {
			if (!fsc_ended(&l.c, 10000))
				fail_msg("%s: the connection goes on", w->name);
		} else {
			struct fsc_answer a;
			assert_true(fsc_recv(&l.c, &a));
			if (a.f.value != w->answer || a.f.tag != 9)
				fail_msg("%s: %lld", w->name, (long long)a.f.value);
			fsc_answer_free(&a);
			assert_int_equal(FSC(&l.c, FILES_STAT, .path = "/"), 0);
		}
		line_down(&l);
		assert_int_equal(l.rc, 0);
	}
}

static void garbage_and_half_frames_harm_nobody_else(void **state)
{
	struct files_rig *r = *state;
	struct line good;
	unsigned seed = 1;
	char junk[3000];

	line_up(&good, r, 1);
	for (int i = 0; i < 40; i++) {
		struct line l;
		line_open(&l, r, 2);
		if (i % 2)
			(void)fsc_hello(&l.c);
		for (size_t k = 0; k < sizeof(junk); k++)
			junk[k] = (char)(rand_r(&seed) >> 8);
		/* odd ones stop somewhere in a frame and go */
		(void)send(l.c.fd, junk, i % 4 < 2 ? 3000 : (size_t)(i % 160) + 1, MSG_NOSIGNAL);
		line_down(&l);
		assert_int_equal(FSC(&good.c, FILES_STAT, .path = "/"), 0);
	}
	line_down(&good);
}

static void the_seventeenth_is_refused(void **state)
{
	static struct line l[FS_CONNS_MAX + 1];

	for (unsigned i = 0; i < FS_CONNS_MAX; i++)
		line_up(&l[i], *state, i + 1);
	line_open(&l[FS_CONNS_MAX], *state, 99);
	pthread_join(l[FS_CONNS_MAX].thread, NULL);
	assert_int_equal(l[FS_CONNS_MAX].rc, -1);
	fsc_fini(&l[FS_CONNS_MAX].c);
	line_down(&l[3]);
	line_up(&l[3], *state, 4);
	for (unsigned i = 0; i < FS_CONNS_MAX; i++)
		line_down(&l[i]);
}

/* --- many at a time -------------------------------------------------------------------------- */

static void many_requests_in_flight_are_each_answered_once(void **state)
{
	struct files_rig *r = *state;
	enum { MANY = 2000 };
	static bool seen[MANY + 10];
	struct line l;
	uint64_t first = 0;
	char name[32];

	memset(seen, 0, sizeof(seen));
	for (int i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "/f%d", i);
		put(r, name, name);
	}
	line_up(&l, r, 1);
	for (int sent = 0, got = 0; got < MANY;) {
		while (sent < MANY && sent - got < 300) { /* more than are read */
			snprintf(name, sizeof(name), "/f%d", sent % 10);
			uint64_t tag = fsc_send(&l.c, sent % 3 ? FILES_STAT : FILES_OPEN,
				&(struct guestfs_args){ .path = name, .length = 100,
					.flags = sent % 3 ? 0 : FILES_O_READ | FILES_INLINE_CLOSE });
			first = sent++ ? first : tag;
		}
		struct fsc_answer a;
		assert_true(fsc_recv(&l.c, &a));
		assert_true(a.f.tag >= first && a.f.tag < first + MANY);
		assert_false(seen[a.f.tag - first]);
		seen[a.f.tag - first] = true;
		assert_int_equal(a.rep.attr.size, 3);
		if (a.f.op == FILES_OPEN) {
			assert_int_equal(a.rep.handle, 0);
			snprintf(name, sizeof(name), "/f%d", (int)((a.f.tag - first) % 10));
			assert_string_equal(a.data, name);
		}
		fsc_answer_free(&a);
		got++;
	}
	line_down(&l);
}

/* A FIFO without a reader would be one; a file system that is slow is not at hand: a copy of much. */
static void a_slow_request_does_not_hold_a_quick_one(void **state)
{
	struct files_rig *r = *state;
	struct line l;
	struct fsc_answer a;
	size_t len = 32u * 1024 * 1024;
	char *big = malloc(len);
	int quick_first = 0;

	assert_non_null(big);
	memset(big, 'x', len);
	files_rig_write(files_rig_path(r, "/big"), big, len);
	free(big);
	line_up(&l, r, 1);
	for (int i = 0; i < 20; i++) {
		uint64_t slow = fsc_send(&l.c, FILES_COPY,
			&(struct guestfs_args){ .path = "/big", .path2 = "/big", .length = len,
				.offset2 = len });
		(void)fsc_send(&l.c, FILES_STAT, &(struct guestfs_args){ .path = "/" });
		assert_true(fsc_recv(&l.c, &a));
		quick_first += a.f.tag != slow;
		fsc_answer_free(&a);
		assert_true(fsc_recv(&l.c, &a));
		assert_true(a.f.value >= 0);
		fsc_answer_free(&a);
	}
	assert_true(quick_first >= 15);
	line_down(&l);
}

static void ordered_requests_come_after_their_handles_earlier_ones(void **state)
{
	struct files_rig *r = *state;
	struct line l;
	struct fsc_answer a;
	size_t piece = 256 * 1024;
	char *buf = malloc(piece);

	assert_non_null(buf);
	put(r, "/f", "");
	line_up(&l, r, 1);
	for (int round = 0; round < 30; round++) {
		assert_int_equal(fsc_call(&l.c, FILES_OPEN,
					 &(struct guestfs_args){ .path = "/f",
						 .flags = FILES_O_READ | FILES_O_WRITE | FILES_O_TRUNC },
					 &a),
			0);
		uint64_t h = a.rep.handle;
		fsc_answer_free(&a);
		memset(buf, 'a' + round % 26, piece);
		for (unsigned i = 0; i < 8; i++)
			(void)fsc_send(&l.c, FILES_WRITE,
				&(struct guestfs_args){ .handle = h, .offset = i * piece, .data = buf,
					.data_len = piece });
		/* read back, then close: each after all that came before */
		uint64_t rd = fsc_send(&l.c, FILES_READ,
			&(struct guestfs_args){ .handle = h, .offset = 7 * piece, .length = piece,
				.flags = FILES_ORDERED });
		uint64_t cl = fsc_send(&l.c, FILES_CLOSE,
			&(struct guestfs_args){ .handle = h, .flags = FILES_ORDERED });
		for (int i = 0; i < 10; i++) {
			assert_true(fsc_recv(&l.c, &a));
			assert_true(a.f.value >= 0);
			if (a.f.tag == rd) {
				assert_int_equal(a.f.value, piece);
				assert_memory_equal(a.data, buf, piece);
			}
			if (a.f.tag == cl) {
				assert_int_equal(i, 9);
				assert_int_equal(a.rep.bytes_written, 8 * piece);
				assert_int_equal(a.rep.bytes_read, piece);
			}
			fsc_answer_free(&a);
		}
	}
	free(buf);
	line_down(&l);
}

/* Three of them at once: the front's requests and a good client go on. */
static void a_client_that_does_not_read_stops_only_itself(void **state)
{
	struct files_rig *r = *state;
	struct line bad[3], good;
	char *big = calloc(1, 1024 * 1024);

	assert_non_null(big);
	files_rig_write(files_rig_path(r, "/m"), big, 1024 * 1024);
	free(big);
	line_up(&good, r, 1);
	for (int i = 0; i < 3; i++) {
		struct fsc_answer a;
		line_up(&bad[i], r, 50 + (uint64_t)i);
		assert_int_equal(fsc_call(&bad[i].c, FILES_OPEN,
					 &(struct guestfs_args){ .path = "/m", .flags = FILES_O_READ }, &a),
			0);
		for (int k = 0; k < 20; k++)
			(void)fsc_send(&bad[i].c, FILES_READ,
				&(struct guestfs_args){ .handle = a.rep.handle, .length = 1024 * 1024 });
		fsc_answer_free(&a);
	}
	usleep(100000); /* lets them get stuck; nothing is asserted of it */
	double t = now();
	for (int i = 0; i < 200; i++)
		MUST(r, FILES_STAT, .path = "/");
	assert_true(now() - t < 30);
	for (int i = 0; i < 3; i++)
		line_down(&bad[i]);
	assert_int_equal(FSC(&good.c, FILES_STAT, .path = "/"), 0);
	line_down(&good);
}

/* --- handles, and what the front is told ----------------------------------------------------- */

static void handles_outlive_their_connection(void **state)
{
	struct files_rig *r = *state;
	struct line l;
	struct fsc_answer a;

	put(r, "/f", "content");
	line_up(&l, r, 5);
	assert_int_equal(fsc_call(&l.c, FILES_OPEN,
				 &(struct guestfs_args){ .path = "/f", .flags = FILES_O_READ }, &a),
		0);
	uint64_t h = a.rep.handle;
	fsc_answer_free(&a);
	line_down(&l);
	MUST(r, FILES_RENAME, .path = "/f", .path2 = "/g");
	MUST(r, FILES_UNLINK, .path = "/g");
	line_up(&l, r, 5);
	assert_int_equal(fsc_call(&l.c, FILES_READ,
				 &(struct guestfs_args){ .handle = h, .length = 100 }, &a),
		7);
	assert_string_equal(a.data, "content");
	fsc_answer_free(&a);
	struct line other;
	line_up(&other, r, 6);
	assert_int_equal(FSC(&other.c, FILES_READ, .handle = h, .length = 9), -FILES_E_HANDLE);
	line_down(&other);
	/* and a plain request of the same client has it too */
	MUST(r, FILES_CLOSE, .handle = h, .client = 5);
	assert_int_equal(FSC(&l.c, FILES_CLOSE, .handle = h), -FILES_E_HANDLE);
	line_down(&l);
}

static bool at_least(const unsigned *n, unsigned want)
{
	for (int i = 0; i < 1000 && __atomic_load_n(n, __ATOMIC_SEQ_CST) < want; i++)
		usleep(10000);
	return __atomic_load_n(n, __ATOMIC_SEQ_CST) >= want;
}

static void the_front_learns_what_was_used_and_done(void **state)
{
	struct files_rig *r = *state;
	struct line l;
	struct fsc_answer a;

	put(r, "/old", "abc");
	line_up(&l, r, 5);
	assert_int_equal(FSC(&l.c, FILES_STAT, .path = "/old"), 0);
	assert_int_equal(fsc_call(&l.c, FILES_OPEN,
				 &(struct guestfs_args){ .path = "/new", .mode = 0600,
					 .flags = FILES_O_WRITE | FILES_O_CREATE | FILES_USE },
				 &a),
		0);
	assert_int_equal(FSC(&l.c, FILES_WRITE, .handle = a.rep.handle, .data = "12", .data_len = 2), 2);
	assert_int_equal(FSC(&l.c, FILES_CLOSE, .handle = a.rep.handle), 0);
	fsc_answer_free(&a);
	assert_int_equal(FSC(&l.c, FILES_OPEN, .path = "/old", .length = 10,
				 .flags = FILES_O_READ | FILES_INLINE_CLOSE),
		0);
	assert_int_equal(FSC(&l.c, FILES_UNLINK, .path = "/old"), 0);
	assert_true(at_least(&l.removed, 1));
	assert_true(at_least(&l.used, 1));
	assert_true(at_least(&l.written, 1));
	assert_true(at_least(&l.read, 1));
	/* what happens last is told at the end */
	assert_int_equal(FSC(&l.c, FILES_UNLINK, .path = "/new"), 0);
	line_down(&l);
	assert_int_equal(l.removed, 2);
	assert_int_equal(l.used, 1);
	assert_int_equal(l.written, 1);
	assert_int_equal(l.read, 1);
}

static unsigned removed_but_held(const struct files_rig *r)
{
	char path[64], text[512];
	unsigned n = 0;

	for (int fd = 0; fd < 256; fd++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)r->pid, fd);
		ssize_t len = readlink(path, text, sizeof(text) - 1);
		text[len > 0 ? len : 0] = '\0';
		n += strstr(text, "/gone") && strstr(text, " (deleted)");
	}
	return n;
}

/* The worker answers before the object ends, but lets go of it before it looks at what comes next. */
static void what_was_removed_is_let_go_before_the_next_request(void **state)
{
	struct files_rig *r = *state;
	struct line l;

	line_up(&l, r, 5);
	for (int i = 0; i < 50; i++) {
		put(r, "/gone", "abc");
		put(r, "/new", "abc");
		assert_int_equal(FSC(&l.c, FILES_RENAME, .path = "/new", .path2 = "/gone"), 0);
		assert_int_equal(FSC(&l.c, FILES_STAT, .path = "/gone"), 0);
		assert_int_equal(removed_but_held(r), 0);
		assert_int_equal(FSC(&l.c, i % 2 ? FILES_UNLINK : FILES_REMOVE, .path = "/gone"), 0);
		assert_int_equal(FSC(&l.c, FILES_MKDIR, .path = "/gone", .mode = 0755), 0);
		assert_int_equal(removed_but_held(r), 0);
		assert_int_equal(FSC(&l.c, FILES_RMDIR, .path = "/gone"), 0);
		assert_int_equal(FSC(&l.c, FILES_STAT, .path = "/gone"), -ENOENT);
		assert_int_equal(removed_but_held(r), 0);
		assert_int_equal(FSC(&l.c, FILES_UNLINK, .path = "/gone"), -ENOENT);
	}
	line_down(&l);
}

static void the_front_can_end_them(void **state)
{
	struct files_rig *r = *state;
	struct line l[2];

	line_up(&l[0], r, 1);
	line_up(&l[1], r, 2);
	(void)fsc_send(&l[1].c, FILES_STAT, &(struct guestfs_args){ .path = "/" });
	guestfs_shutdown(r->fs);
	assert_true(fsc_ended(&l[0].c, 10000));
	assert_true(fsc_ended(&l[1].c, 10000));
	for (int i = 0; i < 2; i++) {
		line_down(&l[i]);
		assert_int_equal(l[i].rc, -1);
	}
}

static void a_killed_worker_ends_them(void **state)
{
	struct files_rig *r = *state;
	struct line l;

	line_up(&l, r, 1);
	kill(r->pid, SIGKILL);
	/* the test's own end keeps the socket: the front is told, and closes */
	pthread_join(l.thread, NULL);
	assert_int_equal(l.rc, -1);
	assert_true(fsc_ended(&l.c, 10000));
	fsc_fini(&l.c);
}

static void only_a_local_stream_is_taken(void **state)
{
	struct files_rig *r = *state;
	struct guestfs_watch w = { .used = on_use, .each = on_done };
	int tcp = socket(AF_INET, SOCK_STREAM, 0), pipes[2];

	assert_int_equal(guestfs_stream(r->fs, 1, tcp, &w, NULL), -1);
	close(tcp);
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(guestfs_stream(r->fs, 1, pipes[0], &w, NULL), -1);
	close(pipes[0]);
	close(pipes[1]);
	MUST(r, FILES_STAT, .path = "/");
}

/* --- watching -------------------------------------------------------------------------------- */

static uint64_t watch(struct line *l, const char *path)
{
	int64_t w = FSC(&l->c, FILES_WATCH, .path = path);

	assert_true(w > 0);
	return (uint64_t)w;
}

static void each_kind_of_change_is_pushed(void **state)
{
	struct files_rig *r = *state;
	struct line l;
	char a[128], b[128];

	snprintf(a, sizeof(a), "%s/d/a", r->dir);
	snprintf(b, sizeof(b), "%s/d/b", r->dir);
	assert_int_equal(mkdir(files_rig_path(r, "/d"), 0755), 0);
	line_up(&l, r, 1);
	uint64_t w = watch(&l, "/d");
	assert_int_equal(watch(&l, "/d"), w);
	files_rig_write(a, "x", 1);
	fsc_await(&l.c, w, "a", FS_INVAL_NAME);
	fsc_await(&l.c, w, "a", FS_INVAL_DATA);
	fsc_forget(&l.c);
	assert_int_equal(chmod(a, 0600), 0);
	fsc_await(&l.c, w, "a", FS_INVAL_ATTR);
	assert_int_equal(truncate(a, 0), 0);
	fsc_await(&l.c, w, "a", FS_INVAL_DATA);
	fsc_forget(&l.c);
	assert_int_equal(rename(a, b), 0);
	fsc_await(&l.c, w, "a", FS_INVAL_NAME);
	fsc_await(&l.c, w, "b", FS_INVAL_NAME);
	fsc_forget(&l.c);
	assert_int_equal(unlink(b), 0);
	fsc_await(&l.c, w, "b", FS_INVAL_NAME);
	assert_int_equal(chmod(files_rig_path(r, "/d"), 0700), 0);
	fsc_await(&l.c, w, "", FS_INVAL_ATTR);
	/* one's own as well */
	fsc_forget(&l.c);
	assert_int_equal(FSC(&l.c, FILES_MKDIR, .path = "/d/own", .mode = 0755), 0);
	assert_true(fsc_changed(&l.c, w, "own", FS_INVAL_NAME));
	line_down(&l);
}

static void a_watch_follows_its_directory_and_ends_with_it(void **state)
{
	struct files_rig *r = *state;
	struct line l;

	assert_int_equal(mkdir(files_rig_path(r, "/p"), 0755), 0);
	assert_int_equal(mkdir(files_rig_path(r, "/p/d"), 0755), 0);
	assert_int_equal(mkdir(files_rig_path(r, "/q"), 0755), 0);
	line_up(&l, r, 1);
	uint64_t p = watch(&l, "/p"), d = watch(&l, "/p/d"), q = watch(&l, "/q");
	assert_int_equal(rename(files_rig_path(r, "/p/d"), files_rig_path(r, "/q/e")), 0);
	fsc_await(&l.c, d, "", FS_INVAL_NAME);
	fsc_await(&l.c, p, "d", FS_INVAL_NAME);
	fsc_await(&l.c, q, "e", FS_INVAL_NAME);
	fsc_forget(&l.c);
	files_rig_write(files_rig_path(r, "/q/e/inside"), "x", 1);
	fsc_await(&l.c, d, "inside", FS_INVAL_NAME);
	assert_int_equal(unlink(files_rig_path(r, "/q/e/inside")), 0);
	assert_int_equal(rmdir(files_rig_path(r, "/q/e")), 0);
	fsc_await(&l.c, d, "", FS_INVAL_GONE);
	assert_int_equal(FSC(&l.c, FILES_UNWATCH, .handle = d), -ENOENT);
	fsc_forget(&l.c);
	assert_int_equal(FSC(&l.c, FILES_UNWATCH, .handle = p), 0);
	fsc_await(&l.c, p, "", FS_INVAL_GONE);
	files_rig_write(files_rig_path(r, "/p/unseen"), "x", 1);
	assert_int_equal(FSC(&l.c, FILES_STAT, .path = "/p/unseen"), 0);
	assert_false(fsc_changed(&l.c, p, "unseen", ~0u));
	line_down(&l);
}

static void a_file_can_be_watched_but_not_what_it_leads_to(void **state)
{
	struct files_rig *r = *state;
	struct line l;

	put(r, "/f", "x");
	assert_int_equal(symlink("/etc", files_rig_path(r, "/away")), 0);
	assert_int_equal(symlink("/f", files_rig_path(r, "/l")), 0);
	line_up(&l, r, 1);
	uint64_t w = watch(&l, "/f");
	files_rig_write(files_rig_path(r, "/f"), "yy", 2);
	fsc_await(&l.c, w, "", FS_INVAL_DATA);
	assert_int_equal(FSC(&l.c, FILES_WATCH, .path = "/away", .flags = FILES_FOLLOW), -ENOENT);
	assert_true(FSC(&l.c, FILES_WATCH, .path = "/l") > 0);
	assert_int_equal(FSC(&l.c, FILES_WATCH, .path = "/l", .flags = FILES_FOLLOW), -ELOOP);
	assert_int_equal(FSC(&l.c, FILES_WATCH, .path = "/none"), -ENOENT);
	line_down(&l);
}

/* The contract of coherence: a change that has returned is pushed before the answer to anything that
 * is asked afterwards, and what is answered is at least as new. */
static void nothing_older_is_answered_after_a_change(void **state)
{
	struct files_rig *r = *state;
	struct line l;
	char text[32], path[128];

	snprintf(path, sizeof(path), "%s/d/f", r->dir);
	assert_int_equal(mkdir(files_rig_path(r, "/d"), 0755), 0);
	files_rig_write(path, "-", 1);
	line_up(&l, r, 1);
	uint64_t w = watch(&l, "/d");
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	for (int i = 0; i < 10000; i++) {
		struct fsc_answer a;
		fsc_forget(&l.c);
		int n = snprintf(text, sizeof(text), "%08d", i);
		if (i % 100 == 99) { /* now and then by a new file in its place */
			char other[160];
			snprintf(other, sizeof(other), "%s.new", path);
			close(fd);
			files_rig_write(other, text, (size_t)n);
			assert_int_equal(rename(other, path), 0);
			fd = open(path, O_WRONLY | O_CLOEXEC);
			assert_true(fd >= 0);
		} else {
			assert_int_equal(pwrite(fd, text, (size_t)n, 0), n);
		}
		assert_int_equal(fsc_call(&l.c, FILES_OPEN,
					 &(struct guestfs_args){ .path = "/d/f", .length = 100,
						 .flags = FILES_O_READ | FILES_INLINE_CLOSE },
					 &a),
			0);
		assert_string_equal(a.data, text);
		fsc_answer_free(&a);
		assert_true(fsc_changed(&l.c, w, "f", FS_INVAL_DATA | FS_INVAL_NAME));
	}
	close(fd);
	line_down(&l);
}

/* 10,000 changes that nobody asks about arrive too, or are told to be lost. On a slow disk fewer: who
 * reads nothing for 30 seconds is cut off. */
static void a_storm_arrives_or_is_told_to_be_lost(void **state)
{
	struct files_rig *r = *state;
	struct line l;
	char path[160];
	int made = 0;

	assert_int_equal(mkdir(files_rig_path(r, "/d"), 0755), 0);
	line_up(&l, r, 1);
	uint64_t w = watch(&l, "/d");
	for (double end = now() + 10; made < 10000 && now() < end; made++) {
		snprintf(path, sizeof(path), "%s/d/n%05d", r->dir, made);
		int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		assert_true(fd >= 0);
		close(fd);
	}
	files_rig_write(files_rig_path(r, "/d/last"), "x", 1);
	assert_int_equal(FSC(&l.c, FILES_STAT, .path = "/d/last"), 0);
	if (fsc_changed(&l.c, 0, "", FS_INVAL_ALL))
		return line_down(&l);
	static bool seen[10000];
	for (size_t i = 0; i < l.c.nchanges; i++)
		if (l.c.changes[i].name[0] == 'n')
			seen[atoi(l.c.changes[i].name + 1)] = true;
	for (int i = 0; i < made; i++)
		assert_true(seen[i]);
	assert_true(fsc_changed(&l.c, w, "last", FS_INVAL_NAME));
	line_down(&l);
}

/* A client that reads nothing while more changes than the kernel keeps come by. */
static void an_overflow_is_told(void **state)
{
	struct files_rig *r = *state;
	struct line l;
	char from[300], to[300];
	unsigned most = 0;

	assert_int_equal(mkdir(files_rig_path(r, "/d"), 0755), 0);
	FILE *f = fopen("/proc/sys/fs/inotify/max_queued_events", "re");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%u", &most), 1);
	fclose(f);
	if (most > 100000)
		skip();
	snprintf(from, sizeof(from), "%s/d/a%0150d", r->dir, 1);
	snprintf(to, sizeof(to), "%s/d/b%0150d", r->dir, 2);
	files_rig_write(from, "", 0);
	line_up(&l, r, 1);
	(void)watch(&l, "/d");
	/* two events each; what fits the socket is far less than the rest */
	for (unsigned i = 0; i < most; i++) {
		assert_int_equal(rename(from, to), 0);
		assert_int_equal(rename(to, from), 0);
	}
	fsc_await(&l.c, 0, "", FS_INVAL_ALL);
	line_down(&l);
}

static void watches_are_counted(void **state)
{
	struct files_rig *r = *state;
	struct line l;
	char path[64];

	line_up(&l, r, 1);
	/* far more than there may be at a time, but never so many at a time */
	for (unsigned i = 0; i < 300; i++) {
		snprintf(path, sizeof(path), "/d%u", i % 50);
		(void)FSC(&l.c, FILES_MKDIR, .path = path, .mode = 0755);
		int64_t w = FSC(&l.c, FILES_WATCH, .path = path);
		assert_true(w > 0);
		if (i % 2)
			assert_int_equal(FSC(&l.c, FILES_UNWATCH, .handle = (uint64_t)w), 0);
		else
			assert_int_equal(FSC(&l.c, FILES_RMDIR, .path = path), 0);
	}
	line_down(&l);
}

#define ROW(fn) cmocka_unit_test_setup_teardown(fn, files_rig_up, files_rig_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ROW(hello_tells_the_limits),
		ROW(far_below_is_reached),
		ROW(each_broken_frame_ends_or_is_refused),
		ROW(garbage_and_half_frames_harm_nobody_else),
		ROW(the_seventeenth_is_refused),
		ROW(many_requests_in_flight_are_each_answered_once),
		ROW(a_slow_request_does_not_hold_a_quick_one),
		ROW(ordered_requests_come_after_their_handles_earlier_ones),
		ROW(a_client_that_does_not_read_stops_only_itself),
		ROW(handles_outlive_their_connection),
		ROW(the_front_learns_what_was_used_and_done),
		ROW(what_was_removed_is_let_go_before_the_next_request),
		ROW(the_front_can_end_them),
		ROW(a_killed_worker_ends_them),
		ROW(only_a_local_stream_is_taken),
		ROW(each_kind_of_change_is_pushed),
		ROW(a_watch_follows_its_directory_and_ends_with_it),
		ROW(a_file_can_be_watched_but_not_what_it_leads_to),
		ROW(nothing_older_is_answered_after_a_change),
		ROW(a_storm_arrives_or_is_told_to_be_lost),
		ROW(an_overflow_is_told),
		ROW(watches_are_counted),
	};

	return run_table(tests);
}
