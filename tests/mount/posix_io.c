/* SPDX-License-Identifier: MIT */
/* Rows about the bytes of open files: reading, writing, seeking, holes, mapping, copies. */
#include "tests/mount/posix.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

#define MIB (1 << 20)

static void reads_and_writes(void)
{
	char buf[64] = "", two[2];
	struct iovec v[2] = { { buf, 3 }, { two, 2 } };
	int fd, ro, wo, dir;

	T(holds("f", "0123456789"));
	T(mkdir("d", 0755));
	fd = open("f", O_RDWR);
	ro = open("f", O_RDONLY);
	wo = open("f", O_WRONLY);
	dir = open("d", O_RDONLY);
	IS(read(fd, buf, 4));
	IS(lseek(fd, 0, SEEK_CUR));
	IS(pread(fd, buf, 64, 8));
	IS(pread(fd, buf, 64, 10));
	IS(pread(fd, buf, 64, 1000));
	IS(pread(fd, buf, 0, 0));
	T(pread(fd, buf, 1, -1));
	T(pwrite(fd, "x", 1, -1));
	T(write(ro, "x", 1));
	T(read(wo, buf, 1));
	T(read(dir, buf, 1));
	T(write(dir, buf, 1));
	IS(write(fd, "", 0));
	IS(pwrite(fd, "end", 3, 20));
	IS(size_of("f"));
	IS(pread(ro, buf, 64, 0));
	IS(!memcmp(buf + 10, "\0\0\0\0\0\0\0\0\0\0end", 13));
	IS(lseek(fd, 0, SEEK_END));
	IS(lseek(fd, -3, SEEK_END));
	IS(lseek(fd, 100, SEEK_SET));
	T(lseek(fd, -1, SEEK_SET));
	T(lseek(fd, 0, 77));
	IS(write(fd, "far", 3));
	IS(size_of("f"));
	IS(preadv(fd, v, 2, 0));
	IS(!memcmp(buf, "012", 3) && !memcmp(two, "34", 2));
	IS(pwritev(fd, v, 2, 1));
	IS(pread(ro, buf, 6, 0));
	IS(!memcmp(buf, "001234", 6));
	IS(preadv2(fd, v, 2, 0, RWF_HIPRI));
	IS(pwritev2(fd, v, 2, 0, RWF_DSYNC));
	T(fsync(ro));
	T(fdatasync(wo));
	T(fsync(dir));
	T(fdatasync(dir));
	T(syncfs(dir));
	T(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE));
	T(posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED));
	T(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	T(readahead(fd, 0, 4096));
}

static void large_offsets(void)
{
	char buf[8];
	int fd = open("f", O_RDWR | O_CREAT, 0644);

	IS(pwrite(fd, "x", 1, 1ll << 31));
	IS(pwrite(fd, "y", 1, 1ll << 32));
	IS(pwrite(fd, "z", 1, 1ll << 41));
	IS(size_of("f"));
	IS(pread(fd, buf, 8, 1ll << 41));
	IS(buf[0]);
	IS(pread(fd, buf, 1, (1ll << 31)));
	IS(buf[0]);
	IS(pread(fd, buf, 8, 1ll << 42));
	IS(pread(fd, buf, 8, INT64_MAX - 8));
	T(pwrite(fd, "x", 1, INT64_MAX));
	T(pwrite(fd, "x", 1, INT64_MAX - 1));
	IS(lseek(fd, 1ll << 41, SEEK_SET));
	IS(lseek(fd, 0, SEEK_DATA) <= 1ll << 31);
	IS(lseek(fd, (1ll << 32) + MIB, SEEK_DATA) > 1ll << 40);
}

static void holes(void)
{
	char *buf = calloc(1, MIB);
	int fd = open("f", O_RDWR | O_CREAT, 0644);

	memset(buf, 'x', MIB);
	IS(pwrite(fd, buf, MIB, 4 * MIB));
	T(ftruncate(fd, 8 * MIB));
	T(fsync(fd));
	IS(lseek(fd, 0, SEEK_DATA));
	IS(lseek(fd, 0, SEEK_HOLE));
	IS(lseek(fd, 4 * MIB + 5, SEEK_DATA));
	IS(lseek(fd, 4 * MIB, SEEK_HOLE));
	T(lseek(fd, 5 * MIB, SEEK_DATA));
	IS(lseek(fd, 6 * MIB, SEEK_HOLE));
	T(lseek(fd, 8 * MIB, SEEK_DATA));
	T(lseek(fd, 8 * MIB, SEEK_HOLE));
	T(lseek(fd, 9 * MIB, SEEK_HOLE));
	T(lseek(fd, -1, SEEK_DATA));
	T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4 * MIB, MIB / 2));
	IS(pread(fd, buf, 1, 4 * MIB));
	IS(buf[0]);
	IS(pread(fd, buf, 1, 4 * MIB + MIB / 2));
	IS(buf[0]);
	IS(lseek(fd, 0, SEEK_DATA));
	IS(size_of("f"));
	free(buf);
}

static void fallocates(void)
{
	char buf[8] = "";
	int fd, ro, ap;

	T(holds("f", "0123456789"));
	fd = open("f", O_RDWR);
	ro = open("f", O_RDONLY);
	ap = open("f", O_WRONLY | O_APPEND);
	T(fallocate(fd, 0, 0, 5));
	IS(size_of("f"));
	T(fallocate(fd, 0, 5, 1000));
	IS(size_of("f"));
	T(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 100000));
	IS(size_of("f"));
	T(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 5));
	T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2, 3));
	IS(pread(fd, buf, 8, 0));
	IS(!memcmp(buf, "01\0\0\0567", 8));
	T(fallocate(fd, FALLOC_FL_ZERO_RANGE, 6, 1));
	IS(pread(fd, buf, 8, 0));
	IS(!memcmp(buf, "01\0\0\0005\0007", 8));
	T(fallocate(fd, FALLOC_FL_ZERO_RANGE, 1000, 1000));
	IS(size_of("f"));
	T(fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 1000, 100000));
	IS(size_of("f"));
	T(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 1, 1));
	T(fallocate(fd, FALLOC_FL_INSERT_RANGE, 1, 1));
	T(fallocate(fd, 0, -1, 5));
	T(fallocate(fd, 0, 5, -1));
	T(fallocate(fd, 0, 0, 0));
	T(fallocate(fd, 0, INT64_MAX - 1, 100));
	T(fallocate(fd, 0x4000, 0, 5));
	T(fallocate(ro, 0, 0, 5));
	T(fallocate(ap, 0, 0, 5000));
	IS(size_of("f"));
	T(mkdir("d", 0755));
	T(fallocate(open("d", O_RDONLY), 0, 0, 5));
	T(posix_fallocate(fd, 0, 9000) ? -1 : 0);
	IS(size_of("f"));
}

static void copies(void)
{
	int in, out, ap, dir;
	loff_t from, to;

	T(holds("a", "0123456789"));
	T(holds("b", "----------"));
	T(mkdir("d", 0755));
	in = open("a", O_RDWR);
	out = open("b", O_RDWR);
	ap = open("b", O_WRONLY | O_APPEND);
	dir = open("d", O_RDONLY);
	IS(copy_file_range(in, (from = 2, &from), out, (to = 5, &to), 3, 0));
	IS(from);
	IS(to);
	IS(text_is("b", "-----234--"));
	IS(copy_file_range(in, (from = 8, &from), out, (to = 20, &to), 100, 0));
	IS(size_of("b"));
	IS(copy_file_range(in, (from = 10, &from), out, (to = 0, &to), 100, 0));
	IS(copy_file_range(in, (from = 1000, &from), out, (to = 0, &to), 100, 0));
	IS(copy_file_range(in, NULL, out, NULL, 2, 0));
	IS(lseek(in, 0, SEEK_CUR));
	T(copy_file_range(in, (from = 0, &from), in, (to = 2, &to), 5, 0));
	IS(copy_file_range(in, (from = 0, &from), in, (to = 5, &to), 5, 0));
	IS(text_is("a", "0123401234"));
	IS(copy_file_range(in, (from = 0, &from), out, (to = 0, &to), 0, 0));
	T(copy_file_range(in, (from = 0, &from), ap, (to = 0, &to), 1, 0));
	T(copy_file_range(in, (from = 0, &from), open("b", O_RDONLY), (to = 0, &to), 1, 0));
	T(copy_file_range(open("a", O_WRONLY), (from = 0, &from), out, (to = 0, &to), 1, 0));
	T(copy_file_range(dir, (from = 0, &from), out, (to = 0, &to), 1, 0));
	T(copy_file_range(in, (from = 0, &from), out, (to = 0, &to), 1, 1));
	IS(sendfile(out, in, (from = 0, &from), 4));
	IS(sendfile(ap, in, (from = 0, &from), 4) >= 0 ? 1 : -1);
	IS(size_of("b") > 0);
}

/* Another look, by a descriptor that begins now. */
static int byte_at(const char *path, off_t at)
{
	unsigned char c = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : pread(fd, &c, 1, at);

	if (fd >= 0)
		close(fd);
	return n == 1 ? c : -1;
}

static void mappings(void)
{
	char *m, *p, *r;
	int fd = open("f", O_RDWR | O_CREAT, 0644), ap;

	T(ftruncate(fd, 10000));
	m = mmap(NULL, 12288, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	IS(m != MAP_FAILED ? 1 : -1);
	p = mmap(NULL, 12288, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	IS(p != MAP_FAILED ? 1 : -1);
	if (m == MAP_FAILED || p == MAP_FAILED)
		return;
	m[5000] = 'a';
	IS(byte_at("f", 5000));
	IS(pwrite(fd, "b", 1, 6000));
	IS(m[6000]);
	IS(p[6000]);
	p[7000] = 'c';
	IS(m[7000]);
	IS(byte_at("f", 7000));
	T(msync(m, 12288, MS_SYNC));
	T(msync(m, 12288, MS_ASYNC | MS_INVALIDATE));
	T(ftruncate(fd, 5500));
	T(ftruncate(fd, 10000));
	IS(m[5000]);
	IS(m[6000]);
	m[9999] = 'e';
	m[10001] = 'x'; /* beyond the end: never part of the file */
	T(close(fd));
	m[100] = 'd';
	IS(byte_at("f", 100));
	T(rename("f", "g"));
	m[101] = 'e';
	IS(byte_at("g", 101));
	T(munmap(m, 12288));
	IS(byte_at("g", 9999));
	IS(size_of("g"));
	fd = open("g", O_RDWR);
	T(ftruncate(fd, 12000));
	IS(byte_at("g", 10001));
	fd = open("g", O_RDONLY);
	T(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
	r = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	IS(r != MAP_FAILED && r[100] == 'd' ? 1 : -1);
	fd = open("g", O_WRONLY);
	T(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
	T(unlink("g"));
	IS(r[101]);
	ap = open("h", O_RDWR | O_CREAT | O_APPEND, 0644);
	IS(write(ap, "appended", 8));
	T(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, ap, 0) == MAP_FAILED ? -1 : 0);
	T(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ap, 0) == MAP_FAILED ? -1 : 0);
	T(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, open(".", O_RDONLY), 0) == MAP_FAILED ? -1 : 0);
}

static int child_sees(void)
{
	return byte_at("f", 4096);
}

static int child_maps(void)
{
	int fd = open("f", O_RDWR);
	char *m = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (m == MAP_FAILED)
		return -1;
	m[1] = 'z';
	return m[4096];
}

static void mapped_twice(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644);
	char *m;

	T(ftruncate(fd, 8192));
	m = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m == MAP_FAILED) {
		T(-1);
		return;
	}
	m[4096] = 'q';
	IS(elsewhere(child_sees));
	IS(elsewhere(child_maps));
	IS(m[1]);
	IS(pwrite(fd, "w", 1, 2));
	IS(m[2]);
}

static void unlinked(void)
{
	char buf[32] = "";
	struct stat st;
	int fd = open("f", O_RDWR | O_CREAT, 0644), ro, late;

	IS(write(fd, "before", 6));
	ro = open("f", O_RDONLY);
	T(unlink("f"));
	T(opened("f", O_RDONLY, 0));
	IS(write(fd, " after", 6));
	IS(pread(ro, buf, 32, 0));
	IS(!memcmp(buf, "before after", 12));
	T(fstat(fd, &st));
	IS(st.st_size);
	IS((long long)st.st_nlink);
	T(ftruncate(fd, 3));
	T(fchmod(fd, 0600));
	T(fsync(fd));
	T(futimens(fd, (struct timespec[2]){ { 1, 0 }, { 2, 0 } }));
	IS(pread(ro, buf, 32, 0));
	T(fallocate(fd, 0, 0, 100));
	T(fstat(ro, &st));
	IS(st.st_size);
	T(made("f"));
	IS(size_of("f"));
	T(fstat(fd, &st));
	IS(st.st_size);
	IS(pwrite(fd, "Z", 1, 0));
	IS(size_of("f"));
	T(unlink("f"));
	/* What was open only for reading when it went. */
	T(holds("r", "read me"));
	late = open("r", O_RDONLY);
	T(unlink("r"));
	IS(pread(late, buf, 32, 0));
	T(fstat(late, &st));
	IS((long long)st.st_nlink);
}

static void sees_others(void)
{
	char buf[16] = "";
	int a, b;

	T(holds("f", "first"));
	a = open("f", O_RDWR);
	b = open("f", O_RDONLY);
	IS(pread(b, buf, 16, 0));
	IS(pwrite(a, "second", 6, 0));
	IS(pread(b, buf, 16, 0));
	IS(!memcmp(buf, "second", 6));
	T(truncate("f", 3));
	IS(pread(b, buf, 16, 0));
	IS(lseek(a, 0, SEEK_END));
	T(ftruncate(a, 20));
	IS(pread(b, buf, 16, 10));
	IS(buf[0]);
	for (int n = 0; n < 100; n++)
		if (pwrite(a, "0123456789", 10, n * 10) != 10)
			T(-1);
	IS(size_of("f"));
	IS(pread(b, buf, 10, 990));
	IS(!memcmp(buf, "0123456789", 10));
	IS(lseek(b, 0, SEEK_END));
}

const struct row rows_io[] = { { "reads_and_writes", reads_and_writes },
	{ "large_offsets", large_offsets }, { "holes", holes }, { "fallocates", fallocates },
	{ "copies", copies }, { "mappings", mappings }, { "mapped_twice", mapped_twice },
	{ "unlinked", unlinked }, { "sees_others", sees_others }, { NULL, NULL } };
