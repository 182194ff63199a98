/* SPDX-License-Identifier: MIT */
/* Memory that a client shares with the worker (doc/sbx-fs.md): what is fit, what is refused, and
 * that data goes through it; and closes that are not answered. */
#include "common/sys/fd.h"
#include "tests/support/files.h"
#include "tests/support/fsc.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define MIB 0x100000u

struct line {
	struct files_rig *r;
	struct fsc c;
	int given;
	pthread_t thread;
};

static void on_use(void *arg)
{
	(void)arg;
}

static void on_done(void *arg, const char *path, uint64_t read, uint64_t written, unsigned flags)
{
	(void)arg;
	(void)path;
	(void)read;
	(void)written;
	(void)flags;
}

static void *front(void *arg)
{
	struct line *l = arg;
	struct guestfs_watch w = { .used = on_use, .each = on_done, .arg = l };

	(void)guestfs_stream(l->r->fs, 7, l->given, &w, NULL);
	close(l->given);
	return NULL;
}

static void line_up(struct line *l, struct files_rig *r)
{
	int pair[2];

	*l = (struct line){ .r = r };
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	fsc_init(&l->c, pair[0]);
	l->given = pair[1];
	assert_int_equal(pthread_create(&l->thread, NULL, front, l), 0);
	(void)fsc_hello(&l->c);
}

static void line_down(struct line *l)
{
	fsc_fini(&l->c);
	pthread_join(l->thread, NULL);
}

static int memory(size_t len, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

/* The request as a client sends it; fd -1: nothing comes along. */
static int64_t share(struct fsc *c, enum files_op op, uint64_t len, int fd)
{
	struct {
		struct fs_frame f;
		struct files_req q;
	} m = { .f = { .op = (uint16_t)op, .tag = ++c->tag, .len = sizeof(m.q) },
		.q = { .length = len } };
	struct fsc_answer a;
	int64_t value;

	assert_int_equal(fd_send_msg(c->fd, &m, sizeof(m), &fd, fd >= 0), 0);
	if (!fsc_recv(c, &a))
		return 1;
	value = a.f.value;
	fsc_answer_free(&a);
	return value;
}

static const struct {
	const char *name;
	uint64_t len;
	size_t size;
	int seals;
	bool comes;
	int64_t want;
} rows[] = {
	{ "nothing comes along", MIB, MIB, F_SEAL_SHRINK, false, -EINVAL },
	{ "it may shrink", MIB, MIB, F_SEAL_GROW, true, -EINVAL },
	{ "no length", 0, MIB, F_SEAL_SHRINK, true, -EINVAL },
	{ "not whole pages", MIB - 1, MIB, F_SEAL_SHRINK, true, -EINVAL },
	{ "longer than it is", 2 * MIB, MIB, F_SEAL_SHRINK, true, -EINVAL },
	{ "longer than anybody needs", FS_SHARED_MAX + MIB, FS_SHARED_MAX + MIB, F_SEAL_SHRINK,
		true, -EINVAL },
	{ "fit", MIB, MIB, F_SEAL_SHRINK, true, 0 },
};

static void only_what_is_fit_is_taken(void **state)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		_cleanup_close_ int fd = memory(rows[i].size, rows[i].seals);
		struct line l;

		line_up(&l, *state);
		if (share(&l.c, FILES_SHARE, rows[i].len, rows[i].comes ? fd : -1) != rows[i].want)
			fail_msg("%s", rows[i].name);
		/* once, and the connection goes on */
		assert_int_equal(share(&l.c, FILES_SHARE, MIB, -1), -EINVAL);
		assert_int_equal(FSC(&l.c, FILES_STAT, .path = "/"), 0);
		line_down(&l);
	}
}

static void a_file_is_no_memory(void **state)
{
	struct files_rig *r = *state;
	_cleanup_close_ int fd = -1;
	struct line l;

	put(r, "/f", "text");
	fd = open(files_rig_path(r, "/f"), O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0 && ftruncate(fd, MIB) == 0);
	line_up(&l, r);
	assert_int_equal(share(&l.c, FILES_SHARE, MIB, fd), -EINVAL);
	line_down(&l);
}

static void a_descriptor_with_anything_else_ends_the_connection(void **state)
{
	_cleanup_close_ int fd = memory(MIB, F_SEAL_SHRINK);
	struct line l;

	line_up(&l, *state);
	assert_int_equal(share(&l.c, FILES_STATFS, 0, fd), 1);
	line_down(&l);
}

static uint64_t open_file(struct fsc *c, const char *path, unsigned flags)
{
	struct fsc_answer a;
	uint64_t h;

	assert_int_equal(
		fsc_call(c, FILES_OPEN,
			&(struct guestfs_args){ .path = path, .flags = flags, .mode = 0644 }, &a),
		0);
	h = a.rep.handle;
	fsc_answer_free(&a);
	return h;
}

static void data_goes_through_it(void **state)
{
	_cleanup_close_ int fd = memory(MIB, F_SEAL_SHRINK);
	char *p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct fsc_answer a;
	struct line l;
	uint64_t h;

	assert_true(p != MAP_FAILED);
	line_up(&l, *state);
	h = open_file(&l.c, "/f", FILES_O_READ | FILES_O_WRITE | FILES_O_CREATE);
	assert_int_equal(
		FSC(&l.c, FILES_READ, .handle = h, .length = 4, .flags = FILES_SHARED), -EINVAL);
	assert_int_equal(share(&l.c, FILES_SHARE, MIB, fd), 0);
	memcpy(p + 5000, "hello", 5);
	assert_int_equal(FSC(&l.c, FILES_WRITE, .handle = h, .offset = 2, .offset2 = 5000,
				 .length = 5, .flags = FILES_SHARED),
		5);
	assert_int_equal(fsc_call(&l.c, FILES_READ,
				 &(struct guestfs_args){ .handle = h,
					 .offset = 0,
					 .offset2 = MIB - 100,
					 .length = 100,
					 .flags = FILES_SHARED },
				 &a),
		7);
	assert_int_equal(a.rep.data_len, 0);
	assert_memory_equal(p + MIB - 100, "\0\0hello", 7);
	fsc_answer_free(&a);
	/* past its end, or so far that the sum is small again */
	assert_int_equal(FSC(&l.c, FILES_READ, .handle = h, .offset2 = MIB - 99, .length = 100,
				 .flags = FILES_SHARED),
		-EINVAL);
	assert_int_equal(FSC(&l.c, FILES_READ, .handle = h, .offset2 = UINT64_MAX - 50,
				 .length = 100, .flags = FILES_SHARED),
		-EINVAL);
	assert_int_equal(FSC(&l.c, FILES_WRITE, .handle = h, .offset2 = 0, .length = MIB + 1,
				 .flags = FILES_SHARED),
		-EINVAL);
	assert_int_equal(FSC(&l.c, FILES_WRITE, .handle = h, .length = 1, .flags = FILES_SHARED,
				 .data = "x", .data_len = 1),
		-EINVAL);
	line_down(&l);
	assert_int_equal(munmap(p, MIB), 0);
}

static void a_quiet_close_closes_and_is_not_answered(void **state)
{
	struct line l;
	uint64_t h;

	line_up(&l, *state);
	h = open_file(&l.c, "/f", FILES_O_WRITE | FILES_O_CREATE);
	(void)fsc_send(
		&l.c, FILES_CLOSE, &(struct guestfs_args){ .handle = h, .flags = FILES_QUIET });
	(void)fsc_send(
		&l.c, FILES_CLOSE, &(struct guestfs_args){ .handle = 12345, .flags = FILES_QUIET });
	/* the next answer is this one's */
	assert_int_equal(
		FSC(&l.c, FILES_WRITE, .handle = h, .data = "x", .data_len = 1), -FILES_E_HANDLE);
	line_down(&l);
}

#define ROW(fn) cmocka_unit_test_setup_teardown(fn, files_rig_up, files_rig_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ROW(only_what_is_fit_is_taken),
		ROW(a_file_is_no_memory),
		ROW(a_descriptor_with_anything_else_ends_the_connection),
		ROW(data_goes_through_it),
		ROW(a_quiet_close_closes_and_is_not_answered),
	};

	return run_table(tests);
}
