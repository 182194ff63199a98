/* SPDX-License-Identifier: MIT */
/* Pages of a directory. The first page opens it; when there is more, the handle of the answer keeps
 * the place, so a listing costs one lookup however long it is. Cursors are the kernel's own
 * positions and also work on a fresh descriptor. */
#include "sandboxd/worker/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE_BYTES (1024u * 1024)

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

/* Adds one entry; false when the page has no room. A name that is gone meanwhile is left out. */
static bool add_entry(struct job *j, int fd, const struct dirent_raw *d, int64_t *count)
{
	struct files_entry e = { .cursor = (uint64_t)d->off,
		.name_len = (uint32_t)strlen(d->name) };
	char *at = j->out + j->out_len;

	if (dots(d->name))
		return true;
	if (j->out_len + sizeof(e) + e.name_len + FILES_PATH_MAX > PAGE_BYTES)
		return false;
	if (attr_get(j->w, fd, d->name, false, &e.attr) < 0)
		return true;
	memcpy(at + sizeof(e), d->name, e.name_len);
	if ((e.attr.mode & S_IFMT) == S_IFLNK) {
		ssize_t n =
			attr_target(fd, d->name, at + sizeof(e) + e.name_len, FILES_PATH_MAX - 1);
		e.target_len = n > 0 ? (uint32_t)n : 0;
	}
	memcpy(at, &e, sizeof(e));
	j->out_len += sizeof(e) + e.name_len + e.target_len;
	(*count)++;
	return true;
}

/* Reads entries until the page or the count is full. Bytes read ahead are given back by seeking to
 * the last entry that was taken. */
static int64_t fill_page(struct job *j, int fd)
{
	_Alignas(8) char buf[32768];
	int64_t count = 0,
		max = (int64_t)(j->q.length && j->q.length < FILES_LIST_MAX ? j->q.length
									    : FILES_LIST_MAX);

	for (;;) {
		long n = syscall(SYS_getdents64, fd, buf, sizeof(buf));
		if (n < 0)
			return -errno;
		if (n == 0) {
			j->rep.flags |= FILES_REP_END;
			return count;
		}
		for (long i = 0; i < n;) {
			const struct dirent_raw *d = (const struct dirent_raw *)(buf + i);
			if (count == max || !add_entry(j, fd, d, &count))
				return lseek(fd, (off_t)j->rep.offset, SEEK_SET) < 0 ? -errno
										     : count;
			j->rep.offset = (uint64_t)d->off;
			i += d->reclen;
		}
	}
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
	r = r < 0 ? -errno : fill_page(j, h->fd);
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
