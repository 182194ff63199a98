/* SPDX-License-Identifier: MIT */
/* Writing a whole file. The body goes to a file without a name in the target's directory, so that
 * nothing stays when we die; when it is complete it gets a name (where the kernel cannot give it
 * one, it is copied to a file that has one) and takes the target's place: mode, owner and extended
 * attributes of an existing file are kept. Where a rename would change more than the content (hard
 * links, a path that ends in a link, a file that is a mount point) the finished body is copied into
 * the file instead, one upload at a time. Until the commit nothing that can be seen has changed. */
#include "sandboxd/worker/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

struct put {
	int dirfd, fd;
	char tmp[40]; /* its name in dirfd, "" when it has none */
	char *path;
	off_t size;
};

void put_free(struct worker *w, struct put *p)
{
	(void)w;
	if (!p)
		return;
	if (p->tmp[0])
		(void)unlinkat(p->dirfd, p->tmp, 0); /* the guest may have removed it */
	if (p->fd >= 0)
		close(p->fd);
	if (p->dirfd >= 0)
		close(p->dirfd);
	free(p->path);
	free(p);
}

static void tmp_name(struct worker *w, char name[40])
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	snprintf(name, 40, ".sbx-put-%08llx%08lx",
		(unsigned long long)__atomic_add_fetch(&w->counter, 1, __ATOMIC_RELAXED) &
			0xffffffffu,
		(unsigned long)(ts.tv_nsec ^ ts.tv_sec << 12) & 0xffffffffu);
}

static int stage_named(struct worker *w, struct put *p)
{
	for (int i = 0; i < 16; i++) {
		tmp_name(w, p->tmp);
		p->fd = openat(
			p->dirfd, p->tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (p->fd >= 0)
			return path_own_new(w, p->dirfd, p->tmp, p->fd);
		if (errno != EEXIST)
			break;
	}
	p->tmp[0] = '\0';
	return p->fd < 0 ? -errno : 0;
}

/* `brief`: the commit follows at once. */
static int stage(struct worker *w, struct put *p, bool brief)
{
	int r = path_check_fs(p->dirfd);

	if (r < 0)
		return r;
	if (!brief || !__atomic_load_n(&w->no_fd_link, __ATOMIC_RELAXED)) {
		p->fd = openat(p->dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		if (p->fd >= 0)
			return path_own_new(w, p->dirfd, NULL, p->fd);
		if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
			return -errno;
	}
	return stage_named(w, p);
}

/* The nearest directory above the path that exists: missing ones are made at the commit. */
static int nearest_dir(struct worker *w, const char *path)
{
	char dir[FS_PATH_MAX];
	int fd;

	snprintf(dir, sizeof(dir), "%s", path);
	do {
		char *slash = strrchr(dir, '/');
		if (!slash || !dir[1])
			return -EISDIR;
		if (strlen(slash + 1) > 255)
			return -ENAMETOOLONG;
		slash[slash == dir ? 1 : 0] = '\0';
		fd = path_open(w, dir, O_PATH | O_DIRECTORY, 0);
	} while (fd == -ENOENT);
	return fd;
}

/* Looks before any byte is taken: what cannot be replaced is refused now. */
static int check_target(struct worker *w, const char *path, bool *ret_exists)
{
	_cleanup_close_ int fd = path_open(w, path, O_PATH, 0);
	int r;

	*ret_exists = fd >= 0;
	if (fd == -ENOENT)
		return 0;
	if (fd < 0)
		return fd;
	r = path_check_type(fd, false);
	if (r == -EISDIR)
		return r;
	int f = path_check_fs(fd);
	return f < 0 ? f : r;
}

static int put_new(struct worker *w, const char *path, bool brief, struct put **ret)
{
	struct put *p = calloc(1, sizeof(*p));
	bool exists;
	int r = -ENOMEM;

	if (!p)
		return r;
	p->fd = p->dirfd = -1;
	p->path = strdup(path);
	if (!p->path)
		goto fail;
	r = check_target(w, path, &exists);
	if (r < 0)
		goto fail;
	r = p->dirfd = nearest_dir(w, path);
	if (r < 0)
		goto fail;
	r = stage(w, p, brief);
	if ((r == -EROFS || r == -EACCES || r == -FILES_E_REFUSED) && exists) {
		/* A writable file mounted in a directory that is not. */
		close(p->dirfd);
		r = p->dirfd = path_open(w, "/tmp", O_PATH | O_DIRECTORY, 0);
		if (r >= 0)
			r = stage(w, p, brief);
	}
	if (r < 0)
		goto fail;
	*ret = p;
	return 0;
fail:
	put_free(w, p);
	return r;
}

static int put_add(struct put *p, const char *buf, size_t len)
{
	while (len) {
		ssize_t n = pwrite(p->fd, buf, len, p->size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p->size += n;
		buf += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Names the staged file. 0, or -errno with the file as it was. */
static int link_as(struct worker *w, struct put *p, int dirfd, const char *name)
{
	if (linkat(p->fd, "", dirfd, name, AT_EMPTY_PATH) == 0)
		return 0;
	if (errno == ENOENT || errno == EPERM || errno == EINVAL) {
		__atomic_store_n(&w->no_fd_link, 1, __ATOMIC_RELAXED);
		return -EOPNOTSUPP;
	}
	return -errno;
}

/* On failure the body is where it was. */
static int move_to_named(struct worker *w, struct put *p, char *buf, size_t size)
{
	int body = steal_fd(&p->fd);
	off_t from = 0, to = 0;
	int r = stage_named(w, p);

	if (r == 0)
		r = copy_bytes(body, &from, p->fd, &to, (size_t)p->size, buf, size);
	if (r == 0) {
		close(body);
		return 0;
	}
	if (p->tmp[0])
		(void)unlinkat(p->dirfd, p->tmp, 0);
	p->tmp[0] = '\0';
	if (p->fd >= 0)
		close(p->fd);
	p->fd = body;
	return r;
}

static int give_tmp_name(struct worker *w, struct put *p, int dirfd, char *buf, size_t size)
{
	char name[40];
	int r = -EEXIST;

	for (int i = 0; i < 16 && r == -EEXIST; i++) {
		tmp_name(w, name);
		r = link_as(w, p, dirfd, name);
	}
	if (r == -EOPNOTSUPP)
		return move_to_named(w, p, buf, size);
	if (r < 0)
		return r;
	int d = fcntl(dirfd, F_DUPFD_CLOEXEC, 0);
	if (d < 0) {
		r = -errno;
		(void)unlinkat(dirfd, name, 0);
		return r;
	}
	close(p->dirfd);
	p->dirfd = d;
	memcpy(p->tmp, name, sizeof(name));
	return 0;
}

/* Extended attributes that belong to the file rather than to its content. security.capability is
 * left out, as the kernel takes it from a file that is written. */
static int copy_xattrs(int from, int to)
{
	_cleanup_free_ char *names = malloc(FILES_XATTR_MAX), *value = malloc(FILES_XATTR_MAX);
	ssize_t n;

	if (!names || !value)
		return -ENOMEM;
	n = flistxattr(from, names, FILES_XATTR_MAX);
	if (n < 0)
		return errno == EOPNOTSUPP ? 0 : -errno;
	for (char *k = names; k < names + n; k += strlen(k) + 1) {
		if (strncmp(k, "user.", 5) && strcmp(k, "system.posix_acl_access"))
			continue;
		ssize_t v = fgetxattr(from, k, value, FILES_XATTR_MAX);
		if (v < 0 || fsetxattr(to, k, value, (size_t)v, 0) < 0)
			return -errno;
	}
	return 0;
}

static int keep_identity(struct put *p, int parent, const char *last, const struct stat *st)
{
	_cleanup_close_ int old =
		openat(parent, last, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat mine;

	if (old < 0 || fstat(p->fd, &mine) < 0)
		return -errno;
	if ((mine.st_uid != st->st_uid || mine.st_gid != st->st_gid) &&
		fchown(p->fd, st->st_uid, st->st_gid) < 0)
		return -errno;
	if (fchmod(p->fd, st->st_mode & 01777) < 0)
		return -errno;
	return copy_xattrs(old, p->fd);
}

/* `st`: the file that is replaced, NULL when there is none. */
static int replace(struct worker *w, struct put *p, int parent, const char *last,
	const struct stat *st, char *buf, size_t n)
{
	int r = p->tmp[0] ? 0 : give_tmp_name(w, p, parent, buf, n);

	/* Only now: the name may have come with another file. */
	if (r == 0)
		r = st ? keep_identity(p, parent, last, st) : fchmod(p->fd, 0644) < 0 ? -errno : 0;
	if (r < 0)
		return r;
	if (renameat(p->dirfd, p->tmp, parent, last) < 0)
		return -errno;
	p->tmp[0] = '\0';
	return 0;
}

/* Into the file that is there, through links. Room is reserved first, so that a full disk is known
 * before the old content goes. */
static int write_inplace(struct worker *w, struct put *p, char *buf, size_t size)
{
	_cleanup_close_ int fd = path_open_data(w, p->path, O_RDWR, true, false);
	off_t from = 0, to = 0;
	int r;

	if (fd == -ENOENT) {
		/* A link whose target does not exist yet. */
		fd = path_open(w, p->path, O_RDWR | O_CREAT | O_NONBLOCK | O_NOCTTY, 0644);
		if (fd >= 0)
			r = path_own_new(w, -1, NULL, fd);
		if (fd >= 0 && (r < 0 || (r = path_check_type(fd, false)) < 0))
			return r;
	}
	if (fd < 0)
		return fd;
	pthread_mutex_lock(&w->inplace);
	r = p->size ? fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, p->size) : 0;
	r = r < 0 && (errno == ENOSPC || errno == EDQUOT) ? -errno : 0;
	if (r == 0)
		r = copy_bytes(p->fd, &from, fd, &to, (size_t)p->size, buf, size);
	if (r == 0 && ftruncate(fd, p->size) < 0)
		r = -errno;
	pthread_mutex_unlock(&w->inplace);
	struct files_attr a;
	if (r == 0 && attr_get(w, fd, "", false, &a) == 0)
		r = attr_drop_setid(w, fd, &a);
	return r;
}

static int publish(struct worker *w, struct put *p, char *buf, size_t size)
{
	char dir[FS_PATH_MAX];
	const char *last;
	struct stat st;
	int r;

	_cleanup_close_ int parent = path_parent(w, p->path, &last);
	if (parent == -ENOENT) {
		snprintf(dir, sizeof(dir), "%.*s", (int)(strrchr(p->path, '/') - p->path), p->path);
		r = path_mkdirs(w, dir);
		if (r < 0)
			return r;
		parent = path_parent(w, p->path, &last);
	}
	if (parent < 0)
		return parent;
	if (fstatat(parent, last, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno != ENOENT)
			return -errno;
		if (fchmod(p->fd, 0644) < 0)
			return -errno;
		r = p->tmp[0] ? -EOPNOTSUPP : link_as(w, p, parent, last);
		if (r == -EEXIST || r == -EOPNOTSUPP)
			r = replace(w, p, parent, last, NULL, buf, size);
		return r == -EXDEV ? write_inplace(w, p, buf, size) : r;
	}
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	if (S_ISREG(st.st_mode) && st.st_nlink == 1 &&
		replace(w, p, parent, last, &st, buf, size) == 0)
		return 0;
	return write_inplace(w, p, buf, size);
}

static int64_t commit(struct job *j, struct put *p)
{
	int r = publish(j->w, p, j->out, FILES_DATA_MAX);
	_cleanup_close_ int fd = -1;

	if (r < 0)
		return r;
	fd = path_open(j->w, p->path, O_PATH, 0);
	return fd < 0 ? fd : attr_get(j->w, fd, "", false, &j->rep.attr);
}

int64_t op_put(struct job *j)
{
	struct put *p;
	int64_t r = put_new(j->w, j->path, true, &p);

	if (r < 0)
		return r;
	r = put_add(p, j->data, j->q.data_len);
	if (r == 0)
		r = commit(j, p);
	put_free(j->w, p);
	return r;
}

int64_t op_put_begin(struct job *j)
{
	struct put *p;
	struct handle *h;
	int r = put_new(j->w, j->path, false, &p);

	if (r < 0)
		return r;
	h = handle_new(j->w, j->q.client, j->path, &r);
	if (!h) {
		put_free(j->w, p);
		return r;
	}
	pthread_mutex_lock(&h->lock);
	h->put = p;
	pthread_mutex_unlock(&h->lock);
	j->rep.handle = h->id;
	handle_put(j->w, h);
	return 0;
}

int64_t op_put_data(struct job *j)
{
	struct handle *h = handle_get(j->w, j->q.client, j->q.handle);
	int64_t r = -FILES_E_HANDLE;

	if (!h)
		return r;
	pthread_mutex_lock(&h->lock);
	if (h->put)
		r = put_add(h->put, j->data, j->q.data_len);
	pthread_mutex_unlock(&h->lock);
	handle_put(j->w, h);
	return r;
}

static int64_t end_put(struct job *j, bool keep)
{
	struct handle *h = handle_get(j->w, j->q.client, j->q.handle);
	int64_t r = -FILES_E_HANDLE;

	if (!h)
		return r;
	pthread_mutex_lock(&h->lock);
	if (h->put) {
		r = keep ? commit(j, h->put) : 0;
		handle_close(j->w, h, false);
	}
	pthread_mutex_unlock(&h->lock);
	handle_put(j->w, h);
	return r;
}

int64_t op_put_commit(struct job *j)
{
	return end_put(j, true);
}

int64_t op_put_abort(struct job *j)
{
	return end_put(j, false);
}
