/* SPDX-License-Identifier: MIT */
/* The promises of guestfs.h against a real worker on a temporary folder. */
#include "tests/support/files.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

static int up(void **state)
{
	struct files_rig *r = calloc(1, sizeof(*r));

	files_rig_init(r, "fake", 0);
	*state = r;
	return 0;
}

static int down(void **state)
{
	struct files_rig *r = *state;

	files_rig_fini(r);
	free(r);
	return 0;
}

/* Carries out, expects success. */
static struct guestfs_result must(struct files_rig *r, enum files_op op, struct guestfs_args a)
{
	struct err e = ERR_NULL;
	struct guestfs_result res = { .data = NULL };

	if (guestfs_call(r->fs, op, &a, &res, &e) < 0)
		fail_msg("op %d %s: %s", op, a.path ? a.path : "", e.msg);
	return res;
}
#define MUST(r, op, ...)                                                              \
	do {                                                                          \
		struct guestfs_result res_ = must(r, op, (struct guestfs_args){ __VA_ARGS__ }); \
		guestfs_result_free(&res_);                                           \
	} while (0)

static void refuses(struct files_rig *r, enum files_op op, struct guestfs_args a, enum err_code code,
	int sys)
{
	struct err e = ERR_NULL;
	struct guestfs_result res = { .data = NULL };

	if (guestfs_call(r->fs, op, &a, &res, &e) == 0)
		fail_msg("op %d %s: was carried out", op, a.path ? a.path : "");
	if (e.code != code || (sys && e.sys != sys))
		fail_msg("op %d %s: %s %d: %s", op, a.path ? a.path : "", err_word(e.code), e.sys, e.msg);
}
#define REFUSES(r, op, code, sys, ...) \
	refuses(r, op, (struct guestfs_args){ __VA_ARGS__ }, code, sys)

static uint64_t opened(struct files_rig *r, const char *path, unsigned flags)
{
	struct guestfs_result res = must(r, FILES_OPEN, (struct guestfs_args){ .path = path,
		.flags = flags | FILES_FOLLOW, .mode = 0644 });
	uint64_t h = res.handle;

	assert_true(h != 0);
	guestfs_result_free(&res);
	return h;
}

static void put(struct files_rig *r, const char *path, const char *text)
{
	MUST(r, FILES_PUT, .path = path, .data = text, .data_len = strlen(text));
}

static void assert_file(const char *path, const char *want)
{
	_cleanup_free_ char *got = files_rig_read(path, NULL);

	assert_non_null(got);
	assert_string_equal(got, want);
}

static void put_makes_parents_with_modes(void **state)
{
	struct files_rig *r = *state;
	struct stat st;

	put(r, "/sandbox/home/nested/dir/f.txt", "hello");
	assert_file(files_rig_path(r, "/sandbox/home/nested/dir/f.txt"), "hello");
	assert_int_equal(stat(files_rig_path(r, "/sandbox/home/nested"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_int_equal(stat(files_rig_path(r, "/sandbox/home/nested/dir/f.txt"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
	assert_int_equal(files_rig_count(files_rig_path(r, "/sandbox/home/nested/dir")), 1);
}

static void put_keeps_mode_and_attributes_but_not_setid(void **state)
{
	struct files_rig *r = *state;
	struct stat st;

	put(r, "/f", "old and longer");
	assert_int_equal(chmod(files_rig_path(r, "/f"), 04751), 0);
	bool xattrs = true;
	struct err e = ERR_NULL;
	struct guestfs_result res;
	struct guestfs_args set = { .path = "/f", .path2 = "user.colour", .data = "red", .data_len = 3 };
	if (guestfs_call(r->fs, FILES_XATTR_SET, &set, &res, &e) < 0) {
		xattrs = false;
		assert_int_equal(e.sys, EOPNOTSUPP);
	} else {
		guestfs_result_free(&res);
	}
	put(r, "/f", "new");
	assert_file(files_rig_path(r, "/f"), "new");
	assert_int_equal(stat(files_rig_path(r, "/f"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0751);
	if (!xattrs)
		return;
	res = must(r, FILES_XATTR_GET, (struct guestfs_args){ .path = "/f", .path2 = "user.colour" });
	assert_string_equal(res.data, "red");
	guestfs_result_free(&res);
}

static void put_through_links_writes_the_target(void **state)
{
	struct files_rig *r = *state;
	struct stat a, b;

	put(r, "/real", "one");
	assert_int_equal(symlink("/real", files_rig_path(r, "/soft")), 0);
	assert_int_equal(link(files_rig_path(r, "/real"), files_rig_path(r, "/hard")), 0);
	put(r, "/soft", "two!");
	assert_file(files_rig_path(r, "/hard"), "two!");
	put(r, "/hard", "3");
	assert_file(files_rig_path(r, "/real"), "3");
	assert_int_equal(lstat(files_rig_path(r, "/soft"), &a), 0);
	assert_true(S_ISLNK(a.st_mode));
	assert_int_equal(stat(files_rig_path(r, "/real"), &a), 0);
	assert_int_equal(stat(files_rig_path(r, "/hard"), &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	assert_int_equal(symlink("/later", files_rig_path(r, "/dangling")), 0);
	put(r, "/dangling", "made");
	assert_file(files_rig_path(r, "/later"), "made");
	assert_int_equal(files_rig_count(r->dir), 5);
}

static void links_stay_inside_the_root(void **state)
{
	struct files_rig *r = *state;
	char secret[128];

	snprintf(secret, sizeof(secret), "%s/secret", r->out);
	files_rig_write(secret, "host", 4);
	assert_int_equal(symlink(r->out, files_rig_path(r, "/away")), 0);
	assert_int_equal(symlink("../../../../../..", files_rig_path(r, "/up")), 0);
	REFUSES(r, FILES_OPEN, ERR_NOT_FOUND, ENOENT, .path = "/away/secret",
		.flags = FILES_O_READ | FILES_FOLLOW);
	REFUSES(r, FILES_REMOVE, ERR_NOT_FOUND, ENOENT, .path = "/away/secret");
	put(r, "/in", "inside");
	struct guestfs_result res = must(r, FILES_OPEN, (struct guestfs_args){ .path = "/up/in",
		.flags = FILES_O_READ | FILES_FOLLOW | FILES_INLINE_CLOSE, .length = 100 });
	assert_string_equal(res.data, "inside");
	guestfs_result_free(&res);
	assert_file(secret, "host");
}

struct swap { struct files_rig *r; int stop; /* atomic */ };

static void *swapper(void *arg)
{
	struct swap *s = arg;
	char dir[128], link_[128], keep[128];

	snprintf(dir, sizeof(dir), "%s/d", s->r->dir);
	snprintf(link_, sizeof(link_), "%s/l", s->r->dir);
	snprintf(keep, sizeof(keep), "%s/k", s->r->dir);
	while (!__atomic_load_n(&s->stop, __ATOMIC_RELAXED)) {
		(void)rename(dir, keep);
		(void)rename(link_, dir);
		sched_yield();
		(void)rename(dir, link_);
		(void)rename(keep, dir);
	}
	return NULL;
}

/* /d is now a directory, now an absolute link to a folder outside. The naive open does escape. */
static void swapped_link_never_leads_out(void **state)
{
	struct files_rig *r = *state;
	struct swap s = { .r = r };
	pthread_t t;
	char path[128];
	int naive = 0, worker = 0, root;
	struct timespec t0, now;

	snprintf(path, sizeof(path), "%s/f", r->out);
	files_rig_write(path, "HOST", 4);
	assert_int_equal(mkdir(files_rig_path(r, "/d"), 0755), 0);
	files_rig_write(files_rig_path(r, "/d/f"), "GOOD", 4);
	assert_int_equal(symlink(r->out, files_rig_path(r, "/l")), 0);
	root = open(r->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(pthread_create(&t, NULL, swapper, &s), 0);
	clock_gettime(CLOCK_MONOTONIC, &t0);
	for (int i = 0; i < 200000 && (i < 2000 || !naive); i++) {
		char buf[8] = "";
		int fd = openat(root, "d/f", O_RDONLY | O_CLOEXEC);
		if (fd >= 0 && read(fd, buf, 4) == 4 && !memcmp(buf, "HOST", 4))
			naive++;
		if (fd >= 0)
			close(fd);
	}
	do {
		struct guestfs_args a = { .path = "/d/f", .length = 16,
			.flags = FILES_O_READ | FILES_FOLLOW | FILES_INLINE_CLOSE };
		struct guestfs_args w = { .path = "/d/f", .data = "GOOD", .data_len = 4 };
		struct guestfs_args d = { .path = "/d/g" };
		struct guestfs_result res = { .data = NULL };
		if (guestfs_call(r->fs, FILES_OPEN, &a, &res, NULL) == 0) {
			worker += !memcmp(res.data, "HOST", 4);
			guestfs_result_free(&res);
		}
		if (guestfs_call(r->fs, FILES_PUT, &w, &res, NULL) == 0)
			guestfs_result_free(&res);
		if (guestfs_call(r->fs, FILES_REMOVE, &d, &res, NULL) == 0)
			guestfs_result_free(&res);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - t0.tv_sec < 3);
	__atomic_store_n(&s.stop, 1, __ATOMIC_RELAXED);
	pthread_join(t, NULL);
	close(root);
	assert_file(path, "HOST");
	assert_int_equal(files_rig_count(r->out), 1);
	assert_int_equal(worker, 0);
	assert_true(naive > 0);
}

static void special_files_never_block(void **state)
{
	struct files_rig *r = *state;
	static const char *const paths[] = { "/fifo", "/viafifo", "/zero", "/sock" };

	assert_int_equal(mkfifo(files_rig_path(r, "/fifo"), 0666), 0);
	assert_int_equal(symlink("fifo", files_rig_path(r, "/viafifo")), 0);
	if (mknod(files_rig_path(r, "/zero"), S_IFCHR | 0666, makedev(1, 5)) < 0)
		assert_int_equal(mkfifo(files_rig_path(r, "/zero"), 0666), 0);
	assert_int_equal(mknod(files_rig_path(r, "/sock"), S_IFSOCK | 0666, 0), 0);
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		REFUSES(r, FILES_OPEN, ERR_INVALID_REQUEST, 0, .path = paths[i],
			.flags = FILES_O_READ | FILES_FOLLOW);
		REFUSES(r, FILES_OPEN, ERR_INVALID_REQUEST, 0, .path = paths[i],
			.flags = FILES_O_WRITE | FILES_O_CREATE | FILES_O_TRUNC | FILES_FOLLOW);
		REFUSES(r, FILES_PUT, ERR_INVALID_REQUEST, 0, .path = paths[i], .data = "x", .data_len = 1);
		REFUSES(r, FILES_SETATTR, ERR_INVALID_REQUEST, 0, .path = paths[i],
			.flags = FILES_SET_SIZE | FILES_FOLLOW);
		MUST(r, FILES_STAT, .path = paths[i]);
		MUST(r, FILES_SETATTR, .path = "/fifo", .flags = FILES_SET_MODE, .mode = 0600);
	}
	assert_int_equal(mkdir(files_rig_path(r, "/d"), 0755), 0);
	REFUSES(r, FILES_OPEN, ERR_INVALID_REQUEST, EISDIR, .path = "/d",
		.flags = FILES_O_READ | FILES_FOLLOW);
	REFUSES(r, FILES_PUT, ERR_INVALID_REQUEST, EISDIR, .path = "/d", .data = "x", .data_len = 1);
	REFUSES(r, FILES_PUT, ERR_INVALID_REQUEST, EISDIR, .path = "/", .data = "x", .data_len = 1);
	put(r, "/d/plain", "x");
	REFUSES(r, FILES_PUT, ERR_INVALID_REQUEST, ENOTDIR, .path = "/d/plain/y", .data = "x",
		.data_len = 1);
}

static void refusals_have_the_contracts_codes(void **state)
{
	struct files_rig *r = *state;
	char name[300] = "/";

	put(r, "/d/f", "x");
	REFUSES(r, FILES_REMOVE, ERR_CONFLICT, EBUSY, .path = "/");
	REFUSES(r, FILES_REMOVE, ERR_NOT_FOUND, ENOENT, .path = "/nothing");
	REFUSES(r, FILES_REMOVE, ERR_CONFLICT, ENOTEMPTY, .path = "/d");
	REFUSES(r, FILES_MKDIR, ERR_CONFLICT, EEXIST, .path = "/d", .mode = 0755);
	REFUSES(r, FILES_RMDIR, ERR_INVALID_REQUEST, ENOTDIR, .path = "/d/f");
	REFUSES(r, FILES_UNLINK, ERR_INVALID_REQUEST, EISDIR, .path = "/d");
	REFUSES(r, FILES_LIST, ERR_INVALID_REQUEST, ENOTDIR, .path = "/d/f");
	REFUSES(r, FILES_STAT, ERR_INVALID_REQUEST, ENOTDIR, .path = "/d/f/x");
	assert_int_equal(symlink("loop", files_rig_path(r, "/loop")), 0);
	REFUSES(r, FILES_OPEN, ERR_INVALID_REQUEST, ELOOP, .path = "/loop",
		.flags = FILES_O_READ | FILES_FOLLOW);
	memset(name + 1, 'n', 256);
	REFUSES(r, FILES_PUT, ERR_INVALID_REQUEST, ENAMETOOLONG, .path = name, .data = "", .data_len = 0);
	name[256] = '\0';
	put(r, name, "255 bytes");
	assert_file(files_rig_path(r, "%s", name), "255 bytes");
	REFUSES(r, FILES_MKNOD, ERR_REFUSED, EPERM, .path = "/dev", .mode = S_IFCHR | 0666);
	MUST(r, FILES_REMOVE, .path = "/d/f");
	MUST(r, FILES_REMOVE, .path = "/d");
	MUST(r, FILES_REMOVE, .path = "/loop");
	assert_int_equal(files_rig_count(r->dir), 1);
}

static void aborted_put_leaves_nothing(void **state)
{
	struct files_rig *r = *state;
	struct guestfs_result res;

	put(r, "/d/f", "precious\n");
	res = must(r, FILES_PUT_BEGIN, (struct guestfs_args){ .path = "/d/f" });
	MUST(r, FILES_PUT_DATA, .handle = res.handle, .data = "only this", .data_len = 9);
	assert_file(files_rig_path(r, "/d/f"), "precious\n");
	MUST(r, FILES_PUT_ABORT, .handle = res.handle);
	assert_file(files_rig_path(r, "/d/f"), "precious\n");
	assert_int_equal(files_rig_count(files_rig_path(r, "/d")), 1);
	REFUSES(r, FILES_PUT_COMMIT, ERR_NOT_FOUND, ESTALE, .handle = res.handle);
	guestfs_result_free(&res);
	res = must(r, FILES_PUT_BEGIN, (struct guestfs_args){ .path = "/no/such/dir/f" });
	MUST(r, FILES_PUT_ABORT, .handle = res.handle);
	guestfs_result_free(&res);
	assert_int_equal(access(files_rig_path(r, "/no"), F_OK), -1);
}

struct putter { struct files_rig *r; const char *path; char fill; int bad; };

static void *put_many(void *arg)
{
	struct putter *p = arg;
	_cleanup_free_ char *body = malloc(600000);

	memset(body, p->fill, 600000);
	for (int i = 0; i < 40; i++) {
		struct guestfs_args a = { .path = p->path, .data = body, .data_len = 600000 };
		struct guestfs_result res;
		if (guestfs_call(p->r->fs, FILES_PUT, &a, &res, NULL) < 0)
			p->bad++;
		else
			guestfs_result_free(&res);
	}
	return NULL;
}

static void two_puts(struct files_rig *r, const char *path)
{
	struct putter p[2] = { { r, path, 'a', 0 }, { r, path, 'b', 0 } };
	pthread_t t[2];
	size_t len;

	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&t[i], NULL, put_many, &p[i]), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	_cleanup_free_ char *got = files_rig_read(files_rig_path(r, "%s", path), &len);
	assert_int_equal(p[0].bad + p[1].bad, 0);
	assert_int_equal(len, 600000);
	for (size_t i = 1; i < len; i++)
		if (got[i] != got[0])
			fail_msg("two bodies mixed at byte %zu", i);
}

static void two_puts_leave_one_body(void **state)
{
	struct files_rig *r = *state;

	two_puts(r, "/f");
	put(r, "/g", "");
	assert_int_equal(link(files_rig_path(r, "/g"), files_rig_path(r, "/g2")), 0);
	two_puts(r, "/g2"); /* written in place: two names */
	assert_int_equal(files_rig_count(r->dir), 3);
}

static void handles_read_write_and_truncate(void **state)
{
	struct files_rig *r = *state;
	uint64_t h = opened(r, "/f", FILES_O_READ | FILES_O_WRITE | FILES_O_CREATE);
	struct guestfs_result res;
	char buf[64];
	size_t n;

	res = must(r, FILES_WRITE, (struct guestfs_args){ .handle = h, .data = "0123456789",
		.data_len = 10 });
	assert_int_equal(res.value, 10);
	assert_int_equal(res.attr.size, 10);
	guestfs_result_free(&res);
	MUST(r, FILES_SETATTR, .handle = h, .flags = FILES_SET_SIZE, .offset = 4);
	MUST(r, FILES_SETATTR, .path = "/f", .flags = FILES_SET_SIZE, .offset = 8);
	assert_int_equal(guestfs_read(r->fs, 0, h, 0, buf, sizeof(buf), &n, NULL), 0);
	assert_int_equal(n, 8);
	assert_memory_equal(buf, "0123\0\0\0\0", 8);
	assert_int_equal(guestfs_read(r->fs, 0, h, 100, buf, sizeof(buf), &n, NULL), 0);
	assert_int_equal(n, 0);
	MUST(r, FILES_SYNC, .handle = h);
	res = must(r, FILES_CLOSE, (struct guestfs_args){ .handle = h });
	assert_string_equal(res.data, "/f");
	assert_int_equal(res.bytes_read, 8);
	assert_int_equal(res.bytes_written, 10);
	guestfs_result_free(&res);
	REFUSES(r, FILES_CLOSE, ERR_NOT_FOUND, ESTALE, .handle = h);
}

static void handles_survive_unlink_and_rename(void **state)
{
	struct files_rig *r = *state;
	uint64_t h = opened(r, "/f", FILES_O_READ | FILES_O_WRITE | FILES_O_CREATE);
	char buf[32];
	size_t n;

	MUST(r, FILES_WRITE, .handle = h, .data = "first\n", .data_len = 6);
	MUST(r, FILES_RENAME, .path = "/f", .path2 = "/g");
	MUST(r, FILES_WRITE, .handle = h, .offset = 6, .data = "second\n", .data_len = 7);
	assert_file(files_rig_path(r, "/g"), "first\nsecond\n");
	MUST(r, FILES_UNLINK, .path = "/g");
	MUST(r, FILES_WRITE, .handle = h, .offset = 0, .data = "FIRST", .data_len = 5);
	assert_int_equal(guestfs_read(r->fs, 0, h, 0, buf, sizeof(buf), &n, NULL), 0);
	assert_int_equal(n, 13);
	assert_memory_equal(buf, "FIRST\nsecond\n", 13);
	guestfs_drop(r->fs, 0, h);
	assert_int_equal(files_rig_count(r->dir), 0);
}

static void created_mode_counts_and_open_is_exact(void **state)
{
	struct files_rig *r = *state;
	struct guestfs_result res = must(r, FILES_OPEN, (struct guestfs_args){ .path = "/ro",
		.flags = FILES_O_WRITE | FILES_O_CREATE | FILES_O_EXCL, .mode = 0444 });
	struct stat st;

	assert_true(res.flags & FILES_REP_CREATED);
	MUST(r, FILES_WRITE, .handle = res.handle, .data = "x", .data_len = 1);
	guestfs_drop(r->fs, 0, res.handle);
	guestfs_result_free(&res);
	assert_int_equal(stat(files_rig_path(r, "/ro"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0444);
	REFUSES(r, FILES_OPEN, ERR_CONFLICT, EEXIST, .path = "/ro",
		.flags = FILES_O_WRITE | FILES_O_CREATE | FILES_O_EXCL, .mode = 0644);
	assert_int_equal(symlink("ro", files_rig_path(r, "/l")), 0);
	REFUSES(r, FILES_OPEN, ERR_INVALID_REQUEST, ELOOP, .path = "/l", .flags = FILES_O_READ);
}

struct appender { struct files_rig *r; int who; };

static void *append_lines(void *arg)
{
	struct appender *a = arg;
	char line[64];

	uint64_t h = opened(a->r, "/log", FILES_O_WRITE | FILES_O_APPEND | FILES_O_CREATE);
	for (int i = 0; i < 250; i++) {
		int n = snprintf(line, sizeof(line), "w%d line %03d ................\n", a->who, i);
		MUST(a->r, FILES_WRITE, .handle = h, .data = line, .data_len = (size_t)n);
	}
	guestfs_drop(a->r->fs, 0, h);
	return NULL;
}

static void appends_of_many_never_mix(void **state)
{
	struct files_rig *r = *state;
	struct appender a[8];
	pthread_t t[8];
	size_t len, lines = 0;

	for (int i = 0; i < 8; i++) {
		a[i] = (struct appender){ r, i };
		assert_int_equal(pthread_create(&t[i], NULL, append_lines, &a[i]), 0);
	}
	for (int i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	_cleanup_free_ char *got = files_rig_read(files_rig_path(r, "/log"), &len);
	for (char *p = got; *p; p = strchr(p, '\n') + 1, lines++)
		assert_true(p[0] == 'w' && strchr(p, '\n') - p == 28);
	assert_int_equal(lines, 2000);
}

static void names_work_by_their_own_rules(void **state)
{
	struct files_rig *r = *state;
	struct stat st;

	put(r, "/a", "A");
	put(r, "/b", "B");
	REFUSES(r, FILES_RENAME, ERR_CONFLICT, EEXIST, .path = "/a", .path2 = "/b", .flags = FILES_NOREPLACE);
	MUST(r, FILES_RENAME, .path = "/a", .path2 = "/b", .flags = FILES_EXCHANGE);
	assert_file(files_rig_path(r, "/a"), "B");
	MUST(r, FILES_RENAME, .path = "/a", .path2 = "/b");
	assert_file(files_rig_path(r, "/b"), "B");
	MUST(r, FILES_LINK, .path = "/b", .path2 = "/c");
	MUST(r, FILES_SYMLINK, .path = "/l", .path2 = "/nowhere/\xff");
	struct guestfs_result res = must(r, FILES_STAT, (struct guestfs_args){ .path = "/l" });
	assert_string_equal(res.data, "/nowhere/\xff");
	guestfs_result_free(&res);
	MUST(r, FILES_MKDIR, .path = "/d", .mode = 01777);
	MUST(r, FILES_MKNOD, .path = "/d/p", .mode = S_IFIFO | 0640);
	assert_int_equal(lstat(files_rig_path(r, "/d/p"), &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
	REFUSES(r, FILES_RENAME, ERR_INVALID_REQUEST, EINVAL, .path = "/d", .path2 = "/d/x");
}

static void attributes_are_set_and_told(void **state)
{
	struct files_rig *r = *state;
	struct stat st;
	struct guestfs_result res;

	put(r, "/f", "x");
	assert_int_equal(symlink("f", files_rig_path(r, "/l")), 0);
	res = must(r, FILES_SETATTR, (struct guestfs_args){ .path = "/f", .mode = 02640,
		.flags = FILES_SET_MODE | FILES_SET_MTIME, .mtime = { .sec = 981173106, .nsec = 789 } });
	assert_int_equal(res.attr.mode & 07777, 02640);
	assert_int_equal(res.attr.mtime.nsec, 789);
	guestfs_result_free(&res);
	MUST(r, FILES_SETATTR, .path = "/l", .flags = FILES_SET_MTIME, .mtime = { .sec = -5, .nsec = 1 });
	assert_int_equal(lstat(files_rig_path(r, "/l"), &st), 0);
	assert_int_equal(st.st_mtim.tv_sec, -5);
	assert_int_equal(stat(files_rig_path(r, "/f"), &st), 0);
	assert_int_equal(st.st_mtim.tv_sec, 981173106);
	REFUSES(r, FILES_SETATTR, ERR_UNSUPPORTED, EOPNOTSUPP, .path = "/l", .flags = FILES_SET_MODE,
		.mode = 0600);
	MUST(r, FILES_SETATTR, .path = "/l", .flags = FILES_SET_MODE | FILES_FOLLOW, .mode = 0600);
	MUST(r, FILES_SETATTR, .path = "/f", .flags = FILES_SET_UID | FILES_SET_GID, .uid = getuid(),
		.gid = getgid());
}

static void version_changes_with_content(void **state)
{
	struct files_rig *r = *state;
	uint64_t h = opened(r, "/f", FILES_O_WRITE | FILES_O_CREATE), seen = 0;
	struct timespec settle = { .tv_nsec = 30000000 };

	for (int i = 0; i < 200; i++) {
		struct guestfs_result res = must(r, FILES_WRITE, (struct guestfs_args){ .handle = h,
			.data = "abcdefgh" + i % 8, .data_len = 1 });
		assert_true(res.attr.version != seen);
		seen = res.attr.version;
		guestfs_result_free(&res);
	}
	nanosleep(&settle, NULL); /* older than the coarsest change time */
	struct guestfs_result a = must(r, FILES_STAT, (struct guestfs_args){ .path = "/f" });
	struct guestfs_result b = must(r, FILES_STAT, (struct guestfs_args){ .path = "/f" });
	assert_true(a.attr.version == b.attr.version);
	guestfs_result_free(&a);
	guestfs_result_free(&b);
	guestfs_drop(r->fs, 0, h);
}

struct seen { size_t n; char names[8][256]; size_t lens[8]; bool far; };

static int see(void *arg, const struct guestfs_entry *en, struct err *e)
{
	struct seen *s = arg;

	(void)e;
	if (s->n < 8) {
		memcpy(s->names[s->n], en->name, en->name_len + 1);
		s->lens[s->n] = en->name_len;
	}
	s->n++;
	return 0;
}

static bool saw(const struct seen *s, const char *name)
{
	for (size_t i = 0; i < s->n && i < 8; i++)
		if (!strcmp(s->names[i], name))
			return true;
	return false;
}

static size_t list_all(struct files_rig *r, const char *path, uint32_t limit, struct seen *s)
{
	struct guestfs_page page = { .limit = limit };
	struct err e = ERR_NULL;
	size_t pages = 0;

	do {
		if (guestfs_list(r->fs, path, &page, see, s, &e) < 0)
			fail_msg("%s", e.msg);
		page.cursor = FILES_CURSOR_GO_ON;
		pages++;
	} while (!page.end);
	return pages;
}

static void listing_gives_names_as_bytes(void **state)
{
	struct files_rig *r = *state;
	static const char *const names[] = { "plain", "a b", "tab\tx", "new\nline", "q\"b\\s",
		"bad\xff" "one", "bad\xfe" "two" };
	struct seen s = { .n = 0 };
	char path[64];

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		snprintf(path, sizeof(path), "/%s", names[i]);
		put(r, path, names[i]);
	}
	list_all(r, "/", 2, &s);
	assert_int_equal(s.n, ARRAY_LEN(names));
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		assert_true(saw(&s, names[i]));
	MUST(r, FILES_REMOVE, .path = "/bad\xff" "one");
	assert_int_equal(files_rig_count(r->dir), (int)ARRAY_LEN(names) - 1);
}

static void listing_of_100000_entries_is_whole(void **state)
{
	struct files_rig *r = *state;
	struct seen s = { .n = 0 };
	struct timespec a, b;

	assert_int_equal(mkdir(files_rig_path(r, "/d"), 0755), 0);
	int dir = open(files_rig_path(r, "/d"), O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < 100000; i++) {
		char name[32];
		snprintf(name, sizeof(name), "file-%06d", i);
		assert_int_equal(mknodat(dir, name, S_IFREG | 0644, 0), 0);
	}
	close(dir);
	clock_gettime(CLOCK_MONOTONIC, &a);
	assert_true(list_all(r, "/d", 0, &s) >= 10);
	clock_gettime(CLOCK_MONOTONIC, &b);
	assert_int_equal(s.n, 100000);
	print_message("100000 entries: %ld ms\n",
		(b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000);
	/* A cursor works without the handle that gave it. */
	struct guestfs_page page = { .limit = 1000 };
	s.n = 0;
	for (int i = 0; !page.end; i++) {
		assert_int_equal(guestfs_list(r->fs, "/d", &page, see, &s, NULL), 0);
		guestfs_drop(r->fs, 0, page.handle);
		page.handle = 0;
		assert_true(i < 200);
	}
	assert_int_equal(s.n, 100000);
}

static void holes_stay_holes(void **state)
{
	struct files_rig *r = *state;
	uint64_t h = opened(r, "/f", FILES_O_READ | FILES_O_WRITE | FILES_O_CREATE);
	struct guestfs_result res = must(r, FILES_WRITE, (struct guestfs_args){ .handle = h,
		.offset = 8 * 1024 * 1024, .data = "end", .data_len = 3 });

	assert_int_equal(res.attr.size, 8 * 1024 * 1024 + 3);
	assert_true(res.attr.blocks < 1024);
	guestfs_result_free(&res);
	res = must(r, FILES_SEEK, (struct guestfs_args){ .handle = h, .offset = 0, .mode = 0 });
	assert_true(res.value > 1024 * 1024);
	guestfs_result_free(&res);
	res = must(r, FILES_SEEK, (struct guestfs_args){ .handle = h, .offset = 0, .mode = 1 });
	assert_int_equal(res.value, 0);
	guestfs_result_free(&res);
	MUST(r, FILES_FALLOCATE, .handle = h, .length = 65536);
	REFUSES(r, FILES_SEEK, ERR_INVALID_REQUEST, ENXIO, .handle = h, .offset = 1u << 30);
	guestfs_drop(r->fs, 0, h);
}

static void copy_moves_bytes_inside(void **state)
{
	struct files_rig *r = *state;
	_cleanup_free_ char *big = malloc(5000000);
	size_t len;

	for (size_t i = 0; i < 5000000; i++)
		big[i] = (char)(i * 7 + i / 4096);
	files_rig_write(files_rig_path(r, "/a"), big, 5000000);
	uint64_t in = opened(r, "/a", FILES_O_READ);
	uint64_t out = opened(r, "/b", FILES_O_WRITE | FILES_O_CREATE);
	struct guestfs_result res = must(r, FILES_COPY, (struct guestfs_args){ .handle = in,
		.handle2 = out, .length = 1u << 30 });
	assert_int_equal(res.value, 5000000);
	guestfs_result_free(&res);
	_cleanup_free_ char *got = files_rig_read(files_rig_path(r, "/b"), &len);
	assert_int_equal(len, 5000000);
	assert_memory_equal(got, big, len);
	REFUSES(r, FILES_COPY, ERR_INVALID_REQUEST, EINVAL, .path = "/a", .path2 = "/a", .offset = 0,
		.offset2 = 10, .length = 100);
	guestfs_drop(r->fs, 0, in);
	guestfs_drop(r->fs, 0, out);
}

static void xattrs_follow_the_rule(void **state)
{
	struct files_rig *r = *state;
	struct guestfs_args set = { .path = "/f", .path2 = "user.k", .data = "v\0w", .data_len = 3 };
	struct guestfs_result res;
	struct err e = ERR_NULL;

	put(r, "/f", "");
	REFUSES(r, FILES_XATTR_GET, ERR_NOT_FOUND, ENODATA, .path = "/f", .path2 = "security.selinux");
	REFUSES(r, FILES_XATTR_GET, ERR_UNSUPPORTED, EOPNOTSUPP, .path = "/f",
		.path2 = "system.posix_acl_access");
	REFUSES(r, FILES_XATTR_SET, ERR_CONFLICT, EPERM, .path = "/f", .path2 = "user.sbx.error",
		.data = "x", .data_len = 1);
	REFUSES(r, FILES_XATTR_SET, ERR_CONFLICT, EPERM, .path = "/f", .path2 = "trusted.x", .data = "x",
		.data_len = 1);
	if (guestfs_call(r->fs, FILES_XATTR_SET, &set, &res, &e) < 0 && e.sys == EOPNOTSUPP)
		skip();
	guestfs_result_free(&res);
	res = must(r, FILES_XATTR_GET, (struct guestfs_args){ .path = "/f", .path2 = "user.k" });
	assert_int_equal(res.data_len, 3);
	assert_memory_equal(res.data, "v\0w", 3);
	guestfs_result_free(&res);
	res = must(r, FILES_XATTR_LIST, (struct guestfs_args){ .path = "/f" });
	assert_int_equal(res.data_len, 7);
	assert_string_equal(res.data, "user.k");
	guestfs_result_free(&res);
	REFUSES(r, FILES_XATTR_SET, ERR_CONFLICT, EEXIST, .path = "/f", .path2 = "user.k", .data = "x",
		.data_len = 1, .mode = 1);
	MUST(r, FILES_XATTR_REMOVE, .path = "/f", .path2 = "user.k");
	REFUSES(r, FILES_XATTR_GET, ERR_NOT_FOUND, ENODATA, .path = "/f", .path2 = "user.k");
}

static void handles_belong_to_a_client_and_are_bounded(void **state)
{
	struct files_rig *r = *state;
	struct guestfs_result res;
	struct err e = ERR_NULL;
	int n = 0;

	put(r, "/f", "x");
	struct guestfs_args a = { .path = "/f", .client = 7, .flags = FILES_O_READ | FILES_FOLLOW };
	res = must(r, FILES_OPEN, a);
	uint64_t h = res.handle;
	guestfs_result_free(&res);
	REFUSES(r, FILES_CLOSE, ERR_NOT_FOUND, ESTALE, .handle = h, .client = 8);
	for (; guestfs_call(r->fs, FILES_OPEN, &a, &res, &e) == 0; n++) {
		guestfs_result_free(&res);
		assert_true(n < 2000);
	}
	assert_true(e.code == ERR_UNAVAILABLE);
	assert_true(n > 0 && n <= (int)FILES_CLIENT_HANDLES_MAX);
	MUST(r, FILES_CLOSE, .handle = h, .client = 7);
	MUST(r, FILES_OPEN, .path = "/f", .client = 7, .flags = FILES_O_READ | FILES_FOLLOW);
}

static void note_expired(void *arg, const char *path, uint64_t read, uint64_t written, bool changed)
{
	uint64_t *sum = arg;

	assert_string_equal(path, "/f");
	assert_true(changed);
	(void)read;
	*sum += written;
}

static void silent_client_loses_its_handles(void **state)
{
	struct files_rig r = { .control = -1 };
	uint64_t written = 0;
	struct timespec wait = { .tv_nsec = 50000000 };
	struct guestfs_result res;

	(void)state;
	files_rig_init(&r, "fake", 1);
	res = must(&r, FILES_OPEN, (struct guestfs_args){ .path = "/f", .client = 9, .mode = 0644,
		.flags = FILES_O_WRITE | FILES_O_CREATE });
	uint64_t h = res.handle;
	guestfs_result_free(&res);
	MUST(&r, FILES_WRITE, .handle = h, .client = 9, .data = "abc", .data_len = 3);
	/* Another client's requests do not keep it. */
	for (int i = 0; i < 200 && !written; i++) {
		nanosleep(&wait, NULL);
		MUST(&r, FILES_STAT, .path = "/", .client = 10);
		guestfs_expired(r.fs, note_expired, &written);
	}
	assert_int_equal(written, 3);
	REFUSES(&r, FILES_CLOSE, ERR_NOT_FOUND, ESTALE, .handle = h, .client = 9);
	files_rig_fini(&r);
}

static void dead_worker_is_unavailable(void **state)
{
	struct files_rig *r = *state;
	struct err e = ERR_NULL;
	struct guestfs_args a = { .path = "/" };
	struct guestfs_result res;

	MUST(r, FILES_STAT, .path = "/");
	kill(r->pid, SIGKILL);
	for (int i = 0; i < 100 && guestfs_call(r->fs, FILES_STAT, &a, &res, &e) == 0; i++)
		guestfs_result_free(&res);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	guestfs_shutdown(r->fs);
	assert_int_equal(guestfs_call(r->fs, FILES_STAT, &a, &res, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
}

static void end_of_the_worker_leaves_no_temporary_file(void **state)
{
	struct files_rig r = { .control = -1 };
	struct guestfs_result res;
	char path[128];

	(void)state;
	files_rig_init(&r, "fake", 0);
	put(&r, "/f", "old");
	res = must(&r, FILES_PUT_BEGIN, (struct guestfs_args){ .path = "/f" });
	MUST(&r, FILES_PUT_DATA, .handle = res.handle, .data = "x", .data_len = 1);
	guestfs_result_free(&res);
	snprintf(path, sizeof(path), "%s/f", r.dir);
	kill(r.pid, SIGKILL);
	assert_int_equal(files_rig_count(r.dir), 1);
	assert_file(path, "old");
	files_rig_fini(&r);
}

static void statfs_tells_space(void **state)
{
	struct files_rig *r = *state;
	struct guestfs_result res = must(r, FILES_STATFS, (struct guestfs_args){ .path = "/" });
	struct files_statfs s;

	memcpy(&s, res.data, sizeof(s));
	assert_true(s.blocks > 0 && s.bsize > 0 && s.namelen == 255);
	guestfs_result_free(&res);
}

static void write_drops_setid_bits(void **state)
{
	struct files_rig *r = *state;
	struct stat st;

	put(r, "/f", "x");
	assert_int_equal(chmod(files_rig_path(r, "/f"), 06755), 0);
	uint64_t h = opened(r, "/f", FILES_O_WRITE);
	struct guestfs_result res = must(r, FILES_WRITE, (struct guestfs_args){ .handle = h,
		.data = "y", .data_len = 1 });
	assert_int_equal(res.attr.mode & 07777, 0755);
	guestfs_result_free(&res);
	assert_int_equal(stat(files_rig_path(r, "/f"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	guestfs_drop(r->fs, 0, h);
}

/* In linux mode a worker with a root's rights makes files of the sandbox's user and opens everything. */
static void new_files_belong_to_the_sandbox_user(void **state)
{
	struct files_rig r = { .control = -1 };
	struct stat st;

	(void)state;
	if (geteuid() != 0)
		skip();
	files_rig_init(&r, "linux", 0);
	put(&r, "/a/b/f", "x");
	assert_int_equal(stat(files_rig_path(&r, "/a/b"), &st), 0);
	assert_true(st.st_uid == 1001 && st.st_gid == 1001);
	assert_int_equal(stat(files_rig_path(&r, "/a/b/f"), &st), 0);
	assert_true(st.st_uid == 1001 && st.st_gid == 1001);
	MUST(&r, FILES_SYMLINK, .path = "/l", .path2 = "x");
	assert_int_equal(lstat(files_rig_path(&r, "/l"), &st), 0);
	assert_true(st.st_uid == 1001 && st.st_gid == 1001);
	guestfs_drop(r.fs, 0, opened(&r, "/h", FILES_O_WRITE | FILES_O_CREATE));
	assert_int_equal(stat(files_rig_path(&r, "/h"), &st), 0);
	assert_true(st.st_uid == 1001 && st.st_gid == 1001);
	/* Root's own file is written and stays root's; one that nobody may read is read. */
	files_rig_write(files_rig_path(&r, "/hosts"), "old", 3);
	assert_int_equal(chmod(files_rig_path(&r, "/hosts"), 0400), 0);
	put(&r, "/hosts", "new");
	assert_file(files_rig_path(&r, "/hosts"), "new");
	assert_int_equal(stat(files_rig_path(&r, "/hosts"), &st), 0);
	assert_true(st.st_uid == 0 && (st.st_mode & 07777) == 0400);
	guestfs_drop(r.fs, 0, opened(&r, "/hosts", FILES_O_READ | FILES_O_WRITE));
	MUST(&r, FILES_SETATTR, .path = "/hosts", .flags = FILES_SET_UID | FILES_SET_MODE, .uid = 5,
		.mode = 0600);
	assert_int_equal(mkdir(files_rig_path(&r, "/sticky"), 01777), 0);
	assert_int_equal(chmod(files_rig_path(&r, "/sticky"), 01777), 0);
	files_rig_write(files_rig_path(&r, "/sticky/other"), "old", 3);
	put(&r, "/sticky/other", "new");
	guestfs_drop(r.fs, 0, opened(&r, "/sticky/other", FILES_O_WRITE | FILES_O_CREATE));
	MUST(&r, FILES_REMOVE, .path = "/sticky/other");
	files_rig_fini(&r);
}

#define T(text, fn) { .name = text, .test_func = fn, .setup_func = up, .teardown_func = down }
int main(void)
{
	const struct CMUnitTest tests[] = {
		T("put makes parents 0755 and the file 0644", put_makes_parents_with_modes),
		T("put keeps mode and attributes but not set-id", put_keeps_mode_and_attributes_but_not_setid),
		T("put through links writes the target", put_through_links_writes_the_target),
		T("links stay inside the root", links_stay_inside_the_root),
		T("swapped link never leads out, a naive open does", swapped_link_never_leads_out),
		T("pipes, devices and sockets never block", special_files_never_block),
		T("refusals have the contract's codes", refusals_have_the_contracts_codes),
		T("aborted put leaves nothing", aborted_put_leaves_nothing),
		T("two puts leave one body", two_puts_leave_one_body),
		T("handles read, write and truncate", handles_read_write_and_truncate),
		T("handles survive unlink and rename", handles_survive_unlink_and_rename),
		T("mode at creation counts, exclusive is exact", created_mode_counts_and_open_is_exact),
		T("appends of many never mix", appends_of_many_never_mix),
		T("names work by their own rules", names_work_by_their_own_rules),
		T("attributes are set and told", attributes_are_set_and_told),
		T("version changes with content", version_changes_with_content),
		T("listing gives names as bytes", listing_gives_names_as_bytes),
		T("listing of 100000 entries is whole", listing_of_100000_entries_is_whole),
		T("holes stay holes", holes_stay_holes),
		T("copy moves bytes inside", copy_moves_bytes_inside),
		T("extended attributes follow the rule", xattrs_follow_the_rule),
		T("handles belong to a client and are bounded", handles_belong_to_a_client_and_are_bounded),
		{ .name = "silent client loses its handles", .test_func = silent_client_loses_its_handles },
		T("dead worker is unavailable, ended sandbox conflict", dead_worker_is_unavailable),
		{ .name = "end of the worker leaves no temporary file",
			.test_func = end_of_the_worker_leaves_no_temporary_file },
		T("statfs tells space", statfs_tells_space),
		T("write drops set-id bits", write_drops_setid_bits),
		{ .name = "new files belong to the sandbox's user",
			.test_func = new_files_belong_to_the_sandbox_user },
	};

	return run_table(tests);
}
