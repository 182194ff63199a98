/* SPDX-License-Identifier: MIT */
#include "tests/support/fsc.h"

#include "common/sys/fd.h"
#include "tests/support/patience.h"
#include "tests/support/test.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define WAIT_MS patience_ms(20000)

void fsc_init(struct fsc *c, int fd)
{
	*c = (struct fsc){ .fd = fd };
}

void fsc_fini(struct fsc *c)
{
	close(c->fd);
	free(c->changes);
}

uint64_t fsc_send(struct fsc *c, enum files_op op, const struct guestfs_args *a)
{
	struct files_req q = { .handle = a->handle,
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
		.data_len = (uint32_t)a->data_len };
	struct fs_frame f = { .op = (uint16_t)op,
		.tag = ++c->tag,
		.value = op == FILES_HELLO ? FS_VERSION : 0,
		.len = (uint32_t)(sizeof(q) + q.path_len + q.path2_len + q.data_len) };
	char *buf = malloc(sizeof(f) + f.len), *p = buf;

	assert_non_null(buf);
	p = (char *)memcpy(p, &f, sizeof(f)) + sizeof(f);
	p = (char *)memcpy(p, &q, sizeof(q)) + sizeof(q);
	if (q.path_len)
		memcpy(p, a->path, q.path_len);
	if (q.path2_len)
		memcpy(p + q.path_len, a->path2, q.path2_len);
	if (q.data_len)
		memcpy(p + q.path_len + q.path2_len, a->data, q.data_len);
	assert_int_equal(fd_send_full(c->fd, buf, sizeof(f) + f.len, WAIT_MS), 0);
	free(buf);
	return f.tag;
}

static void take_push(struct fsc *c, const struct fsc_answer *a)
{
	int64_t n = 0;

	assert_int_equal(a->f.tag, 0);
	for (size_t i = 0; i < a->rep.data_len; n++) {
		struct fs_inval v;
		assert_true(i + sizeof(v) <= a->rep.data_len);
		memcpy(&v, a->data + i, sizeof(v));
		i += sizeof(v);
		assert_true(v.name_len <= 255 && v.name_len <= a->rep.data_len - i);
		c->changes = realloc(c->changes, (c->nchanges + 1) * sizeof(*c->changes));
		assert_non_null(c->changes);
		struct fsc_change *ch = &c->changes[c->nchanges++];
		*ch = (struct fsc_change){ .watch = v.watch, .what = v.what };
		memcpy(ch->name, a->data + i, v.name_len);
		i += v.name_len;
	}
	assert_int_equal(n, a->f.value);
	c->pushes++;
}

/* One frame, answer or push. */
static bool recv_frame(struct fsc *c, struct fsc_answer *ret)
{
	*ret = (struct fsc_answer){ .data = NULL };
	int r = fd_recv_full(c->fd, &ret->f, sizeof(ret->f), WAIT_MS);
	if (r == -ETIMEDOUT)
		fail_msg("no answer within %d ms", WAIT_MS);
	if (r < 0)
		return false;
	assert_true(
		ret->f.len >= sizeof(ret->rep) && ret->f.len - sizeof(ret->rep) <= FILES_DATA_MAX);
	if (fd_recv_full(c->fd, &ret->rep, sizeof(ret->rep), WAIT_MS) < 0)
		return false;
	assert_int_equal(ret->rep.data_len, ret->f.len - sizeof(ret->rep));
	ret->data = calloc(1, ret->rep.data_len + 1);
	assert_non_null(ret->data);
	return fd_recv_full(c->fd, ret->data, ret->rep.data_len, WAIT_MS) == 0;
}

bool fsc_recv(struct fsc *c, struct fsc_answer *ret)
{
	for (;;) {
		if (!recv_frame(c, ret)) {
			fsc_answer_free(ret);
			return false;
		}
		if (ret->f.op != FILES_INVAL || ret->f.tag)
			return true;
		take_push(c, ret);
		fsc_answer_free(ret);
	}
}

void fsc_answer_free(struct fsc_answer *a)
{
	free(a->data);
	a->data = NULL;
}

int64_t fsc_call(
	struct fsc *c, enum files_op op, const struct guestfs_args *a, struct fsc_answer *ret)
{
	struct fsc_answer mine;
	uint64_t tag = fsc_send(c, op, a);
	int64_t value;

	ret = ret ? ret : &mine;
	assert_true(fsc_recv(c, ret));
	assert_int_equal(ret->f.tag, tag);
	assert_int_equal(ret->f.op, op);
	value = ret->f.value;
	if (ret == &mine)
		fsc_answer_free(&mine);
	return value;
}

struct fs_hello fsc_hello(struct fsc *c)
{
	struct fsc_answer a;
	struct fs_hello h;

	assert_int_equal(fsc_call(c, FILES_HELLO, &(struct guestfs_args){ .client = 0 }, &a), 1);
	assert_int_equal(a.rep.data_len, sizeof(h));
	memcpy(&h, a.data, sizeof(h));
	fsc_answer_free(&a);
	return h;
}

void fsc_forget(struct fsc *c)
{
	c->nchanges = 0;
	c->pushes = 0;
}

static bool changed_from(
	const struct fsc *c, size_t from, uint64_t watch, const char *name, uint32_t what)
{
	for (size_t i = from; i < c->nchanges; i++)
		if (c->changes[i].watch == watch && (c->changes[i].what & what) &&
			(!name || !strcmp(c->changes[i].name, name)))
			return true;
	return false;
}

bool fsc_changed(const struct fsc *c, uint64_t watch, const char *name, uint32_t what)
{
	return changed_from(c, 0, watch, name, what);
}

void fsc_await(struct fsc *c, uint64_t watch, const char *name, uint32_t what)
{
	size_t from = 0;

	while (!changed_from(c, from, watch, name, what)) {
		struct fsc_answer a;
		from = c->nchanges;
		assert_true(recv_frame(c, &a));
		assert_int_equal(a.f.op, FILES_INVAL);
		take_push(c, &a);
		fsc_answer_free(&a);
	}
}

bool fsc_ended(struct fsc *c, int ms)
{
	char buf[4096];

	while (fd_wait(c->fd, POLLIN, patience_ms(ms))) {
		ssize_t n = recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			return true;
	}
	return false;
}
