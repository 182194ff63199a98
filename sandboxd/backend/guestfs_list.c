/* SPDX-License-Identifier: MIT */
/* Answers that hold many things: pages of a directory, handles that have expired. Each entry is
 * taken off the page only when all of it is sound; one bad entry spoils the page. */
#include "sandboxd/backend/guestfs_check.h"

#include "common/base/log.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static bool name_sound(const char *n, size_t len)
{
	return len > 0 && len <= 255 && !memchr(n, '/', len) && !memchr(n, '\0', len) &&
	       !(n[0] == '.' && (len == 1 || (len == 2 && n[1] == '.')));
}

/* Takes one entry off a page; the bytes used, or 0 when it is not sound. */
static size_t take_entry(const char *at, size_t left, struct files_entry *head)
{
	size_t need;

	if (left < sizeof(*head))
		return 0;
	memcpy(head, at, sizeof(*head));
	if (head->name_len > 255 || head->target_len >= FILES_PATH_MAX)
		return 0;
	need = sizeof(*head) + head->name_len + head->target_len;
	at += sizeof(*head);
	if (need > left || !guestfs_attr_ok(&head->attr) || !name_sound(at, head->name_len) ||
		memchr(at + head->name_len, '\0', head->target_len))
		return 0;
	return need;
}

static int walk_page(const struct guestfs_result *r,
	int (*each)(void *arg, const struct guestfs_entry *en, struct err *e), void *arg,
	struct err *e)
{
	char name[256], target[FILES_PATH_MAX];
	struct files_entry head;

	for (size_t i = 0; i < r->data_len;) {
		size_t n = take_entry(r->data + i, r->data_len - i, &head);
		if (!n)
			return guestfs_nonsense("entry", e);
		const char *at = r->data + i + sizeof(head);
		memcpy(name, at, head.name_len);
		name[head.name_len] = '\0';
		memcpy(target, at + head.name_len, head.target_len);
		target[head.target_len] = '\0';
		struct guestfs_entry en = { .name = name,
			.name_len = head.name_len,
			.target = S_ISLNK(head.attr.mode) ? target : NULL,
			.target_len = head.target_len,
			.cursor = head.cursor,
			.attr = head.attr };
		if (each(arg, &en, e) < 0)
			return -1;
		i += n;
	}
	return 0;
}

int guestfs_list(struct guestfs *fs, const char *path, struct guestfs_page *page,
	int (*each)(void *arg, const struct guestfs_entry *en, struct err *e), void *arg,
	struct err *e)
{
	struct guestfs_args a = { .client = page->client,
		.handle = page->handle,
		.path = path,
		.offset = page->cursor,
		.length = page->limit };
	struct guestfs_result r;
	int n;

	if (guestfs_call(fs, FILES_LIST, &a, &r, e) < 0)
		return -1;
	n = walk_page(&r, each, arg, e);
	page->end = r.flags & FILES_REP_END;
	/* A page that neither ends nor goes on would be asked for again and again. */
	if (n == 0 && !page->end && (!r.handle || !r.data_len))
		n = guestfs_nonsense("page", e);
	page->handle = page->end ? 0 : r.handle;
	page->cursor = r.offset;
	guestfs_result_free(&r);
	return n;
}

unsigned guestfs_tell_done(
	struct guestfs *fs, const struct guestfs_result *r, guestfs_done_fn *each, void *arg)
{
	char path[FILES_PATH_MAX];
	unsigned n = 0, untold = 0;

	for (size_t i = 0; n < GUESTFS_CLOSED_MAX && i + sizeof(struct files_closed) <= r->data_len;) {
		struct files_closed c;
		memcpy(&c, r->data + i, sizeof(c));
		i += sizeof(c);
		if (c.path_len >= FILES_PATH_MAX || c.path_len > r->data_len - i ||
			c.bytes_read > INT64_MAX || c.bytes_written > INT64_MAX)
			break;
		memcpy(path, r->data + i, c.path_len);
		path[c.path_len] = '\0';
		i += c.path_len;
		n++;
		if (guestfs_may_tell(fs, c.path_len))
			each(arg, path, c.bytes_read, c.bytes_written, c.flags);
		else
			untold++;
	}
	if (untold)
		log_warn("more happens to a sandbox's files than the log takes of one untold=%u", untold);
	return n;
}

void guestfs_expired(struct guestfs *fs, guestfs_done_fn *each, void *arg)
{
	struct guestfs_args a = { .client = 0 };
	struct guestfs_result r;

	if (!guestfs_take_expired(fs))
		return;
	if (guestfs_call(fs, FILES_EXPIRED, &a, &r, NULL) < 0)
		return;
	(void)guestfs_tell_done(fs, &r, each, arg);
	guestfs_result_free(&r);
}
