/* SPDX-License-Identifier: MIT */
/* Connections to the file worker and the check of its answers. A call takes a connection from the
 * pool, sends one request, reads one answer, and gives the connection back; whatever goes wrong in
 * between closes it. The worker runs with the guest's rights and may be the guest's by now: lengths
 * are bounded before memory is taken, every name and number is looked at. */
#include "sandboxd/backend/guestfs_check.h"

#include "common/base/log.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define DEADLINE_MS 30000
#define IDLE_MAX    16

/* One connection; busy from take to give. */
struct guestfs_conn {
	int fd;
	bool busy;
	struct guestfs_conn *next;
};
struct guestfs {
	int (*dial)(void *arg, int *ret_fd, struct err *e);
	void *arg;
	pthread_mutex_t lock;
	/* under lock */
	struct guestfs_conn *conns;
	unsigned idle;
	bool down;
	uint64_t tag;
	/* atomic */
	bool expired;
	struct guestfs_streams streams;
};

static int dial_guest(void *arg, int *ret_fd, struct err *e)
{
	return guest_files_connect(arg, ret_fd, e);
}

int guestfs_new(struct guest *g, struct guestfs **ret, struct err *e)
{
	return guestfs_new_on(dial_guest, g, ret, e);
}

int guestfs_new_on(int (*dial)(void *arg, int *ret_fd, struct err *e), void *arg,
	struct guestfs **ret, struct err *e)
{
	struct guestfs *fs = calloc(1, sizeof(*fs));

	if (!fs)
		return err_sys(e, ENOMEM, "files of a sandbox");
	fs->dial = dial;
	fs->arg = arg;
	pthread_mutex_init(&fs->lock, NULL);
	pthread_mutex_init(&fs->streams.lock, NULL);
	*ret = fs;
	return 0;
}

void guestfs_free(struct guestfs *fs)
{
	if (!fs)
		return;
	while (fs->conns) {
		struct guestfs_conn *c = fs->conns;
		fs->conns = c->next;
		close(c->fd);
		free(c);
	}
	pthread_mutex_destroy(&fs->streams.lock);
	pthread_mutex_destroy(&fs->lock);
	free(fs);
}

void guestfs_shutdown(struct guestfs *fs)
{
	pthread_mutex_lock(&fs->lock);
	fs->down = true;
	for (struct guestfs_conn *c = fs->conns; c; c = c->next)
		shutdown(c->fd, SHUT_RDWR);
	pthread_mutex_unlock(&fs->lock);
}

static int ended(struct err *e)
{
	return err_set(e, ERR_CONFLICT, "sandbox has ended");
}

static bool is_down(struct guestfs *fs)
{
	pthread_mutex_lock(&fs->lock);
	bool down = fs->down;
	pthread_mutex_unlock(&fs->lock);
	return down;
}

/* An idle connection has nothing to say: readable means that the worker has closed it. */
static bool still_open(int fd)
{
	char c;

	return recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR);
}

static void remove_locked(struct guestfs *fs, struct guestfs_conn *c)
{
	struct guestfs_conn **p = &fs->conns;

	while (*p && *p != c)
		p = &(*p)->next;
	if (*p)
		*p = c->next;
	close(c->fd);
	free(c);
}

static struct guestfs_conn *take_idle(struct guestfs *fs)
{
	struct guestfs_conn *c = fs->conns, *next;

	for (; c; c = next) {
		next = c->next;
		if (c->busy)
			continue;
		fs->idle--;
		if (still_open(c->fd)) {
			c->busy = true;
			return c;
		}
		remove_locked(fs, c);
	}
	return NULL;
}

int guestfs_take(struct guestfs *fs, struct guestfs_conn **ret, int *ret_fd, uint64_t *ret_tag,
	struct err *e)
{
	struct guestfs_conn *c = NULL;
	int fd;

	pthread_mutex_lock(&fs->lock);
	bool down = fs->down;
	*ret_tag = ++fs->tag;
	if (!down)
		c = take_idle(fs);
	pthread_mutex_unlock(&fs->lock);
	if (down)
		return ended(e);
	*ret = c;
	if (c) {
		*ret_fd = c->fd;
		return 0;
	}
	if (fs->dial(fs->arg, &fd, e) < 0)
		return -1;
	c = malloc(sizeof(*c));
	if (!c) {
		close(fd);
		return err_sys(e, ENOMEM, "files of a sandbox");
	}
	*c = (struct guestfs_conn){ .fd = fd, .busy = true };
	pthread_mutex_lock(&fs->lock);
	c->next = fs->conns;
	fs->conns = c;
	if (fs->down)
		shutdown(fd, SHUT_RDWR);
	pthread_mutex_unlock(&fs->lock);
	*ret = c;
	*ret_fd = fd;
	return 0;
}

void guestfs_give(struct guestfs *fs, struct guestfs_conn *c, bool good)
{
	pthread_mutex_lock(&fs->lock);
	c->busy = false;
	if (good && fs->idle < IDLE_MAX && !fs->down)
		fs->idle++;
	else
		remove_locked(fs, c);
	pthread_mutex_unlock(&fs->lock);
}

static int silent(struct guestfs *fs, int r, struct err *e)
{
	if (is_down(fs))
		return ended(e);
	return err_set(e, ERR_UNAVAILABLE, "the sandbox's files do not answer%s",
		r == -ETIMEDOUT ? " in time" : "");
}

int guestfs_nonsense(const char *what, struct err *e)
{
	log_warn("file worker sent a wrong answer what=%s", what);
	return err_set(e, ERR_INTERNAL, "the sandbox's files gave an answer that makes no sense");
}

/* The worker's refusal in words of the contract. */
int guestfs_refused(int64_t value, enum files_op op, const struct guestfs_args *a, struct err *e)
{
	bool on_path = a->path && *a->path; /* an upload has both: its caller knows the path only */
	char quoted[200];
	const char *what = on_path ? log_quote(a->path, quoted, sizeof(quoted)) : "handle";

	switch (-value) {
	case FILES_E_NOTREG:
		return err_set_sys(e, ERR_INVALID_REQUEST, EINVAL, "%s: not a regular file", what);
	case FILES_E_REFUSED:
		return err_set_sys(e, ERR_REFUSED, EPERM,
			"%s: not a regular file: it belongs to the system, not to the disk", what);
	case FILES_E_RACED:
		return err_set_sys(
			e, ERR_CONFLICT, EAGAIN, "%s: the path kept changing, try again", what);
	case FILES_E_HANDLE:
		return err_set_sys(e, ERR_NOT_FOUND, ESTALE, "handle: unknown, closed or expired");
	}
	if (-value == EPERM && op == FILES_MKNOD)
		return err_set_sys(e, ERR_REFUSED, EPERM, "%s: only FIFOs can be made", what);
	return err_sys(e, (int)-value, "%s", what);
}

static int send_request(int fd, enum files_op op, uint64_t tag, const struct guestfs_args *a)
{
	struct files_req q = {
		.client = a->client,
		.handle = a->handle,
		.handle2 = a->handle2,
		.offset = a->offset,
		.offset2 = a->offset2,
		.length = a->length,
		.flags = a->flags,
		.mode = a->mode,
		.uid = a->uid,
		.gid = a->gid,
		.atime = a->atime,
		.mtime = a->mtime,
		.path_len = a->path ? (uint32_t)strlen(a->path) : 0,
		.path2_len = a->path2 ? (uint32_t)strlen(a->path2) : 0,
		.data_len = (uint32_t)a->data_len,
	};
	struct proto_frame f = { .op = (uint16_t)op,
		.tag = tag,
		.len = (uint32_t)sizeof(q) + q.path_len + q.path2_len + q.data_len };
	struct iovec v[] = {
		{ &f, sizeof(f) },
		{ &q, sizeof(q) },
		{ (void *)(size_t)a->path, q.path_len },
		{ (void *)(size_t)a->path2, q.path2_len },
		{ (void *)(size_t)a->data, q.data_len },
	};
	struct msghdr m = { .msg_iov = v, .msg_iovlen = ARRAY_LEN(v) };
	ssize_t n;

	do
		n = sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EAGAIN)
		return -errno;
	for (size_t i = 0, done = n > 0 ? (size_t)n : 0; i < ARRAY_LEN(v); i++) {
		size_t skip = done < v[i].iov_len ? done : v[i].iov_len;
		done -= skip;
		int r = skip == v[i].iov_len ? 0
					     : fd_send_full(fd, (char *)v[i].iov_base + skip,
						       v[i].iov_len - skip, DEADLINE_MS);
		if (r < 0)
			return r;
	}
	return 0;
}

/* The most data that an answer may carry: 0 where none is expected. */
static size_t data_max(enum files_op op, const struct guestfs_args *a)
{
	switch (op) {
	case FILES_STAT:
	case FILES_CLOSE:
		return FILES_PATH_MAX;
	case FILES_LIST:
		return 1024 * 1024;
	case FILES_OPEN:
		return a->length < FILES_INLINE_MAX ? a->length : FILES_INLINE_MAX;
	case FILES_READ:
		return a->length < FILES_DATA_MAX ? a->length : FILES_DATA_MAX;
	case FILES_XATTR_GET:
	case FILES_XATTR_LIST:
		return FILES_XATTR_MAX;
	case FILES_STATFS:
		return sizeof(struct files_statfs);
	case FILES_LOCK:
		return sizeof(struct files_locked);
	case FILES_EXPIRED:
	case FILES_ACTIVITY:
		return FILES_EXPIRED_MAX;
	default:
		return 0;
	}
}

static bool time_ok(const struct files_time *t)
{
	return t->nsec < 1000000000;
}

bool guestfs_attr_ok(const struct files_attr *t)
{
	return t->size <= INT64_MAX && t->blocks <= INT64_MAX && t->mode <= 0177777 &&
	       time_ok(&t->atime) && time_ok(&t->mtime) && time_ok(&t->ctime);
}

static bool rep_ok(const struct proto_frame *f, const struct files_rep *r)
{
	return r->data_len == f->len - sizeof(*r) && guestfs_attr_ok(&r->attr) &&
	       r->bytes_read <= INT64_MAX && r->bytes_written <= INT64_MAX;
}

int guestfs_head(struct guestfs *fs, int fd, enum files_op op, uint64_t tag, size_t max,
	struct proto_frame *f, struct files_rep *rep, struct err *e)
{
	int r = fd_recv_full(fd, f, sizeof(*f), DEADLINE_MS);

	if (r < 0)
		return silent(fs, r, e);
	if (f->op != op || f->tag != tag)
		return guestfs_nonsense("tag", e);
	if (f->len < sizeof(*rep) || f->len - sizeof(*rep) > max)
		return guestfs_nonsense("length", e);
	r = fd_recv_full(fd, rep, sizeof(*rep), DEADLINE_MS);
	if (r < 0)
		return silent(fs, r, e);
	if (!rep_ok(f, rep))
		return guestfs_nonsense("attributes", e);
	if (f->value < 0 && (rep->data_len || f->value < -4095))
		return guestfs_nonsense("refusal", e);
	if (f->value < 0)
		return 1;
	if (rep->flags & FILES_REP_EXPIRED)
		__atomic_store_n(&fs->expired, true, __ATOMIC_RELAXED);
	return 0;
}

static bool args_ok(const struct guestfs_args *a)
{
	return (!a->path || strlen(a->path) < FILES_PATH_MAX) &&
	       (!a->path2 || strlen(a->path2) < FILES_PATH_MAX) && a->data_len <= FILES_DATA_MAX;
}

static bool holds_nul(const struct guestfs_result *r)
{
	return strlen(r->data) != r->data_len;
}

/* What the operation promises beyond the sound form. */
static bool result_ok(
	enum files_op op, const struct guestfs_args *a, const struct guestfs_result *r)
{
	switch (op) {
	case FILES_STAT:
	case FILES_CLOSE:
		return !holds_nul(r);
	case FILES_OPEN:
		return (r->handle || (a->flags & FILES_INLINE_CLOSE)) && r->attr.mode;
	case FILES_PUT_BEGIN:
		return r->handle;
	case FILES_WRITE:
		return (uint64_t)r->value <= a->data_len;
	case FILES_COPY:
		return (uint64_t)r->value <= a->length;
	case FILES_STATFS:
		return r->data_len == sizeof(struct files_statfs);
	case FILES_LOCK:
		return r->value == 0 || r->data_len == sizeof(struct files_locked);
	default:
		return true;
	}
}

/* Sends, reads the head, then the data into `buf`, or into new memory when that is NULL. */
static int exchange(struct guestfs *fs, int fd, enum files_op op, uint64_t tag,
	const struct guestfs_args *a, char *buf, struct guestfs_result *ret, bool *ret_good,
	struct err *e)
{
	struct proto_frame f;
	struct files_rep rep;
	int r = send_request(fd, op, tag, a);

	if (r < 0)
		return silent(fs, r, e);
	r = guestfs_head(fs, fd, op, tag, data_max(op, a), &f, &rep, e);
	if (r < 0)
		return -1;
	*ret_good = r == 1;
	if (r == 1)
		return guestfs_refused(f.value, op, a, e);
	_cleanup_free_ char *mine = buf ? NULL : malloc((size_t)rep.data_len + 1);
	if (!buf && !mine)
		return err_sys(e, ENOMEM, "files of a sandbox");
	r = fd_recv_full(fd, buf ? buf : mine, rep.data_len, DEADLINE_MS);
	if (r < 0)
		return silent(fs, r, e);
	if (mine)
		mine[rep.data_len] = '\0';
	struct guestfs_result res = { .value = f.value,
		.handle = rep.handle,
		.offset = rep.offset,
		.bytes_read = rep.bytes_read,
		.bytes_written = rep.bytes_written,
		.flags = rep.flags,
		.attr = rep.attr,
		.data = mine,
		.data_len = rep.data_len };
	if (!result_ok(op, a, &res))
		return guestfs_nonsense("result", e);
	*ret_good = true;
	*ret = res;
	mine = NULL;
	return 0;
}

static int call(struct guestfs *fs, enum files_op op, const struct guestfs_args *a, char *buf,
	struct guestfs_result *ret, struct err *e)
{
	struct guestfs_conn *c;
	uint64_t tag;
	bool good = false;
	int r, fd;

	if (!args_ok(a))
		return err_sys(e, ENAMETOOLONG, "path");
	if (guestfs_take(fs, &c, &fd, &tag, e) < 0)
		return -1;
	r = exchange(fs, fd, op, tag, a, buf, ret, &good, e);
	guestfs_give(fs, c, good);
	return r;
}

int guestfs_call(struct guestfs *fs, enum files_op op, const struct guestfs_args *a,
	struct guestfs_result *ret, struct err *e)
{
	return call(fs, op, a, NULL, ret, e);
}

void guestfs_result_free(struct guestfs_result *r)
{
	free(r->data);
	*r = (struct guestfs_result){ .data = NULL };
}

int guestfs_read(struct guestfs *fs, uint64_t client, uint64_t handle, uint64_t offset, void *buf,
	size_t max, size_t *ret_len, struct err *e)
{
	struct guestfs_args a = {
		.client = client, .handle = handle, .offset = offset, .length = max
	};
	struct guestfs_result r;

	if (call(fs, FILES_READ, &a, buf, &r, e) < 0)
		return -1;
	*ret_len = r.data_len;
	return 0;
}

void guestfs_drop(struct guestfs *fs, uint64_t client, uint64_t handle)
{
	struct guestfs_args a = { .client = client, .handle = handle };
	struct guestfs_result r = { .data = NULL };

	if (handle && call(fs, FILES_CLOSE, &a, NULL, &r, NULL) == 0)
		guestfs_result_free(&r);
}

bool guestfs_take_expired(struct guestfs *fs)
{
	return __atomic_exchange_n(&fs->expired, false, __ATOMIC_RELAXED);
}

struct guestfs_streams *guestfs_streams_of(struct guestfs *fs)
{
	return &fs->streams;
}
