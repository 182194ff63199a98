/* SPDX-License-Identifier: MIT */
/* What an archive takes beside its bytes: files with nothing in them, folders that no entry names, attributes. The
 * loop over the archive alone, on a file system of its own. */
#include "sandboxd/priv/unpack.h"
#include "tests/support/test.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define INODES 9000 /* of the file system */
#define DEEP   400

static void put(struct archive *a, const char *name, unsigned type, size_t xattr)
{
	static const char value[60000];
	struct archive_entry *e = archive_entry_new();

	archive_entry_set_pathname(e, name);
	archive_entry_set_filetype(e, type);
	archive_entry_set_perm(e, 0755);
	archive_entry_set_size(e, 0);
	if (type == AE_IFLNK)
		archive_entry_set_symlink(e, "nothing");
	if (xattr)
		archive_entry_xattr_add_entry(e, "user.x", value, xattr);
	assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
	archive_entry_free(e);
}

static void put_deep(struct archive *a, const char *top, int i)
{
	char name[2 * DEEP + 40];
	int n = snprintf(name, sizeof(name), "%s%d", top, i);

	for (int d = 0; d < DEEP; d++)
		n += snprintf(name + n, sizeof(name) - (size_t)n, "/d");
	put(a, name, AE_IFREG, 0);
}

static void many_empty_files(struct archive *a)
{
	char name[32];

	for (int i = 0; i < INODES + 1000; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		put(a, name, AE_IFREG, 0);
	}
}

static void folders_of_the_way(struct archive *a)
{
	for (int i = 0; i < INODES / DEEP + 5; i++)
		put_deep(a, "t", i);
}

static void folders_where_a_link_was(struct archive *a)
{
	char name[32];

	for (int i = 0; i < INODES / DEEP + 5; i++) {
		snprintf(name, sizeof(name), "t%d", i);
		put(a, name, AE_IFLNK, 0);
		put_deep(a, "t", i);
	}
}

static void a_few_files(struct archive *a)
{
	put(a, "a/b/c", AE_IFREG, 0);
	put(a, "a/b/d", AE_IFREG, 0);
	put(a, "a/e", AE_IFDIR, 0);
}

static void large_attributes(struct archive *a)
{
	char name[32];

	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		put(a, name, AE_IFREG, 30000);
	}
}

static const struct {
	const char *name;
	void (*fill)(struct archive *a);
	int error;     /* or 0 */
	int64_t bytes; /* at least so many are accounted for */
} rows[] = {
	{ "a few files", a_few_files, 0, 4096 },
	{ "many empty files", many_empty_files, ENOSPC, 0 },
	{ "folders of the way", folders_of_the_way, ENOSPC, 0 },
	{ "folders where a link was", folders_where_a_link_was, ENOSPC, 0 },
	{ "large attributes", large_attributes, 0, 600000 },
};

static int archive_of(size_t row)
{
	int fd = memfd_create("archive", MFD_CLOEXEC);
	struct archive *a = archive_write_new();

	assert_true(fd >= 0);
	assert_int_equal(archive_write_set_format_pax_restricted(a), ARCHIVE_OK);
	assert_int_equal(archive_write_open_fd(a, fd), ARCHIVE_OK);
	rows[row].fill(a);
	assert_int_equal(archive_write_close(a), ARCHIVE_OK);
	archive_write_free(a);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

/* The library writes below the current folder. 0: as the row says. */
static int unpack_here(size_t row, int in, int opaque)
{
	struct unpack_job job = { .kind = UNPACK_OCI, .in = in };
	struct unpack_result ret = { .bytes = 0 };
	const struct unpack_lib *lib = unpack_load(&ret.fail);
	struct statvfs st;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("small", "/tmp", "tmpfs", 0, "size=512m,nr_inodes=9000") < 0 || chdir("/tmp") < 0 || !lib)
		return 2;
	int root = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	(void)unpack_tar(lib, &job, in, root, opaque, &ret);
	if (fstatvfs(root, &st) < 0)
		return 2;
	printf("%s: %d %s, %lld bytes, %lu inodes left\n", rows[row].name, ret.fail.sys, ret.fail.text,
		(long long)ret.bytes, (unsigned long)st.f_favail);
	return ret.fail.sys != rows[row].error || ret.bytes < rows[row].bytes || st.f_favail < 50;
}

static void an_archive_leaves_the_host_some_room(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int in = archive_of(i), opaque = memfd_create("opaque", MFD_CLOEXEC), status;
		fflush(stdout);
		pid_t pid = fork();
		if (pid == 0) {
			int r = unpack_here(i, in, opaque);
			fflush(stdout);
			_exit(r);
		}
		close(in);
		close(opaque);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (status != 0)
			fail_msg("%s: %x", rows[i].name, (unsigned)status);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = { cmocka_unit_test(an_archive_leaves_the_host_some_room) };

	return run_table(tests);
}
