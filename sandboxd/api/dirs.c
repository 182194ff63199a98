/* SPDX-License-Identifier: MIT */
/* GET …/dirs: a whole directory at once, sorted by bytes. What is not a directory is a "file"; only
 * regular files have a size. Built in memory, with a limit. */
#include "sandboxd/api/files.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

struct dirents {
	struct dirent_row {
		char *name;
		size_t len;
		bool dir;
		uint64_t size;
	} * rows;
	size_t n, room, bytes;
};

static void dirents_free(struct dirents *d)
{
	for (size_t i = 0; i < d->n; i++)
		free(d->rows[i].name);
	free(d->rows);
}

static int dirents_add(void *arg, const struct guestfs_entry *en, struct err *e)
{
	struct dirents *d = arg;
	struct dirent_row row = { .len = en->name_len,
		.dir = S_ISDIR(en->attr.mode),
		.size = S_ISREG(en->attr.mode) ? en->attr.size : 0 };

	d->bytes += sizeof(row) + en->name_len;
	if (d->bytes > TEXT_MAX)
		return err_set(e, ERR_INTERNAL, "the directory has too many entries");
	if (d->n == d->room) {
		size_t room = d->room ? d->room * 2 : 64;
		void *p = realloc(d->rows, room * sizeof(row));
		if (!p)
			return err_sys(e, ENOMEM, "list a directory");
		d->rows = p;
		d->room = room;
	}
	row.name = malloc(en->name_len);
	if (!row.name)
		return err_sys(e, ENOMEM, "list a directory");
	memcpy(row.name, en->name, en->name_len);
	d->rows[d->n++] = row;
	return 0;
}

static int by_bytes(const void *a, const void *b)
{
	const struct dirent_row *x = a, *y = b;
	int c = memcmp(x->name, y->name, x->len < y->len ? x->len : y->len);

	return c ? c : (x->len > y->len) - (x->len < y->len);
}

static int read_dir(struct guestfs *fs, const char *path, struct dirents *d, struct err *e)
{
	struct guestfs_page page = { .cursor = 0 };

	do {
		if (guestfs_list(fs, path, &page, dirents_add, d, e) < 0) {
			guestfs_drop(fs, 0, page.handle);
			return -1;
		}
		page.cursor = FILES_CURSOR_GO_ON;
	} while (!page.end);
	if (d->n)
		qsort(d->rows, d->n, sizeof(*d->rows), by_bytes);
	return 0;
}

int handle_dir_list(struct call *c, struct err *e)
{
	char path[GUEST_PATH_MAX];
	_cleanup_(dirents_free) struct dirents d = { .rows = NULL };
	_cleanup_(text_free) struct text t = TEXT_NULL;
	_cleanup_visit_ struct visit v = { .s = NULL };

	if (files_path(c, path, e) < 0 || visit_begin(c, &v, e) < 0)
		return -1;
	if (read_dir(v.s->fs, path, &d, e) < 0)
		return -1;
	text_str(&t, "{\"entries\":[");
	for (size_t i = 0; i < d.n; i++) {
		text_str(&t, i ? ",{" : "{");
		text_name(&t, "name", d.rows[i].name, d.rows[i].len);
		text_fmt(&t, ",\"type\":\"%s\",\"size\":%llu}", d.rows[i].dir ? "dir" : "file",
			(unsigned long long)d.rows[i].size);
	}
	text_str(&t, "]}");
	return reply_text(c, 200, &t, e);
}
