/* SPDX-License-Identifier: MIT */
/* pass DIR MOUNTPOINT [keep]: the least that a FUSE daemon can do, for the bench to compare with: each
 * request is one system call on DIR. An inode is an O_PATH descriptor. The kernel may believe names and
 * attributes for a second; with `keep` for ever, and keep the pages of files, too. */
#define FUSE_USE_VERSION 312

#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define BUCKETS 65536
#define MIB     (1024u * 1024)

struct inode {
	struct inode *next;
	dev_t dev;
	ino_t ino;
	int fd;
	uint64_t lookups;
};
struct dir {
	DIR *d;
	struct dirent *left; /* read, and did not fit */
	off_t at;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct inode *buckets[BUCKETS], root;
static double believe = 1.0;
static bool keep;

static struct inode *inode_of(fuse_ino_t ino)
{
	return ino == FUSE_ROOT_ID ? &root : (struct inode *)(uintptr_t)ino;
}

static int fd_of(fuse_ino_t ino)
{
	return inode_of(ino)->fd;
}

static struct inode **bucket(dev_t dev, ino_t ino)
{
	return &buckets[(ino * 31 + dev) % BUCKETS];
}

static struct inode *find(const struct stat *st)
{
	struct inode *i = *bucket(st->st_dev, st->st_ino);

	while (i && (i->ino != st->st_ino || i->dev != st->st_dev))
		i = i->next;
	return i;
}

/* Takes the descriptor. NULL: out of memory. */
static struct inode *looked(const struct stat *st, int fd)
{
	struct inode *i, **b = bucket(st->st_dev, st->st_ino);

	pthread_mutex_lock(&lock);
	i = find(st);
	if (i) {
		close(fd);
	} else if ((i = calloc(1, sizeof(*i)))) {
		*i = (struct inode){ *b, st->st_dev, st->st_ino, fd, 0 };
		*b = i;
	}
	if (i)
		i->lookups++;
	pthread_mutex_unlock(&lock);
	return i;
}

static int look(fuse_ino_t parent, const char *name, struct fuse_entry_param *e)
{
	int fd = openat(fd_of(parent), name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	memset(e, 0, sizeof(*e));
	e->attr_timeout = e->entry_timeout = believe;
	if (fd < 0)
		return -errno;
	if (fstat(fd, &e->attr) < 0)
		return -errno;
	e->ino = (fuse_ino_t)(uintptr_t)looked(&e->attr, fd);
	return e->ino ? 0 : -ENOMEM;
}

static void forget_one(fuse_ino_t ino, uint64_t n)
{
	struct inode *i = inode_of(ino), **at;

	if (i == &root)
		return;
	pthread_mutex_lock(&lock);
	i->lookups -= n;
	if (i->lookups) {
		pthread_mutex_unlock(&lock);
		return;
	}
	for (at = bucket(i->dev, i->ino); *at != i; at = &(*at)->next)
		;
	*at = i->next;
	pthread_mutex_unlock(&lock);
	close(i->fd);
	free(i);
}

static void reply_look(fuse_req_t r, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e;
	int rc = look(parent, name, &e);

	if (rc < 0)
		fuse_reply_err(r, -rc);
	else
		fuse_reply_entry(r, &e);
}

static void done(fuse_req_t r, int rc)
{
	fuse_reply_err(r, rc < 0 ? errno : 0);
}

static void made(fuse_req_t r, int rc, fuse_ino_t parent, const char *name)
{
	if (rc < 0)
		fuse_reply_err(r, errno);
	else
		reply_look(r, parent, name);
}

static void op_init(void *arg, struct fuse_conn_info *c)
{
	(void)arg;
	c->max_write = c->max_read = MIB;
	c->max_readahead = 4 * MIB;
	c->max_background = 64;
}

static void op_forget(fuse_req_t r, fuse_ino_t ino, uint64_t n)
{
	forget_one(ino, n);
	fuse_reply_none(r);
}

static void op_forget_multi(fuse_req_t r, size_t count, struct fuse_forget_data *f)
{
	for (size_t n = 0; n < count; n++)
		forget_one(f[n].ino, f[n].nlookup);
	fuse_reply_none(r);
}

static void op_getattr(fuse_req_t r, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	if (fstat(fd_of(ino), &st) < 0)
		fuse_reply_err(r, errno);
	else
		fuse_reply_attr(r, &st, believe);
}

static struct timespec time_of(int set, int now, const struct timespec *t)
{
	if (now)
		return (struct timespec){ .tv_nsec = UTIME_NOW };
	return set ? *t : (struct timespec){ .tv_nsec = UTIME_OMIT };
}

static void op_setattr(fuse_req_t r, fuse_ino_t ino, struct stat *a, int set, struct fuse_file_info *fi)
{
	struct timespec ts[2] = { time_of(set & FUSE_SET_ATTR_ATIME, set & FUSE_SET_ATTR_ATIME_NOW, &a->st_atim),
		time_of(set & FUSE_SET_ATTR_MTIME, set & FUSE_SET_ATTR_MTIME_NOW, &a->st_mtim) };
	char link[40];
	int rc = 0;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd_of(ino));
	if (set & FUSE_SET_ATTR_MODE)
		rc = chmod(link, a->st_mode);
	if (rc == 0 && (set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)))
		rc = fchownat(fd_of(ino), "", set & FUSE_SET_ATTR_UID ? a->st_uid : (uid_t)-1,
			set & FUSE_SET_ATTR_GID ? a->st_gid : (gid_t)-1, AT_EMPTY_PATH);
	if (rc == 0 && (set & FUSE_SET_ATTR_SIZE))
		rc = fi ? ftruncate((int)fi->fh, a->st_size) : truncate(link, a->st_size);
	if (rc == 0 && (set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME)))
		rc = utimensat(AT_FDCWD, link, ts, 0);
	if (rc < 0)
		fuse_reply_err(r, errno);
	else
		op_getattr(r, ino, fi);
}

static void op_readlink(fuse_req_t r, fuse_ino_t ino)
{
	char buf[4097];
	ssize_t n = readlinkat(fd_of(ino), "", buf, sizeof(buf) - 1);

	if (n < 0) {
		fuse_reply_err(r, errno);
		return;
	}
	buf[n] = '\0';
	fuse_reply_readlink(r, buf);
}

static void op_mkdir(fuse_req_t r, fuse_ino_t p, const char *name, mode_t mode)
{
	made(r, mkdirat(fd_of(p), name, mode), p, name);
}

static void op_symlink(fuse_req_t r, const char *text, fuse_ino_t p, const char *name)
{
	made(r, symlinkat(text, fd_of(p), name), p, name);
}

static void op_link(fuse_req_t r, fuse_ino_t ino, fuse_ino_t p, const char *name)
{
	char link[40];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd_of(ino));
	made(r, linkat(AT_FDCWD, link, fd_of(p), name, AT_SYMLINK_FOLLOW), p, name);
}

static void op_unlink(fuse_req_t r, fuse_ino_t p, const char *name)
{
	done(r, unlinkat(fd_of(p), name, 0));
}

static void op_rmdir(fuse_req_t r, fuse_ino_t p, const char *name)
{
	done(r, unlinkat(fd_of(p), name, AT_REMOVEDIR));
}

static void op_rename(fuse_req_t r, fuse_ino_t p, const char *name, fuse_ino_t q, const char *to, unsigned flags)
{
	done(r, renameat2(fd_of(p), name, fd_of(q), to, flags));
}

static void op_open(fuse_req_t r, fuse_ino_t ino, struct fuse_file_info *fi)
{
	char link[40];
	int fd;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd_of(ino));
	fd = open(link, (fi->flags & ~O_NOFOLLOW) | O_CLOEXEC);
	if (fd < 0) {
		fuse_reply_err(r, errno);
		return;
	}
	fi->fh = (uint64_t)fd;
	fi->keep_cache = keep;
	fuse_reply_open(r, fi);
}

static void op_create(fuse_req_t r, fuse_ino_t p, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	int rc, fd = openat(fd_of(p), name, (fi->flags | O_CREAT | O_CLOEXEC) & ~O_NOFOLLOW, mode);
	struct fuse_entry_param e;

	if (fd < 0) {
		fuse_reply_err(r, errno);
		return;
	}
	fi->fh = (uint64_t)fd;
	rc = look(p, name, &e);
	if (rc < 0)
		fuse_reply_err(r, -rc);
	else
		fuse_reply_create(r, &e, fi);
}

static void op_read(fuse_req_t r, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	char *buf = malloc(size);
	ssize_t n = pread((int)fi->fh, buf, size, off);

	(void)ino;
	if (n < 0)
		fuse_reply_err(r, errno);
	else
		fuse_reply_buf(r, buf, (size_t)n);
	free(buf);
}

static void op_write(fuse_req_t r, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	struct fuse_file_info *fi)
{
	ssize_t n = pwrite((int)fi->fh, buf, size, off);

	(void)ino;
	if (n < 0)
		fuse_reply_err(r, errno);
	else
		fuse_reply_write(r, (size_t)n);
}

static void op_flush(fuse_req_t r, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	done(r, close(dup((int)fi->fh)));
}

static void op_release(fuse_req_t r, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	done(r, close((int)fi->fh));
}

static void op_fsync(fuse_req_t r, fuse_ino_t ino, int data, struct fuse_file_info *fi)
{
	(void)ino;
	done(r, data ? fdatasync((int)fi->fh) : fsync((int)fi->fh));
}

static void op_fallocate(fuse_req_t r, fuse_ino_t ino, int mode, off_t off, off_t len, struct fuse_file_info *fi)
{
	(void)ino;
	done(r, fallocate((int)fi->fh, mode, off, len));
}

static void op_lseek(fuse_req_t r, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	off_t to = lseek((int)fi->fh, off, whence);

	(void)ino;
	if (to < 0)
		fuse_reply_err(r, errno);
	else
		fuse_reply_lseek(r, to);
}

static struct dir *dir_of(const struct fuse_file_info *fi)
{
	return (struct dir *)(uintptr_t)fi->fh;
}

static void op_opendir(fuse_req_t r, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct dir *d = calloc(1, sizeof(*d));
	int fd = openat(fd_of(ino), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	d->d = fd < 0 ? NULL : fdopendir(fd);
	if (!d->d) {
		free(d);
		fuse_reply_err(r, errno);
		return;
	}
	fi->fh = (uint64_t)(uintptr_t)d;
	fi->cache_readdir = fi->keep_cache = keep;
	fuse_reply_open(r, fi);
}

static size_t add(fuse_req_t r, fuse_ino_t ino, const struct dirent *e, bool plus, char *p, size_t room)
{
	struct fuse_entry_param x = { .attr = { .st_ino = e->d_ino, .st_mode = (mode_t)DTTOIF(e->d_type) } };
	size_t n;

	if (!plus)
		return fuse_add_direntry(r, p, room, e->d_name, &x.attr, e->d_off);
	if (fuse_add_direntry_plus(r, NULL, 0, e->d_name, NULL, 0) > room)
		return room + 1;
	if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
		(void)look(ino, e->d_name, &x);
	n = fuse_add_direntry_plus(r, p, room, e->d_name, &x, e->d_off);
	return n;
}

static void readdir_as(fuse_req_t r, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi, bool plus)
{
	struct dir *d = dir_of(fi);
	char *buf = malloc(size);
	size_t len = 0, n;

	if (off != d->at) {
		seekdir(d->d, off);
		d->left = NULL;
		d->at = off;
	}
	while (d->left || (d->left = readdir(d->d))) {
		n = add(r, ino, d->left, plus, buf + len, size - len);
		if (n > size - len)
			break;
		len += n;
		d->at = d->left->d_off;
		d->left = NULL;
	}
	fuse_reply_buf(r, buf, len);
	free(buf);
}

static void op_readdir(fuse_req_t r, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	readdir_as(r, ino, size, off, fi, false);
}

static void op_readdirplus(fuse_req_t r, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	readdir_as(r, ino, size, off, fi, true);
}

static void op_releasedir(fuse_req_t r, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	closedir(dir_of(fi)->d);
	free(dir_of(fi));
	fuse_reply_err(r, 0);
}

static void op_statfs(fuse_req_t r, fuse_ino_t ino)
{
	struct statvfs s;

	if (fstatvfs(fd_of(ino), &s) < 0)
		fuse_reply_err(r, errno);
	else
		fuse_reply_statfs(r, &s);
}

static const struct fuse_lowlevel_ops ops = {
	.init = op_init, .lookup = reply_look, .forget = op_forget, .forget_multi = op_forget_multi,
	.getattr = op_getattr, .setattr = op_setattr, .readlink = op_readlink, .mkdir = op_mkdir,
	.symlink = op_symlink, .link = op_link, .unlink = op_unlink, .rmdir = op_rmdir, .rename = op_rename,
	.open = op_open, .create = op_create, .read = op_read, .write = op_write, .flush = op_flush,
	.release = op_release, .fsync = op_fsync, .fallocate = op_fallocate, .lseek = op_lseek,
	.opendir = op_opendir, .readdir = op_readdir, .readdirplus = op_readdirplus,
	.releasedir = op_releasedir, .statfs = op_statfs,
};

static int serve(struct fuse_session *se, const char *at)
{
	int rc = 1;

	if (!se || fuse_set_signal_handlers(se) < 0)
		return 1;
	if (fuse_session_mount(se, at) == 0) {
		rc = fuse_session_loop_mt(se, NULL);
		fuse_session_unmount(se);
	}
	fuse_remove_signal_handlers(se);
	fuse_session_destroy(se);
	return rc < 0;
}

int main(int argc, char **argv)
{
	static char mount[] = "-ofsname=pass,subtype=pass,max_read=1048576";
	char *words[] = { argv[0], mount };
	struct fuse_args args = FUSE_ARGS_INIT(2, words);
	struct rlimit l = { 262144, 262144 };

	if (argc < 3) {
		fprintf(stderr, "usage: pass DIR MOUNTPOINT [keep]\n");
		return 2;
	}
	umask(0);
	keep = argc > 3;
	if (keep)
		believe = 86400;
	(void)setrlimit(RLIMIT_NOFILE, &l);
	root.fd = open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root.fd < 0) {
		perror(argv[1]);
		return 1;
	}
	return serve(fuse_session_new(&args, &ops, sizeof(ops), NULL), argv[2]);
}
