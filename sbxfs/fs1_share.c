/* SPDX-License-Identifier: MIT */
/* Memory shared with the peer, when it is on this machine: what is read ahead and written late lies in
 * it, so that it goes through no socket. The peer may write there when it likes; so nothing in it is ever
 * looked at here, it is only passed on to the kernel. A piece that was given up stays taken until the
 * peer has answered, or it would end up in another file. */
#include "sbxfs/fs1_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES ((size_t)FS1_PIECES * CHUNK)

/* Sealed, so that the peer may touch all of it as long as it likes. */
static int make_memory(char **ret)
{
	int fd = memfd_create("sbxfs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *p;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)BYTES) < 0 ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		close(fd);
		return -errno;
	}
	p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		close(fd);
		return -ENOMEM;
	}
	*ret = p;
	return fd;
}

bool fs1_share_begin(struct fs1_conn *c, int *ret_fd)
{
	struct fs1 *f = c->m->fs1;

	c->share.fd = -1;
	if (!(c->hello.features & FS_FEATURE_SHARED))
		return false;
	if (atomic_fetch_add(&f->shares, 1) < FS1_SHARES)
		c->share.fd = make_memory(&c->share.base);
	if (c->share.fd < 0)
		atomic_fetch_sub(&f->shares, 1);
	*ret_fd = c->share.fd;
	return c->share.fd >= 0;
}

void fs1_share_end(struct fs1_conn *c)
{
	if (!c->share.base)
		return;
	(void)munmap(c->share.base, BYTES);
	close(c->share.fd);
	c->share.base = NULL;
	atomic_fetch_sub(&c->m->fs1->shares, 1);
}

/* Ours before the peer touches it, so that it counts for this side. */
static bool fill_in(struct fs1_conn *c, unsigned n)
{
	if (atomic_load(&c->share.there[n]))
		return true;
	if (fallocate(c->share.fd, 0, (off_t)n * CHUNK, CHUNK) < 0)
		return false;
	atomic_store(&c->share.there[n], true);
	return true;
}

static char *take_piece(struct fs1_conn *c)
{
	for (unsigned n = 0; n < FS1_PIECES; n++) {
		unsigned none = 0;

		if (!atomic_compare_exchange_strong(&c->share.refs[n], &none, 1))
			continue;
		if (fill_in(c, n))
			return c->share.base + (size_t)n * CHUNK;
		atomic_store(&c->share.refs[n], 0);
		break;
	}
	return NULL;
}

bool fs1_buf_take(struct req *q, const char *box, struct fs1_buf *ret)
{
	struct fs1_conn *c = fs1_get(q, box);

	*ret = (struct fs1_buf){ .p = c && c->share.base ? take_piece(c) : NULL };
	if (ret->p) {
		ret->conn = c;
		return true;
	}
	if (c)
		fs1_put(c);
	ret->p = malloc(CHUNK);
	return ret->p != NULL;
}

static unsigned piece_of(const struct fs1_buf *b)
{
	return (unsigned)((size_t)(b->p - b->conn->share.base) / CHUNK);
}

void fs1_buf_free(struct fs1_buf *b)
{
	if (!b->conn) {
		free(b->p);
	} else {
		atomic_fetch_sub(&b->conn->share.refs[piece_of(b)], 1);
		fs1_put(b->conn);
	}
	*b = (struct fs1_buf){ .p = NULL };
}

unsigned fs1_buf_hold(const struct fs1_buf *b)
{
	unsigned n = piece_of(b);

	atomic_fetch_add(&b->conn->share.refs[n], 1);
	return n + 1;
}

void fs1_buf_let(struct fs1_conn *c, unsigned held)
{
	if (held)
		atomic_fetch_sub(&c->share.refs[held - 1], 1);
}

uint64_t fs1_buf_place(const struct fs1_buf *b)
{
	return (uint64_t)(b->p - b->conn->share.base);
}

void fs1_share_tidy(struct fs1_conn *c)
{
	for (unsigned n = 0; c->share.base && n < FS1_PIECES; n++) {
		unsigned none = 0;

		if (!atomic_load(&c->share.there[n]) ||
			!atomic_compare_exchange_strong(&c->share.refs[n], &none, 1))
			continue;
		if (fallocate(c->share.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)n * CHUNK, CHUNK) == 0)
			atomic_store(&c->share.there[n], false);
		atomic_store(&c->share.refs[n], 0);
	}
}
