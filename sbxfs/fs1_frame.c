/* SPDX-License-Identifier: MIT */
#include "sbxfs/fs1_frame.h"

#include <errno.h>
#include <string.h>

bool fs1_head_ok(const struct fs_frame *f, const struct files_rep *r)
{
	uint32_t max = f->tag ? FILES_DATA_MAX : FS_PUSH_MAX;

	return f->flags == 0 && f->len >= sizeof(*r) && r->data_len <= max &&
		f->len - sizeof(*r) == r->data_len &&
		(f->tag || f->op == FILES_INVAL || (f->op == FILES_GRANT && !r->data_len));
}

int fs1_errno(int64_t value)
{
	static const struct {
		int from, to;
	} own[] = { { FILES_E_NOTREG, EINVAL }, { FILES_E_REFUSED, EPERM }, { FILES_E_RACED, EAGAIN },
		{ FILES_E_HANDLE, ESTALE },
		{ ENOSYS, EOPNOTSUPP }, /* the kernel would never ask again, of nobody */
		{ EINTR, EIO } };       /* would be asked again for ever */

	for (size_t n = 0; n < sizeof(own) / sizeof(own[0]); n++)
		if (value == -own[n].from)
			return -own[n].to;
	return value < 0 && value > -512 ? (int)value : -EIO;
}

bool fs1_hello_ok(const struct fs_frame *f, const struct files_rep *r, const struct fs_hello *h)
{
	return f->op == FILES_HELLO && f->value == FS_VERSION && r->data_len == sizeof(*h) &&
		h->data_max >= 1024 * 1024 && h->inflight_max >= 1;
}

static bool time_ok(const struct files_time *t)
{
	return t->nsec < 1000000000;
}

static bool type_ok(uint32_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG: case S_IFDIR: case S_IFLNK: case S_IFIFO: case S_IFSOCK: case S_IFCHR: case S_IFBLK:
		return true;
	default:
		return false;
	}
}

bool fs1_attr_ok(const struct files_attr *a)
{
	return type_ok(a->mode) && a->size <= INT64_MAX && a->blocks <= INT64_MAX && time_ok(&a->atime) &&
		time_ok(&a->mtime) && time_ok(&a->ctime);
}

static bool name_ok(const char *p, size_t len)
{
	return len > 0 && len < 256 && !memchr(p, '/', len) && !memchr(p, '\0', len) &&
		!(p[0] == '.' && (len == 1 || (len == 2 && p[1] == '.')));
}

static void take_name(char out[256], const char *p, size_t len)
{
	if (!name_ok(p, len))
		len = 0;
	memcpy(out, p, len);
	out[len] = '\0';
}

int fs1_next_entry(const char *buf, size_t len, size_t *at, struct fs1_entry *ret)
{
	size_t left = len - *at;
	struct files_entry e;

	if (!left)
		return 0;
	if (left < sizeof(e))
		return -1;
	memcpy(&e, buf + *at, sizeof(e));
	left -= sizeof(e);
	if (e.name_len > left || e.target_len > left - e.name_len)
		return -1;
	buf += *at + sizeof(e);
	*at += sizeof(e) + e.name_len + e.target_len;
	ret->attr = e.attr;
	take_name(ret->name, buf, e.name_len);
	if (!fs1_attr_ok(&e.attr))
		ret->name[0] = '\0';
	if (e.target_len >= sizeof(ret->target) || memchr(buf + e.name_len, '\0', e.target_len))
		e.target_len = 0;
	memcpy(ret->target, buf + e.name_len, e.target_len);
	ret->target[e.target_len] = '\0';
	return 1;
}

int fs1_next_change(const char *buf, size_t len, size_t *at, struct fs1_change *ret)
{
	size_t left = len - *at;

	if (!left)
		return 0;
	if (left < sizeof(ret->head))
		return -1;
	memcpy(&ret->head, buf + *at, sizeof(ret->head));
	left -= sizeof(ret->head);
	if (ret->head.name_len > left)
		return -1;
	take_name(ret->name, buf + *at + sizeof(ret->head), ret->head.name_len);
	*at += sizeof(ret->head) + ret->head.name_len;
	return 1;
}
