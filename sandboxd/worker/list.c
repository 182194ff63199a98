/* SPDX-License-Identifier: MIT */
/* Pages of a directory. The first page opens it; when there is more, the handle of the answer keeps
 * the place, so a listing costs one lookup however long it is. Cursors are the kernel's own
 * positions and also work on a fresh descriptor. Nearly all the time goes into attributes that the kernel
 * has to fetch from the disk's tree: two threads do that when there are many. */
#include "sandboxd/worker/state.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE_BYTES (1024u * 1024)
#define READ_BYTES 32768
#define READ_MOST  (READ_BYTES / 24) /* entries: the shortest has so many bytes */
#define TWO_FROM   96                /* as many make a second thread worth its beginning */
#define STEP       8

struct dirent_raw {
	uint64_t ino;
	int64_t off;
	uint16_t reclen;
	uint8_t type;
	char name[];
};

static bool dots(const char *n)
{
	return n[0] == '.' && (!n[1] || (n[1] == '.' && !n[2]));
}

/* What one read of the directory gave. */
struct batch {
	struct worker *w;
	int fd;
	size_t n, next; /* next: atomic, the first whose attributes nobody fetches */
	bool cut;       /* there was more in it */
	struct {
		const struct dirent_raw *d;
		struct files_attr attr;
		bool is; /* else gone meanwhile, or a dot */
	} v[READ_MOST];
	_Alignas(8) char buf[READ_BYTES];
};

static void *look_at_some(void *arg)
{
	struct batch *b = arg;
	size_t i;

	while ((i = __atomic_fetch_add(&b->next, STEP, __ATOMIC_RELAXED)) < b->n)
		for (size_t k = i; k < i + STEP && k < b->n; k++)
			b->v[k].is = !dots(b->v[k].d->name) &&
				     attr_get(b->w, b->fd, b->v[k].d->name, false, &b->v[k].attr) == 0;
	return NULL;
}

static void look_at_all(struct batch *b)
{
	pthread_t other;
	bool two = b->n >= TWO_FROM && pthread_create(&other, NULL, look_at_some, b) == 0;

	look_at_some(b);
	if (two)
		pthread_join(other, NULL);
}

/* The next entries, at most `most`. Their number, or -errno. */
static int read_batch(struct batch *b, size_t most)
{
	long i = 0, n = syscall(SYS_getdents64, b->fd, b->buf, sizeof(b->buf));

	if (n < 0)
		return -errno;
	b->n = b->next = 0;
	while (i < n && b->n < most && b->n < READ_MOST) {
		b->v[b->n].d = (const struct dirent_raw *)(b->buf + i);
		i += b->v[b->n++].d->reclen;
	}
	b->cut = i < n;
	look_at_all(b);
	return (int)b->n;
}

/* Adds one entry; false when the page has no room. */
static bool add_entry(struct job *j, int fd, const struct dirent_raw *d, const struct files_attr *attr)
{
	struct files_entry e = { .cursor = (uint64_t)d->off,
		.name_len = (uint32_t)strlen(d->name), .attr = *attr };
	char *at = j->out + j->out_len;

	if (j->out_len + sizeof(e) + e.name_len + FILES_PATH_MAX > PAGE_BYTES)
		return false;
	memcpy(at + sizeof(e), d->name, e.name_len);
	if ((e.attr.mode & S_IFMT) == S_IFLNK) {
		ssize_t n =
			attr_target(fd, d->name, at + sizeof(e) + e.name_len, FILES_PATH_MAX - 1);
		e.target_len = n > 0 ? (uint32_t)n : 0;
	}
	memcpy(at, &e, sizeof(e));
	j->out_len += sizeof(e) + e.name_len + e.target_len;
	return true;
}

/* Reads entries until the page or the count is full. Bytes read ahead are given back by seeking to
 * the last entry that was taken. */
static int64_t fill_page(struct job *j, int fd, struct batch *b)
{
	int64_t count = 0,
		max = (int64_t)(j->q.length && j->q.length < FILES_LIST_MAX ? j->q.length
									    : FILES_LIST_MAX);

	for (;;) {
		/* One more: that there is none is the end, which is to be told. */
		int n = read_batch(b, (size_t)(max - count) + 3);
		if (n < 0)
			return n;
		if (n == 0) {
			j->rep.flags |= FILES_REP_END;
			return count;
		}
		for (int i = 0; i < n; i++) {
			if (b->v[i].is && (count == max || !add_entry(j, fd, b->v[i].d, &b->v[i].attr)))
				return lseek(fd, (off_t)j->rep.offset, SEEK_SET) < 0 ? -errno
										     : count;
			count += b->v[i].is;
			j->rep.offset = (uint64_t)b->v[i].d->off;
		}
		if (b->cut && lseek(fd, (off_t)j->rep.offset, SEEK_SET) < 0)
			return -errno;
	}
}

static int64_t page(struct job *j, int fd)
{
	struct batch *b = malloc(sizeof(*b));
	int64_t r;

	if (!b)
		return -ENOMEM;
	b->w = j->w;
	b->fd = fd;
	r = fill_page(j, fd, b);
	free(b);
	return r;
}

static int64_t next_page(struct job *j, struct handle *h)
{
	int64_t r;

	pthread_mutex_lock(&h->lock);
	if (j->q.offset != FILES_CURSOR_GO_ON)
		r = lseek(h->fd, (off_t)j->q.offset, SEEK_SET);
	else
		r = lseek(h->fd, 0, SEEK_CUR);
	j->rep.offset = (uint64_t)r;
	r = r < 0 ? -errno : page(j, h->fd);
	pthread_mutex_unlock(&h->lock);
	return r;
}

int64_t op_list(struct job *j)
{
	struct handle *h;
	int64_t r;
	int err = 0;

	if (j->q.handle) {
		h = handle_get(j->w, j->q.client, j->q.handle);
		if (!h)
			return -FILES_E_HANDLE;
		r = h->fd >= 0 && h->dir ? next_page(j, h) : -ENOTDIR;
	} else {
		int fd = path_open(j->w, j->path, O_RDONLY | O_DIRECTORY, 0);
		if (fd < 0)
			return fd;
		h = handle_new(j->w, j->q.client, j->path, &err);
		if (!h) {
			close(fd);
			return err;
		}
		h->fd = fd;
		h->dir = true;
		r = next_page(j, h);
		if (r < 0 || (j->rep.flags & FILES_REP_END))
			handle_close(j->w, h, false);
	}
	j->rep.handle = r >= 0 && !(j->rep.flags & FILES_REP_END) ? h->id : 0;
	handle_put(j->w, h);
	return r;
}
