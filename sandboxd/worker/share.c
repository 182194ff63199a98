/* SPDX-License-Identifier: MIT */
/* Memory that a client on the same machine gives for the data of its reads and writes: the kernel
 * then copies it once between file and client. Only system calls touch it here, never our own code:
 * so what the client does to it meanwhile is an error of a call at worst. That it is sealed against
 * shrinking is looked at all the same. */
#include "sandboxd/worker/state.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#ifndef F_GET_SEALS
#define F_GET_SEALS   1034
#define F_SEAL_SHRINK 2
#endif
#define PAGE 4096u

static bool is_fit(int fd, uint64_t len)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &st) == 0 &&
	       (uint64_t)st.st_size >= len;
}

int64_t op_share(struct job *j)
{
	struct stream *s = j->stream;
	uint64_t len = j->q.length;
	void *p;

	if (s->shared || j->fd < 0 || !len || len > FS_SHARED_MAX || len % PAGE ||
		!is_fit(j->fd, len))
		return -EINVAL;
	p = mmap(NULL, (size_t)len, PROT_READ | PROT_WRITE, MAP_SHARED, j->fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	s->shared = p;
	s->shared_len = (size_t)len;
	return 0;
}

char *share_at(const struct job *j, size_t len)
{
	const struct stream *s = j->stream;
	uint64_t at = j->q.offset2;

	return s && s->shared && len <= s->shared_len && at <= s->shared_len - len ? s->shared + at
										   : NULL;
}

void share_end(struct stream *s)
{
	if (s->shared)
		(void)munmap(s->shared, s->shared_len);
	s->shared = NULL;
}
