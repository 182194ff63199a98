/* SPDX-License-Identifier: MIT */
/* Watches of a stream, by inotify. The kernel queues an event before the call that made the change
 * returns. So whoever empties the queue before it answers a request has told of all that had
 * changed before the request was carried out. The queue is read and written out under the stream's
 * `send` lock; what the kernel had to drop is told as such. A watch's number is the kernel's, which
 * are not used twice. */
#include "sandboxd/worker/state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHANGES                                                                                    \
	(IN_ATTRIB | IN_MODIFY | IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM |          \
		IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_EXCL_UNLINK | IN_DONT_FOLLOW)

static const struct {
	uint32_t in, what;
} meanings[] = {
	{ IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_MOVE_SELF, FS_INVAL_NAME },
	{ IN_MODIFY | IN_CLOSE_WRITE, FS_INVAL_DATA },
	{ IN_ATTRIB, FS_INVAL_ATTR },
	{ IN_DELETE_SELF | IN_UNMOUNT | IN_IGNORED, FS_INVAL_GONE },
	{ IN_Q_OVERFLOW, FS_INVAL_ALL },
};

static uint32_t meaning(uint32_t in)
{
	uint32_t what = 0;

	for (size_t i = 0; i < ARRAY_LEN(meanings); i++)
		if (in & meanings[i].in)
			what |= meanings[i].what;
	return what;
}

/* A run of events of one name is one change. */
static bool joins(const struct push *p, const struct fs_inval *v, const char *name)
{
	struct fs_inval last;

	if (!p->f.value)
		return false;
	memcpy(&last, p->data + p->last, sizeof(last));
	return last.watch == v->watch && last.name_len == v->name_len &&
	       !memcmp(p->data + p->last + sizeof(last), name, v->name_len);
}

static void add_change(struct push *p, const struct fs_inval *v, const char *name)
{
	struct fs_inval last;

	if (joins(p, v, name)) {
		memcpy(&last, p->data + p->last, sizeof(last));
		last.what |= v->what;
		memcpy(p->data + p->last, &last, sizeof(last));
		return;
	}
	p->last = p->rep.data_len;
	memcpy(p->data + p->last, v, sizeof(*v));
	memcpy(p->data + p->last + sizeof(*v), name, v->name_len);
	p->rep.data_len += (uint32_t)sizeof(*v) + v->name_len;
	p->f.value++;
}

static void forget(struct worker *w, struct stream *s)
{
	pthread_mutex_lock(&w->streams_lock);
	if (s->watches) {
		s->watches--;
		__atomic_sub_fetch(&w->watches, 1, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&w->streams_lock);
}

static void take_event(
	struct worker *w, struct stream *s, struct push *p, const struct inotify_event *ev)
{
	struct fs_inval v = { .watch = ev->wd > 0 ? (uint64_t)ev->wd : 0,
		.what = meaning(ev->mask),
		.name_len = ev->len ? (uint32_t)strnlen(ev->name, ev->len) : 0 };

	if (ev->mask & IN_IGNORED)
		forget(w, s);
	if (v.what)
		add_change(p, &v, ev->name);
}

static void begin_push(struct push *p)
{
	p->f = (struct proto_frame){ .op = FILES_INVAL };
	p->rep = (struct files_rep){ .data_len = 0 };
}

static bool send_push(struct worker *w, struct stream *s, struct push *p)
{
	struct iovec v[PUSH_PARTS];
	size_t n = wire_push(p, v);
	bool ok = !n || wire_send(w, s, s->fd, v, n);

	begin_push(p);
	return ok;
}

static void take_events(
	struct worker *w, struct stream *s, struct push *p, const char *buf, size_t len)
{
	for (size_t at = 0; at < len;) {
		const struct inotify_event *ev = (const struct inotify_event *)(buf + at);
		take_event(w, s, p, ev);
		at += sizeof(*ev) + ev->len;
	}
}

/* What is in the queue now; a guest that adds to it all the while does not keep us. */
bool watch_take(struct worker *w, struct stream *s, struct push *ret)
{
	_Alignas(struct inotify_event) char buf[PUSH_PIECE];
	int queued = -1;
	ssize_t n;

	begin_push(ret);
	if (s->ino < 0)
		return true;
	do {
		do
			n = read(s->ino, buf, sizeof(buf));
		while (n < 0 && errno == EINTR);
		if (n <= 0)
			return true;
		if (!send_push(w, s, ret))
			return false;
		take_events(w, s, ret, buf, (size_t)n);
		if (queued >= 0)
			queued -= (int)n;
		else if ((size_t)n > sizeof(buf) - sizeof(struct inotify_event) - 256 &&
			 ioctl(s->ino, FIONREAD, &queued) < 0)
			queued = 0;
	} while (queued > 0);
	return true;
}

bool watch_drain(struct worker *w, struct stream *s)
{
	struct push p;

	return watch_take(w, s, &p) && send_push(w, s, &p);
}

void watch_close(struct worker *w, struct stream *s)
{
	if (s->ino < 0)
		return;
	close(s->ino);
	s->ino = -1;
	__atomic_sub_fetch(&w->watches, s->watches, __ATOMIC_RELAXED);
	s->watches = 0;
}

static int begin(struct worker *w, struct stream *s)
{
	int fd;

	if (s->ino >= 0)
		return 0;
	fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	__atomic_store_n(&s->ino, fd, __ATOMIC_RELAXED);
	if (fd >= 0 && wait_for(w, EPOLL_CTL_ADD, fd, EVENT_CHANGES, s) == 0)
		return 0;
	if (fd >= 0)
		close(fd);
	__atomic_store_n(&s->ino, -1, __ATOMIC_RELAXED);
	return -ENOSPC; /* the sandbox's user has as many as it may */
}

/* A watch is asked for by name. The name is taken in the directory that was looked up inside the
 * root, so it leads nowhere else; for this moment that is the process's own directory. */
static int add(struct worker *w, struct stream *s, int dir, const char *name, uint32_t more)
{
	int wd;

	pthread_mutex_lock(&w->cwd);
	wd = fchdir(dir) < 0 ? -1 : inotify_add_watch(s->ino, name, CHANGES | more);
	wd = wd < 0 ? -errno : wd;
	if (fchdir(w->root_fd) < 0 && wd >= 0)
		wd = -errno;
	pthread_mutex_unlock(&w->cwd);
	return wd;
}

static bool count_watch(struct worker *w, struct stream *s)
{
	bool room;

	pthread_mutex_lock(&w->streams_lock);
	room = __atomic_load_n(&w->watches, __ATOMIC_RELAXED) < FS_WATCH_MAX;
	if (room) {
		s->watches++;
		__atomic_add_fetch(&w->watches, 1, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&w->streams_lock);
	return room;
}

/* Counted first: it may be a new one. Numbers only grow, so an old one was there before. */
static int64_t stand(struct job *j, int dir, const char *name, uint32_t more)
{
	struct stream *s = j->stream;
	int wd = begin(j->w, s);

	if (wd < 0)
		return wd;
	if (!count_watch(j->w, s))
		return -ENOSPC;
	wd = add(j->w, s, dir, name, more);
	if (wd <= s->last_wd)
		forget(j->w, s);
	else
		s->last_wd = wd;
	return wd == -EMFILE || wd == -ENOMEM ? -ENOSPC : wd;
}

/* The directory in which `name` is what `fd` shows; a file is watched by its own name only. */
static int parent_of(const struct job *j, int fd, const char **ret_name)
{
	int parent = path_parent(j->w, j->path, ret_name);
	struct stat a, b;

	if (parent < 0)
		return parent;
	if (fstat(fd, &a) == 0 && fstatat(parent, *ret_name, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
		a.st_ino == b.st_ino && a.st_dev == b.st_dev)
		return parent;
	close(parent);
	return -ELOOP;
}

/* What had changed before goes first; then the attributes are taken and the answer sent before
 * anything else is pushed: what is pushed later is newer than they are. */
int64_t op_watch(struct job *j)
{
	const char *last = ".";
	_cleanup_close_ int fd =
		path_open(j->w, j->path, O_PATH | (j->q.flags & FILES_FOLLOW ? 0 : O_NOFOLLOW), 0);
	_cleanup_close_ int parent = -1;
	struct stat st;
	int64_t wd;
	int r;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	r = path_check_fs(fd);
	if (r == 0 && !S_ISDIR(st.st_mode))
		r = parent = parent_of(j, fd, &last);
	if (r < 0)
		return r;
	pthread_mutex_lock(&j->stream->send);
	j->holds_send = true;
	(void)watch_drain(j->w, j->stream); /* when it fails so does the answer */
	wd = parent < 0 ? stand(j, fd, ".", IN_ONLYDIR) : stand(j, parent, last, 0);
	if (wd >= 0)
		r = parent < 0 ? attr_get(j->w, fd, "", false, &j->rep.attr)
			       : attr_get(j->w, parent, last, false, &j->rep.attr);
	return wd < 0 || r >= 0 ? wd : r;
}

int64_t op_unwatch(struct job *j)
{
	int r;

	pthread_mutex_lock(&j->stream->send);
	j->holds_send = true;
	r = j->stream->ino < 0 || j->q.handle > INT32_MAX
		    ? -ENOENT
		    : inotify_rm_watch(j->stream->ino, (int)j->q.handle);
	if (r == -1)
		r = errno == EINVAL ? -ENOENT : -errno;
	return r;
}
