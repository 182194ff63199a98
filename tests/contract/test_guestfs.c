/* SPDX-License-Identifier: MIT */
/* The promises of guestfs.h about names and whole files, against a real worker on a temporary
 * folder. */
#include "tests/support/files.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

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
	struct guestfs_args set = {
		.path = "/f", .path2 = "user.colour", .data = "red", .data_len = 3
	};
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
	res = must(
		r, FILES_XATTR_GET, (struct guestfs_args){ .path = "/f", .path2 = "user.colour" });
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
	struct guestfs_result res = must(r, FILES_OPEN,
		(struct guestfs_args){ .path = "/up/in",
			.flags = FILES_O_READ | FILES_FOLLOW | FILES_INLINE_CLOSE,
			.length = 100 });
	assert_string_equal(res.data, "inside");
	guestfs_result_free(&res);
	assert_file(secret, "host");
}

struct swap {
	struct files_rig *r;
	int stop; /* atomic */
};

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
		struct guestfs_args a = { .path = "/d/f",
			.length = 16,
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
		REFUSES(r, FILES_PUT, ERR_INVALID_REQUEST, 0, .path = paths[i], .data = "x",
			.data_len = 1);
		REFUSES(r, FILES_SETATTR, ERR_INVALID_REQUEST, 0, .path = paths[i],
			.flags = FILES_SET_SIZE | FILES_FOLLOW);
		MUST(r, FILES_STAT, .path = paths[i]);
		MUST(r, FILES_SETATTR, .path = "/fifo", .flags = FILES_SET_MODE, .mode = 0600);
	}
	assert_int_equal(mkdir(files_rig_path(r, "/d"), 0755), 0);
	REFUSES(r, FILES_OPEN, ERR_INVALID_REQUEST, EISDIR, .path = "/d",
		.flags = FILES_O_READ | FILES_FOLLOW);
	REFUSES(r, FILES_PUT, ERR_INVALID_REQUEST, EISDIR, .path = "/d", .data = "x",
		.data_len = 1);
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
	REFUSES(r, FILES_PUT, ERR_INVALID_REQUEST, ENAMETOOLONG, .path = name, .data = "",
		.data_len = 0);
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

struct putter {
	struct files_rig *r;
	const char *path;
	char fill;
	int bad;
};

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

static void names_work_by_their_own_rules(void **state)
{
	struct files_rig *r = *state;
	struct stat st;

	put(r, "/a", "A");
	put(r, "/b", "B");
	REFUSES(r, FILES_RENAME, ERR_CONFLICT, EEXIST, .path = "/a", .path2 = "/b",
		.flags = FILES_NOREPLACE);
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

/* In linux mode a worker with a root's rights makes files of the sandbox's user and opens
 * everything. */
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

#define T(text, fn)                                                                                \
	{                                                                                          \
		.name = text, .test_func = fn, .setup_func = files_rig_up,                         \
		.teardown_func = files_rig_down                                                    \
	}
int main(void)
{
	const struct CMUnitTest tests[] = {
		T("put makes parents 0755 and the file 0644", put_makes_parents_with_modes),
		T("put keeps mode and attributes but not set-id",
			put_keeps_mode_and_attributes_but_not_setid),
		T("put through links writes the target", put_through_links_writes_the_target),
		T("links stay inside the root", links_stay_inside_the_root),
		T("swapped link never leads out, a naive open does", swapped_link_never_leads_out),
		T("pipes, devices and sockets never block", special_files_never_block),
		T("refusals have the contract's codes", refusals_have_the_contracts_codes),
		T("aborted put leaves nothing", aborted_put_leaves_nothing),
		T("two puts leave one body", two_puts_leave_one_body),
		T("names work by their own rules", names_work_by_their_own_rules),
		{ .name = "end of the worker leaves no temporary file",
			.test_func = end_of_the_worker_leaves_no_temporary_file },
		{ .name = "new files belong to the sandbox's user",
			.test_func = new_files_belong_to_the_sandbox_user },
	};

	return run_table(tests);
}
