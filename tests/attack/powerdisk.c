/* SPDX-License-Identifier: MIT */
/* A disk whose power can be cut at any moment, afterwards.
 *
 *   powerdisk serve DIR IMAGE LOG     DIR/disk is IMAGE (FUSE; a loop device goes on top). Each write and each
 *                                     flush is noted in LOG in its order, and so is what is written to DIR/mark
 *   powerdisk marks LOG [AT]          the marks before entry AT, "ENTRY TEXT"; then how many entries there are
 *   powerdisk cut LOG AT HOW SEED IMAGE
 *                                     makes of IMAGE, the disk as it was at the log's beginning, what it may hold
 *                                     when the power went before entry AT: all that was flushed, and of the rest
 *                                     `none`, `all`, `some` writes in any order, or some sectors of them, `torn`
 *
 * One thread serves, so that the log is the disk's own order. */
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC  0x706f7765u
#define SECTOR 512

enum kind { WRITE, FLUSH, MARK };
struct entry { /* `len` bytes follow it */
	uint32_t magic, kind;
	uint64_t off, len;
};

static int image_fd, log_fd;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void put(int fd, const void *buf, size_t len, off_t off)
{
	for (const char *p = buf; len > 0;) {
		ssize_t n = off < 0 ? write(fd, p, len) : pwrite(fd, p, len, off);

		if (n <= 0)
			die("powerdisk: write");
		p += n;
		len -= (size_t)n;
		off += off < 0 ? 0 : n;
	}
}

static void note(enum kind kind, uint64_t off, const void *data, size_t len)
{
	struct entry e = { .magic = MAGIC, .kind = kind, .off = off, .len = len };

	put(log_fd, &e, sizeof(e), -1);
	put(log_fd, data, len, -1);
}

/* --- serving ---------------------------------------------------------------------------------- */

static bool is_mark(const char *path)
{
	return strcmp(path, "/mark") == 0;
}

static int on_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	struct stat image;

	(void)fi;
	memset(st, 0, sizeof(*st));
	if (strcmp(path, "/") == 0) {
		st->st_mode = S_IFDIR | 0700;
		st->st_nlink = 2;
		return 0;
	}
	if (!is_mark(path) && strcmp(path, "/disk") != 0)
		return -ENOENT;
	st->st_mode = S_IFREG | 0600;
	st->st_nlink = 1;
	if (!is_mark(path) && fstat(image_fd, &image) == 0)
		st->st_size = image.st_size;
	return 0;
}

static int on_readdir(const char *path, void *buf, fuse_fill_dir_t fill, off_t off,
	struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
	(void)path;
	(void)off;
	(void)fi;
	(void)flags;
	fill(buf, "disk", NULL, 0, 0);
	fill(buf, "mark", NULL, 0, 0);
	return 0;
}

static int on_open(const char *path, struct fuse_file_info *fi)
{
	fi->direct_io = is_mark(path); /* each write of it arrives, as it was written */
	return 0;
}

static int on_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
	(void)size;
	(void)fi;
	return is_mark(path) ? 0 : -EPERM;
}

static int on_read(const char *path, char *buf, size_t size, off_t off, struct fuse_file_info *fi)
{
	ssize_t n;

	(void)fi;
	if (is_mark(path))
		return 0;
	n = pread(image_fd, buf, size, off);
	return n < 0 ? -errno : (int)n;
}

static int on_write(
	const char *path, const char *buf, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)fi;
	if (is_mark(path)) {
		note(MARK, 0, buf, size);
		return (int)size;
	}
	put(image_fd, buf, size, off);
	note(WRITE, (uint64_t)off, buf, size);
	return (int)size;
}

static int on_fsync(const char *path, int datasync, struct fuse_file_info *fi)
{
	(void)datasync;
	(void)fi;
	if (!is_mark(path))
		note(FLUSH, 0, NULL, 0);
	return 0;
}

static const struct fuse_operations operations = {
	.getattr = on_getattr,
	.readdir = on_readdir,
	.open = on_open,
	.truncate = on_truncate,
	.read = on_read,
	.write = on_write,
	.fsync = on_fsync,
};

static int serve(const char *dir, const char *image, const char *log)
{
	char *args[] = { (char[]){ "powerdisk" }, (char[]){ "-f" }, (char[]){ "-s" }, strdup(dir), NULL };

	image_fd = open(image, O_RDWR | O_CLOEXEC);
	log_fd = open(log, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
	if (image_fd < 0 || log_fd < 0)
		die("powerdisk: open");
	return fuse_main(4, args, &operations, NULL);
}

/* --- what was noted --------------------------------------------------------------------------- */

struct item {
	struct entry e;
	off_t data;
};
static struct item *items;
static size_t nitems;

static void load(const char *log)
{
	size_t room = 0;
	off_t at = 0;

	log_fd = open(log, O_RDONLY | O_CLOEXEC);
	if (log_fd < 0)
		die("powerdisk: open");
	for (struct entry e; pread(log_fd, &e, sizeof(e), at) == sizeof(e);) {
		if (e.magic != MAGIC) {
			fprintf(stderr, "powerdisk: not a log\n");
			exit(1);
		}
		if (nitems == room) {
			room = room ? 2 * room : 1024;
			items = reallocarray(items, room, sizeof(*items));
			if (!items)
				die("powerdisk");
		}
		items[nitems++] = (struct item){ .e = e, .data = at + (off_t)sizeof(e) };
		at += (off_t)sizeof(e) + (off_t)e.len;
	}
}

static int marks(size_t end)
{
	char text[512];

	for (size_t i = 0; i < nitems && i < end; i++) {
		const struct item *it = &items[i];
		size_t len = it->e.len < sizeof(text) ? it->e.len : sizeof(text) - 1;

		if (it->e.kind != MARK || pread(log_fd, text, len, it->data) != (ssize_t)len)
			continue;
		text[len] = '\0';
		text[strcspn(text, "\n")] = '\0';
		printf("%zu %s\n", i, text);
	}
	printf("%zu\n", nitems);
	return 0;
}

/* --- cutting ---------------------------------------------------------------------------------- */

static uint64_t seed;

static uint64_t chance(uint64_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % below;
}

static void apply(const struct item *it, bool torn)
{
	char *buf = malloc(it->e.len ? it->e.len : 1);

	if (!buf || pread(log_fd, buf, it->e.len, it->data) != (ssize_t)it->e.len)
		die("powerdisk: log");
	if (!torn)
		put(image_fd, buf, it->e.len, (off_t)it->e.off);
	for (size_t at = 0; torn && at < it->e.len; at += SECTOR)
		if (chance(2))
			put(image_fd, buf + at, it->e.len - at < SECTOR ? it->e.len - at : SECTOR,
				(off_t)(it->e.off + at));
	free(buf);
}

/* What no flush has followed: a part of it, in any order. */
static void apply_some(struct item *from, size_t n, bool torn)
{
	for (size_t i = n; i > 1; i--) {
		size_t j = chance(i);
		struct item swap = from[i - 1];

		from[i - 1] = from[j];
		from[j] = swap;
	}
	for (size_t i = 0; i < n; i++)
		if (from[i].e.kind == WRITE && (torn || chance(2)))
			apply(&from[i], torn);
}

static int cut(size_t at, const char *how, const char *image)
{
	size_t flushed = 0, sure;

	if (at > nitems)
		at = nitems;
	for (size_t i = 0; i < at; i++)
		if (items[i].e.kind == FLUSH)
			flushed = i;
	image_fd = open(image, O_RDWR | O_CLOEXEC);
	if (image_fd < 0)
		die("powerdisk: open");
	sure = strcmp(how, "all") == 0 ? at : flushed;
	for (size_t i = 0; i < sure; i++)
		if (items[i].e.kind == WRITE)
			apply(&items[i], false);
	if (strcmp(how, "some") == 0 || strcmp(how, "torn") == 0)
		apply_some(items + sure, at - sure, how[0] == 't');
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "serve") == 0)
		return serve(argv[2], argv[3], argv[4]);
	if (argc >= 3)
		load(argv[2]);
	if ((argc == 3 || argc == 4) && strcmp(argv[1], "marks") == 0)
		return marks(argc == 4 ? strtoul(argv[3], NULL, 10) : SIZE_MAX);
	if (argc == 7 && strcmp(argv[1], "cut") == 0) {
		seed = strtoull(argv[5], NULL, 10) * 0x9e3779b97f4a7c15u + 1;
		return cut(strtoul(argv[3], NULL, 10), argv[4], argv[6]);
	}
	fprintf(stderr, "usage: powerdisk serve DIR IMAGE LOG | marks LOG [AT] | cut LOG AT HOW SEED IMAGE\n");
	return 2;
}
