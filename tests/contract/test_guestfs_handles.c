/* SPDX-License-Identifier: MIT */
/* The promises of guestfs.h about handles, attributes and listings, against a real worker. */
#include "tests/support/files.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void handles_read_write_and_truncate(void **state)
{
	struct files_rig *r = *state;
	uint64_t h = opened(r, "/f", FILES_O_READ | FILES_O_WRITE | FILES_O_CREATE);
	struct guestfs_result res;
	char buf[64];
	size_t n;

	res = must(r, FILES_WRITE,
		(struct guestfs_args){ .handle = h, .data = "0123456789", .data_len = 10 });
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
	struct guestfs_result res = must(r, FILES_OPEN,
		(struct guestfs_args){ .path = "/ro",
			.flags = FILES_O_WRITE | FILES_O_CREATE | FILES_O_EXCL,
			.mode = 0444 });
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

struct appender {
	struct files_rig *r;
	int who;
};

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

static void attributes_are_set_and_told(void **state)
{
	struct files_rig *r = *state;
	struct stat st;
	struct guestfs_result res;

	put(r, "/f", "x");
	assert_int_equal(symlink("f", files_rig_path(r, "/l")), 0);
	res = must(r, FILES_SETATTR,
		(struct guestfs_args){ .path = "/f",
			.mode = 02640,
			.flags = FILES_SET_MODE | FILES_SET_MTIME,
			.mtime = { .sec = 981173106, .nsec = 789 } });
	assert_int_equal(res.attr.mode & 07777, 02640);
	assert_int_equal(res.attr.mtime.nsec, 789);
	guestfs_result_free(&res);
	MUST(r, FILES_SETATTR, .path = "/l", .flags = FILES_SET_MTIME,
		.mtime = { .sec = -5, .nsec = 1 });
	assert_int_equal(lstat(files_rig_path(r, "/l"), &st), 0);
	assert_int_equal(st.st_mtim.tv_sec, -5);
	assert_int_equal(stat(files_rig_path(r, "/f"), &st), 0);
	assert_int_equal(st.st_mtim.tv_sec, 981173106);
	REFUSES(r, FILES_SETATTR, ERR_UNSUPPORTED, EOPNOTSUPP, .path = "/l",
		.flags = FILES_SET_MODE, .mode = 0600);
	MUST(r, FILES_SETATTR, .path = "/l", .flags = FILES_SET_MODE | FILES_FOLLOW, .mode = 0600);
	MUST(r, FILES_SETATTR, .path = "/f", .flags = FILES_SET_UID | FILES_SET_GID,
		.uid = getuid(), .gid = getgid());
}

static void version_changes_with_content(void **state)
{
	struct files_rig *r = *state;
	uint64_t h = opened(r, "/f", FILES_O_WRITE | FILES_O_CREATE), seen = 0;
	struct timespec settle = { .tv_nsec = 30000000 };

	for (int i = 0; i < 200; i++) {
		struct guestfs_result res = must(r, FILES_WRITE,
			(struct guestfs_args){
				.handle = h, .data = &"abcdefgh"[i % 8], .data_len = 1 });
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

struct seen {
	size_t n;
	char names[8][256];
	size_t lens[8];
	bool far;
};

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
		"bad\xff"
		"one",
		"bad\xfe"
		"two" };
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
	MUST(r, FILES_REMOVE,
		.path = "/bad\xff"
			"one");
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
	struct guestfs_result res = must(r, FILES_WRITE,
		(struct guestfs_args){
			.handle = h, .offset = 8 * 1024 * 1024, .data = "end", .data_len = 3 });

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
	struct guestfs_result res = must(r, FILES_COPY,
		(struct guestfs_args){ .handle = in, .handle2 = out, .length = 1u << 30 });
	assert_int_equal(res.value, 5000000);
	guestfs_result_free(&res);
	_cleanup_free_ char *got = files_rig_read(files_rig_path(r, "/b"), &len);
	assert_int_equal(len, 5000000);
	assert_memory_equal(got, big, len);
	REFUSES(r, FILES_COPY, ERR_INVALID_REQUEST, EINVAL, .path = "/a", .path2 = "/a",
		.offset = 0, .offset2 = 10, .length = 100);
	guestfs_drop(r->fs, 0, in);
	guestfs_drop(r->fs, 0, out);
}

static void xattrs_follow_the_rule(void **state)
{
	struct files_rig *r = *state;
	struct guestfs_args set = {
		.path = "/f", .path2 = "user.k", .data = "v\0w", .data_len = 3
	};
	struct guestfs_result res;
	struct err e = ERR_NULL;

	put(r, "/f", "");
	REFUSES(r, FILES_XATTR_GET, ERR_NOT_FOUND, ENODATA, .path = "/f",
		.path2 = "security.selinux");
	REFUSES(r, FILES_XATTR_GET, ERR_UNSUPPORTED, EOPNOTSUPP, .path = "/f",
		.path2 = "system.posix_acl_access");
	REFUSES(r, FILES_XATTR_SET, ERR_CONFLICT, EPERM, .path = "/f", .path2 = "user.sbx.error",
		.data = "x", .data_len = 1);
	REFUSES(r, FILES_XATTR_SET, ERR_CONFLICT, EPERM, .path = "/f", .path2 = "trusted.x",
		.data = "x", .data_len = 1);
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
	REFUSES(r, FILES_XATTR_SET, ERR_CONFLICT, EEXIST, .path = "/f", .path2 = "user.k",
		.data = "x", .data_len = 1, .mode = 1);
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
		assert_true(n < 20000);
	}
	assert_true(e.code == ERR_UNAVAILABLE);
	assert_true(n > 0 && n <= (int)FILES_CLIENT_HANDLES_MAX);
	REFUSES(r, FILES_OPEN, ERR_UNAVAILABLE, EMFILE, .path = "/f", .client = 7,
		.flags = FILES_O_WRITE | FILES_O_TRUNC);
	assert_file(files_rig_path(r, "/f"), "x");
	MUST(r, FILES_CLOSE, .handle = h, .client = 7);
	MUST(r, FILES_OPEN, .path = "/f", .client = 7, .flags = FILES_O_READ | FILES_FOLLOW);
}

static void note_expired(void *arg, const char *path, uint64_t read, uint64_t written, unsigned flags)
{
	uint64_t *sum = arg;

	assert_string_equal(path, "/f");
	assert_true(flags & FILES_REP_CREATED);
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
	res = must(&r, FILES_OPEN,
		(struct guestfs_args){ .path = "/f",
			.client = 9,
			.mode = 0644,
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
	struct guestfs_result res = must(
		r, FILES_WRITE, (struct guestfs_args){ .handle = h, .data = "y", .data_len = 1 });
	assert_int_equal(res.attr.mode & 07777, 0755);
	guestfs_result_free(&res);
	assert_int_equal(stat(files_rig_path(r, "/f"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	guestfs_drop(r->fs, 0, h);
}

#define T(text, fn)                                                                                \
	{                                                                                          \
		.name = text, .test_func = fn, .setup_func = files_rig_up,                         \
		.teardown_func = files_rig_down                                                    \
	}
int main(void)
{
	const struct CMUnitTest tests[] = {
		T("handles read, write and truncate", handles_read_write_and_truncate),
		T("handles survive unlink and rename", handles_survive_unlink_and_rename),
		T("mode at creation counts, exclusive is exact",
			created_mode_counts_and_open_is_exact),
		T("appends of many never mix", appends_of_many_never_mix),
		T("attributes are set and told", attributes_are_set_and_told),
		T("version changes with content", version_changes_with_content),
		T("listing gives names as bytes", listing_gives_names_as_bytes),
		T("listing of 100000 entries is whole", listing_of_100000_entries_is_whole),
		T("holes stay holes", holes_stay_holes),
		T("copy moves bytes inside", copy_moves_bytes_inside),
		T("extended attributes follow the rule", xattrs_follow_the_rule),
		T("handles belong to a client and are bounded",
			handles_belong_to_a_client_and_are_bounded),
		{ .name = "silent client loses its handles",
			.test_func = silent_client_loses_its_handles },
		T("dead worker is unavailable, ended sandbox conflict", dead_worker_is_unavailable),
		T("statfs tells space", statfs_tells_space),
		T("write drops set-id bits", write_drops_setid_bits),
	};

	return run_table(tests);
}
