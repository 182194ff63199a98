/* SPDX-License-Identifier: MIT */
/* Images are hostile: archives that try to lead out, or to bring along what must not be there, are
 * refused or unpacked without it, and the host is untouched. Skipped with a reason when not root.
 */
#include "tests/support/linux_rig.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static struct linux_rig rig;
static char images[128];

/* --- a tar by hand --------------------------------------------------------------------------- */

struct entry {
	const char *name;
	char type; /* '0' file, '5' folder, '2' symbolic link, '1' hard link, '3' char device, '6'
		      fifo */
	const char *link, *data;
	unsigned uid;
};

static void octal(char *field, int digits, unsigned long v)
{
	char buf[32];

	snprintf(buf, sizeof(buf), "%0*lo", digits, v);
	memcpy(field, buf, (size_t)digits);
}

static void put_entry(FILE *f, const struct entry *e)
{
	char h[512] = "", body[512] = "";
	size_t len = e->data ? strlen(e->data) : 0;
	unsigned sum = 0;

	memcpy(h, e->name, strlen(e->name));
	octal(h + 100, 7, e->type == '5' ? 0755 : 0644);
	octal(h + 108, 7, e->uid);
	octal(h + 116, 7, e->uid);
	octal(h + 124, 11, len);
	octal(h + 136, 11, 0);
	memset(h + 148, ' ', 8);
	h[156] = e->type;
	if (e->link)
		memcpy(h + 157, e->link, strlen(e->link));
	memcpy(h + 257, "ustar\00000", 8);
	octal(h + 329, 7, 1);
	octal(h + 337, 7, 3);
	for (size_t i = 0; i < sizeof(h); i++)
		sum += (unsigned char)h[i];
	octal(h + 148, 6, sum);
	h[154] = 0;
	fwrite(h, 1, sizeof(h), f);
	if (len) {
		memcpy(body, e->data, len);
		fwrite(body, 1, sizeof(body), f);
	}
}

static void write_tar(const char *name, const struct entry *e, size_t n)
{
	static const char end[1024];
	char path[200];

	snprintf(path, sizeof(path), "%s/%s.tar", images, name);
	FILE *f = fopen(path, "we");
	assert_non_null(f);
	for (size_t i = 0; i < n && e[i].name; i++)
		put_entry(f, &e[i]);
	fwrite(end, 1, sizeof(end), f);
	fclose(f);
}

static int unpack_as(const char *name, uint32_t num, struct err *e)
{
	char path[200];
	int64_t bytes;
	bool covers;

	snprintf(path, sizeof(path), "%s/%s.tar", images, name);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	return linux_backend.layer_import(
		rig.rig.backend, num, LAYER_ROOTFS, NULL, fd, &bytes, &covers, e);
}

/* The number of the new layer, 0: it was refused. */
static uint32_t unpack(const char *name, struct err *e)
{
	static uint32_t next = 1;
	uint32_t num = next++;

	return unpack_as(name, num, e) < 0 ? 0 : num;
}

/* --- refused --------------------------------------------------------------------------------- */

static const struct bad {
	const char *what;
	struct entry e[3];
} bad[] = {
	{ "a name with dots", { { "../x-escaped", '0', NULL, "x", 0 } } },
	{ "dots in the middle", { { "a/../../x-escaped", '0', NULL, "x", 0 } } },
	{ "an absolute name", { { "/tmp/x-escaped", '0', NULL, "x", 0 } } },
	{ "a hard link out", { { "h", '1', "../../../etc/passwd", NULL, 0 } } },
	{ "an absolute hard link", { { "h", '1', "/etc/passwd", NULL, 0 } } },
	{ "an owner out of range", { { "f", '0', NULL, "x", 70000 } } },
	{ "dev as a link", { { "dev", '2', "/tmp", NULL, 0 } } },
	{ "dev as a file", { { "dev", '0', NULL, "x", 0 } } },
	{ "proc as a link", { { "proc", '2', "etc", NULL, 0 } } },
	{ "sys as a file", { { "sys", '0', NULL, "x", 0 } } },
	{ "tmp as a link", { { "tmp", '2', "/", NULL, 0 } } },
	{ "a home that is a link", { { "sandbox", '2', "/root", NULL, 0 } } },
};

static void hostile_archives_are_refused(void **state)
{
	struct stat st;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char name[32];
		struct err e = ERR_NULL;
		snprintf(name, sizeof(name), "bad%zu", i);
		write_tar(name, bad[i].e, ARRAY_LEN(bad[i].e));
		if (unpack(name, &e))
			fail_msg("%s was unpacked", bad[i].what);
		assert_string_not_equal(e.msg, "");
	}
	assert_int_equal(lstat("/tmp/x-escaped", &st), -1);
}

static void garbage_is_refused(void **state)
{
	struct err e = ERR_NULL;
	char path[200];

	(void)state;
	snprintf(path, sizeof(path), "%s/garbage.tar", images);
	FILE *f = fopen(path, "we");
	for (int i = 0; i < 100000; i++)
		fputc(i * 7919 >> 3, f);
	fclose(f);
	assert_int_equal(unpack("garbage", &e), 0);
}

/* --- unpacked without it ------------------------------------------------------------------------
 */

static int layer_dir(uint32_t num)
{
	char path[64];

	snprintf(path, sizeof(path), "priv/layers/%u", num);
	return openat(rig.rig.state_dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void devices_are_left_out_and_the_user_is_put_in(void **state)
{
	static const struct entry e[] = { { "etc", '5', NULL, NULL, 0 },
		{ "etc/passwd", '0', NULL, "root:x:0:0::/:/bin/sh\nother:x:1001:1001::/:/bin/sh\n",
			0 },
		{ "etc/null", '3', NULL, NULL, 0 }, { "etc/fifo", '6', NULL, NULL, 0 },
		{ "etc/resolv.conf", '2', "/proc/1/environ", NULL, 0 } };
	struct err err = ERR_NULL;
	uint32_t num;
	char buf[256] = "";
	struct stat st;

	(void)state;
	write_tar("plain", e, ARRAY_LEN(e));
	num = unpack("plain", &err);
	if (!num)
		fail_msg("%s", err.msg);
	_cleanup_close_ int dir = layer_dir(num);
	assert_true(dir >= 0);
	assert_int_equal(fstatat(dir, "etc/null", &st, 0), -1);
	assert_int_equal(fstatat(dir, "etc/fifo", &st, 0), -1);
	assert_int_equal(fstatat(dir, "etc/resolv.conf", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(fstatat(dir, "sandbox/home", &st, 0), 0);
	assert_int_equal(st.st_uid, 1001);
	assert_int_equal(fstatat(dir, "tmp", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 01777);
	_cleanup_close_ int fd = openat(dir, "etc/passwd", O_RDONLY | O_CLOEXEC);
	assert_true(read(fd, buf, sizeof(buf) - 1) > 0);
	assert_string_equal(buf, "root:x:0:0::/:/bin/sh\n"
				 "sandbox:x:1001:1001:sandbox:/sandbox/home:/bin/sh\n");
}

/* The link gives way to a folder of the layer. */
static void a_write_through_a_link_stays_inside(void **state)
{
	static const char *const to[] = { "/tmp", "../../../../tmp", "/" };
	struct stat st;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(to); i++) {
		const struct entry e[] = { { "l", '2', to[i], NULL, 0 },
			{ "l/x-escaped", '0', NULL, "x", 0 } };
		struct err err = ERR_NULL;
		char name[32];
		snprintf(name, sizeof(name), "through%zu", i);
		write_tar(name, e, ARRAY_LEN(e));
		(void)unpack(name, &err);
	}
	assert_int_equal(lstat("/tmp/x-escaped", &st), -1);
	assert_int_equal(lstat("/x-escaped", &st), -1);
}

static void names_that_are_not_ascii_stay_as_they_are(void **state)
{
	static const struct entry e[] = { { "PaxHeaders/0", 'x', NULL,
						  "12 path=\xc5\x91"
						  "a\n",
						  0 },
		{ "short", '0', NULL, "x", 0 }, { "\xff\xfe", '0', NULL, "raw", 0 } };
	struct err err = ERR_NULL;
	uint32_t num;
	struct stat st;

	(void)state;
	write_tar("names", e, ARRAY_LEN(e));
	num = unpack("names", &err);
	if (!num)
		fail_msg("%s", err.msg);
	_cleanup_close_ int dir = layer_dir(num);
	assert_int_equal(fstatat(dir,
				 "\xc5\x91"
				 "a",
				 &st, 0),
		0);
	assert_int_equal(fstatat(dir, "\xff\xfe", &st, 0), 0);
}

static void a_number_is_used_once(void **state)
{
	static const struct entry one[] = { { "one", '0', NULL, "1", 0 } },
				  two[] = { { "two", '0', NULL, "22", 0 } };
	struct err e = ERR_NULL;
	struct stat st;
	uint32_t num;

	(void)state;
	write_tar("swap", one, 1);
	num = unpack("swap", &e);
	assert_int_not_equal(num, 0);
	write_tar("swap", two, 1);
	assert_int_equal(unpack_as("swap", num, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	_cleanup_close_ int dir = layer_dir(num);
	assert_int_equal(fstatat(dir, "one", &st, 0), 0);
	assert_int_equal(fstatat(dir, "two", &st, 0), -1);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(hostile_archives_are_refused),
	cmocka_unit_test(garbage_is_refused),
	cmocka_unit_test(a_write_through_a_link_stays_inside),
	cmocka_unit_test(devices_are_left_out_and_the_user_is_put_in),
	cmocka_unit_test(names_that_are_not_ascii_stay_as_they_are),
	cmocka_unit_test(a_number_is_used_once),
};

int main(void)
{
	const char *why = linux_rig_missing();
	char rm[200];
	int failed;

	if (why) {
		printf("# SKIP images: %s\n", why);
		return 0;
	}
	snprintf(images, sizeof(images), "/tmp/sbx-images-XXXXXX");
	if (!mkdtemp(images))
		return 1;
	linux_rig_open(&rig);
	failed = run_table(tests);
	linux_rig_close(&rig);
	snprintf(rm, sizeof(rm), "rm -r %s", images);
	return system(rm) == 0 ? failed : 1;
}
