/* SPDX-License-Identifier: MIT */
/* Copying a tree of changes, for disk providers that cannot snapshot. The names inside are a
 * guest's: each step goes from an open folder to one name in it and follows no link, and all of it
 * happens in a jail whose root is the copy. Whatever a guest does with its disk, and whoever changes it meanwhile:
 * the copy takes no more of the host's than that disk may hold. */
#include "sandboxd/priv/works.h"

#include "common/sys/core.h"
#include "common/sys/mem.h"
#include "common/sys/rlimit.h"
#include "sandboxd/priv/drop.h"
#include "sandboxd/priv/jail.h"
#include "sandboxd/priv/root.h"

#include <dirent.h>
#include <limits.h>
#include <linux/fs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define DEPTH_MAX   2000
#define SECONDS_MAX 3600 /* its guest stands still meanwhile, and nobody waits longer */
#define CHUNK       (1 << 20)
#define SLACK       ((int64_t)4 << 20)
#define INODES_LEAST 32768 /* more than any provider's smallest disk has */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_MAX RLIM_INFINITY /* a sanitizer reserves terabytes */
#else
#define MEMORY_MAX ((rlim_t)1 << 30)
#endif

/* Files with several names, by inode: where the copy's first name is. */
struct link {
	struct link *next;
	ino_t ino;
	char path[];
};
#define BUCKETS 4096
struct copy {
	int root; /* of the copy */
	int depth;
	int64_t bytes, inodes; /* that may still be made */
	char path[PATH_MAX]; /* of the folder being copied, "" or with a final slash */
	char *buf;           /* CHUNK */
	struct link *links[BUCKETS];
};

static int take(int64_t *left, int64_t n)
{
	*left -= n;
	return *left < 0 ? -EDQUOT : 0;
}

/* --- one file -------------------------------------------------------------------------------- */

static int copy_xattr(struct copy *c, int from, int to, const char *name)
{
	ssize_t n = fgetxattr(from, name, c->buf, XATTR_SIZE_MAX);

	if (n < 0)
		return errno == ENODATA ? 0 : -errno;
	if (take(&c->bytes, n) < 0)
		return -EDQUOT;
	return fsetxattr(to, name, c->buf, (size_t)n, 0) < 0 ? -errno : 0;
}

static int copy_xattrs(struct copy *c, int from, int to)
{
	static char names[XATTR_LIST_MAX];
	char mine[XATTR_LIST_MAX];
	ssize_t n = flistxattr(from, names, sizeof(names));
	int r = 0;

	if (n < 0)
		return errno == ENOTSUP ? 0 : -errno;
	memcpy(mine, names, (size_t)n);
	for (const char *p = mine; r == 0 && p < mine + n; p += strlen(p) + 1)
		r = copy_xattr(c, from, to, p);
	return r;
}

/* The owner first: a change of it takes set-id bits and capabilities away. */
static int copy_meta(struct copy *c, int from, int to, const struct stat *st)
{
	const struct timespec times[2] = { st->st_atim, st->st_mtim };
	int r;

	if (fchown(to, st->st_uid, st->st_gid) < 0 || fchmod(to, st->st_mode & 07777) < 0)
		return -errno;
	r = copy_xattrs(c, from, to);
	return r == 0 && futimens(to, times) < 0 ? -errno : r;
}

static int copy_bytes(struct copy *c, int from, int to, off_t pos, off_t end)
{
	while (pos < end) {
		size_t want = end - pos < CHUNK ? (size_t)(end - pos) : CHUNK;
		loff_t in = pos, out = pos;
		ssize_t n = copy_file_range(from, &in, to, &out, want, 0);

		if (n < 0 && errno != EXDEV && errno != EINVAL && errno != EOPNOTSUPP &&
			errno != ENOSYS)
			return -errno;
		if (n <= 0 && (n = pread(from, c->buf, want, pos)) > 0)
			n = pwrite(to, c->buf, (size_t)n, pos);
		if (n <= 0)
			return n < 0 ? -errno : 0; /* it has become shorter */
		if (take(&c->bytes, n) < 0)
			return -EDQUOT;
		pos += n;
	}
	return 0;
}

static int copy_data(struct copy *c, int from, int to, off_t size)
{
	off_t pos = 0;
	int r = 0;

	if (size == 0 || ioctl(to, FICLONE, from) == 0)
		return 0;
	if (ftruncate(to, size) < 0)
		return -errno;
	while (r == 0 && pos < size && (pos = lseek(from, pos, SEEK_DATA)) >= 0 && pos < size) {
		off_t end = lseek(from, pos, SEEK_HOLE);
		if (end < 0 || end > size)
			end = size;
		r = copy_bytes(c, from, to, pos, end);
		pos = end;
	}
	return r;
}

static int copy_file(struct copy *c, int from, int to, const char *name)
{
	_cleanup_close_ int in =
		openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;

	if (in < 0 || fstat(in, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return 0; /* it was one a moment ago */
	_cleanup_close_ int out =
		openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (out < 0)
		return -errno;
	int r = copy_data(c, in, out, st.st_size);
	return r == 0 ? copy_meta(c, in, out, &st) : r;
}

/* --- several names --------------------------------------------------------------------------- */

static struct link **bucket(struct copy *c, ino_t ino)
{
	return &c->links[(ino ^ ino >> 12) % BUCKETS];
}

/* By its folder where the whole path is too long: that of a folder never is. */
static int link_to(const struct copy *c, const char *path, int to, const char *name)
{
	const char *slash = strrchr(path, '/');
	char folder[PATH_MAX];

	if (linkat(c->root, path, to, name, 0) == 0)
		return 0;
	if (errno != ENAMETOOLONG || !slash || (size_t)(slash - path) >= sizeof(folder))
		return -errno;
	snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
	_cleanup_close_ int dir = openat(c->root, folder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return dir < 0 || linkat(dir, slash + 1, to, name, 0) < 0 ? -errno : 0;
}

/* 1: linked, 0: it has to be copied, the first time or because one can have no more names. */
static int try_link(struct copy *c, int to, const char *name, ino_t ino)
{
	for (struct link *l = *bucket(c, ino); l; l = l->next)
		if (l->ino == ino)
			return link_to(c, l->path, to, name) == 0 ? 1 : 0;
	return 0;
}

static int note_link(struct copy *c, const char *name, ino_t ino)
{
	size_t n = strlen(c->path) + strlen(name) + 1;
	struct link *l = malloc(sizeof(*l) + n);

	if (!l)
		return -ENOMEM;
	l->ino = ino;
	snprintf(l->path, n, "%s%s", c->path, name);
	l->next = *bucket(c, ino);
	*bucket(c, ino) = l;
	return 0;
}

/* --- the others ------------------------------------------------------------------------------ */

static int copy_symlink(int from, int to, const char *name, const struct stat *st)
{
	const struct timespec times[2] = { st->st_atim, st->st_mtim };
	char target[PATH_MAX];
	ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = 0;
	if (symlinkat(target, to, name) < 0 ||
		fchownat(to, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return utimensat(to, name, times, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

/* A deletion is a character device 0:0; there can be no other device, and it would be left out. */
static int copy_whiteout(int to, const char *name, const struct stat *st)
{
	if (!S_ISCHR(st->st_mode) || st->st_rdev != 0)
		return 0;
	return mknodat(to, name, S_IFCHR | (st->st_mode & 07777), 0) < 0 ? -errno : 0;
}

static int copy_dir(struct copy *c, int from, int to);

static int copy_subdir(struct copy *c, int from, int to, const char *name)
{
	_cleanup_close_ int in =
		openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	size_t old = strlen(c->path), more = strlen(name) + 1;
	struct stat st;
	int r;

	if (in < 0 || fstat(in, &st) < 0 || mkdirat(to, name, 0700) < 0)
		return -errno;
	_cleanup_close_ int out = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (out < 0)
		return -errno;
	if (old + more >= sizeof(c->path) || c->depth >= DEPTH_MAX)
		return -ENAMETOOLONG;
	memcpy(c->path + old, name, more - 1);
	memcpy(c->path + old + more - 1, "/", 2);
	c->depth++;
	r = copy_dir(c, in, out);
	c->depth--;
	c->path[old] = 0;
	return r == 0 ? copy_meta(c, in, out, &st) : r;
}

static int copy_entry(struct copy *c, int from, int to, const char *name)
{
	struct stat st;
	bool several;
	int r;

	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (take(&c->bytes, (int64_t)strlen(name)) < 0)
		return -EDQUOT;
	several = st.st_nlink > 1 && !S_ISDIR(st.st_mode);
	if (several && try_link(c, to, name, st.st_ino) == 1)
		return 0;
	if (take(&c->inodes, 1) < 0)
		return -EDQUOT;
	if (S_ISDIR(st.st_mode))
		return copy_subdir(c, from, to, name);
	if (S_ISREG(st.st_mode))
		r = copy_file(c, from, to, name);
	else if (S_ISLNK(st.st_mode))
		r = copy_symlink(from, to, name, &st);
	else
		r = copy_whiteout(to, name, &st);
	return r == 0 && several ? note_link(c, name, st.st_ino) : r;
}

static int copy_dir(struct copy *c, int from, int to)
{
	_cleanup_dir_ DIR *d = dir_read(from, ".");
	struct dirent *de;
	int r = 0;

	if (!d)
		return -errno;
	while (r == 0 && (de = readdir(d))) {
		if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
			continue;
		r = copy_entry(c, from, to, de->d_name);
		if (r == -ENOENT)
			r = 0; /* the file worker has removed it meanwhile */
	}
	return r;
}

/* A little more than the disk has, for what a file system keeps where it counts nothing. */
static int copy_tree(int from, int to, int64_t disk_mb, struct fail *f)
{
	struct copy *c = calloc(1, sizeof(*c));
	struct stat st;
	int r;

	if (!c || !(c->buf = malloc(CHUNK)))
		return fail_set(f, ENOMEM, "copy");
	c->root = to;
	c->bytes = (disk_mb << 20) + (disk_mb << 17) + SLACK;
	c->inodes = disk_mb * 64 + INODES_LEAST;
	r = fstat(from, &st) < 0 ? -errno : copy_dir(c, from, to);
	if (r == 0)
		r = copy_meta(c, from, to, &st);
	/* The process ends now: links and buffer go with it. */
	return r < 0 ? fail_set(f, r, "copy the files") : 0;
}

/* --- jail ------------------------------------------------------------------------------------ */

/* `to` is opened again as the jail's root: as it was, ".." would lead up from it through all that the broker has
 * mounted, since a root bounds only walks that meet it. */
static int enter(int to, struct fail *f)
{
	_cleanup_close_ int mnt = root_clone_of(to, "");

	if (mnt < 0 || fchdir(to) < 0 ||
		unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
		return fail_set(f, errno, "make the jail");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		move_mount(mnt, "", AT_FDCWD, ".", MOVE_MOUNT_F_EMPTY_PATH) < 0 ||
		fchdir(mnt) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
		umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return fail_set(f, errno, "enter the jail");
	_cleanup_close_ int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0 || dup2(root, to) < 0)
		return fail_set(f, errno, "open the jail's root");
	return 0;
}

static int give_up_rights(const struct filter *filter, struct fail *f)
{
	static const struct jail_limit limits[] = { { RLIMIT_AS, MEMORY_MAX }, { RLIMIT_CORE, CORE_NEVER },
		{ RLIMIT_NPROC, 0 } };

	return jail_drop(JAIL_COPIER, limits, ARRAY_LEN(limits), filter, f);
}

struct job {
	const struct build_env *env;
	int from, to;
	int64_t disk_mb;
};

static void jailed(const void *arg, int out)
{
	const struct job *j = arg;
	int keep[3] = { fcntl(j->from, F_DUPFD, 32), fcntl(j->to, F_DUPFD, 32), fcntl(out, F_DUPFD, 32) };
	struct fail f = { 0 };

	umask(0);
	rlimit_use_all(RLIMIT_NOFILE);
	if (enter(keep[1], &f) == 0) {
		for (int i = 0; i < 3; i++)
			dup2(keep[i], 3 + i);
		close_range(6, ~0u, 0);
		keep[2] = 5;
		if (give_up_rights(&j->env->jail_filter, &f) == 0)
			copy_tree(3, 4, j->disk_mb, &f);
	}
	ssize_t n = write(keep[2], &f, sizeof(f));
	_exit(n == sizeof(f) && !f.sys ? 0 : 1);
}

int seal_copy(const struct build_env *env, int from, int to, int64_t disk_mb, struct fail *f)
{
	const struct job j = { env, from, to, disk_mb };
	struct fail got = { 0 };

	return jail_run(jailed, &j, &(struct jail_bounds){ to, SECONDS_MAX }, &got, sizeof(got), "the copier", f);
}
