/* SPDX-License-Identifier: MIT */
/* Bytes of open files: open, read, write, sync, copy. A write tells size, times and version as they
 * are after it; appending is done by the kernel, so lines of several writers never mix. */
#include "sandboxd/worker/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_STEP (32u * 1024 * 1024) /* one request's share; the caller asks again */

static int access_flags(unsigned f)
{
	if ((f & FILES_O_READ) && (f & (FILES_O_WRITE | FILES_O_APPEND)))
		return O_RDWR;
	return f & (FILES_O_WRITE | FILES_O_APPEND) ? O_WRONLY : O_RDONLY;
}

/* O_CREAT only for a name that is not there: the kernel refuses it on other people's files in
 * directories like /tmp, even to root. */
static int create(struct job *j, int flags)
{
	int nofollow = j->q.flags & FILES_FOLLOW ? 0 : O_NOFOLLOW;
	int excl = j->q.flags & FILES_O_EXCL ? O_EXCL : 0;
	const char *last;
	_cleanup_close_ int parent = path_parent(j->w, j->path, &last);
	int r;

	if (parent < 0)
		return parent == -EBUSY ? -EISDIR : parent;
	r = path_check_fs(parent);
	if (r < 0)
		return r;
	_cleanup_close_ int fd = path_open(j->w, j->path,
		flags | nofollow | excl | O_CREAT | O_NONBLOCK | O_NOCTTY, j->q.mode);
	if (fd < 0)
		return fd;
	r = path_check_type(fd, false);
	if (r == 0)
		r = path_own_new(j->w, parent, NULL, fd);
	j->rep.flags |= FILES_REP_CREATED;
	return r < 0 ? r : steal_fd(&fd);
}

static int open_file(struct job *j)
{
	bool follow = j->q.flags & FILES_FOLLOW, dir_ok = j->q.flags & FILES_O_DIR_OK;
	int flags = access_flags(j->q.flags), fd;

	for (int i = 0; i < RESOLVE_TRIES; i++) {
		if ((j->q.flags & FILES_O_CREATE) && (j->q.flags & FILES_O_EXCL))
			return create(j, flags);
		fd = path_open_data(j->w, j->path, flags, follow, dir_ok && flags == O_RDONLY);
		if (fd != -ENOENT || !(j->q.flags & FILES_O_CREATE))
			return fd;
		fd = create(j, flags);
		if (fd != -EEXIST)
			return fd;
	}
	return -FILES_E_RACED;
}

static int64_t read_inline(struct job *j, int fd)
{
	size_t want = j->q.length < FILES_INLINE_MAX ? j->q.length : FILES_INLINE_MAX;
	ssize_t n;

	if (!want || !(j->q.flags & FILES_O_READ) || (j->rep.attr.mode & S_IFMT) != S_IFREG)
		return 0;
	do
		n = pread(fd, j->out, want, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	j->out_len = (size_t)n;
	return n;
}

static bool inline_is_all(const struct job *j)
{
	return (j->q.flags & FILES_INLINE_CLOSE) && (j->rep.attr.mode & S_IFMT) == S_IFREG &&
	       j->rep.attr.size <= FILES_INLINE_MAX && j->rep.attr.size <= j->q.length &&
	       j->out_len == j->rep.attr.size;
}

static int64_t give_handle(struct job *j, int *fd)
{
	int r;
	struct handle *h = handle_new(j->w, j->q.client, j->path, &r);

	if (!h)
		return r;
	h->fd = steal_fd(fd);
	h->readable = access_flags(j->q.flags) != O_WRONLY;
	h->writable = access_flags(j->q.flags) != O_RDONLY;
	h->append = j->q.flags & FILES_O_APPEND;
	h->dir = (j->rep.attr.mode & S_IFMT) == S_IFDIR;
	h->changed =
		(j->rep.flags & FILES_REP_CREATED) || (h->writable && (j->q.flags & FILES_O_TRUNC));
	h->bytes_read = j->out_len;
	j->rep.handle = h->id;
	handle_put(j->w, h);
	return 0;
}

int64_t op_open(struct job *j)
{
	/* Before anything is made or emptied that then could not be handed out. */
	int64_t r = access_flags(j->q.flags) == O_RDONLY ? 0 : handle_room(j->w, j->q.client);
	_cleanup_close_ int fd = r < 0 ? (int)r : open_file(j);

	if (fd < 0)
		return fd;
	if ((j->q.flags & FILES_O_TRUNC) && access_flags(j->q.flags) != O_RDONLY &&
		ftruncate(fd, 0) < 0)
		return -errno;
	r = attr_get(j->w, fd, "", false, &j->rep.attr);
	if (r == 0 && (j->q.flags & FILES_O_TRUNC))
		r = attr_drop_setid(j->w, fd, &j->rep.attr);
	if (r == 0)
		r = read_inline(j, fd);
	if (r < 0)
		return r;
	return inline_is_all(j) ? 0 : give_handle(j, &fd);
}

/* The handle, when it is one for data; drop with handle_put. */
static struct handle *data_handle(struct job *j, uint64_t id, bool write, int64_t *ret_err)
{
	struct handle *h = handle_get(j->w, j->q.client, id);

	*ret_err = -FILES_E_HANDLE;
	if (h && h->fd >= 0 && (h->dir || !(write ? h->writable : h->readable)))
		*ret_err = h->dir ? -EISDIR : -EBADF;
	else if (h && h->fd >= 0)
		return h;
	if (h)
		handle_put(j->w, h);
	return NULL;
}

int64_t op_read(struct job *j)
{
	int64_t r;
	struct handle *h = data_handle(j, j->q.handle, false, &r);
	size_t want = j->q.length < FILES_DATA_MAX ? j->q.length : FILES_DATA_MAX;
	bool shared = j->q.flags & FILES_SHARED;
	char *to = shared ? share_at(j, want) : j->out;

	if (!h)
		return r;
	if (j->q.offset > INT64_MAX || !to) {
		r = -EINVAL;
	} else {
		do
			r = pread(h->fd, to, want, (off_t)j->q.offset);
		while (r < 0 && errno == EINTR);
		r = r < 0 ? -errno : r;
	}
	if (r > 0) {
		j->out_len = shared ? 0 : (size_t)r;
		__atomic_add_fetch(&h->bytes_read, (uint64_t)r, __ATOMIC_RELAXED);
	}
	handle_put(j->w, h);
	return r;
}

/* By the descriptor's flag and not by RWF_APPEND: an overlay passes only the former on in every
 * kernel that we claim. */
static int set_append(struct handle *h, bool on)
{
	int flags = h->o_append == on ? 0 : fcntl(h->fd, F_GETFL);

	if (h->o_append == on)
		return 0;
	if (flags < 0 || fcntl(h->fd, F_SETFL, on ? flags | O_APPEND : flags & ~O_APPEND) < 0)
		return -errno;
	h->o_append = on;
	return 0;
}

/* Under the handle's lock. With O_APPEND the offset does not count. */
static int64_t write_all(const struct job *j, struct handle *h)
{
	bool shared = j->q.flags & FILES_SHARED;
	size_t done = 0, len = shared ? j->q.length : j->q.data_len;
	const char *data = shared ? share_at(j, len) : j->data;
	int r = set_append(h, h->append || (j->q.flags & FILES_O_APPEND));

	if (r < 0)
		return r;
	if (!data || (shared && (j->q.data_len || len > FILES_DATA_MAX)))
		return -EINVAL;
	while (done < len) {
		ssize_t n = pwrite(h->fd, data + done, len - done, (off_t)(j->q.offset + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return done ? (int64_t)done : -errno;
		done += (size_t)n;
	}
	return (int64_t)done;
}

int64_t op_write(struct job *j)
{
	int64_t r;
	struct handle *h = data_handle(j, j->q.handle, true, &r);

	if (!h)
		return r;
	pthread_mutex_lock(&h->lock);
	r = j->q.offset > INT64_MAX - FILES_DATA_MAX ? -EFBIG : write_all(j, h);
	pthread_mutex_unlock(&h->lock);
	if (r >= 0 && (j->q.flags & FILES_WRITE_SYNC) && fdatasync(h->fd) < 0)
		r = -errno;
	if (r >= 0)
		__atomic_add_fetch(&h->bytes_written, (uint64_t)r, __ATOMIC_RELAXED);
	int a = attr_get(j->w, h->fd, "", false, &j->rep.attr);
	if (a == 0 && r > 0)
		a = attr_drop_setid(j->w, h->fd, &j->rep.attr);
	handle_put(j->w, h);
	return r >= 0 && a < 0 ? a : r;
}

int64_t op_sync(struct job *j)
{
	struct handle *h = handle_get(j->w, j->q.client, j->q.handle);
	int64_t r = -FILES_E_HANDLE;

	if (!h)
		return r;
	if (h->fd >= 0) {
		r = j->q.flags & FILES_DATA_ONLY ? fdatasync(h->fd) : fsync(h->fd);
		r = r < 0 ? -errno : 0;
		if (r == -EINVAL)
			r = 0; /* a file system that has nothing to sync */
	}
	handle_put(j->w, h);
	return r;
}

int64_t op_close(struct job *j)
{
	struct handle *h = handle_get(j->w, j->q.client, j->q.handle);

	if (!h)
		return -FILES_E_HANDLE;
	j->rep.bytes_read = __atomic_load_n(&h->bytes_read, __ATOMIC_RELAXED);
	j->rep.bytes_written = __atomic_load_n(&h->bytes_written, __ATOMIC_RELAXED);
	j->rep.flags |= h->changed ? FILES_REP_CREATED : 0;
	j->out_len = strlen(h->path);
	memcpy(j->out, h->path, j->out_len);
	/* The front tells of what it has closed itself. */
	handle_close(j->w, h, j->stream != NULL);
	handle_put(j->w, h);
	return 0;
}

/* A descriptor for a path or a handle: ours to close only when *ret_handle is NULL. */
static int by_either(
	struct job *j, uint64_t id, const char *path, bool write, struct handle **ret_handle)
{
	int64_t r;

	*ret_handle = NULL;
	if (!id)
		return path_open_data(j->w, path, write ? O_WRONLY : O_RDONLY, true, false);
	*ret_handle = data_handle(j, id, write, &r);
	return *ret_handle ? (*ret_handle)->fd : (int)r;
}

static void drop_either(struct job *j, int fd, struct handle *h)
{
	if (h)
		handle_put(j->w, h);
	else if (fd >= 0)
		close(fd);
}

int64_t op_fallocate(struct job *j)
{
	struct handle *h;
	int fd = by_either(j, j->q.handle, j->path, true, &h);
	int64_t r = fd;

	if (fd >= 0 && (j->q.offset > INT64_MAX || j->q.length > INT64_MAX))
		r = -EINVAL;
	else if (fd >= 0)
		r = fallocate(fd, (int)j->q.mode, (off_t)j->q.offset, (off_t)j->q.length) < 0
			    ? -errno
			    : 0;
	if (r >= 0 && h)
		h->changed = true;
	if (r >= 0)
		r = attr_get(j->w, fd, "", false, &j->rep.attr);
	if (r >= 0)
		r = attr_drop_setid(j->w, fd, &j->rep.attr);
	drop_either(j, fd, h);
	return r;
}

static bool kernel_cannot(int err)
{
	return err == EXDEV || err == EOPNOTSUPP || err == ENOSYS || err == EINVAL || err == EPERM;
}

/* By reading and writing, where the kernel does not copy between the two. */
static ssize_t copy_step(
	int in, off_t *in_off, int out, off_t *out_off, size_t len, char *buf, size_t size)
{
	ssize_t n = pread(in, buf, len < size ? len : size, *in_off);
	ssize_t done = 0;

	if (n < 0)
		return -errno;
	while (done < n) {
		ssize_t k = pwrite(out, buf + done, (size_t)(n - done), *out_off + done);
		if (k < 0 && errno != EINTR)
			return -errno;
		done += k > 0 ? k : 0;
	}
	*in_off += n;
	*out_off += n;
	return n;
}

/* Copies up to len bytes; fewer only at the end of the source. 0, or -errno. */
int copy_bytes(int in, off_t *in_off, int out, off_t *out_off, size_t len, char *buf, size_t size)
{
	bool by_kernel = true;

	while (len) {
		ssize_t n = -1;
		if (by_kernel) {
			n = copy_file_range(in, in_off, out, out_off, len, 0);
			if (n < 0 && errno == EINTR)
				continue;
			if (n < 0 && !kernel_cannot(errno))
				return -errno;
			by_kernel = n >= 0;
		}
		if (!by_kernel)
			n = copy_step(in, in_off, out, out_off, len, buf, size);
		if (n < 0 && n != -EINTR)
			return (int)n;
		if (n == 0)
			return 0;
		len -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static bool overlaps(int in, int out, const struct files_req *q)
{
	struct stat a, b;

	if (fstat(in, &a) < 0 || fstat(out, &b) < 0 || a.st_ino != b.st_ino || a.st_dev != b.st_dev)
		return false;
	return q->offset < q->offset2 + q->length && q->offset2 < q->offset + q->length;
}

/* A handle for appending takes no offsets; one that is so only at present is set back. */
static int copy_into(struct job *j, int in, off_t *from, int out, off_t *to, struct handle *h)
{
	int r = h && h->append ? -EBADF : 0;

	if (h)
		pthread_mutex_lock(&h->lock);
	if (h && r == 0)
		r = set_append(h, false);
	if (r == 0)
		r = copy_bytes(in, from, out, to, (size_t)j->q.length, j->out, FILES_DATA_MAX);
	if (h)
		pthread_mutex_unlock(&h->lock);
	return r;
}

int64_t op_copy(struct job *j)
{
	struct files_req *q = &j->q;
	struct handle *hin = NULL, *hout = NULL;
	int in = by_either(j, q->handle, j->path, false, &hin);
	int out = in < 0 ? -1 : by_either(j, q->handle2, j->path2, true, &hout);
	off_t from = (off_t)q->offset, to = (off_t)q->offset2;
	int64_t r = in < 0 ? in : out;

	q->length = q->length < COPY_STEP ? q->length : COPY_STEP;
	if (r >= 0 && (q->offset > INT64_MAX - COPY_STEP || q->offset2 > INT64_MAX - COPY_STEP))
		r = -EINVAL;
	else if (r >= 0 && overlaps(in, out, q))
		r = -EINVAL;
	if (r >= 0)
		r = copy_into(j, in, &from, out, &to, hout);
	if (r >= 0)
		r = attr_get(j->w, out, "", false, &j->rep.attr);
	if (r >= 0)
		r = attr_drop_setid(j->w, out, &j->rep.attr);
	if (r >= 0 && hin)
		__atomic_add_fetch(
			&hin->bytes_read, (uint64_t)(from - (off_t)q->offset), __ATOMIC_RELAXED);
	if (r >= 0 && hout)
		__atomic_add_fetch(
			&hout->bytes_written, (uint64_t)(to - (off_t)q->offset2), __ATOMIC_RELAXED);
	drop_either(j, in, hin);
	drop_either(j, out, hout);
	return r < 0 ? r : to - (off_t)q->offset2;
}

int64_t op_seek(struct job *j)
{
	int64_t r;
	struct handle *h = data_handle(j, j->q.handle, false, &r);

	if (!h)
		return r;
	pthread_mutex_lock(&h->lock);
	r = j->q.offset > INT64_MAX
		    ? -ENXIO
		    : lseek(h->fd, (off_t)j->q.offset, j->q.mode ? SEEK_HOLE : SEEK_DATA);
	if (r == -1)
		r = -errno;
	pthread_mutex_unlock(&h->lock);
	handle_put(j->w, h);
	return r;
}
